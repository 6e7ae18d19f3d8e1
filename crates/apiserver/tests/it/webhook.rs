//! Validating admission webhooks: asked, obeyed, and what happens when they cannot be reached.

use serde_json::json;

use crate::client::cluster;

fn configuration(url: &str, ca: &str, policy: &str) -> serde_json::Value {
    use base64::Engine as _;
    json!({
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy, "timeoutSeconds": 2,
            "clientConfig": {"url": url, "caBundle": base64::engine::general_purpose::STANDARD.encode(ca)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }],
    })
}

#[tokio::test]
async fn a_webhook_that_is_away_stops_requests_only_if_its_policy_says_fail() {
    let cluster = cluster().await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address");
    let url = format!("https://{free}/validate");
    let made = cluster.post(hooks, &configuration(&url, cluster.server.ca_pem(), "Fail")).await;
    assert_eq!(made.code, 201, "{made:?}");
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = cluster.post(maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.code, 500);
    let message = refused.body["message"].as_str().expect("message");
    assert!(
        message.starts_with(
            "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post"
        ),
        "{message}"
    );
    assert!(message.ends_with("connect: connection refused"), "{message}");
    cluster.delete(&format!("{hooks}/w"), &json!({})).await;
    cluster.post(hooks, &configuration(&url, cluster.server.ca_pem(), "Ignore")).await;
    assert_eq!(cluster.post(maps, &json!({"metadata": {"name": "a"}})).await.code, 201);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_webhooks_words() {
    let cluster = cluster().await;
    let port = crate::reviewer::start(&cluster.server).await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let url = format!("https://127.0.0.1:{port}/validate");
    cluster.post(hooks, &configuration(&url, cluster.server.ca_pem(), "Fail")).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = cluster.post(maps, &json!({"metadata": {"name": "bad"}})).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (400, Some("admission webhook \"w.example.com\" denied the request: no bad ones"))
    );
    let allowed = cluster.post(maps, &json!({"metadata": {"name": "good"}})).await;
    assert_eq!(allowed.code, 201, "{allowed:?}");
    assert_eq!(allowed.warnings, ["299 - \"looked at good\""]);
}
