//! A cluster with node and operator as processes, and helpers for it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firesteel_api::SparkApplication;
use firesteel_testenv::{TestEnv, TestNamespace};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};

pub(crate) const IMAGE: &str = "apache/spark:4.1.4";
const PROGRAM: &str = env!("CARGO_BIN_EXE_firesteel");
/// Generous: other tests may be using the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// For JVMs that run for seconds: the optimizing compiler and a concurrent collector never pay off.
pub(crate) const SHORT_LIVED: &str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";
const LOOK: Duration = Duration::from_millis(200);

/// What a driver does, by its first argument.
const SCRIPT: &str = r#"
import sys, time
what = sys.argv[1] if len(sys.argv) > 1 else "pass"
print("doing", what, flush=True)
if what in ("count", "count-and-fail", "page"):
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    if what == "page":
        time.sleep(600)
    print("counted", spark.range(1000).count(), flush=True)
    spark.stop()
if what == "lose":
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.getOrCreate()
    context, seen, deadline = spark.sparkContext, set(), time.time() + 400
    # The driver and all executors so far, by address: until one of two is lost and a third has registered.
    while len(seen) < 4 and time.time() < deadline:
        total = context.parallelize(range(1000), 8).map(lambda n: (time.sleep(0.002), n)[1]).sum()
        keys = context._jsc.sc().getExecutorMemoryStatus().keysIterator()
        while keys.hasNext():
            seen.add(keys.next())
        print("seen", len(seen), flush=True)
    print("sum", total, flush=True)
    spark.stop()
if what == "count-and-fail":
    sys.exit(3)
if what == "sleep":
    time.sleep(8)
if what == "forever":
    time.sleep(600)
if what == "volumes":
    for path in ("/v/map/greeting", "/v/secret/word", "/v/plain/word", "/v/all/greeting", "/v/all/labels", "/v/down/name"):
        print(path, repr(open(path).read()), flush=True)
    for path in ("/v/empty", "/v/memory", "/v/host", "/v/claim", "/v/scratch", "/v/own"):
        with open(path + "/written", "w") as file:
            file.write("x")
        print(path, "takes a file", flush=True)
    try:
        open("/v/map/greeting", "w")
        sys.exit(9)
    except OSError as error:
        print("read-only:", error, flush=True)
print("done", what, flush=True)
"#;

pub(crate) struct Bed {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) apps: Api<SparkApplication>,
    pub(crate) pods: Api<Pod>,
    /// The node selector for our node.
    pub(crate) selector: Value,
    scratch: tempfile::TempDir,
    kind: Kind,
}

enum Kind {
    Local,
    Real { children: Vec<Child>, _namespace: TestNamespace },
}

/// Whether Spark is available on this machine.
fn spark() -> bool {
    let pull = Command::new(PROGRAM).args(["local", "image", "pull", IMAGE]).output().unwrap();
    if !pull.status.success() {
        eprintln!("skipped: no Spark runtime: {}", String::from_utf8_lossy(&pull.stderr));
    }
    pull.status.success()
}

impl Bed {
    /// The local cluster, as `firesteel local up` creates it.
    pub(crate) async fn local() -> Option<Bed> {
        if !spark() {
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let up = local(&["up"], &scratch.path().join("data"));
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let kubeconfig = local(&["kubeconfig"], &scratch.path().join("data"));
        let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8_lossy(&kubeconfig.stdout)).unwrap();
        let bed = Bed::new(client(kubeconfig).await, "default", json!({}), scratch, Kind::Local);
        bed.prepare().await;
        Some(bed)
    }

    /// A real control plane; node and operator are our processes.
    pub(crate) async fn real() -> Option<Bed> {
        let env = TestEnv::get()?;
        if !spark() {
            return None;
        }
        let client = env.client().await;
        for crd in firesteel_api::crds::manifests() {
            let api: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
                Api::all(client.clone());
            let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
            api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await.unwrap();
            let established = kube::runtime::conditions::is_crd_established();
            kube::runtime::wait::await_condition(api, &name, established).await.unwrap();
        }
        let namespace = env.namespace("operator").await;
        let scratch = tempfile::tempdir().unwrap();
        let node = format!("node-{}", namespace.name());
        let data = scratch.path().join("node");
        let start = |part: &str, more: &[&str]| {
            let log = std::fs::File::create(scratch.path().join(format!("{part}.log"))).unwrap();
            let mut command = Command::new(PROGRAM);
            command.arg(part).arg("--kubeconfig").arg(env.kubeconfig()).args(more);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
        };
        let children = vec![
            start("node", &["--name", &node, "--data-dir", &data.to_string_lossy(), "--cpus", "8", "--end-pods"]),
            start("operator", &["--namespaces", namespace.name(), "--health-probe-bind-address", "0"]),
        ];
        let name = namespace.name().to_owned();
        let selector = json!({"kubernetes.io/hostname": node});
        let kind = Kind::Real { children, _namespace: namespace };
        let bed = Bed::new(client.clone(), &name, selector, scratch, kind);
        let nodes: Api<Node> = Api::all(client);
        until("the node is ready", async || {
            let found = nodes.get_opt(&node).await.unwrap()?;
            let ready = found.status?.conditions?.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
            ready.then_some(())
        })
        .await;
        bed.prepare().await;
        Some(bed)
    }

    fn new(client: Client, namespace: &str, selector: Value, scratch: tempfile::TempDir, kind: Kind) -> Bed {
        Bed {
            apps: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.to_owned(),
            selector,
            scratch,
            kind,
        }
    }

    /// Creates the script that every driver mounts.
    async fn prepare(&self) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = json!({"metadata": {"name": "script"}, "data": {"script.py": SCRIPT}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }

    pub(crate) fn directory(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn operator_log(&self) -> String {
        let path = match self.kind {
            Kind::Local => self.scratch.path().join("data/logs/operator.log"),
            Kind::Real { .. } => self.scratch.path().join("operator.log"),
        };
        let log = std::fs::read_to_string(&path).unwrap_or_else(|e| format!("{}: {e}", path.display()));
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(80)..].join("\n")
    }

    /// A manifest whose driver runs the script with these arguments.
    pub(crate) fn manifest(&self, name: &str, arguments: &[&str], patch: &Value) -> Value {
        let role = json!({"cores": 1, "coreRequest": "100m", "memory": "512m", "nodeSelector": self.selector});
        let mut spec = json!({
            "type": "Python", "mode": "cluster", "sparkVersion": "4.1.4", "image": IMAGE,
            "mainApplicationFile": "local:///script/script.py", "arguments": arguments,
            "volumes": [{"name": "script", "configMap": {"name": "script"}}],
            // A busy machine takes more than Spark's 10 seconds to open a connection.
            "sparkConf": {
                "spark.kubernetes.driver.connectionTimeout": "120000", "spark.kubernetes.driver.requestTimeout": "120000",
                "spark.network.timeout": "600s",
                "spark.driver.extraJavaOptions": SHORT_LIVED, "spark.executor.extraJavaOptions": SHORT_LIVED,
            },
            "driver": role, "executor": role,
        });
        merge(
            &mut spec,
            &json!({
                "driver": {"serviceAccount": "spark", "volumeMounts": [{"name": "script", "mountPath": "/script"}]},
                "executor": {"instances": 1},
            }),
        );
        merge(&mut spec, patch);
        json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
            "metadata": {"name": name}, "spec": spec,
        })
    }

    /// Applies a manifest, as kubectl would.
    pub(crate) async fn apply(&self, manifest: &Value) {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        self.apps.patch(name, &params, &Patch::Apply(manifest)).await.unwrap();
    }

    pub(crate) async fn start(&self, name: &str, arguments: &[&str], patch: &Value) {
        self.apply(&self.manifest(name, arguments, patch)).await;
    }

    pub(crate) async fn edit(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.apps.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits for a state; fails at once in another final state.
    pub(crate) async fn state(&self, name: &str, state: &str) -> SparkApplication {
        until(&format!("{name} is {state}"), async || {
            let app = self.apps.get(name).await.unwrap();
            let now = app.status.clone().unwrap_or_default().application_state;
            let ended = matches!(now.state.as_str(), "COMPLETED" | "FAILED") && now.state != state;
            let fresh = app.status.as_ref().and_then(|s| s.observed_generation) == app.metadata.generation;
            assert!(!(ended && fresh), "{name} is {} and not {state}: {}", now.state, now.error_message);
            (now.state == state).then_some(app)
        })
        .await
    }

    pub(crate) async fn log(&self, pod: &str) -> String {
        let container = Some("spark-kubernetes-driver".to_owned());
        self.pods.logs(pod, &LogParams { container, ..LogParams::default() }).await.unwrap_or_default()
    }

    pub(crate) async fn executors(&self, app: &str) -> Vec<Pod> {
        let labels = format!("sparkoperator.k8s.io/app-name={app},spark-role=executor");
        self.pods.list(&ListParams::default().labels(&labels)).await.unwrap().items
    }

    /// Waits until no pod of an application is left.
    pub(crate) async fn no_pods(&self, app: &str) {
        let labels = ListParams::default().labels(&format!("sparkoperator.k8s.io/app-name={app}"));
        until(&format!("{app} has no pods"), async || {
            self.pods.list(&labels).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    }

    pub(crate) async fn uid(&self, pod: &str) -> String {
        self.pods.get(pod).await.unwrap().uid().unwrap()
    }

    /// Gives a driver account the role of `firesteel setup --executors-outside`, on the real control plane.
    pub(crate) fn executors_outside(&self, account: &str) {
        let env = TestEnv::get().unwrap();
        let mut setup = Command::new(PROGRAM);
        setup.args(["setup", "-n", &self.namespace, "--service-account", account, "--executors-outside", "--apply"]);
        let done = setup.arg("--kubeconfig").arg(env.kubeconfig()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Kills an executor's JVM with SIGKILL.
    pub(crate) fn kill_executor(&self, pod: &str) {
        let is_executor = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(pod) && line.contains("KubernetesExecutorBackend") && line.contains("java")
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
        let pid = pids.find(is_executor).expect("the executor's JVM");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    /// Kills the node agent with SIGKILL. Its supervisor restarts it.
    pub(crate) fn kill_agent(&self) {
        let data = self.scratch.path().join("data").to_string_lossy().into_owned();
        let mut killed = 0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
            if words.len() > 2 && words[1] == "node" && words.iter().any(|w| w.starts_with(&data)) {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
                killed += 1;
            }
        }
        assert_eq!(killed, 1, "there is one agent");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Local => {
                let _ = local(&["down"], &self.scratch.path().join("data"));
            }
            Kind::Real { children, .. } => {
                for child in children {
                    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
                    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
                    let _ = child.wait();
                }
            }
        }
    }
}

fn local(verb: &[&str], data: &PathBuf) -> std::process::Output {
    Command::new(PROGRAM).arg("local").args(verb).arg("--data-dir").arg(data).stdin(Stdio::null()).output().unwrap()
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Polls until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
