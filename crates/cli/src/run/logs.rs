//! The driver's log, from its first byte to its last, each once.
//!
//! If the connection breaks, it is opened again and what was already shown is skipped. When the stream ends, the whole log is
//! requested once more, so that nothing written while the container ended is lost.

use std::time::Duration;

use firesteel_core::diagnosis::LOG_BYTES;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::client::Body;
use kube::core::Request;
use kube::{Client, Resource};

use crate::run::view::View;

const AGAIN: Duration = Duration::from_millis(200);
/// How many requests in a row may fail before the log is given up.
const PATIENCE: u32 = 25;

/// One container's log.
pub(crate) struct Source {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// What has been shown so far.
#[derive(Default)]
struct Shown {
    count: u64,
    /// The end of it, as much as the diagnosis reads.
    end: Vec<u8>,
}

impl Shown {
    fn add(&mut self, bytes: &[u8]) {
        self.count += bytes.len() as u64;
        self.end.extend_from_slice(bytes);
        if self.end.len() > 2 * LOG_BYTES {
            self.end.drain(..self.end.len() - LOG_BYTES - 1);
        }
    }
}

/// How one request for the log ended.
enum End {
    /// The server ended the stream.
    Whole,
    Broken(String),
    /// Stdout is closed.
    NoReader,
}

impl Source {
    /// Shows the log until the container has ended. Returns the end of what was shown, or why it could not be read.
    pub(crate) async fn follow(self, view: View) -> Result<Vec<u8>, String> {
        let mut shown = Shown::default();
        let mut refused = 0;
        loop {
            let before = shown.count;
            match self.read(true, &mut shown, &view).await {
                End::NoReader => return Ok(shown.end),
                End::Whole => break,
                End::Broken(why) => {
                    refused = if shown.count > before { 0 } else { refused + 1 };
                    if refused > PATIENCE {
                        return Err(why);
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        self.read(false, &mut shown, &view).await;
        Ok(shown.end)
    }

    async fn read(&self, follow: bool, shown: &mut Shown, view: &View) -> End {
        let wish = LogParams { follow, container: Some(self.container.clone()), ..LogParams::default() };
        let request = Request::new(Pod::url_path(&(), Some(&self.namespace))).logs(&self.pod, &wish);
        let request = match request {
            Ok(request) => request.map(Body::from),
            Err(error) => return End::Broken(error.to_string()),
        };
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return End::Broken(error.to_string()),
        };
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let text = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let message = serde_json::from_slice::<serde_json::Value>(&text).ok();
            let message = message.and_then(|m| m["message"].as_str().map(str::to_owned));
            return End::Broken(message.unwrap_or_else(|| status.to_string()));
        }
        let mut skip = shown.count;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return End::Broken("the connection broke".to_owned()) };
            let Some(data) = frame.data_ref() else { continue };
            let known = usize::try_from(skip).unwrap_or(usize::MAX).min(data.len());
            skip -= known as u64;
            let fresh = &data[known..];
            if !fresh.is_empty() {
                shown.add(fresh);
                if !view.log(fresh) {
                    return End::NoReader;
                }
            }
        }
        End::Whole
    }
}
