//! Pod creates per second over a number of connections, each sending its next create when the last one is answered. The
//! pods are synthetic or read from a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::connection::Server;
use crate::objects::{PODS, Pod};

/// Creates this many pods like Spark executors.
pub(crate) async fn run(server: &Server, prefix: &str, pods: usize, workers: usize) -> Result<Value> {
    let (template, prefix) = (Pod::template(), prefix.to_owned());
    send(server, PODS, pods, workers, move |number| template.named(&format!("{prefix}-exec-{number}"))).await
}

/// Creates the pods of a file, one JSON text per line, in a namespace.
pub(crate) async fn replay(server: &Server, namespace: &str, file: &str, workers: usize) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {file}"))?;
    let bodies: Vec<String> = text.lines().map(str::to_owned).collect();
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    send(server, &path, bodies.len(), workers, move |number| bodies[number].clone()).await
}

async fn send(
    server: &Server,
    path: &str,
    pods: usize,
    workers: usize,
    body: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Result<Value> {
    let next = Arc::new(AtomicUsize::new(0));
    let body = Arc::new(body);
    let mut connections = Vec::new();
    for _ in 0..workers {
        connections.push(server.connect().await?);
    }
    let began = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (next, body, path) = (next.clone(), body.clone(), path.to_owned());
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= pods {
                        return Ok::<_, anyhow::Error>(took);
                    }
                    let body = body(number);
                    let sent = Instant::now();
                    connection.request("POST", &path, "application/json", &body).await?.expect(&[201])?;
                    took.push(sent.elapsed());
                }
            })
        })
        .collect();
    let mut took: Vec<Duration> = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let seconds = began.elapsed().as_secs_f64();
    took.sort();
    let quantile = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let at = ((took.len() - 1) as f64 * share) as usize;
        took[at].as_secs_f64() * 1000.0
    };
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = pods as f64 / seconds;
    Ok(
        json!({"pods": pods, "seconds": seconds, "perSecond": rate, "median_ms": quantile(0.5), "p99_ms": quantile(0.99)}),
    )
}
