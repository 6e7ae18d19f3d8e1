//! Node selectors, node affinity, taints and tolerations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm, Taint, Toleration,
};

/// Whether a node matches the pod's `nodeSelector` and required node affinity.
pub(crate) fn allows(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let selected =
        spec.node_selector.iter().flatten().all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|r| r.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// The summed weights of the preferred terms that a node matches.
pub(crate) fn preference(spec: &PodSpec, node: &Node) -> i64 {
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let preferred = affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
    let weight = |p: &PreferredSchedulingTerm| {
        if term_matches(&p.preference, node) { i64::from(p.weight) } else { 0 }
    };
    preferred.into_iter().flatten().map(weight).sum()
}

/// An empty term matches nothing, as upstream.
fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let name = node.metadata.name.as_deref();
    expressions.iter().all(|r| requirement_holds(r, labels.get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| requirement_holds(r, if r.key == "metadata.name" { name } else { None }))
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |v: &str| values.iter().any(|x| x == v);
    let compare = |holds: fn(i64, i64) -> bool| {
        let left = value.and_then(|v| v.parse().ok());
        let right = values.first().and_then(|v| v.parse().ok());
        left.zip(right).is_some_and(|(l, r)| holds(l, r))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => value.is_none_or(|v| !listed(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|l, r| l > r),
        "Lt" => compare(|l, r| l < r),
        _ => false,
    }
}

/// The taints of a node.
pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default()
}

/// Whether one of the tolerations tolerates a taint.
pub(crate) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|t| tolerates(t, taint))
}

/// Whether a toleration tolerates a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (if key.is_empty() { exists } else { key == taint.key })
        && (exists || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}})).unwrap()
    }

    fn required(expressions: serde_json::Value) -> PodSpec {
        let terms = json!([{"matchExpressions": expressions}]);
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        serde_json::from_value(json!({"containers": [], "affinity": affinity})).unwrap()
    }

    #[test]
    fn every_operator_of_node_affinity() {
        let n = node(json!({"zone": "a", "size": "10"}));
        for (expression, want) in [
            (json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), true),
            (json!({"key": "zone", "operator": "In", "values": ["b"]}), false),
            (json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "none", "operator": "NotIn", "values": ["b"]}), true),
            (json!({"key": "zone", "operator": "Exists"}), true),
            (json!({"key": "none", "operator": "DoesNotExist"}), true),
            (json!({"key": "size", "operator": "Gt", "values": ["9"]}), true),
            (json!({"key": "size", "operator": "Lt", "values": ["9"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["9"]}), false),
        ] {
            assert_eq!(allows(&required(json!([expression])), &n), want, "{expression}");
        }
        assert!(!allows(&required(json!([])), &n), "an empty term matches no node");
    }

    #[test]
    fn a_node_selector_needs_every_label() {
        let spec: PodSpec =
            serde_json::from_value(json!({"containers": [], "nodeSelector": {"a": "1", "b": "2"}})).unwrap();
        assert!(allows(&spec, &node(json!({"a": "1", "b": "2", "c": "3"}))));
        assert!(!allows(&spec, &node(json!({"a": "1"}))));
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        for (toleration, want) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&parsed, &taint), want, "{toleration}");
        }
    }
}
