use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::ToSpan;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + second.seconds()
}

/// A status in a state that was entered at a second, after those before.
fn status(before: &SparkApplicationStatus, state: &str, second: i64) -> SparkApplicationStatus {
    let mut status = before.clone();
    state.clone_into(&mut status.application_state.state);
    status.state_times.insert(state.to_owned(), Time(at(second)));
    status
}

fn app(namespace: &str, labels: &[(&str, &str)]) -> SparkApplication {
    let mut app = SparkApplication::default();
    app.metadata.namespace = Some(namespace.to_owned());
    app.metadata.creation_timestamp = Some(Time(at(0)));
    app.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    app
}

fn labelled(names: &[&str]) -> Metrics {
    let labels = LabelNames::new(names.iter().copied()).unwrap();
    Metrics::new(&MetricsOptions { labels, ..MetricsOptions::default() }, RequestCounts::default())
}

#[track_caller]
fn shows(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text(Format::Text, Timestamp::now());
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} is not in\n{text}");
    }
}

#[track_caller]
fn lacks(metrics: &Metrics, part: &str, now: Timestamp) {
    let text = metrics.text(Format::Text, now);
    assert!(!text.contains(part), "{part} is in\n{text}");
}

/// Runs an application from its creation to its completion. One write passes through SUCCEEDING.
fn run(metrics: &Metrics, app: &SparkApplication) {
    let mut old = SparkApplicationStatus::default();
    for (states, second) in [(&["SUBMITTED"][..], 2), (&["RUNNING"], 7), (&["SUCCEEDING", "COMPLETED"], 100)] {
        let mut new = states.iter().fold(old.clone(), |before, state| status(&before, state, second));
        (new.submission_attempts, new.execution_attempts) = (1, 1);
        new.last_submission_attempt_time = Some(Time(at(2)));
        new.termination_time = (second == 100).then(|| Time(at(second)));
        metrics.moved(app, &old, &new, at(second));
        old = new;
    }
}

#[test]
fn d22_transitions_are_counted_once_each() {
    let labels = LabelNames::new(["app_type", "namespace"]).unwrap();
    let options = MetricsOptions { labels, prefix: "my-team_".to_owned(), ..MetricsOptions::default() };
    let metrics = Metrics::new(&options, RequestCounts::default());
    run(&metrics, &app("n", &[("app_type", "batch")]));
    let with = |name: &str, value: &str| format!("my_team_{name}{{app_type=\"batch\",namespace=\"n\"}} {value}");
    let lines = [
        with("spark_application_count", "1"),
        with("spark_application_submit_count", "1"),
        with("spark_application_success_count", "1"),
        with("spark_application_submit_latency_seconds_sum", "2"),
        with("spark_application_start_latency_seconds_count", "1"),
        with("spark_application_success_execution_time_seconds_sum", "98"),
        "# TYPE my_team_spark_application_success_count counter".to_owned(),
        "# TYPE my_team_spark_application_submit_latency_seconds summary".to_owned(),
    ];
    shows(&metrics, &lines.each_ref().map(String::as_str));
}

#[test]
fn time_in_each_state_is_observed_also_if_one_write_passes_through_several() {
    let metrics = labelled(&[]);
    run(&metrics, &app("n", &[]));
    let time = "firesteel_application_state_duration_seconds";
    shows(
        &metrics,
        &[
            &format!("{time}_sum{{namespace=\"n\",state=\"NEW\"}} 2"),
            &format!("{time}_sum{{namespace=\"n\",state=\"SUBMITTED\"}} 5"),
            &format!("{time}_sum{{namespace=\"n\",state=\"RUNNING\"}} 93"),
            &format!("{time}_count{{namespace=\"n\",state=\"SUCCEEDING\"}} 1"),
            "firesteel_application_transitions_total{namespace=\"n\",state=\"SUCCEEDING\"} 1",
            "firesteel_application_transitions_total{namespace=\"n\",state=\"COMPLETED\"} 1",
            "spark_application_count 1",
        ],
    );
    lacks(&metrics, &format!("{time}_count{{namespace=\"n\",state=\"COMPLETED\"}}"), Timestamp::now());
}

#[test]
fn buckets_are_those_of_the_flags() {
    let options = MetricsOptions { submit_buckets: vec![1.5, 3.0], ..MetricsOptions::default() };
    let metrics = Metrics::new(&options, RequestCounts::default());
    run(&metrics, &app("n", &[]));
    let name = "spark_application_submit_latency_seconds_histogram_bucket";
    shows(
        &metrics,
        &[
            &format!("{name}{{le=\"1.5\"}} 0"),
            &format!("{name}{{le=\"3\"}} 1"),
            &format!("{name}{{le=\"+Inf\"}} 1"),
            "spark_application_start_latency_seconds_histogram_bucket{le=\"30\"} 1",
        ],
    );
    lacks(&metrics, &format!("{name}{{le=\"256\"}}"), Timestamp::now());
}

#[test]
fn without_application_metrics_only_those_of_the_operator_are_exported() {
    let options = MetricsOptions { applications: false, ..MetricsOptions::default() };
    let metrics = Metrics::new(&options, RequestCounts::default());
    run(&metrics, &app("n", &[]));
    lacks(&metrics, "spark_application", Timestamp::now());
    shows(&metrics, &["firesteel_application_transitions_total{namespace=\"n\",state=\"COMPLETED\"} 1"]);
}

struct Cache(Mutex<Vec<(SparkApplication, &'static str)>>);

impl Census for Cache {
    fn count(&self, tally: &mut Tally<'_>) {
        tally.connect("connects", "Ready");
        tally.waiting_creations(3);
        for (app, state) in lock(&self.0).iter() {
            tally.application(&app.namespace().unwrap_or_default(), app.labels(), state);
        }
    }
}

#[test]
fn gauges_are_what_the_caches_hold_and_counters_begin_at_zero() {
    let metrics = labelled(&["team"]);
    let apps =
        vec![(app("n", &[("team", "a")]), "RUNNING"), (app("n", &[("team", "a")]), "RUNNING"), (app("n", &[]), "")];
    let cache = Arc::new(Cache(Mutex::new(apps)));
    let weak: Weak<Cache> = Arc::downgrade(&cache);
    metrics.follow(weak);
    for _ in 0..2 {
        shows(
            &metrics,
            &[
                "spark_application_running_count{team=\"a\"} 2",
                "spark_application_running_count{team=\"Unknown\"} 0",
                "spark_application_failure_count{team=\"a\"} 0",
                "firesteel_applications{namespace=\"n\",team=\"a\",state=\"RUNNING\"} 2",
                "firesteel_applications{namespace=\"n\",team=\"Unknown\",state=\"NEW\"} 1",
                "firesteel_application_transitions_total{namespace=\"n\",team=\"a\",state=\"FAILED\"} 0",
            ],
        );
    }
    shows(
        &metrics,
        &[
            "firesteel_connect_servers{namespace=\"connects\",state=\"Ready\"} 1",
            "firesteel_executor_creations_waiting 3",
        ],
    );
    for wrong in ["namespace=\"\"", "spark_application_count 0", "spark_application_count{team=\"connects"] {
        lacks(&metrics, wrong, Timestamp::now());
    }
    lock(&cache.0).clear();
    shows(&metrics, &["spark_application_running_count{team=\"a\"} 0"]);
    // An hour after the last application with it is gone, a value is gone.
    lacks(&metrics, "team=\"a\"", Timestamp::now() + 61.minutes());
}

#[test]
fn too_many_label_values_are_counted_as_other() {
    let labels = LabelNames::new(["user", "namespace"]).unwrap();
    let options = MetricsOptions { labels, max_label_sets: 40, ..MetricsOptions::default() };
    let metrics = Metrics::new(&options, RequestCounts::default());
    for user in 0..1000 {
        run(&metrics, &app("n", &[("user", &user.to_string())]));
    }
    let text = metrics.text(Format::Text, Timestamp::now());
    let series = text.lines().filter(|line| line.starts_with("spark_application_count{")).count();
    assert!(series <= 41, "{series} series");
    let other = text.lines().find_map(|l| l.strip_prefix("spark_application_count{user=\"other\",namespace=\"n\"} "));
    assert!(other.unwrap().parse::<u32>().unwrap() > 950, "{text}");
    assert!(
        text.contains("firesteel_application_transitions_total{namespace=\"n\",user=\"other\",state=\"COMPLETED\"}")
    );
    for namespace in 0..1000 {
        run(&metrics, &app(&namespace.to_string(), &[]));
    }
    assert!(lock(&metrics.series).len() <= 84, "namespaces are limited too");
    shows(&metrics, &["# TYPE firesteel_metrics_label_sets gauge"]);
}

#[test]
fn executors_are_counted_by_what_became_of_them() {
    let metrics = labelled(&[]);
    metrics.executor_created("n", 0.04);
    metrics.executor_created("n", 0.4);
    metrics.executor_refused("n");
    [Cause::Platform, Cause::Platform, Cause::Application, Cause::Withdrawn]
        .into_iter()
        .for_each(|cause| metrics.executor_lost("n", cause, None));
    shows(
        &metrics,
        &[
            "firesteel_executors_created_total{namespace=\"n\"} 2",
            "firesteel_executor_creation_duration_seconds_bucket{namespace=\"n\",le=\"0.05\"} 1",
            "firesteel_executor_creation_duration_seconds_count{namespace=\"n\"} 2",
            "firesteel_executors_refused_total{namespace=\"n\"} 1",
            "firesteel_executors_lost_total{namespace=\"n\",cause=\"application\"} 1",
            "firesteel_executors_lost_total{namespace=\"n\",cause=\"platform\"} 2",
            "firesteel_executors_lost_total{namespace=\"n\",cause=\"withdrawn\"} 1",
        ],
    );
}

#[test]
fn passes_show_in_queues_and_workers() {
    let metrics = Arc::new(labelled(&[]));
    metrics.workers("c", 10);
    let (waiting, abandoned) = (metrics.queue("c"), metrics.queue("c"));
    shows(&metrics, &["workqueue_depth{controller=\"c\",name=\"c\"} 2"]);
    drop(abandoned);
    let working = waiting.begin();
    let queue = "{controller=\"c\",name=\"c\"}";
    shows(
        &metrics,
        &[
            &format!("workqueue_depth{queue} 0"),
            &format!("workqueue_adds_total{queue} 2"),
            &format!("workqueue_queue_duration_seconds_count{queue} 1"),
            "controller_runtime_active_workers{controller=\"c\"} 1",
            "controller_runtime_max_concurrent_reconciles{controller=\"c\"} 10",
        ],
    );
    working.end(&Ok(Action::await_change()));
    metrics.queue("c").begin().end(&Err(Error::Slow(60)));
    metrics.queue("c").begin().end(&Err(Error::Changed));
    shows(
        &metrics,
        &[
            "controller_runtime_active_workers{controller=\"c\"} 0",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"c\"} 1",
            "controller_runtime_reconcile_time_seconds_count{controller=\"c\"} 3",
        ],
    );
}

#[test]
fn openmetrics_keeps_the_names_of_the_text_format() {
    let metrics = labelled(&["team"]);
    run(&metrics, &app("n", &[("team", "a")]));
    let names = |format| -> BTreeSet<String> {
        let text = metrics.text(format, at(0));
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
        lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    assert_eq!(names(Format::Text), names(Format::OpenMetrics));
    let text = metrics.text(Format::OpenMetrics, at(0));
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("# TYPE spark_application_count unknown\nspark_application_count{team=\"a\"} 1\n"), "{text}");
    assert!(text.contains("# TYPE firesteel_application_transitions counter\n"), "{text}");
}

#[test]
fn names_follow_the_conventions_except_those_of_the_existing_operator() {
    let mut names = BTreeSet::new();
    for family in ALL {
        assert!(names.insert(family.name), "{} is there twice", family.name);
        assert!(!family.help.is_empty() && family.help.ends_with('.'), "{}", family.name);
        if !family.name.starts_with("firesteel_") {
            continue;
        }
        assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
        let lasts = family.name.ends_with("_seconds") && !family.name.ends_with("_timestamp_seconds");
        assert_eq!(lasts, family.kind == Kind::Histogram, "{}", family.name);
    }
}
