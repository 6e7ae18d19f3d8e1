//! Decides the next step of a StatefulSet. Pure.
//!
//! `OrderedReady` proceeds one pod at a time, up in ordinal order and down in reverse; `Parallel` does everything at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::ResourceExt;

use crate::controllers::pod_control;
use crate::controllers::scheduler::is_terminal;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
pub(crate) const REVISION: &str = "controller-revision-hash";

#[derive(Debug, PartialEq)]
pub(crate) struct StatefulSetPlan {
    pub(crate) create: Vec<i32>,
    pub(crate) delete: Vec<Arc<Pod>>,
    pub(crate) status: StatefulSetStatus,
    /// A ready pod will become available with time alone (`minReadySeconds`).
    pub(crate) wake: bool,
}

/// The ordinal in a pod's name, if the name fits the set.
fn ordinal(set: &str, pod: &Pod) -> Option<i32> {
    let name = pod.name_any();
    let digits = name.strip_prefix(set)?.strip_prefix('-')?;
    digits.parse().ok().filter(|n: &i32| n.to_string() == digits)
}

/// Decides. `revision` is the full name of the update revision.
pub(crate) fn plan(set: &StatefulSet, pods: &[Arc<Pod>], revision: &str, now: Timestamp) -> StatefulSetPlan {
    let spec = set.spec.clone();
    let first = spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0);
    let wanted = first..first + spec.replicas.unwrap_or(1).max(0);
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let parallel = spec.pod_management_policy.as_deref() == Some("Parallel");
    let name = set.name_any();
    let have: BTreeMap<i32, Arc<Pod>> = pods.iter().filter_map(|p| Some((ordinal(&name, p)?, Arc::clone(p)))).collect();
    let status = status(set, have.values(), revision, min_ready, now);
    let wake = status.ready_replicas.unwrap_or(0) > status.available_replicas.unwrap_or(0);
    let mut plan = StatefulSetPlan { create: Vec::new(), delete: Vec::new(), status, wake };
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let going = |p: &Pod| p.metadata.deletion_timestamp.is_some();
    let healthy = |p: &Pod| pod_control::active(p) && pod_control::available(p, min_ready, now);
    for i in wanted.clone() {
        let settled = match have.get(&i) {
            None => {
                plan.create.push(i);
                false
            }
            Some(pod) if going(pod) => false,
            Some(pod) if is_terminal(pod) => {
                plan.delete.push(Arc::clone(pod));
                false
            }
            Some(pod) => healthy(pod),
        };
        if !parallel && !settled {
            return plan;
        }
    }
    for (_, pod) in have.iter().rev().filter(|(i, _)| !wanted.contains(i)) {
        if !going(pod) {
            plan.delete.push(Arc::clone(pod));
        }
        if !parallel {
            return plan;
        }
    }
    let strategy = spec.update_strategy.unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return plan;
    }
    let partition = strategy.rolling_update.and_then(|r| r.partition).unwrap_or(0);
    for (_, pod) in have.iter().rev().filter(|(i, _)| wanted.contains(i) && **i >= partition) {
        if pod.labels().get(REVISION).is_some_and(|r| r != revision) && !going(pod) {
            plan.delete.push(Arc::clone(pod));
            return plan;
        }
        // One at a time: update the next pod only when this one is ready again.
        if !healthy(pod) {
            return plan;
        }
    }
    plan
}

fn status<'a>(
    set: &StatefulSet,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    revision: &str,
    min_ready: i32,
    now: Timestamp,
) -> StatefulSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let current = before.current_revision.clone().unwrap_or_else(|| revision.to_owned());
    let (mut replicas, mut ready, mut available, mut at_current, mut at_update) = (0, 0, 0, 0, 0);
    for pod in pods {
        replicas += i32::from(!is_terminal(pod));
        ready += i32::from(pod_control::active(pod) && pod_control::ready_since(pod).is_some());
        available += i32::from(pod_control::active(pod) && pod_control::available(pod, min_ready, now));
        let of = pod.labels().get(REVISION);
        at_current += i32::from(pod_control::active(pod) && of.is_some_and(|r| *r == current));
        at_update += i32::from(pod_control::active(pod) && of.is_some_and(|r| r == revision));
    }
    let wanted = set.spec.replicas.unwrap_or(1);
    // All pods are at the update revision, so it becomes the current one.
    let done = at_update == replicas && replicas == wanted && ready == wanted;
    let (current, at_current) = if done { (revision.to_owned(), at_update) } else { (current, at_current) };
    StatefulSetStatus {
        replicas,
        ready_replicas: Some(ready).filter(|n| *n > 0),
        available_replicas: Some(available),
        current_replicas: Some(at_current).filter(|n| *n > 0),
        updated_replicas: Some(at_update).filter(|n| *n > 0),
        current_revision: Some(current),
        update_revision: Some(revision.to_owned()),
        observed_generation: set.metadata.generation,
        collision_count: Some(0),
        conditions: before.conditions,
    }
}

/// The pod with an ordinal.
pub(crate) fn pod(set: &StatefulSet, ordinal: i32, revision: &str) -> Pod {
    let spec = set.spec.clone();
    let name = format!("{}-{ordinal}", set.name_any());
    let mut pod = pod_control::from_template(&spec.template, pod_control::controlled_by(set));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.clone());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
    labels.insert(REVISION.to_owned(), revision.to_owned());
    pod.metadata.name = Some(name.clone());
    let inside = pod.spec.get_or_insert_default();
    inside.hostname = Some(name.clone());
    inside.subdomain = spec.service_name.clone().filter(|s| !s.is_empty());
    let volumes = inside.volumes.get_or_insert_default();
    for template in spec.volume_claim_templates.iter().flatten() {
        let volume = template.name_any();
        volumes.retain(|v| v.name != volume);
        let source = PersistentVolumeClaimVolumeSource { claim_name: claim_name(&volume, &name), read_only: None };
        volumes.push(Volume { name: volume, persistent_volume_claim: Some(source), ..Volume::default() });
    }
    if volumes.is_empty() {
        inside.volumes = None;
    }
    pod
}

fn claim_name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// The claims of the pod with an ordinal. They have no owner and outlive pod and set (the default retention policy), unless the
/// set's policy says otherwise.
pub(crate) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let spec = set.spec.clone();
    let pod = format!("{}-{ordinal}", set.name_any());
    let goes_with_set = spec.persistent_volume_claim_retention_policy.as_ref().and_then(|p| p.when_deleted.as_deref())
        == Some("Delete");
    let labels = spec.selector.match_labels.clone().unwrap_or_default();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(&template.name_any(), &pod));
        claim.metadata.namespace = set.namespace();
        claim.metadata.labels.get_or_insert_default().extend(labels.clone());
        claim.metadata.owner_references = goes_with_set.then(|| vec![pod_control::controlled_by(set)]);
        claim.status = None;
        claim
    };
    spec.volume_claim_templates.iter().flatten().map(claim).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(replicas: i32, more: Value) -> StatefulSet {
        let mut set = json!({
            "metadata": {"name": "s", "namespace": "n", "uid": "u", "generation": 2},
            "spec": {"replicas": replicas, "serviceName": "svc", "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            set["spec"][key] = value.clone();
        }
        serde_json::from_value(set).unwrap()
    }

    fn pod_at(i: i32, phase: &str, ready: bool, revision: &str) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": format!("s-{i}"), "labels": {REVISION: revision}},
                "status": {"phase": phase, "conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap(),
        )
    }

    fn decide(set: &StatefulSet, pods: &[Arc<Pod>]) -> (Vec<i32>, Vec<String>) {
        let plan = plan(set, pods, "r1", Timestamp::now());
        (plan.create, plan.delete.iter().map(|p| p.name_any()).collect())
    }

    #[test]
    fn ordered_sets_grow_one_ready_pod_at_a_time() {
        assert_eq!(decide(&set(3, json!({})), &[]).0, [0]);
        assert_eq!(decide(&set(3, json!({})), &[pod_at(0, "Running", false, "r1")]).0, Vec::<i32>::new());
        assert_eq!(decide(&set(3, json!({})), &[pod_at(0, "Running", true, "r1")]).0, [1]);
    }

    #[test]
    fn parallel_sets_grow_and_shrink_at_once() {
        let parallel = json!({"podManagementPolicy": "Parallel"});
        assert_eq!(decide(&set(3, parallel.clone()), &[]).0, [0, 1, 2]);
        let pods: Vec<_> = (0..3).map(|i| pod_at(i, "Running", true, "r1")).collect();
        assert_eq!(decide(&set(1, parallel), &pods).1, ["s-2", "s-1"]);
    }

    #[test]
    fn ordered_sets_shrink_from_the_top() {
        let pods: Vec<_> = (0..3).map(|i| pod_at(i, "Running", true, "r1")).collect();
        assert_eq!(decide(&set(1, json!({})), &pods).1, ["s-2"]);
    }

    #[test]
    fn a_failed_pod_is_deleted_to_be_made_again() {
        assert_eq!(decide(&set(2, json!({})), &[pod_at(0, "Failed", false, "r1")]), (vec![], vec!["s-0".to_owned()]));
    }

    #[test]
    fn a_new_revision_rolls_from_the_top_one_by_one() {
        let old: Vec<_> = (0..2).map(|i| pod_at(i, "Running", true, "r0")).collect();
        assert_eq!(decide(&set(2, json!({})), &old).1, ["s-1"]);
        let half = [pod_at(0, "Running", true, "r0"), pod_at(1, "Running", false, "r1")];
        let parallel = json!({"podManagementPolicy": "Parallel"});
        assert_eq!(decide(&set(2, parallel), &half).1, Vec::<String>::new(), "the next waits for this one");
        let partition = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        assert_eq!(decide(&set(2, partition), &old).1, Vec::<String>::new());
        let by_hand = json!({"updateStrategy": {"type": "OnDelete"}});
        assert_eq!(decide(&set(2, by_hand), &old).1, Vec::<String>::new());
    }

    #[test]
    fn ordinals_may_start_elsewhere() {
        let from_five = json!({"ordinals": {"start": 5}, "podManagementPolicy": "Parallel"});
        assert_eq!(decide(&set(2, from_five), &[]).0, [5, 6]);
    }

    #[test]
    fn a_pod_has_its_name_as_host_name_and_its_own_claims() {
        let claims_wanted = json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]});
        let set = set(1, claims_wanted);
        let made = pod(&set, 0, "r1");
        let spec = made.spec.unwrap();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("s-0"), Some("svc")));
        assert_eq!(spec.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().claim_name, "data-s-0");
        assert_eq!(claims(&set, 0)[0].name_any(), "data-s-0");
    }

    #[test]
    fn pods_of_other_names_do_not_count() {
        let stranger: Pod = serde_json::from_value(json!({"metadata": {"name": "s-007"}})).unwrap();
        assert_eq!(ordinal("s", &stranger), None);
    }
}
