//! Metrics that come from pods: running executors, lost ones, and what drivers and executors request over time.
//!
//! Time counts from a pod's start to its end, but only while this operator works: what was before its start was counted by
//! the operator before it, or by none. So an operator that is down for a while leaves a gap, and no second is counted twice.
//! An executor counts as lost when this operator sees it fail, or be taken away by the platform; those of drivers whose
//! executors Firesteel allocates are counted where that is decided.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use firesteel_api::executors::Cause;
use firesteel_api::{SparkApplication, names};
use firesteel_core::allocation::ending;
use firesteel_core::allocation::pod::{ExecutorPod, State};
use firesteel_core::pod::{self, PodPhase, Requests, SparkContainer};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

use super::families::{CORE_SECONDS, EXECUTORS_LOST, GIB_SECONDS};
use super::labels::{LabelNames, pair};
use super::{Census, Tally, lock, seconds};
use crate::relist::{Change, Relist};
use crate::scope::Scope;

type Key = (String, String);

/// The pods of one watch.
pub(crate) struct PodMetrics {
    names: LabelNames,
    scope: Arc<Scope>,
    apps: Store<DeserializeGuard<SparkApplication>>,
    /// When this operator began to work.
    since: Timestamp,
    state: Mutex<Pods>,
}

#[derive(Default)]
struct Pods {
    relist: Relist,
    is_listed: bool,
    pods: HashMap<Key, Tracked>,
    /// What pods that are gone requested, until the next scrape.
    owed: BTreeMap<Group, Requests>,
    /// Losses until the next scrape, by namespace and cause.
    lost: BTreeMap<(String, &'static str), u32>,
}

/// Pods whose requests are added up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    namespace: String,
    app: String,
    role: &'static str,
    /// Values of labels that the pod has itself.
    own: Vec<Option<String>>,
}

#[derive(Debug)]
struct Tracked {
    uid: String,
    group: Group,
    requests: Requests,
    /// Until when its requests are accounted for; `None` before it starts.
    counted: Option<Timestamp>,
    phase: PodPhase,
    /// Firesteel allocates it.
    is_allocated: bool,
}

impl Tracked {
    fn has_ended(&self) -> bool {
        match self.phase {
            PodPhase::Succeeded | PodPhase::Failed => true,
            PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => false,
        }
    }

    /// What it requested from the last time until `until`, in core-seconds and GiB-seconds.
    fn used(&mut self, until: Timestamp) -> Requests {
        let Some(counted) = self.counted.filter(|counted| *counted < until) else { return Requests::default() };
        self.counted = Some(until);
        let time = seconds(counted, until);
        Requests { cores: self.requests.cores * time, gib: self.requests.gib * time }
    }
}

impl Pods {
    fn owe(&mut self, group: &Group, used: Requests) {
        if used.cores > 0.0 || used.gib > 0.0 {
            let owed = self.owed.entry(group.clone()).or_default();
            owed.cores += used.cores;
            owed.gib += used.gib;
        }
    }

    fn lose(&mut self, namespace: &str, cause: &'static str) {
        *self.lost.entry((namespace.to_owned(), cause)).or_default() += 1;
    }

    fn put(&mut self, pod: &Pod, since: Timestamp, now: Timestamp, names: &LabelNames) {
        let Some((key, new)) = track(pod, since, now, names) else { return };
        let (_, end) = pod::lifetime(pod, now);
        let known = self.pods.remove(&key).filter(|known| known.uid == new.uid);
        let was_live = known.as_ref().map_or_else(|| created(pod) > since, |known| !known.has_ended());
        let is_counted = known.as_ref().is_some_and(Tracked::has_ended);
        let mut new = Tracked { counted: known.and_then(|known| known.counted).or(new.counted), ..new };
        if let Some(end) = end.filter(|_| !is_counted) {
            let used = new.used(end);
            self.owe(&new.group, used);
        }
        if was_live
            && new.has_ended()
            && let Some(cause) = loss(pod, &new)
        {
            self.lose(&key.0, cause);
        }
        self.pods.insert(key, new);
    }

    /// A pod is gone; `last` is how the API server last saw it.
    fn remove(&mut self, key: &Key, last: Option<&Pod>, now: Timestamp) {
        let Some(mut known) = self.pods.remove(key) else { return };
        if known.has_ended() {
            return;
        }
        let used = known.used(now);
        self.owe(&known.group, used);
        let last = last.filter(|_| known.group.role == EXECUTOR && !known.is_allocated);
        let last = last.and_then(|pod| ExecutorPod::read(pod, SparkContainer::of(pod).name()));
        if let Some(pod) = last.filter(|pod| pod.disruption.is_some()) {
            self.lose(&key.0, ending::loss_word(Cause::Platform, Some(&pod)));
        }
    }
}

const EXECUTOR: &str = "executor";
const DRIVER: &str = "driver";

fn created(pod: &Pod) -> Timestamp {
    pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

fn track(pod: &Pod, since: Timestamp, now: Timestamp, names: &LabelNames) -> Option<(Key, Tracked)> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get(names::LABEL_LAUNCHED_BY).filter(|launched| *launched == "true")?;
    let app = labels.get(names::LABEL_APP_NAME)?.clone();
    let role = if labels.get(names::LABEL_ROLE).is_some_and(|role| role == EXECUTOR) { EXECUTOR } else { DRIVER };
    let namespace = pod.namespace()?;
    let (start, _) = pod::lifetime(pod, now);
    let tracked = Tracked {
        uid: pod.uid().unwrap_or_default(),
        group: Group { namespace: namespace.clone(), app, role, own: names.own(labels) },
        requests: pod.spec.as_ref().map(Requests::of).unwrap_or_default(),
        counted: start.map(|start| start.max(since)),
        phase: pod::phase(pod),
        is_allocated: labels.contains_key(names::LABEL_ALLOCATOR),
    };
    Some(((namespace, pod.name_any()), tracked))
}

/// The cause, if an executor that has ended counts as lost.
fn loss(pod: &Pod, tracked: &Tracked) -> Option<&'static str> {
    if tracked.group.role != EXECUTOR || tracked.is_allocated || tracked.phase != PodPhase::Failed {
        return None;
    }
    let executor = ExecutorPod::read(pod, SparkContainer::of(pod).name())?;
    let cause = match &executor.state {
        State::Ended(end) => ending::of_end(&executor, end).cause,
        State::Pending { .. } | State::Running { .. } => Cause::Platform,
    };
    Some(ending::loss_word(cause, Some(&executor)))
}

impl PodMetrics {
    pub(crate) fn new(
        names: LabelNames,
        scope: Arc<Scope>,
        apps: Store<DeserializeGuard<SparkApplication>>,
        since: Timestamp,
    ) -> Self {
        PodMetrics { names, scope, apps, since, state: Mutex::default() }
    }

    /// Applies an event of the pod watch.
    pub(crate) fn apply(&self, event: &Event<Pod>, now: Timestamp) {
        let mut state = lock(&self.state);
        let mut relist = std::mem::take(&mut state.relist);
        match relist.fold(event) {
            Change::Lists => {}
            Change::InList(pod) | Change::Seen(pod) => state.put(pod, self.since, now, &self.names),
            Change::Gone(pod) => {
                // Events may have been merged: this one may be the first that shows its end.
                state.put(pod, self.since, now, &self.names);
                state.remove(&(pod.namespace().unwrap_or_default(), pod.name_any()), Some(pod), now);
            }
            Change::Listed(there) => {
                let gone: Vec<Key> = state.pods.keys().filter(|key| !there.contains_key(*key)).cloned().collect();
                gone.iter().for_each(|key| state.remove(key, None, now));
                state.is_listed = true;
            }
        }
        state.relist = relist;
    }

    /// Values of the labels of an application.
    fn of_app(&self, namespace: &str, app: &str) -> Vec<Option<String>> {
        let object = ObjectRef::<DeserializeGuard<SparkApplication>>::new(app).within(namespace);
        self.apps.get(&object).map(|app| self.names.own(app.labels())).unwrap_or_default()
    }
}

impl Census for PodMetrics {
    fn count(&self, tally: &mut Tally<'_>) {
        let mut state = lock(&self.state);
        if !state.is_listed {
            return;
        }
        let Pods { pods, owed, lost, .. } = &mut *state;
        let mut used = std::mem::take(owed);
        let mut running: BTreeMap<Group, u32> = BTreeMap::new();
        for pod in pods.values_mut() {
            let total = used.entry(pod.group.clone()).or_default();
            if !pod.has_ended() {
                let more = pod.used(tally.now);
                total.cores += more.cores;
                total.gib += more.gib;
            }
            if pod.group.role == EXECUTOR {
                *running.entry(pod.group.clone()).or_default() += u32::from(pod.phase == PodPhase::Running);
            }
        }
        for (group, used) in used {
            if !self.scope.covers(&group.namespace) {
                continue;
            }
            let values = self.names.values(&group.namespace, &group.own, &self.of_app(&group.namespace, &group.app));
            let own = pair("role", group.role);
            tally.saw(&group.namespace, &values);
            tally.count(&CORE_SECONDS, &group.namespace, &values, own.clone(), used.cores);
            tally.count(&GIB_SECONDS, &group.namespace, &values, own, used.gib);
            if let Some(count) = running.get(&group) {
                tally.running_executors(&group.namespace, &values, *count);
            }
        }
        for ((namespace, cause), count) in std::mem::take(lost) {
            if self.scope.covers(&namespace) {
                tally.count(&EXECUTORS_LOST, &namespace, &[], pair("cause", cause), f64::from(count));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Format, Metrics, MetricsOptions};
    use crate::options::Options;
    use k8s_openapi::jiff::ToSpan;
    use kube::runtime::reflector;
    use serde_json::{Value, json};

    const START: &str = "2026-01-01T00:00:00Z";

    fn at(second: i64) -> Timestamp {
        START.parse::<Timestamp>().unwrap() + second.seconds()
    }

    fn pod(name: &str, role: &str, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": START, "labels": {
                names::LABEL_APP_NAME: "pi", names::LABEL_LAUNCHED_BY: "true", names::LABEL_ROLE: role,
                names::LABEL_EXECUTOR_ID: "1", "team": "a"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}}]},
            "status": status,
        }))
        .unwrap()
    }

    fn running() -> Value {
        json!({"phase": "Running", "startTime": START})
    }

    fn ended(code: i32, second: i64) -> Value {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        json!({"phase": phase, "startTime": START, "containerStatuses": [{"name": "c", "image": "i", "imageID": "",
            "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "finishedAt": at(second)}}}]})
    }

    /// An operator that began to work at this second.
    fn operator(second: i64) -> (Metrics, Arc<PodMetrics>) {
        let labels = LabelNames::new(["team"]).unwrap();
        let options = MetricsOptions { labels: labels.clone(), ..MetricsOptions::default() };
        let metrics = Metrics::new(&options, Default::default());
        let (apps, _) = reflector::store();
        let scope = Arc::new(Scope::new(&Options::default()));
        let pods = Arc::new(PodMetrics::new(labels, scope, apps, at(second)));
        let cache: std::sync::Weak<PodMetrics> = Arc::downgrade(&pods);
        metrics.follow(cache);
        pods.apply(&Event::Init, at(second));
        (metrics, pods)
    }

    #[track_caller]
    fn shows(metrics: &Metrics, second: i64, lines: &[&str]) {
        let text = metrics.text(Format::Text, at(second));
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn requests_count_from_start_to_end_and_not_twice() {
        let (metrics, pods) = operator(0);
        pods.apply(&Event::InitDone, at(0));
        pods.apply(&Event::Apply(pod("exec", "executor", &running())), at(1));
        let cores = "firesteel_requested_core_seconds_total{namespace=\"n\",team=\"a\",role=\"executor\"}";
        let gib = "firesteel_requested_gib_seconds_total{namespace=\"n\",team=\"a\",role=\"executor\"}";
        shows(
            &metrics,
            10,
            &[&format!("{cores} 5"), &format!("{gib} 20"), "spark_executor_running_count{team=\"a\"} 1"],
        );
        shows(&metrics, 20, &[&format!("{cores} 10")]);
        pods.apply(&Event::Apply(pod("exec", "executor", &ended(0, 30))), at(35));
        pods.apply(&Event::Apply(pod("exec", "executor", &ended(0, 30))), at(36));
        shows(&metrics, 40, &[&format!("{cores} 15"), "spark_executor_running_count{team=\"a\"} 0"]);
        pods.apply(&Event::Delete(pod("exec", "executor", &ended(0, 30))), at(50));
        shows(&metrics, 60, &[&format!("{cores} 15"), &format!("{gib} 60")]);
    }

    #[test]
    fn an_operator_counts_only_its_own_time() {
        let (metrics, pods) = operator(100);
        for (name, status) in [("driver", running()), ("past", ended(0, 50)), ("recent", ended(0, 110))] {
            pods.apply(&Event::InitApply(pod(name, "driver", &status)), at(120));
        }
        let cores = "firesteel_requested_core_seconds_total{namespace=\"n\",team=\"a\",role=\"driver\"}";
        assert!(
            !metrics.text(Format::Text, at(120)).contains(cores),
            "nothing is known before the first list is complete"
        );
        pods.apply(&Event::InitDone, at(120));
        // 20 s of the driver and 10 s of `recent`, at half a core.
        shows(&metrics, 120, &[&format!("{cores} 15")]);
        // Gone without a word.
        pods.apply(&Event::Init, at(140));
        pods.apply(&Event::InitDone, at(140));
        shows(&metrics, 150, &[&format!("{cores} 25")]);
    }

    #[test]
    fn losses_have_a_cause_and_are_counted_when_they_happen() {
        let (metrics, pods) = operator(100);
        pods.apply(&Event::InitApply(pod("before", "executor", &ended(1, 50))), at(100));
        for name in ["crashed", "oom", "evicted", "finished", "deleted", "preempted"] {
            pods.apply(&Event::InitApply(pod(name, "executor", &running())), at(100));
        }
        pods.apply(&Event::InitDone, at(100));
        pods.apply(&Event::Apply(pod("crashed", "executor", &ended(1, 110))), at(110));
        pods.apply(&Event::Apply(pod("crashed", "executor", &ended(1, 110))), at(111));
        let mut oom = ended(137, 110);
        oom["containerStatuses"][0]["state"]["terminated"]["reason"] = json!("OOMKilled");
        pods.apply(&Event::Apply(pod("oom", "executor", &oom)), at(110));
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "startTime": START});
        pods.apply(&Event::Apply(pod("evicted", "executor", &evicted)), at(110));
        pods.apply(&Event::Apply(pod("finished", "executor", &ended(0, 110))), at(110));
        pods.apply(&Event::Delete(pod("deleted", "executor", &running())), at(110));
        let mut preempted = running();
        preempted["conditions"] =
            json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": ""}]);
        pods.apply(&Event::Delete(pod("preempted", "executor", &preempted)), at(110));
        shows(
            &metrics,
            120,
            &[
                "firesteel_executors_lost_total{namespace=\"n\",cause=\"application\"} 1",
                "firesteel_executors_lost_total{namespace=\"n\",cause=\"out_of_memory\"} 1",
                "firesteel_executors_lost_total{namespace=\"n\",cause=\"evicted\"} 1",
                "firesteel_executors_lost_total{namespace=\"n\",cause=\"preempted\"} 1",
                "firesteel_executors_lost_total{namespace=\"n\",cause=\"platform\"} 0",
            ],
        );
    }
}
