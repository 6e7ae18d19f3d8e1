//! Pod creates per second: a number of connections, each sending its next create when the last one is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::connection::Server;
use crate::objects::{PODS, Pod};

pub(crate) async fn run(server: &Server, prefix: &str, pods: usize, workers: usize) -> Result<Value> {
    let next = Arc::new(AtomicUsize::new(0));
    let template = Arc::new(Pod::template());
    let mut connections = Vec::new();
    for _ in 0..workers {
        connections.push(server.connect().await?);
    }
    let began = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (next, template, prefix) = (next.clone(), template.clone(), prefix.to_owned());
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= pods {
                        return Ok::<_, anyhow::Error>(took);
                    }
                    let body = template.named(&format!("{prefix}-exec-{number}"));
                    let sent = Instant::now();
                    connection.request("POST", PODS, "application/json", &body).await?.expect(&[201])?;
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
