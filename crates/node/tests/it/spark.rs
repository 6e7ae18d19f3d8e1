//! Real Spark on our node, submitted by Spark's own client to a real API server. Slow, and the first run downloads Spark:
//! `cargo test -p firesteel-node --test it -- --ignored spark`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use firesteel_node::runtime::Runtimes;
use firesteel_testenv::TestEnv;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::harness::{Cluster, World, exit, phase};

const IMAGE: &str = "apache/spark:4.1.4";
/// The first release that can run executors in a Deployment.
const WITH_DEPLOYMENTS: &str = "apache/spark:4.2.1";

/// Submits an application in cluster mode; returns the client process.
async fn submit(world: &World, name: &str, arguments: &[&str]) -> std::process::Child {
    submit_with(IMAGE, world, name, arguments).await
}

async fn submit_with(image: &'static str, world: &World, name: &str, arguments: &[&str]) -> std::process::Child {
    let cache = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache/firesteel")).expect("HOME");
    let (home, java) = tokio::task::spawn_blocking(move || {
        let runtimes = Runtimes::new(cache, Arc::new(|_| {}));
        (runtimes.spark_home(image).expect("Spark").expect("a home"), runtimes.java_home().expect("Java"))
    })
    .await
    .expect("provisioning");
    let env = TestEnv::get().expect("a cluster");
    let conf = [
        ("spark.kubernetes.namespace", world.namespace.as_str()),
        ("spark.kubernetes.container.image", image),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", "spark"),
        ("spark.kubernetes.node.selector.kubernetes.io/hostname", world.node.as_str()),
        ("spark.kubernetes.driver.request.cores", "0.1"),
        ("spark.kubernetes.executor.request.cores", "0.1"),
        ("spark.driver.memory", "512m"),
        ("spark.executor.memory", "512m"),
        ("spark.executor.instances", "2"),
        ("spark.kubernetes.driver.pod.name", name),
        ("spark.kubernetes.executor.deleteOnTermination", "false"),
    ];
    let mut command = Command::new(home.join("bin/spark-submit"));
    command.args(["--master", &format!("k8s://{}", env.server()), "--deploy-mode", "cluster", "--name", name]);
    for (key, value) in conf {
        command.arg("--conf").arg(format!("{key}={value}"));
    }
    command.args(arguments).env("KUBECONFIG", env.kubeconfig()).env("SPARK_HOME", &home).env("JAVA_HOME", java);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spark-submit")
}

async fn executors(world: &World) -> Vec<Pod> {
    world.pods().list(&ListParams::default().labels("spark-role=executor")).await.expect("pods").items
}

async fn patient_end(world: &World, name: &str) -> Pod {
    for _ in 0..5 {
        if let Ok(pod) = tokio::time::timeout(
            Duration::from_secs(55),
            world.until(name, "ended", |p| matches!(phase(p), "Succeeded" | "Failed")),
        )
        .await
        {
            return pod;
        }
    }
    panic!("{name} did not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Spark and a minute"]
async fn spark_computes_pi_on_two_executors_while_the_agent_dies() {
    let Some(mut world) = World::with_runtimes(Cluster::Real).await else { return };
    let mut client = submit(
        &world,
        "pi",
        &["--class", "org.apache.spark.examples.SparkPi", "local:///opt/spark/examples/jars/spark-examples.jar", "40"],
    )
    .await;
    for _ in 0..600 {
        if executors(&world).await.iter().filter(|p| phase(p) == "Running").count() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.kill_agent();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.start_agent().await;
    let pod = patient_end(&world, "pi").await;
    let log = world.log(&pod, "spark-kubernetes-driver").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    assert_eq!(executors(&world).await.len(), 2);
    let _ = client.wait();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Spark and a minute"]
async fn spark_replaces_an_executor_that_was_killed() {
    let Some(world) = World::with_runtimes(Cluster::Real).await else { return };
    let mut client = submit(
        &world,
        "killed",
        &[
            "--class",
            "org.apache.spark.examples.SparkPi",
            "local:///opt/spark/examples/jars/spark-examples.jar",
            "4000",
        ],
    )
    .await;
    let mut victim = None;
    for _ in 0..600 {
        let running = executors(&world).await.into_iter().find(|p| phase(p) == "Running");
        if let Some(pod) = running {
            victim = Some(pod.name_any());
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let victim = victim.expect("an executor");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let process = processes()
        .into_iter()
        .find(|(_, line)| line.contains("KubernetesExecutorBackend") && line.contains(&victim))
        .expect("a JVM")
        .0;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL).expect("a kill");
    let lost = world.ended(&victim).await;
    assert_eq!(exit(&lost).0, 137);
    let pod = patient_end(&world, "killed").await;
    assert_eq!(phase(&pod), "Succeeded", "{}", world.log(&pod, "spark-kubernetes-driver").await);
    assert!(executors(&world).await.len() >= 3, "another one took its place");
    let _ = client.wait();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Spark and a minute"]
async fn spark_gives_the_exit_code_of_a_python_driver() {
    let Some(world) = World::with_runtimes(Cluster::Real).await else { return };
    let scripts = tempfile::tempdir().expect("dir");
    let script = "import sys\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\nprint('counted', spark.range(1000).count())\nspark.stop()\nsys.exit(3)\n";
    std::fs::write(scripts.path().join("exit3.py"), script).expect("a script");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scripts.path(), open).expect("mode");
    let path = format!("spark.kubernetes.driver.volumes.hostPath.py.options.path={}", scripts.path().display());
    let mut client = submit(
        &world,
        "exit3",
        &[
            "--conf",
            &path,
            "--conf",
            "spark.kubernetes.driver.volumes.hostPath.py.mount.path=/py",
            "--conf",
            "spark.executor.instances=1",
            "local:///py/exit3.py",
        ],
    )
    .await;
    let pod = patient_end(&world, "exit3").await;
    let log = world.log(&pod, "spark-kubernetes-driver").await;
    assert_eq!((phase(&pod), exit(&pod).0), ("Failed", 3), "{log}");
    assert!(log.contains("counted 1000"), "{log}");
    let _ = client.wait();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Spark and a minute"]
async fn spark_gets_its_executors_from_a_deployment() {
    let Some(world) = World::with_runtimes(Cluster::Real).await else { return };
    // More than drivers usually have.
    let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": ["*"]}]);
    world.create::<Role>(json!({"metadata": {"name": "deploys"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deploys"});
    let who = json!([{"kind": "ServiceAccount", "name": "spark", "namespace": world.namespace}]);
    world.create::<RoleBinding>(json!({"metadata": {"name": "deploys"}, "roleRef": role, "subjects": who})).await;
    let deployment = "spark.kubernetes.allocation.pods.allocator=deployment";
    let jar = "local:///opt/spark/examples/jars/spark-examples.jar";
    let arguments = ["--conf", deployment, "--class", "org.apache.spark.examples.SparkPi", jar, "40"];
    let mut client = submit_with(WITH_DEPLOYMENTS, &world, "deploys", &arguments).await;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut seen = None;
    for _ in 0..1500 {
        seen = deployments.list(&ListParams::default()).await.expect("deployments").items.pop();
        let driver = world.pods().get_opt("deploys").await.expect("pods");
        if seen.is_some() || driver.is_some_and(|p| matches!(phase(&p), "Succeeded" | "Failed")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let pod = patient_end(&world, "deploys").await;
    let log = world.log(&pod, "spark-kubernetes-driver").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert!(log.contains("Pi is roughly 3.1"), "{log}");
    let spec = seen.expect("a Deployment").spec;
    // Host names are lower-case; the placeholder for the executor id occurs in no other field.
    let hostname = spec.template.spec.and_then(|s| s.hostname).unwrap_or_default();
    assert!(hostname.ends_with("-exec-execid"), "{hostname}");
    let _ = client.wait();
    world.finish().await;
}

fn processes() -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbered = entries.filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path())));
    numbered
        .filter_map(|(pid, path)| {
            Some((pid, String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).ok()?).replace('\0', " ")))
        })
        .collect()
}
