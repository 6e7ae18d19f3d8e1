//! What the controllers of pods share: creating pods from templates, deleting them, and reading their state.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};

use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::ignore;
use crate::controllers::scheduler::is_terminal;
use crate::informer::Key;
use crate::informers::Informers;

/// How many pods of one owner are written concurrently.
const AT_ONCE: usize = 16;

/// An owner reference that makes `owner` the controller.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    let mut reference = owner.controller_owner_ref(&()).unwrap_or_default();
    reference.block_owner_deletion = Some(true);
    reference
}

/// A pod from a template, without a name.
pub(crate) fn from_template(template: &PodTemplateSpec, owner: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The `generateName` prefix, short enough for the suffix.
pub(crate) fn prefix(name: &str) -> String {
    format!("{}-", &name[..name.len().min(57)])
}

/// Whether a pod is active: neither terminated nor being deleted.
pub(crate) fn active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// When a pod became ready, if it is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0))
}

/// Whether a pod has been ready for `min_ready_seconds`.
pub(crate) fn available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    ready_since(pod).is_some_and(|since| now.as_second() - since.as_second() >= i64::from(min_ready_seconds))
}

/// Sorts pods in the order in which to scale them down.
pub(crate) fn least_useful_first(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let placed = pod.spec.as_ref().is_some_and(|s| s.node_name.as_deref().is_some_and(|n| !n.is_empty()));
        let phase = match pod.status.as_ref().and_then(|s| s.phase.as_deref()) {
            Some("Running") => 2,
            Some("Unknown") => 1,
            _ => 0,
        };
        let cost: i64 = pod
            .annotations()
            .get("controller.kubernetes.io/pod-deletion-cost")
            .and_then(|c| c.parse().ok())
            .unwrap_or(0);
        let ready = ready_since(pod);
        let youngest_first = std::cmp::Reverse(pod.creation_timestamp().map(|t| t.0));
        (placed, phase, ready.is_some(), cost, std::cmp::Reverse(ready), youngest_first, pod.name_any())
    });
}

/// Whether a selector matches an object. An empty or invalid selector matches nothing.
pub(crate) fn selects<K: ResourceExt>(selector: &LabelSelector, object: &K) -> bool {
    match Selector::try_from(selector.clone()) {
        Ok(selector) => !selector.selects_all() && selector.matches(object.labels()),
        Err(_) => false,
    }
}

/// Creates pods and waits until the informer has seen them. Stops at the first error.
pub(crate) async fn create_pods<K>(
    informers: &Informers,
    events: &EventRecorder,
    owner: &K,
    pods: Vec<Pod>,
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let api = informers.api::<Pod>(&owner.namespace().unwrap_or_default());
    let mut writes = stream::iter(pods)
        .map(|pod| {
            let api = api.clone();
            async move { api.create(&PostParams::default(), &pod).await }
        })
        .buffer_unordered(AT_ONCE);
    let mut failure = None;
    let mut newest: Option<Pod> = None;
    while let Some(outcome) = writes.next().await {
        match outcome {
            Ok(pod) => {
                events.normal(owner, "SuccessfulCreate", "Create", format!("Created pod: {}", pod.name_any()));
                let number = |p: &Pod| p.resource_version().and_then(|v| v.parse::<u64>().ok());
                if newest.as_ref().is_none_or(|n| number(n) < number(&pod)) {
                    newest = Some(pod);
                }
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                let said = match &error {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                events.warning(owner, "FailedCreate", "Create", format!("Error creating: {said}"));
                failure = Some(error);
                break;
            }
        }
    }
    drop(writes);
    if let Some(pod) = newest {
        informers.pods.wait_for_write(&pod).await;
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Deletes exactly these pods (by uid) and waits until the informer has seen it.
pub(crate) async fn delete_pods<K>(
    informers: &Informers,
    events: &EventRecorder,
    owner: &K,
    pods: &[Arc<Pod>],
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let api = informers.api::<Pod>(&owner.namespace().unwrap_or_default());
    let mut writes = stream::iter(pods.iter().cloned())
        .map(|pod| {
            let api = api.clone();
            async move {
                let only_this = Preconditions { uid: pod.uid(), resource_version: None };
                let outcome = api.delete(&pod.name_any(), &DeleteParams::background().preconditions(only_this)).await;
                (pod, outcome)
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some((pod, outcome)) = writes.next().await {
        if ignore::gone_or_replaced(outcome)?.is_some() {
            events.normal(owner, "SuccessfulDelete", "Delete", format!("Deleted pod: {}", pod.name_any()));
            informers.pods.wait_for_delete(&Key::of(&*pod), &pod.uid().unwrap_or_default()).await;
        }
    }
    Ok(())
}

/// A timestamp with the API's resolution of one second.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: Option<&str>, phase: &str, ready: bool, cost: i64) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost.to_string()}},
                "spec": {"nodeName": node, "containers": []},
                "status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn surplus_pods_go_in_the_order_of_their_use() {
        let mut pods = vec![
            pod("ready", Some("n"), "Running", true, 0),
            pod("dear", Some("n"), "Running", true, 9),
            pod("unplaced", None, "Pending", false, 0),
            pod("starting", Some("n"), "Running", false, 0),
            pod("pending", Some("n"), "Pending", false, 0),
        ];
        least_useful_first(&mut pods);
        let names: Vec<String> = pods.iter().map(|p| p.name_any()).collect();
        assert_eq!(names, ["unplaced", "pending", "starting", "ready", "dear"]);
    }

    #[test]
    fn a_pod_is_available_after_the_wait() {
        let ready = pod("a", Some("n"), "Running", true, 0);
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!available(&ready, 10, at("2026-01-01T00:00:09Z")));
        assert!(available(&ready, 10, at("2026-01-01T00:00:10Z")));
    }

    #[test]
    fn an_empty_selector_selects_nothing() {
        assert!(!selects(&LabelSelector::default(), &*pod("a", None, "Pending", false, 0)));
    }
}
