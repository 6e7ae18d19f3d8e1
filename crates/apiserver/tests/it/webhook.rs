//! Validating admission webhooks: called, obeyed, and what happens when they are unreachable.

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

/// People create a webhook's certificate with one openssl command, and use it as its own CA.
#[tokio::test]
async fn a_webhook_may_be_its_own_authority_but_not_somebody_elses() {
    let cluster = cluster().await;
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("certificate");
    let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("key");
    let own = parameters.self_signed(&key).expect("certificate");
    let port = crate::reviewer::serve(own.der().to_vec(), key.serialize_der()).await;
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let maps = "/api/v1/namespaces/default/configmaps";
    let url = format!("https://127.0.0.1:{port}/deny");
    cluster.post(hooks, &configuration(&url, &own.pem(), "Fail")).await;
    let refused = cluster.post(maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.body["message"], "admission webhook \"w.example.com\" denied the request without explanation");
    cluster.delete(&format!("{hooks}/w"), &json!({})).await;
    cluster.post(hooks, &configuration(&url, &made.cert.pem(), "Fail")).await;
    let refused = cluster.post(maps, &json!({"metadata": {"name": "a"}})).await;
    let message = refused.body["message"].as_str().expect("message");
    assert!(message.ends_with("x509: certificate signed by unknown authority"), "{message}");
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_found_by_its_endpoints() {
    let cluster = cluster().await;
    let names = ["hook.default.svc".to_owned()];
    let made = cluster.server.serving_certificate("hook", &[], &names).expect("certificate");
    let port = crate::reviewer::serve_pem(&made).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "targetPort": port}]}});
    assert_eq!(cluster.post("/api/v1/namespaces/default/services", &service).await.code, 201);
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let mut hook = configuration("", cluster.server.ca_pem(), "Fail");
    let bundle = hook["webhooks"][0]["clientConfig"]["caBundle"].clone();
    hook["webhooks"][0]["clientConfig"] =
        json!({"service": {"namespace": "default", "name": "hook", "path": "/deny"}, "caBundle": bundle});
    assert_eq!(cluster.post(hooks, &hook).await.code, 201);
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = cluster.post(maps, &json!({"metadata": {"name": "a"}})).await;
    let message = refused.body["message"].as_str().expect("message").to_owned();
    assert!(message.ends_with("no endpoints available for service \"hook\""), "{message}");
    let slice = json!({
        "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}], "ports": [{"name": "", "port": port}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    assert_eq!(cluster.post(slices, &slice).await.code, 201);
    let refused = cluster.post(maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.body["message"], "admission webhook \"w.example.com\" denied the request without explanation");
}
