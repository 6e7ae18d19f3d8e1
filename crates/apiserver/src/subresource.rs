//! Subresources and requests that store nothing: scale, binding, eviction, tokens, reviews, and what is proxied to kubelets.

mod kubelet;
mod review;
mod scale;

use std::sync::Arc;

use axum::body::Body;
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};

use crate::admission::{Attributes, Operation};
use crate::delete::{DeleteOptions, Deletion};
use crate::handler::read;
use crate::request::ApiRequest;
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(crate) async fn serve(
    state: &Arc<State>,
    req: &ApiRequest,
    parts: &mut Parts,
    body: Body,
) -> ApiResult<ApiResponse> {
    let what = (&*req.kind.resource, req.target.subresource.as_str());
    match (what, &req.method) {
        ((_, "scale"), _) => scale::serve(state, req, &read(body).await?).await,
        (("pods", "binding") | ("bindings", ""), &Method::POST) => bind(state, req, &read(body).await?).await,
        (("pods", "eviction"), &Method::POST) => evict(state, req, &read(body).await?).await,
        (("serviceaccounts", "token"), &Method::POST) => {
            let request = token_request(req, parse(req, &read(body).await?)?);
            let now = jiff::Timestamp::now().as_second();
            let made = crate::tokens::issue(state, &req.target.namespace, &req.target.name, &request, now)?;
            Ok(response::value(Some(req.accepted), 201, &made))
        }
        (("pods", "log"), &Method::GET) => kubelet::log(state, req).await,
        (("pods", "exec" | "attach" | "portforward"), &Method::GET | &Method::POST) => {
            kubelet::stream(state, req, parts).await
        }
        ((_, ""), &Method::POST) => review::serve(state, req, parse(req, &read(body).await?)?),
        _ => Err(StatusError::method_not_allowed()),
    }
}

/// A body whose kind is not the path's.
fn parse(req: &ApiRequest, body: &bytes::Bytes) -> ApiResult<Value> {
    crate::write::parse_body(req, body, &mut Vec::new())
}

/// A TokenRequest and its author.
fn token_request(req: &ApiRequest, mut request: Value) -> Value {
    let spec = crate::meta::child(&mut request, "spec");
    spec.entry("expirationSeconds").or_insert_with(|| crate::tokens::USUAL.into());
    let kind = crate::kinds::Kind {
        group: "authentication.k8s.io".into(),
        kind: "TokenRequest".into(),
        schema: Some("io.k8s.api.authentication.v1.TokenRequest"),
        ..(*req.kind).clone()
    };
    crate::managed_fields::record(&kind, None, &mut request, &req.field_manager(), &req.target.subresource);
    request
}

async fn bind(state: &Arc<State>, req: &ApiRequest, body: &bytes::Bytes) -> ApiResult<ApiResponse> {
    let mut binding = parse(req, body)?;
    crate::meta::of(&mut binding).insert("namespace".into(), req.target.namespace.clone().into());
    if let Some(kind) = state.kinds.load().find("", "v1", "bindings") {
        binding = crate::write::check_type(&state.kinds.load(), &kind, binding)?;
        crate::managed_fields::record(&kind, None, &mut binding, &req.field_manager(), &req.target.subresource);
    }
    let node = crate::meta::text(&binding, "/target/name");
    let name = match req.target.name.as_str() {
        "" => crate::meta::name(&binding).to_owned(),
        given => given.to_owned(),
    };
    if node.is_empty() {
        return Err(StatusError::custom(500, "", "target.name: Required value"));
    }
    let kind = state.kinds.load().find("", "v1", "pods").ok_or_else(StatusError::no_such_path)?;
    let attributes = Attributes::on(req, Operation::Create, None, Some(&binding), req.dry_run()?);
    crate::admission::validate(state, &attributes, &mut Vec::new()).await?;
    loop {
        let current =
            state.get(&kind, &req.target.namespace, &name).ok_or_else(|| StatusError::not_found("", "pods", &name))?;
        let wanted_uid = crate::meta::uid(&binding);
        if !wanted_uid.is_empty() && wanted_uid != crate::meta::uid(&current.value()) {
            return Err(StatusError::conflict(
                "",
                "pods/binding",
                &name,
                &format!(
                    "Precondition failed: UID in precondition: {wanted_uid}, UID in object meta: {}",
                    crate::meta::uid(&current.value())
                ),
            ));
        }
        let mut next = Value::clone(&current.value());
        crate::pods::bind(&mut next, node, binding.pointer("/metadata/annotations"))
            .map_err(|why| StatusError::conflict("", "pods/binding", &name, &why))?;
        if req.dry_run()? || state.replace(&kind, &current, next).await?.is_some() {
            let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
            return Ok(response::value(Some(req.accepted), 201, &done));
        }
    }
}

async fn evict(state: &Arc<State>, req: &ApiRequest, body: &bytes::Bytes) -> ApiResult<ApiResponse> {
    let eviction = parse(req, body)?;
    let name = &req.target.name;
    let kind = state.kinds.load().find("", "v1", "pods").ok_or_else(StatusError::no_such_path)?;
    let pod = state.get(&kind, &req.target.namespace, name).ok_or_else(|| req.not_found())?;
    let finished = matches!(crate::meta::text(&pod.value(), "/status/phase"), "Succeeded" | "Failed" | "Pending");
    let options = DeleteOptions::from_eviction(&eviction).in_dry_run(req.dry_run()?);
    let attributes = Attributes::on(req, Operation::Create, None, Some(&eviction), req.dry_run()?);
    crate::admission::validate(state, &attributes, &mut Vec::new()).await?;
    if !finished && !crate::meta::deleting(&pod.value()) {
        spend_budget(state, &req.target.namespace, &pod.value()).await?;
    }
    if !req.dry_run()? {
        mark_disrupted(state, &kind, pod).await?;
    }
    match crate::delete::delete_object(state, None, &kind, &req.target.namespace, name, &options).await? {
        Deletion::Removed(_) | Deletion::Marked(_) => {
            let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
            Ok(response::value(Some(req.accepted), 201, &done))
        }
    }
}

/// Records on the pod why it is evicted.
async fn mark_disrupted(
    state: &Arc<State>,
    kind: &crate::kinds::Kind,
    mut pod: Arc<crate::store::Stored>,
) -> ApiResult<()> {
    loop {
        let mut next = Value::clone(&pod.value());
        crate::pods::set_condition(
            &mut next,
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                "lastProbeTime": null, "lastTransitionTime": crate::meta::now(),
            }),
        );
        if state.replace(kind, &pod, next).await?.is_some() {
            return Ok(());
        }
        let (namespace, name) =
            (crate::meta::namespace(&pod.value()).to_owned(), crate::meta::name(&pod.value()).to_owned());
        pod = state.get(kind, &namespace, &name).ok_or_else(|| StatusError::not_found("", "pods", &name))?;
    }
}

/// Takes one disruption from the pod's budget, or rejects the eviction.
async fn spend_budget(state: &Arc<State>, namespace: &str, pod: &Value) -> ApiResult<()> {
    let Some(kind) = state.kinds.load().find("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
    loop {
        let covering = state
            .store
            .list(&kind.table, Some(namespace), None, usize::MAX, None, |budget| {
                let selector = budget.value().pointer("/spec/selector").cloned().unwrap_or_default();
                crate::selector::Labels::from_object(&selector).is_ok_and(|s| s.matches(crate::meta::labels(pod)))
            })
            .map_err(|_| StatusError::internal("the newest state is always there"))?
            .items;
        let budget = match covering.as_slice() {
            [] => return Ok(()),
            [(_, one)] => one,
            _ => {
                return Err(StatusError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let left = budget.value().pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or_default();
        if left <= 0 {
            let mut failure =
                StatusError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0);
            let budget = budget.value();
            let name = crate::meta::name(&budget);
            failure.details = Some(json!({"causes": [{
                "reason": "DisruptionBudget",
                "message": format!(
                    "The disruption budget {name} needs {} healthy pods and has {} currently",
                    budget.pointer("/status/desiredHealthy").and_then(Value::as_i64).unwrap_or_default(),
                    budget.pointer("/status/currentHealthy").and_then(Value::as_i64).unwrap_or_default()
                ),
            }]}));
            return Err(failure);
        }
        let mut next = Value::clone(&budget.value());
        next["status"]["disruptionsAllowed"] = (left - 1).into();
        next["status"]["disruptedPods"][crate::meta::name(pod)] = crate::meta::now().into();
        if state.replace(&kind, budget, next).await?.is_some() {
            return Ok(());
        }
    }
}
