//! Numbers about applications, under the names dashboards know, in the Prometheus text format.
//!
//! Counters count transitions this operator made, so a restart or a new leader does not count anything again.
//! Written out by hand: prometheus-client ends the names of counters in `_total` and has no summaries, and dashboards know
//! neither change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use firesteel_api::executors::Cause;
use firesteel_api::{SparkApplication, SparkApplicationStatus};
use k8s_openapi::jiff::Timestamp;

const SUBMIT_BUCKETS: &[f64] = &[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
const START_BUCKETS: &[f64] = &[1.0, 5.0, 10.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0];
const CREATION_BUCKETS: &[f64] = &[0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

#[derive(Debug, Default)]
pub struct Metrics {
    prefix: String,
    /// Name, namespace → value.
    series: Mutex<BTreeMap<(&'static str, String), Series>>,
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
        Metrics { prefix, series: Mutex::default() }
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
            self.count("spark_application_count", &namespace);
        }
        if from == "RUNNING" {
            self.gauge("spark_application_running_count", &namespace, -1);
        }
        match to {
            "SUBMITTED" if from != "RUNNING" => {
                self.count("spark_application_submit_count", &namespace);
                if let Some(latency) = since_creation.filter(|_| first) {
                    self.summary("spark_application_submit_latency_seconds", &namespace, latency);
                    self.histogram(
                        "spark_application_submit_latency_seconds_histogram",
                        &namespace,
                        latency,
                        SUBMIT_BUCKETS,
                    );
                }
            }
            "RUNNING" => {
                self.gauge("spark_application_running_count", &namespace, 1);
                if let Some(latency) = since_creation.filter(|_| first) {
                    self.summary("spark_application_start_latency_seconds", &namespace, latency);
                    self.histogram(
                        "spark_application_start_latency_seconds_histogram",
                        &namespace,
                        latency,
                        START_BUCKETS,
                    );
                }
            }
            "SUBMISSION_FAILED" => self.count("spark_application_failed_submission_count", &namespace),
            "COMPLETED" => {
                self.count("spark_application_success_count", &namespace);
                if let Some(ran) = ran {
                    self.summary("spark_application_success_execution_time_seconds", &namespace, ran);
                }
            }
            "FAILED" => {
                self.count("spark_application_failure_count", &namespace);
                if let Some(ran) = ran {
                    self.summary("spark_application_failure_execution_time_seconds", &namespace, ran);
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
        self.gauge("spark_executor_running_count", &namespace, i64::from(after.running) - i64::from(before.running));
        if same_run {
            for _ in before.completed..after.completed {
                self.count("spark_executor_success_count", &namespace);
            }
            for _ in before.failed..after.failed {
                self.count("spark_executor_failure_count", &namespace);
            }
        }
    }

    /// Counts an executor that the operator made itself, so long after that was decided.
    pub fn executor_created(&self, namespace: &str, seconds: f64) {
        self.count("firesteel_executor_created_count", namespace);
        self.histogram("firesteel_executor_creation_seconds_histogram", namespace, seconds, CREATION_BUCKETS);
    }

    /// Counts an executor that the cluster would not take.
    pub fn executor_refused(&self, namespace: &str) {
        self.count("firesteel_executor_refused_count", namespace);
    }

    /// Counts an executor that was lost.
    pub fn executor_lost(&self, namespace: &str, cause: Cause) {
        match cause {
            Cause::Application => self.count("firesteel_executor_lost_by_application_count", namespace),
            Cause::Platform => self.count("firesteel_executor_lost_by_platform_count", namespace),
            Cause::Withdrawn => self.count("firesteel_executor_withdrawn_count", namespace),
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

    fn gauge(&self, name: &'static str, namespace: &str, by: i64) {
        self.with(
            name,
            namespace,
            || Series::Gauge(0),
            |s| {
                if let Series::Gauge(n) = s {
                    // One that ran before this operator started was never counted in.
                    *n = (*n + by).max(0);
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

    /// Everything in the text format.
    pub fn text(&self) -> String {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
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
            "my_team_spark_application_running_count{namespace=\"n\"} 0",
            "my_team_spark_application_success_count{namespace=\"n\"} 1",
            "# TYPE my_team_spark_application_success_count counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
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
