//! Calls a webhook: resolves its address, sends the review and validates the response.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use crate::meta;
use crate::state::State;

const ANSWER_LIMIT: usize = 3 * 1024 * 1024;

/// A webhook's endpoint: the name in its certificate, and its URL for messages.
struct WebhookEndpoint {
    name: String,
    port: u16,
    path: String,
    /// Namespace and name of the Service to resolve instead of the host name.
    service: Option<(String, String)>,
}

fn place(hook: &Value) -> Result<WebhookEndpoint, String> {
    let config = hook.get("clientConfig").ok_or("no clientConfig")?;
    if let Some(url) = config.get("url").and_then(Value::as_str) {
        let url = url::Url::parse(url).map_err(|e| e.to_string())?;
        let name = url.host_str().ok_or("the url has no host")?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        return Ok(WebhookEndpoint { name, port, path: url.path().to_owned(), service: None });
    }
    let service = config.get("service").ok_or("neither url nor service")?;
    let (namespace, name) = (meta::text(service, "/namespace").to_owned(), meta::text(service, "/name").to_owned());
    let port = service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()).unwrap_or(443);
    let path = match meta::text(service, "/path") {
        "" => "/".to_owned(),
        given => given.to_owned(),
    };
    Ok(WebhookEndpoint { name: format!("{name}.{namespace}.svc"), port, path, service: Some((namespace, name)) })
}

/// An address of a Service: cluster IPs are not routable here, so its endpoints are used.
fn endpoint(state: &State, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let missing = || format!("service {name:?} not found");
    let service = state.store.get("services", namespace, name).ok_or_else(missing)?;
    let service = service.value();
    let wanted = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|p| p.get("port").and_then(Value::as_u64) == Some(port.into()))
        .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let port_name = meta::text(wanted, "/name");
    let slices = state
        .store
        .list("endpointslices.discovery.k8s.io", Some(namespace), None, usize::MAX, None, |slice| {
            slice.labels().and_then(|l| l.get("kubernetes.io/service-name")).is_some_and(|n| n == name)
        })
        .map_err(|_| missing())?;
    for (_, slice) in &slices.items {
        let slice = slice.value();
        let ports = slice.get("ports").and_then(Value::as_array).into_iter().flatten();
        let Some(number) =
            ports.filter(|p| meta::text(p, "/name") == port_name).find_map(|p| p.get("port").and_then(Value::as_u64))
        else {
            continue;
        };
        let ready = slice.get("endpoints").and_then(Value::as_array).into_iter().flatten();
        let address = ready
            .filter(|e| e.pointer("/conditions/ready").is_none_or(|r| r != false))
            .find_map(|e| e.pointer("/addresses/0").and_then(Value::as_str).map(str::to_owned));
        if let (Some(address), Ok(number)) = (address, u16::try_from(number)) {
            return Ok((address, number));
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}

/// The `response` of a webhook's review, or an error.
pub(super) async fn call(state: &Arc<State>, hook: &Value, review: &Value, limit: Duration) -> Result<Value, String> {
    let place = place(hook)?;
    let path = format!("{}?timeout={}s", place.path, limit.as_secs());
    let host = if place.name.contains(':') { format!("[{}]", place.name) } else { place.name.clone() };
    let shown = format!("https://{host}:{}{path}", place.port);
    let failed = |why: String| format!("failed to call webhook: Post {shown:?}: {why}");
    let sent = tokio::time::timeout(limit, post(state, hook, &place, &path, review));
    let answer = match sent.await {
        Ok(answer) => answer.map_err(|trouble| match trouble {
            CallError::OnTheWay(why) => failed(why),
            CallError::InTheAnswer(why) => format!("failed to call webhook: {why}"),
        })?,
        Err(_) => return Err(failed("context deadline exceeded".into())),
    };
    checked(&answer, review).map_err(|why| format!("received invalid webhook response: {why}"))
}

enum CallError {
    OnTheWay(String),
    InTheAnswer(String),
}

async fn post(
    state: &State,
    hook: &Value,
    place: &WebhookEndpoint,
    path: &str,
    review: &Value,
) -> Result<Value, CallError> {
    use CallError::{InTheAnswer, OnTheWay};
    let bundle = meta::text(hook, "/clientConfig/caBundle");
    let authority = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|e| OnTheWay(e.to_string()))?;
    let authority = String::from_utf8(authority).map_err(|e| OnTheWay(e.to_string()))?;
    let tls = crate::dial::webhook_tls(&authority).map_err(|e| OnTheWay(crate::dial::certificate_words(&e)))?;
    let (host, port) = match &place.service {
        Some((namespace, name)) => endpoint(state, namespace, name, place.port).map_err(OnTheWay)?,
        None => (place.name.clone(), place.port),
    };
    let mut request = Request::new(Body::from(review.to_string()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|_| OnTheWay(format!("invalid path {path:?}")))?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(host) = HeaderValue::from_str(&format!("{}:{}", place.name, place.port)) {
        request.headers_mut().insert(header::HOST, host);
    }
    let response = crate::dial::send(Arc::new(tls), &host, port, &place.name, request).await.map_err(OnTheWay)?;
    let code = response.status();
    let body = Limited::new(response.into_body(), ANSWER_LIMIT)
        .collect()
        .await
        .map_err(|e| InTheAnswer(e.to_string()))?
        .to_bytes();
    if !code.is_success() {
        let text = String::from_utf8_lossy(&body[..body.len().min(2048)]).trim().to_owned();
        return Err(InTheAnswer(match code.as_u16() {
            404 => "the server could not find the requested resource".into(),
            500.. if !text.is_empty() => {
                format!("an error on the server ({text:?}) has prevented the request from succeeding")
            }
            other => format!("the server responded with the status code {other} but did not return more information"),
        }));
    }
    serde_json::from_slice(&body).map_err(|e| InTheAnswer(format!("couldn't get version/kind; json parse error: {e}")))
}

fn checked(answer: &Value, review: &Value) -> Result<Value, String> {
    let response = answer.get("response").filter(|r| r.is_object()).ok_or("webhook response was absent")?;
    let (wanted, given) = (meta::text(review, "/request/uid"), meta::text(response, "/uid"));
    if wanted != given {
        return Err(format!("expected response.uid={wanted:?}, got {given:?}"));
    }
    let (version, kind) = (meta::text(answer, "/apiVersion"), meta::text(answer, "/kind"));
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {slash}{version}, Kind={kind}"
        ));
    }
    Ok(response.clone())
}
