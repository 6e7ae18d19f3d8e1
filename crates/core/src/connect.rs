//! Spark Connect servers: from a SparkConnect to a server pod that lives until the object is deleted.
//!
//! - [`application`] reads the specification as that of an application whose driver is the Connect server, so that
//!   validation and planning are those of applications;
//! - [`plan`] decides which objects make up one server: pod, headless Service, ConfigMaps, and a grant if its executors are
//!   outside the driver; [`service`] plans the Service that clients connect to, which outlives its servers;
//! - [`server`] is the view of a server pod, and [`step`] decides what follows from it.
//!
//! A server is replaced, never changed: it has an attempt number, from which its ids derive, and the hash of the
//! specification it was created from. At most one server exists at a time, and its pod is always named `NAME-server`.

pub mod application;
pub mod plan;
pub mod server;
pub mod service;
pub mod step;

use std::collections::BTreeMap;

use firesteel_api::{SparkConnectSpec, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The object around a specification.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub spec: &'a SparkConnectSpec,
}

impl Subject<'_> {
    /// The name of the server pod.
    pub fn pod_name(&self) -> String {
        format!("{}-server", self.name)
    }

    /// The name of the Service that clients connect to.
    pub fn service_name(&self) -> String {
        let given = self.spec.server.service.as_ref().and_then(|service| service.metadata.name.clone());
        given.filter(|name| !name.is_empty()).unwrap_or_else(|| self.pod_name())
    }

    /// A reference to the object. Only one owner of an object may be its controller; for executors that is the server.
    fn owner(&self, controller: bool) -> OwnerReference {
        OwnerReference {
            api_version: names::CONNECT_API_VERSION.to_owned(),
            kind: names::CONNECT_KIND.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.to_owned(),
            controller: Some(controller),
            block_owner_deletion: Some(controller),
        }
    }
}
