//! Inter-pod affinity and anti-affinity.
//!
//! Only required terms are evaluated. A `namespaceSelector` can select namespaces by name, or all of them; other namespace
//! labels are ignored.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::filter::NodeInfo;

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Why a node does not match, and whether preemption could help.
pub(crate) type Mismatch = (&'static str, bool);

fn affinity_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.as_ref().and_then(|s| s.affinity.as_ref()?.pod_affinity.as_ref());
    affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
}

pub(crate) fn anti_affinity_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.as_ref().and_then(|s| s.affinity.as_ref()?.pod_anti_affinity.as_ref());
    affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_deref()).unwrap_or_default()
}

/// Whether a pod has any affinity or anti-affinity terms.
pub(crate) fn has_terms(pod: &Pod) -> bool {
    !affinity_terms(pod).is_empty() || !anti_affinity_terms(pod).is_empty()
}

fn selects(selector: Option<&LabelSelector>, labels: &std::collections::BTreeMap<String, String>) -> bool {
    // A missing selector selects nothing, an empty one everything.
    selector.is_some_and(|s| Selector::try_from(s.clone()).is_ok_and(|s| s.matches(labels)))
}

/// Whether a term of a pod in `namespace` matches another pod.
fn means(term: &PodAffinityTerm, namespace: &str, other: &Pod) -> bool {
    let theirs = other.namespace().unwrap_or_default();
    let named = term.namespaces.as_deref().unwrap_or_default();
    let own = named.is_empty() && term.namespace_selector.is_none() && theirs == namespace;
    let labels = [(NAMESPACE_NAME.to_owned(), theirs.clone())].into();
    let in_scope = own || named.contains(&theirs) || selects(term.namespace_selector.as_ref(), &labels);
    in_scope && selects(term.label_selector.as_ref(), other.labels())
}

fn domain<'a>(node: &'a Node, term: &PodAffinityTerm) -> Option<&'a String> {
    node.metadata.labels.as_ref()?.get(&term.topology_key)
}

/// Checks a node against the terms of the pod and of the pods already running.
pub(crate) fn filter(pod: &Pod, node_info: &NodeInfo, nodes: &[&NodeInfo]) -> Option<Mismatch> {
    let namespace = pod.namespace().unwrap_or_default();
    let anywhere = |term: &PodAffinityTerm| nodes.iter().any(|p| p.pods().any(|o| means(term, &namespace, o)));
    let nearby = |term: &PodAffinityTerm| {
        let here = domain(&node_info.node, term)?;
        let near = nodes.iter().filter(|p| domain(&p.node, term) == Some(here));
        Some(near.flat_map(|p| p.pods()).any(|o| means(term, &namespace, o)))
    };
    for term in affinity_terms(pod) {
        // The first pod of a group that selects itself may go to any domain.
        let first = !anywhere(term) && means(term, &namespace, pod);
        match nearby(term) {
            Some(true) => {}
            Some(false) if first => {}
            Some(false) | None => return Some(("node(s) didn't match pod affinity rules", false)),
        }
    }
    if anti_affinity_terms(pod).iter().any(|term| nearby(term) == Some(true)) {
        return Some(("node(s) didn't match pod anti-affinity rules", true));
    }
    let refused = |other: &Arc<Pod>, of: &NodeInfo| {
        let theirs = other.namespace().unwrap_or_default();
        anti_affinity_terms(other).iter().any(|term| {
            let there = domain(&of.node, term);
            there.is_some() && there == domain(&node_info.node, term) && means(term, &theirs, pod)
        })
    };
    let objected = nodes.iter().any(|p| p.pods().any(|other| refused(other, p)));
    objected.then_some(("node(s) didn't satisfy existing pods anti-affinity rules", true))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node_info(name: &str, pods: &[Arc<Pod>]) -> NodeInfo {
        let node = json!({"metadata": {"name": name, "labels": {"host": name, "zone": "z"}}});
        let mut node_info = NodeInfo::new(Arc::new(serde_json::from_value(node).unwrap()));
        pods.iter().for_each(|p| node_info.take(&p.name_any(), p));
        node_info
    }

    fn pod(name: &str, affinity: Value) -> Arc<Pod> {
        let meta = json!({"name": name, "namespace": "n", "labels": {"app": "a"}});
        Arc::new(
            serde_json::from_value(json!({"metadata": meta, "spec": {"containers": [], "affinity": affinity}}))
                .unwrap(),
        )
    }

    fn terms(key: &str) -> Value {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "a"}}});
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
    }

    #[test]
    fn pods_that_want_to_be_apart_are() {
        let apart = json!({"podAntiAffinity": terms("host")});
        let (a, b) = (node_info("a", &[pod("1", json!({}))]), node_info("b", &[]));
        let nodes = [&a, &b];
        let new = pod("2", apart.clone());
        assert_eq!(filter(&new, &a, &nodes), Some(("node(s) didn't match pod anti-affinity rules", true)));
        assert_eq!(filter(&new, &b, &nodes), None);
        let pods_with_anti_affinity = node_info("a", &[pod("1", apart)]);
        let plain = pod("2", json!({}));
        let words = "node(s) didn't satisfy existing pods anti-affinity rules";
        assert_eq!(
            filter(&plain, &pods_with_anti_affinity, &[&pods_with_anti_affinity]),
            Some((words, true)),
            "those who are there have a say too"
        );
    }

    #[test]
    fn pods_that_want_to_be_together_are() {
        let together = json!({"podAffinity": terms("host")});
        let (a, b) = (node_info("a", &[pod("1", json!({}))]), node_info("b", &[]));
        let new = pod("2", together);
        assert_eq!(filter(&new, &a, &[&a, &b]), None);
        assert_eq!(filter(&new, &b, &[&a, &b]), Some(("node(s) didn't match pod affinity rules", false)));
        assert_eq!(filter(&new, &b, &[&b]), None, "the first may start anywhere");
    }

    #[test]
    fn a_term_means_its_own_namespace_unless_it_says_otherwise() {
        let mut other = (*pod("1", json!({}))).clone();
        other.metadata.namespace = Some("elsewhere".to_owned());
        let term = |more: Value| -> PodAffinityTerm {
            let mut term = json!({"topologyKey": "host", "labelSelector": {}});
            for (key, value) in more.as_object().into_iter().flatten() {
                term[key] = value.clone();
            }
            serde_json::from_value(term).unwrap()
        };
        assert!(!means(&term(json!({})), "n", &other));
        assert!(means(&term(json!({"namespaces": ["elsewhere"]})), "n", &other));
        assert!(means(&term(json!({"namespaceSelector": {}})), "n", &other));
    }
}
