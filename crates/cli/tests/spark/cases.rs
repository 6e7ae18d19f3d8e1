//! Spark applications on the local cluster. A case fails by panicking.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;

use crate::bed::{Bed, SHORT_LIVED};
use crate::cluster::{Said, processes, said};
use crate::schedule::Beside;

pub(crate) const JAR: &str = "local:///opt/spark/examples/jars/spark-examples.jar";
pub(crate) const PI: &str = "org.apache.spark.examples.SparkPi";
pub(crate) const PI_PY: &str = "local:///opt/spark/examples/src/main/python/pi.py";
pub(crate) const ALLOCATOR: &str = "spark.kubernetes.allocation.pods.allocator";

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The first release that supports it.
    pub(crate) since: (u32, u32),
    /// Only `--full` runs it.
    pub(crate) is_rare: bool,
    pub(crate) beside: Beside,
    pub(crate) run: fn(&Bed, &str),
}

impl Case {
    pub(crate) const fn rare(self) -> Case {
        Case { is_rare: true, ..self }
    }

    pub(crate) const fn beside(self, beside: Beside) -> Case {
        Case { beside, ..self }
    }

    pub(crate) fn runs_on(&self, version: &str) -> bool {
        let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap()) >= self.since
    }
}

pub(crate) const fn case(name: &'static str, run: fn(&Bed, &str)) -> Case {
    Case { name, since: (3, 5), is_rare: false, beside: Beside::Anything, run }
}

pub(crate) const CASES: [Case; 11] = [
    case("pi_on_the_jvm_through_submit", pi_on_the_jvm_through_submit),
    case("pi_in_python_through_submit", pi_in_python_through_submit),
    case("pi_on_the_jvm_through_run", pi_on_the_jvm_through_run),
    case("pi_in_python_through_run", pi_in_python_through_run),
    case("a_manifest_with_all_it_needs_is_shown_on_a_terminal", a_manifest_on_a_terminal),
    case("dynamic_allocation_goes_from_one_to_four_and_back", dynamic_allocation),
    case("a_stateful_set_allocates", a_stateful_set_allocates),
    Case { since: (4, 2), ..case("a_deployment_allocates", a_deployment_allocates) },
    case("a_killed_executor_is_replaced", a_killed_executor_is_replaced),
    case("a_failing_driver_gives_its_exit_code", a_failing_driver_gives_its_exit_code),
    case("a_stream_stops_when_its_driver_is_told_to", a_stream_stops_when_told_to),
];

pub(crate) fn registered(log: &str) -> usize {
    log.matches(": Registered executor ").count()
}

pub(crate) fn assert_pi(said: &Said, log: &str, executors: usize) {
    assert_eq!(said.code, 0, "{}\n{log}", said.err);
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!(registered(log), executors, "executors: {log}");
}

fn pi_on_the_jvm_through_submit(bed: &Bed, version: &str) {
    let said = said(bed.submit(version, "pi", &[], &["--class", PI, JAR, "20"]));
    assert_pi(&said, &bed.log("pi"), 2);
}

fn pi_in_python_through_submit(bed: &Bed, version: &str) {
    let said = said(bed.submit(version, "pi-py", &[], &[PI_PY, "4"]));
    assert_pi(&said, &bed.log("pi-py"), 2);
}

/// For `run`, whose applications also live only seconds.
pub(crate) fn short_lived() -> [String; 2] {
    ["driver", "executor"].map(|who| format!("spark.{who}.extraJavaOptions={SHORT_LIVED}"))
}

fn through_run(bed: &Bed, version: &str, rest: &[&str]) {
    let image = format!("spark.kubernetes.container.image=apache/spark:{version}");
    let all = "spark.scheduler.minRegisteredResourcesRatio=1";
    let mut words = vec!["--conf", &image, "--conf", "spark.executor.instances=2", "--conf", all];
    words.extend(["--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=200s"]);
    let java = short_lived();
    words.extend(java.iter().flat_map(|option| ["--conf", option.as_str()]));
    words.extend(["--driver-memory", "512m", "--executor-memory", "512m"]);
    words.extend(rest);
    let said = bed.run(&words);
    let log = said.out.clone();
    assert_pi(&said, &log, 2);
    assert!(said.err.contains("Finished: driver after"), "a summary: {}", said.err);
}

fn pi_on_the_jvm_through_run(bed: &Bed, version: &str) {
    through_run(bed, version, &["--class", PI, JAR, "20"]);
}

fn pi_in_python_through_run(bed: &Bed, version: &str) {
    through_run(bed, version, &[PI_PY, "4"]);
}

/// Several documents, a local file, a missing namespace, a missing account, and a terminal.
fn a_manifest_on_a_terminal(bed: &Bed, version: &str) {
    bed.write("shown.py", include_str!("shown.py"));
    let namespace = format!("shown-{}", version.replace('.', "-"));
    let manifest = include_str!("shown.yaml").replace("{version}", version).replace("{namespace}", &namespace);
    let manifest = bed.write("shown.yaml", &manifest);
    let Some(said) = bed.run_on_a_terminal(&["--no-quick-starts", manifest.to_str().unwrap()]) else {
        eprintln!("SKIPPED, no terminal: there is no `script`");
        return;
    };
    let shown = &said.out;
    assert_eq!(said.code, 0, "{shown}");
    assert!(shown.contains("the word is flint"), "from the ConfigMap: {shown}");
    assert!(shown.contains(&format!("Created namespace {namespace}")), "{shown}");
    assert!(shown.contains("Created service account runner"), "{shown}");
    assert!(shown.contains("/8 tasks"), "a bar of tasks: {shown}");
    assert!(shown.contains("Finished: driver after"), "{shown}");
}

/// The settings for `grow.py`.
pub(crate) const ONE_TO_FOUR: [(&str, &str); 7] = [
    ("spark.dynamicAllocation.enabled", "true"),
    ("spark.dynamicAllocation.shuffleTracking.enabled", "true"),
    ("spark.dynamicAllocation.minExecutors", "1"),
    ("spark.dynamicAllocation.initialExecutors", "1"),
    ("spark.dynamicAllocation.maxExecutors", "4"),
    ("spark.dynamicAllocation.executorIdleTimeout", "1s"),
    ("spark.executor.instances", "1"),
];

fn dynamic_allocation(bed: &Bed, version: &str) {
    bed.write("grow.py", include_str!("grow.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.extend(ONE_TO_FOUR);
    let said = said(bed.submit(version, "grow", &conf, &["local:///cases/grow.py"]));
    let log = bed.log("grow");
    assert_eq!(said.code, 0, "{}\n{log}", said.err);
    // The driver has counted its executors: one at first, four at work, one when idle.
    assert!(log.contains("counted: 1 4 1"), "{log}");
}

fn a_stateful_set_allocates(bed: &Bed, version: &str) {
    let conf = [(ALLOCATOR, "statefulset")];
    let mut command = bed.submit(version, "sets", &conf, &["--class", PI, JAR, "20"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let set = bed
        .until("a StatefulSet", || still_runs(bed, &mut child, "sets", bed.list::<StatefulSet>().into_iter().next()));
    assert_eq!(set.spec.replicas, Some(2));
    finished(bed, child, "sets");
    assert!(bed.log("sets").contains("Pi is roughly 3.1"));
    bed.until("the StatefulSet to go", || bed.list::<StatefulSet>().is_empty().then_some(()));
}

fn a_deployment_allocates(bed: &Bed, version: &str) {
    let conf = [(ALLOCATOR, "deployment")];
    let mut command = bed.submit(version, "deploys", &conf, &["--class", PI, JAR, "20"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let set = bed
        .until("a Deployment", || still_runs(bed, &mut child, "deploys", bed.list::<Deployment>().into_iter().next()));
    assert_eq!(set.spec.replicas, Some(2));
    finished(bed, child, "deploys");
    assert!(bed.log("deploys").contains("Pi is roughly 3.1"));
    bed.until("the Deployment to go", || bed.list::<Deployment>().is_empty().then_some(()));
}

/// Returns what was found; panics if nothing was found and the application has ended.
fn still_runs<T>(bed: &Bed, child: &mut std::process::Child, driver: &str, found: Option<T>) -> Option<T> {
    if found.is_none() && child.try_wait().unwrap().is_some() {
        panic!("the application ended: {}", bed.log(driver));
    }
    found
}

/// Waits for a client and expects success.
pub(crate) fn finished(bed: &Bed, mut child: std::process::Child, driver: &str) {
    let code = bed.until("the client to end", || child.try_wait().unwrap());
    assert!(code.success(), "{code}: {}", bed.log(driver));
}

fn a_killed_executor_is_replaced(bed: &Bed, version: &str) {
    bed.write("busy.py", include_str!("busy.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.push(("spark.kubernetes.executor.deleteOnTermination", "false"));
    let mut command = bed.submit(version, "killed", &conf, &["local:///cases/busy.py"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    bed.until("two executors at work", || bed.log("killed").contains("two executors are at work").then_some(()));
    let victim = bed.pods("executor").into_iter().next().unwrap().metadata.name.unwrap();
    let java = processes(&victim).into_iter().find(|(_, line)| line.contains("KubernetesExecutorBackend"));
    let (pid, _) = java.expect("the executor's JVM");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let lost = bed.until("the pod to fail", || bed.get::<Pod>(&victim).filter(|p| phase(p) == "Failed"));
    assert_eq!(exit_code(&lost), Some(137));
    finished(bed, child, "killed");
    let log = bed.log("killed");
    assert!(registered(&log) >= 3, "another one took its place: {log}");
    assert!(log.contains("sum: 499500"), "and the result is right: {log}");
}

fn a_failing_driver_gives_its_exit_code(bed: &Bed, version: &str) {
    bed.write("fails.py", "import sys\nprint('about to fail', flush=True)\nsys.exit(7)\n");
    let files = bed.files();
    let conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let said = said(bed.submit(version, "fails", &conf, &["local:///cases/fails.py"]));
    let pod: Pod = bed.get("fails").unwrap();
    assert_eq!((phase(&pod), exit_code(&pod), said.code), ("Failed", Some(7), 7), "{}", said.err);
    assert!(bed.log("fails").contains("about to fail"));
}

fn a_stream_stops_when_told_to(bed: &Bed, version: &str) {
    bed.write("stream.py", include_str!("stream.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.push(("spark.executor.instances", "1"));
    // As docs/monitoring.md recommends.
    conf.extend([
        ("spark.ui.enabled", "true"),
        ("spark.ui.prometheus.enabled", "true"),
        ("spark.metrics.namespace", "spark"),
        ("spark.metrics.conf.*.sink.prometheusServlet.class", "org.apache.spark.metrics.sink.PrometheusServlet"),
        ("spark.metrics.conf.*.sink.prometheusServlet.path", "/metrics/prometheus"),
        ("spark.metrics.conf.*.source.jvm.class", "org.apache.spark.metrics.source.JvmSource"),
    ]);
    let mut command = bed.submit(version, "stream", &conf, &["local:///cases/stream.py"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    bed.until("the stream to make progress", || bed.log("stream").contains("batch 2 has").then_some(()));
    let address = bed.get::<Pod>("stream").and_then(|pod| pod.status?.pod_ip).expect("the driver has an address");
    let driver = page(&address, "/metrics/prometheus/");
    assert!(driver.contains("\nmetrics_spark_driver_jvm_heap_used_"), "the driver's own metrics: {driver}");
    let executors = page(&address, "/metrics/executors/prometheus/");
    assert!(executors.contains("\nmetrics_executor_memoryUsed_bytes{"), "the executors' metrics: {executors}");
    let log = bed.follow("stream");
    let told = Instant::now();
    bed.delete_pod("stream");
    bed.until("the driver to go", || bed.get::<Pod>("stream").is_none().then_some(()));
    // It stopped by itself and was not killed after the grace period.
    assert!(told.elapsed() < Duration::from_secs(29), "{:?}", told.elapsed());
    let log = bed.end_of(log);
    assert!(log.contains("Invoking stop() from shutdown hook"), "{log}");
    assert!(log.contains("Successfully stopped SparkContext"), "{log}");
    bed.until("its executors to go", || bed.pods("executor").is_empty().then_some(()));
    bed.until("the client to end", || child.try_wait().unwrap());
}

/// A page of a driver's web UI.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect((address, 4040)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn exit_code(pod: &Pod) -> Option<i32> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    Some(statuses.first()?.state.as_ref()?.terminated.as_ref()?.exit_code)
}
