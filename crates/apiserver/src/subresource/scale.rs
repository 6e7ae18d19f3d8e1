//! The `scale` subresource of any kind with replicas.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::admission::{Attributes, Operation};
use crate::kinds::Kind;
use crate::meta;
use crate::request::ApiRequest;
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};
use crate::write::Writer;

/// Where a kind has its replicas, as JSON pointers.
struct Places {
    spec: String,
    status: String,
    selector: Option<String>,
}

fn places(kind: &Kind) -> Places {
    let pointer = |path: &str| path.replace('.', "/");
    match kind.custom.as_ref().and_then(|c| c.scale.as_ref()) {
        Some(paths) => Places {
            spec: pointer(&paths.spec),
            status: pointer(&paths.status),
            selector: paths.selector.as_deref().map(pointer),
        },
        None => Places { spec: "/spec/replicas".into(), status: "/status/replicas".into(), selector: None },
    }
}

fn scale_of(kind: &Kind, object: &Value) -> Value {
    let places = places(kind);
    let count = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(field)) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": count(&places.status)});
    let selector = match &places.selector {
        Some(pointer) => object.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
        None => object.pointer("/spec/selector").map(selector_text),
    };
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if count(&places.spec) != 0 {
        spec["replicas"] = count(&places.spec).into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector in string form.
fn selector_text(selector: &Value) -> String {
    let mut parts = Vec::new();
    let exact = selector
        .get("matchLabels")
        .or_else(|| selector.as_object().filter(|m| !m.contains_key("matchExpressions")).map(|_| selector));
    for (key, value) in exact.and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.as_str() {
            parts.push(format!("{key}={value}"));
        }
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = meta::text(expression, "/key");
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match meta::text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.join(",")
}

pub(super) async fn serve(state: &Arc<State>, req: &ApiRequest, body: &Bytes) -> ApiResult<ApiResponse> {
    let kind = &req.kind;
    let current = state.get(kind, &req.target.namespace, &req.target.name).ok_or_else(|| req.not_found())?;
    let current = current.value();
    let shown = crate::conversion::read(kind, &current);
    if req.method == Method::GET {
        return Ok(response::value(Some(req.accepted), 200, &scale_of(kind, &shown)));
    }
    let sent = match req.method {
        Method::PUT => super::parse(req, body)?,
        Method::PATCH => {
            let patch = crate::patch::Patch::parse(req, body, &mut Vec::new())?;
            let mut scale = scale_of(kind, &shown);
            match &patch {
                crate::patch::Patch::Apply(applied) => {
                    json_patch::merge(&mut scale, applied);
                    scale
                }
                other => other.onto(kind, &scale)?,
            }
        }
        _ => return Err(StatusError::method_not_allowed()),
    };
    let replicas = sent.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(StatusError::invalid("autoscaling", "Scale", &req.target.name, &[cause]));
    }
    let version = meta::resource_version(&sent).to_owned();
    let place = places(kind).spec;
    let plain = ApiRequest {
        method: req.method.clone(),
        target: crate::request::RequestInfo { subresource: String::new(), ..req.target.clone() },
        query: req.query.clone(),
        kind: kind.clone(),
        accepted: req.accepted,
        media_type: req.media_type.clone(),
        user_agent: req.user_agent.clone(),
        user: req.user.clone(),
    };
    let manager = req.field_manager();
    let (before, mut after) = (scale_of(kind, &shown), scale_of(kind, &shown));
    after["spec"]["replicas"] = replicas.into();
    let attributes = Attributes::on(req, Operation::Update, Some(&before), Some(&after), req.dry_run()?);
    let mut warnings = Vec::new();
    crate::admission::validate(state, &attributes, &mut warnings).await?;
    let stored = Writer::admitted(state, &plain)?
        .change(
            |_, current| {
                let mut next = crate::conversion::read(kind, current).into_owned();
                if !version.is_empty() {
                    meta::of(&mut next).insert("resourceVersion".into(), version.clone().into());
                }
                set(&mut next, &place, replicas.into());
                Ok(next)
            },
            |kind, old, new| crate::managed_fields::record(kind, Some(old), new, &manager, "scale"),
        )
        .await?;
    let mut reply = response::value(Some(req.accepted), 200, &scale_of(kind, &stored.value()));
    response::warn(&mut reply, &warnings);
    Ok(reply)
}

/// Sets the value at a pointer, creating parents.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let steps: Vec<&str> = pointer.split('/').filter(|s| !s.is_empty()).collect();
    let Some((last, way)) = steps.split_last() else { return };
    for step in way {
        if !at.get(*step).is_some_and(Value::is_object) {
            at[*step] = json!({});
        }
        at = &mut at[*step];
    }
    at[*last] = value;
}
