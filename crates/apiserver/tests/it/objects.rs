//! Objects of built-in kinds: create, read, change, delete, watch.

use serde_json::json;

use crate::client::cluster;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
           "spec": {"containers": [{"name": "c", "image": "busybox:1", "resources": {"limits": {"cpu": "1000m", "memory": "64Mi"}}}]}})
}

#[tokio::test]
async fn a_created_pod_has_what_the_real_server_adds() {
    let cluster = cluster().await;
    let made = cluster.post(PODS, &pod("a")).await;
    assert_eq!(made.code, 201, "{made:?}");
    let body = made.body;
    assert_eq!(body["metadata"]["generation"], 1);
    assert_eq!(body["spec"]["restartPolicy"], "Always");
    assert_eq!(body["spec"]["serviceAccountName"], "default");
    assert_eq!(body["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    assert_eq!(body["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    assert_eq!(body["status"], json!({"phase": "Pending", "qosClass": "Guaranteed"}));
    let again = cluster.post(PODS, &pod("a")).await;
    assert_eq!((again.code, again.body["message"].as_str()), (409, Some("pods \"a\" already exists")));
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn an_update_with_an_old_resource_version_conflicts() {
    let cluster = cluster().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let made = cluster.post(path, &json!({"metadata": {"name": "x"}, "data": {"a": "1"}})).await.body;
    let mut next = made.clone();
    next["data"]["a"] = "2".into();
    assert_eq!(cluster.put(&format!("{path}/x"), &next).await.code, 200);
    let lost = cluster.put(&format!("{path}/x"), &next).await;
    assert_eq!(lost.code, 409);
    assert_eq!(
        lost.body["message"],
        "Operation cannot be fulfilled on configmaps \"x\": the object has been modified; please apply your changes to the latest version and try again"
    );
}
