//! From a signing request to a certificate that the API server accepts.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firesteel_local::controllers::{self, Settings};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

async fn client_of(kubeconfig: &str) -> Client {
    let file = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

/// Creates a request, approves it, and waits for the result.
async fn approved(api: &Api<CertificateSigningRequest>, name: &str, pem: &str) -> CertificateSigningRequest {
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    }))
    .expect("a request");
    api.create(&PostParams::default(), &request).await.expect("made");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let waiting = api.get(name).await.expect("there");
    assert!(waiting.status.is_none_or(|s| s.certificate.is_none()), "nothing is signed before somebody approves it");
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    let patch = Patch::Merge(approval);
    api.patch_subresource("approval", name, &PatchParams::default(), &patch).await.expect("approved");
    for _ in 0..200 {
        let found = api.get(name).await.expect("there");
        let status = found.status.clone().unwrap_or_default();
        if status.certificate.is_some() || status.conditions.iter().flatten().any(|c| c.type_ == "Failed") {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{name} was not decided");
}

fn request_of(user: &str, groups: &[rcgen::DnType]) -> (rcgen::KeyPair, String) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    for (number, kind) in groups.iter().enumerate() {
        params.distinguished_name.push(kind.clone(), format!("group-{number}"));
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    (key, pem)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_request_becomes_a_certificate_that_the_server_accepts() {
    let server = firesteel_apiserver::ApiServer::builder().start().await.expect("the server starts");
    let kubeconfig = server.admin_kubeconfig();
    let client = client_of(&kubeconfig).await;
    let volumes = tempfile::tempdir().expect("a directory");
    let sign = server.client_signer();
    let settings = Settings {
        client: client.clone(),
        ca_pem: server.ca_pem().to_owned(),
        volumes: volumes.path().to_owned(),
        events_ttl: None,
        signer: Some(Arc::new(move |pem: &str, seconds: Option<i64>| sign(pem, seconds).map_err(|e| e.to_string()))),
    };
    let controllers = controllers::start(settings).await;
    let api: Api<CertificateSigningRequest> = Api::all(client);

    let (key, pem) = request_of("ann", &[rcgen::DnType::OrganizationName]);
    let signed = approved(&api, "ann", &pem).await;
    let certificate = signed.status.and_then(|s| s.certificate).expect("a certificate");
    let mut file: Value =
        serde_json::to_value(Kubeconfig::from_yaml(&kubeconfig).expect("a kubeconfig")).expect("JSON");
    file["users"][0]["user"] = json!({
        "client-certificate-data": STANDARD.encode(certificate.0), "client-key-data": STANDARD.encode(key.serialize_pem()),
    });
    let ann: Api<SelfSubjectReview> = Api::all(client_of(&file.to_string()).await);
    let said = ann.create(&PostParams::default(), &SelfSubjectReview::default()).await.expect("an answer");
    let who = said.status.and_then(|s| s.user_info).expect("somebody");
    assert_eq!(who.username.as_deref(), Some("ann"));
    assert_eq!(who.groups, Some(vec!["group-0".to_owned(), "system:authenticated".to_owned()]));

    // Both set the organization; one of them would be lost.
    let twice = [rcgen::DnType::OrganizationName, rcgen::DnType::CustomDnType(vec![2, 5, 4, 10])];
    let failed = approved(&api, "two-groups", &request_of("ann", &twice).1).await.status.unwrap_or_default();
    let failed = failed.conditions.into_iter().flatten().find(|c| c.type_ == "Failed").expect("a condition");
    assert_eq!(failed.message.as_deref(), Some("a subject with more than one organization cannot be signed here"));
    controllers.stop().await;
    server.shutdown().await;
}
