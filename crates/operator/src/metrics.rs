//! Prometheus metrics, under the names that existing dashboards use.
//!
//! Counters count transitions made by this operator, so a restart or a new leader counts nothing twice. Gauges are
//! computed from the caches on every scrape: deleted objects drop out, and applications that ran before this operator
//! started are included.
//!
//! The text format is written by hand: prometheus-client appends `_total` to counter names and has no summaries, which
//! would break existing dashboards.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError, Weak};

use firesteel_api::executors::Cause;
use firesteel_api::{SparkApplication, SparkApplicationStatus};
use k8s_openapi::jiff::Timestamp;

const SUBMIT_BUCKETS: &[f64] = &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
const START_BUCKETS: &[f64] = &[1.0, 5.0, 10.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0];
const LAG_BUCKETS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0];
const CREATION_BUCKETS: &[f64] = &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

// One table for the code and the reference.
macro_rules! metrics {
    ($($kind:ident $const:ident = $name:literal: $help:literal;)+) => {
        $(const $const: &str = $name;)+

        /// Name, type and help text of every metric.
        pub const ALL: &[(&str, &str, &str)] = &[$(($name, stringify!($kind), $help)),+];
    };
}

metrics! {
    counter APPLICATIONS = "spark_application_count": "Applications seen for the first time.";
    counter SUBMITTED = "spark_application_submit_count": "Successful submissions, including retries.";
    counter SUBMISSIONS_FAILED = "spark_application_failed_submission_count": "Failed submissions.";
    counter SUCCEEDED = "spark_application_success_count": "Applications that completed.";
    counter FAILED = "spark_application_failure_count": "Applications that failed for good.";
    gauge RUNNING = "spark_application_running_count": "Applications in state RUNNING.";
    summary SUBMIT_LATENCY = "spark_application_submit_latency_seconds": "Time from creation of the application to its first submission.";
    histogram SUBMIT_LATENCY_HISTOGRAM = "spark_application_submit_latency_seconds_histogram": "The same, in buckets.";
    summary START_LATENCY = "spark_application_start_latency_seconds": "Time from creation of the application to its first running driver.";
    histogram START_LATENCY_HISTOGRAM = "spark_application_start_latency_seconds_histogram": "The same, in buckets.";
    summary SUCCESS_TIME = "spark_application_success_execution_time_seconds": "Time from the last submission to completion.";
    summary FAILURE_TIME = "spark_application_failure_execution_time_seconds": "Time from the last submission to failure.";
    gauge EXECUTORS_RUNNING = "spark_executor_running_count": "Executors whose pods are running.";
    counter EXECUTORS_SUCCEEDED = "spark_executor_success_count": "Executors that exited with code 0.";
    counter EXECUTORS_FAILED = "spark_executor_failure_count": "Executors that failed.";
    counter EXECUTORS_CREATED = "firesteel_executor_created_count": "Executor pods created by the operator.";
    histogram CREATION_TIME = "firesteel_executor_creation_seconds_histogram": "Time from the decision to create an executor to the API server's response.";
    counter EXECUTORS_REFUSED = "firesteel_executor_refused_count": "Executors rejected by the cluster.";
    counter EXECUTORS_LOST_BY_APPLICATION = "firesteel_executor_lost_by_application_count": "Executors lost because of the application.";
    counter EXECUTORS_LOST_BY_PLATFORM = "firesteel_executor_lost_by_platform_count": "Executors lost through no fault of the application: evicted, preempted, deleted, or lost with their node.";
    counter EXECUTORS_WITHDRAWN = "firesteel_executor_withdrawn_count": "Pending executors that were no longer wanted.";
    counter RUNS_STARTED = "firesteel_schedule_run_count": "Runs of schedules that were started because they were due.";
    counter RUNS_MISSED = "firesteel_schedule_missed_count": "Runs of schedules that did not start within `startingDeadlineSeconds`.";
    counter ADMITTED = "firesteel_admission_allowed_count": "Writes that the webhook allowed.";
    counter NOT_ADMITTED = "firesteel_admission_refused_count": "Writes that the webhook refused.";
    gauge CERTIFICATE_EXPIRES = "firesteel_webhook_certificate_expiry_seconds": "When the certificate that the webhook serves expires, as Unix time; the namespace is that of its Secret.";
    gauge CERTIFICATE_UNUSABLE = "firesteel_webhook_certificate_unusable": "1 while the webhook has a certificate that it cannot use, else 0.";
    histogram SCHEDULE_LAG = "firesteel_schedule_lag_seconds_histogram": "Time from the instant a run was due to its creation, including waits for other runs.";
}

#[derive(Default)]
pub struct Metrics {
    prefix: String,
    /// Name, namespace → value.
    series: Mutex<BTreeMap<(&'static str, String), Series>>,
    /// Sources of the gauges.
    caches: Mutex<Vec<Weak<dyn Census>>>,
}

/// A cache that supplies gauges.
pub trait Census: Send + Sync {
    fn count(&self, tally: &mut Tally);
}

/// Counts by namespace.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<(&'static str, String), i64>);

impl Tally {
    /// Applications in state RUNNING. A namespace without any reports 0.
    pub fn running_applications(&mut self, namespace: &str, count: i64) {
        self.add(RUNNING, namespace, count);
    }

    /// Executors whose pods are running.
    pub fn running_executors(&mut self, namespace: &str, count: i64) {
        self.add(EXECUTORS_RUNNING, namespace, count);
    }

    /// The webhook's certificate: when it expires, and whether another one cannot be used.
    pub fn certificate(&mut self, namespace: &str, expires: i64, unusable: bool) {
        self.add(CERTIFICATE_EXPIRES, namespace, expires);
        self.add(CERTIFICATE_UNUSABLE, namespace, i64::from(unusable));
    }

    fn add(&mut self, name: &'static str, namespace: &str, count: i64) {
        *self.0.entry((name, namespace.to_owned())).or_default() += count;
    }
}

#[derive(Debug, Clone)]
enum Series {
    Counter(u64),
    Gauge(i64),
    Summary { sum: f64, count: u64 },
    Histogram { buckets: &'static [f64], counts: Vec<u64>, sum: f64, count: u64 },
}

impl Metrics {
    pub fn new(prefix: &str) -> Self {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{}_", prefix.replace('-', "_")) };
        Metrics { prefix, ..Metrics::default() }
    }

    /// Adds a source of gauges, used for as long as it exists.
    pub fn follow(&self, cache: Weak<dyn Census>) {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    }

    /// Counts one transition of an application.
    pub fn moved(
        &self,
        app: &SparkApplication,
        old: &SparkApplicationStatus,
        new: &SparkApplicationStatus,
        now: Timestamp,
    ) {
        let namespace = app.metadata.namespace.clone().unwrap_or_default();
        let (from, to) = (old.application_state.state.as_str(), new.application_state.state.as_str());
        let since_creation = app.metadata.creation_timestamp.as_ref().map(|t| seconds(t.0, now));
        let ran = new
            .last_submission_attempt_time
            .as_ref()
            .zip(new.termination_time.as_ref())
            .map(|(s, e)| seconds(s.0, e.0));
        let first = new.execution_attempts <= 1;
        if from.is_empty() {
            self.count(APPLICATIONS, &namespace);
        }
        match to {
            "SUBMITTED" if from != "RUNNING" => {
                self.count(SUBMITTED, &namespace);
                if let Some(latency) = since_creation.filter(|_| first) {
                    self.summary(SUBMIT_LATENCY, &namespace, latency);
                    self.histogram(SUBMIT_LATENCY_HISTOGRAM, &namespace, latency, SUBMIT_BUCKETS);
                }
            }
            "RUNNING" => {
                if let Some(latency) = since_creation.filter(|_| first) {
                    self.summary(START_LATENCY, &namespace, latency);
                    self.histogram(START_LATENCY_HISTOGRAM, &namespace, latency, START_BUCKETS);
                }
            }
            "SUBMISSION_FAILED" => self.count(SUBMISSIONS_FAILED, &namespace),
            "COMPLETED" => {
                self.count(SUCCEEDED, &namespace);
                if let Some(ran) = ran {
                    self.summary(SUCCESS_TIME, &namespace, ran);
                }
            }
            "FAILED" => {
                self.count(FAILED, &namespace);
                if let Some(ran) = ran {
                    self.summary(FAILURE_TIME, &namespace, ran);
                }
            }
            _ => {}
        }
    }

    /// Counts what became of executors.
    pub fn executors(&self, app: &SparkApplication, old: &SparkApplicationStatus, new: &SparkApplicationStatus) {
        if old.executor_counts == new.executor_counts {
            return;
        }
        let namespace = app.metadata.namespace.clone().unwrap_or_default();
        let same_run = old.submission_id == new.submission_id;
        let before = old.executor_counts.clone().unwrap_or_default();
        let after = new.executor_counts.clone().unwrap_or_default();
        if same_run {
            for _ in before.completed..after.completed {
                self.count(EXECUTORS_SUCCEEDED, &namespace);
            }
            for _ in before.failed..after.failed {
                self.count(EXECUTORS_FAILED, &namespace);
            }
        }
    }

    /// Counts an executor created by the operator, and how long that took since the decision.
    pub fn executor_created(&self, namespace: &str, seconds: f64) {
        self.count(EXECUTORS_CREATED, namespace);
        self.histogram(CREATION_TIME, namespace, seconds, CREATION_BUCKETS);
    }

    /// Counts an executor that the cluster rejected.
    pub fn executor_refused(&self, namespace: &str) {
        self.count(EXECUTORS_REFUSED, namespace);
    }

    /// Counts an executor that was lost.
    pub fn executor_lost(&self, namespace: &str, cause: Cause) {
        match cause {
            Cause::Application => self.count(EXECUTORS_LOST_BY_APPLICATION, namespace),
            Cause::Platform => self.count(EXECUTORS_LOST_BY_PLATFORM, namespace),
            Cause::Withdrawn => self.count(EXECUTORS_WITHDRAWN, namespace),
        }
    }

    /// Counts a write that the webhook allowed.
    pub fn admitted(&self, namespace: &str) {
        self.count(ADMITTED, namespace);
    }

    /// Counts a write that the webhook refused.
    pub fn not_admitted(&self, namespace: &str) {
        self.count(NOT_ADMITTED, namespace);
    }

    /// Counts a run of a schedule, and how late it is.
    pub fn run_started(&self, namespace: &str, lag: f64) {
        self.count(RUNS_STARTED, namespace);
        self.histogram(SCHEDULE_LAG, namespace, lag, LAG_BUCKETS);
    }

    /// Counts runs of a schedule that were given up.
    pub fn runs_missed(&self, namespace: &str, count: usize) {
        for _ in 0..count {
            self.count(RUNS_MISSED, namespace);
        }
    }

    fn with(
        &self,
        name: &'static str,
        namespace: &str,
        new: impl FnOnce() -> Series,
        change: impl FnOnce(&mut Series),
    ) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        change(series.entry((name, namespace.to_owned())).or_insert_with(new));
    }

    fn count(&self, name: &'static str, namespace: &str) {
        self.with(
            name,
            namespace,
            || Series::Counter(0),
            |s| {
                if let Series::Counter(n) = s {
                    *n += 1;
                }
            },
        );
    }

    fn summary(&self, name: &'static str, namespace: &str, value: f64) {
        self.with(
            name,
            namespace,
            || Series::Summary { sum: 0.0, count: 0 },
            |s| {
                if let Series::Summary { sum, count } = s {
                    *sum += value;
                    *count += 1;
                }
            },
        );
    }

    fn histogram(&self, name: &'static str, namespace: &str, value: f64, buckets: &'static [f64]) {
        let new = || Series::Histogram { buckets, counts: vec![0; buckets.len()], sum: 0.0, count: 0 };
        self.with(name, namespace, new, |s| {
            if let Series::Histogram { buckets, counts, sum, count } = s {
                for (bound, n) in buckets.iter().zip(counts) {
                    *n += u64::from(value <= *bound);
                }
                *sum += value;
                *count += 1;
            }
        });
    }

    /// All metrics in the text format.
    pub fn text(&self) -> String {
        let mut tally = Tally::default();
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.upgrade().map(|cache| cache.count(&mut tally)).is_some());
        drop(caches);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        // A gauge seen once stays, so that it ends in a zero rather than a gap.
        for value in series.values_mut() {
            if let Series::Gauge(count) = value {
                *count = 0;
            }
        }
        series.extend(tally.0.into_iter().map(|(key, count)| (key, Series::Gauge(count))));
        let mut out = String::new();
        let mut last = "";
        for ((name, namespace), value) in series.iter() {
            let full = format!("{}{name}", self.prefix);
            let label = format!("namespace=\"{namespace}\"");
            let kind = match value {
                Series::Counter(_) => "counter",
                Series::Gauge(_) => "gauge",
                Series::Summary { .. } => "summary",
                Series::Histogram { .. } => "histogram",
            };
            if last != *name {
                let _ = writeln!(out, "# TYPE {full} {kind}");
                last = name;
            }
            let _ = match value {
                Series::Counter(n) => writeln!(out, "{full}{{{label}}} {n}"),
                Series::Gauge(n) => writeln!(out, "{full}{{{label}}} {n}"),
                Series::Summary { sum, count } => {
                    writeln!(out, "{full}_sum{{{label}}} {sum}\n{full}_count{{{label}}} {count}")
                }
                Series::Histogram { buckets, counts, sum, count } => {
                    for (bound, n) in buckets.iter().zip(counts) {
                        let _ = writeln!(out, "{full}_bucket{{{label},le=\"{bound}\"}} {n}");
                    }
                    let _ = writeln!(out, "{full}_bucket{{{label},le=\"+Inf\"}} {count}");
                    writeln!(out, "{full}_sum{{{label}}} {sum}\n{full}_count{{{label}}} {count}")
                }
            };
        }
        out
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn status(state: &str) -> SparkApplicationStatus {
        let mut status = SparkApplicationStatus::default();
        state.clone_into(&mut status.application_state.state);
        status
    }

    #[test]
    fn d22_transitions_are_counted_once_each() {
        let metrics = Metrics::new("my-team");
        let mut app = SparkApplication::default();
        app.metadata.namespace = Some("n".into());
        let states = ["", "SUBMITTED", "RUNNING", "SUCCEEDING", "COMPLETED"];
        for pair in states.windows(2) {
            metrics.moved(&app, &status(pair[0]), &status(pair[1]), Timestamp::UNIX_EPOCH);
        }
        let text = metrics.text();
        for line in [
            "my_team_spark_application_count{namespace=\"n\"} 1",
            "my_team_spark_application_submit_count{namespace=\"n\"} 1",
            "my_team_spark_application_success_count{namespace=\"n\"} 1",
            "# TYPE my_team_spark_application_success_count counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    struct Cache(Mutex<i64>);

    impl Census for Cache {
        fn count(&self, tally: &mut Tally) {
            let count = *self.0.lock().unwrap();
            if count >= 0 {
                tally.running_applications("n", count);
                tally.running_executors("n", 2 * count);
            }
        }
    }

    #[test]
    fn gauges_are_what_the_caches_hold() {
        let metrics = Metrics::new("");
        let caches = [Arc::new(Cache(Mutex::new(2))), Arc::new(Cache(Mutex::new(1)))];
        for cache in &caches {
            let weak: Weak<Cache> = Arc::downgrade(cache);
            metrics.follow(weak);
        }
        let shows = |count: i64| {
            let text = metrics.text();
            for (name, count) in [("spark_application", count), ("spark_executor", 2 * count)] {
                let line = format!("{name}_running_count{{namespace=\"n\"}} {count}");
                assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
            }
        };
        shows(3);
        shows(3);
        *caches[0].0.lock().unwrap() = 0;
        shows(1);
        drop(caches);
        shows(0);
    }

    #[test]
    fn executors_are_counted_by_what_became_of_them() {
        let metrics = Metrics::new("");
        metrics.executor_created("n", 0.04);
        metrics.executor_created("n", 0.4);
        metrics.executor_refused("n");
        [Cause::Platform, Cause::Platform, Cause::Application, Cause::Withdrawn]
            .into_iter()
            .for_each(|cause| metrics.executor_lost("n", cause));
        let text = metrics.text();
        for line in [
            "firesteel_executor_created_count{namespace=\"n\"} 2",
            "firesteel_executor_creation_seconds_histogram_bucket{namespace=\"n\",le=\"0.05\"} 1",
            "firesteel_executor_creation_seconds_histogram_count{namespace=\"n\"} 2",
            "firesteel_executor_refused_count{namespace=\"n\"} 1",
            "firesteel_executor_lost_by_application_count{namespace=\"n\"} 1",
            "firesteel_executor_lost_by_platform_count{namespace=\"n\"} 2",
            "firesteel_executor_withdrawn_count{namespace=\"n\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
