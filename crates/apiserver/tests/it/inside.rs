//! Requests to a server in this process, without a connection.

use axum::body::Body;
use firesteel_apiserver::RunningServer;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;

pub(crate) async fn response(
    server: &RunningServer,
    method: &str,
    path: &str,
    media: &str,
    body: String,
) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    server.answer("admin", &["system:masters"], request.body(Body::from(body)).expect("a request")).await
}

/// Code and body.
pub(crate) async fn ask(server: &RunningServer, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = response(server, method, path, media, text).await;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into()))
}

pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}
