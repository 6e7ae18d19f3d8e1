//! `firesteel run` of a SparkConnect and `firesteel connect`, with Spark's own Python client from PyPI.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use firesteel_api::SparkConnect;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::bed::{Bed, SHORT_LIVED};
use crate::cases::{ALLOCATOR, Case, case};
use crate::cluster::own_cache;

pub(crate) const CASES: [Case; 4] = [
    Case { since: (4, 0), ..case("connect_a_client_runs_queries_over_a_rollout", |b, v| queries(b, v, "direct", 1)) },
    Case {
        since: (4, 0),
        ..case("connect_a_client_runs_queries_with_firesteel", |b, v| queries(b, v, "firesteel", 1))
    },
    Case {
        since: (4, 0),
        ..case("connect_queries_run_in_a_server_without_executors", |b, v| queries(b, v, "direct", 0))
    },
    case("connect_a_server_that_cannot_start_says_why", a_server_that_cannot_start),
];

/// How long a server or a query may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn manifest(bed: &Bed, version: &str, name: &str, spec: &Value) -> String {
    let mut all = json!({
        "sparkVersion": version, "image": format!("apache/spark:{version}"),
        "sparkConf": {
            "spark.driver.extraJavaOptions": SHORT_LIVED, "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.kubernetes.allocation.batch.delay": "1s", "spark.kubernetes.driver.request.cores": "0.1",
            "spark.kubernetes.executor.request.cores": "0.1", "spark.sql.shuffle.partitions": "4",
        },
        "server": {"memory": "1g", "template": {"spec": {"containers": [], "serviceAccountName": "spark"}}},
        "executor": {"instances": 1, "memory": "512m"},
    });
    for (field, value) in spec.as_object().unwrap() {
        match value.as_object() {
            Some(entries) => entries.iter().for_each(|(key, value)| all[field][key] = value.clone()),
            None => all[field] = value.clone(),
        }
    }
    let object = json!({
        "apiVersion": "sparkoperator.k8s.io/v1alpha1", "kind": "SparkConnect",
        "metadata": {"name": name, "namespace": bed.namespace}, "spec": all,
    });
    bed.write(&format!("{name}.json"), &object.to_string()).to_string_lossy().into_owned()
}

/// A program in the background, ended when dropped.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    heard: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let more = send.clone();
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(send.send(l))));
        std::thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).for_each(|l| drop(more.send(l))));
        Running { child, lines, heard: Vec::new() }
    }

    /// Waits for a line that starts like this.
    fn hear(&mut self, start: &str) -> String {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.lines.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.starts_with(start) {
                        return line;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        panic!("never heard {start:?} in {:.0?}: {}", began.elapsed(), self.heard.join("\n"));
    }

    /// Ctrl-C; returns the exit code.
    fn interrupt(mut self) -> i32 {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the extra `connect` of the package asks for.
const EXTRA: [&str; 6] = ["pandas", "pyarrow", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard"];

/// A Python with `pyspark[connect]` of this version: the release from PyPI that the images are made from, and what its extra
/// asks for, fetched once. `None` if that is impossible.
fn client(version: &str) -> Option<Command> {
    let venv = own_cache().join("clients/pyspark-connect");
    let python = venv.join("bin/python");
    let imports = "import pandas, pyarrow, grpc, grpc_status, google.rpc, zstandard";
    if !Command::new(&python).args(["-c", imports]).output().is_ok_and(|output| output.status.success()) {
        std::fs::create_dir_all(venv.parent().unwrap()).unwrap();
        let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv).status();
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet"]).args(EXTRA);
        if !made.is_ok_and(|status| status.success()) || !pip.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED, no Connect client: pip could not fetch {}", EXTRA.join(", "));
            return None;
        }
    }
    let release = own_cache().join(format!("runtimes/spark-{version}/python"));
    let zips = std::fs::read_dir(release.join("lib")).unwrap().flatten().map(|entry| entry.path());
    let py4j = zips.filter(|path| path.to_string_lossy().contains("py4j-"));
    let path = std::env::join_paths(std::iter::once(release.clone()).chain(py4j)).unwrap();
    let mut command = Command::new(&python);
    command.arg("-u").env("PYTHONPATH", path).env_remove("SPARK_HOME").env_remove("SPARK_REMOTE");
    Some(command)
}

fn run(bed: &Bed, file: &str) -> Running {
    Running::start(bed.running(&["--no-quick-starts", file]))
}

/// Queries, a roll-out while the client is connected, queries again; then Ctrl-C leaves nothing.
fn queries(bed: &Bed, version: &str, allocator: &str, executors: usize) {
    let Some(mut command) = client(version) else { return };
    let spec = json!({"sparkConf": {ALLOCATOR: allocator}, "executor": {"instances": executors}});
    let file = manifest(bed, version, "lab", &spec);
    let mut server = run(bed, &file);
    let address = server.hear("sc://localhost:");
    let script = bed.write("connect.py", include_str!("connect.py"));
    command.arg(&script).arg(&address);
    let mut python = Running::start(command);
    assert_eq!(python.hear("version"), format!("version {version}"));
    assert_eq!(python.hear("total"), "total 5050");
    python.hear("session works");
    let first = bed.get::<Pod>("lab-server").unwrap();
    let pods = bed.pods("executor");
    assert_eq!(pods.len(), executors, "{:?}", pods.iter().map(|p| &p.metadata.name).collect::<Vec<_>>());
    let status = bed.get::<SparkConnect>("lab").unwrap().status.unwrap();
    assert_eq!(status.executors.get("running").copied().unwrap_or_default(), i32::try_from(executors).unwrap());
    if allocator == "firesteel" {
        assert!(bed.get::<firesteel_api::ExecutorGrant>("lab-server").is_some());
    }

    // `firesteel connect` leads to the same server through the API server.
    let mut tunnel = Running::start(bed.connecting(&["lab", "-n", &bed.namespace]));
    let tunnelled = tunnel.hear("sc://localhost:");
    assert_ne!(tunnelled, address);
    let short = "import sys; from pyspark.sql import SparkSession; spark = SparkSession.builder.remote(sys.argv[1]).create(); \
                 print('sum', spark.range(5).selectExpr('sum(id) AS s').first()['s'])";
    let ask = |address: &str| {
        let mut command = client(version).unwrap();
        command.args(["-c", short, address]);
        Running::start(command).hear("sum")
    };
    assert_eq!(ask(&tunnelled), "sum 10");

    bed.patch::<SparkConnect>("lab", &json!({"spec": {"sparkConf": {"spark.sql.shuffle.partitions": "3"}}}));
    let lost = python.hear("lost");
    eprintln!("{version} {allocator}: {lost}");
    assert_eq!(python.hear("total"), "total 5050", "with a new session at the same address");
    python.hear("view");
    python.hear("done");
    let second = bed.get::<Pod>("lab-server").unwrap();
    assert_ne!(first.metadata.uid, second.metadata.uid);
    assert_eq!(second.metadata.annotations.unwrap()["firesteel.dev/attempt"], "2");
    assert_eq!(ask(&tunnelled), "sum 10", "the tunnel leads to the new server");
    assert_eq!(tunnel.interrupt(), 130);
    assert_eq!(server.interrupt(), 130);
    assert!(bed.get::<SparkConnect>("lab").is_none());
    bed.until("the pods to go", || bed.list::<Pod>().is_empty().then_some(()));
}

fn a_server_that_cannot_start(bed: &Bed, version: &str) {
    // A configuration that Spark itself refuses, in the pod.
    let extra = json!({"sparkConf": {"spark.sql.extensions": "org.example.None", "spark.sql.warehouse.dir": "nowhere://x", "spark.plugins": "org.example.Missing"}});
    let said = bed.run(&["--no-quick-starts", &manifest(bed, version, "broken", &extra)]);
    assert_eq!(said.code, 3, "{}", said.err);
    let last = said.err.lines().find(|line| line.starts_with("Failed: ")).unwrap_or_default().to_owned();
    assert!(last.starts_with("Failed: the server cannot start: the server ended with exit code"), "{}", said.err);
    let cause =
        if version.starts_with("3.") { "the image contains no Spark Connect server" } else { "org.example.Missing" };
    assert!(said.err.contains(cause), "{}", said.err);
    assert!(bed.get::<SparkConnect>("broken").is_none(), "it is cleaned up");
    // Found before anything is started.
    let bad = json!({"server": {"memory": "lots"}});
    let said = bed.run(&["--no-quick-starts", &manifest(bed, version, "bad", &bad)]);
    assert!(said.code == 3 && said.err.contains("spec.server.memory: \"lots\" is not a size"), "{}", said.err);
    // Not found, not ready.
    let none = bed.firesteel(&["connect", "none", "-n", &bed.namespace]);
    assert_eq!(none.code, 2, "{}", none.err);
    assert!(none.err.contains("there is no SparkConnect none in namespace"), "{}", none.err);
    let file = manifest(bed, version, "stuck", &json!({"image": "none.example/spark:4.1.4"}));
    let object: SparkConnect = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    bed.create(&object);
    let stuck = bed.firesteel(&["connect", "stuck", "-n", &bed.namespace, "--wait", "4"]);
    assert_eq!(stuck.code, 1, "{}", stuck.err);
    assert!(stuck.err.contains("is not ready after 4 s: Provisioning"), "{}", stuck.err);
    bed.delete::<SparkConnect>("stuck");
    bed.until("the pods to go", || bed.list::<Pod>().is_empty().then_some(()));
}
