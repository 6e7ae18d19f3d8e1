//! What `firesteel operator` really exports, against everything that relies on it: the list read from a real run of the
//! existing operator (`tests/monitoring`), the alert rules and the dashboard in `deploy/`, and promtool.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use firesteel_core::event_reason::application;
use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::operator::{Ended, free, get, kubectl};
use crate::place::Place;
use crate::program::{Run as _, firesteel};

const PATIENCE: Duration = Duration::from_secs(180);

/// Metrics of the existing operator that Firesteel does not have, by name or by the beginning of their names.
const MISSING: &[(&str, &str)] = &[
    ("certwatcher_", "a certificate from files is read again at the next handshake; nothing watches it"),
    ("controller_runtime_reconcile_panics_total", "a pass that panics ends the process"),
    ("controller_runtime_terminal_reconcile_errors_total", "every error is retried"),
    ("controller_runtime_webhook_panics_total", "the controller has no webhook of controller-runtime"),
    ("go_", "there is no Go runtime; process_* has CPU and memory"),
    ("process_network_", "of the whole network namespace, not of the process; the kubelet has it by pod"),
    ("process_virtual_memory_max_bytes", "there is no limit on address space in a pod"),
    (
        "workqueue_longest_running_processor_seconds",
        "a pass ends after 60 s; workqueue_work_duration_seconds has them all",
    ),
    ("workqueue_unfinished_work_seconds", "a pass ends after 60 s; workqueue_work_duration_seconds has them all"),
];

/// Events whose type differs from the existing operator's, with the reason.
const OTHER_TYPE: &[(&str, &str)] = &[
    ("SparkApplicationSuspending", "someone asked for it, so it is not a warning"),
    ("SparkApplicationSuspended", "someone asked for it, so it is not a warning"),
    ("SparkApplicationResuming", "someone asked for it, so it is not a warning"),
];

/// Labels that Prometheus adds to every series.
const OF_PROMETHEUS: &[&str] = &["instance", "job", "le"];

#[derive(Deserialize)]
struct Existing {
    labels: Vec<String>,
    metrics: Vec<Family>,
    events: Vec<Reported>,
}

#[derive(Debug, Default, Deserialize)]
struct Family {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    labels: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Reported {
    reason: String,
    #[serde(rename = "type")]
    kind: String,
    reporter: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Families by name, as the text format names them.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    let names: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let family = Family { name: name.to_owned(), kind: kind.to_owned(), labels: BTreeSet::new() };
            assert!(found.insert(name.to_owned(), family).is_none(), "{name} is there twice");
        } else if !line.starts_with('#') && !line.is_empty() {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let family = found.get_mut(family_of(name, &names)).unwrap_or_else(|| panic!("{line} has no type"));
            family.labels.extend(label_names(labels.trim_end_matches('}')).into_iter().filter(|label| label != "le"));
        }
    }
    found
}

/// The family that a sample belongs to.
fn family_of<'a>(sample: &'a str, families: &BTreeSet<&str>) -> &'a str {
    let ends = ["_bucket", "_sum", "_count"];
    if families.contains(sample) {
        return sample;
    }
    ends.iter().filter_map(|end| sample.strip_suffix(end)).find(|base| families.contains(base)).unwrap_or(sample)
}

/// The names in `a="1",b="2"`.
fn label_names(labels: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), labels);
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name.trim_start_matches(',').to_owned());
        let mut escaped = false;
        let end = value.find(|c| {
            let is_end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        });
        rest = &value[end.expect("a quote") + 1..];
    }
    names
}

/// Words and single characters of a PromQL expression, without strings.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let (mut is_quoted, mut in_word) = (false, false);
    for c in expression.chars() {
        let is_word = (c.is_ascii_alphanumeric() || c == '_' || c == '.') && !is_quoted;
        match tokens.last_mut() {
            Some(last) if is_word && in_word => last.push(c),
            _ if is_word => tokens.push(c.to_string()),
            _ if !is_quoted && c != '"' && !c.is_whitespace() => tokens.push(c.to_string()),
            _ => {}
        }
        in_word = is_word;
        is_quoted ^= c == '"';
    }
    tokens
}

/// A PromQL expression's metrics and the labels it uses. Enough for the expressions in `deploy/`.
fn uses(expression: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut metrics, mut labels) = (BTreeSet::new(), BTreeSet::new());
    let is_name = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let tokens = tokens(expression);
    let mut rest = tokens.iter().map(String::as_str).peekable();
    while let Some(token) = rest.next() {
        let next = rest.peek().copied().unwrap_or_default();
        match token {
            "[" => while rest.next().is_some_and(|t| t != "]") {},
            "{" => labels.extend(rest.by_ref().take_while(|t| *t != "}").filter(|t| is_name(t)).map(str::to_owned)),
            "by" | "without" | "on" | "ignoring" => {
                labels.extend(rest.by_ref().take_while(|t| *t != ")").filter(|t| is_name(t)).map(str::to_owned));
            }
            "and" | "or" | "unless" => {}
            // Functions, and aggregations with their labels first.
            word if is_name(word) && !matches!(next, "(" | "by" | "without") => {
                metrics.insert(word.to_owned());
            }
            _ => {}
        }
    }
    (metrics, labels)
}

#[test]
fn expressions_are_taken_apart() {
    let set = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<BTreeSet<_>>();
    let one = "histogram_quantile(0.9, sum by (state, le) (rate(a_bucket{namespace=~\"$n\",x!=\"b{c\"}[5m]))) > 5";
    assert_eq!(uses(one), (set(&["a_bucket"]), set(&["state", "le", "namespace", "x"])));
    assert_eq!(uses("60 * sum(rate(a[1h])) / (sum by (c) (b) > 0)"), (set(&["a", "b"]), set(&["c"])));
    assert_eq!(uses("absent(ready == 1)"), (set(&["ready"]), set(&[])));
}

/// What an operator exported, and the events it published, after a run of applications of all kinds.
struct Run {
    text: String,
    open_metrics: String,
    events: Vec<Event>,
}

fn application(name: &str, driver: &Value, more: &Value) -> Value {
    let mut spec = json!({
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar", "restartPolicy": {"type": "Never"},
        "driver": {"cores": 1, "memory": "512m", "serviceAccount": "default"}, "executor": {"instances": 1, "memory": "512m"},
    });
    merge(&mut spec["driver"], driver);
    merge(&mut spec, more);
    json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
        "metadata": {"name": name, "labels": {"app_type": "batch"}}, "spec": spec})
}

fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        target[key] = value.clone();
    }
}

fn wait(place: &Place, name: &str, state: &str) {
    let condition = format!("--for=jsonpath={{.status.applicationState.state}}={state}");
    kubectl(place, &["wait", &format!("sparkapp/{name}"), &condition, "--timeout=120s"], "");
}

/// Creates an executor pod as Spark would; it ends by itself.
fn executor(place: &Place, app: &str, submission: &str, number: u32, code: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{app}-exec-{number}"),
        "annotations": {"testenv.firesteel.dev/run-for": "2s", "testenv.firesteel.dev/exit-code": code},
        "labels": {"sparkoperator.k8s.io/app-name": app, "sparkoperator.k8s.io/submission-id": submission,
            "sparkoperator.k8s.io/launched-by-spark-operator": "true", "spark-role": "executor",
            "spark-exec-id": number.to_string()}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "spark-kubernetes-executor", "image": "i",
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]}});
    kubectl(place, &["apply", "-f", "-"], &pod.to_string());
}

async fn exercise(place: &Place, labels: &[String]) -> Run {
    let crds = firesteel(["crds"]).run();
    kubectl(place, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &crds.stdout);
    kubectl(place, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], "");
    let metrics = free();
    let mut command = firesteel(["operator", "--leader-election", "--namespaces", place.name()]);
    command.arg("--kubeconfig").arg(place.env.kubeconfig()).args(["--leader-election-lock-namespace", place.name()]);
    command.args(["--health-probe-bind-address", "0", "--metrics-bind-address", &metrics.to_string()]);
    command.args(["--enable-metrics=true", &format!("--metrics-labels={}", labels.join(","))]);
    // The webhook has metrics of its own. While it does not answer, everything is stored.
    let webhook = free();
    command.args(["--enable-webhook", "--webhook-failure-policy=Ignore", "--webhook-secret-namespace", place.name()]);
    command.args(["--webhook-url", &format!("https://{webhook}"), "--webhook-port", &webhook.port().to_string()]);
    command.args(["--validating-webhook-name", place.name()]);
    command.stderr(Stdio::null());
    let operator = Ended(Some(command.spawn().expect("the operator starts")));

    let fails = json!({"annotations": {"testenv.firesteel.dev/exit-code": "1"}});
    let slow = json!({"annotations": {"testenv.firesteel.dev/run-for": "20s"}});
    let again = json!({"restartPolicy": {"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1}});
    let nothing = json!({});
    for app in [
        application("success", &nothing, &nothing),
        application("failure", &fails, &nothing),
        application("refused", &json!({"serviceAccount": "missing"}), &nothing),
        application("again", &fails, &again),
        application("suspended", &slow, &nothing),
        application("executors", &slow, &nothing),
    ] {
        kubectl(place, &["apply", "-f", "-"], &app.to_string());
    }
    let template = application("", &nothing, &nothing)["spec"].clone();
    let schedule = json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "ScheduledSparkApplication",
        "metadata": {"name": "often"}, "spec": {"schedule": "@every 5s", "concurrencyPolicy": "Allow", "template": template}});
    kubectl(place, &["apply", "-f", "-"], &schedule.to_string());
    let connect = json!({"apiVersion": "sparkoperator.k8s.io/v1alpha1", "kind": "SparkConnect", "metadata": {"name": "connect"},
        "spec": {"sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "server": {}, "executor": {"instances": 1}}});
    kubectl(place, &["apply", "-f", "-"], &connect.to_string());

    wait(place, "executors", "RUNNING");
    let apps: Api<firesteel_api::SparkApplication> = Api::namespaced(place.client.clone(), place.name());
    let submission = apps.get("executors").await.unwrap().status.unwrap().submission_id.unwrap();
    executor(place, "executors", &submission, 1, "0");
    executor(place, "executors", &submission, 2, "1");
    wait(place, "suspended", "RUNNING");
    let suspend = |suspend: bool| json!({"spec": {"suspend": suspend}}).to_string();
    kubectl(place, &["patch", "sparkapp/suspended", "--type=merge", "-p", &suspend(true)], "");
    wait(place, "suspended", "SUSPENDED");
    kubectl(place, &["patch", "sparkapp/suspended", "--type=merge", "-p", &suspend(false)], "");
    for (name, state) in [
        ("success", "COMPLETED"),
        ("failure", "FAILED"),
        ("refused", "FAILED"),
        ("again", "FAILED"),
        ("executors", "COMPLETED"),
        ("suspended", "COMPLETED"),
    ] {
        wait(place, name, state);
    }
    let began = Instant::now();
    let lag = format!("firesteel_schedule_lag_seconds_count{{namespace=\"{}\"}}", place.name());
    let mut text = scrape(metrics, "");
    while !text.contains(&lag) {
        assert!(began.elapsed() < PATIENCE, "no scheduled run in {text}");
        std::thread::sleep(Duration::from_millis(500));
        text = scrape(metrics, "");
    }
    // Events of a run that goes well wait a moment.
    std::thread::sleep(Duration::from_secs(7));
    let events: Api<Event> = Api::namespaced(place.client.clone(), place.name());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let run = Run { text: scrape(metrics, ""), open_metrics: scrape(metrics, "application/openmetrics-text"), events };
    drop(operator);
    kubectl(place, &["delete", "validatingwebhookconfiguration", place.name()], "");
    run
}

fn scrape(at: SocketAddr, accept: &str) -> String {
    get(at, "/metrics", &[("accept", accept)]).map(|(_, body)| body).unwrap_or_default()
}

fn promtool(program: &Path, arguments: &[&str], input: &str) -> (i32, String) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), said)
}

/// Every metric of the existing operator is exported with the same type and labels, or listed with the reason why not.
fn same_metrics(existing: &Existing, ours: &BTreeMap<String, Family>) {
    let excused = |name: &str| MISSING.iter().any(|(start, _)| name.starts_with(start));
    for theirs in &existing.metrics {
        match ours.get(&theirs.name) {
            None => assert!(excused(&theirs.name), "{} is not exported", theirs.name),
            Some(own) => {
                assert!(!excused(&theirs.name), "{} is exported and listed as missing", theirs.name);
                assert_eq!(own.kind, theirs.kind, "{}", theirs.name);
                assert_eq!(own.labels, theirs.labels, "{}", theirs.name);
            }
        }
    }
}

/// Every reason of the existing operator is in use; published ones have the same type and reporter.
fn same_events(existing: &Existing, published: &[Event]) {
    let mut seen = BTreeSet::new();
    for theirs in &existing.events {
        assert!(application::ALL.iter().any(|(reason, _)| *reason == theirs.reason), "{} is not in use", theirs.reason);
        for own in published.iter().filter(|event| event.reason.as_deref() == Some(&theirs.reason)) {
            let is_other = own.type_.as_deref() != Some(&theirs.kind);
            let is_listed = OTHER_TYPE.iter().any(|(reason, _)| *reason == theirs.reason);
            assert_eq!(is_other, is_listed, "{}: {:?}", theirs.reason, own.type_);
            assert_eq!(own.reporting_component.as_deref(), Some(theirs.reporter.as_str()), "{}", theirs.reason);
            seen.insert(theirs.reason.as_str());
        }
    }
    // The others may be part of an event with a later reason.
    for certain in
        ["SparkApplicationFailed", "SparkDriverFailed", "SparkApplicationPendingRerun", "SparkExecutorFailed"]
    {
        assert!(seen.contains(certain), "{certain} was not published: {seen:?}");
    }
}

/// The expressions of the dashboard, with its variables filled in.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/firesteel.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().cloned());
    let mut all: Vec<String> = targets.flatten().map(|t| t["expr"].as_str().unwrap().to_owned()).collect();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        // label_values(metric, label)
        if let Some(query) = variable["query"]["query"].as_str() {
            let (metric, label) =
                query.strip_prefix("label_values(").unwrap().trim_end_matches(')').split_once(", ").unwrap();
            all.push(format!("sum by ({label}) ({metric})"));
        }
    }
    let filled = |text: &String| {
        text.replace("$__rate_interval", "5m")
            .replace("$__range", "1d")
            .replace("$namespace", ".*")
            .replace("$job", ".*")
    };
    all.iter().map(filled).collect()
}

fn rules() -> Vec<String> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().cloned().unwrap());
    rules.map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect()
}

/// Every metric that an expression names is exported, with the labels it uses.
fn exist(expressions: &[String], ours: &BTreeMap<String, Family>) {
    let names: BTreeSet<&str> = ours.keys().map(String::as_str).collect();
    assert!(expressions.len() > 10);
    for expression in expressions {
        let (metrics, labels) = uses(expression);
        assert!(!metrics.is_empty(), "{expression}");
        let mut there: BTreeSet<&str> = OF_PROMETHEUS.iter().copied().collect();
        for metric in &metrics {
            let family = ours.get(family_of(metric, &names));
            let family = family.unwrap_or_else(|| panic!("{metric} is not exported, and used in {expression}"));
            assert_eq!(metric.ends_with("_bucket"), family.kind == "histogram", "{metric} in {expression}");
            there.extend(family.labels.iter().map(String::as_str));
        }
        for label in &labels {
            assert!(there.contains(label.as_str()), "{label} is no label of {metrics:?}, and used in {expression}");
        }
    }
}

#[tokio::test]
async fn the_operator_exports_what_dashboards_and_rules_use_and_what_the_existing_operator_exports() {
    let Some(place) = Place::new("monitoring").await else { return };
    let existing: Existing = serde_json::from_str(&read("tests/monitoring/kubeflow-v2.5.2.json")).unwrap();
    let run = exercise(&place, &existing.labels).await;
    let ours = families(&run.text);
    same_metrics(&existing, &ours);
    same_events(&existing, &run.events);
    exist(&rules(), &ours);
    exist(&dashboard(), &ours);

    let value = |series: &str| -> f64 {
        let line = run.text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in {}", run.text)).parse().unwrap()
    };
    let chosen = format!("{{app_type=\"batch\",namespace=\"{}\"}}", place.name());
    assert!(value(&format!("spark_application_count{chosen}")) >= 6.0);
    assert_eq!(value(&format!("spark_application_failure_count{chosen}")), 3.0);
    assert_eq!(value(&format!("spark_executor_success_count{chosen}")), 1.0);
    assert_eq!(value(&format!("spark_executor_failure_count{chosen}")), 1.0);
    // Two executors of two cores ran for two seconds each.
    let used = format!("{{namespace=\"{}\",app_type=\"batch\",role=\"executor\"}}", place.name());
    let cores = value(&format!("firesteel_requested_core_seconds_total{used}"));
    assert!((4.0..60.0).contains(&cores), "{cores} core-seconds");
    assert!((value(&format!("firesteel_requested_gib_seconds_total{used}")) * 2.0 - cores).abs() < 0.01);
    let lost = format!("firesteel_executors_lost_total{{namespace=\"{}\",cause=\"application\"}}", place.name());
    assert_eq!(value(&lost), 1.0);
    assert!(
        run.open_metrics.ends_with("# EOF\n") && run.open_metrics.contains("# TYPE spark_application_count unknown\n")
    );

    let Some(program) = TestEnv::promtool() else { return };
    let (code, said) = promtool(&program, &["check", "metrics"], &run.text);
    // 3: it reads them, but some names do not follow the conventions.
    assert!(code == 0 || code == 3, "{said}");
    for line in said.lines() {
        let is_theirs = existing.metrics.iter().any(|theirs| line.starts_with(&format!("{} ", theirs.name)));
        assert!(is_theirs, "promtool: {line}");
    }
    // promtool checks expressions of rules only.
    let recorded =
        dashboard().into_iter().enumerate().map(|(i, expr)| json!({"record": format!("r{i}"), "expr": expr}));
    let recorded = json!({"groups": [{"name": "dashboard", "rules": recorded.collect::<Vec<_>>()}]});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), recorded.to_string()).unwrap();
    let (code, said) = promtool(&program, &["check", "rules", file.path().to_str().unwrap()], "");
    assert_eq!(code, 0, "the dashboard: {said}");
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() {
    let wrapped: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules-manifest.yaml")).unwrap();
    let plain: Value = serde_saphyr::from_str(&read("deploy/prometheus/rules.yaml")).unwrap();
    assert_eq!(wrapped["spec"], plain, "the manifest wraps the same rules");
    let Some(program) = TestEnv::promtool() else { return };
    let file = |name: &str| root().join("deploy/prometheus").join(name).display().to_string();
    for arguments in [["check", "rules", &file("rules.yaml")], ["test", "rules", &file("rules-test.yaml")]] {
        let (code, said) = promtool(&program, &arguments, "");
        assert_eq!(code, 0, "{said}");
    }
    let tests = read("deploy/prometheus/rules-test.yaml");
    let groups = plain["groups"].as_array().unwrap().iter();
    for rule in groups.flat_map(|group| group["rules"].as_array().cloned().unwrap()) {
        let name = rule["alert"].as_str().unwrap();
        let fires = tests.matches(&format!("alertname: {name}\n    exp_alerts:\n")).count();
        assert!(fires > 0, "no test says when {name} fires");
    }
}
