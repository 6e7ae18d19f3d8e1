//! Objects that go with a pod, and files to upload before it starts.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::input::Input;

/// One object that goes with the driver pod. Its namespace is set, its owner is not.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan holds a handful of them")]
pub enum Object {
    ConfigMap(ConfigMap),
    Service(Service),
    Secret(Secret),
    PersistentVolumeClaim(PersistentVolumeClaim),
    NetworkPolicy(NetworkPolicy),
}

impl Object {
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Object::ConfigMap(o) => &o.metadata,
            Object::Service(o) => &o.metadata,
            Object::Secret(o) => &o.metadata,
            Object::PersistentVolumeClaim(o) => &o.metadata,
            Object::NetworkPolicy(o) => &o.metadata,
        }
    }

    pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Object::ConfigMap(o) => &mut o.metadata,
            Object::Service(o) => &mut o.metadata,
            Object::Secret(o) => &mut o.metadata,
            Object::PersistentVolumeClaim(o) => &mut o.metadata,
            Object::NetworkPolicy(o) => &mut o.metadata,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Object::ConfigMap(_) => "ConfigMap",
            Object::Service(_) => "Service",
            Object::Secret(_) => "Secret",
            Object::PersistentVolumeClaim(_) => "PersistentVolumeClaim",
            Object::NetworkPolicy(_) => "NetworkPolicy",
        }
    }

    /// The object as JSON, apiVersion and kind included.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        match self {
            Object::ConfigMap(o) => serde_json::to_value(o),
            Object::Service(o) => serde_json::to_value(o),
            Object::Secret(o) => serde_json::to_value(o),
            Object::PersistentVolumeClaim(o) => serde_json::to_value(o),
            Object::NetworkPolicy(o) => serde_json::to_value(o),
        }
    }
}

/// A local file and its upload target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// An absolute path on the submitting side.
    pub from: String,
    /// The full target URI, below `spark.kubernetes.file.upload.path`.
    pub to: String,
    /// The setting or argument that names the file.
    pub input: Input,
}
