//! Executors outside the driver: the operator creates them for drivers without pod permissions. Here: the cases without losses.

use std::process::{Child, Command, Stdio};

use firesteel_api::executors::ExecutorLedgerStatus;
use firesteel_api::{ExecutorGrant, ExecutorLedger};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::bed::Bed;
use crate::cases::{ALLOCATOR, Case, JAR, ONE_TO_FOUR, PI, PI_PY, assert_pi, case, finished, registered};
use crate::cluster::said;

pub(crate) const CASES: [Case; 8] = [
    case("outside_pi_on_the_jvm", |bed, version| pi(bed, version, Way::Pods)),
    case("sets_pi_on_the_jvm_in_a_replica_set", |bed, version| pi(bed, version, Way::ReplicaSet)),
    case("sets_pi_on_the_jvm_in_a_stateful_set", |bed, version| pi(bed, version, Way::StatefulSet)),
    case("outside_an_application_that_authenticates", an_application_that_authenticates),
    case("outside_dynamic_allocation_goes_from_one_to_four_and_back", |bed, version| grows(bed, version, Way::Pods)),
    case("sets_dynamic_allocation_goes_from_one_to_four_and_back", |bed, version| {
        grows(bed, version, Way::ReplicaSet);
    }),
    case("outside_dynamic_allocation_decommissions_what_is_idle", |bed, version| {
        decommissions(bed, version, Way::Pods);
    }),
    case("sets_dynamic_allocation_decommissions_what_is_idle", |bed, version| {
        decommissions(bed, version, Way::ReplicaSet);
    })
    .rare(),
];

/// What creates the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Pods,
    ReplicaSet,
    StatefulSet,
}

impl Way {
    pub(crate) fn allocator(self) -> (&'static str, &'static str) {
        let name = match self {
            Way::Pods => "firesteel",
            Way::ReplicaSet => "firesteel-replicaset",
            Way::StatefulSet => "firesteel-statefulset",
        };
        (ALLOCATOR, name)
    }
}

/// The account with exactly the role of `firesteel setup --executors-outside`.
pub(crate) const ACCOUNT: &str = "outside";

pub(crate) fn set_up(bed: &Bed) {
    let role =
        bed.firesteel(&["setup", "-n", &bed.namespace, "--service-account", ACCOUNT, "--executors-outside", "--apply"]);
    assert_eq!(role.code, 0, "{}", role.err);
}

/// A submission to start; executors are single pods unless `conf` says otherwise.
pub(crate) fn submit(bed: &Bed, version: &str, name: &str, conf: &[(&str, &str)], rest: &[&str]) -> Command {
    set_up(bed);
    let mut all = vec![
        Way::Pods.allocator(),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", ACCOUNT),
        ("spark.kubernetes.authenticate.executor.serviceAccountName", "default"),
    ];
    all.retain(|(key, _)| conf.iter().all(|(k, _)| k != key));
    all.extend(conf);
    bed.submit(version, name, &all, rest)
}

/// The same for a script in this directory, with arguments.
pub(crate) fn submit_script(
    bed: &Bed,
    version: &str,
    name: &str,
    (file, text): (&str, &str),
    conf: &[(&str, &str)],
    arguments: &[&str],
) -> Command {
    bed.write(file, text);
    let files = bed.files();
    let mut all: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    all.extend(conf);
    let path = format!("local:///cases/{file}");
    let words: Vec<&str> = std::iter::once(path.as_str()).chain(arguments.iter().copied()).collect();
    submit(bed, version, name, &all, &words)
}

pub(crate) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn ledger(bed: &Bed, name: &str) -> Option<ExecutorLedgerStatus> {
    bed.get::<ExecutorLedger>(name)?.status
}

/// The driver did not even try anything that it is not allowed to do.
pub(crate) fn assert_no_refusals(log: &str) {
    for word in ["Forbidden", "forbidden", "code=403", "code: 403", "Received 403"] {
        let bad = log.lines().find(|l| l.contains(word) && !l.contains("TaskSetManager"));
        assert!(bad.is_none(), "{bad:?}");
    }
}

/// Waits until the executors and their sets are gone.
pub(crate) fn nothing_is_left(bed: &Bed) {
    bed.until("its executors and their sets to go", || {
        let sets = bed.list::<ReplicaSet>().len() + bed.list::<StatefulSet>().len();
        (sets == 0 && bed.pods("executor").is_empty()).then_some(())
    });
}

fn pi(bed: &Bed, version: &str, way: Way) {
    let said = said(submit(bed, version, "out-pi", &[way.allocator()], &["--class", PI, JAR, "20"]));
    let log = bed.log("out-pi");
    assert_pi(&said, &log, 2);
    assert_no_refusals(&log);
    let ledger = ledger(bed, "out-pi").unwrap();
    assert_eq!(ledger.counts.lost, 0);
    let early = ledger.early.expect("executors were created together with the driver");
    assert!(early.admitted.is_some() && early.withdrawn == 0, "{early:?}\n{log}");
    nothing_is_left(bed);
}

fn an_application_that_authenticates(bed: &Bed, version: &str) {
    let conf = [("spark.authenticate", "true"), ("spark.network.crypto.enabled", "true")];
    let child = start(submit(bed, version, "out-auth", &conf, &[PI_PY, "4"]));
    let secret = bed.until("its secret", || {
        let ours = |s: &Secret| s.metadata.name.as_deref().is_some_and(|n| n.starts_with("spark-auth-"));
        bed.list::<Secret>().into_iter().find(ours)
    });
    let value = secret.data.unwrap_or_default().into_values().next().expect("a value").0;
    let value = String::from_utf8(value).unwrap();
    finished(bed, child, "out-auth");
    let log = bed.log("out-auth");
    assert!(log.contains("Pi is roughly 3.1") && registered(&log) == 2, "{log}");
    assert_no_refusals(&log);
    assert!(value.len() >= 32, "a guess is hopeless");
    let grant = serde_json::to_string(&bed.get::<ExecutorGrant>("out-auth").unwrap()).unwrap();
    assert!(grant.contains("out-auth") && !grant.contains(&value), "the secret is in no custom resource");
}

/// Runs `grow.py` until it ends and returns its log; `seen` runs after the start.
fn one_to_four(bed: &Bed, version: &str, conf: &[(&str, &str)], word: &str, seen: impl FnOnce()) -> String {
    let mut all = conf.to_vec();
    all.extend(ONE_TO_FOUR.iter().filter(|(key, _)| conf.iter().all(|(k, _)| k != key)));
    let script = ("grow.py", include_str!("grow.py"));
    let child = start(submit_script(bed, version, "out-grow", script, &all, &[word]));
    seen();
    finished(bed, child, "out-grow");
    let log = bed.log("out-grow");
    // The driver has counted its executors: one at first, four at work, one when idle.
    assert!(log.contains("counted: 1 4 1"), "{log}");
    assert_no_refusals(&log);
    assert_eq!(ledger(bed, "out-grow").unwrap().failures.count, 0);
    nothing_is_left(bed);
    log
}

/// Spark stops idle executors; the last stage requests executors with more memory.
fn grows(bed: &Bed, version: &str, way: Way) {
    let log = one_to_four(bed, version, &[way.allocator()], "profile", || {
        let memory = bed.until("an executor of the second profile", || {
            let pods = bed.pods("executor");
            let second = |pod: &&Pod| pod.metadata.labels.as_ref().unwrap()["spark-exec-resourceprofile-id"] == "1";
            let container = pods.iter().find(second)?.spec.as_ref()?.containers.first()?;
            Some(container.resources.as_ref()?.requests.as_ref()?["memory"].0.clone())
        });
        assert_eq!(memory, "984Mi", "600 MiB and Spark's least overhead");
    });
    assert!(log.contains("larger: 499500"), "{log}");
}

/// Spark decommissions idle executors, which migrate their shuffle data, instead of stopping them.
fn decommissions(bed: &Bed, version: &str, way: Way) {
    let conf = [
        way.allocator(),
        ("spark.dynamicAllocation.shuffleTracking.enabled", "false"),
        ("spark.decommission.enabled", "true"),
        ("spark.storage.decommission.enabled", "true"),
        ("spark.storage.decommission.shuffleBlocks.enabled", "true"),
        // How often they check whether everything has been migrated.
        ("spark.storage.decommission.replicationReattemptInterval", "1s"),
    ];
    let mut log = one_to_four(bed, version, &conf, "shuffle", || ());
    if took_the_last(&log) {
        println!("  Spark decommissioned its last executor with the data; trying again");
        bed.clear();
        log = one_to_four(bed, version, &conf, "shuffle", || ());
    }
    assert!(log.contains("Decommission executors: "), "{log}");
    assert!(log.contains("sum: 499500, mapped 1000"), "nothing was computed again: {log}");
}

/// Spark keeps the minimum number of executors, except for a moment in which others are being decommissioned but have not yet
/// exited: then it may decommission the last one too, which has no peer to migrate its data to.
fn took_the_last(log: &str) -> bool {
    let idle = |line: &str| Some(line.split_once("ExecutorAllocationManager: Executors ")?.1.to_owned());
    let gone = log.lines().filter(|line| line.ends_with(" removed due to idle timeout.")).filter_map(idle);
    let before: usize = gone.map(|words| words.split(' ').next().unwrap_or_default().split(',').count()).sum();
    before >= 4
}
