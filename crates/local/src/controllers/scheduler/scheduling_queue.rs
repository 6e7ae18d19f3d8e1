//! The scheduler's state and decisions, as values.
//!
//! Every assigned or assumed pod is counted on its node exactly once. A pod that fits nowhere is moved to
//! `unschedulable_pods` and retried only when something changes that could help it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::ResourceExt;

use super::filter::{self, FitError, NodeInfo};
use super::pod_requests;
use crate::informer::Key;

/// Queue order: priority, then age, then name.
type QueueKey = (Reverse<i32>, Option<jiff::Timestamp>, Key);

/// What to write to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Bind { pod: Arc<Pod>, node: String },
    Refuse { pod: Arc<Pod>, message: String },
    Gated { pod: Arc<Pod> },
}

#[derive(Debug, Default)]
pub(crate) struct SchedulingQueue {
    nodes: BTreeMap<String, NodeInfo>,
    /// The node of each counted pod, by pod uid.
    assigned: HashMap<String, String>,
    /// Counted pods whose node has not been seen yet.
    on_unknown_nodes: HashMap<String, Arc<Pod>>,
    active_queue: BTreeMap<QueueKey, Arc<Pod>>,
    unschedulable_pods: BTreeMap<QueueKey, Arc<Pod>>,
    gated: Vec<Arc<Pod>>,
    /// Claims, and whether they are bound.
    claims: HashMap<Key, bool>,
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

fn queue_key(pod: &Pod) -> QueueKey {
    let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
    (Reverse(priority), pod.creation_timestamp().map(|t| t.0), Key::of(pod))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())
}

/// Whether this scheduler is responsible for a pod.
fn ours(pod: &Pod) -> bool {
    let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or_default();
    name.is_empty() || name == "default-scheduler"
}

impl SchedulingQueue {
    pub(crate) fn pod(&mut self, pod: Arc<Pod>) {
        if pod_requests::is_terminal(&pod) {
            self.pod_gone(&pod);
            return;
        }
        if let Some(node) = node_of(&pod) {
            self.dequeue(&pod);
            self.assume(&pod, node);
            return;
        }
        // We assumed this pod; the informer has not seen the binding yet.
        if self.assigned.contains_key(&uid(&pod)) {
            return;
        }
        self.dequeue(&pod);
        if !ours(&pod) || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_deref()).unwrap_or_default();
        if gates.is_empty() {
            self.active_queue.insert(queue_key(&pod), pod);
        } else {
            self.gated.push(pod);
        }
    }

    pub(crate) fn pod_gone(&mut self, pod: &Pod) {
        self.dequeue(pod);
        let uid = uid(pod);
        self.on_unknown_nodes.remove(&uid);
        let Some(home) = self.assigned.remove(&uid) else { return };
        if self.nodes.get_mut(&home).is_some_and(|node_info| node_info.free(&uid)) {
            self.requeue_unschedulable();
        }
    }

    pub(crate) fn node(&mut self, node: Arc<Node>) {
        let name = node.name_any();
        match self.nodes.get_mut(&name) {
            Some(node_info) => {
                let same = node_info.node.spec == node.spec
                    && node_info.node.metadata.labels == node.metadata.labels
                    && allocatable(&node_info.node) == allocatable(&node);
                node_info.update(node);
                // Heartbeats cannot make a pod schedulable.
                if same {
                    return;
                }
            }
            None => {
                let mut node_info = NodeInfo::new(node);
                let assigned = &self.assigned;
                self.on_unknown_nodes.retain(|uid, pod| {
                    let here = assigned.get(uid) == Some(&name);
                    if here {
                        node_info.take(uid, pod);
                    }
                    !here
                });
                self.nodes.insert(name, node_info);
            }
        }
        self.requeue_unschedulable();
    }

    pub(crate) fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.requeue_unschedulable();
    }

    pub(crate) fn claim(&mut self, claim: &PersistentVolumeClaim) {
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        if self.claims.insert(Key::of(claim), bound) != Some(bound) {
            self.requeue_unschedulable();
        }
    }

    pub(crate) fn claim_gone(&mut self, key: &Key) {
        self.claims.remove(key);
    }

    /// The binding failed: releases the assumed pod and queues it again.
    pub(crate) fn binding_failed(&mut self, pod: Arc<Pod>) {
        self.pod_gone(&pod);
        self.pod(pod);
    }

    /// Schedules all pods in the active queue.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let mut decisions: Vec<Decision> =
            std::mem::take(&mut self.gated).into_iter().map(|pod| Decision::Gated { pod }).collect();
        for (queue_key, pod) in std::mem::take(&mut self.active_queue) {
            let choice = match self.unready_claim(&pod) {
                Some(reason) => Err(filter::refused_everywhere(self.nodes.len(), &reason)),
                None => filter::choose(&pod, self.nodes.values()),
            };
            match choice {
                Ok(node) => {
                    self.assume(&pod, &node);
                    decisions.push(Decision::Bind { pod, node });
                }
                Err(FitError(message)) => {
                    self.unschedulable_pods.insert(queue_key, Arc::clone(&pod));
                    decisions.push(Decision::Refuse { pod, message });
                }
            }
        }
        decisions
    }

    fn unready_claim(&self, pod: &Pod) -> Option<String> {
        let namespace = pod.namespace().unwrap_or_default();
        let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
        for volume in volumes {
            let (name, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => (source.claim_name.clone(), false),
                (None, Some(_)) => (format!("{}-{}", pod.name_any(), volume.name), true),
                (None, None) => continue,
            };
            match self.claims.get(&Key::new(&namespace, &name)) {
                Some(true) => {}
                Some(false) => return Some("pod has unbound immediate PersistentVolumeClaims".to_owned()),
                None if ephemeral => {
                    let claim = pod.name_any();
                    return Some(format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{claim}-{}\"",
                        volume.name
                    ));
                }
                None => return Some(format!("persistentvolumeclaim \"{name}\" not found")),
            }
        }
        None
    }

    fn assume(&mut self, pod: &Arc<Pod>, node: &str) {
        let uid = uid(pod);
        if let Some(before) = self.assigned.insert(uid.clone(), node.to_owned())
            && before != node
            && let Some(node_info) = self.nodes.get_mut(&before)
        {
            node_info.free(&uid);
        }
        match self.nodes.get_mut(node) {
            Some(node_info) => node_info.take(&uid, pod),
            None => {
                self.on_unknown_nodes.insert(uid, Arc::clone(pod));
            }
        }
    }

    fn dequeue(&mut self, pod: &Pod) {
        let key = Key::of(pod);
        let queue_key = queue_key(pod);
        self.active_queue.remove(&queue_key);
        self.unschedulable_pods.remove(&queue_key);
        self.gated.retain(|p| Key::of(&**p) != key);
    }

    fn requeue_unschedulable(&mut self) {
        self.active_queue.append(&mut self.unschedulable_pods);
    }
}

fn allocatable(node: &Node) -> Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>> {
    node.status.as_ref().and_then(|s| s.allocatable.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, cpu: &str) -> Arc<Node> {
        let amounts = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"allocatable": amounts}})).unwrap(),
        )
    }

    fn pod(name: &str, cpu: &str, more: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        });
        for (part, fields) in more.as_object().into_iter().flatten() {
            for (key, value) in fields.as_object().into_iter().flatten() {
                pod[part][key] = value.clone();
            }
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn words(decisions: &[Decision]) -> Vec<String> {
        let word = |d: &Decision| match d {
            Decision::Bind { pod, node } => format!("{} on {node}", pod.name_any()),
            Decision::Refuse { pod, .. } => format!("{} nowhere", pod.name_any()),
            Decision::Gated { pod } => format!("{} gated", pod.name_any()),
        };
        decisions.iter().map(word).collect()
    }

    #[test]
    fn a_pod_that_does_not_fit_gets_its_turn_when_another_ends() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        desk.pod(pod("one", "1", json!({})));
        desk.pod(pod("two", "1", json!({})));
        assert_eq!(words(&desk.decide()), ["one on a", "two nowhere"]);
        assert!(desk.decide().is_empty(), "nothing changed, nothing is decided");
        desk.pod(pod("one", "1", json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}})));
        assert_eq!(words(&desk.decide()), ["two on a"]);
    }

    #[test]
    fn a_pod_seen_again_before_its_binding_is_visible_is_not_bound_twice() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "4"));
        desk.pod(pod("one", "1", json!({})));
        assert_eq!(desk.decide().len(), 1);
        desk.pod(pod("one", "1", json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(desk.decide().is_empty());
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        desk.pod(pod("low", "1", json!({})));
        desk.pod(pod("zhigh", "1", json!({"spec": {"priority": 10}})));
        assert_eq!(words(&desk.decide()), ["zhigh on a", "low nowhere"]);
    }

    #[test]
    fn gates_hold_a_pod_back_until_they_are_lifted() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        desk.pod(pod("one", "1", json!({"spec": {"schedulingGates": [{"name": "g"}]}})));
        assert_eq!(words(&desk.decide()), ["one gated"]);
        desk.pod(pod("one", "1", json!({})));
        assert_eq!(words(&desk.decide()), ["one on a"]);
    }

    #[test]
    fn pods_that_were_there_before_their_node_count() {
        let mut desk = SchedulingQueue::default();
        desk.pod(pod("old", "1", json!({"spec": {"nodeName": "a"}})));
        desk.node(node("a", "1"));
        desk.pod(pod("new", "1", json!({})));
        assert_eq!(words(&desk.decide()), ["new nowhere"]);
    }

    #[test]
    fn a_refused_binding_frees_the_node_and_is_tried_again() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        desk.pod(pod("one", "1", json!({})));
        desk.decide();
        desk.binding_failed(pod("one", "1", json!({})));
        assert_eq!(words(&desk.decide()), ["one on a"]);
        desk.binding_failed(pod("one", "1", json!({"spec": {"nodeName": "elsewhere"}})));
        desk.pod(pod("two", "1", json!({})));
        assert_eq!(words(&desk.decide()), ["two on a"], "another scheduler's binding stands");
    }

    #[test]
    fn a_pod_waits_for_its_claim() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        desk.pod(pod("one", "1", json!({"spec": {"volumes": volumes}})));
        let Decision::Refuse { message, .. } = &desk.decide()[0] else { panic!("must wait") };
        assert!(message.starts_with("0/1 nodes are available: persistentvolumeclaim \"c\" not found. "), "{message}");
        let claim = |phase: &str| {
            serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}, "status": {"phase": phase}}))
                .unwrap()
        };
        desk.claim(&claim("Pending"));
        assert_eq!(words(&desk.decide()), ["one nowhere"]);
        desk.claim(&claim("Bound"));
        assert_eq!(words(&desk.decide()), ["one on a"]);
    }

    #[test]
    fn other_schedulers_pods_are_left_alone() {
        let mut desk = SchedulingQueue::default();
        desk.node(node("a", "1"));
        desk.pod(pod("one", "1", json!({"spec": {"schedulerName": "volcano"}})));
        assert!(desk.decide().is_empty());
    }
}
