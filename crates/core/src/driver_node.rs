//! What the life cycle sees of the node under a driver, and what follows for a driver that its node does not end.
//!
//! A pod that is being deleted stays until its node says that its containers are gone. A dead node never does. Whoever
//! deletes such a pod by force states that nothing of it runs any more, so that is done only where someone else has said
//! so: the node object is gone, it has the taint for nodes that are out of service, or a bound that was set has passed.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::pod::DriverPod;

/// Set by people and by cloud controllers on nodes that are shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The node of a driver pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverNode {
    Present {
        /// Its kubelet reports.
        ready: bool,
        out_of_service: bool,
    },
    /// There is no such object.
    Gone,
    /// It cannot be read, and why.
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

/// A driver of which its node says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreachable {
    /// Of the pod.
    pub(crate) uid: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Why nothing of it runs any more, if that is settled.
    pub(crate) lost: Option<String>,
    /// When that will be settled, if time decides.
    pub(crate) lost_at: Option<Timestamp>,
}

/// Reads what a node means for its driver. `timeout` is how long after its time a deleted pod counts as lost although
/// nobody has said so.
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
                "node {node_name} of driver pod {name} does not report; Kubernetes deletes the pod when its tolerations of that end"
            ),
            DriverNode::Gone => format!("node {node_name} of driver pod {name} does not exist any more"),
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
        Some(format!("{what} for {} s after the pod should have been gone", bound.as_secs()))
    };
    let hope = match bound {
        Some(bound) => format!(", or at {bound}"),
        None => String::new(),
    };
    Some(match node {
        DriverNode::Gone => {
            let why = format!("node {node_name} of driver pod {name} does not exist any more");
            let message = format!("{why}; the pod is deleted by force at {gone_by}");
            found("NodeGone", message, overdue.then_some(why), Some(gone_by))
        }
        DriverNode::Present { ready, out_of_service: true } => {
            let why = format!("node {node_name} of driver pod {name} is out of service");
            let message = format!("{why}; the pod is deleted by force");
            found("NodeOutOfService", message, (overdue || !ready).then_some(why), Some(gone_by))
        }
        DriverNode::Present { ready: false, .. } => {
            let message = format!(
                "driver pod {name} is being deleted, but its node {node_name} does not report, so it may still run there; it counts as lost when the node object is deleted, when the node has the taint {OUT_OF_SERVICE}{hope}"
            );
            let lost = by_time(&format!("node {node_name} of driver pod {name} did not report"));
            found("NodeNotReady", message, lost, bound)
        }
        DriverNode::Unreadable(_) | DriverNode::Present { .. } if !overdue => return None,
        DriverNode::Unreadable(why) => {
            let message = format!(
                "driver pod {name} should have been gone at {gone_by}, and its node {node_name} cannot be read ({why}); allow the operator to get nodes in the whole cluster, or delete the pod by force once its node is known to be dead{hope}"
            );
            let lost = by_time(&format!("nothing was known of node {node_name} of driver pod {name}"));
            found("NodeUnreadable", message, lost, bound)
        }
        DriverNode::Present { .. } => {
            let message = format!(
                "driver pod {name} should have been gone at {gone_by}, although its node {node_name} reports: a finalizer or a volume may hold it"
            );
            found("Terminating", message, None, None)
        }
    })
}
