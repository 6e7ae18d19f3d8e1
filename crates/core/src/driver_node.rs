//! What the state of a driver's node means for the driver.
//!
//! A pod being deleted stays until its kubelet reports that its containers are gone, which a dead node never does.
//! Force-deleting such a pod claims that nothing of it still runs, so it requires evidence: the node object is
//! gone, the node has the out-of-service taint, or a configured timeout has passed.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::pod::DriverPod;

/// Set by people and cloud controllers on nodes that are shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The node of a driver pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverNode {
    Present {
        /// Its kubelet reports.
        ready: bool,
        out_of_service: bool,
    },
    /// The node object does not exist.
    Gone,
    /// The node cannot be read, and why.
    Unreadable(String),
}

impl DriverNode {
    pub fn read(node: &Node) -> Self {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        DriverNode::Present {
            ready: conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            out_of_service: taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE),
        }
    }
}

/// A driver whose node does not report on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreachable {
    /// Of the pod.
    pub(crate) uid: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Why nothing of it runs any more, if that is established.
    pub(crate) lost: Option<String>,
    /// When it will count as lost, if that depends on time alone.
    pub(crate) lost_at: Option<Timestamp>,
}

/// What a node means for its driver. `timeout` is how long past its deletion deadline a pod counts as lost without
/// further evidence.
pub(crate) fn unreachable(
    pod: &DriverPod,
    node: &DriverNode,
    timeout: Option<SignedDuration>,
    now: Timestamp,
) -> Option<Unreachable> {
    let (name, node_name) = (&pod.name, pod.node.as_deref()?);
    let found = |reason, message, lost, lost_at| Unreachable { uid: pod.uid.clone(), reason, message, lost, lost_at };
    let Some(gone_by) = pod.gone_by else {
        let message = match node {
            DriverNode::Present { ready: false, .. } => format!(
                "node {node_name} of driver pod {name} does not report; Kubernetes deletes the pod when its toleration expires"
            ),
            DriverNode::Gone => format!("node {node_name} of driver pod {name} no longer exists"),
            DriverNode::Present { ready: true, .. } | DriverNode::Unreadable(_) => return None,
        };
        let reason = if *node == DriverNode::Gone { "NodeGone" } else { "NodeNotReady" };
        return Some(found(reason, message, None, None));
    };
    let overdue = now >= gone_by;
    let bound = timeout.map(|timeout| gone_by.checked_add(timeout).unwrap_or(Timestamp::MAX));
    let late = bound.is_some_and(|bound| now >= bound);
    let by_time = |what: &str| {
        let bound = timeout.filter(|_| late)?;
        Some(format!("{what} for {} s after the pod's deletion deadline", bound.as_secs()))
    };
    let hope = match bound {
        Some(bound) => format!(", or at {bound}"),
        None => String::new(),
    };
    Some(match node {
        DriverNode::Gone => {
            let why = format!("node {node_name} of driver pod {name} no longer exists");
            let message = format!("{why}; the pod is force-deleted at {gone_by}");
            found("NodeGone", message, overdue.then_some(why), Some(gone_by))
        }
        DriverNode::Present { ready, out_of_service: true } => {
            let why = format!("node {node_name} of driver pod {name} is out of service");
            let message = format!("{why}; the pod is force-deleted");
            found("NodeOutOfService", message, (overdue || !ready).then_some(why), Some(gone_by))
        }
        DriverNode::Present { ready: false, .. } => {
            let message = format!(
                "driver pod {name} is being deleted, but its node {node_name} does not report, so it may still run there; it counts as lost once the node object is deleted or the node has the taint {OUT_OF_SERVICE}{hope}"
            );
            let lost = by_time(&format!("node {node_name} of driver pod {name} did not report"));
            found("NodeNotReady", message, lost, bound)
        }
        DriverNode::Unreadable(_) | DriverNode::Present { .. } if !overdue => return None,
        DriverNode::Unreadable(why) => {
            let message = format!(
                "driver pod {name} should have been gone by {gone_by}, and its node {node_name} cannot be read ({why}); allow the operator to get nodes cluster-wide, or force-delete the pod once its node is known to be dead{hope}"
            );
            let lost = by_time(&format!("the state of node {node_name} of driver pod {name} was unknown"));
            found("NodeUnreadable", message, lost, bound)
        }
        DriverNode::Present { .. } => {
            let message = format!(
                "driver pod {name} should have been gone by {gone_by} although its node {node_name} reports: a finalizer or a volume may block its deletion"
            );
            found("Terminating", message, None, None)
        }
    })
}
