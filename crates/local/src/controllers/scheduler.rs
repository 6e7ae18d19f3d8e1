//! The scheduler: gives every pod that waits for one a node, or says why there is none.
//!
//! One task holds all of the state ([`desk::Desk`]) and decides one pod at a time; writes go out beside it. There is no
//! preemption: priority only decides who is looked at first.

mod affinity;
mod desk;
mod fit;
mod needs;
mod neighbours;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

pub(crate) use affinity::{taints, tolerates};
pub(crate) use needs::ended;

use self::desk::{Decision, Desk};
use crate::controllers::affairs::Speaker;
use crate::watched::{Change, Key};
use crate::world::World;

/// How many bindings and refusals are written at the same time.
const WRITES_AT_ONCE: usize = 32;

/// The pause after a refused binding.
const BIND_AGAIN: Duration = Duration::from_millis(200);

/// What the scheduler's task is told.
#[derive(Debug)]
enum News {
    Pod(Arc<Pod>),
    PodGone(Arc<Pod>),
    Node(Arc<Node>),
    NodeGone(Arc<Node>),
    /// A claim was bound, made or changed: pods that wait for it may go on.
    Claim(Arc<PersistentVolumeClaim>),
    ClaimGone(Arc<PersistentVolumeClaim>),
    /// A binding was refused; the pod goes back to those that wait.
    NotBound(Arc<Pod>),
}

pub(crate) fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let (tell, news) = mpsc::unbounded_channel();
    let to = tell.clone();
    world.pods.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => News::Pod(Arc::clone(new)),
            Change::Deleted(pod) => News::PodGone(Arc::clone(pod)),
        });
    });
    let to = tell.clone();
    world.nodes.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => News::Node(Arc::clone(new)),
            Change::Deleted(node) => News::NodeGone(Arc::clone(node)),
        });
    });
    let to = tell.clone();
    world.claims.on_change(move |change| {
        let _ = to.send(match change {
            Change::Applied { new, .. } => News::Claim(Arc::clone(new)),
            Change::Deleted(claim) => News::ClaimGone(Arc::clone(claim)),
        });
    });
    let world = Arc::clone(world);
    tasks.spawn(async move {
        world.pods.ready().await;
        world.nodes.ready().await;
        world.claims.ready().await;
        run(world, tell, news).await;
    });
}

async fn run(world: Arc<World>, tell: mpsc::UnboundedSender<News>, mut news: mpsc::UnboundedReceiver<News>) {
    let mut desk = Desk::default();
    let shell = Arc::new(Shell {
        speaker: Speaker::new(world.client.clone(), "default-scheduler"),
        writes: Semaphore::new(WRITES_AT_ONCE),
        world,
        tell,
    });
    while let Some(first) = news.recv().await {
        let mut next = Some(first);
        while let Some(item) = next {
            hear(&mut desk, item);
            next = news.try_recv().ok();
        }
        for decision in desk.decide() {
            let shell = Arc::clone(&shell);
            tokio::spawn(async move { shell.perform(decision).await });
        }
    }
}

fn hear(desk: &mut Desk, news: News) {
    match news {
        News::Pod(pod) => desk.pod(pod),
        News::PodGone(pod) => desk.pod_gone(&pod),
        News::Node(node) => desk.node(node),
        News::NodeGone(node) => desk.node_gone(&node.name_any()),
        News::Claim(claim) => desk.claim(&claim),
        News::ClaimGone(claim) => desk.claim_gone(&Key::of(&*claim)),
        News::NotBound(pod) => desk.not_bound(pod),
    }
}

struct Shell {
    world: Arc<World>,
    speaker: Speaker,
    writes: Semaphore,
    tell: mpsc::UnboundedSender<News>,
}

impl Shell {
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
        let api: Api<Pod> = self.world.api(&namespace);
        let written = api.create_subresource::<_, Status>("binding", &name, &PostParams::default(), &binding).await;
        match written {
            Ok(_) => {
                let note = format!("Successfully assigned {namespace}/{name} to {node}");
                self.speaker.normal(&*pod, "Scheduled", "Binding", note);
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let _ = self.tell.send(News::PodGone(pod));
            }
            Err(error) => {
                tracing::debug!(%namespace, %name, node, "not bound: {error}");
                tokio::time::sleep(BIND_AGAIN).await;
                // What is true by now decides: the pod may be gone, or another scheduler's.
                let now = self.world.pods.get(&Key::of(&*pod)).filter(|p| p.uid() == pod.uid());
                let _ = self.tell.send(now.map_or(News::PodGone(pod), News::NotBound));
            }
        }
    }

    /// Writes why a pod has no node, unless that is what stands there.
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
        let api: Api<Pod> = self.world.api(&pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if let Err(error) = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await {
            tracing::debug!(name, "condition not written: {error}");
        }
        if reason == "Unschedulable" {
            self.speaker.warning(pod, "FailedScheduling", "Scheduling", message.to_owned());
        }
    }
}
