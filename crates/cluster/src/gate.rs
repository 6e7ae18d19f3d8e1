//! The scheduling gate that holds a driver back until everything it needs exists.

use json_patch::{Patch as JsonPatch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::core::v1::Pod;

/// The gate that holds a driver back until everything it needs exists.
pub const GATE: &str = "firesteel.dev/objects";

/// Schedulers with releases in use that do not support scheduling gates: Volcano before 1.10, YuniKorn before 1.7,
/// kube-batch. The name does not reveal the release.
const SCHEDULERS_WITHOUT_GATES: [&str; 3] = ["kube-batch", "volcano", "yunikorn"];

/// The order in which objects are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Gated pod, objects, then the gate is removed.
    Gated,
    /// Pod, then objects, as Spark does it.
    Spark,
}

impl Order {
    /// The order for a pod. A gate does not work if
    /// - the pod names its node: the API server rejects the gate;
    /// - its scheduler may not support gates: it would keep trying to bind the pod in vain.
    pub fn of(pod: &Pod) -> Order {
        let spec = pod.spec.as_ref();
        let placed = spec.and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| !node.is_empty());
        let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
        if placed || SCHEDULERS_WITHOUT_GATES.contains(&scheduler) { Order::Spark } else { Order::Gated }
    }
}

/// The index of our gate among the pod's gates.
pub fn position(pod: &Pod) -> Option<usize> {
    pod.spec.as_ref()?.scheduling_gates.as_ref()?.iter().position(|gate| gate.name == GATE)
}

/// The patch that removes our gate at this index, and fails if another gate is there.
pub fn lifting(at: usize) -> JsonPatch {
    let path = PointerBuf::from_tokens(["spec".to_owned(), "schedulingGates".to_owned(), at.to_string()]);
    JsonPatch(vec![
        PatchOperation::Test(TestOperation { path: path.clone(), value: serde_json::json!({ "name": GATE }) }),
        PatchOperation::Remove(RemoveOperation { path }),
    ])
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSchedulingGate, PodSpec};

    use super::*;

    fn pod(change: impl FnOnce(&mut PodSpec)) -> Pod {
        let mut spec = PodSpec::default();
        change(&mut spec);
        Pod { spec: Some(spec), ..Pod::default() }
    }

    #[test]
    fn order_is_gated_unless_a_gate_cannot_work() {
        assert_eq!(Order::of(&pod(|_| {})), Order::Gated);
        assert_eq!(Order::of(&pod(|spec| spec.scheduler_name = Some("my-scheduler".to_owned()))), Order::Gated);
        assert_eq!(Order::of(&pod(|spec| spec.scheduler_name = Some("volcano".to_owned()))), Order::Spark);
        assert_eq!(Order::of(&pod(|spec| spec.node_name = Some("n1".to_owned()))), Order::Spark);
    }

    #[test]
    fn gate_is_found_among_those_of_others() {
        let gate = |name: &str| PodSchedulingGate { name: name.to_owned() };
        let gated = pod(|spec| spec.scheduling_gates = Some(vec![gate("kueue.x-k8s.io/admission"), gate(GATE)]));
        assert_eq!(position(&gated), Some(1));
        assert_eq!(
            serde_json::to_string(&lifting(1)).expect("serialises"),
            r#"[{"op":"test","path":"/spec/schedulingGates/1","value":{"name":"firesteel.dev/objects"}},{"op":"remove","path":"/spec/schedulingGates/1"}]"#
        );
    }
}
