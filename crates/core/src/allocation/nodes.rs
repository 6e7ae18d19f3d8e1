//! Nodes on which executors fail, and for how long new executors avoid them.

use firesteel_api::executors::AvoidedNode;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::ending::{Ending, EndingKind};

/// How many failures on one node make others avoid it.
const ENOUGH: u32 = 2;
/// For how long. Failures older than this are forgotten.
const PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// The most nodes that are remembered.
const MOST: usize = 50;

/// Records failures. Returns the nodes that are avoided from now on.
pub(super) fn record<'a>(
    list: &mut Vec<AvoidedNode>,
    failures: impl Iterator<Item = (&'a str, &'a Ending)>,
    now: Timestamp,
) -> Vec<String> {
    list.retain(|n| n.until.as_ref().map_or(n.last.0 + PERIOD, |t| t.0) > now);
    let mut fresh = Vec::new();
    for (node, ending) in failures {
        // An executor that could not start there will not start there; a program that fails may fail anywhere.
        let weight = if ending.kind == EndingKind::NeverStarted { ENOUGH } else { 1 };
        let index = list.iter().position(|n| n.node == node).unwrap_or_else(|| {
            let why = String::new();
            list.push(AvoidedNode { node: node.to_owned(), failures: 0, last: Time(now), until: None, why });
            list.len() - 1
        });
        let entry = &mut list[index];
        entry.failures = entry.failures.saturating_add(weight);
        entry.last = Time(now);
        entry.why.clone_from(&ending.text);
        if entry.failures >= ENOUGH {
            if entry.until.is_none() {
                fresh.push(node.to_owned());
            }
            entry.until = Some(Time(now + PERIOD));
        }
    }
    let surplus = list.len().saturating_sub(MOST);
    list.drain(..surplus);
    fresh
}

/// Nodes to avoid now.
pub fn avoided(list: &[AvoidedNode], now: Timestamp) -> Vec<String> {
    list.iter().filter(|n| n.until.as_ref().is_some_and(|t| t.0 > now)).map(|n| n.node.clone()).collect()
}

/// Keeps a pod off nodes, whatever other node affinity it has.
pub fn keep_away(pod: &mut Pod, nodes: &[String]) {
    if nodes.is_empty() {
        return;
    }
    let affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    let node_affinity = affinity.node_affinity.get_or_insert_default();
    let terms = &mut node_affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    // A node matches if any term does, so each term must exclude it; matchFields takes one value per requirement.
    for term in terms {
        term.match_fields.get_or_insert_default().extend(nodes.iter().map(|node| NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![node.clone()]),
        }));
    }
}
