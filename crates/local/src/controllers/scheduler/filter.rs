//! Picks a node for a pod. Pure; the failure messages are kube-scheduler's.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};

use super::{inter_pod_affinity, node_affinity, pod_requests};
use crate::resource_list::{self, ResourceList};

/// A node and the resources its pods take.
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    pub(crate) node: Arc<Node>,
    allocatable: ResourceList,
    taken: ResourceList,
    pods: BTreeMap<String, PodInfo>,
    /// How many of its pods have required anti-affinity terms.
    pods_with_anti_affinity: usize,
}

#[derive(Debug, Clone)]
struct PodInfo {
    requests: ResourceList,
    ports: Vec<(String, String, i32)>,
    pod: Arc<Pod>,
}

impl NodeInfo {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let mut node_info = NodeInfo {
            node: Arc::clone(&node),
            allocatable: ResourceList::new(),
            taken: ResourceList::new(),
            pods: BTreeMap::new(),
            pods_with_anti_affinity: 0,
        };
        node_info.update(node);
        node_info
    }

    /// Replaces the Node object.
    pub(crate) fn update(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        self.allocatable = resource_list::amounts(status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref())));
        self.node = node;
    }

    /// Counts a pod on this node. Idempotent.
    pub(crate) fn take(&mut self, uid: &str, pod: &Arc<Pod>) {
        let Some(spec) = &pod.spec else { return };
        if self.pods.contains_key(uid) {
            return;
        }
        let taken = PodInfo {
            requests: pod_requests::requests(spec),
            ports: pod_requests::host_ports(spec),
            pod: Arc::clone(pod),
        };
        self.pods_with_anti_affinity += usize::from(!inter_pod_affinity::anti_affinity_terms(pod).is_empty());
        resource_list::add(&mut self.taken, &taken.requests);
        self.pods.insert(uid.to_owned(), taken);
    }

    /// Releases a pod's resources; false if the pod was not counted here.
    pub(crate) fn free(&mut self, uid: &str) -> bool {
        let Some(taken) = self.pods.remove(uid) else { return false };
        resource_list::subtract(&mut self.taken, &taken.requests);
        self.pods_with_anti_affinity -= usize::from(!inter_pod_affinity::anti_affinity_terms(&taken.pod).is_empty());
        true
    }

    /// The pods on this node.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().map(|t| &t.pod)
    }
}

/// Why a node was filtered out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FilterFailure {
    reasons: Vec<String>,
    /// Whether preempting other pods could help.
    preemption_could_help: bool,
}

/// Why no node fits, in kube-scheduler's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FitError(pub(crate) String);

/// Picks the most preferred node that fits, then the one with the most free resources.
pub(crate) fn choose<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a NodeInfo>) -> Result<String, FitError> {
    let Some(spec) = &pod.spec else { return Err(FitError("pod has no specification".to_owned())) };
    let requests = pod_requests::requests(spec);
    let ports = pod_requests::host_ports(spec);
    let nodes: Vec<&NodeInfo> = nodes.collect();
    // Inter-pod affinity looks at every pod, and few pods use it.
    let inter_pod = inter_pod_affinity::has_terms(pod) || nodes.iter().any(|p| p.pods_with_anti_affinity > 0);
    let mut refusals = Vec::new();
    let mut best: Option<(i64, i64, &str)> = None;
    for node_info in &nodes {
        let objection = || {
            let (reason, preemption_could_help) = inter_pod_affinity::filter(pod, node_info, &nodes)?;
            Some(FilterFailure { reasons: vec![reason.to_owned()], preemption_could_help })
        };
        let refusal = refuse(pod, &requests, &ports, node_info);
        match refusal.or_else(|| if inter_pod { objection() } else { None }) {
            Some(refusal) => refusals.push(refusal),
            None => {
                let name = node_info.node.metadata.name.as_deref().unwrap_or_default();
                let score = (node_affinity::preference(spec, &node_info.node), room(node_info, &requests));
                if best.is_none_or(|(p, r, _)| score > (p, r)) {
                    best = Some((score.0, score.1, name));
                }
            }
        }
    }
    match best {
        Some((_, _, name)) => Ok(name.to_owned()),
        None => Err(explain(&refusals)),
    }
}

/// Rejects a pod on all nodes, for a reason found before filtering.
pub(crate) fn refused_everywhere(nodes: usize, reason: &str) -> FitError {
    FitError(format!(
        "0/{nodes} nodes are available: {reason}. no new claims to deallocate, preemption: 0/{nodes} nodes are available: \
         {nodes} Preemption is not helpful for scheduling."
    ))
}

/// The smaller free share of cpu and memory, in percent.
fn room(node_info: &NodeInfo, requests: &ResourceList) -> i64 {
    let share = |name: &str| {
        let all = node_info.allocatable.get(name).copied().unwrap_or(0);
        let taken = node_info.taken.get(name).copied().unwrap_or(0) + requests.get(name).copied().unwrap_or(0);
        if all <= 0 { 0 } else { i64::try_from((all - taken) * 100 / all).unwrap_or(0) }
    };
    share("cpu").min(share("memory"))
}

fn refuse(
    pod: &Pod,
    requests: &ResourceList,
    ports: &[(String, String, i32)],
    node_info: &NodeInfo,
) -> Option<FilterFailure> {
    let spec = pod.spec.as_ref()?;
    let final_word =
        |reason: &str| Some(FilterFailure { reasons: vec![reason.to_owned()], preemption_could_help: false });
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let cordoned = node_info.node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
    if cordoned && !node_affinity::tolerated(tolerations, &cordon) {
        return final_word("node(s) were unschedulable");
    }
    let hard = |t: &&Taint| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute");
    if node_affinity::taints(&node_info.node).iter().filter(hard).any(|t| !node_affinity::tolerated(tolerations, t)) {
        return final_word("node(s) had untolerated taint(s)");
    }
    if !node_affinity::allows(spec, &node_info.node) {
        return final_word("node(s) didn't match Pod's node affinity/selector");
    }
    let open =
        |port| node_info.pods.values().flat_map(|t| &t.ports).any(|other| pod_requests::ports_clash(port, other));
    if ports.iter().any(open) {
        let reasons = vec!["node(s) didn't have free ports for the requested pod ports".to_owned()];
        return Some(FilterFailure { reasons, preemption_could_help: true });
    }
    lacking(requests, node_info)
}

fn lacking(requests: &ResourceList, node_info: &NodeInfo) -> Option<FilterFailure> {
    let mut reasons = Vec::new();
    let mut preemption_could_help = true;
    let pods = node_info.allocatable.get("pods").copied().unwrap_or(0);
    if (node_info.pods.len() as i128 + 1) * 1000 > pods {
        reasons.push("Too many pods".to_owned());
    }
    for (name, amount) in requests {
        let all = node_info.allocatable.get(name).copied().unwrap_or(0);
        let taken = node_info.taken.get(name).copied().unwrap_or(0);
        if *amount > all - taken {
            reasons.push(format!("Insufficient {name}"));
            preemption_could_help &= *amount <= all;
        }
    }
    (!reasons.is_empty()).then_some(FilterFailure { reasons, preemption_could_help })
}

/// kube-scheduler's message: reasons with node counts, then whether preemption could help.
fn explain(refusals: &[FilterFailure]) -> FitError {
    let count = refusals.len();
    if count == 0 {
        return FitError("no nodes available to schedule pods".to_owned());
    }
    let list = |reasons: &mut dyn Iterator<Item = &str>| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in reasons {
            *counts.entry(reason).or_default() += 1;
        }
        let mut words: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        words.sort();
        words.join(", ")
    };
    let why = list(&mut refusals.iter().flat_map(|r| r.reasons.iter().map(String::as_str)));
    let preemption = list(&mut refusals.iter().map(|r| match r.preemption_could_help {
        true => "No preemption victims found for incoming pod",
        false => "Preemption is not helpful for scheduling",
    }));
    FitError(format!(
        "0/{count} nodes are available: {why}. no new claims to deallocate, preemption: 0/{count} nodes are available: \
         {preemption}."
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node_info(name: &str, cpu: &str, memory: &str) -> NodeInfo {
        let amounts = json!({"cpu": cpu, "memory": memory, "pods": "110"});
        let node = json!({"metadata": {"name": name, "labels": {"name": name}}, "status": {"allocatable": amounts}});
        NodeInfo::new(Arc::new(serde_json::from_value(node).unwrap()))
    }

    fn pod(requests: serde_json::Value) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": requests}});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn the_emptiest_node_is_chosen() {
        let mut a = node_info("a", "4", "8Gi");
        let b = node_info("b", "4", "8Gi");
        a.take("1", &pod(json!({"cpu": "1"})));
        assert_eq!(choose(&pod(json!({"cpu": "1"})), [&a, &b].into_iter()), Ok("b".to_owned()));
    }

    #[test]
    fn a_preferred_node_wins_over_an_emptier_one() {
        let mut a = node_info("a", "4", "8Gi");
        let b = node_info("b", "4", "8Gi");
        a.take("1", &pod(json!({"cpu": "1"})));
        let mut wanted = (*pod(json!({"cpu": "1"}))).clone();
        let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": ["a"]}]}}]);
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        wanted.spec.as_mut().unwrap().affinity = serde_json::from_value(affinity).unwrap();
        assert_eq!(choose(&wanted, [&a, &b].into_iter()), Ok("a".to_owned()));
    }

    #[test]
    fn what_is_freed_can_be_taken_again() {
        let mut a = node_info("a", "1", "1Gi");
        let one = pod(json!({"cpu": "1"}));
        a.take("1", &one);
        a.take("1", &one);
        assert!(choose(&one, [&a].into_iter()).is_err());
        assert!(a.free("1"));
        assert!(!a.free("1"));
        assert!(choose(&one, [&a].into_iter()).is_ok());
    }

    #[test]
    fn refusals_use_the_words_of_kube_scheduler() {
        let mut full = node_info("a", "2", "4Gi");
        full.take("1", &pod(json!({"cpu": "2"})));
        let small = node_info("b", "1", "1Gi");
        let Err(FitError(words)) = choose(&pod(json!({"cpu": "2", "memory": "2Gi"})), [&full, &small].into_iter())
        else {
            panic!("must not fit")
        };
        assert_eq!(
            words,
            "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu. no new claims to deallocate, \
             preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not \
             helpful for scheduling."
        );
    }

    #[test]
    fn cordoned_and_tainted_nodes_are_named_as_such() {
        let mut cordoned = node_info("a", "2", "4Gi");
        let mut node = (*cordoned.node).clone();
        node.spec = serde_json::from_value(json!({"unschedulable": true})).unwrap();
        cordoned.update(Arc::new(node.clone()));
        let p = pod(json!({}));
        let Err(FitError(words)) = choose(&p, [&cordoned].into_iter()) else { panic!("cordoned") };
        assert!(words.starts_with("0/1 nodes are available: 1 node(s) were unschedulable. "), "{words}");
        node.spec = serde_json::from_value(json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})).unwrap();
        cordoned.update(Arc::new(node));
        let Err(FitError(words)) = choose(&p, [&cordoned].into_iter()) else { panic!("tainted") };
        assert!(words.starts_with("0/1 nodes are available: 1 node(s) had untolerated taint(s). "), "{words}");
    }

    #[test]
    fn without_nodes_the_sentence_says_so() {
        assert_eq!(
            choose(&pod(json!({})), std::iter::empty()),
            Err(FitError("no nodes available to schedule pods".to_owned()))
        );
    }
}
