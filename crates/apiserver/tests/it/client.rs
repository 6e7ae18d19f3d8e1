//! A server with a kube-rs client, and raw requests through it.

use firesteel_apiserver::{ApiServer, RunningServer};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

pub(crate) struct Cluster {
    pub(crate) server: RunningServer,
    pub(crate) client: Client,
}

pub(crate) async fn client_of(kubeconfig: &str) -> Client {
    let parsed = Kubeconfig::from_yaml(kubeconfig).expect("kubeconfig parses");
    let config =
        Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.expect("kubeconfig is complete");
    Client::try_from(config).expect("client")
}

pub(crate) async fn cluster() -> Cluster {
    let server = ApiServer::builder().start().await.expect("the server starts");
    let client = client_of(&server.admin_kubeconfig()).await;
    Cluster { server, client }
}

/// A response: code and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

pub(crate) async fn send(client: &Client, method: &str, path: &str, media: &str, body: Vec<u8>) -> Answer {
    send_as(client, method, path, &[("content-type", media)], body).await
}

pub(crate) async fn send_as(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    use http_body_util::BodyExt as _;
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::from(body)).expect("request");
    let response = client.send(request).await.expect("answer");
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|v| v.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
    Answer { code, body, warnings }
}

impl Cluster {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(&self.client, "GET", path, "", Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        send(&self.client, "POST", path, "application/json", body.to_string().into_bytes()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        send(&self.client, "PUT", path, "application/json", body.to_string().into_bytes()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Answer {
        send(&self.client, "DELETE", path, "application/json", body.to_string().into_bytes()).await
    }
}
