//! Watches with kube-rs and WebSockets, compared with the full history of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use firesteel_apiserver::RunningServer;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::client::cluster;

/// A TLS connection as the administrator.
pub(crate) async fn tls(server: &RunningServer) -> TlsStream<TcpStream> {
    let der = |pem: &str| {
        use base64::Engine as _;
        let body: String = pem.lines().filter(|l| !l.starts_with("---")).collect();
        base64::engine::general_purpose::STANDARD.decode(body).expect("base64")
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der(server.ca_pem()).into()).expect("root");
    let made = server.client_certificate("admin", &["system:masters"]).expect("certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(der(&made.key).into());
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![der(&made.certificate).into()], key)
        .expect("config");
    let stream = TcpStream::connect(server.address()).await.expect("connection");
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("handshake")
}

pub(crate) async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &str) -> String {
    let mut seen = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            let count = stream.read(&mut buffer).await.expect("read");
            assert!(count > 0, "the stream ended before {wanted:?}: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), reading).await.expect("in time");
    String::from_utf8_lossy(&seen).into_owned()
}

#[tokio::test]
async fn a_websocket_watch_sends_a_message_per_event() {
    let cluster = cluster().await;
    let mut stream = tls(&cluster.server).await;
    let request = "GET /api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true&labelSelector=a%3Db HTTP/1.1\r\nHost: x\r\nOrigin: https://x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("request");
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let body = json!({"metadata": {"name": "w", "labels": {"a": "b"}}});
    cluster.post("/api/v1/namespaces/default/configmaps", &body).await;
    let message = read_until(&mut stream, "\"name\":\"w\"").await;
    assert!(message.contains("{\"type\":\"ADDED\",\"object\":"), "{message}");
}

#[tokio::test]
async fn leaving_the_selection_looks_like_deletion() {
    let cluster = cluster().await;
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let mut events = Box::pin(api.watch(&WatchParams::default().labels("on=yes"), "0").await.expect("watch"));
    let object = |on: &str| {
        serde_json::from_value::<ConfigMap>(json!({"metadata": {"name": "x", "labels": {"on": on}}})).expect("object")
    };
    api.create(&PostParams::default(), &object("yes")).await.expect("create");
    api.patch("x", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "b"}}))).await.expect("patch");
    api.patch("x", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": {"on": "no"}}})))
        .await
        .expect("patch");
    api.patch("x", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": {"on": "yes"}}})))
        .await
        .expect("patch");
    api.delete("x", &DeleteParams::default()).await.expect("delete");
    let mut kinds = Vec::new();
    while kinds.len() < 5 {
        kinds.push(match events.next().await.expect("an event").expect("readable") {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(kinds, ["added", "modified", "deleted", "added", "deleted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_replayed_equals_the_list_under_concurrent_writes() {
    const WRITERS: usize = 8;
    const WRITES: usize = 60;
    let cluster = cluster().await;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-public");
    let start = api.list(&kube::api::ListParams::default()).await.expect("list");
    let version = start.metadata.resource_version.clone().expect("version");
    let mut state: BTreeMap<String, String> = start
        .items
        .into_iter()
        .map(|c| (c.metadata.name.expect("name"), c.metadata.resource_version.expect("version")))
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                for round in 0..WRITES {
                    let name = format!("w{}", (writer + round * 7) % 5);
                    match round % 3 {
                        0 => {
                            let object = serde_json::from_value(json!({"metadata": {"name": name}})).expect("object");
                            let _ = api.create(&PostParams::default(), &object).await;
                        }
                        1 => {
                            let patch = json!({"data": {"n": format!("{writer}-{round}")}});
                            let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
                        }
                        _ => {
                            let _ = api.delete(&name, &DeleteParams::default()).await;
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("writer");
    }
    let end = api.list(&kube::api::ListParams::default()).await.expect("list");
    let last: u64 = end.metadata.resource_version.as_deref().expect("version").parse().expect("number");
    let params = WatchParams::default().timeout(2);
    let mut events = Box::pin(api.watch(&params, &version).await.expect("watch"));
    let mut seen = version.parse::<u64>().expect("number");
    while let Some(event) = events.next().await {
        let (object, gone) = match event.expect("readable") {
            WatchEvent::Added(o) | WatchEvent::Modified(o) => (o, false),
            WatchEvent::Deleted(o) => (o, true),
            other => panic!("{other:?}"),
        };
        let at: u64 = object.metadata.resource_version.as_deref().expect("version").parse().expect("number");
        assert!(at > seen && at <= last, "events come once and in order: {at} after {seen}");
        seen = at;
        let name = object.metadata.name.expect("name");
        if gone {
            state.remove(&name)
        } else {
            state.insert(name, at.to_string())
        };
    }
    let listed: BTreeMap<String, String> = end
        .items
        .into_iter()
        .map(|c| (c.metadata.name.expect("name"), c.metadata.resource_version.expect("version")))
        .collect();
    assert_eq!(state, listed);
}

#[tokio::test]
async fn pages_show_one_moment_although_objects_change() {
    let cluster = cluster().await;
    let path = "/api/v1/namespaces/kube-public/configmaps";
    for name in ["a", "b", "c", "d", "e"] {
        cluster.post(path, &json!({"metadata": {"name": name}})).await;
    }
    let first = cluster.get(&format!("{path}?limit=2")).await.body;
    let token = first["metadata"]["continue"].as_str().expect("more").to_owned();
    cluster.delete(&format!("{path}/d"), &json!({})).await;
    cluster.post(path, &json!({"metadata": {"name": "bb"}})).await;
    let rest = cluster.get(&format!("{path}?limit=10&continue={token}")).await.body;
    let names: Vec<&str> =
        rest["items"].as_array().expect("items").iter().filter_map(|i| i["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["c", "d", "e", "kube-root-ca.crt"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}
