//! `firesteel run` of a SparkConnect and `firesteel connect`, with Spark's own Python client from PyPI.

use firesteel_api::SparkConnect;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::bed::{Bed, SHORT_LIVED};
use crate::cases::{ALLOCATOR, Case, case};
use crate::connect_client::{QUERIES, Running, client};

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
    let script = bed.write("connect.py", QUERIES);
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
