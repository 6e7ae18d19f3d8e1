//! Node lifecycle: nodes that are silent, taints that follow from their state, pods that have to leave them.

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

use self::health::Stay;
use crate::controllers::affairs::Speaker;
use crate::controllers::controller::Controller;
use crate::controllers::ignore;
use crate::queue::Next;
use crate::watched::{Change, Key};
use crate::world::{NODE_LEASES, World};

/// How long a node may be silent.
const GRACE: Duration = Duration::from_secs(40);
/// How long a pod may be on a node that is not known before it counts as lost.
const LOST: Duration = Duration::from_secs(40);

/// When something was last heard of each node, by our own clock: theirs may be wrong, and we may have slept.
#[derive(Default)]
struct Heard {
    at: Mutex<HashMap<String, Instant>>,
}

impl Heard {
    fn now(&self, node: &str) {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), Instant::now());
    }

    fn silent_for(&self, node: &str) -> Duration {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.entry(node.to_owned()).or_insert_with(Instant::now).elapsed()
    }
}

pub(crate) fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let heard = Arc::new(Heard::default());
    let ear = Arc::clone(&heard);
    let speaker = Speaker::new(world.client.clone(), "node-controller");
    let keeper = Arc::new(Keeper { world: Arc::clone(world), speaker, heard });
    Controller::new("nodes", world)
        .watches(&world.leases, move |_, change| match change {
            Change::Applied { new, .. } if new.namespace().as_deref() == Some(NODE_LEASES) => {
                ear.now(&new.name_any());
                Some(new.name_any())
            }
            _ => None,
        })
        .watches(&world.nodes, |_, change| [change.object().name_any()])
        .watches(&world.pods, |_, change| {
            let moved = !matches!(change, Change::Applied { old: Some(old), new } if old.spec == new.spec);
            change.object().spec.as_ref().and_then(|s| s.node_name.clone()).filter(|_| moved)
        })
        .run(tasks, 4, move |_, name| Arc::clone(&keeper).look(name));
}

struct Keeper {
    world: Arc<World>,
    speaker: Speaker,
    heard: Arc<Heard>,
}

impl Keeper {
    async fn look(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let pods = || self.world.pods.all().into_iter().filter(|p| health::is_on(p, &name));
        let Some(node) = self.world.nodes.get(&Key::new("", &name)) else {
            return self.lost(&name, pods().collect()).await;
        };
        let silent = self.heard.silent_for(&name);
        let now = Timestamp::now();
        if silent >= GRACE
            && let Some(conditions) = health::unknown(&node, now)
        {
            let patch = json!({"status": {"conditions": conditions}});
            let api = self.world.cluster_api::<Node>();
            let written = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
            self.world.nodes.caught_up(&written.context("write conditions")?).await;
            self.speaker.normal(
                &*node,
                "NodeNotReady",
                "NodeNotReady",
                format!("Node {name} status is now: NodeNotReady"),
            );
        }
        let node = self.world.nodes.get(&Key::new("", &name)).unwrap_or(node);
        if let Some(taints) = health::taints(&node, now) {
            let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
            let api = self.world.cluster_api::<Node>();
            let written =
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.context("write taints")?;
            self.world.nodes.caught_up(&written).await;
        }
        let mut wake = GRACE.saturating_sub(silent).max(Duration::from_millis(100));
        if silent >= GRACE {
            wake = Duration::from_secs(5);
        }
        for pod in pods().filter(|p| p.metadata.deletion_timestamp.is_none()) {
            match health::stay(&pod, &node, now) {
                Stay::AsLongAsItLikes => {}
                Stay::For(time) => wake = wake.min(time),
                Stay::NoLonger => {
                    let note = format!("Deleting pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                    self.speaker.normal(&*pod, "TaintManagerEviction", "Eviction", note);
                    self.delete(&pod, None).await?;
                }
            }
        }
        Ok(Next::After(wake))
    }

    /// Pods on a node that is gone will never end by themselves.
    async fn lost(&self, name: &str, pods: Vec<Arc<Pod>>) -> anyhow::Result<Next> {
        if pods.is_empty() {
            return Ok(Next::Wait);
        }
        let silent = self.heard.silent_for(name);
        if silent < LOST {
            return Ok(Next::After(LOST - silent));
        }
        if self.world.cluster_api::<Node>().get_opt(name).await?.is_some() {
            return Ok(Next::Wait);
        }
        for pod in pods {
            if !crate::controllers::scheduler::ended(&pod) {
                let status = json!({"status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
                    "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
                    "lastTransitionTime": format!("{:.0}", Timestamp::now())}]}});
                let api = self.world.api::<Pod>(&pod.namespace().unwrap_or_default());
                let _ = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&status)).await;
            }
            self.delete(&pod, Some(0)).await?;
        }
        Ok(Next::Wait)
    }

    async fn delete(&self, pod: &Pod, grace: Option<u32>) -> anyhow::Result<()> {
        let api = self.world.api::<Pod>(&pod.namespace().unwrap_or_default());
        let mut how =
            DeleteParams::background().preconditions(Preconditions { uid: pod.uid(), resource_version: None });
        how.grace_period_seconds = grace;
        ignore::gone_or_replaced(api.delete(&pod.name_any(), &how).await).context("delete pod")?;
        Ok(())
    }
}
