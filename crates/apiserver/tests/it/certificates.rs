//! Certificate signing requests: created, approved or denied by users with permission.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::{Cluster, client_of, cluster, send};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// A request as written by `openssl req`, in base64.
pub(crate) fn pem_request(user: &str, group: &str) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, user);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    let key = rcgen::KeyPair::generate().expect("a key");
    STANDARD.encode(params.serialize_request(&key).expect("a request").pem().expect("PEM"))
}

fn request(name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": pem_request("ann", "devs"), "signerName": SIGNER, "usages": ["client auth"],
                 "username": "somebody-else", "groups": ["system:masters"]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn decided(kind: &str) -> Value {
    json!([{"type": kind, "status": "True", "reason": "Test", "message": "decided"}])
}

async fn decide(cluster: &Cluster, name: &str, kind: &str) -> crate::client::Answer {
    let mut object = cluster.get(&format!("{REQUESTS}/{name}")).await.body;
    object["status"]["conditions"] = decided(kind);
    object["spec"]["usages"] = json!(["server auth"]);
    cluster.put(&format!("{REQUESTS}/{name}/approval"), &object).await
}

#[tokio::test]
async fn a_request_is_approved_or_denied_once() {
    let cluster = cluster().await;
    for name in ["good", "bad"] {
        let made = cluster.post(REQUESTS, &request(name, &json!({}))).await;
        assert_eq!(made.code, 201, "{made:?}");
        assert_eq!(made.body["spec"]["username"], "kubernetes-admin", "who asks is who asked");
        assert_eq!(made.body["status"], json!({}));
    }
    let approved = decide(&cluster, "good", "Approved").await;
    assert_eq!(approved.code, 200, "{approved:?}");
    let condition = &approved.body["status"]["conditions"][0];
    assert_eq!((condition["type"].as_str(), condition["message"].as_str()), (Some("Approved"), Some("decided")));
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(), "{condition}");
    assert_eq!(approved.body["spec"]["usages"], json!(["client auth"]), "a decision changes nothing else");
    assert_eq!(decide(&cluster, "bad", "Denied").await.code, 200);
    let again = decide(&cluster, "good", "Denied").await;
    assert_eq!(again.code, 422);
    let why = "updates may not remove a condition of type \"Approved\"";
    assert!(again.body["message"].as_str().is_some_and(|m| m.contains(why)), "{again:?}");

    let elsewhere = json!({"status": {"conditions": decided("Approved")}});
    cluster.post(REQUESTS, &request("open", &json!({}))).await;
    let path = format!("{REQUESTS}/open");
    let merge = "application/merge-patch+json";
    let status = send(&cluster.client, "PATCH", &format!("{path}/status"), merge, elsewhere.to_string().into()).await;
    assert_eq!(status.code, 422, "{status:?}");
    let whole = send(&cluster.client, "PATCH", &path, merge, elsewhere.to_string().into()).await;
    assert_eq!((whole.code, &whole.body["status"]), (200, &json!({})), "only `approval` decides");
    let list = cluster.get("/apis/certificates.k8s.io/v1").await.body;
    let names: Vec<&str> =
        list["resources"].as_array().expect("a list").iter().filter_map(|r| r["name"].as_str()).collect();
    assert!(names.contains(&"certificatesigningrequests/approval"), "{names:?}");
}

#[tokio::test]
async fn only_who_may_approve_for_a_signer_does() {
    let cluster = cluster().await;
    cluster.post(REQUESTS, &request("r", &json!({}))).await;
    let group = "certificates.k8s.io";
    let mut role = json!({"metadata": {"name": "approver"}, "rules": [
        {"apiGroups": [group], "resources": ["certificatesigningrequests/approval"], "verbs": ["patch"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_eq!(cluster.post(roles, &role).await.code, 201);
    let binding = json!({"metadata": {"name": "approver"}, "roleRef": {"kind": "ClusterRole", "name": "approver"},
                         "subjects": [{"kind": "User", "name": "ann"}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let ann = client_of(&cluster.server.kubeconfig_for("ann", &[]).expect("a kubeconfig")).await;
    let patch = json!({"status": {"conditions": decided("Approved")}}).to_string();
    let approve = || {
        send(
            &ann,
            "PATCH",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/r/approval",
            "application/merge-patch+json",
            patch.clone().into(),
        )
    };
    let refused = approve().await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert_eq!(
        refused.body["message"],
        format!(
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName \"{SIGNER}\""
        )
    );
    let signers = json!({"apiGroups": [group], "resources": ["signers"], "resourceNames": ["kubernetes.io/*"], "verbs": ["approve"]});
    role["rules"].as_array_mut().expect("rules").push(signers);
    assert_eq!(cluster.put(&format!("{roles}/approver"), &role).await.code, 200);
    let done = approve().await;
    assert_eq!(done.code, 200, "{done:?}");
}

#[tokio::test]
async fn a_request_that_nobody_should_sign_is_refused() {
    let cluster = cluster().await;
    let masters = json!({"request": pem_request("ann", "system:masters")});
    let mut tampered = STANDARD.decode(pem_request("ann", "devs")).expect("base64");
    let at = tampered.len() - 60;
    tampered[at] = if tampered[at] == b'A' { b'B' } else { b'A' };
    for (more, code, why) in [
        (masters, 403, "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"),
        (json!({"request": STANDARD.encode("nonsense")}), 422, "PEM block type must be CERTIFICATE REQUEST"),
        (json!({"request": STANDARD.encode(tampered)}), 422, "spec.request"),
        (json!({"usages": ["world domination"]}), 422, "spec.usages[0]: Unsupported value"),
        (json!({"usages": []}), 422, "spec.usages: Required value"),
        (
            json!({"signerName": "short"}),
            422,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (json!({"expirationSeconds": 1}), 422, "may not specify a duration less than 600 seconds (10 minutes)"),
    ] {
        let refused = cluster.post(REQUESTS, &request("x", &more)).await;
        let said = refused.body["message"].as_str().unwrap_or_default();
        assert!(refused.code == code && said.contains(why), "{code} {why}: {refused:?}");
    }
}
