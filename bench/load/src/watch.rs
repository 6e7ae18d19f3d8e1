//! Many watches under many changes. Pods are created and changed; every watch must deliver the revisions in the
//! responses once each and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use memchr::memmem::Finder;
use serde_json::{Value, json};

use crate::connection::{Connection, Server};
use crate::objects::{PODS, Pod};

/// Changes in the life of one pod: created, then changed.
const PER_POD: usize = 10;
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) async fn run(server: &Server, watches: usize, events: usize, workers: usize) -> Result<Value> {
    let list = server.connect().await?.request("GET", PODS, "", "").await?.expect(&[200])?;
    let start = revision(&list)?;
    let mut watching = Vec::new();
    for _ in 0..watches {
        let mut connection = server.connect().await?;
        connection.stream(&format!("{PODS}?watch=true&resourceVersion={start}&timeoutSeconds=600")).await?;
        watching.push(connection);
    }
    let began = Instant::now();
    let watching: Vec<_> = watching.into_iter().map(|connection| tokio::spawn(told(connection, events))).collect();
    let mut written = write(server, events / PER_POD, workers).await?;
    let wrote = began.elapsed();
    written.sort_unstable();
    let (mut bytes, mut wrong) = (0, Vec::new());
    for (number, task) in watching.into_iter().enumerate() {
        let seen = tokio::time::timeout(PATIENCE, task).await.context("a watch did not deliver everything")???;
        bytes += seen.bytes;
        if seen.revisions != written {
            wrong.push(number);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    if !wrong.is_empty() {
        bail!("{} of {watches} watches did not deliver exactly what was written", wrong.len());
    }
    Ok(
        json!({"watches": watches, "events": written.len(), "seconds": seconds, "writing_seconds": wrote.as_secs_f64(), "bytes": bytes}),
    )
}

struct Seen {
    revisions: Vec<u64>,
    bytes: usize,
}

/// Reads a watch until it has delivered this many events.
async fn told(mut connection: Connection, events: usize) -> Result<Seen> {
    let mut seen = Seen { revisions: Vec::with_capacity(events), bytes: 0 };
    let mut buffer = Vec::new();
    while seen.revisions.len() < events {
        connection.chunk(&mut buffer).await?.context("the server ended the watch")?;
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &buffer[from..]) {
            let line = &buffer[from..from + length];
            if line.starts_with(b"{\"type\":\"ERROR\"") {
                bail!("the watch failed: {}", String::from_utf8_lossy(line));
            }
            seen.revisions.push(revision(line)?);
            seen.bytes += length + 1;
            from += length + 1;
        }
        buffer.drain(..from);
    }
    Ok(seen)
}

/// Takes each of `pods` pods through its life; returns the revisions of all changes.
async fn write(server: &Server, pods: usize, workers: usize) -> Result<Vec<u64>> {
    let next = Arc::new(AtomicUsize::new(0));
    let template = Arc::new(Pod::template());
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (server, next, template) = (server.clone(), next.clone(), template.clone());
            tokio::spawn(async move {
                let mut connection = server.connect().await?;
                let mut revisions = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= pods {
                        return Ok::<_, anyhow::Error>(revisions);
                    }
                    revisions.extend(live(&mut connection, &template, &format!("watched-{number}")).await?);
                }
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for task in tasks {
        revisions.extend(task.await??);
    }
    Ok(revisions)
}

async fn live(connection: &mut Connection, template: &Pod, name: &str) -> Result<Vec<u64>> {
    let mut revisions = Vec::with_capacity(PER_POD);
    let made = connection.request("POST", PODS, "application/json", &template.named(name)).await?.expect(&[201])?;
    revisions.push(revision(&made)?);
    let path = format!("{PODS}/{name}");
    for number in 0..PER_POD - 1 {
        let patch = json!({"status": {"phase": "Running", "message": format!("change {number}")}}).to_string();
        let media = "application/merge-patch+json";
        let done = connection.request("PATCH", &format!("{path}/status"), media, &patch).await?.expect(&[200])?;
        revisions.push(revision(&done)?);
    }
    Ok(revisions)
}

/// The first `resourceVersion` in a JSON text: that of the object, as nothing before it in `metadata` holds one.
fn revision(text: &[u8]) -> Result<u64> {
    static FINDER: std::sync::LazyLock<Finder<'static>> =
        std::sync::LazyLock::new(|| Finder::new("\"resourceVersion\":\""));
    let start = FINDER.find(text).context("an object without resourceVersion")? + FINDER.needle().len();
    let digits = text[start..].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
