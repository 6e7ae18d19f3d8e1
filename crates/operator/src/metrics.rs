//! Prometheus metrics, under the names that existing dashboards use.
//!
//! - [`families`] lists every metric; [`exposition`] writes them; [`labels`] bounds their label values;
//! - [`pods`] derives metrics from pods, [`process`] from this process.
//!
//! Counters count what this operator did and saw happen, so a restart or a new leader counts nothing twice: they start at
//! 0, as Prometheus expects of a new process. Gauges are computed from the caches on every scrape, once those are filled:
//! deleted objects drop out, and applications that ran before this operator started are included.
//!
//! The formats are written here: prometheus-client appends `_total` to counter names and has no summaries, which would
//! break existing dashboards.

mod exposition;
pub mod families;
mod labels;
pub(crate) mod pods;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use firesteel_api::executors::Cause;
use firesteel_api::{SparkApplication, SparkApplicationStatus};
use firesteel_cluster::requests::RequestCounts;
use firesteel_core::allocation::ending::{LOSS_WORDS, loss_word};
use firesteel_core::allocation::pod::ExecutorPod;
use firesteel_core::lifecycle::Submission;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::controller::Action;

use self::exposition::Series;
use self::families::*;
use self::labels::{LabelSet, pair};
use self::process::Process;
use crate::error::Error;

pub use exposition::Format;
pub use labels::LabelNames;

/// The state of an application without one, in metrics.
const NEW: &str = "NEW";
/// How long series of label values stay after the last object with them is gone.
const RETENTION: SignedDuration = SignedDuration::from_hours(1);

/// What can be set.
#[derive(Debug, Clone)]
pub struct MetricsOptions {
    /// Prepended to the existing operator's names.
    pub prefix: String,
    /// The labels of metrics about applications.
    pub labels: LabelNames,
    pub submit_buckets: Vec<f64>,
    pub start_buckets: Vec<f64>,
    /// Whether the metrics of applications and executors that the existing operator has are exported.
    pub applications: bool,
    /// How many combinations of label values there may be.
    pub max_label_sets: usize,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        MetricsOptions {
            prefix: String::new(),
            labels: LabelNames::default(),
            submit_buckets: SUBMIT_BUCKETS.to_vec(),
            start_buckets: START_BUCKETS.to_vec(),
            applications: true,
            max_label_sets: 2000,
        }
    }
}

/// All metrics of one operator.
#[derive(Default)]
pub struct Metrics {
    options: MetricsOptions,
    requests: RequestCounts,
    series: Mutex<BTreeMap<LabelSet, Entry>>,
    queues: Mutex<BTreeMap<&'static str, Queue>>,
    /// Sources of the gauges.
    caches: Mutex<Vec<Weak<dyn Census>>>,
    /// The lease, and whether this operator holds it.
    lease: Mutex<Option<(String, bool)>>,
    ready: AtomicBool,
}

/// The series of one set of label values.
#[derive(Debug)]
struct Entry {
    /// When they last changed, or an object had these values.
    seen: Timestamp,
    /// By metric and own labels.
    series: BTreeMap<(&'static str, String), Series>,
}

/// The state of one controller's queue.
#[derive(Debug, Default)]
struct Queue {
    waiting: u32,
    active: u32,
    workers: u32,
}

/// A cache that supplies gauges.
pub(crate) trait Census: Send + Sync {
    fn count(&self, tally: &mut Tally<'_>);
}

/// What the caches contain at one moment.
pub(crate) struct Tally<'a> {
    names: &'a LabelNames,
    pub(crate) now: Timestamp,
    gauges: BTreeMap<(LabelSet, &'static str, String), f64>,
    /// Increments of counters.
    counted: Vec<(LabelSet, &'static str, String, f64)>,
    seen: BTreeSet<LabelSet>,
}

impl Tally<'_> {
    /// An application and its state.
    pub(crate) fn application(&mut self, namespace: &str, labels: &BTreeMap<String, String>, state: &str) {
        let values = self.names.values(namespace, &self.names.own(labels), &[]);
        let state_label = pair("state", if state.is_empty() { NEW } else { state });
        self.saw(namespace, &values);
        self.gauge(&APPLICATIONS_BY_STATE, namespace, &values, state_label, 1.0);
        self.gauge(&RUNNING, namespace, &values, String::new(), f64::from(u8::from(state == "RUNNING")));
    }

    /// Executors whose pods are running.
    fn running_executors(&mut self, namespace: &str, values: &[String], count: u32) {
        self.gauge(&EXECUTORS_RUNNING, namespace, values, String::new(), f64::from(count));
    }

    /// The webhook's certificate: when it expires, and whether another one cannot be used.
    pub(crate) fn certificate(&mut self, expires: Timestamp, unusable: bool) {
        let expires = f64::from(u32::try_from(expires.as_second()).unwrap_or(u32::MAX));
        self.gauge(&CERTIFICATE_EXPIRES, "", &[], String::new(), expires);
        self.gauge(&CERTIFICATE_UNUSABLE, "", &[], String::new(), f64::from(u8::from(unusable)));
    }

    /// A SparkConnect object and its state.
    pub(crate) fn connect(&mut self, namespace: &str, state: &str) {
        self.seen.insert(LabelSet::Namespace(namespace.to_owned()));
        self.gauge(&CONNECT_SERVERS, namespace, &[], pair("state", state), 1.0);
    }

    /// Executors waiting to be created.
    pub(crate) fn waiting_creations(&mut self, count: usize) {
        let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        self.gauge(&CREATIONS_WAITING, "", &[], String::new(), count);
    }

    fn gauge(&mut self, family: &Family, namespace: &str, values: &[String], own: String, value: f64) {
        let set = LabelSet::new(family.scope, namespace, values);
        *self.gauges.entry((set, family.name, own)).or_default() += value;
    }

    fn count(&mut self, family: &Family, namespace: &str, values: &[String], own: String, value: f64) {
        let set = LabelSet::new(family.scope, namespace, values);
        self.counted.push((set, family.name, own, value));
    }

    /// Objects with these values exist.
    fn saw(&mut self, namespace: &str, values: &[String]) {
        for scope in [Scope::Chosen, Scope::Application, Scope::Namespace] {
            self.seen.insert(LabelSet::new(scope, namespace, values));
        }
    }
}

impl Metrics {
    pub fn new(options: &MetricsOptions, requests: RequestCounts) -> Self {
        Metrics { options: options.clone(), requests, ..Metrics::default() }
    }

    /// Adds a source of gauges, used for as long as it exists.
    pub(crate) fn follow(&self, cache: Weak<dyn Census>) {
        lock(&self.caches).push(cache);
    }

    /// This operator takes part in an election, and leads or not.
    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        *lock(&self.lease) = Some((lease.to_owned(), leads));
    }

    /// This operator acts.
    pub(crate) fn is_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn values(&self, app: &SparkApplication) -> (String, Vec<String>) {
        let namespace = app.namespace().unwrap_or_default();
        let names = &self.options.labels;
        let values = names.values(&namespace, &names.own(app.labels()), &[]);
        (namespace, values)
    }

    /// Counts one transition of an application.
    pub fn moved(
        &self,
        app: &SparkApplication,
        old: &SparkApplicationStatus,
        new: &SparkApplicationStatus,
        now: Timestamp,
    ) {
        let (namespace, values) = self.values(app);
        let count = |family: &'static Family| self.add(family, &namespace, &values, String::new(), 1.0);
        let observe = |family: &'static Family, seconds: f64| {
            self.observe(family, &namespace, &values, String::new(), seconds);
        };
        let (from, to) = (old.application_state.state.as_str(), new.application_state.state.as_str());
        let created = app.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let since_creation = created.map(|created| seconds(created, now));
        let ran = new
            .last_submission_attempt_time
            .as_ref()
            .zip(new.termination_time.as_ref())
            .map(|(s, e)| seconds(s.0, e.0));
        if from.is_empty() {
            count(&APPLICATIONS);
        }
        match to {
            "SUBMITTED" if from != "RUNNING" => {
                count(&SUBMITTED);
                if let Some(latency) = since_creation.filter(|_| new.submission_attempts == 1) {
                    observe(&SUBMIT_LATENCY, latency);
                    observe(&SUBMIT_LATENCY_HISTOGRAM, latency);
                }
            }
            "RUNNING" => {
                if let Some(latency) = since_creation.filter(|_| new.execution_attempts <= 1 && from != "UNKNOWN") {
                    observe(&START_LATENCY, latency);
                    observe(&START_LATENCY_HISTOGRAM, latency);
                }
            }
            "SUBMISSION_FAILED" => count(&SUBMISSIONS_FAILED),
            "COMPLETED" => {
                count(&SUCCEEDED);
                if let Some(ran) = ran {
                    observe(&SUCCESS_TIME, ran);
                }
            }
            "FAILED" => {
                count(&FAILED);
                if let Some(ran) = ran {
                    observe(&FAILURE_TIME, ran);
                }
            }
            _ => {}
        }
        let entered = entered(old, new);
        let mut left = old.state_times.get(from).map(|t| t.0).or(created.filter(|_| from.is_empty()));
        let mut state = from;
        for (next, at) in &entered {
            self.add(&TRANSITIONS, &namespace, &values, pair("state", next), 1.0);
            if let Some(left) = left {
                let label = pair("state", if state.is_empty() { NEW } else { state });
                self.observe(&STATE_TIME, &namespace, &[], label, seconds(left, *at));
            }
            (state, left) = (next, Some(*at));
        }
    }

    /// Counts what became of executors.
    pub fn executors(&self, app: &SparkApplication, old: &SparkApplicationStatus, new: &SparkApplicationStatus) {
        if old.executor_counts == new.executor_counts || old.submission_id != new.submission_id {
            return;
        }
        let namespace = app.namespace().unwrap_or_default();
        let names = &self.options.labels;
        let pod_labels = app.spec.executor.pod.labels.clone();
        let values = names.values(&namespace, &names.own(&pod_labels), &names.own(app.labels()));
        let before = old.executor_counts.clone().unwrap_or_default();
        let after = new.executor_counts.clone().unwrap_or_default();
        for (family, more) in [
            (&EXECUTORS_SUCCEEDED, after.completed.saturating_sub(before.completed)),
            (&EXECUTORS_FAILED, after.failed.saturating_sub(before.failed)),
        ] {
            if more > 0 {
                self.add(family, &namespace, &values, String::new(), f64::from(more));
            }
        }
    }

    /// Counts a submission, and how long it took.
    pub(crate) fn submitted(&self, namespace: &str, outcome: &Submission, seconds: f64) {
        let word = match outcome {
            Submission::Created(_) => "created",
            Submission::InTheWay => "in_the_way",
            Submission::Refused(_) => "refused",
            Submission::Hindered { .. } => "hindered",
            Submission::Impossible(_) => "impossible",
        };
        self.add(&SUBMISSIONS, namespace, &[], pair("outcome", word), 1.0);
        self.observe(&SUBMISSION_TIME, namespace, &[], String::new(), seconds);
    }

    /// Counts an executor created by the operator, and how long that took since the decision.
    pub(crate) fn executor_created(&self, namespace: &str, seconds: f64) {
        self.add(&EXECUTORS_CREATED, namespace, &[], String::new(), 1.0);
        self.observe(&CREATION_TIME, namespace, &[], String::new(), seconds);
    }

    /// Counts an executor that the cluster rejected.
    pub(crate) fn executor_refused(&self, namespace: &str) {
        self.add(&EXECUTORS_REFUSED, namespace, &[], String::new(), 1.0);
    }

    /// Counts an executor that was lost; its pod may say more about the cause.
    pub(crate) fn executor_lost(&self, namespace: &str, cause: Cause, pod: Option<&ExecutorPod>) {
        self.add(&EXECUTORS_LOST, namespace, &[], pair("cause", loss_word(cause, pod)), 1.0);
    }

    /// Counts a write that the webhook judged.
    pub(crate) fn admitted(&self, namespace: &str, allowed: bool) {
        let outcome = if allowed { "allowed" } else { "refused" };
        self.add(&ADMISSIONS, namespace, &[], pair("outcome", outcome), 1.0);
    }

    /// Counts a run of a schedule, and how late it is.
    pub(crate) fn run_started(&self, namespace: &str, lag: f64) {
        self.add(&RUNS_STARTED, namespace, &[], String::new(), 1.0);
        self.observe(&SCHEDULE_LAG, namespace, &[], String::new(), lag);
    }

    /// Counts runs of a schedule that were given up.
    pub(crate) fn runs_missed(&self, namespace: &str, count: usize) {
        if count > 0 {
            let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            self.add(&RUNS_MISSED, namespace, &[], String::new(), count);
        }
    }

    /// Names the workers of a controller.
    pub(crate) fn workers(&self, controller: &'static str, count: u16) {
        lock(&self.queues).entry(controller).or_default().workers = u32::from(count);
    }

    /// An object waits for a worker of a controller.
    pub(crate) fn queue(self: &Arc<Self>, controller: &'static str) -> Waiting {
        lock(&self.queues).entry(controller).or_default().waiting += 1;
        self.add(&ADDS, "", &[], queue_labels(controller), 1.0);
        Waiting { metrics: self.clone(), controller, since: Instant::now() }
    }

    fn add(&self, family: &'static Family, namespace: &str, values: &[String], own: String, more: f64) {
        self.change(family, namespace, values, own, Series::Number(0.0), |series| {
            if let Series::Number(value) = series {
                *value += more;
            }
        });
    }

    fn observe(&self, family: &'static Family, namespace: &str, values: &[String], own: String, value: f64) {
        let new = match family.kind {
            Kind::Histogram => {
                let buckets = self.buckets(family).to_vec();
                Series::Histogram { counts: vec![0; buckets.len()], buckets, sum: 0.0, count: 0 }
            }
            Kind::Summary | Kind::Counter | Kind::Gauge => Series::Summary { sum: 0.0, count: 0 },
        };
        self.change(family, namespace, values, own, new, |series| match series {
            Series::Number(_) => {}
            Series::Summary { sum, count } => {
                *sum += value;
                *count += 1;
            }
            Series::Histogram { buckets, counts, sum, count } => {
                for (bound, below) in buckets.iter().zip(counts) {
                    *below += u64::from(value <= *bound);
                }
                *sum += value;
                *count += 1;
            }
        });
    }

    fn buckets(&self, family: &Family) -> &[f64] {
        match family.name {
            name if name == SUBMIT_LATENCY_HISTOGRAM.name => &self.options.submit_buckets,
            name if name == START_LATENCY_HISTOGRAM.name => &self.options.start_buckets,
            _ => buckets(family),
        }
    }

    fn change(
        &self,
        family: &'static Family,
        namespace: &str,
        values: &[String],
        own: String,
        new: Series,
        change: impl FnOnce(&mut Series),
    ) {
        let set = LabelSet::new(family.scope, namespace, values);
        let mut all = lock(&self.series);
        let entry = self.entry(&mut all, set, Timestamp::now());
        change(entry.series.entry((family.name, own)).or_insert(new));
    }

    /// The series of a set of label values, or of `other` if there are too many.
    fn entry<'a>(&self, all: &'a mut BTreeMap<LabelSet, Entry>, set: LabelSet, now: Timestamp) -> &'a mut Entry {
        let set = self.admit(all, set);
        let entry = all.entry(set).or_insert_with(|| Entry { seen: now, series: BTreeMap::new() });
        entry.seen = now;
        entry
    }

    fn admit(&self, all: &BTreeMap<LabelSet, Entry>, set: LabelSet) -> LabelSet {
        let most = self.options.max_label_sets;
        if set.is_fixed() || all.contains_key(&set) || all.len() < most {
            return set;
        }
        // The namespace is kept for as long as that is possible.
        let other = set.other(&self.options.labels);
        if all.contains_key(&other) || all.len() < most.saturating_mul(2) { other } else { other.without_namespace() }
    }

    /// All metrics.
    pub fn text(&self, format: Format, now: Timestamp) -> String {
        let mut tally = Tally {
            names: &self.options.labels,
            now,
            gauges: BTreeMap::new(),
            counted: Vec::new(),
            seen: BTreeSet::new(),
        };
        lock(&self.caches).retain(|cache| cache.upgrade().map(|cache| cache.count(&mut tally)).is_some());
        let mut all = lock(&self.series);
        self.fold(&mut all, tally, now);
        let sets = all.len();
        let process = self.process(sets);
        let mut out = String::new();
        let prefix = self.options.prefix.replace('-', "_");
        for family in ALL.iter().filter(|family| self.options.applications || !family.has_prefix()) {
            let prefix = if family.has_prefix() { prefix.as_str() } else { "" };
            let mut is_first = true;
            let mut write = |set: &LabelSet, series: &BTreeMap<(&'static str, String), Series>| {
                let from = (family.name, String::new());
                let own = series.range(from..).take_while(|((name, _), _)| *name == family.name);
                for ((_, own), value) in own {
                    if std::mem::take(&mut is_first) {
                        exposition::head(&mut out, format, prefix, family);
                    }
                    let set = set.text(&self.options.labels, family.labels);
                    let labels = [set.as_str(), own.as_str()].into_iter().filter(|text| !text.is_empty());
                    let labels = labels.collect::<Vec<_>>().join(",");
                    exposition::series(&mut out, prefix, family, &labels, value);
                }
            };
            all.iter().for_each(|(set, entry)| write(set, &entry.series));
            write(&LabelSet::Process, &process);
        }
        if format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    /// Brings the series up to date with the caches, and drops those of values that are long gone.
    fn fold(&self, all: &mut BTreeMap<LabelSet, Entry>, tally: Tally<'_>, now: Timestamp) {
        let gauges: BTreeSet<&str> = ALL.iter().filter(|f| f.kind == Kind::Gauge).map(|f| f.name).collect();
        // A gauge ends in zeroes rather than in a gap, until its values are dropped.
        for entry in all.values_mut() {
            for ((name, _), series) in &mut entry.series {
                if gauges.contains(name) {
                    *series = Series::Number(0.0);
                }
            }
        }
        for set in tally.seen {
            let first = first_counters(&set);
            let entry = self.entry(all, set, now);
            for (family, own) in first {
                entry.series.entry((family.name, own)).or_insert(Series::Number(0.0));
            }
        }
        let gauges = tally.gauges.into_iter().map(|((set, name, own), value)| (set, name, own, value));
        for (set, name, own, more) in gauges.chain(tally.counted) {
            let entry = self.entry(all, set, now);
            if let Series::Number(value) = entry.series.entry((name, own)).or_insert(Series::Number(0.0)) {
                *value += more;
            }
        }
        all.retain(|set, entry| set.is_fixed() || now.duration_since(entry.seen) < RETENTION);
    }

    /// What describes the operator itself, as of now.
    fn process(&self, label_sets: usize) -> BTreeMap<(&'static str, String), Series> {
        let mut all = BTreeMap::new();
        let mut put = |family: &'static Family, own: String, value: f64| {
            all.insert((family.name, own), Series::Number(value));
        };
        for (controller, queue) in lock(&self.queues).iter() {
            put(&DEPTH, queue_labels(controller), f64::from(queue.waiting));
            put(&ACTIVE, pair("controller", controller), f64::from(queue.active));
            put(&WORKERS, pair("controller", controller), f64::from(queue.workers));
        }
        put(&READY, String::new(), f64::from(u8::from(self.ready.load(Ordering::Relaxed))));
        put(&BUILD, pair("version", env!("CARGO_PKG_VERSION")), 1.0);
        put(&LABEL_SETS, String::new(), f64::from(u32::try_from(label_sets).unwrap_or(u32::MAX)));
        if let Some((name, leads)) = lock(&self.lease).as_ref() {
            put(&LEADER, pair("name", name), f64::from(u8::from(*leads)));
        }
        if let Some(process) = Process::read() {
            put(&START_TIME, String::new(), process.start_time);
            put(&CPU, String::new(), process.cpu_seconds);
            put(&RESIDENT, String::new(), process.resident_bytes);
            put(&VIRTUAL, String::new(), process.virtual_bytes);
            put(&OPEN_FILES, String::new(), process.open_files);
            put(&MAX_FILES, String::new(), process.max_files);
        }
        let requests = self.requests.read();
        let mut by_method: BTreeMap<String, f64> = BTreeMap::new();
        for (key, count) in &requests.requests {
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
            let count = *count as f64;
            let own = [pair("verb", key.verb), pair("resource", &key.resource), pair("code", &key.code)].join(",");
            put(&API_REQUESTS, own, count);
            let (code, host, method) =
                (pair("code", &key.code), pair("host", &requests.host), pair("method", &key.method));
            *by_method.entry([code, host, method].join(",")).or_default() += count;
        }
        by_method.into_iter().for_each(|(own, count)| put(&REST_REQUESTS, own, count));
        for (verb, durations) in requests.durations {
            let (counts, sum, count) = (durations.counts, durations.sum, durations.count);
            let buckets = buckets(&API_TIME).to_vec();
            all.insert((API_TIME.name, pair("verb", verb)), Series::Histogram { buckets, counts, sum, count });
        }
        all
    }
}

/// An object that waits for a worker.
pub(crate) struct Waiting {
    metrics: Arc<Metrics>,
    controller: &'static str,
    since: Instant,
}

impl Waiting {
    /// A worker takes it.
    pub(crate) fn begin(self) -> Working {
        let (metrics, controller) = (self.metrics.clone(), self.controller);
        let own = queue_labels(controller);
        metrics.observe(&QUEUE_TIME, "", &[], own, self.since.elapsed().as_secs_f64());
        lock(&metrics.queues).entry(controller).or_default().active += 1;
        Working { metrics, controller, since: Instant::now() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut queues = lock(&self.metrics.queues);
        let queue = queues.entry(self.controller).or_default();
        queue.waiting = queue.waiting.saturating_sub(1);
    }
}

/// An object that a worker reconciles.
pub(crate) struct Working {
    metrics: Arc<Metrics>,
    controller: &'static str,
    since: Instant,
}

impl Working {
    /// The pass is over.
    pub(crate) fn end(self, outcome: &Result<Action, Error>) {
        let (metrics, controller) = (&self.metrics, pair("controller", self.controller));
        let took = self.since.elapsed().as_secs_f64();
        let result = match outcome {
            Ok(action) if *action == Action::await_change() => "success",
            Ok(_) => "requeue_after",
            Err(Error::Changed) => "requeue",
            Err(Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_)) => "error",
        };
        metrics.observe(&WORK_TIME, "", &[], queue_labels(self.controller), took);
        metrics.observe(&RECONCILE_TIME, "", &[], controller.clone(), took);
        metrics.add(&RECONCILES, "", &[], format!("{controller},{}", pair("result", result)), 1.0);
        let failed = f64::from(u8::from(result == "error"));
        metrics.add(&RECONCILE_ERRORS, "", &[], controller, failed);
        metrics.add(&RETRIES, "", &[], queue_labels(self.controller), failed);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut queues = lock(&self.metrics.queues);
        let queue = queues.entry(self.controller).or_default();
        queue.active = queue.active.saturating_sub(1);
    }
}

/// Counters that begin at 0 once there are objects with these values, so that the first increment is one.
fn first_counters(set: &LabelSet) -> Vec<(&'static Family, String)> {
    let with = |family: &'static Family, label: &str, values: &[&str]| -> Vec<(&'static Family, String)> {
        values.iter().map(|value| (family, pair(label, value))).collect()
    };
    let plain = |families: &[&'static Family]| -> Vec<(&'static Family, String)> {
        families.iter().map(|family| (*family, String::new())).collect()
    };
    match set {
        LabelSet::Process => Vec::new(),
        LabelSet::Chosen(_) => plain(&[
            &APPLICATIONS,
            &SUBMITTED,
            &SUBMISSIONS_FAILED,
            &SUCCEEDED,
            &FAILED,
            &EXECUTORS_SUCCEEDED,
            &EXECUTORS_FAILED,
        ]),
        LabelSet::Application(..) => {
            with(&TRANSITIONS, "state", &["SUBMITTED", "COMPLETED", "FAILED", "SUBMISSION_FAILED"])
        }
        LabelSet::Namespace(_) => [
            with(&EXECUTORS_LOST, "cause", &LOSS_WORDS),
            with(&SUBMISSIONS, "outcome", &["created", "refused", "impossible", "hindered"]),
            plain(&[&EXECUTORS_CREATED, &EXECUTORS_REFUSED, &RUNS_STARTED, &RUNS_MISSED]),
        ]
        .concat(),
    }
}

fn queue_labels(controller: &str) -> String {
    format!("{},{}", pair("controller", controller), pair("name", controller))
}

/// The states entered between two statuses, in order, each with its time. One write may pass through several.
fn entered<'a>(old: &SparkApplicationStatus, new: &'a SparkApplicationStatus) -> Vec<(&'a str, Timestamp)> {
    let now = new.application_state.state.as_str();
    let fresh = new.state_times.iter().filter(|(state, at)| old.state_times.get(*state) != Some(at));
    let mut entered: Vec<_> = fresh.map(|(state, at)| (state.as_str(), at.0)).collect();
    entered.sort_by_key(|(state, at)| (*at, *state == now));
    entered
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
