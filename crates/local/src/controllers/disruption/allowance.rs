//! How many pods of a budget may be disrupted. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use crate::controllers::scheduler::is_terminal;

/// An eviction that has not led to a deletion after this time has failed.
const FAILED_AFTER: Duration = Duration::from_secs(120);

/// Whether a budget covers a pod. Without a selector it covers none.
pub(super) fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.clone());
    selector.and_then(|s| Selector::try_from(s).ok()).is_some_and(|s| s.matches(pod.labels()))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// A number or percentage of a total, rounded up.
fn share(of: i32, amount: &IntOrString) -> i32 {
    match amount {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(i32::MAX)
        }
    }
}

/// The status a budget should have, and when to recompute it. `size` returns a pod's controller and its desired number of pods.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    pods: &[&Pod],
    size: impl Fn(&Pod) -> Option<(String, i32)>,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let spec = budget.spec.clone().unwrap_or_default();
    let alive: Vec<&&Pod> = pods.iter().filter(|p| !is_terminal(p)).collect();
    let mut sets: BTreeMap<String, i32> = BTreeMap::new();
    let mut alone = 0;
    for pod in &alive {
        match size(pod) {
            Some((set, replicas)) => {
                sets.insert(set, replicas);
            }
            None => alone += 1,
        }
    }
    let whole = sets.values().sum::<i32>() + alone;
    let counted = i32::try_from(alive.len()).unwrap_or(i32::MAX);
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (whole, (whole - share(whole, most)).max(0)),
        (None, Some(least @ IntOrString::String(_))) => (whole, share(whole, least)),
        (None, Some(IntOrString::Int(least))) => (counted, *least),
        (None, None) => (counted, 1),
    };
    let old = budget.status.clone().unwrap_or_default();
    // Pods being evicted count as disrupted until they are gone.
    let age = |since: &Time| now.as_second() - since.0.as_second();
    let limit = i64::try_from(FAILED_AFTER.as_secs()).unwrap_or(i64::MAX);
    let going: BTreeMap<String, Time> = old
        .disrupted_pods
        .iter()
        .flatten()
        .filter(|(name, since)| {
            let pod = alive.iter().find(|p| p.name_any() == **name);
            pod.is_some_and(|p| p.metadata.deletion_timestamp.is_none()) && age(since) < limit
        })
        .map(|(name, since)| (name.clone(), since.clone()))
        .collect();
    let again = going.values().map(|since| limit - age(since)).min();
    let healthy = alive
        .iter()
        .filter(|p| p.metadata.deletion_timestamp.is_none() && !going.contains_key(&p.name_any()) && is_ready(p))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let status = PodDisruptionBudgetStatus {
        conditions: Some(vec![condition(&old, allowed > 0, budget.metadata.generation, now)]),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: (!going.is_empty()).then_some(going),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: budget.metadata.generation,
    };
    (status, again.map(|seconds| Duration::from_secs(u64::try_from(seconds.max(1)).unwrap_or(1))))
}

fn condition(old: &PodDisruptionBudgetStatus, allowed: bool, generation: Option<i64>, now: Timestamp) -> Condition {
    let (status, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let before = old.conditions.iter().flatten().find(|c| c.type_ == "DisruptionAllowed" && c.status == status);
    Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: generation,
        last_transition_time: before.map_or(Time(now), |c| c.last_transition_time.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, ready: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }))
        .unwrap()
    }

    fn allowed(spec: &Value, healthy: usize, sick: usize) -> (i32, i32, i32) {
        let mut budget = json!({"metadata": {"name": "b"}, "spec": spec});
        budget["spec"]["selector"] = json!({"matchLabels": {"app": "a"}});
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let pods: Vec<Pod> = (0..healthy + sick).map(|i| pod(&format!("p{i}"), i < healthy)).collect();
        assert!(pods.iter().all(|p| covers(&budget, p)));
        let seen: Vec<&Pod> = pods.iter().collect();
        let of_a_set = |_: &Pod| Some(("set".to_owned(), 10));
        let (status, again) = status(&budget, &seen, of_a_set, Timestamp::UNIX_EPOCH);
        assert_eq!(again, None);
        (
            status.expected_pods.unwrap_or(-1),
            status.desired_healthy.unwrap_or(-1),
            status.disruptions_allowed.unwrap_or(-1),
        )
    }

    #[test]
    fn what_is_above_the_wanted_number_may_go() {
        assert_eq!(allowed(&json!({"minAvailable": 2}), 3, 0), (3, 2, 1));
        assert_eq!(allowed(&json!({"minAvailable": 2}), 2, 1), (3, 2, 0));
        assert_eq!(allowed(&json!({"minAvailable": "50%"}), 7, 0), (10, 5, 2));
        assert_eq!(allowed(&json!({"maxUnavailable": 3}), 8, 0), (10, 7, 1));
        assert_eq!(allowed(&json!({"maxUnavailable": "15%"}), 10, 0), (10, 8, 2));
        assert_eq!(allowed(&json!({"minAvailable": 0}), 0, 0), (0, 0, 0));
    }

    #[test]
    fn an_eviction_counts_until_its_pod_is_gone_or_it_has_failed() {
        let mut budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
            "status": {
                "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 2,
                "disruptedPods": {"p0": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"},
            },
        }))
        .unwrap();
        let pods = [pod("p0", true), pod("p1", true)];
        let seen: Vec<&Pod> = pods.iter().collect();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let (now, again) = status(&budget, &seen, |_| None, at(20));
        assert_eq!(now.disruptions_allowed, Some(0));
        assert_eq!(now.disrupted_pods.clone().map(|d| d.into_keys().collect::<Vec<_>>()), Some(vec!["p0".to_owned()]));
        assert_eq!(again, Some(Duration::from_secs(100)));
        budget.status = Some(now);
        let (later, again) = status(&budget, &seen, |_| None, at(130));
        assert_eq!((later.disruptions_allowed, later.disrupted_pods, again), (Some(1), None, None));
    }
}
