//! Executors outside the driver: the operator makes them, for drivers whose account has no right on pods.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use firesteel_api::ExecutorLedger;
use firesteel_api::executors::{Cause, ExecutorLedgerStatus};
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{Bed, Said, processes, said};
use crate::cases::{ALLOCATOR, Case, JAR, ONE_TO_FOUR, PI, PI_PY, assert_pi, case, exit_code, finished, registered};

pub(crate) const CASES: [Case; 8] = [
    case("outside_pi_on_the_jvm", pi_on_the_jvm),
    case("outside_pi_in_python", pi_in_python),
    case("outside_a_killed_executor_is_told_and_replaced", a_killed_executor_is_told_and_replaced),
    case("outside_an_evicted_executor_counts_against_nobody", an_evicted_executor_counts_against_nobody),
    case("outside_executors_that_keep_failing_end_the_application", executors_that_keep_failing_end_it),
    case("outside_an_image_that_cannot_be_had_ends_the_application", an_image_that_cannot_be_had_ends_it),
    case("outside_the_operator_dies_in_the_middle", the_operator_dies_in_the_middle),
    case("outside_dynamic_allocation_goes_from_one_to_four_and_back", dynamic_allocation),
];

/// The account with exactly the role of `firesteel setup --executors-outside`.
const ACCOUNT: &str = "outside";

pub(crate) fn submit(bed: &Bed, version: &str, name: &str, conf: &[(&str, &str)], rest: &[&str]) -> Command {
    let role =
        bed.firesteel(&["setup", "-n", "default", "--service-account", ACCOUNT, "--executors-outside", "--apply"]);
    assert_eq!(role.code, 0, "{}", role.err);
    let mut all = vec![
        (ALLOCATOR, "firesteel"),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", ACCOUNT),
        ("spark.kubernetes.authenticate.executor.serviceAccountName", "default"),
    ];
    all.extend(conf);
    bed.submit(version, name, &all, rest)
}

pub(crate) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn ledger(bed: &Bed, name: &str) -> Option<ExecutorLedgerStatus> {
    bed.get::<ExecutorLedger>(name)?.status
}

/// Nothing that the driver is not allowed to do was even tried.
pub(crate) fn assert_no_refusals(log: &str) {
    for word in ["Forbidden", "forbidden", "code=403", "code: 403", "Received 403"] {
        let bad = log.lines().find(|l| l.contains(word) && !l.contains("TaskSetManager"));
        assert!(bad.is_none(), "{bad:?}");
    }
}

fn pi_on_the_jvm(bed: &Bed, version: &str) {
    let said = said(submit(bed, version, "out-pi", &[], &["--class", PI, JAR, "20"]));
    let log = bed.log("out-pi");
    assert_pi(&said, &log, 2);
    assert_no_refusals(&log);
    bed.until("its executors to go", || bed.pods("executor").is_empty().then_some(()));
}

fn pi_in_python(bed: &Bed, version: &str) {
    let said = said(submit(bed, version, "out-py", &[], &[PI_PY, "4"]));
    let log = bed.log("out-py");
    assert_pi(&said, &log, 2);
    assert_no_refusals(&log);
}

/// A job that goes on until another executor has come; gives its client once two executors are at work.
pub(crate) fn busy(bed: &Bed, version: &str, name: &str, more: &[(&str, &str)]) -> Child {
    bed.write("busy.py", include_str!("busy.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.extend(more);
    let child = start(submit(bed, version, name, &conf, &["local:///cases/busy.py"]));
    bed.until("two executors at work", || bed.log(name).contains("two executors are at work").then_some(()));
    child
}

fn a_killed_executor_is_told_and_replaced(bed: &Bed, version: &str) {
    let child = busy(bed, version, "out-killed", &[("spark.kubernetes.executor.deleteOnTermination", "false")]);
    let victim = bed.pods("executor").into_iter().next().unwrap();
    let (name, id) = (victim.metadata.name.clone().unwrap(), victim.metadata.labels.unwrap()["spark-exec-id"].clone());
    let java = processes(&name).into_iter().find(|(_, line)| line.contains("KubernetesExecutorBackend"));
    let (pid, _) = java.expect("the executor's JVM");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let killed = SystemTime::now();
    let words = format!("Lost executor {id} on");
    bed.until("Spark to be told", || bed.log("out-killed").contains(&words).then_some(()));
    let took = killed.elapsed().unwrap();
    finished(bed, child, "out-killed");
    let log = bed.log("out-killed");
    let told = log.lines().find(|l| l.contains(&words)).unwrap();
    assert!(told.contains("137"), "{told}");
    // 1.5 s on a machine of its own; this one may be busy with other tests.
    assert!(took < Duration::from_secs(10), "{took:?}");
    println!("  Spark was told {took:?} after the kill (seen by polling its log)");
    assert!(registered(&log) >= 3, "{log}");
    assert!(log.contains("sum: 499500"), "{log}");
    assert_no_refusals(&log);
    // What failed by the application's fault stays when asked for.
    let kept: Pod = bed.get(&name).expect("the failed pod is kept");
    assert_eq!(exit_code(&kept), Some(137));
    assert_eq!(kept.metadata.labels.unwrap()["spark-exec-inactive"], "true");
}

fn an_evicted_executor_counts_against_nobody(bed: &Bed, version: &str) {
    let child = busy(bed, version, "out-evicted", &[("spark.executor.maxNumFailures", "0")]);
    let victim = bed.pods("executor").into_iter().next().unwrap();
    let id = victim.metadata.labels.clone().unwrap()["spark-exec-id"].clone();
    bed.evict(&victim.metadata.name.unwrap());
    finished(bed, child, "out-evicted");
    let log = bed.log("out-evicted");
    let told = log.lines().find(|l| l.contains(&format!("Lost executor {id} on"))).unwrap_or_default();
    assert!(told.contains("evicted") || told.contains("deleted"), "{told}");
    assert!(log.contains("sum: 499500"), "{log}");
    assert_eq!(ledger(bed, "out-evicted").unwrap().failures.count, 0);
}

fn executors_that_keep_failing_end_it(bed: &Bed, version: &str) {
    let conf = [
        ("spark.executor.extraJavaOptions", "-agentpath:/there/is/no/such/agent"),
        ("spark.executor.maxNumFailures", "2"),
    ];
    let said = said(submit(bed, version, "out-failing", &conf, &["--class", PI, JAR, "20"]));
    let log = bed.log("out-failing");
    assert_eq!(said.code, 11, "{}\n{log}", said.err);
    assert!(log.contains("spark.executor.maxNumFailures"), "{log}");
    let ledger = ledger(bed, "out-failing").unwrap();
    let verdict = ledger.verdict.unwrap();
    assert_eq!(verdict.reason, "ExecutorsKeepFailing");
    assert!(verdict.message.contains("exit code 1"), "{}", verdict.message);
}

fn an_image_that_cannot_be_had_ends_it(bed: &Bed, version: &str) {
    let conf = [("spark.kubernetes.executor.container.image", "no.such/image:1")];
    let child = start(submit(bed, version, "out-image", &conf, &["--class", PI, JAR, "20"]));
    let first = bed.until("a loss", || ledger(bed, "out-image").filter(|l| l.counts.lost > 0));
    child_end(child);
    assert_eq!(first.failures.count, 0, "not the application's fault");
    assert!(first.losses.iter().all(|l| l.cause == Cause::Platform && l.text.contains("image")), "{:?}", first.losses);
    assert!(!first.avoided_nodes.is_empty());
}

fn child_end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn the_operator_dies_in_the_middle(bed: &Bed, version: &str) {
    let child = busy(bed, version, "out-operator", &[]);
    let operator = || processes(&bed.place()).into_iter().find(|(_, line)| line.contains(" operator "));
    let (first, _) = operator().expect("an operator");
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    // An executor ends while nobody looks.
    let victim = bed.pods("executor").into_iter().next().unwrap().metadata.name.unwrap();
    let java = processes(&victim).into_iter().find(|(_, line)| line.contains("KubernetesExecutorBackend"));
    kill(Pid::from_raw(java.expect("the executor's JVM").0), Signal::SIGKILL).unwrap();
    let began = Instant::now();
    finished(bed, child, "out-operator");
    println!("  finished {:?} after both died", began.elapsed());
    assert_ne!(operator().map(|(pid, _)| pid), Some(first), "another operator works now");
    let log = bed.log("out-operator");
    assert_eq!(registered(&log), 3, "one was lost and one came: {log}");
    assert!(log.contains("sum: 499500"), "{log}");
}

fn dynamic_allocation(bed: &Bed, version: &str) {
    bed.write("grow.py", include_str!("grow.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.extend(ONE_TO_FOUR);
    let Said { code, err, .. } = said(submit(bed, version, "out-grow", &conf, &["local:///cases/grow.py"]));
    let log = bed.log("out-grow");
    assert_eq!(code, 0, "{err}\n{log}");
    assert!(log.contains("counted: 1 4 1"), "{log}");
    assert_no_refusals(&log);
    assert_eq!(ledger(bed, "out-grow").unwrap().failures.count, 0);
}
