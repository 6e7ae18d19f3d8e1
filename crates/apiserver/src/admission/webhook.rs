//! Validating admission webhooks: selects them, calls them concurrently, and evaluates their responses.

mod call;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::cel_expression::Scope;
use super::{Attributes, policy, rules};
use crate::meta;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const TABLE: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const USUAL_TIMEOUT: u64 = 10;

pub(super) async fn validate(
    state: &Arc<State>,
    attributes: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let Ok(configurations) = state.store.list(TABLE, None, None, usize::MAX, None, |_| true) else { return Ok(()) };
    let configurations: Vec<_> = configurations.items.iter().map(|(_, stored)| stored.value()).collect();
    let mut concerned = Vec::new();
    for configuration in &configurations {
        for hook in configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten() {
            if let Some(version) = version_for(state, attributes, hook)? {
                concerned.push((hook, version));
            }
        }
    }
    let answers =
        join_all(concerned.iter().map(|(hook, version)| call_webhook(state, attributes, hook, version))).await;
    let mut refused = None;
    for answer in answers {
        match answer {
            Ok(said) => warnings.extend(said),
            Err(failure) => {
                refused.get_or_insert(failure);
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// The version to send to a webhook; `None` if it does not match the request.
fn version_for(state: &State, attributes: &Attributes<'_>, hook: &Value) -> ApiResult<Option<Arc<str>>> {
    if !rules::selected(state, attributes, hook) {
        return Ok(None);
    }
    let exact = meta::text(hook, "/matchPolicy") == "Exact";
    let Some(version) = rules::version_for(state, attributes, hook.get("rules"), exact) else { return Ok(None) };
    let conditions = hook.get("matchConditions");
    if conditions.and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Ok(Some(version));
    }
    let (object, old) = (
        rules::in_version(attributes, attributes.new, &version),
        rules::in_version(attributes, attributes.old, &version),
    );
    let scope = Scope::new(&[("object", &object), ("oldObject", &old), ("request", &attributes.request(&version))]);
    match policy::conditions_met(&scope, conditions) {
        Ok(met) => Ok(met.then_some(version)),
        Err(_) if meta::text(hook, "/failurePolicy") == "Ignore" => Ok(None),
        Err(why) => {
            let kind = &attributes.req.kind;
            Err(StatusError::forbidden(&kind.group, &kind.resource, attributes.name, &why))
        }
    }
}

/// Calls one webhook; returns its warnings if it allows the request.
async fn call_webhook(
    state: &Arc<State>,
    attributes: &Attributes<'_>,
    hook: &Value,
    version: &str,
) -> ApiResult<Vec<String>> {
    let name = meta::text(hook, "/name");
    if attributes.dry_run && !matches!(meta::text(hook, "/sideEffects"), "None" | "NoneOnDryRun") {
        return Err(StatusError::bad_request(format!("admission webhook {name:?} does not support dry run")));
    }
    let review = review(attributes, version);
    let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(USUAL_TIMEOUT);
    let response = match call::call(state, hook, &review, Duration::from_secs(seconds)).await {
        Ok(response) => response,
        Err(why) if meta::text(hook, "/failurePolicy") == "Ignore" => {
            tracing::warn!(webhook = name, why, "a webhook failed and is ignored");
            return Ok(Vec::new());
        }
        Err(why) => return Err(StatusError::internal(format!("failed calling webhook {name:?}: {why}"))),
    };
    if response.get("allowed").is_some_and(|a| a == true) {
        let said = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
        return Ok(said.filter_map(|w| w.as_str().map(str::to_owned)).collect());
    }
    Err(denial(name, response.get("status").unwrap_or(&Value::Null)))
}

/// A rejection keeps the webhook's code, reason and details.
fn denial(name: &str, status: &Value) -> Box<StatusError> {
    let code = status
        .get("code")
        .and_then(Value::as_u64)
        .and_then(|c| u16::try_from(c).ok())
        .filter(|c| (400..600).contains(c))
        .unwrap_or(400);
    let message = match (meta::text(status, "/message"), meta::text(status, "/reason")) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let mut failure = StatusError::custom(code, meta::text(status, "/reason").to_owned(), message);
    failure.details = status.get("details").filter(|d| d.is_object()).cloned();
    failure
}

fn review(attributes: &Attributes<'_>, version: &str) -> Value {
    let mut request = attributes.request(version);
    request["uid"] = uuid::Uuid::new_v4().to_string().into();
    request["object"] = rules::in_version(attributes, attributes.new, version);
    request["oldObject"] = rules::in_version(attributes, attributes.old, version);
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}
