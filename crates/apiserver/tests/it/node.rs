//! Logs and streams, proxied to a kubelet; here a small stand-in with TLS.

use std::sync::Arc;

use firesteel_apiserver::RunningServer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::cluster;

/// Responds with the request line, and echoes upgraded connections.
async fn kubelet(server: &RunningServer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = listener.local_addr().expect("address").port();
    let made =
        server.serving_certificate("system:node:n", &["system:nodes"], &["127.0.0.1".into()]).expect("certificate");
    let chain = pem(&made.certificate).into_iter().map(Into::into).collect();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(pem(&made.key).remove(0).into());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pem(server.ca_pem()).remove(0).into()).expect("root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .expect("verifier");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .expect("config");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Fails for clients without a certificate of the cluster.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let line = head.lines().next().unwrap_or_default().to_owned();
                if head.to_lowercase().contains("upgrade: websocket") {
                    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n";
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.write_all(line.as_bytes()).await;
                    let mut buffer = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        if stream.write_all(&buffer[..count]).await.is_err() {
                            return;
                        }
                    }
                    return;
                }
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}", line.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

fn pem(text: &str) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    text.split("-----BEGIN")
        .skip(1)
        .map(|part| {
            let body: String = part.lines().skip(1).take_while(|l| !l.starts_with("---")).collect();
            base64::engine::general_purpose::STANDARD.decode(body).expect("base64")
        })
        .collect()
}

async fn with_pod() -> crate::client::Cluster {
    let cluster = cluster().await;
    let port = kubelet(&cluster.server).await;
    let node = json!({
        "metadata": {"name": "n"},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}},
    });
    assert_eq!(cluster.post("/api/v1/nodes", &node).await.code, 201);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x:1"}, {"name": "d", "image": "x:1"}]}});
    assert_eq!(cluster.post("/api/v1/namespaces/default/pods", &pod).await.code, 201);
    cluster
}

#[tokio::test]
async fn logs_come_from_the_kubelet_of_the_pods_node() {
    let cluster = with_pod().await;
    let log = cluster.get("/api/v1/namespaces/default/pods/p/log?container=c&tailLines=5&timestamps=true").await;
    assert_eq!(log.body, "GET /containerLogs/default/p/c?timestamps=true&tailLines=5 HTTP/1.1");
    let which = cluster.get("/api/v1/namespaces/default/pods/p/log").await;
    assert_eq!(which.body["message"], "a container name must be specified for pod p, choose one of: [c d]");
    let wrong = cluster.get("/api/v1/namespaces/default/pods/p/log?container=z").await;
    assert_eq!(wrong.body["message"], "container z is not valid for pod p");
}

#[tokio::test]
async fn exec_is_a_tunnel_to_the_kubelet() {
    let cluster = with_pod().await;
    let mut stream = crate::watches::tls(&cluster.server).await;
    let request = "GET /api/v1/namespaces/default/pods/p/exec?container=c&command=ls&command=-l&stdout=true HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("request");
    let expected = "GET /exec/default/p/c?output=1&command=ls&command=-l HTTP/1.1";
    let seen = crate::watches::read_until(&mut stream, expected).await;
    assert!(seen.starts_with("HTTP/1.1 101"), "{seen}");
    assert!(seen.to_lowercase().contains("sec-websocket-protocol: v4.channel.k8s.io"), "{seen}");
    stream.write_all(b"ping").await.expect("write");
    crate::watches::read_until(&mut stream, "ping").await;
}
