//! A server with a data directory, stopped and restarted.

use firesteel_apiserver::{ApiServer, RunningServer, StartError};
use serde_json::json;

use crate::client::{Cluster, client_of};

async fn started(directory: &std::path::Path) -> Cluster {
    let server = ApiServer::builder().data_dir(Some(directory.to_owned())).start().await.expect("the server starts");
    let client = client_of(&server.admin_kubeconfig()).await;
    Cluster { server, client }
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("directory");
    let cluster = started(directory.path()).await;
    let (url, ca) = (cluster.server.url(), cluster.server.ca_pem().to_owned());
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    assert_eq!(cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.code, 201);
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}});
    let made = cluster.post(things, &thing).await;
    assert_eq!(made.code, 201, "{made:?}");
    for number in 0..20 {
        let body = json!({"metadata": {"name": format!("m{number}")}, "data": {"n": number.to_string()}});
        assert_eq!(cluster.post("/api/v1/namespaces/default/configmaps", &body).await.code, 201);
    }
    cluster.delete("/api/v1/namespaces/default/configmaps/m3", &json!({})).await;
    let before = cluster.get("/api/v1/namespaces/default/configmaps").await.body;
    cluster.server.shutdown().await;

    let cluster = started(directory.path()).await;
    let after = cluster.get("/api/v1/namespaces/default/configmaps").await.body;
    assert_eq!(before["items"], after["items"]);
    assert_eq!(cluster.get(&format!("{things}/a")).await.body, made.body);
    assert_eq!(cluster.server.ca_pem(), ca, "kubeconfigs stay good");
    assert_ne!(cluster.server.url(), url, "another free port");
    let version = after["metadata"]["resourceVersion"].as_str().expect("version");
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1&resourceVersion={version}");
    cluster.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "late"}})).await;
    let events = cluster.get(&path).await.body;
    assert_eq!((events["type"].as_str(), events["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("late")));
    let old =
        cluster.get("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1&resourceVersion=2").await.body;
    assert_eq!((old["type"].as_str(), old["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
}

#[tokio::test]
async fn a_directory_in_use_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().expect("directory");
    let first: RunningServer = started(directory.path()).await.server;
    let second = ApiServer::builder().data_dir(Some(directory.path().to_owned())).start().await;
    let error = second.expect_err("in use");
    assert!(matches!(error, StartError::Data(_)));
    assert_eq!(error.to_string(), format!("data directory {} is in use by another server", directory.path().display()));
    first.shutdown().await;
}

#[tokio::test]
async fn a_taken_port_is_refused_in_one_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = taken.local_addr().expect("address");
    let error = ApiServer::builder().bind(address).start().await.expect_err("taken");
    assert!(error.to_string().starts_with(&format!("listen on {address}: ")), "{error}");
}

/// A kubeconfig's user, with the server of another.
fn moved(kubeconfig: &str, server: &RunningServer) -> String {
    let line = kubeconfig.lines().find(|l| l.trim_start().starts_with("server: ")).expect("a server");
    kubeconfig.replace(line, &format!("    server: {}", server.url()))
}

#[tokio::test]
async fn kubeconfigs_of_the_administrator_outlive_restarts_and_upgrades() {
    let directory = tempfile::tempdir().expect("directory");
    let token = directory.path().join("pki/admin.token");
    let first = started(directory.path()).await.server;
    // As earlier versions left it: a certificate in the kubeconfig, no token on disk.
    let certificate = first.kubeconfig_for("kubernetes-admin", &["system:masters"]).expect("a kubeconfig");
    first.shutdown().await;
    std::fs::remove_file(&token).expect("a token");
    let second = started(directory.path()).await.server;
    let given = second.admin_kubeconfig();
    second.shutdown().await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&token.metadata().expect("a token").permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    let third = started(directory.path()).await.server;
    for kubeconfig in [certificate, given] {
        let client = client_of(&moved(&kubeconfig, &third)).await;
        let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let said = crate::client::send(&client, "POST", path, "application/json", who.into_bytes()).await;
        assert_eq!(said.body["status"]["userInfo"]["username"], "kubernetes-admin", "{said:?}");
        assert_eq!(said.body["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
    }
    third.shutdown().await;
}
