//! What a node's conditions mean for its taints and its pods. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use serde_json::{Value, json};

use crate::controllers::pod_control;
use crate::controllers::scheduler::{is_terminal, taints as taints_of, tolerates};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CORDONED: &str = "node.kubernetes.io/unschedulable";
const OURS: [&str; 3] = [NOT_READY, UNREACHABLE, CORDONED];

/// When a pod is evicted from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    Never,
    After(Duration),
    Now,
}

/// Whether a pod occupies a node.
pub(crate) fn is_on(pod: &Pod, node: &str) -> bool {
    !is_terminal(pod) && pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node)
}

fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.status.as_str())
}

/// Conditions for a node that stopped reporting, or `None` if they are already set.
pub(crate) fn unknown(node: &Node, now: Timestamp) -> Option<Vec<Value>> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    if ready(node) == Some("Unknown") {
        return None;
    }
    let time = format!("{now:.0}");
    let mut types: Vec<&str> =
        conditions.iter().map(|c| c.type_.as_str()).filter(|t| *t != "NetworkUnavailable").collect();
    if !types.contains(&"Ready") {
        types.push("Ready");
    }
    let silent = |type_: &str| {
        json!({"type": type_, "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": time})
    };
    Some(types.into_iter().map(silent).collect())
}

/// The taints a node should have, or `None` if it already has them.
pub(crate) fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let have = taints_of(node);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    match ready(node) {
        Some("True") => {}
        Some("False") | None => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        Some(_) => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
    }
    // A node that never reported is new: it is only kept from scheduling.
    if ready(node).is_none() {
        wanted.pop();
    }
    if node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        wanted.push((CORDONED, "NoSchedule"));
    }
    let is = |t: &Taint, (key, effect): &(&str, &str)| t.key == *key && t.effect == *effect;
    let mut taints: Vec<Taint> =
        have.iter().filter(|t| !OURS.contains(&t.key.as_str()) || wanted.iter().any(|w| is(t, w))).cloned().collect();
    for want in &wanted {
        if !taints.iter().any(|t| is(t, want)) {
            let time_added = (want.1 == "NoExecute" || want.0 != CORDONED).then(|| pod_control::time(now));
            taints.push(Taint { key: want.0.to_owned(), effect: want.1.to_owned(), value: None, time_added });
        }
    }
    (taints != have).then_some(taints)
}

/// When a pod must leave a node with these taints.
pub(crate) fn eviction(pod: &Pod, node: &Node, now: Timestamp) -> Eviction {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    let mut eviction = Eviction::Never;
    for taint in taints_of(node).iter().filter(|t| t.effect == "NoExecute") {
        let fitting: Vec<_> = tolerations.iter().filter(|t| tolerates(t, taint)).collect();
        if fitting.is_empty() {
            return Eviction::Now;
        }
        let Some(limit) = fitting.iter().filter_map(|t| t.toleration_seconds).min() else { continue };
        let since = taint.time_added.as_ref().map_or(now, |t| t.0);
        let left = since.as_second() + limit.max(0) - now.as_second();
        let Some(left) = u64::try_from(left).ok().filter(|l| *l > 0) else { return Eviction::Now };
        let left = Duration::from_secs(left);
        eviction = match eviction {
            Eviction::After(other) => Eviction::After(other.min(left)),
            Eviction::Never | Eviction::Now => Eviction::After(left),
        };
    }
    eviction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, spec: Value) -> Node {
        let conditions = json!([{"type": "Ready", "status": ready}, {"type": "DiskPressure", "status": "False"}]);
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn keys(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect()
    }

    #[test]
    fn a_ready_node_has_no_taints_of_ours() {
        assert_eq!(taints(&node("True", json!({})), now()), None);
        let left =
            json!({"taints": [{"key": NOT_READY, "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoSchedule"}]});
        assert_eq!(keys(&taints(&node("True", left), now()).unwrap()), ["gpu:NoSchedule"]);
    }

    #[test]
    fn a_silent_node_is_unreachable_and_a_cordoned_one_unschedulable() {
        let got = taints(&node("Unknown", json!({})), now()).unwrap();
        assert_eq!(
            keys(&got),
            ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
        );
        let got = taints(&node("True", json!({"unschedulable": true})), now()).unwrap();
        assert_eq!(keys(&got), ["node.kubernetes.io/unschedulable:NoSchedule"]);
    }

    #[test]
    fn all_conditions_of_a_silent_node_are_unknown_once() {
        let conditions = unknown(&node("True", json!({})), now()).unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(unknown(&node("Unknown", json!({})), now()), None);
    }

    #[test]
    fn pods_leave_a_lost_node_when_their_toleration_ends() {
        let tainted =
            json!({"taints": [{"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T00:09:00Z"}]});
        let node = node("Unknown", tainted);
        let pod = |tolerations: Value| -> Pod {
            serde_json::from_value(json!({"spec": {"nodeName": "n", "containers": [], "tolerations": tolerations}}))
                .unwrap()
        };
        let tolerate = |seconds: i64| json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        assert_eq!(eviction(&pod(json!([])), &node, now()), Eviction::Now);
        assert_eq!(eviction(&pod(tolerate(300)), &node, now()), Eviction::After(Duration::from_secs(240)));
        assert_eq!(eviction(&pod(tolerate(60)), &node, now()), Eviction::Now);
        assert_eq!(eviction(&pod(json!([{"operator": "Exists"}])), &node, now()), Eviction::Never);
    }
}
