//! A node for each test: an agent process that serves a cluster, ours or a real one.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firesteel_apiserver::{ApiServer, RunningServer};
use firesteel_testenv::{TestEnv, TestNamespace};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_firesteel-node");

pub(crate) enum Cluster {
    Ours,
    Real,
}

/// A cluster with one node that is ours.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) node: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) real: bool,
    pub(crate) kubeconfig: PathBuf,
    /// Whether the agent stops its pods when it is stopped.
    pub(crate) end_pods: bool,
    /// The directory of runtimes and images.
    cache: PathBuf,
    /// The agent's user, if it is not that of this process.
    user: Option<u32>,
    agent: Option<Child>,
    server: Option<RunningServer>,
    _namespace: Option<TestNamespace>,
    /// Unmounted before its directory is removed.
    disk: Option<Disk>,
    _scratch: tempfile::TempDir,
}

/// A file system for the agent, removed with its world.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

impl World {
    /// `None` if this machine has no such cluster.
    pub(crate) async fn new(cluster: Cluster) -> Option<Self> {
        Self::with(cluster, None, None).await
    }

    /// The same, with this machine's Spark runtimes.
    pub(crate) async fn with_runtimes(cluster: Cluster) -> Option<Self> {
        let cache = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache/firesteel")).expect("HOME");
        Self::with(cluster, None, Some(cache)).await
    }

    /// The same, with an agent that is not root. Its user need not exist.
    pub(crate) async fn with_agent_of(cluster: Cluster, user: u32) -> Option<Self> {
        Self::with(cluster, Some(user), None).await
    }

    async fn with(cluster: Cluster, user: Option<u32>, cache: Option<PathBuf>) -> Option<Self> {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let id = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let (kubeconfig, server, namespace, name) = match cluster {
            Cluster::Real => {
                let env = TestEnv::get()?;
                let namespace = env.namespace("node").await;
                let name = namespace.name().to_owned();
                (env.kubeconfig().to_owned(), None, Some(namespace), name)
            }
            Cluster::Ours => {
                let server = ApiServer::builder().start().await.expect("an API server");
                let path = scratch.path().join("kubeconfig");
                std::fs::write(&path, server.admin_kubeconfig()).expect("kubeconfig");
                (path, Some(server), None, "default".to_owned())
            }
        };
        let config = Kubeconfig::read_from(&kubeconfig).expect("kubeconfig");
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("config");
        let client = Client::try_from(config).expect("a client");
        let node = format!("node-{id}");
        if cache.is_none() {
            close(&client, &node).await;
        }
        let data_dir = scratch.path().join("data");
        let cache = cache.unwrap_or_else(|| scratch.path().join("cache"));
        let real = server.is_none();
        let mut world = Self {
            client,
            namespace: name,
            node,
            data_dir,
            real,
            kubeconfig,
            end_pods: false,
            cache,
            user,
            agent: None,
            server,
            _namespace: namespace,
            disk: None,
            _scratch: scratch,
        };
        world.start_agent().await;
        Some(world)
    }

    /// Another node of the same cluster, with its own agent and directory.
    pub(crate) async fn another_node(&self) -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let node = format!("{}-2", self.node);
        close(&self.client, &node).await;
        let mut other = Self {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            node,
            data_dir: scratch.path().join("data"),
            real: self.real,
            kubeconfig: self.kubeconfig.clone(),
            end_pods: false,
            cache: scratch.path().join("cache"),
            user: self.user,
            agent: None,
            server: None,
            _namespace: None,
            disk: None,
            _scratch: scratch,
        };
        other.start_agent().await;
        other
    }

    pub(crate) async fn start_agent(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.data_dir.with_extension("log"))
            .expect("a log");
        let mut program = PathBuf::from(PROGRAM);
        if self.user.is_some() {
            // The build directory may be in a home directory that others cannot read.
            program = self.data_dir.with_file_name("firesteel-node");
            if !program.exists() {
                // Copy in another process: a file open for writing here would be inherited by a concurrent fork, and a program that is open
                // for writing cannot be executed.
                let copied = Command::new("cp").arg(PROGRAM).arg(&program).status().expect("cp");
                assert!(copied.success(), "a copy of the program");
            }
            let own = std::fs::read(&self.kubeconfig).expect("kubeconfig");
            self.kubeconfig = self.data_dir.with_file_name("kubeconfig-of-agent");
            std::fs::write(&self.kubeconfig, own).expect("kubeconfig");
            let scratch = self.data_dir.parent().expect("a parent");
            for path in [scratch, &self.kubeconfig] {
                std::os::unix::fs::chown(path, self.user, self.user).expect("chown");
            }
        }
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let child = command
            .arg("agent")
            .arg(&self.node)
            .arg(&self.data_dir)
            .arg(&self.cache)
            .args(self.end_pods.then_some("--end-pods"))
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("an agent");
        self.agent = Some(child);
        let nodes: Api<Node> = Api::all(self.client.clone());
        for _ in 0..300 {
            let node = nodes.get_opt(&self.node).await.expect("nodes");
            let ready = node
                .and_then(|n| n.status?.conditions)
                .is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
            if ready {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!(
            "the node was not ready in time: {}",
            std::fs::read_to_string(self.data_dir.with_extension("log")).unwrap_or_default()
        );
    }

    /// Maps an image to a directory.
    pub(crate) fn map_image(&self, reference: &str, dir: &Path) {
        let runtimes = firesteel_node::runtime::Runtimes::new(&self.cache, std::sync::Arc::new(|_| {}));
        runtimes.mappings().add(reference, dir).expect("a mapping");
    }

    /// Kills the agent with SIGKILL.
    pub(crate) fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().expect("kill");
            agent.wait().expect("wait");
        }
    }

    /// Restarts the agent on a disk of this size (in tmpfs syntax).
    pub(crate) async fn restart_on_a_disk_of(&mut self, size: &str) {
        self.kill_agent();
        std::fs::create_dir_all(&self.data_dir).expect("dir");
        let options = format!("size={size},mode=700");
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("tmpfs"), &self.data_dir, Some("tmpfs"), flags, Some(options.as_str())).expect("a disk");
        self.disk = Some(Disk(self.data_dir.clone()));
        self.start_agent().await;
    }

    /// Stops the agent as an administrator would, and waits for it to exit.
    pub(crate) fn stop_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(agent.id()).expect("a pid"));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("a signal");
            agent.wait().expect("wait");
        }
    }

    pub(crate) fn agent_pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
    }

    /// The kubectl that testenv built.
    pub(crate) fn kubectl(&self) -> PathBuf {
        match TestEnv::get() {
            Some(env) => env.kubectl(),
            None => PathBuf::from("kubectl"),
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a pod on our node, without a service account: not every cluster here has a controller for those.
    pub(crate) async fn run(&self, name: &str, spec: Value) -> Pod {
        self.run_labelled(name, json!({}), spec).await
    }

    pub(crate) async fn run_labelled(&self, name: &str, labels: Value, mut spec: Value) -> Pod {
        let object = spec.as_object_mut().expect("an object");
        object.insert("nodeName".to_owned(), json!(self.node));
        object.entry("restartPolicy").or_insert(json!("Never"));
        object.entry("terminationGracePeriodSeconds").or_insert(json!(5));
        object.entry("automountServiceAccountToken").or_insert(json!(false));
        for container in object.get_mut("containers").and_then(Value::as_array_mut).expect("containers") {
            container.as_object_mut().expect("an object").entry("image").or_insert(json!("busybox"));
        }
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("a pod is created")
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + serde::Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &serde_json::from_value(object).expect("an object"))
            .await
            .expect("an object is created");
    }

    /// Waits until a pod satisfies a condition.
    pub(crate) async fn until(&self, name: &str, what: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = None;
        for _ in 0..600 {
            let pod = self.pods().get_opt(name).await.expect("pods");
            if let Some(pod) = pod {
                if wanted(&pod) {
                    return pod;
                }
                last = pod.status;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(self.data_dir.with_extension("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(40).collect();
        let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
        let status = serde_json::to_string_pretty(&last).unwrap_or_default();
        panic!("{name} was never {what}: {status}\nthe agent's log ends with:\n{end}");
    }

    pub(crate) async fn ended(&self, name: &str) -> Pod {
        self.until(name, "ended", |p| matches!(phase(p), "Succeeded" | "Failed")).await
    }

    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.until(name, "running", |p| {
            phase(p) == "Running"
                && p.status
                    .as_ref()
                    .and_then(|s| s.container_statuses.as_ref())
                    .is_some_and(|c| c.iter().all(|c| c.ready))
        })
        .await
    }

    pub(crate) async fn deleted(&self, name: &str) {
        for _ in 0..300 {
            if self.pods().get_opt(name).await.expect("pods").is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{name} was never gone");
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.expect("a deletion");
    }

    /// The log through the API server, which asks our node.
    pub(crate) async fn log(&self, pod: &Pod, container: &str) -> String {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let parameters = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        self.pods().logs(&name, &parameters).await.expect("a log")
    }

    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = events.list(&ListParams::default()).await.expect("events");
        all.into_iter()
            .filter(|e| e.involved_object.name.as_deref() == Some(name))
            .map(|e| format!("{} {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
            .collect()
    }

    /// Waits for an event: they are written in the background.
    pub(crate) async fn event(&self, name: &str, text: &str) {
        for _ in 0..100 {
            if self.events(name).await.iter().any(|e| e.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no event \"{text}\" about {name}: {:#?}", self.events(name).await);
    }

    /// Stops everything and checks that no process is left.
    pub(crate) async fn finish(mut self) {
        self.kill_agent();
        firesteel_node::end_all_pods(&self.data_dir, Duration::from_secs(1)).await;
        let left = processes_of(&self.data_dir);
        assert_eq!(left, Vec::<String>::new(), "processes are left over");
        let nodes: Api<Node> = Api::all(self.client.clone());
        let _ = nodes.delete(&self.node, &DeleteParams::default()).await;
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
    }
}

impl Drop for World {
    /// A failed case must not leave its pods running. In a separate thread: this one may be inside a runtime.
    fn drop(&mut self) {
        self.kill_agent();
        let data_dir = self.data_dir.clone();
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(firesteel_node::end_all_pods(&data_dir, Duration::from_secs(1)));
        });
        let _ = ended.join();
    }
}

/// Marks the node as unschedulable for other pods of a shared cluster: ours set their node name.
async fn close(client: &Client, node: &str) {
    let closed = json!({"metadata": {"name": node}, "spec": {"unschedulable": true}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(closed).expect("a node")).await.expect("a node");
}

/// Command lines that contain a directory.
pub(crate) fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).replace('\0', " ")).filter(|l| l.contains(&dir)).collect()
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

/// The first container's exit code and reason.
pub(crate) fn exit(pod: &Pod) -> (i32, String) {
    let state =
        pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.as_ref());
    state.map_or((-1, String::new()), |t| (t.exit_code, t.reason.clone().unwrap_or_default()))
}

/// Reason and message of the first waiting container.
pub(crate) fn waiting(pod: &Pod) -> (String, String) {
    let all = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let state = all.filter_map(|c| c.state.as_ref()?.waiting.clone()).next().unwrap_or_default();
    (state.reason.unwrap_or_default(), state.message.unwrap_or_default())
}
