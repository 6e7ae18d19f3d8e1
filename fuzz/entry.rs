// One input is one request to the API server, built from arbitrary bytes: method, media type and path (one byte each), the query up to a
// NUL, and the body. Every request must be answered: no panic (the handler turns one into a 500 with a specific message), no hang.
//
// Included by the fuzz target and by a test of crates/apiserver.

use std::time::Duration;

use firesteel_apiserver::{Body, RunningServer};
use http::Request;
use http_body_util::{BodyExt as _, Collected};

pub(crate) const METHODS: [&str; 5] = ["POST", "PUT", "PATCH", "GET", "DELETE"];
pub(crate) const MEDIA: [&str; 8] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
];
pub(crate) const PATHS: [&str; 20] = [
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/x",
    "/api/v1/namespaces/default/pods/x/status",
    "/api/v1/namespaces/default/pods/x/binding",
    "/api/v1/namespaces/default/pods/x/eviction",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/services/kubernetes",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/statefulsets/x/scale",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com",
    "/apis/example.com/v1/namespaces/default/things",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
];
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends the request that the bytes encode; fails if something is wrong with the answer.
pub(crate) async fn run(server: &RunningServer, input: &[u8]) -> Result<(), String> {
    let [method, media, path, rest @ ..] = input else { return Ok(()) };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let media = MEDIA[usize::from(*media) % MEDIA.len()];
    let path = PATHS[usize::from(*path) % PATHS.len()];
    let (query, body) = match rest.iter().position(|byte| *byte == 0) {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (&[][..], rest),
    };
    let query: String = query
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'=' | b'&' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    // Bounds a watch, which would otherwise run as long as the query says.
    let uri = format!("{path}?timeoutSeconds=1&{query}");
    let request = Request::builder().method(method).uri(&uri).header("content-type", media);
    let request = request.body(Body::from(body.to_vec())).map_err(|error| format!("{uri}: {error}"))?;
    let answered = async {
        let answer = server.answer("fuzz", &["system:masters"], request).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
        (code, body)
    };
    let shown = || format!("{method} {uri} {media} {:?}", String::from_utf8_lossy(body));
    let (code, answer) =
        tokio::time::timeout(PATIENCE, answered).await.map_err(|_| format!("no answer to {}", shown()))?;
    let text = String::from_utf8_lossy(&answer);
    if code == 500 && text.contains("the server could not handle the request") {
        return Err(format!("a panic behind {}", shown()));
    }
    // An unknown path has no Status, as on the real server.
    if code >= 400 && !text.contains("\"kind\":\"Status\"") && text != "404 page not found\n" {
        return Err(format!("{code} without a Status: {text:?} to {}", shown()));
    }
    Ok(())
}
