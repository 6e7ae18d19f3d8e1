//! The pod row: readiness, status and restarts, computed as `kubectl get pods` shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cells, age, short_duration};
use crate::meta;

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Rows of finished pods are marked, so that clients can hide them.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match meta::text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn is_sidecar(pod: &Value, name: &str) -> bool {
    list(pod, "/spec/initContainers")
        .any(|c| c.get("name").is_some_and(|n| n == name) && c.get("restartPolicy").is_some_and(|r| r == "Always"))
}

fn condition_true(pod: &Value, kind: &str) -> bool {
    list(pod, "/status/conditions")
        .any(|c| c.get("type").is_some_and(|t| t == kind) && c.get("status").is_some_and(|s| s == "True"))
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Cells {
    let mut restarts = 0;
    let mut last_restart: Option<Timestamp> = None;
    let mut total = list(pod, "/spec/containers").count();
    let mut ready = 0;
    let mut reason = match meta::text(pod, "/status/reason") {
        "" => meta::text(pod, "/status/phase").to_owned(),
        given => given.to_owned(),
    };
    if list(pod, "/status/conditions").any(|c| {
        c.get("type").is_some_and(|t| t == "PodScheduled") && c.get("reason").is_some_and(|r| r == "SchedulingGated")
    }) {
        reason = "SchedulingGated".into();
    }
    let note_restart = |status: &Value, last: &mut Option<Timestamp>| {
        if let Ok(time) = meta::text(status, "/lastState/terminated/finishedAt").parse::<Timestamp>() {
            *last = Some(last.map_or(time, |l| l.max(time)));
        }
    };
    let inits = list(pod, "/spec/initContainers").count();
    let mut initializing = false;
    for (index, status) in list(pod, "/status/initContainerStatuses").enumerate() {
        let count = status.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
        let sidecar = is_sidecar(pod, meta::text(status, "/name"));
        restarts += count;
        note_restart(status, &mut last_restart);
        if let Some(ended) = status.pointer("/state/terminated") {
            if ended.get("exitCode").and_then(Value::as_i64) == Some(0) {
                continue;
            }
            let why = meta::text(ended, "/reason");
            let signal = ended.get("signal").and_then(Value::as_i64).unwrap_or_default();
            reason = if !why.is_empty() {
                format!("Init:{why}")
            } else if signal != 0 {
                format!("Init:Signal:{signal}")
            } else {
                format!("Init:ExitCode:{}", ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default())
            };
        } else if sidecar && status.get("started").is_some_and(|s| s == true) {
            if status.get("ready").is_some_and(|r| r == true) {
                ready += 1;
            }
            continue;
        } else {
            let waiting = meta::text(status, "/state/waiting/reason");
            reason = if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{inits}")
            };
        }
        initializing = true;
        break;
    }
    total +=
        list(pod, "/spec/initContainers").filter(|c| c.get("restartPolicy").is_some_and(|r| r == "Always")).count();
    if !initializing || condition_true(pod, "Initialized") {
        let mut running = false;
        let statuses: Vec<&Value> = list(pod, "/status/containerStatuses").collect();
        for status in statuses.into_iter().rev() {
            restarts += status.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
            note_restart(status, &mut last_restart);
            let waiting = meta::text(status, "/state/waiting/reason");
            let ended = status.pointer("/state/terminated");
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if let Some(ended) = ended {
                let why = meta::text(ended, "/reason");
                let signal = ended.get("signal").and_then(Value::as_i64).unwrap_or_default();
                reason = if !why.is_empty() {
                    why.to_owned()
                } else if signal != 0 {
                    format!("Signal:{signal}")
                } else {
                    format!("ExitCode:{}", ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default())
                };
            } else if status.get("ready").is_some_and(|r| r == true) && status.pointer("/state/running").is_some() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            reason = if condition_true(pod, "Ready") { "Running".into() } else { "NotReady".into() };
        }
    }
    if meta::deleting(pod) {
        let over = matches!(meta::text(pod, "/status/phase"), "Succeeded" | "Failed");
        if meta::text(pod, "/status/reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !over {
            reason = "Terminating".into();
        }
    }
    let restarts = match last_restart {
        Some(time) if restarts != 0 => {
            format!("{restarts} ({} ago)", short_duration(now.duration_since(time).as_secs()))
        }
        _ => restarts.to_string(),
    };
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let mut gates_done = 0;
    let gates: Vec<&Value> = list(pod, "/spec/readinessGates").collect();
    for gate in &gates {
        gates_done += usize::from(condition_true(pod, meta::text(gate, "/conditionType")));
    }
    let gate_text = if gates.is_empty() { "<none>".to_owned() } else { format!("{gates_done}/{}", gates.len()) };
    vec![
        meta::name(pod).into(),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        age(pod, now),
        or_none(meta::text(pod, "/status/podIP")).into(),
        or_none(meta::text(pod, "/spec/nodeName")).into(),
        or_none(meta::text(pod, "/status/nominatedNodeName")).into(),
        gate_text.into(),
    ]
}
