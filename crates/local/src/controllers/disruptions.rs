//! Pod disruption budgets: how many of the pods they cover may be evicted now. The eviction itself is the API server's.

mod allowance;

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::queue::{Next, Queue};
use crate::watched::{Change, Key};
use crate::world::World;

const WORKERS: usize = 2;

pub(crate) fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let queue: Arc<Queue<Key>> = Queue::new();
    let to = Arc::clone(&queue);
    world.budgets.on_change(move |change| to.add(Key::of(&**change.object())));
    let (to, of) = (Arc::clone(&queue), Arc::downgrade(world));
    world.pods.on_change(move |change| {
        let Some(world) = of.upgrade() else { return };
        let states: Vec<&Pod> = match change {
            Change::Applied { old, new } => old.as_deref().into_iter().chain([&**new]).collect(),
            Change::Deleted(pod) => vec![pod],
        };
        let namespace = change.object().namespace().unwrap_or_default();
        for budget in world.budgets.in_namespace(&namespace) {
            if states.iter().any(|pod| allowance::covers(&budget, pod)) {
                to.add(Key::of(&*budget));
            }
        }
    });
    // What a share is a share of changes with the size of sets.
    let (to, of) = (Arc::clone(&queue), Arc::downgrade(world));
    let everything_in = move |namespace: Option<String>| {
        let (Some(world), Some(namespace)) = (of.upgrade(), namespace) else { return };
        world.budgets.in_namespace(&namespace).iter().for_each(|b| to.add(Key::of(&**b)));
    };
    let everything_in = Arc::new(everything_in);
    let tell = Arc::clone(&everything_in);
    world.deployments.on_change(move |change| tell(change.object().namespace()));
    let tell = Arc::clone(&everything_in);
    world.replica_sets.on_change(move |change| tell(change.object().namespace()));
    world.stateful_sets.on_change(move |change| everything_in(change.object().namespace()));
    let world = Arc::clone(world);
    tasks.spawn(async move {
        world.ready().await;
        queue.serve("disruption budgets", WORKERS, move |key| reconcile(Arc::clone(&world), key)).await;
    });
}

async fn reconcile(world: Arc<World>, key: Key) -> anyhow::Result<Next> {
    let budget = world.budgets.get(&key).filter(|b| b.metadata.deletion_timestamp.is_none());
    let Some(budget) = budget else { return Ok(Next::Wait) };
    let pods = world.pods.in_namespace(&key.namespace);
    let covered: Vec<&Pod> = pods.iter().map(|p| &**p).filter(|p| allowance::covers(&budget, p)).collect();
    let sizes = |pod: &Pod| size_of_controller(&world, pod);
    let now = Timestamp::now();
    let (status, again) = allowance::status(&budget, &covered, sizes, now);
    if budget.status.as_ref() != Some(&status) {
        // A fresh read may hold an eviction we have not seen: it must not be written over.
        let patch = json!({"metadata": {"resourceVersion": budget.resource_version()}, "status": status});
        let api = world.api::<PodDisruptionBudget>(&key.namespace);
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => world.budgets.caught_up(&written).await,
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error).context("write the status of a disruption budget"),
        }
    }
    Ok(again.map_or(Next::Wait, Next::After))
}

/// The set a pod belongs to, and how many pods it shall have.
fn size_of_controller(world: &World, pod: &Pod) -> Option<(String, i32)> {
    let owner = pod.owner_references().iter().find(|o| o.controller == Some(true))?;
    let key = Key::new(&pod.namespace()?, &owner.name);
    match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = world.replica_sets.get(&key)?;
            let deployment = set.owner_references().iter().find(|o| o.controller == Some(true)).and_then(|o| {
                let found = world.deployments.get(&Key::new(&key.namespace, &o.name))?;
                Some((o.uid.clone(), found.spec.replicas.unwrap_or(1)))
            });
            deployment.or_else(|| Some((owner.uid.clone(), set.spec.replicas.unwrap_or(1))))
        }
        "StatefulSet" => {
            let set = world.stateful_sets.get(&key)?;
            Some((owner.uid.clone(), set.spec.replicas.unwrap_or(1)))
        }
        _ => None,
    }
}
