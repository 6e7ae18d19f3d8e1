//! Access control: service account tokens, RBAC, impersonation, anonymous requests.

use serde_json::json;

use crate::client::{cluster, send_as};

fn pod() -> serde_json::Value {
    json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "x:1"}]}})
}

#[tokio::test]
async fn a_token_is_bound_to_its_pod_and_to_its_rights() {
    let cluster = cluster().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "robot"}})).await;
    let made = cluster.post("/api/v1/namespaces/default/pods", &pod()).await;
    assert_eq!(made.code, 201, "{made:?}");
    let request = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let issued = cluster.post(&format!("{accounts}/robot/token"), &request).await;
    assert_eq!(issued.code, 201, "{issued:?}");
    let token = issued.body["status"]["token"].as_str().expect("a token").to_owned();

    let review =
        cluster.post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({"spec": {"token": token}})).await.body;
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(review["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));

    let anonymous = anonymous(&cluster).await;
    let bearer = format!("Bearer {token}");
    let ask = |path: &'static str| {
        let (client, bearer) = (anonymous.clone(), bearer.clone());
        async move { send_as(&client, "GET", path, &[("authorization", &bearer)], Vec::new()).await }
    };
    let refused = ask("/api/v1/namespaces/default/pods").await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let binding = json!({
        "metadata": {"name": "robot"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    let bound = cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).await;
    assert_eq!(bound.code, 201, "{bound:?}");
    assert_eq!(ask("/api/v1/namespaces/default/pods").await.code, 200);
    assert_eq!(ask("/api/v1/namespaces/default/secrets").await.code, 403, "view does not see secrets");
    assert_eq!(ask("/api/v1/namespaces/kube-system/pods").await.code, 403, "a role binding ends at its namespace");

    cluster.delete("/api/v1/namespaces/default/pods/p", &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(ask("/api/v1/namespaces/default/pods").await.code, 401, "the token ends with its pod");
}

/// A client without any credentials.
pub(crate) async fn anonymous(cluster: &crate::client::Cluster) -> kube::Client {
    let url = cluster.server.url().parse().expect("url");
    let mut config = kube::Config::new(url);
    config.root_cert = Some(vec![pem_body(cluster.server.ca_pem())]);
    kube::Client::try_from(config).expect("client")
}

fn pem_body(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let body: String = pem.lines().filter(|l| !l.starts_with("---")).collect();
    base64::engine::general_purpose::STANDARD.decode(body).expect("base64")
}

#[tokio::test]
async fn without_credentials_only_health_and_version_are_told() {
    let cluster = cluster().await;
    let anonymous = anonymous(&cluster).await;
    let code = |path: &'static str| {
        let client = anonymous.clone();
        async move { send_as(&client, "GET", path, &[], Vec::new()).await.code }
    };
    assert_eq!(code("/version").await, 200);
    assert_eq!(code("/healthz").await, 200);
    assert_eq!(code("/api/v1/pods").await, 403);
    assert_eq!(code("/apis").await, 403);
    let wrong = send_as(&anonymous, "GET", "/version", &[("authorization", "Bearer nonsense")], Vec::new()).await;
    assert_eq!(wrong.code, 401);
}

#[tokio::test]
async fn only_who_may_impersonate_can() {
    let cluster = cluster().await;
    let as_nobody = [("impersonate-user", "nobody")];
    let refused = send_as(&cluster.client, "GET", "/api/v1/nodes", &as_nobody, Vec::new()).await;
    assert_eq!(
        refused.body["message"],
        "nodes is forbidden: User \"nobody\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let user = crate::client::client_of(&cluster.server.kubeconfig_for("someone", &[]).expect("kubeconfig")).await;
    let refused = send_as(&user, "GET", "/api/v1/nodes", &as_nobody, Vec::new()).await;
    assert_eq!(
        refused.body["message"],
        "users \"nobody\" is forbidden: User \"someone\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
}
