//! The controllers on a live API server: ours, and the real kube-apiserver with its own controllers stopped.
//!
//! The same cases run on both. Nodes are fake: the test reports what a kubelet would.

#![allow(clippy::needless_pass_by_value, reason = "values are written in place")]
#![allow(clippy::unwrap_used, reason = "a test may fail there")]

mod cases;
mod certificates;
mod puppet;
mod real;

use std::time::Duration;

use firesteel_local::controllers::{self, Settings};
use kube::Client;

/// Runs all cases on one API server.
async fn run_all(client: Client) {
    let volumes = tempfile::tempdir().expect("a directory for volumes");
    let settings = Settings {
        client: client.clone(),
        ca_pem: "the authority".to_owned(),
        volumes: volumes.path().to_owned(),
        events_ttl: None,
        signer: None,
    };
    let started = std::time::Instant::now();
    let controllers = tokio::time::timeout(Duration::from_secs(30), controllers::start(settings))
        .await
        .expect("controllers see the whole cluster within 30 s");
    eprintln!("controllers ready in {:?}", started.elapsed());
    let node = puppet::node(&client, "puppet", "4").await;
    cases::all(&client).await;
    drop(node);
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_on_the_real_api_server() {
    let Some(plane) = real::Plane::start() else { return };
    run_all(plane.client().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_on_our_api_server() {
    let server = firesteel_apiserver::ApiServer::builder().start().await.expect("the server starts");
    let file = kube::config::Kubeconfig::from_yaml(&server.admin_kubeconfig()).expect("kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await;
    run_all(Client::try_from(config.expect("config")).expect("client")).await;
    server.shutdown().await;
}
