//! Logs, exec, attach and port-forward: proxied to the kubelet of the pod's node.

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use crate::admission::{Attributes, Operation};
use crate::meta;
use crate::request::ApiRequest;
use crate::response::ApiResponse;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::store::Stored;

const DEFAULT_PORT: u16 = 10_250;

/// The address of a node's kubelet.
struct Kubelet {
    address: String,
    port: u16,
}

fn kubelet_of(state: &State, node_name: &str) -> ApiResult<Kubelet> {
    let node = state.store.get("nodes", "", node_name).ok_or_else(|| StatusError::not_found("", "nodes", node_name))?;
    let node = node.value();
    let addresses: Vec<&Value> =
        node.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten().collect();
    let address = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"]
        .into_iter()
        // An address is more likely reachable than a name.
        .filter(|kind| *kind == "InternalIP")
        .chain(["Hostname", "ExternalIP"])
        .find_map(|kind| addresses.iter().find(|a| meta::text(a, "/type") == kind))
        .map(|a| meta::text(a, "/address").to_owned())
        .ok_or_else(|| {
            StatusError::internal(format!("no preferred addresses found; known addresses: []: node {node_name}"))
        })?;
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64).unwrap_or_default();
    Ok(Kubelet { address, port: u16::try_from(port).ok().filter(|p| *p != 0).unwrap_or(DEFAULT_PORT) })
}

fn all_names(pod: &Value) -> Vec<&str> {
    ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(|list| pod.pointer(list).and_then(Value::as_array).into_iter().flatten())
        .map(|c| meta::text(c, "/name"))
        .collect()
}

/// The container of a request: the one named, or the only one.
fn container(req: &ApiRequest, pod: &Value) -> ApiResult<String> {
    let name = &req.target.name;
    let wanted = req.query.get("container");
    if !wanted.is_empty() {
        if all_names(pod).contains(&wanted) {
            return Ok(wanted.to_owned());
        }
        return Err(StatusError::bad_request(format!("container {wanted} is not valid for pod {name}")));
    }
    match crate::pods::container_names(pod).as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(StatusError::bad_request(format!("a container name must be specified for pod {name}"))),
        many => {
            let inits: Vec<&str> = all_names(pod).into_iter().filter(|n| !many.contains(n)).collect();
            let also = if inits.is_empty() {
                String::new()
            } else {
                format!(" or one of the init containers: [{}]", inits.join(" "))
            };
            Err(StatusError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]{also}",
                many.join(" ")
            )))
        }
    }
}

fn pod(state: &State, req: &ApiRequest) -> ApiResult<Arc<Stored>> {
    state.store.get("pods", &req.target.namespace, &req.target.name).ok_or_else(|| req.not_found())
}

async fn call(
    state: &Arc<State>,
    kubelet: &Kubelet,
    request: Request<Body>,
) -> ApiResult<Response<hyper::body::Incoming>> {
    let url = format!("https://{}:{}{}", kubelet.address, kubelet.port, request.uri());
    crate::dial::send(state.kubelet_tls.clone(), &kubelet.address, kubelet.port, &kubelet.address, request)
        .await
        .map_err(|why| StatusError::internal(format!("Get {url:?}: {why}")))
}

fn request(kubelet: &Kubelet, method: http::Method, path: &str, headers: HeaderMap) -> ApiResult<Request<Body>> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| StatusError::bad_request(format!("invalid path {path:?}")))?;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(&format!("{}:{}", kubelet.address, kubelet.port));
    request.headers_mut().insert(header::HOST, host.unwrap_or_else(|_| HeaderValue::from_static("kubelet")));
    Ok(request)
}

pub(super) async fn log(state: &Arc<State>, req: &ApiRequest) -> ApiResult<ApiResponse> {
    let pod = pod(state, req)?.value();
    let container = container(req, &pod)?;
    let node = meta::text(&pod, "/spec/nodeName");
    if node.is_empty() {
        // There is nothing to log yet.
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let kubelet = kubelet_of(state, node)?;
    let query = log_query(req);
    let mark = if query.is_empty() { "" } else { "?" };
    let path = format!("/containerLogs/{}/{}/{container}{mark}{query}", req.target.namespace, req.target.name);
    let response = call(state, &kubelet, request(&kubelet, http::Method::GET, &path, HeaderMap::new())?).await?;
    let status = response.status();
    if !status.is_success() {
        let text = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[..text.len().min(2048)]).trim().to_owned();
        return Err(match status.as_u16() {
            400 => StatusError::bad_request(text),
            404 => StatusError::custom(
                404,
                "NotFound",
                format!("the server could not find the requested resource ( pods/log {})", req.target.name),
            ),
            _ => StatusError::internal(format!(
                "an error on the server ({text:?}) has prevented the request from succeeding"
            )),
        });
    }
    let mut reply = Response::new(Body::new(response.into_body()));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(reply)
}

fn log_query(req: &ApiRequest) -> String {
    let mut query = Serializer::new(String::new());
    for name in ["follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"] {
        let value = req.query.get(name);
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

/// Headers of an upgrade, which belong to both connections.
fn travels(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == "connection"
        || name == "upgrade"
        || name.starts_with("sec-websocket-")
        || name == "x-stream-protocol-version"
        || name == "content-length"
}

pub(super) async fn stream(state: &Arc<State>, req: &ApiRequest, parts: &mut Parts) -> ApiResult<ApiResponse> {
    let pod = pod(state, req)?.value();
    let node = meta::text(&pod, "/spec/nodeName");
    if node.is_empty() {
        return Err(StatusError::bad_request(format!("pod {} does not have a host assigned", req.target.name)));
    }
    let path = kubelet_path(req, &pod)?;
    let options = options(req);
    let attributes = Attributes::on(req, Operation::Connect, None, Some(&options), false);
    crate::admission::validate(state, &attributes, &mut Vec::new()).await?;
    let kubelet = kubelet_of(state, node)?;
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let asks_upgrade = parts.headers.contains_key(header::UPGRADE);
    let (Some(upgrade), true) = (upgrade, asks_upgrade) else {
        return Err(StatusError::bad_request("unable to upgrade: missing upgrade headers in request"));
    };
    let headers: HeaderMap =
        parts.headers.iter().filter(|(n, _)| travels(n)).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut response = call(state, &kubelet, request(&kubelet, parts.method.clone(), &path, headers)?).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = response.status();
        for (name, value) in response.headers() {
            if name == header::CONTENT_TYPE {
                reply.headers_mut().insert(name, value.clone());
            }
        }
        *reply.body_mut() = Body::new(response.into_body());
        return Ok(reply);
    }
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in response.headers() {
        if travels(name) && name != header::CONTENT_LENGTH {
            reply.headers_mut().append(name, value.clone());
        }
    }
    let far = hyper::upgrade::on(&mut response);
    let stopping = state.stopping.clone();
    tokio::spawn(async move {
        let (Ok(near), Ok(far)) = (upgrade.await, far.await) else { return };
        let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
        tokio::select! {
            () = stopping.cancelled() => {}
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        }
    });
    Ok(reply)
}

/// The attributes of a stream for policies and webhooks: its options as the API's object.
fn options(req: &ApiRequest) -> Value {
    let query = &req.query;
    if req.target.subresource == "portforward" {
        let ports: Vec<u16> = query.all("ports").filter_map(|p| p.parse().ok()).collect();
        let mut options = json!({"kind": "PodPortForwardOptions", "apiVersion": "v1"});
        if !ports.is_empty() {
            options["ports"] = json!(ports);
        }
        return options;
    }
    let kind = if req.target.subresource == "exec" { "PodExecOptions" } else { "PodAttachOptions" };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(flag).unwrap_or_default() {
            options[flag] = true.into();
        }
    }
    if !query.get("container").is_empty() {
        options["container"] = query.get("container").into();
    }
    if req.target.subresource == "exec" {
        options["command"] = query.all("command").collect();
    }
    options
}

/// The kubelet's path and query for a request.
fn kubelet_path(req: &ApiRequest, pod: &Value) -> ApiResult<String> {
    let (namespace, name) = (&req.target.namespace, &req.target.name);
    let mut query = Serializer::new(String::new());
    let base = if req.target.subresource == "portforward" {
        let ports: Vec<&str> = req.query.all("ports").collect();
        if !ports.is_empty() {
            query.append_pair("port", &ports.join(","));
        }
        format!("/portForward/{namespace}/{name}")
    } else {
        for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
            if req.query.flag(ours)? {
                query.append_pair(theirs, "1");
            }
        }
        for word in req.query.all("command") {
            query.append_pair("command", word);
        }
        let verb = &req.target.subresource;
        format!("/{verb}/{namespace}/{name}/{}", container(req, pod)?)
    };
    let query = query.finish();
    Ok(if query.is_empty() { base } else { format!("{base}?{query}") })
}
