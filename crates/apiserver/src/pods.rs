//! What the server computes for pods: QoS class, scheduling gates, binding.

use serde_json::{Value, json};

use crate::meta;
use crate::quantity::{self, Quantity};

/// The names of a pod's regular containers.
pub(crate) fn container_names(pod: &Value) -> Vec<&str> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().map(|c| meta::text(c, "/name")).collect()
}

pub(crate) fn qos_class(pod: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let mut any = false;
    let mut guaranteed = true;
    let amount = |container: &Value, list: &str, resource: &str| {
        container
            .pointer(&format!("/resources/{list}/{resource}"))
            .and_then(Value::as_str)
            .and_then(|text| quantity::parse(text).ok())
            .filter(|q| *q > Quantity::ZERO)
    };
    for field in ["/spec/containers", "/spec/initContainers"] {
        for container in pod.pointer(field).and_then(Value::as_array).into_iter().flatten() {
            for resource in COUNTED {
                let limit = amount(container, "limits", resource);
                let request = amount(container, "requests", resource);
                any |= limit.is_some() || request.is_some();
                guaranteed &= limit.is_some() && request.is_none_or(|r| Some(r) == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn gated(pod: &Value) -> bool {
    pod.pointer("/spec/schedulingGates").and_then(Value::as_array).is_some_and(|g| !g.is_empty())
}

/// Sets the condition of a pod with scheduling gates.
pub(crate) fn mark_gated(pod: &mut Value) {
    if gated(pod) {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": meta::now(),
        }]);
    }
}

/// Assigns a pod to a node for a Binding; the error says why it cannot.
pub(crate) fn bind(pod: &mut Value, node: &str, annotations: Option<&Value>) -> Result<(), String> {
    let name = meta::name(pod).to_owned();
    if meta::deleting(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let bound = meta::text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return Err(format!("pod {name} is already assigned to node {bound:?}"));
    }
    if gated(pod) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    meta::child(pod, "spec").insert("nodeName".into(), node.into());
    if let Some(Value::Object(extra)) = annotations {
        let metadata = meta::of(pod);
        let slot = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (key, value) in extra {
            slot[key] = value.clone();
        }
    }
    set_condition(
        pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::now()}),
    );
    Ok(())
}

pub(crate) fn set_condition(object: &mut Value, condition: Value) {
    let kind = condition.get("type").cloned().unwrap_or_default();
    let status = meta::child(object, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|c| c.get("type") == Some(&kind)) {
            Some(slot) => *slot = condition,
            None => list.push(condition),
        }
    }
}
