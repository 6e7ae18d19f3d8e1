//! A case's view of the cluster: its own namespace and directory, and helpers to inspect and act there.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::{Base, Cluster, Said, USER, Who, said};
use crate::connect_client::own_cache;

const PATIENCE: Duration = Duration::from_secs(300);
/// For JVMs that live for seconds: an optimizing compiler and a concurrent collector never pay off. Saves a third of the CPU
/// time.
pub(crate) const SHORT_LIVED: &str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC";

pub(crate) struct Bed {
    cluster: Arc<Cluster>,
    pub(crate) namespace: String,
    directory: PathBuf,
}

impl Bed {
    pub(crate) fn new(cluster: &Arc<Cluster>, namespace: &str) -> Self {
        let directory = cluster.namespace(namespace);
        Self { cluster: cluster.clone(), namespace: namespace.to_owned(), directory }
    }

    fn base(&self) -> Base<'_> {
        self.cluster.base()
    }

    fn data(&self) -> PathBuf {
        self.cluster.data()
    }

    /// Writes a world-readable file.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// Creates a directory that belongs to the user of the cluster.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let mut path = self.directory.clone();
        for part in Path::new(name) {
            path.push(part);
            let _ = std::fs::create_dir(&path);
            self.cluster.give(&path);
        }
        path
    }

    /// A `firesteel submit` command for this cluster, with the settings that all applications here share.
    pub(crate) fn submit(&self, version: &str, name: &str, conf: &[(&str, &str)], rest: &[&str]) -> Command {
        let mut command = self.base().command(&["submit", "--master", &format!("k8s://{}", self.cluster.server)]);
        command.args(["--deploy-mode", "cluster", "--name", name]).env("KUBECONFIG", self.data().join("kubeconfig"));
        let image = format!("apache/spark:{version}");
        let usual = [
            ("spark.driver.extraJavaOptions", SHORT_LIVED),
            ("spark.executor.extraJavaOptions", SHORT_LIVED),
            ("spark.kubernetes.namespace", self.namespace.as_str()),
            ("spark.kubernetes.container.image", image.as_str()),
            ("spark.kubernetes.authenticate.driver.serviceAccountName", "spark"),
            ("spark.kubernetes.driver.pod.name", name),
            ("spark.kubernetes.driver.request.cores", "0.1"),
            ("spark.kubernetes.executor.request.cores", "0.1"),
            ("spark.kubernetes.allocation.batch.delay", "1s"),
            ("spark.executor.instances", "2"),
            ("spark.driver.memory", "512m"),
            ("spark.executor.memory", "512m"),
            // Wait for all requested executors, however slowly this machine starts them.
            ("spark.scheduler.minRegisteredResourcesRatio", "1"),
            ("spark.scheduler.maxRegisteredResourcesWaitingTime", "200s"),
        ];
        for (key, value) in usual.iter().filter(|(key, _)| conf.iter().all(|(k, _)| k != key)).chain(conf) {
            command.arg("--conf").arg(format!("{key}={value}"));
        }
        command.args(rest);
        command
    }

    /// Any other verb against this cluster.
    pub(crate) fn firesteel(&self, words: &[&str]) -> Said {
        let mut command = self.base().command(words);
        command.env("KUBECONFIG", self.data().join("kubeconfig"));
        said(command)
    }

    /// A command for another node agent of this cluster, with this many CPUs and without registered images.
    pub(crate) fn node(&self, name: &str, cpus: u32) -> Command {
        let path = |part: &str| self.directory.join(part).to_string_lossy().into_owned();
        let mut command = self.base().command(&["node", "--name", name, "--cpus", &cpus.to_string(), "--end-pods"]);
        command.args(["--data-dir", &path(name), "--runtime-dir", &path("no-runtimes")]);
        command.arg("--kubeconfig").arg(self.data().join("kubeconfig"));
        command
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        let api: Api<Node> = Api::all(self.cluster.client.clone());
        self.cluster.runtime.block_on(api.list(&ListParams::default())).unwrap().items
    }

    pub(crate) fn delete_node(&self, name: &str) {
        let api: Api<Node> = Api::all(self.cluster.client.clone());
        let _ = self.cluster.runtime.block_on(api.delete(name, &DeleteParams::default()));
    }

    /// Registers a release under another image name on the cluster's own node, until the result is dropped.
    pub(crate) fn image<'a>(&'a self, reference: &'a str, version: &str) -> Image<'a> {
        let cache = if self.cluster.who == Who::OrdinaryUser {
            self.cluster.place().join("home/.cache/firesteel")
        } else {
            own_cache()
        };
        let runtime = cache.join(format!("runtimes/spark-{version}"));
        let added = self.firesteel(&["local", "image", "add", reference, &runtime.to_string_lossy()]);
        assert_eq!(added.code, 0, "{}", added.err);
        Image { bed: self, reference }
    }

    /// A path that all processes of this cluster have in their command lines.
    pub(crate) fn place(&self) -> String {
        self.cluster.place().to_string_lossy().into_owned()
    }

    /// Evicts a pod, as a drain does.
    pub(crate) fn evict(&self, name: &str) {
        let api: Api<Pod> = self.api();
        self.cluster.runtime.block_on(api.evict(name, &kube::api::EvictParams::default())).unwrap();
    }

    /// A command that runs something on this cluster and is followed by the case.
    pub(crate) fn running(&self, words: &[&str]) -> Command {
        let data = self.data();
        let mut command = self.base().command(&["run", "--data-dir", data.to_str().unwrap()]);
        command.args(words).current_dir(&self.directory);
        command
    }

    /// A `firesteel connect` command for this cluster.
    pub(crate) fn connecting(&self, words: &[&str]) -> Command {
        let mut command = self.base().command(&["connect"]);
        command.args(words).env("KUBECONFIG", self.data().join("kubeconfig"));
        command
    }

    /// `firesteel run` on this cluster.
    pub(crate) fn run(&self, words: &[&str]) -> Said {
        let data = self.data();
        let mut all = vec!["run", "--data-dir", data.to_str().unwrap()];
        all.extend(words);
        let mut command = self.base().command(&all);
        command.current_dir(&self.directory);
        said(command)
    }

    /// The same in a given directory, with environment variables.
    pub(crate) fn run_in(&self, directory: &Path, env: &[(&str, &Path)], words: &[&str]) -> Said {
        let mut command = self.base().command(&["run", "--data-dir", self.data().to_str().unwrap()]);
        command.args(words).current_dir(directory).env("PWD", directory);
        ["VIRTUAL_ENV", "CONDA_PREFIX", "PYSPARK_PYTHON"].iter().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(env.iter().copied());
        said(command)
    }

    /// `run` on a pseudo-terminal from util-linux; `None` without it. All output is in `out`.
    pub(crate) fn run_on_a_terminal(&self, words: &[&str]) -> Option<Said> {
        let mut line = format!("{} run --data-dir {}", self.cluster.program.display(), self.data().display());
        words.iter().for_each(|word| line.push_str(&format!(" {word}")));
        let mut command = self.base().command(&[]);
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).current_dir(&self.directory).stdin(Stdio::null());
        command.get_envs().for_each(|(key, value)| {
            match value {
                Some(value) => script.env(key, value),
                None => script.env_remove(key),
            };
        });
        if self.cluster.who == Who::OrdinaryUser {
            script.uid(USER).gid(USER);
        }
        command = script;
        let found = Command::new("script").arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|s| s.success()).then(|| said(command))
    }

    /// Driver settings that mount this case's directory at `/cases`.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let volume = "spark.kubernetes.driver.volumes.hostPath.cases";
        vec![
            (format!("{volume}.options.path"), self.directory.to_string_lossy().into_owned()),
            (format!("{volume}.mount.path"), "/cases".to_owned()),
            (format!("{volume}.mount.readOnly"), "true".to_owned()),
        ]
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        <K as kube::Resource>::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self, role: &str) -> Vec<Pod> {
        let api: Api<Pod> = self.api();
        let wanted = ListParams::default().labels(&format!("spark-role={role}"));
        self.cluster.runtime.block_on(api.list(&wanted)).unwrap().items
    }

    pub(crate) fn get<K>(&self, name: &str) -> Option<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
        <K as kube::Resource>::DynamicType: Default,
    {
        let api: Api<K> = self.api();
        self.cluster.runtime.block_on(api.get_opt(name)).unwrap()
    }

    pub(crate) fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
        <K as kube::Resource>::DynamicType: Default,
    {
        let api: Api<K> = self.api();
        self.cluster.runtime.block_on(api.list(&ListParams::default())).unwrap().items
    }

    pub(crate) fn create<K>(&self, object: &K)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + fmt::Debug,
        <K as kube::Resource>::DynamicType: Default,
    {
        let api: Api<K> = self.api();
        self.cluster.runtime.block_on(api.create(&PostParams::default(), object)).unwrap();
    }

    /// Merges something into an object.
    pub(crate) fn patch<K>(&self, name: &str, patch: &serde_json::Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
        <K as kube::Resource>::DynamicType: Default,
    {
        let api: Api<K> = self.api();
        let patch = kube::api::Patch::Merge(patch);
        self.cluster.runtime.block_on(api.patch(name, &kube::api::PatchParams::default(), &patch)).unwrap();
    }

    /// Deletes an object if it exists.
    pub(crate) fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
        <K as kube::Resource>::DynamicType: Default,
    {
        let api: Api<K> = self.api();
        let _ = self.cluster.runtime.block_on(api.delete(name, &DeleteParams::default()));
    }

    pub(crate) fn delete_pod(&self, name: &str) {
        let api: Api<Pod> = self.api();
        self.cluster.runtime.block_on(api.delete(name, &DeleteParams::default())).unwrap();
    }

    pub(crate) fn log(&self, pod: &str) -> String {
        let api: Api<Pod> = self.api();
        self.cluster
            .runtime
            .block_on(api.logs(pod, &LogParams::default()))
            .unwrap_or_else(|e| format!("no log of {pod}: {e}"))
    }

    /// The same with timestamps.
    pub(crate) fn log_with_times(&self, pod: &str) -> String {
        let api: Api<Pod> = self.api();
        let times = LogParams { timestamps: true, ..LogParams::default() };
        self.cluster.runtime.block_on(api.logs(pod, &times)).unwrap_or_default()
    }

    /// Follows a pod's log until it ends, in the background.
    pub(crate) fn follow(&self, pod: &str) -> tokio::task::JoinHandle<String> {
        use futures::AsyncReadExt as _;
        let api: Api<Pod> = self.api();
        let pod = pod.to_owned();
        self.cluster.runtime.spawn(async move {
            let mut text = Vec::new();
            let follow = LogParams { follow: true, ..LogParams::default() };
            if let Ok(stream) = api.log_stream(&pod, &follow).await {
                let _ = Box::pin(stream).read_to_end(&mut text).await;
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    }

    pub(crate) fn end_of(&self, task: tokio::task::JoinHandle<String>) -> String {
        self.cluster.runtime.block_on(task).unwrap()
    }

    /// Waits until `what` returns something; panics with `words` if it never does.
    pub(crate) fn until<T>(&self, words: &str, mut what: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = what() {
                return found;
            }
            let drivers: Vec<String> = if began.elapsed() > PATIENCE {
                self.pods("driver").iter().filter_map(|p| p.metadata.name.as_deref()).map(|n| self.log(n)).collect()
            } else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            panic!("waited {} s for {words} in vain; drivers: {}", PATIENCE.as_secs(), drivers.join("\n--\n"));
        }
    }

    /// Deletes what a case has left.
    pub(crate) fn clear(&self) {
        let api: Api<Pod> = self.api();
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let _ = self.cluster.runtime.block_on(api.delete_collection(&at_once, &ListParams::default()));
        self.until("pods to go", || self.list::<Pod>().is_empty().then_some(()));
    }
}

/// An image name for a release, removed when dropped.
pub(crate) struct Image<'a> {
    bed: &'a Bed,
    reference: &'a str,
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        self.bed.firesteel(&["local", "image", "remove", self.reference]);
    }
}
