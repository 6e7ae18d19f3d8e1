//! Reads the end of a container's log from the API server, bounded in size and time.

use std::time::Duration;

use firesteel_core::diagnosis::LOG_BYTES;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use kube::{Client, Error};

/// Lines to request. If they exceed [`MOST_READ`], so that the end is missing, fewer are requested.
const LINES: [i64; 3] = [2000, 100, 5];
/// The most bytes to read per request.
const MOST_READ: usize = 8 << 20;
/// How long a node may take to serve a log.
const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a container's log.
pub async fn tail(client: &Client, namespace: &str, pod: &str, container: &str) -> kube::Result<Vec<u8>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match tokio::time::timeout(PATIENCE, read(&pods, pod, container)).await {
        Ok(answer) => answer,
        Err(_) => {
            let text = format!("no log within {PATIENCE:?}");
            Err(Error::Service(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()))
        }
    }
}

async fn read(pods: &Api<Pod>, pod: &str, container: &str) -> kube::Result<Vec<u8>> {
    let mut tail = Vec::new();
    for lines in LINES {
        let params = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(lines),
            limit_bytes: i64::try_from(MOST_READ).ok(),
            ..LogParams::default()
        };
        let mut stream = Box::pin(pods.log_stream(pod, &params).await?);
        let (mut part, mut total) = ([0; 16 * 1024], 0);
        tail.clear();
        loop {
            let count = stream.read(&mut part).await.map_err(Error::ReadEvents)?;
            if count == 0 || total >= MOST_READ {
                break;
            }
            total += count;
            tail.extend_from_slice(&part[..count]);
            if tail.len() > 2 * LOG_BYTES {
                tail.drain(..tail.len() - LOG_BYTES - 1);
            }
        }
        if total < MOST_READ {
            break;
        }
    }
    Ok(tail)
}
