//! Applications that do not parse: which fields are wrong, and the rest of the specification. The rest is enough to
//! follow a run, not to start one.

use firesteel_api::SparkApplication;
use firesteel_core::{identity, legible};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use serde::Deserialize;

use crate::context::Context;
use crate::error::{During, Error};

/// How many faults one message names.
const NAMED_FAULTS: usize = 5;

/// A specification that does not parse.
#[derive(Debug, Clone)]
pub(crate) struct Unreadable {
    /// A message that names the field.
    pub problem: String,
    /// Unique to this specification.
    pub spec_hash: String,
}

/// Reads as much of an application as possible. `None` if it is gone or parses by now.
pub(crate) async fn read(
    ctx: &Context,
    meta: &ObjectMeta,
    error: &str,
) -> Result<Option<(SparkApplication, Unreadable)>, Error> {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let resource = ApiResource::erase::<SparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &namespace, &resource);
    let Some(object) = api.get_opt(&name).await.during(|| "read the application".to_owned())? else { return Ok(None) };
    let (spec, faults) = legible::application(&object.data["spec"]);
    let status = Option::deserialize(&object.data["status"]);
    if faults.is_empty() && status.is_ok() {
        return Ok(None);
    }
    let problem = match faults.is_empty() {
        true => error.to_owned(),
        false => faults.iter().take(NAMED_FAULTS).map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    tracing::debug!(problem, "this application does not parse");
    let unreadable = Unreadable { problem, spec_hash: identity::digest(&object.data["spec"]) };
    let app = SparkApplication { metadata: object.metadata, spec, status: status.unwrap_or_default() };
    Ok(Some((app, unreadable)))
}
