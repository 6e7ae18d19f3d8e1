//! Validating admission webhooks: which ones a request concerns, asking them, and what their answers mean.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};

use crate::meta;
use crate::request::Asked;
use crate::selector::Labels;
use crate::state::State;
use crate::status::{Failure, Outcome};

const TABLE: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const ANSWER_LIMIT: usize = 1024 * 1024;

pub(super) async fn validate(
    state: &Arc<State>,
    asked: &Asked,
    old: Option<&Value>,
    new: Option<&Value>,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Outcome<()> {
    if &*asked.kind.group == "admissionregistration.k8s.io" {
        return Ok(());
    }
    let Ok(configurations) = state.store.list(TABLE, None, None, usize::MAX, None, |_| true) else { return Ok(()) };
    for (_, configuration) in &configurations.items {
        for hook in configuration.value.get("webhooks").and_then(Value::as_array).into_iter().flatten() {
            if concerns(state, asked, hook, old, new) {
                ask(state, asked, hook, old, new, dry_run, warnings).await?;
            }
        }
    }
    Ok(())
}

fn operation(old: Option<&Value>, new: Option<&Value>) -> &'static str {
    match (old, new) {
        (None, _) => "CREATE",
        (Some(_), Some(_)) => "UPDATE",
        (Some(_), None) => "DELETE",
    }
}

fn concerns(state: &State, asked: &Asked, hook: &Value, old: Option<&Value>, new: Option<&Value>) -> bool {
    let kind = &asked.kind;
    let has = |rule: &Value, field: &str, wanted: &str| {
        rule.get(field).and_then(Value::as_array).into_iter().flatten().any(|v| v == "*" || v == wanted)
    };
    let resource = if asked.target.subresource.is_empty() {
        kind.resource.to_string()
    } else {
        format!("{}/{}", kind.resource, asked.target.subresource)
    };
    let matching = hook.get("rules").and_then(Value::as_array).into_iter().flatten().any(|rule| {
        let scope = match meta::text(rule, "/scope") {
            "Namespaced" => kind.namespaced,
            "Cluster" => !kind.namespaced,
            _ => true,
        };
        let resources =
            rule.get("resources").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).any(|r| {
                r == resource
                    || r == "*/*"
                    || (r == "*" && asked.target.subresource.is_empty())
                    || r.strip_suffix("/*").is_some_and(|base| base == &*kind.resource)
                    || (!asked.target.subresource.is_empty()
                        && r.strip_prefix("*/").is_some_and(|s| s == asked.target.subresource))
            });
        // With matchPolicy Equivalent another version of the same resource counts too.
        let version = has(rule, "apiVersions", &kind.version) || meta::text(hook, "/matchPolicy") != "Exact";
        scope
            && resources
            && version
            && has(rule, "operations", operation(old, new))
            && has(rule, "apiGroups", &kind.group)
    });
    if !matching {
        return false;
    }
    let selects = |field: &str, labels: Option<&serde_json::Map<String, Value>>| match hook.get(field) {
        Some(selector) => Labels::from_object(selector).is_ok_and(|s| s.is_empty() || s.matches(labels)),
        None => true,
    };
    let namespace = if kind.is("", "namespaces") { &asked.target.name } else { &asked.target.namespace };
    let namespace = state.namespace(namespace);
    let namespace_fits = !kind.namespaced && !kind.is("", "namespaces")
        || selects("namespaceSelector", namespace.as_ref().and_then(|n| meta::labels(&n.value)));
    let object_fits = [old, new].into_iter().flatten().any(|o| selects("objectSelector", meta::labels(o)));
    namespace_fits && object_fits
}

async fn ask(
    state: &Arc<State>,
    asked: &Asked,
    hook: &Value,
    old: Option<&Value>,
    new: Option<&Value>,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Outcome<()> {
    let name = meta::text(hook, "/name");
    let review = review(asked, old, new, dry_run);
    let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
    let answer = match tokio::time::timeout(Duration::from_secs(seconds), call(state, hook, &review)).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".to_owned()),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) if meta::text(hook, "/failurePolicy") == "Ignore" => {
            tracing::warn!(webhook = name, why, "a webhook failed and is ignored");
            return Ok(());
        }
        Err(why) => {
            return Err(Failure::internal(format!("failed calling webhook {name:?}: failed to call webhook: {why}")));
        }
    };
    let response = answer.get("response").cloned().unwrap_or_default();
    for warning in response.get("warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        warnings.push(warning.to_owned());
    }
    if response.get("allowed").is_some_and(|a| a == true) {
        return Ok(());
    }
    let status = response.get("status").cloned().unwrap_or_default();
    let code = status
        .get("code")
        .and_then(Value::as_u64)
        .and_then(|c| u16::try_from(c).ok())
        .filter(|c| *c >= 400)
        .unwrap_or(403);
    let message = match (meta::text(&status, "/message"), meta::text(&status, "/reason")) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let reason = match meta::text(&status, "/reason") {
        "Invalid" => "Invalid",
        "Conflict" => "Conflict",
        "BadRequest" => "BadRequest",
        "NotFound" => "NotFound",
        "" if code == 422 => "Invalid",
        "" if code == 400 => "BadRequest",
        "" if code != 403 => "",
        _ => "Forbidden",
    };
    let mut failure = Failure::custom(code, reason, message);
    failure.details = status.get("details").cloned();
    Err(failure)
}

fn review(asked: &Asked, old: Option<&Value>, new: Option<&Value>, dry_run: bool) -> Value {
    let kind = &asked.kind;
    let gvk = json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind});
    let gvr = json!({"group": &*kind.group, "version": &*kind.version, "resource": &*kind.resource});
    let name = match asked.target.name.as_str() {
        "" => new.or(old).map(meta::name).unwrap_or_default(),
        given => given,
    };
    let options = match operation(old, new) {
        "CREATE" => "CreateOptions",
        "DELETE" => "DeleteOptions",
        _ if asked.method == Method::PATCH => "PatchOptions",
        _ => "UpdateOptions",
    };
    let mut request = json!({
        "uid": uuid::Uuid::new_v4().to_string(),
        "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
        "name": name, "operation": operation(old, new), "userInfo": asked.user.info(),
        "object": new, "oldObject": old, "dryRun": dry_run,
        "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
    });
    if !asked.target.namespace.is_empty() {
        request["namespace"] = asked.target.namespace.clone().into();
    }
    if !asked.target.subresource.is_empty() {
        request["subResource"] = asked.target.subresource.clone().into();
        request["requestSubResource"] = asked.target.subresource.clone().into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

/// Where a webhook listens: host and port to connect to, the name in its certificate, and the path.
struct Place {
    host: String,
    port: u16,
    name: String,
    path: String,
}

fn place(state: &State, hook: &Value) -> Result<Place, String> {
    let config = hook.get("clientConfig").ok_or("no clientConfig")?;
    if let Some(url) = config.get("url").and_then(Value::as_str) {
        let url = url::Url::parse(url).map_err(|e| e.to_string())?;
        let host = url.host_str().ok_or("the url has no host")?.trim_matches(['[', ']']).to_owned();
        let query = url.query().map(|q| format!("?{q}")).unwrap_or_default();
        return Ok(Place {
            name: host.clone(),
            host,
            port: url.port_or_known_default().unwrap_or(443),
            path: format!("{}{query}", url.path()),
        });
    }
    let service = config.get("service").ok_or("neither url nor service")?;
    let (namespace, name) = (meta::text(service, "/namespace"), meta::text(service, "/name"));
    let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
    let path = match meta::text(service, "/path") {
        "" => "/".to_owned(),
        given => given.to_owned(),
    };
    let (host, port) = endpoint(state, namespace, name, port)?;
    Ok(Place { host, port, name: format!("{name}.{namespace}.svc"), path })
}

/// An address behind a Service: cluster addresses lead nowhere here, so its endpoints are used.
fn endpoint(state: &State, namespace: &str, name: &str, port: u64) -> Result<(String, u16), String> {
    let missing = || format!("service {name:?} not found");
    let service = state.store.get("services", namespace, name).ok_or_else(missing)?;
    let wanted = service
        .value
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|p| p.get("port").and_then(Value::as_u64) == Some(port));
    let port_name = wanted.map(|p| meta::text(p, "/name").to_owned()).unwrap_or_default();
    let slices = state
        .store
        .list("endpointslices.discovery.k8s.io", Some(namespace), None, usize::MAX, None, |slice| {
            meta::labels(&slice.value).and_then(|l| l.get("kubernetes.io/service-name")).is_some_and(|n| n == name)
        })
        .map_err(|_| missing())?;
    for (_, slice) in &slices.items {
        let ports = slice.value.get("ports").and_then(Value::as_array).into_iter().flatten();
        let Some(number) =
            ports.filter(|p| meta::text(p, "/name") == port_name).find_map(|p| p.get("port").and_then(Value::as_u64))
        else {
            continue;
        };
        let ready = slice.value.get("endpoints").and_then(Value::as_array).into_iter().flatten();
        let address = ready
            .filter(|e| e.pointer("/conditions/ready").is_none_or(|r| r != false))
            .find_map(|e| e.pointer("/addresses/0").and_then(Value::as_str).map(str::to_owned));
        if let (Some(address), Ok(number)) = (address, u16::try_from(number)) {
            return Ok((address, number));
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}

async fn call(state: &Arc<State>, hook: &Value, review: &Value) -> Result<Value, String> {
    let place = place(state, hook)?;
    let bundle = meta::text(hook, "/clientConfig/caBundle");
    let authority = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|e| e.to_string())?;
    let authority = String::from_utf8(authority).map_err(|e| e.to_string())?;
    let authority = if authority.trim().is_empty() { state.pki.ca_pem().to_owned() } else { authority };
    let tls = crate::dial::webhook_tls(&authority).map_err(|e| e.to_string())?;
    let shown = format!("https://{}:{}{}", place.name, place.port, place.path);
    let mut request = Request::new(Body::from(review.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = place.path.parse().map_err(|_| format!("invalid path {:?}", place.path))?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(host) = HeaderValue::from_str(&format!("{}:{}", place.name, place.port)) {
        request.headers_mut().insert(header::HOST, host);
    }
    let response = crate::dial::send(Arc::new(tls), &place.host, place.port, &place.name, request)
        .await
        .map_err(|why| format!("Post {shown:?}: {why}"))?;
    let code = response.status();
    let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await.map_err(|e| e.to_string())?.to_bytes();
    if !code.is_success() {
        return Err(format!(
            "the server responded with the status code {} but did not return more information",
            code.as_u16()
        ));
    }
    let answer: Value =
        serde_json::from_slice(&body).map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
    if meta::text(&answer, "/response/uid") != meta::text(review, "/request/uid") {
        return Err(format!(
            "expected response.uid={:?}, got {:?}",
            meta::text(review, "/request/uid"),
            meta::text(&answer, "/response/uid")
        ));
    }
    Ok(answer)
}
