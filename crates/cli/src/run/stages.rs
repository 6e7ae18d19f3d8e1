//! Stages and tasks of a running application, from the driver's REST API.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use serde_json::Value;

use crate::run::view::View;

const EVERY: Duration = Duration::from_millis(700);
const ANSWER: Duration = Duration::from_secs(2);

/// The shown fields of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) tasks: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl Stage {
    fn read(value: &Value) -> Option<Self> {
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        Some(Stage {
            id: value["stageId"].as_u64()?,
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            status: value["status"].as_str().unwrap_or_default().to_owned(),
            tasks: number("numTasks"),
            done: number("numCompleteTasks"),
            failed: number("numFailedTasks"),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.as_str(), "COMPLETE" | "FAILED" | "SKIPPED")
    }

    pub(crate) fn sentence(&self) -> String {
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let how = self.status.to_lowercase();
        format!("stage {} ({}): {how}, {} of {} tasks{failed}", self.id, self.name, self.done, self.tasks)
    }
}

/// Shows the stages of the driver at an address until the task is dropped. A driver without a UI shows none.
pub(crate) async fn show(address: String, port: u16, view: View) {
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let host = if address.contains(':') { format!("[{address}]") } else { address };
    let base = format!("http://{host}:{port}/api/v1/applications");
    let mut application: Option<String> = None;
    loop {
        tokio::time::sleep(EVERY).await;
        if application.is_none() {
            let list = get(&client, &base).await.unwrap_or_default();
            application = list[0]["id"].as_str().map(str::to_owned);
        }
        let Some(id) = &application else { continue };
        if let Some(list) = get(&client, &format!("{base}/{id}/stages")).await {
            let mut stages: Vec<Stage> = list.as_array().into_iter().flatten().filter_map(Stage::read).collect();
            stages.retain(|s| s.status != "PENDING" && s.status != "SKIPPED");
            stages.sort_by_key(|s| s.id);
            view.stages(&stages);
        }
    }
}

async fn get(client: &Client<HttpConnector, Body>, url: &str) -> Option<Value> {
    let uri: Uri = url.parse().ok()?;
    let request = http::Request::get(uri).body(Body::empty()).ok()?;
    let answer = tokio::time::timeout(ANSWER, async {
        let response = client.request(request).await.ok()?;
        let body = http_body_util::BodyExt::collect(response.into_body()).await.ok()?;
        serde_json::from_slice(&body.to_bytes()).ok()
    });
    answer.await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stage_tells_its_tasks() {
        let value = json!({"stageId": 3, "name": "reduce at x.py:9", "status": "COMPLETE", "numTasks": 8,
            "numCompleteTasks": 8, "numFailedTasks": 1});
        let stage = Stage::read(&value).unwrap();
        assert!(stage.is_over());
        assert_eq!(stage.sentence(), "stage 3 (reduce at x.py:9): complete, 8 of 8 tasks, 1 failed");
    }
}
