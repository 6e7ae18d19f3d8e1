//! The objects beside a driver pod, in the form in which they are sent and shown.

use anyhow::Context as _;
use firesteel_spark::driver::Object;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;

/// One object with its place in the API.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    pub(crate) resource: ApiResource,
    pub(crate) body: DynamicObject,
    kind: String,
}

impl Beside {
    pub(crate) fn new(object: &Object) -> anyhow::Result<Beside> {
        let body: DynamicObject =
            serde_json::from_value(value(object)?).context("a planned object cannot be written")?;
        let types = body.types.clone().unwrap_or_default();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", types.api_version.as_str()));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        Ok(Beside { resource, body, kind: types.kind.to_lowercase() })
    }

    /// The kind as a person writes it.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn name(&self) -> &str {
        self.body.metadata.name.as_deref().unwrap_or_default()
    }
}

/// An object as JSON, with `apiVersion` and `kind`.
pub(crate) fn value(object: &Object) -> serde_json::Result<Value> {
    match object {
        Object::ConfigMap(object) => serde_json::to_value(object),
        Object::Service(object) => serde_json::to_value(object),
        Object::Secret(object) => serde_json::to_value(object),
        Object::PersistentVolumeClaim(object) => serde_json::to_value(object),
        Object::NetworkPolicy(object) => serde_json::to_value(object),
    }
}
