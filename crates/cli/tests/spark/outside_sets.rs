//! Executors outside the driver, in ReplicaSets and StatefulSets: they get their ids from the driver when they start.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{Bed, Said, processes, said};
use crate::cases::{ALLOCATOR, Case, JAR, ONE_TO_FOUR, PI, PI_PY, assert_pi, case, finished, registered};
use crate::outside::{assert_no_refusals, busy, ledger, submit};

pub(crate) const CASES: [Case; 7] = [
    case("sets_pi_on_the_jvm_in_a_replica_set", |bed, version| pi(bed, version, REPLICAS, &["--class", PI, JAR, "20"])),
    case("sets_pi_on_the_jvm_in_a_stateful_set", |bed, version| {
        pi(bed, version, STATEFUL, &["--class", PI, JAR, "20"]);
    }),
    case("sets_pi_in_python_in_a_replica_set", |bed, version| pi(bed, version, REPLICAS, &[PI_PY, "4"])),
    case("sets_pi_in_python_in_a_stateful_set_with_claims", pi_with_claims),
    case("sets_a_killed_executor_of_a_replica_set_is_told_and_replaced", |bed, version| killed(bed, version, REPLICAS)),
    case("sets_a_killed_executor_of_a_stateful_set_is_told_and_replaced", |bed, version| {
        killed(bed, version, STATEFUL);
    }),
    case("sets_dynamic_allocation_goes_from_one_to_four_and_back", dynamic_allocation),
];

const REPLICAS: &str = "firesteel-replicaset";
const STATEFUL: &str = "firesteel-statefulset";

fn pi(bed: &Bed, version: &str, allocator: &str, what: &[&str]) {
    let said = said(submit(bed, version, "sets-pi", &[(ALLOCATOR, allocator)], what));
    let log = bed.log("sets-pi");
    assert_pi(&said, &log, 2);
    assert_no_refusals(&log);
    assert_eq!(ledger(bed, "sets-pi").unwrap().counts.lost, 0);
    nothing_is_left(bed);
}

fn nothing_is_left(bed: &Bed) {
    bed.until("its executors and their sets to go", || {
        let sets = bed.list::<ReplicaSet>().len() + bed.list::<StatefulSet>().len();
        (sets == 0 && bed.pods("executor").is_empty()).then_some(())
    });
}

fn pi_with_claims(bed: &Bed, version: &str) {
    let volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1";
    let key = |rest: &str| format!("{volume}.{rest}");
    let (claim, size, path) = (key("options.claimName"), key("options.sizeLimit"), key("mount.path"));
    let class = key("options.storageClass");
    let conf = [
        (ALLOCATOR, STATEFUL),
        (claim.as_str(), "OnDemand"),
        (class.as_str(), "local"),
        (size.as_str(), "100Mi"),
        (path.as_str(), "/data"),
    ];
    let child = crate::outside::start(submit(bed, version, "sets-claims", &conf, &[PI_PY, "4"]));
    let claims = || bed.list::<PersistentVolumeClaim>();
    bed.until("a claim for each executor", || (claims().len() == 2).then_some(()));
    finished(bed, child, "sets-claims");
    assert!(bed.log("sets-claims").contains("Pi is roughly 3.1"), "{}", bed.log("sets-claims"));
    nothing_is_left(bed);
    bed.until("its claims to go", || claims().is_empty().then_some(()));
}

fn label(pod: &Pod) -> String {
    pod.metadata.labels.as_ref().unwrap()["spark-exec-id"].clone()
}

fn killed(bed: &Bed, version: &str, allocator: &str) {
    let child = busy(bed, version, "sets-killed", &[(ALLOCATOR, allocator)]);
    let labelled = |pods: Vec<Pod>| pods.iter().all(|p| label(p).parse::<u32>().is_ok()).then_some(pods);
    let victim = bed.until("labels", || labelled(bed.pods("executor"))).into_iter().next().unwrap();
    let (name, id) = (victim.metadata.name.clone().unwrap(), label(&victim));
    let java = processes(&name).into_iter().find(|(_, line)| line.contains("KubernetesExecutorBackend"));
    let (pid, _) = java.expect("the executor's JVM");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let killed = SystemTime::now();
    let words = format!("Lost executor {id} on");
    bed.until("Spark to be told", || bed.log("sets-killed").contains(&words).then_some(()));
    let took = killed.elapsed().unwrap();
    // The same pod, another executor.
    let again = bed.until("the next executor in its pod", || {
        let pod = bed.get::<Pod>(&name)?;
        (label(&pod) != id).then(|| labelled(vec![pod]))?
    });
    assert_eq!(label(&again[0]), "3");
    assert_eq!(again[0].metadata.uid, victim.metadata.uid);
    finished(bed, child, "sets-killed");
    let log = bed.log("sets-killed");
    let told = log.lines().find(|l| l.contains(&words)).unwrap();
    assert!(told.contains("137"), "{told}");
    // 1.5 s on a machine of its own; this one may be busy with other tests.
    assert!(took < Duration::from_secs(10), "{took:?}");
    println!("  Spark was told {took:?} after the kill (seen by polling its log)");
    assert_eq!(registered(&log), 3, "{log}");
    assert!(log.contains("sum: 499500"), "{log}");
    assert_no_refusals(&log);
    let ledger = ledger(bed, "sets-killed").unwrap();
    assert_eq!((ledger.failures.count, ledger.counts.lost), (1, 1));
    nothing_is_left(bed);
}

fn dynamic_allocation(bed: &Bed, version: &str) {
    bed.write("grow.py", include_str!("grow.py"));
    let files = bed.files();
    let mut conf: Vec<(&str, &str)> = files.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    conf.push((ALLOCATOR, REPLICAS));
    conf.extend(ONE_TO_FOUR);
    let Said { code, err, .. } = said(submit(bed, version, "sets-grow", &conf, &["local:///cases/grow.py"]));
    let log = bed.log("sets-grow");
    assert_eq!(code, 0, "{err}\n{log}");
    assert!(log.contains("counted: 1 4 1"), "{log}");
    assert_no_refusals(&log);
    assert_eq!(ledger(bed, "sets-grow").unwrap().failures.count, 0);
    nothing_is_left(bed);
}
