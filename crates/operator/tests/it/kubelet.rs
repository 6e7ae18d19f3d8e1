//! Plays the kubelet for driver pods, and records every driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{container, now};

/// Drivers by name and attempt: the uids of their pods.
pub(crate) type Drivers = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// What becomes of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Succeeds,
    Fails,
    RunsOn,
}

/// The first attempt fails, the others succeed.
pub(crate) fn first_fails(attempt: &str) -> Fate {
    if attempt == "1" { Fate::Fails } else { Fate::Succeeds }
}

/// The first attempt runs until somebody ends it, the others succeed.
pub(crate) fn first_runs_on(attempt: &str) -> Fate {
    if attempt == "1" { Fate::RunsOn } else { Fate::Succeeds }
}

/// Plays until it is aborted.
pub(crate) async fn play(pods: Api<Pod>, fate: fn(&str) -> Fate, seen: Drivers) {
    let config = watcher::Config::default().labels("spark-role=driver");
    let mut events = watcher(pods.clone(), config).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let attempt = pod.annotations().get("firesteel.dev/attempt").cloned().unwrap_or_default();
        let key = format!("{} {attempt}", pod.name_any());
        let uid = pod.uid().unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap();
            let uids = seen.entry(key).or_default();
            if uids.contains(&uid) {
                continue;
            }
            uids.push(uid);
        }
        let running = json!({"phase": "Running", "containerStatuses": [container(&json!({"running": {}}))]});
        let ended = |phase: &str, code: i32| {
            let state = json!({"terminated": {"exitCode": code, "reason": "x", "finishedAt": now()}});
            json!({"phase": phase, "containerStatuses": [container(&state)]})
        };
        let story = match fate(&attempt) {
            Fate::Succeeds => vec![running, ended("Succeeded", 0)],
            Fate::Fails => vec![running, ended("Failed", 1)],
            Fate::RunsOn => vec![running],
        };
        let pods = pods.clone();
        tokio::spawn(async move {
            for status in story {
                let patch = Patch::Merge(json!({"status": status}));
                let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
    }
}
