//! Pod disruption budgets: computes how many covered pods may be evicted now. The API server performs the evictions.

mod allowance;

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 2;

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    Controller::new("disruption budgets", informers)
        .reconciles(&informers.budgets)
        .watches(&informers.pods, |informers, change| {
            let covers = |budget: &Arc<PodDisruptionBudget>| change.states().any(|pod| allowance::covers(budget, pod));
            budgets_beside(informers, &**change.object(), covers)
        })
        // Percentages depend on the size of the controllers.
        .watches(&informers.deployments, |informers, change| budgets_beside(informers, &**change.object(), |_| true))
        .watches(&informers.replica_sets, |informers, change| budgets_beside(informers, &**change.object(), |_| true))
        .watches(&informers.stateful_sets, |informers, change| budgets_beside(informers, &**change.object(), |_| true))
        .run(tasks, WORKERS, reconcile);
}

/// The budgets in an object's namespace that `concerned` selects.
fn budgets_beside<K: ResourceExt>(
    informers: &Informers,
    object: &K,
    concerned: impl Fn(&Arc<PodDisruptionBudget>) -> bool,
) -> Vec<Key> {
    let budgets = informers.budgets.in_namespace(&object.namespace().unwrap_or_default());
    budgets.iter().filter(|b| concerned(b)).map(|b| Key::of(&**b)).collect()
}

async fn reconcile(informers: Arc<Informers>, key: Key) -> anyhow::Result<Action> {
    let budget = informers.budgets.get(&key).filter(|b| b.metadata.deletion_timestamp.is_none());
    let Some(budget) = budget else { return Ok(Action::AwaitChange) };
    let pods = informers.pods.in_namespace(&key.namespace);
    let covered: Vec<&Pod> = pods.iter().map(|p| &**p).filter(|p| allowance::covers(&budget, p)).collect();
    let sizes = |pod: &Pod| size_of_controller(&informers, pod);
    let now = Timestamp::now();
    let (status, again) = allowance::status(&budget, &covered, sizes, now);
    if budget.status.as_ref() != Some(&status) {
        // Our copy may lack an eviction that was recorded since: do not overwrite it.
        let patch = json!({"metadata": {"resourceVersion": budget.resource_version()}, "status": status});
        let api = informers.api::<PodDisruptionBudget>(&key.namespace);
        let written = controller::patch_status(&api, &informers.budgets, &key.name, &patch).await;
        written.context("write the status of a disruption budget")?;
    }
    Ok(again.map_or(Action::AwaitChange, Action::RequeueAfter))
}

/// A pod's controller, and its desired number of pods.
fn size_of_controller(informers: &Informers, pod: &Pod) -> Option<(String, i32)> {
    let owner = pod.owner_references().iter().find(|o| o.controller == Some(true))?;
    let key = Key::new(&pod.namespace()?, &owner.name);
    match owner.kind.as_str() {
        "ReplicaSet" => {
            let set = informers.replica_sets.get(&key)?;
            let deployment = set.owner_references().iter().find(|o| o.controller == Some(true)).and_then(|o| {
                let found = informers.deployments.get(&Key::new(&key.namespace, &o.name))?;
                Some((o.uid.clone(), found.spec.replicas.unwrap_or(1)))
            });
            deployment.or_else(|| Some((owner.uid.clone(), set.spec.replicas.unwrap_or(1))))
        }
        "StatefulSet" => {
            let set = informers.stateful_sets.get(&key)?;
            Some((owner.uid.clone(), set.spec.replicas.unwrap_or(1)))
        }
        _ => None,
    }
}
