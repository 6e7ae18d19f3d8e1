//! Probes and metrics over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Whether the operator is ready: it acts, or it stands by for the one that does.
#[derive(Debug, Clone, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Answers `/healthz` and `/readyz` until the token is cancelled. Gives the address it listens on.
pub async fn probes(address: SocketAddr, ready: Ready, until: CancellationToken) -> std::io::Result<SocketAddr> {
    let answer = move || async move {
        if ready.get() { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
    };
    serve(address, Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(answer)), until).await
}

/// Answers `/metrics` until the token is cancelled.
pub async fn metrics(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    until: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let answer = move || async move { ([("content-type", "text/plain; version=0.0.4")], metrics.text()) };
    serve(address, Router::new().route("/metrics", get(answer)), until).await
}

async fn serve(address: SocketAddr, router: Router, until: CancellationToken) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(until.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!(%error, %address, "the HTTP server ended");
        }
    });
    Ok(address)
}
