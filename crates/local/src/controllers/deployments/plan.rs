//! Decides the next step of a Deployment. Pure.
//!
//! Each pod template has a ReplicaSet. A rollout moves replicas from old ReplicaSets to the new one, within `maxSurge` and
//! `maxUnavailable`.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::controllers::{pod_control, revision};

pub(crate) const HASH: &str = "pod-template-hash";
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";

#[derive(Debug, PartialEq)]
pub(crate) struct DeploymentPlan {
    /// The ReplicaSet to create.
    pub(crate) create: Option<ReplicaSet>,
    pub(crate) scale: Vec<(Arc<ReplicaSet>, i32)>,
    pub(crate) delete: Vec<Arc<ReplicaSet>>,
    /// The revision, for the annotation.
    pub(crate) revision: i64,
    pub(crate) status: DeploymentStatus,
}

fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(0)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

fn number(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// A template without the `pod-template-hash` label.
pub(crate) fn bare(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
        labels.remove(HASH);
    }
    template
}

/// An absolute number or a percentage of the replicas.
fn share(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    match value {
        Some(IntOrString::Int(n)) => *n,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            let exact = i64::from(of) * i64::from(percent);
            i32::try_from(if up { (exact + 99) / 100 } else { exact / 100 }).unwrap_or(of)
        }
        None => 0,
    }
}

pub(crate) fn plan(deployment: &Deployment, sets: &[Arc<ReplicaSet>], now: Timestamp) -> DeploymentPlan {
    let spec = deployment.spec.clone();
    let template = bare(&spec.template);
    let same = |s: &&Arc<ReplicaSet>| s.spec.template.as_ref().is_some_and(|t| bare(t) == template);
    let new = sets.iter().filter(same).min_by_key(|s| s.creation_timestamp().map(|t| t.0)).cloned();
    let old: Vec<Arc<ReplicaSet>> =
        sets.iter().filter(|s| new.as_ref().is_none_or(|n| n.uid() != s.uid())).cloned().collect();
    let newest = sets.iter().map(|s| number(s)).max().unwrap_or(0);
    let revision = match &new {
        Some(set) if number(set) == newest && newest > 0 => newest,
        Some(_) | None => newest + 1,
    };
    let status = status(deployment, new.as_deref(), sets, now);
    let mut plan = DeploymentPlan { create: None, scale: Vec::new(), delete: Vec::new(), revision, status };
    if deployment.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let wanted = spec.replicas.unwrap_or(1);
    if spec.paused == Some(true) {
        plan.scale.extend(new.filter(|n| size(n) != wanted).map(|n| (n, wanted)));
        return plan;
    }
    if spec.strategy.as_ref().and_then(|s| s.type_.as_deref()) == Some("Recreate") {
        plan.scale.extend(old.iter().filter(|s| size(s) > 0).map(|s| (Arc::clone(s), 0)));
        let empty = old.iter().all(|s| size(s) == 0 && s.status.as_ref().is_none_or(|s| s.replicas == 0));
        match &new {
            Some(set) if empty && size(set) != wanted => plan.scale.push((Arc::clone(set), wanted)),
            None => plan.create = Some(replica_set(deployment, &template, if empty { wanted } else { 0 }, revision)),
            Some(_) => {}
        }
    } else {
        roll(deployment, new.as_ref(), &old, &template, &mut plan);
    }
    let keep = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut spent: Vec<&Arc<ReplicaSet>> =
        old.iter().filter(|s| size(s) == 0 && s.status.as_ref().is_none_or(|s| s.replicas == 0)).collect();
    spent.sort_by_key(|s| number(s));
    let surplus = spent.len().saturating_sub(keep);
    plan.delete = spent.into_iter().take(surplus).cloned().collect();
    plan
}

fn roll(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[Arc<ReplicaSet>],
    template: &PodTemplateSpec,
    plan: &mut DeploymentPlan,
) {
    let spec = deployment.spec.clone();
    let wanted = spec.replicas.unwrap_or(1);
    let rolling = spec.strategy.and_then(|s| s.rolling_update).unwrap_or_default();
    let surge = share(rolling.max_surge.as_ref(), wanted, true);
    let mut missing_allowed = share(rolling.max_unavailable.as_ref(), wanted, false);
    if surge == 0 && missing_allowed == 0 {
        missing_allowed = 1;
    }
    let old_size: i32 = old.iter().map(|s| size(s)).sum();
    let new_size = new.map_or(0, |s| size(s));
    let room = (wanted + surge - old_size - new_size).max(0);
    let grown = if new_size > wanted { wanted } else { new_size + room.min(wanted - new_size) };
    match new {
        None => plan.create = Some(replica_set(deployment, template, grown, plan.revision)),
        Some(set) if grown != new_size => plan.scale.push((Arc::clone(set), grown)),
        Some(_) => {}
    }
    if old_size == 0 {
        return;
    }
    let needed = wanted - missing_allowed;
    let new_missing = new.map_or(grown, |s| size(s).max(grown) - available(s));
    let mut may_go = old_size + new_size.max(grown) - needed - new_missing;
    // Scale down unavailable replicas first.
    let mut sets: Vec<&Arc<ReplicaSet>> = old.iter().filter(|s| size(s) > 0).collect();
    sets.sort_by_key(|s| s.creation_timestamp().map(|t| t.0));
    let mut left: Vec<i32> = sets.iter().map(|s| size(s)).collect();
    for (set, left) in sets.iter().zip(&mut left) {
        let broken = (*left - available(set)).max(0).min(may_go.max(0));
        *left -= broken;
        may_go -= broken;
    }
    let all_available: i32 = old.iter().map(|s| available(s)).sum::<i32>() + new.map_or(0, |s| available(s));
    let mut may_go = may_go.min(all_available - needed).max(0);
    for left in &mut left {
        let go = (*left).min(may_go);
        *left -= go;
        may_go -= go;
    }
    for (set, left) in sets.into_iter().zip(left) {
        if left != size(set) {
            plan.scale.push((Arc::clone(set), left));
        }
    }
}

fn replica_set(deployment: &Deployment, template: &PodTemplateSpec, replicas: i32, number: i64) -> ReplicaSet {
    let spec = deployment.spec.clone();
    let hash = revision::of(template);
    let mut template = template.clone();
    template.metadata.get_or_insert_default().labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash.clone());
    let mut annotations = deployment.annotations().clone();
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(REVISION.to_owned(), number.to_string());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.name_any())),
            namespace: deployment.namespace(),
            labels: template.metadata.as_ref().and_then(|m| m.labels.clone()),
            annotations: Some(annotations),
            owner_references: Some(vec![pod_control::controlled_by(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    }
}

fn status(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    sets: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let sum = |of: fn(&ReplicaSet) -> i32| sets.iter().map(|s| of(s)).sum::<i32>();
    let replicas = sum(|s| s.status.as_ref().map_or(0, |s| s.replicas));
    let ready = sum(|s| s.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or(0));
    let up = sum(available);
    let updated = new.and_then(|s| s.status.as_ref()).map_or(0, |s| s.replicas);
    let rolling = deployment.spec.strategy.as_ref().and_then(|s| s.rolling_update.as_ref()?.max_unavailable.clone());
    let enough = up >= wanted - share(rolling.as_ref(), wanted, false);
    let complete = updated == wanted && replicas == wanted && up >= wanted;
    let name = new.map(ResourceExt::name_any).unwrap_or_default();
    let enough = match enough {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned()),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.".to_owned()),
    };
    let progress = match (complete, new) {
        (true, _) => ("True", "NewReplicaSetAvailable", format!("ReplicaSet \"{name}\" has successfully progressed.")),
        (false, Some(_)) => ("True", "ReplicaSetUpdated", format!("ReplicaSet \"{name}\" is progressing.")),
        (false, None) => ("True", "NewReplicaSetCreated", "Created new replica set".to_owned()),
    };
    let list = before.conditions.clone().unwrap_or_default();
    let conditions = vec![condition(&list, "Available", enough, now), condition(&list, "Progressing", progress, now)];
    let some = |n: i32| Some(n).filter(|n| *n > 0);
    DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(replicas),
        updated_replicas: some(updated),
        ready_replicas: some(ready),
        available_replicas: some(up),
        unavailable_replicas: some((wanted.max(replicas) - up).max(0)),
        conditions: Some(conditions),
        collision_count: before.collision_count,
        terminating_replicas: before.terminating_replicas,
    }
}

fn condition(
    before: &[DeploymentCondition],
    type_: &str,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
) -> DeploymentCondition {
    let wanted = DeploymentCondition {
        type_: type_.to_owned().into(),
        status: status.to_owned().into(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(pod_control::time(now)),
        last_update_time: Some(pod_control::time(now)),
    };
    match before.iter().find(|c| c.type_ == wanted.type_) {
        Some(old) if old.status == wanted.status && old.reason == wanted.reason && old.message == wanted.message => {
            old.clone()
        }
        Some(old) if old.status == wanted.status => {
            DeploymentCondition { last_transition_time: old.last_transition_time.clone(), ..wanted }
        }
        Some(_) | None => wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, image: &str, strategy: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "strategy": strategy,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}},
        }))
        .unwrap()
    }

    fn rolling() -> serde_json::Value {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    }

    /// The ReplicaSet that the controller creates for an image, with the given counts.
    fn set(image: &str, replicas: i32, available: i32, number: i64) -> Arc<ReplicaSet> {
        let d = deployment(0, image, rolling());
        let mut set = replica_set(&d, &d.spec.template, replicas, number);
        set.metadata.uid = Some(image.to_owned());
        set.status = serde_json::from_value(
            json!({"replicas": replicas, "readyReplicas": available, "availableReplicas": available}),
        )
        .unwrap();
        Arc::new(set)
    }

    fn scaled(plan: &DeploymentPlan) -> Vec<(String, i32)> {
        plan.scale.iter().map(|(s, n)| (s.uid().unwrap(), *n)).collect()
    }

    #[test]
    fn the_first_rollout_makes_one_full_set() {
        let plan = plan(&deployment(3, "v1", rolling()), &[], Timestamp::now());
        let made = plan.create.unwrap();
        assert_eq!(size(&made), 3);
        assert!(made.spec.selector.match_labels.unwrap().contains_key(HASH));
    }

    #[test]
    fn a_rollout_stays_within_surge_and_unavailability() {
        let d = deployment(4, "v2", rolling());
        let first = plan(&d, &[set("v1", 4, 4, 1)], Timestamp::now());
        assert_eq!(size(first.create.as_ref().unwrap()), 1, "one more than wanted");
        assert_eq!(scaled(&first), [("v1".to_owned(), 3)], "one fewer available than wanted");
        let next = plan(&d, &[set("v1", 3, 3, 1), set("v2", 1, 0, 2)], Timestamp::now());
        assert_eq!(scaled(&next), [("v2".to_owned(), 2)], "nothing more goes until something new is available");
        let next = plan(&d, &[set("v1", 3, 3, 1), set("v2", 2, 2, 2)], Timestamp::now());
        assert_eq!(scaled(&next), [("v1".to_owned(), 1)]);
    }

    #[test]
    fn broken_old_replicas_go_first() {
        let d = deployment(4, "v2", rolling());
        let stuck = plan(&d, &[set("v1", 4, 0, 1), set("v2", 1, 0, 2)], Timestamp::now());
        assert_eq!(scaled(&stuck), [("v1".to_owned(), 3)]);
    }

    #[test]
    fn recreate_waits_until_the_old_pods_are_gone() {
        let d = deployment(2, "v2", json!({"type": "Recreate"}));
        let first = plan(&d, &[set("v1", 2, 2, 1)], Timestamp::now());
        assert_eq!(scaled(&first), [("v1".to_owned(), 0)]);
        assert_eq!(size(&first.create.unwrap()), 0);
        let then = plan(&d, &[set("v1", 0, 0, 1), set("v2", 0, 0, 2)], Timestamp::now());
        assert_eq!(scaled(&then), [("v2".to_owned(), 2)]);
    }

    #[test]
    fn a_finished_rollout_is_said_and_left_alone() {
        let done = plan(&deployment(2, "v1", rolling()), &[set("v1", 2, 2, 1)], Timestamp::now());
        assert!(done.create.is_none() && done.scale.is_empty());
        let conditions = done.status.conditions.unwrap();
        assert_eq!(conditions[1].reason.as_deref(), Some("NewReplicaSetAvailable"));
        assert_eq!(done.status.unavailable_replicas, None);
    }

    #[test]
    fn going_back_uses_the_old_set_under_a_new_number() {
        let back = plan(&deployment(2, "v1", rolling()), &[set("v1", 0, 0, 1), set("v2", 2, 2, 2)], Timestamp::now());
        assert!(back.create.is_none());
        assert_eq!(back.revision, 3);
    }

    #[test]
    fn old_sets_beyond_the_history_are_deleted() {
        let mut d = deployment(1, "v9", rolling());
        d.spec.revision_history_limit = Some(1);
        let sets = [set("v1", 0, 0, 1), set("v2", 0, 0, 2), set("v9", 1, 1, 3)];
        let plan = plan(&d, &sets, Timestamp::now());
        assert_eq!(plan.delete.iter().map(|s| s.uid().unwrap()).collect::<Vec<_>>(), ["v1"]);
    }

    #[test]
    fn shares_round_up_for_surge_and_down_for_absence() {
        let quarter = IntOrString::String("25%".to_owned());
        assert_eq!((share(Some(&quarter), 5, true), share(Some(&quarter), 5, false)), (2, 1));
    }
}
