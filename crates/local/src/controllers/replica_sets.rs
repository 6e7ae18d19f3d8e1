//! ReplicaSets: keep the requested number of pods of one template running.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::pod_control;
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 8;
/// Status fields that are omitted when zero.
const COUNTS: [&str; 3] = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];

/// What to do for one ReplicaSet.
#[derive(Debug, PartialEq)]
struct ReplicaSetPlan {
    create: usize,
    delete: Vec<Arc<Pod>>,
    status: ReplicaSetStatus,
    /// A ready pod will become available with time alone (`minReadySeconds`).
    wake: bool,
}

fn plan(set: &ReplicaSet, pods: &[Arc<Pod>], now: Timestamp) -> ReplicaSetPlan {
    let spec = set.spec.clone();
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let mut active: Vec<Arc<Pod>> = pods.iter().filter(|p| pod_control::active(p)).cloned().collect();
    let count = |n: usize| i32::try_from(n).ok();
    let template = spec.template.as_ref().and_then(|t| t.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let full = |p: &&Arc<Pod>| template.iter().all(|(k, v)| p.labels().get(k) == Some(v));
    let ready = active.iter().filter(|p| pod_control::ready_since(p).is_some()).count();
    let available = active.iter().filter(|p| pod_control::available(p, min_ready, now)).count();
    let going = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_some()).count();
    let status = ReplicaSetStatus {
        replicas: count(active.len()).unwrap_or(i32::MAX),
        fully_labeled_replicas: count(active.iter().filter(full).count()).filter(|n| *n > 0),
        ready_replicas: count(ready).filter(|n| *n > 0),
        available_replicas: count(available).filter(|n| *n > 0),
        terminating_replicas: set.status.as_ref().and_then(|s| s.terminating_replicas).and(count(going)),
        observed_generation: set.metadata.generation,
        conditions: set.status.as_ref().and_then(|s| s.conditions.clone()),
    };
    let wake = ready > available;
    if set.metadata.deletion_timestamp.is_some() {
        return ReplicaSetPlan { create: 0, delete: Vec::new(), status, wake };
    }
    let create = wanted.saturating_sub(active.len());
    let surplus = active.len().saturating_sub(wanted);
    pod_control::least_useful_first(&mut active);
    active.truncate(surplus);
    ReplicaSetPlan { create, delete: active, status, wake }
}

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let events = EventRecorder::new(informers.client.clone(), "replicaset-controller");
    Controller::new("replica sets", informers)
        .reconciles(&informers.replica_sets)
        .owns::<ReplicaSet, _>(&informers.pods)
        .run(tasks, WORKERS, move |informers, key| reconcile(informers, events.clone(), key));
}

async fn reconcile(informers: Arc<Informers>, events: EventRecorder, key: Key) -> anyhow::Result<Action> {
    let Some(set) = informers.replica_sets.get(&key) else { return Ok(Action::AwaitChange) };
    let pods = informers.pods.controlled_by(&set.uid().unwrap_or_default());
    let plan = plan(&set, &pods, Timestamp::now());
    let template = set.spec.template.clone().unwrap_or_default();
    let acted = async {
        if plan.create > 0 {
            let mut pod = pod_control::from_template(&template, pod_control::controlled_by(&*set));
            pod.metadata.generate_name = Some(pod_control::prefix(&key.name));
            pod_control::create_pods(&informers, &events, &*set, vec![pod; plan.create])
                .await
                .context("create pods")?;
        }
        pod_control::delete_pods(&informers, &events, &*set, &plan.delete).await.context("delete pods")
    }
    .await;
    if set.status.as_ref() != Some(&plan.status) {
        controller::write_status(&informers, &informers.replica_sets, &key, &plan.status, &COUNTS)
            .await
            .context("write status")?;
    }
    acted?;
    // The informer delivers the created and deleted pods.
    Ok(if plan.wake { Action::RequeueAfter(Duration::from_secs(1)) } else { Action::AwaitChange })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(replicas: i32) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "uid": "u", "generation": 3},
            "spec": {"replicas": replicas, "selector": {}, "template": {"metadata": {"labels": {"a": "b"}}}},
        }))
        .unwrap()
    }

    fn pod(name: &str, phase: &str, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"a": "b"}},
                "status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn missing_pods_are_created_and_ended_ones_replaced() {
        let plan = plan(&set(3), &[pod("a", "Running", true), pod("b", "Failed", false)], Timestamp::now());
        assert_eq!(plan.create, 2);
        assert!(plan.delete.is_empty());
        assert_eq!((plan.status.replicas, plan.status.ready_replicas), (1, Some(1)));
        assert_eq!(plan.status.observed_generation, Some(3));
    }

    #[test]
    fn surplus_pods_go_the_unready_first() {
        let pods = [pod("a", "Running", true), pod("b", "Running", false), pod("c", "Running", true)];
        let plan = plan(&set(2), &pods, Timestamp::now());
        assert_eq!(plan.delete.iter().map(|p| p.name_any()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_set_that_goes_makes_nothing() {
        let mut going = set(3);
        going.metadata.deletion_timestamp = Some(pod_control::time(Timestamp::now()));
        assert_eq!(plan(&going, &[], Timestamp::now()).create, 0);
    }

    #[test]
    fn the_right_number_is_left_alone() {
        let plan = plan(&set(1), &[pod("a", "Pending", false)], Timestamp::now());
        assert_eq!((plan.create, plan.delete.len()), (0, 0));
    }
}
