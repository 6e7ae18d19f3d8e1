//! The scheduler: assigns pending pods to nodes, or reports why it cannot.
//!
//! One task owns the state ([`scheduling_queue::SchedulingQueue`]) and schedules one pod at a time; API writes run concurrently.
//! There is no preemption: priority only determines the order.

mod filter;
mod inter_pod_affinity;
mod node_affinity;
mod pod_requests;
mod scheduling_queue;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

pub(crate) use node_affinity::{taints, tolerates};
pub(crate) use pod_requests::is_terminal;

use self::scheduling_queue::{Decision, SchedulingQueue};
use crate::controllers::event_recorder::EventRecorder;
use crate::informer::{Change, Key};
use crate::informers::Informers;

/// How many bindings and status updates are written concurrently.
const WRITES_AT_ONCE: usize = 32;

/// The delay before retrying a failed binding.
const BIND_AGAIN: Duration = Duration::from_millis(200);

/// What the scheduler reacts to.
#[derive(Debug)]
enum ClusterEvent {
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
    Node(Arc<Node>),
    NodeGone(Arc<Node>),
    /// A claim was created, changed or bound: pods waiting for it may become schedulable.
    Claim(Arc<PersistentVolumeClaim>),
    ClaimGone(Arc<PersistentVolumeClaim>),
    /// A binding failed; the pod goes back to the queue.
    BindingFailed(Arc<Pod>),
}

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let (sender, cluster_events) = mpsc::unbounded_channel();
    let to = sender.clone();
    informers.pods.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => ClusterEvent::Pod(Arc::clone(new)),
            Change::Deleted(pod) => ClusterEvent::PodGone(Arc::clone(pod)),
        });
    });
    let to = sender.clone();
    informers.nodes.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => ClusterEvent::Node(Arc::clone(new)),
            Change::Deleted(node) => ClusterEvent::NodeGone(Arc::clone(node)),
        });
    });
    let to = sender.clone();
    informers.claims.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => ClusterEvent::Claim(Arc::clone(new)),
            Change::Deleted(claim) => ClusterEvent::ClaimGone(Arc::clone(claim)),
        });
    });
    let informers = Arc::clone(informers);
    tasks.spawn(async move {
        informers.pods.ready().await;
        informers.nodes.ready().await;
        informers.claims.ready().await;
        run(informers, sender, cluster_events).await;
    });
}

async fn run(
    informers: Arc<Informers>,
    sender: mpsc::UnboundedSender<ClusterEvent>,
    mut cluster_events: mpsc::UnboundedReceiver<ClusterEvent>,
) {
    let mut queue = SchedulingQueue::default();
    let binder = Arc::new(Binder {
        events: EventRecorder::new(informers.client.clone(), "default-scheduler"),
        writes: Semaphore::new(WRITES_AT_ONCE),
        informers,
        sender,
    });
    while let Some(first) = cluster_events.recv().await {
        let mut next = Some(first);
        while let Some(item) = next {
            handle(&mut queue, item);
            next = cluster_events.try_recv().ok();
        }
        for decision in queue.decide() {
            let binder = Arc::clone(&binder);
            tokio::spawn(async move { binder.perform(decision).await });
        }
    }
}

fn handle(queue: &mut SchedulingQueue, cluster_events: ClusterEvent) {
    match cluster_events {
        ClusterEvent::Pod(pod) => queue.pod(pod),
        ClusterEvent::PodGone(pod) => queue.pod_gone(&pod),
        ClusterEvent::Node(node) => queue.node(node),
        ClusterEvent::NodeGone(node) => queue.node_gone(&node.name_any()),
        ClusterEvent::Claim(claim) => queue.claim(&claim),
        ClusterEvent::ClaimGone(claim) => queue.claim_gone(&Key::of(&*claim)),
        ClusterEvent::BindingFailed(pod) => queue.binding_failed(pod),
    }
}

struct Binder {
    informers: Arc<Informers>,
    events: EventRecorder,
    writes: Semaphore,
    sender: mpsc::UnboundedSender<ClusterEvent>,
}

impl Binder {
    async fn perform(&self, decision: Decision) {
        let Ok(_place) = self.writes.acquire().await else { return };
        match decision {
            Decision::Bind { pod, node } => self.bind(pod, &node).await,
            Decision::Refuse { pod, message } => self.refuse(&pod, "Unschedulable", &message).await,
            Decision::Gated { pod } => {
                self.refuse(&pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates").await;
            }
        }
    }

    async fn bind(&self, pod: Arc<Pod>, node: &str) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let meta = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: pod.uid(),
            ..ObjectMeta::default()
        };
        let target = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        let binding = Binding { metadata: meta, target };
        let api: Api<Pod> = self.informers.api(&namespace);
        let written = api.create_subresource::<_, Status>("binding", &name, &PostParams::default(), &binding).await;
        match written {
            Ok(_) => {
                let note = format!("Successfully assigned {namespace}/{name} to {node}");
                self.events.normal(&*pod, "Scheduled", "Binding", note);
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let _ = self.sender.send(ClusterEvent::PodGone(pod));
            }
            Err(error) => {
                tracing::debug!(%namespace, %name, node, "not bound: {error}");
                tokio::time::sleep(BIND_AGAIN).await;
                // Use the latest state: the pod may be gone, or assigned by another scheduler.
                let now = self.informers.pods.get(&Key::of(&*pod)).filter(|p| p.uid() == pod.uid());
                let _ = self.sender.send(now.map_or(ClusterEvent::PodGone(pod), ClusterEvent::BindingFailed));
            }
        }
    }

    /// Writes the `PodScheduled` condition, unless it is already set.
    async fn refuse(&self, pod: &Pod, reason: &str, message: &str) {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let stands = conditions.iter().any(|c| {
            c.type_ == "PodScheduled"
                && c.status == "False"
                && c.reason.as_deref() == Some(reason)
                && c.message.as_deref() == Some(message)
        });
        if stands {
            return;
        }
        let before = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
        let since = before.and_then(|c| c.last_transition_time.clone()).map_or_else(jiff::Timestamp::now, |t| t.0);
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": format!("{since:.0}"),
        });
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = self.informers.api(&pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if let Err(error) = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
            tracing::debug!(name, "condition not written: {error}");
        }
        if reason == "Unschedulable" {
            self.events.warning(pod, "FailedScheduling", "Scheduling", message.to_owned());
        }
    }
}
