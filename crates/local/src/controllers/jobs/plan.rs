//! Decides the next step of a Job. Pure.
//!
//! Counts every finished pod exactly once, as upstream does: its uid is added to `uncountedTerminatedPods`, then its finalizer
//! is removed, then it moves into the counter. A crash between any two steps neither loses nor double-counts a pod.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use crate::controllers::pod_control;
use crate::controllers::scheduler::is_terminal;

pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(360);

#[derive(Debug, PartialEq)]
pub(crate) struct JobPlan {
    /// Pods to create, each with its index if the Job is indexed.
    pub(crate) create: Vec<Option<i32>>,
    pub(crate) delete: Vec<Arc<Pod>>,
    /// Finished pods that have been recorded, so their finalizer can be removed.
    pub(crate) release: Vec<Arc<Pod>>,
    pub(crate) status: JobStatus,
    /// Whether the Job has finished and its TTL has expired.
    pub(crate) remove: bool,
    pub(crate) wake: Option<Duration>,
}

fn tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|f| f == TRACKING)
}

fn succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded")
}

fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// When a condition became true.
fn since(status: &JobStatus, type_: &str) -> Option<Timestamp> {
    let condition = status.conditions.iter().flatten().find(|c| c.type_ == type_ && c.status == "True")?;
    condition.last_transition_time.as_ref().map(|t| t.0)
}

/// Indexes in the API's format: `0-2,5`.
fn parse_indexes(text: &str) -> BTreeSet<i32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        Some(from..=to)
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn write_indexes(indexes: &BTreeSet<i32>) -> String {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for i in indexes {
        match parts.last_mut() {
            Some((_, to)) if *to + 1 == *i => *to = *i,
            _ => parts.push((*i, *i)),
        }
    }
    let part = |(from, to): &(i32, i32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

pub(crate) fn plan(job: &Job, pods: &[Arc<Pod>], now: Timestamp) -> JobPlan {
    let spec = job.spec.clone().unwrap_or_default();
    let mut status = job.status.clone().unwrap_or_default();
    let mut plan = JobPlan {
        create: Vec::new(),
        delete: Vec::new(),
        release: Vec::new(),
        status: status.clone(),
        remove: false,
        wake: None,
    };
    if job.metadata.deletion_timestamp.is_some() {
        plan.release = pods.iter().filter(|p| tracked(p)).cloned().collect();
        return plan;
    }
    if let Some(over) = since(&status, "Complete").or_else(|| since(&status, "Failed")) {
        plan.release = pods.iter().filter(|p| tracked(p)).cloned().collect();
        if let Some(ttl) = spec.ttl_seconds_after_finished {
            let left = over.as_second() + i64::from(ttl) - now.as_second();
            plan.remove = left <= 0;
            plan.wake = u64::try_from(left).ok().filter(|s| *s > 0).map(Duration::from_secs);
        }
        return plan;
    }
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    count(pods, &mut status, &mut plan, indexed);
    let active: Vec<Arc<Pod>> = pods.iter().filter(|p| pod_control::active(p)).cloned().collect();
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let waiting = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
    let done = status.succeeded.unwrap_or(0) + i32::try_from(waiting(&uncounted.succeeded)).unwrap_or(0);
    let failed = status.failed.unwrap_or(0) + i32::try_from(waiting(&uncounted.failed)).unwrap_or(0);
    let suspended = spec.suspend == Some(true);
    if !suspended && status.start_time.is_none() {
        status.start_time = Some(pod_control::time(now));
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    let restarts: i32 = active
        .iter()
        .flat_map(|p| p.status.iter())
        .flat_map(|s| s.container_statuses.iter().flatten())
        .map(|c| c.restart_count)
        .sum();
    let deadline = spec
        .active_deadline_seconds
        .zip(status.start_time.as_ref())
        .map(|(s, t)| t.0.as_second() + s - now.as_second());
    let wanted = spec.completions;
    let complete = match wanted {
        Some(n) => done >= n,
        // A work-queue Job is complete once one pod has succeeded and none is left.
        None => done > 0 && active.is_empty(),
    };
    let end = match () {
        () if complete => {
            Some(("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
        }
        () if failed > limit || restarts > limit => {
            Some(("FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
        }
        () if deadline.is_some_and(|left| left <= 0) => {
            Some(("FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
        }
        () => None,
    };
    if let Some((first, last, reason, message)) = end {
        plan.delete = active.clone();
        let settled = active.is_empty() && waiting(&uncounted.succeeded) + waiting(&uncounted.failed) == 0;
        set(&mut status, first, reason, message, now);
        // The terminal condition is set only once all pods have terminated.
        if settled && pods.iter().all(|p| is_terminal(p)) {
            set(&mut status, last, reason, message, now);
            if last == "Complete" {
                status.completion_time = Some(pod_control::time(now));
            }
        }
    } else if suspended {
        plan.delete = active.clone();
        set(&mut status, "Suspended", "JobSuspended", "Job suspended", now);
    } else {
        if since(&status, "Suspended").is_some()
            && let Some(list) = status.conditions.as_mut()
        {
            list.retain(|c| c.type_ != "Suspended");
        }
        let backoff = backoff(pods, now);
        let room = spec.parallelism.unwrap_or(1).max(0);
        let missing = wanted.map_or(if done > 0 { 0 } else { room }, |n| (n - done).min(room));
        let have = i32::try_from(active.len()).unwrap_or(i32::MAX);
        match backoff {
            Some(wait) if missing > have => plan.wake = Some(wait),
            _ => plan.create = new_pods(indexed, missing - have, wanted, &status, pods),
        }
        if let Some(left) = deadline.and_then(|l| u64::try_from(l).ok()) {
            let left = Duration::from_secs(left);
            plan.wake = Some(plan.wake.map_or(left, |w| w.min(left)));
        }
    }
    let number = |n: usize| i32::try_from(n).ok();
    status.active = number(active.len()).filter(|n| *n > 0);
    status.ready = number(active.iter().filter(|p| pod_control::ready_since(p).is_some()).count());
    status.terminating =
        number(pods.iter().filter(|p| p.metadata.deletion_timestamp.is_some() && !is_terminal(p)).count());
    plan.status = status;
    plan
}

/// Moves finished pods through `uncountedTerminatedPods` into the counters.
fn count(pods: &[Arc<Pod>], status: &mut JobStatus, plan: &mut JobPlan, indexed: bool) {
    let mut books = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut indexes = parse_indexes(status.completed_indexes.as_deref().unwrap_or_default());
    let assume = |list: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let still = |uid: &String| pods.iter().any(|p| p.uid().as_ref() == Some(uid) && tracked(p));
        let uids = list.take().unwrap_or_default();
        let (held, free): (Vec<String>, Vec<String>) = uids.into_iter().partition(still);
        if !free.is_empty() {
            *counter = Some(counter.unwrap_or(0) + i32::try_from(free.len()).unwrap_or(0));
        }
        *list = (!held.is_empty()).then_some(held);
    };
    assume(&mut books.succeeded, &mut status.succeeded);
    assume(&mut books.failed, &mut status.failed);
    for pod in pods.iter().filter(|p| tracked(p)) {
        // A pod deleted before it finished counts as failed.
        let over = is_terminal(pod) || pod.metadata.deletion_timestamp.is_some();
        if !over {
            continue;
        }
        let uid = pod.uid().unwrap_or_default();
        let list = if succeeded(pod) { &mut books.succeeded } else { &mut books.failed };
        let noted = list.iter().flatten().any(|u| *u == uid);
        if noted {
            plan.release.push(Arc::clone(pod));
        } else {
            list.get_or_insert_default().push(uid);
            if succeeded(pod) {
                indexes.extend(index(pod));
            }
        }
    }
    if indexed {
        status.completed_indexes = Some(write_indexes(&indexes)).filter(|t| !t.is_empty());
    }
    status.uncounted_terminated_pods = Some(books);
}

fn new_pods(
    indexed: bool,
    missing: i32,
    wanted: Option<i32>,
    status: &JobStatus,
    pods: &[Arc<Pod>],
) -> Vec<Option<i32>> {
    let missing = usize::try_from(missing).unwrap_or(0);
    if !indexed {
        return vec![None; missing];
    }
    let done = parse_indexes(status.completed_indexes.as_deref().unwrap_or_default());
    let busy: BTreeSet<i32> = pods.iter().filter(|p| pod_control::active(p)).filter_map(|p| index(p)).collect();
    (0..wanted.unwrap_or(0)).filter(|i| !done.contains(i) && !busy.contains(i)).take(missing).map(Some).collect()
}

/// How long to back off after failures before creating the next pod.
fn backoff(pods: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let failed: Vec<Timestamp> =
        pods.iter().filter(|p| is_terminal(p) && !succeeded(p)).map(|p| finished(p, now)).collect();
    let last = failed.iter().max()?;
    let doubled = u32::try_from(failed.len() - 1).unwrap_or(10).min(10);
    let wait = FIRST_BACKOFF.saturating_mul(1 << doubled).min(LONGEST_BACKOFF);
    let passed = Duration::from_secs(u64::try_from(now.as_second() - last.as_second()).unwrap_or(0));
    wait.checked_sub(passed).filter(|d| !d.is_zero())
}

fn finished(pod: &Pod, now: Timestamp) -> Timestamp {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|t| t.0));
    ends.max().unwrap_or(now)
}

fn set(status: &mut JobStatus, type_: &str, reason: &str, message: &str, now: Timestamp) {
    let list = status.conditions.get_or_insert_default();
    if list.iter().any(|c| c.type_ == type_ && c.status == "True") {
        return;
    }
    list.retain(|c| c.type_ != type_);
    list.push(JobCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(pod_control::time(now)),
        last_probe_time: Some(pod_control::time(now)),
    });
}

/// The pod template of a Job, as a pod.
pub(crate) fn pod(job: &Job, at: Option<i32>) -> Pod {
    let template = job.spec.as_ref().map(|s| s.template.clone()).unwrap_or_default();
    let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    let mut pod = pod_control::from_template(&template, pod_control::controlled_by(job));
    let labels = pod.metadata.labels.get_or_insert_default();
    for (key, value) in [("controller-uid", &uid), ("job-name", &name)] {
        labels.insert(key.to_owned(), value.clone());
        labels.insert(format!("batch.kubernetes.io/{key}"), value.clone());
    }
    pod.metadata.finalizers.get_or_insert_default().push(TRACKING.to_owned());
    pod.metadata.generate_name = Some(pod_control::prefix(&name));
    if let Some(i) = at {
        labels.insert(INDEX.to_owned(), i.to_string());
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), i.to_string());
        pod.metadata.generate_name = Some(pod_control::prefix(&format!("{name}-{i}")));
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(format!("{name}-{i}"));
        let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), api_version: None };
        let from = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
        let variable = EnvVar { name: "JOB_COMPLETION_INDEX".to_owned(), value: None, value_from: Some(from) };
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            container.env.get_or_insert_default().push(variable.clone());
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(spec: Value, status: Value) -> Job {
        let mut full =
            json!({"template": {"spec": {"containers": [{"name": "c"}]}}, "completions": 1, "parallelism": 1});
        for (key, value) in spec.as_object().into_iter().flatten() {
            full[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"}, "spec": full, "status": status})).unwrap()
    }

    fn pod_in(uid: &str, phase: &str, tracked: bool) -> Arc<Pod> {
        let finalizers = if tracked { json!([TRACKING]) } else { json!([]) };
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": uid, "uid": uid, "finalizers": finalizers}, "status": {"phase": phase}}),
            )
            .unwrap(),
        )
    }

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn has(status: &JobStatus, type_: &str) -> bool {
        since(status, type_).is_some()
    }

    #[test]
    fn a_job_makes_no_more_pods_than_it_may_and_needs() {
        assert_eq!(plan(&job(json!({"completions": 5, "parallelism": 2}), json!({})), &[], now()).create.len(), 2);
        let done = json!({"succeeded": 4});
        assert_eq!(plan(&job(json!({"completions": 5, "parallelism": 2}), done), &[], now()).create.len(), 1);
        let running = [pod_in("a", "Running", true)];
        assert_eq!(plan(&job(json!({}), json!({})), &running, now()).create.len(), 0);
    }

    #[test]
    fn an_end_is_noted_then_released_then_counted() {
        let is_terminal = [pod_in("a", "Succeeded", true)];
        let first = plan(&job(json!({}), json!({})), &is_terminal, now());
        assert_eq!(first.status.uncounted_terminated_pods.as_ref().unwrap().succeeded, Some(vec!["a".to_owned()]));
        assert!(first.release.is_empty() && !has(&first.status, "Complete"));
        let second = plan(&job(json!({}), serde_json::to_value(&first.status).unwrap()), &is_terminal, now());
        assert_eq!(second.release.len(), 1);
        assert_eq!(second.status.succeeded, None);
        let third = plan(
            &job(json!({}), serde_json::to_value(&second.status).unwrap()),
            &[pod_in("a", "Succeeded", false)],
            now(),
        );
        assert_eq!(third.status.succeeded, Some(1));
        assert!(has(&third.status, "Complete") && third.status.completion_time.is_some());
    }

    #[test]
    fn too_many_failures_end_a_job() {
        let failed = json!({"failed": 3});
        let over = plan(&job(json!({"backoffLimit": 2}), failed), &[], now());
        assert!(has(&over.status, "FailureTarget") && has(&over.status, "Failed"));
        assert!(over.create.is_empty());
    }

    #[test]
    fn a_failure_delays_the_next_try() {
        let failed = [pod_in("a", "Failed", false)];
        let waiting = plan(&job(json!({}), json!({"failed": 1})), &failed, now());
        assert!(waiting.create.is_empty());
        assert_eq!(waiting.wake, Some(FIRST_BACKOFF));
    }

    #[test]
    fn a_deadline_ends_a_job_and_its_pods() {
        let late = json!({"startTime": "2026-01-01T00:00:00Z"});
        let over = plan(&job(json!({"activeDeadlineSeconds": 60}), late), &[pod_in("a", "Running", true)], now());
        assert_eq!(over.delete.len(), 1);
        assert!(has(&over.status, "FailureTarget") && !has(&over.status, "Failed"), "not before its pods are gone");
    }

    #[test]
    fn a_finished_job_goes_after_its_time() {
        let complete = json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:09:00Z"}]);
        let status = json!({"conditions": complete});
        assert!(plan(&job(json!({"ttlSecondsAfterFinished": 30}), status.clone()), &[], now()).remove);
        let later = plan(&job(json!({"ttlSecondsAfterFinished": 90}), status), &[], now());
        assert_eq!((later.remove, later.wake), (false, Some(Duration::from_secs(30))));
    }

    #[test]
    fn an_indexed_job_fills_the_indexes_that_are_missing() {
        let spec = json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3});
        let plan = plan(&job(spec, json!({"succeeded": 2, "completedIndexes": "0,2"})), &[], now());
        assert_eq!(plan.create, [Some(1), Some(3), Some(4)]);
    }

    #[test]
    fn indexes_are_written_as_ranges() {
        let set: BTreeSet<i32> = [0, 1, 2, 5, 7, 8].into();
        assert_eq!(write_indexes(&set), "0-2,5,7-8");
        assert_eq!(parse_indexes("0-2,5,7-8"), set);
        assert!(parse_indexes("").is_empty());
    }

    #[test]
    fn a_suspended_job_has_no_pods() {
        let plan = plan(&job(json!({"suspend": true}), json!({})), &[pod_in("a", "Running", true)], now());
        assert_eq!((plan.create.len(), plan.delete.len()), (0, 1));
        assert!(has(&plan.status, "Suspended"));
    }
}
