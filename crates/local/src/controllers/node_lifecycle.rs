//! Node lifecycle: marks nodes that stop reporting, taints nodes by condition, and evicts pods from them.

mod health;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::health::Eviction;
use crate::controllers::controller::Controller;
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::ignore;
use crate::informer::{Change, Key};
use crate::informers::{Informers, NODE_LEASES};
use crate::work_queue::Action;

/// How long a node may go without a heartbeat.
const GRACE: Duration = Duration::from_secs(40);
/// How long a pod may be assigned to an unknown node before it is deleted.
const LOST: Duration = Duration::from_secs(40);

/// When each node last renewed its lease, by our own clock: the node's may be wrong, and this machine may have slept.
#[derive(Default)]
struct Heartbeats {
    at: Mutex<HashMap<String, Instant>>,
}

impl Heartbeats {
    fn now(&self, node: &str) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), Instant::now());
    }

    fn silent_for(&self, node: &str) -> Duration {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.entry(node.to_owned()).or_insert_with(Instant::now).elapsed()
    }
}

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let heartbeats = Arc::new(Heartbeats::default());
    let renewed = Arc::clone(&heartbeats);
    let events = EventRecorder::new(informers.client.clone(), "node-controller");
    let controller = Arc::new(NodeLifecycle { informers: Arc::clone(informers), events, heartbeats });
    Controller::new("nodes", informers)
        .watches(&informers.leases, move |_, change| match change {
            Change::Applied { new, .. } if new.namespace().as_deref() == Some(NODE_LEASES) => {
                renewed.now(&new.name_any());
                Some(new.name_any())
            }
            _ => None,
        })
        .watches(&informers.nodes, |_, change| [change.object().name_any()])
        .watches(&informers.pods, |_, change| {
            let moved = !matches!(change, Change::Applied { old: Some(old), new } if old.spec == new.spec);
            change.object().spec.as_ref().and_then(|s| s.node_name.clone()).filter(|_| moved)
        })
        .run(tasks, 4, move |_, name| Arc::clone(&controller).look(name));
}

struct NodeLifecycle {
    informers: Arc<Informers>,
    events: EventRecorder,
    heartbeats: Arc<Heartbeats>,
}

impl NodeLifecycle {
    async fn look(self: Arc<Self>, name: String) -> anyhow::Result<Action> {
        let pods = || self.informers.pods.all().into_iter().filter(|p| health::is_on(p, &name));
        let Some(node) = self.informers.nodes.get(&Key::new("", &name)) else {
            return self.lost(&name, pods().collect()).await;
        };
        let silent = self.heartbeats.silent_for(&name);
        let now = Timestamp::now();
        if silent >= GRACE
            && let Some(conditions) = health::unknown(&node, now)
        {
            let patch = json!({"status": {"conditions": conditions}});
            let api = self.informers.cluster_api::<Node>();
            let written = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
            self.informers.nodes.wait_for_write(&written.context("write conditions")?).await;
            self.events.normal(
                &*node,
                "NodeNotReady",
                "NodeNotReady",
                format!("Node {name} status is now: NodeNotReady"),
            );
        }
        let node = self.informers.nodes.get(&Key::new("", &name)).unwrap_or(node);
        if let Some(taints) = health::taints(&node, now) {
            let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
            let api = self.informers.cluster_api::<Node>();
            let written =
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.context("write taints")?;
            self.informers.nodes.wait_for_write(&written).await;
        }
        let mut wake = GRACE.saturating_sub(silent).max(Duration::from_millis(100));
        if silent >= GRACE {
            wake = Duration::from_secs(5);
        }
        for pod in pods().filter(|p| p.metadata.deletion_timestamp.is_none()) {
            match health::eviction(&pod, &node, now) {
                Eviction::Never => {}
                Eviction::After(time) => wake = wake.min(time),
                Eviction::Now => {
                    let note = format!("Deleting pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                    self.events.normal(&*pod, "TaintManagerEviction", "Eviction", note);
                    self.delete(&pod, None).await?;
                }
            }
        }
        Ok(Action::RequeueAfter(wake))
    }

    /// Deletes the pods of a node that no longer exists: nobody else will.
    async fn lost(&self, name: &str, pods: Vec<Arc<Pod>>) -> anyhow::Result<Action> {
        if pods.is_empty() {
            return Ok(Action::AwaitChange);
        }
        let silent = self.heartbeats.silent_for(name);
        if silent < LOST {
            return Ok(Action::RequeueAfter(LOST - silent));
        }
        if self.informers.cluster_api::<Node>().get_opt(name).await?.is_some() {
            return Ok(Action::AwaitChange);
        }
        for pod in pods {
            if !crate::controllers::scheduler::is_terminal(&pod) {
                let status = json!({"status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
                    "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                    "lastTransitionTime": format!("{:.0}", Timestamp::now())}]}});
                let api = self.informers.api::<Pod>(&pod.namespace().unwrap_or_default());
                let _ = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&status)).await;
            }
            self.delete(&pod, Some(0)).await?;
        }
        Ok(Action::AwaitChange)
    }

    async fn delete(&self, pod: &Pod, grace: Option<u32>) -> anyhow::Result<()> {
        let api = self.informers.api::<Pod>(&pod.namespace().unwrap_or_default());
        let mut how =
            DeleteParams::background().preconditions(Preconditions { uid: pod.uid(), resource_version: None });
        how.grace_period_seconds = grace;
        ignore::gone_or_replaced(api.delete(&pod.name_any(), &how).await).context("delete pod")?;
        Ok(())
    }
}
