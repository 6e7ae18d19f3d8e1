//! Executors outside the driver that are lost while a job runs: killed, evicted, and lost while no operator is running. One
//! application per strategy loses them one after the other and continues.

use std::path::PathBuf;
use std::process::Child;

use firesteel_api::executors::ExecutorLedgerStatus;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::Bed;
use crate::cases::{Case, case, exit_code, finished};
use crate::cluster::processes;
use crate::outside::{Way, assert_no_refusals, ledger, nothing_is_left, start, submit_script};
use crate::schedule::Beside;

pub(crate) const CASES: [Case; 3] = [
    losses("outside_lost_executors_are_told_and_replaced", |bed, version| lost(bed, version, Way::Pods)),
    losses(IN_A_REPLICA_SET, |bed, version| lost(bed, version, Way::ReplicaSet)),
    losses("sets_lost_executors_of_a_stateful_set_are_told_and_replaced", |bed, version| {
        lost(bed, version, Way::StatefulSet);
    }),
];

const fn losses(name: &'static str, run: fn(&Bed, &str)) -> Case {
    case(name, run).beside(Beside::NoOtherThatKillsTheOperator)
}

/// The case that another release runs in CI.
pub(crate) const IN_A_REPLICA_SET: &str = "sets_lost_executors_of_a_replica_set_are_told_and_replaced";

/// The longest time from the kill to the line in the driver's log.
const PROMISE: SignedDuration = SignedDuration::from_millis(1500);
const NAME: &str = "out-lost";

const TEMPLATE: &str = "metadata: {labels: {made: from-a-template}}\nspec: {}\n";

/// On-demand claims, which single pods and StatefulSets support.
const CLAIMS: [(&str, &str); 4] = [
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.claimName", "OnDemand"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.storageClass", "local"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.sizeLimit", "100Mi"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.mount.path", "/data"),
];

fn lost(bed: &Bed, version: &str, way: Way) {
    let mut job = Job::start(bed, version, way);
    // On a busy machine one kill may be reported late, but not two.
    if !killed(&mut job) {
        assert!(killed(&mut job), "the loss was reported to Spark too late, twice");
    }
    evicted(&mut job);
    while_no_operator_looks(&mut job);
    job.end();
}

/// Kills an executor. Returns whether the loss was reported to Spark in time.
fn killed(job: &mut Job<'_>) -> bool {
    let victim = job.executors().swap_remove(0);
    let (name, id) = (name(&victim), id(&victim).unwrap());
    let at = job.kill(&victim);
    let (told, words) = job.told(id);
    assert!(words.contains("137"), "{words}");
    let took = told.duration_since(at);
    println!("  the loss was reported to Spark {} ms after the kill, by its log", took.as_millis());
    job.replaced();
    job.assert_blamed(id, true);
    let pod: Pod = job.bed.get(&name).expect("it is kept, or started again");
    if job.way == Way::Pods {
        assert_eq!(exit_code(&pod), Some(137), "what failed because of the application stays when asked for");
        assert_eq!(pod.metadata.labels.unwrap()["spark-exec-inactive"], "true");
    } else {
        assert_eq!(pod.metadata.uid, victim.metadata.uid, "it was started again in place");
        assert_ne!(self::id(&pod), Some(id), "as another executor");
    }
    took <= PROMISE
}

/// A drain evicts a pod, which is not the application's fault.
fn evicted(job: &mut Job<'_>) {
    let failures = job.ledger().failures.count;
    let victim = job.executors().swap_remove(0);
    let id = id(&victim).unwrap();
    job.bed.evict(&name(&victim));
    let (_, words) = job.told(id);
    assert!(words.contains("it was evicted through the API, as by a drain"), "{words}");
    job.replaced();
    job.assert_blamed(id, false);
    assert_eq!(job.ledger().failures.count, failures, "it counts against nobody");
    let same = |pod: &Pod| pod.metadata.uid == victim.metadata.uid;
    assert!(!job.executors().iter().any(same), "another pod took its place");
}

/// Kills the operator, and then an executor.
fn while_no_operator_looks(job: &mut Job<'_>) {
    let place = job.bed.place();
    let operator = || processes(&place).into_iter().find(|(_, line)| line.contains(" operator ")).map(|(pid, _)| pid);
    let failures = job.ledger().failures.count;
    // The last one: in a set, an earlier one's pod may be in restart back-off.
    let victim = job.executors().pop().unwrap();
    let first = operator().expect("an operator");
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    let at = job.kill(&victim);
    let id = id(&victim).unwrap();
    let (told, words) = job.told(id);
    assert!(words.contains("137"), "{words}");
    println!(
        "  the loss was reported to Spark {} ms after operator and executor died",
        told.duration_since(at).as_millis()
    );
    job.replaced();
    job.assert_blamed(id, true);
    assert_ne!(operator().expect("an operator again"), first);
    job.bed.until("it to be counted", || (job.ledger().failures.count == failures + 1).then_some(()));
}

/// An application that runs until it is told to end.
struct Job<'a> {
    bed: &'a Bed,
    way: Way,
    client: Child,
    /// It runs until this file exists.
    enough: PathBuf,
    losses: usize,
}

impl<'a> Job<'a> {
    /// Starts it and waits for two working executors.
    fn start(bed: &'a Bed, version: &str, way: Way) -> Self {
        let enough = bed.write("enough", "");
        std::fs::remove_file(&enough).unwrap();
        let template = bed.write("template.yaml", TEMPLATE);
        let mut conf = vec![
            way.allocator(),
            ("spark.kubernetes.executor.podTemplateFile", template.to_str().unwrap()),
            ("spark.kubernetes.executor.deleteOnTermination", "false"),
        ];
        if way == Way::StatefulSet {
            conf.extend(CLAIMS);
        }
        let script = ("keeps.py", include_str!("keeps.py"));
        let client = start(submit_script(bed, version, NAME, script, &conf, &["/cases/enough"]));
        let mut job = Job { bed, way, client, enough, losses: 0 };
        job.at_work();
        for pod in job.executors() {
            assert_eq!(pod.metadata.labels.unwrap()["made"], "from-a-template");
        }
        let claims = bed.list::<PersistentVolumeClaim>();
        assert_eq!(claims.len(), if way == Way::StatefulSet { 2 } else { 0 }, "a claim for each executor");
        job
    }

    /// Waits until two executors are at work and their pods are known.
    fn at_work(&mut self) {
        let (bed, least) = (self.bed, 2 + self.losses);
        bed.until("two executors at work", || {
            let ended = self.client.try_wait().unwrap();
            let log = bed.log(NAME);
            assert!(ended.is_none(), "the application ended ({ended:?}): {log}");
            let ever = |line: &str| line.strip_prefix("at work: 2 of ")?.parse::<usize>().ok();
            let last = log.lines().rfind(|l| l.starts_with("at work: ")).and_then(ever);
            (last.is_some_and(|ever| ever >= least) && self.executors().len() == 2).then_some(())
        });
    }

    /// Waits until a replacement for a lost executor is at work.
    fn replaced(&mut self) {
        self.losses += 1;
        self.at_work();
    }

    /// The pods of registered executors, ordered by executor id.
    fn executors(&self) -> Vec<Pod> {
        let log = self.bed.log(NAME);
        let mut pods = self.bed.pods("executor");
        pods.retain(|pod| {
            let labels = pod.metadata.labels.as_ref().unwrap();
            let here = !labels.contains_key("spark-exec-inactive") && pod.metadata.deletion_timestamp.is_none();
            here && id(pod).is_some_and(|id| log.contains(&format!(" with ID {id},")) && told(&log, id).is_none())
        });
        pods.sort_by_key(id);
        pods
    }

    /// Kills an executor's JVM with SIGKILL; returns the time.
    fn kill(&self, pod: &Pod) -> Timestamp {
        let mut found = processes(&name(pod)).into_iter();
        let java = found.find(|(_, line)| line.contains("KubernetesExecutorBackend")).expect("the executor's JVM");
        let now = Timestamp::now();
        kill(Pid::from_raw(java.0), Signal::SIGKILL).unwrap();
        now
    }

    /// When and how a loss was reported to Spark, from the driver's log, which the node timestamps as lines arrive.
    fn told(&self, id: u32) -> (Timestamp, String) {
        self.bed.until("Spark to be told", || {
            let log = self.bed.log_with_times(NAME);
            let line = told(&log, id)?;
            Some((line.split(' ').next()?.parse().unwrap(), line.to_owned()))
        })
    }

    /// Asserts whether Spark blames the application for the tasks that ran there.
    fn assert_blamed(&self, id: u32, application: bool) {
        let log = self.bed.log(NAME);
        let words = format!("ExecutorLostFailure (executor {id} exited ");
        let whose = if application { "caused by one of the running tasks" } else { "unrelated to the running tasks" };
        for line in log.lines().filter(|line| line.contains(&words)) {
            assert!(line.contains(whose), "{line}");
        }
    }

    fn ledger(&self) -> ExecutorLedgerStatus {
        ledger(self.bed, NAME).expect("a ledger")
    }

    fn end(self) {
        let bed = self.bed;
        bed.write("enough", "");
        finished(bed, self.client, NAME);
        std::fs::remove_file(self.enough).unwrap();
        let log = bed.log(NAME);
        assert!(log.contains("sum: 499500"), "{log}");
        assert!(log.contains("ExecutorLostFailure ("), "no task was running when an executor was lost: {log}");
        assert_no_refusals(&log);
        if self.way != Way::Pods {
            nothing_is_left(bed);
        }
        bed.until("its claims to go", || bed.list::<PersistentVolumeClaim>().is_empty().then_some(()));
    }
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap()
}

/// The executor id of a pod, if known.
fn id(pod: &Pod) -> Option<u32> {
    pod.metadata.labels.as_ref()?.get("spark-exec-id")?.parse().ok()
}

/// The log line in which Spark reports a lost executor.
fn told(log: &str, id: u32) -> Option<&str> {
    let words = format!("Lost executor {id} on");
    log.lines().find(|line| line.contains(&words))
}
