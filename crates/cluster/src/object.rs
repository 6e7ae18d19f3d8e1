//! A plan's objects as they are sent to the API server.

use firesteel_spark::driver::Object;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;

/// One object of a plan with its API resource.
#[derive(Debug, Clone)]
pub struct PlannedObject {
    pub resource: ApiResource,
    pub body: DynamicObject,
    kind: String,
}

impl PlannedObject {
    pub fn new(object: &Object) -> serde_json::Result<Self> {
        let body: DynamicObject = serde_json::from_value(object.to_value()?)?;
        let types = body.types.clone().unwrap_or_default();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", types.api_version.as_str()));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        Ok(PlannedObject { resource, body, kind: types.kind.to_lowercase() })
    }

    /// The kind in lower case, as people write it.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> &str {
        self.body.metadata.name.as_deref().unwrap_or_default()
    }
}
