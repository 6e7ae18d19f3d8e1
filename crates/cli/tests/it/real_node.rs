//! A real node: kubelet, containerd and runc, with the image that `firesteel local image save` writes. Minutes, and root;
//! run by `tests/real`.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SPARK: &str = "apache/spark:4.1.4";
const IMAGE: &str = "localhost/firesteel-spark:4.1.4";
/// Exit code of `testenv` if this machine cannot run what was requested.
const UNAVAILABLE: i32 = 77;

/// A control plane with a real node.
struct Plane {
    dir: PathBuf,
}

impl Plane {
    fn start() -> Option<Self> {
        let owner = std::process::id().to_string();
        let output = testenv(&["start", "--real-node", "--owner-pid", &owner]);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(UNAVAILABLE) {
            eprintln!("SKIPPED, no real node: {words}");
            return None;
        }
        assert!(output.status.success(), "{words}");
        eprintln!("{words}");
        Some(Self { dir: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) })
    }

    fn kubectl(&self, words: &[&str]) -> String {
        let mut command = Command::new(self.dir.join("bin/kubectl"));
        let output = command.arg("--kubeconfig").arg(self.dir.join("kubeconfig")).args(words).output().unwrap();
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn server(&self) -> String {
        let env: serde_json::Value =
            serde_json::from_slice(&std::fs::read(self.dir.join("env.json")).unwrap()).unwrap();
        env["server"].as_str().unwrap().to_owned()
    }

    /// Submits an application with two executors and waits for its end; returns the driver's log.
    fn submit(&self, name: &str, arguments: &[&str]) -> String {
        let conf = [
            ("spark.kubernetes.namespace", "spark"),
            ("spark.kubernetes.container.image", IMAGE),
            ("spark.kubernetes.authenticate.driver.serviceAccountName", "spark"),
            ("spark.kubernetes.driver.pod.name", name),
            ("spark.kubernetes.driver.request.cores", "0.4"),
            ("spark.kubernetes.executor.request.cores", "0.4"),
            ("spark.driver.memory", "512m"),
            ("spark.executor.memory", "512m"),
            ("spark.executor.instances", "2"),
            // Wait for both, however slowly the machine starts them.
            ("spark.scheduler.minRegisteredResourcesRatio", "1"),
            ("spark.scheduler.maxRegisteredResourcesWaitingTime", "300s"),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel"));
        command.args(["submit", "--master", &format!("k8s://{}", self.server()), "--deploy-mode", "cluster"]);
        command.args(["--name", name]);
        for (key, value) in conf {
            command.arg("--conf").arg(format!("{key}={value}"));
        }
        let output = command.args(arguments).env("KUBECONFIG", self.dir.join("kubeconfig")).output().unwrap();
        let log = self.kubectl(&["logs", "-n", "spark", name]);
        assert!(output.status.success(), "{}\n{log}", String::from_utf8_lossy(&output.stderr));
        log
    }
}

fn testenv(words: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv/testenv");
    Command::new(program).args(words).stdin(Stdio::null()).output().expect("testenv runs")
}

/// What a node could leave behind on this machine.
fn traces() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let links = std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
    found.insert("links".to_owned(), links.filter(|n| n.starts_with("fsn") || n == "pods0").collect());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    found.insert("mounts".to_owned(), mounts.lines().filter(|l| l.contains("firesteel-testenv-")).collect());
    for name in ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"] {
        found.insert(name.to_owned(), std::fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default());
    }
    let groups = mounts.lines().filter(|l| l.starts_with("cgroup")).filter_map(|l| l.split(' ').nth(1));
    let inside = groups.flat_map(|root| std::fs::read_dir(root).into_iter().flatten().flatten());
    let ours = inside.map(|e| e.path().display().to_string()).filter(|p| p.contains("firesteel-node-"));
    found.insert("control groups".to_owned(), ours.collect());
    found
}

#[test]
#[ignore = "tests/real: root, real Spark on a real kubelet, minutes"]
fn real_node_runs_the_image_that_image_save_writes() {
    let before = traces();
    let Some(plane) = Plane::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("spark.tar");
    let saved = Command::new(env!("CARGO_BIN_EXE_firesteel"))
        .args(["local", "image", "save", SPARK])
        .arg(&archive)
        .args(["--name", IMAGE, "--compression", "none"])
        .output()
        .unwrap();
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    let loaded = testenv(&["load", "--dir", &plane.dir.to_string_lossy(), &archive.to_string_lossy()]);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    drop(directory);
    plane.kubectl(&["create", "namespace", "spark"]);
    plane.kubectl(&["create", "serviceaccount", "spark", "-n", "spark"]);
    plane.kubectl(&["create", "rolebinding", "s", "-n", "spark", "--clusterrole=edit", "--serviceaccount=spark:spark"]);

    let jar = "local:///opt/spark/examples/jars/spark-examples.jar";
    let log = plane.submit("pi", &["--class", "org.apache.spark.examples.SparkPi", jar, "20"]);
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!(log.matches(": Registered executor ").count(), 2, "{log}");
    // The same in Python: the image has an interpreter that Spark accepts.
    let log = plane.submit("pi-py", &["local:///opt/spark/examples/src/main/python/pi.py", "10"]);
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!(log.matches(": Registered executor ").count(), 2, "{log}");
    // Containers of a real runtime, with the exit code of the program.
    let status = plane.kubectl(&["get", "pod", "-n", "spark", "pi", "-o", "jsonpath={.status.containerStatuses[0]}"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert!(status["containerID"].as_str().unwrap().starts_with("containerd://"), "{status}");
    assert_eq!(status["state"]["terminated"]["exitCode"], 0, "{status}");

    let dir = plane.dir.to_string_lossy().into_owned();
    assert!(testenv(&["stop", "--dir", &dir]).status.success());
    assert!(!plane.dir.exists(), "the directory is gone");
    // The kernel removes a network namespace in the background.
    for _ in 0..100 {
        if traces() == before {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(traces(), before, "nothing is left on the machine");
    let running = Command::new("pgrep").args(["-f", &dir]).output().map(|o| o.stdout).unwrap_or_default();
    assert_eq!(String::from_utf8_lossy(&running), "", "no process is left");
}
