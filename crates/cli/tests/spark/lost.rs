//! Special losses of executors outside the driver: out of memory, a missing image, and shuffle data that outlives its executor.

use std::collections::BTreeMap;
use std::process::Child;

use firesteel_api::executors::ExecutorLedgerStatus;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{Bed, SHORT_LIVED};
use crate::cases::{Case, JAR, PI, case, finished, registered};
use crate::cluster::processes;
use crate::outside::{assert_no_refusals, ledger, start, submit, submit_script};
use crate::schedule::Beside;

pub(crate) const CASES: [Case; 4] = [
    case("outside_an_executor_out_of_memory_counts_and_says_what_to_raise", out_of_memory),
    case("outside_an_image_missing_on_one_node_makes_executors_move_on", an_image_missing_on_one_node)
        .beside(Beside::Nothing),
    case("outside_a_reused_claim_brings_shuffle_data_back", a_reused_claim),
    case("outside_a_decommissioned_executor_hands_its_shuffle_data_on", a_decommissioned_executor),
];

/// The log line for Spark's first lost executor.
fn told(log: &str) -> &str {
    log.lines().find(|l| l.contains("Lost executor ")).unwrap_or_else(|| panic!("no executor was lost: {log}"))
}

fn out_of_memory(bed: &Bed, version: &str) {
    let java = format!("{SHORT_LIVED} -XX:MaxDirectMemorySize=2g");
    let conf = [
        ("spark.executor.extraJavaOptions", java.as_str()),
        ("spark.kubernetes.executor.deleteOnTermination", "false"),
    ];
    let child = start(submit_script(bed, version, "out-memory", ("oom.py", include_str!("oom.py")), &conf, &[]));
    finished(bed, child, "out-memory");
    let log = bed.log("out-memory");
    let told = told(&log);
    assert!(told.contains("OOMKilled (exit code 137)"), "{told}");
    assert!(told.contains("raise spark.executor.memoryOverhead or spark.executor.memory"), "{told}");
    assert!(log.contains("answer: java.nio.DirectByteBuffer[pos=0 lim=1 cap=1]"), "{log}");
    let ledger = ledger(bed, "out-memory").unwrap();
    assert_eq!((ledger.failures.count, ledger.counts.lost), (1, 1), "it counts against the application");
    let reason = |pod: &Pod| {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
        status.state.as_ref()?.terminated.as_ref()?.reason.clone()
    };
    let kept: Vec<_> = bed.pods("executor").iter().filter_map(reason).collect();
    assert_eq!(kept, ["OOMKilled"], "what failed because of the application is kept when asked for");
}

/// Another node of the cluster, removed when dropped.
struct Elsewhere<'a> {
    bed: &'a Bed,
    agent: Child,
}

impl<'a> Elsewhere<'a> {
    const NAME: &'static str = "elsewhere";

    /// A node without the image, with so much capacity that the scheduler prefers it.
    fn up(bed: &'a Bed) -> Self {
        let agent = start(bed.node(Self::NAME, 64));
        let elsewhere = Self { bed, agent };
        bed.until("another node", || {
            let node = bed.nodes().into_iter().find(|n: &Node| n.metadata.name.as_deref() == Some(Self::NAME))?;
            let ready = node.status?.conditions?.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
            ready.then_some(())
        });
        elsewhere
    }
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(i32::try_from(self.agent.id()).unwrap()), Signal::SIGTERM);
        let _ = self.agent.wait();
        self.bed.delete_node(Self::NAME);
    }
}

fn an_image_missing_on_one_node(bed: &Bed, version: &str) {
    let first = bed.nodes().into_iter().next().and_then(|n| n.metadata.name).expect("the cluster's node");
    let image = format!("only.here/spark:{version}");
    let _known = bed.image(&image, version);
    let _elsewhere = Elsewhere::up(bed);
    let conf = [
        ("spark.kubernetes.executor.container.image", image.as_str()),
        ("spark.kubernetes.driver.node.selector.kubernetes.io/hostname", first.as_str()),
    ];
    let child = start(submit(bed, version, "out-nodes", &conf, &["--class", PI, JAR, "20"]));
    let node_of = |pod: &Pod| pod.spec.as_ref().and_then(|s| s.node_name.clone());
    bed.until("an executor on the node without its image", || {
        bed.pods("executor").iter().any(|p| node_of(p).as_deref() == Some(Elsewhere::NAME)).then_some(())
    });
    let avoids = |ledger: &ExecutorLedgerStatus| ledger.avoided_nodes.iter().any(|n| n.node == Elsewhere::NAME);
    let seen = bed.until("the node to be avoided", || ledger(bed, "out-nodes").filter(avoids));
    finished(bed, child, "out-nodes");
    let log = bed.log("out-nodes");
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!(registered(&log), 2, "{log}");
    assert_eq!(seen.failures.count, 0, "not the application's fault");
    let why = &seen.avoided_nodes[0];
    assert!(why.until.is_some() && why.why.contains(&image), "{why:?}");
}

/// Local directories on on-demand claims, and a shuffle plugin that recovers the data on them.
const CLAIMS: [(&str, &str); 6] = [
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.claimName", "OnDemand"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.storageClass", "local"),
    ("spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.options.sizeLimit", "100Mi"),
    (
        "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1.mount.path",
        "/data/spark-x/executor-x",
    ),
    ("spark.kubernetes.driver.reusePersistentVolumeClaim", "true"),
    ("spark.shuffle.sort.io.plugin.class", "org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO"),
];

fn shuffled(bed: &Bed, version: &str, name: &str, conf: &[(&str, &str)]) -> (Child, Pod) {
    let child = start(submit_script(bed, version, name, ("shuffle.py", include_str!("shuffle.py")), conf, &[]));
    bed.until("the shuffle", || bed.log(name).contains("shuffled: 8 outputs, mapped 1000").then_some(()));
    (child, bed.pods("executor").into_iter().next().unwrap())
}

/// The owner of each claim, by claim name.
fn claims(bed: &Bed) -> BTreeMap<String, String> {
    let owner = |c: &PersistentVolumeClaim| Some(c.metadata.owner_references.as_ref()?.first()?.name.clone());
    let all = bed.list::<PersistentVolumeClaim>();
    all.iter().map(|c| (c.metadata.name.clone().unwrap(), owner(c).unwrap_or_default())).collect()
}

fn a_reused_claim(bed: &Bed, version: &str) {
    let (child, victim) = shuffled(bed, version, "out-claims", &CLAIMS);
    let before = claims(bed);
    assert_eq!(before.len(), 2, "{before:?}");
    assert!(before.values().all(|owner| owner == "out-claims"), "they outlive their executors: {before:?}");
    let name = victim.metadata.name.unwrap();
    let java = processes(&name).into_iter().find(|(_, line)| line.contains("KubernetesExecutorBackend"));
    kill(Pid::from_raw(java.expect("the executor's JVM").0), Signal::SIGKILL).unwrap();
    bed.until("another executor", || {
        bed.pods("executor").iter().all(|p| p.metadata.name.as_ref() != Some(&name)).then_some(())
    });
    finished(bed, child, "out-claims");
    let log = bed.log("out-claims");
    assert!(told(&log).contains("137"), "{}", told(&log));
    assert!(log.contains("sum: 499500, mapped 1000"), "nothing was computed again: {log}");
    assert_eq!(registered(&log), 3, "{log}");
    assert_no_refusals(&log);
    bed.until("its claims to go", || claims(bed).is_empty().then_some(()));
}

fn a_decommissioned_executor(bed: &Bed, version: &str) {
    let conf = [
        ("spark.decommission.enabled", "true"),
        ("spark.storage.decommission.enabled", "true"),
        ("spark.storage.decommission.shuffleBlocks.enabled", "true"),
        // How often it checks whether everything has been migrated.
        ("spark.storage.decommission.replicationReattemptInterval", "1s"),
    ];
    let (child, victim) = shuffled(bed, version, "out-decom", &conf);
    bed.evict(&victim.metadata.name.unwrap());
    finished(bed, child, "out-decom");
    let log = bed.log("out-decom");
    assert!(log.contains("sum: 499500, mapped 1000"), "nothing was computed again: {log}");
    assert_eq!(registered(&log), 3, "{log}");
    assert_no_refusals(&log);
    assert_eq!(ledger(bed, "out-decom").unwrap().failures.count, 0);
}
