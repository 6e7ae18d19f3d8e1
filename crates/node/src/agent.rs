//! The agent: watches the pods of its node and runs a worker for each.
//!
//! It has no state of its own: pods are in the API server, processes and exit codes in the shims and their directories.

mod api_forward;
mod events;
mod eviction;
pub(crate) mod exec;
mod hooks;
mod node;
mod object_watches;
mod orphans;
mod pod;
mod probe;
mod probe_client;
mod remote_pods;
mod services;
pub(crate) mod shim_connection;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt as _};
use nix::fcntl::{Flock, FlockArg};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::address::Addresses;
use crate::agent::api_forward::ApiRoute;
use crate::agent::events::Recorder;
use crate::agent::eviction::Pressure;
use crate::agent::node::{Description, Readiness};
use crate::agent::object_watches::ObjectWatches;
use crate::agent::orphans::pod_dirs;
use crate::agent::pod::{PodView, PodWorker};
use crate::agent::shim_connection::remove_tree;
use crate::hosts::{Endpoint, ServiceAddresses};
use crate::kubelet::Kubelet;
use crate::lifecycle::TerminationByKubelet;
use crate::runtime::{OnProgress, Runtimes};

pub use node::Capacity;
pub(crate) use orphans::clean_up;
pub use orphans::end_all_pods;

/// The agent's options.
#[derive(Clone)]
pub struct AgentOptions {
    /// The name of its Node.
    pub name: String,
    /// The directory for pods, logs and exit codes. One agent per directory.
    pub data_dir: PathBuf,
    /// The directory for runtimes, usually `~/.cache/firesteel`.
    pub cache_dir: PathBuf,
    /// The command that runs [`crate::shim::main`], for example `firesteel shim`.
    pub shim: Vec<OsString>,
    pub labels: BTreeMap<String, String>,
    /// What pods may use; `None` means the whole machine.
    pub capacity: Option<Capacity>,
    /// The port of the node's API (logs, exec); 0 means any free port.
    pub port: u16,
    /// What happens to pods when the agent stops.
    pub on_stop: OnStop,
    pub progress: OnProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// They keep running; the next agent adopts them.
    LeavePods,
    /// They are stopped, so that no process is left.
    EndPods,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{step} {object}: {source}")]
    Api { step: &'static str, object: String, source: Box<kube::Error> },
    #[error("node {node} is already served by another agent ({agent}); stop it, or give this one another name")]
    Served { node: String, agent: String },
    #[error("{} is in use by another node agent", .0.display())]
    Locked(PathBuf),
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("{step}: {source}")]
    System { step: &'static str, source: io::Error },
    #[error("port {0} of 127.0.0.1 is taken: choose another for the node's API, or 0 for any free one")]
    PortTaken(u16),
    #[error("cannot run pods on this machine: {0}")]
    Sandbox(String),
}

/// State shared by all pods of the node.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) options: AgentOptions,
    pub(crate) capacity: Capacity,
    pub(crate) runtimes: Runtimes,
    pub(crate) addresses: Addresses,
    pub(crate) recorder: Recorder,
    pub(crate) route: ApiRoute,
    /// The API server's CA, for namespaces without `kube-root-ca.crt`.
    pub(crate) ca: Option<String>,
    pub(crate) names: ServiceIndex,
    pub(crate) sources: ObjectWatches,
    pub(crate) pressure: Mutex<Pressure>,
    pub(crate) pods: Mutex<BTreeMap<String, PodEntry>>,
}

/// A pod of this node, looked up by name.
#[derive(Debug, Clone)]
pub(crate) struct PodEntry {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) view: watch::Sender<PodView>,
    /// The node's decision to terminate it.
    pub(crate) orders: watch::Sender<Option<TerminationByKubelet>>,
    /// Nothing is running and the API server has been told.
    pub(crate) over: watch::Sender<bool>,
}

/// Services and the pods behind them, and a signal when they change.
pub(crate) struct ServiceIndex {
    services: Mutex<BTreeMap<(String, String), Service>>,
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    addresses: Mutex<ServiceAddresses>,
    changed: watch::Sender<u64>,
}

impl ServiceIndex {
    fn new() -> Self {
        Self {
            services: Mutex::default(),
            endpoints: Mutex::default(),
            addresses: Mutex::default(),
            changed: watch::channel(0).0,
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn set_endpoint(&self, uid: &str, endpoint: Option<Endpoint>) {
        // Take one lock at a time: other code takes both in the opposite order.
        let before = lock(&self.endpoints).get(uid).cloned();
        if before == endpoint {
            return;
        }
        let both: Vec<Endpoint> = before.into_iter().chain(endpoint.clone()).collect();
        match endpoint {
            Some(endpoint) => lock(&self.endpoints).insert(uid.to_owned(), endpoint),
            None => lock(&self.endpoints).remove(uid),
        };
        // Most pods are behind no Service, so nothing needs to be recomputed. A Service created later triggers its own update.
        let services = lock(&self.services);
        let concerns = both.iter().any(|e| services.values().any(|s| e.is_chosen_by(s)));
        drop(services);
        if concerns {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    /// The addresses of Services, once known.
    pub(crate) fn set_addresses(&self, addresses: ServiceAddresses) {
        let changed = {
            let mut held = lock(&self.addresses);
            let changed = *held != addresses;
            *held = addresses;
            changed
        };
        if changed {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    pub(crate) fn snapshot(&self) -> (Vec<Service>, Vec<Endpoint>, ServiceAddresses) {
        (
            lock(&self.services).values().cloned().collect(),
            lock(&self.endpoints).values().cloned().collect(),
            lock(&self.addresses).clone(),
        )
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work off the async tasks. If the machine cannot start a thread the runtime panics; in a separate task that
/// becomes an ordinary error.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let task = tokio::spawn(async move { tokio::task::spawn_blocking(work).await });
    let failed = || io::Error::other("starting a thread: the machine or this user has no room for another one");
    task.await.map_err(|_| failed())?.map_err(|_| failed())
}

/// Runs a node agent until it is told to stop.
pub async fn run(config: Config, options: AgentOptions, stop: CancellationToken) -> Result<(), AgentError> {
    let pods_dir = options.data_dir.join("pods");
    make_private(&options.data_dir)?;
    make_private(&pods_dir)?;
    let _lock = take_lock(&options.data_dir)?;
    check_sandbox(&options).await?;
    let ca = config.root_cert.as_ref().map(|certs| certs.iter().map(|der| pem(der)).collect::<String>());
    let url = config.cluster_url.clone();
    let roots = config.root_cert.clone().unwrap_or_default();
    let client = Client::try_from(config).map_err(|e| AgentError::Api {
        step: "configuring",
        object: "the client".to_owned(),
        source: Box::new(e),
    })?;
    let addresses = Addresses::claim(&options.data_dir, &options.data_dir.to_string_lossy())
        .map_err(|e| AgentError::System { step: "reserving pod addresses", source: e })?;
    let route = api_forward::open(&url, addresses.api_service(), &stop)
        .await
        .map_err(|e| AgentError::System { step: "locating the API server", source: e })?;
    let capacity = options.capacity.clone().unwrap_or_else(|| Capacity::of_this_machine(&options.data_dir));
    let shared = Arc::new(Shared {
        recorder: Recorder::start(client.clone(), options.name.clone()),
        runtimes: Runtimes::new(options.cache_dir.clone(), Arc::clone(&options.progress)),
        names: ServiceIndex::new(),
        sources: ObjectWatches::new(client.clone()),
        pressure: Mutex::default(),
        pods: Mutex::default(),
        client: client.clone(),
        capacity: capacity.clone(),
        addresses,
        route,
        ca,
        options: options.clone(),
    });
    let kubelet = Kubelet::bind(options.port, &options.name, &roots).await?;
    let port = kubelet.port;
    let description = Description {
        name: options.name.clone(),
        identity: format!(
            "{}:{}",
            nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default(),
            options.data_dir.display()
        ),
        address: "127.0.0.1".to_owned(),
        port: i32::from(port),
        capacity,
        labels: options.labels.clone(),
    };
    let registered = node::register(&client, &description).await?;
    tracing::info!(node = %options.name, port, "node registered");
    let mut tasks = JoinSet::new();
    tasks.spawn(beat(Arc::clone(&shared), description.clone(), registered.metadata.uid.clone()));
    tasks.spawn(eviction::watch(Arc::clone(&shared), description.clone()));
    tasks.spawn(kubelet.serve(Arc::clone(&shared), stop.clone()));
    tasks.spawn(watch_services(Arc::clone(&shared)));
    tasks.spawn(services::route(Arc::clone(&shared)));
    tasks.spawn(remote_pods::watch(Arc::clone(&shared)));
    let mut workers = JoinSet::new();
    watch_pods(&shared, &mut workers, &stop).await;
    tasks.abort_all();
    // Best effort: the node controller would notice by itself later.
    let report = node::report(&client, &description, Readiness::Stopped, Pressure::default());
    let _ = tokio::time::timeout(Duration::from_secs(2), report).await;
    if options.on_stop == OnStop::EndPods {
        shut_down(&shared).await;
        workers.abort_all();
        end_all_pods(&options.data_dir, Duration::from_secs(1)).await;
    }
    Ok(())
}

/// How long pods have to stop, and the node to report it, on shutdown.
const SHUTDOWN_GRACE: i64 = 5;
const SHUTDOWN: Duration = Duration::from_secs(9);

/// Terminates all pods as a node shutdown does, and reports why they ended.
async fn shut_down(shared: &Arc<Shared>) {
    let waits: Vec<watch::Receiver<bool>> = lock(&shared.pods)
        .values()
        .map(|entry| {
            entry.orders.send_replace(Some(TerminationByKubelet::shut_down(SHUTDOWN_GRACE)));
            entry.over.subscribe()
        })
        .collect();
    let ended = futures::future::join_all(waits.into_iter().map(|mut over| async move {
        // An error means that the pod is gone, which is fine.
        let _ = over.wait_for(|over| *over).await;
    }));
    if tokio::time::timeout(SHUTDOWN, ended).await.is_err() {
        tracing::warn!("some pods did not terminate in time and are killed");
    }
}

/// Creates a private directory for the agent, including its parents.
fn make_private(dir: &Path) -> Result<(), AgentError> {
    let parent = dir.parent().map_or(Ok(()), fs::create_dir_all);
    // If the path is a symlink, its target is meant.
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    parent
        .and_then(|()| crate::private_directory::directory(&dir))
        .map_err(|e| AgentError::File { path: dir.display().to_string(), source: e })
}

fn take_lock(data_dir: &Path) -> Result<Flock<fs::File>, AgentError> {
    let path = data_dir.join("agent.lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| AgentError::File { path: path.display().to_string(), source: e })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| AgentError::Locked(data_dir.to_owned()))
}

/// Checks that containers can be created here, so that an unsuitable machine is detected before any pod starts.
async fn check_sandbox(options: &AgentOptions) -> Result<(), AgentError> {
    let (program, arguments) =
        options.shim.split_first().ok_or_else(|| AgentError::Sandbox("no shim command is set".to_owned()))?;
    let dir = options.data_dir.join("check");
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .arg("check")
        .arg(&dir)
        .output()
        .await
        .map_err(|e| AgentError::System { step: "starting a shim", source: e })?;
    let _ = remove_tree(&dir);
    if output.status.success() {
        return Ok(());
    }
    Err(AgentError::Sandbox(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|c| std::str::from_utf8(c).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

async fn beat(shared: Arc<Shared>, description: Description, uid: Option<String>) {
    let client = shared.client.clone();
    let mut round = 0_u32;
    loop {
        if let Err(error) = node::renew(&client, &description, uid.as_deref()).await {
            tracing::warn!(%error, "could not renew the node's lease");
        }
        let pressure = *lock(&shared.pressure);
        if round % 6 == 5
            && let Err(error) = node::report(&client, &description, Readiness::Ready, pressure).await
        {
            tracing::warn!(%error, "could not write the node's status");
        }
        round = round.wrapping_add(1);
        tokio::time::sleep(node::HEARTBEAT).await;
    }
}

async fn watch_services(shared: Arc<Shared>) {
    let api: Api<Service> = Api::all(shared.client.clone());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut fresh: BTreeMap<(String, String), Service> = BTreeMap::new();
    let key = |s: &Service| (s.namespace().unwrap_or_default(), s.name_any());
    while let Some(event) = events.next().await {
        let names = &shared.names;
        match event {
            Ok(Event::Init) => fresh.clear(),
            Ok(Event::InitApply(service)) => {
                fresh.insert(key(&service), service);
            }
            Ok(Event::InitDone) => *lock(&names.services) = std::mem::take(&mut fresh),
            Ok(Event::Apply(service)) => {
                lock(&names.services).insert(key(&service), service);
            }
            Ok(Event::Delete(service)) => {
                lock(&names.services).remove(&key(&service));
            }
            Err(error) => {
                tracing::debug!(%error, "watching services");
                continue;
            }
        }
        names.changed.send_modify(|n| *n += 1);
    }
}

async fn watch_pods(shared: &Arc<Shared>, workers: &mut JoinSet<()>, stop: &CancellationToken) {
    let api: Api<Pod> = Api::all(shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.options.name));
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut fresh = BTreeSet::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = workers.join_next(), if !workers.is_empty() => continue,
            () = stop.cancelled() => return,
        };
        match event {
            Some(Ok(Event::Init)) => fresh.clear(),
            Some(Ok(Event::InitApply(pod))) => {
                fresh.insert(pod.uid().unwrap_or_default());
                offer(shared, workers, pod);
            }
            Some(Ok(Event::InitDone)) => forget_missing(shared, workers, &std::mem::take(&mut fresh)),
            Some(Ok(Event::Apply(pod))) => offer(shared, workers, pod),
            Some(Ok(Event::Delete(pod))) => {
                if let Some(entry) = lock(&shared.pods).get(&pod.uid().unwrap_or_default()) {
                    entry.view.send_replace(PodView { pod: Arc::new(pod), gone: true });
                }
            }
            Some(Err(error)) => tracing::warn!(%error, "watching pods"),
            None => return,
        }
    }
}

/// Passes a pod to its worker, starting one if needed.
fn offer(shared: &Arc<Shared>, workers: &mut JoinSet<()>, pod: Pod) {
    let Some(uid) = pod.uid() else { return };
    // Ignore mirror pods of static pods on other nodes.
    let mut pods = lock(&shared.pods);
    if let Some(entry) = pods.get(&uid) {
        entry.view.send_replace(PodView { pod: Arc::new(pod), gone: false });
        return;
    }
    let (view, receiver) = watch::channel(PodView { pod: Arc::new(pod.clone()), gone: false });
    let (orders, ordered) = watch::channel(None);
    let entry = PodEntry {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        view,
        orders,
        over: watch::channel(false).0,
    };
    pods.insert(uid.clone(), entry);
    drop(pods);
    let worker = PodWorker::new(Arc::clone(shared), uid.clone(), receiver, ordered);
    let shared = Arc::clone(shared);
    workers.spawn(async move {
        worker.run().await;
        lock(&shared.pods).remove(&uid);
    });
}

/// Stops pods that were deleted while no agent was running.
fn forget_missing(shared: &Arc<Shared>, workers: &mut JoinSet<()>, present: &BTreeSet<String>) {
    let pods = lock(&shared.pods).clone();
    for (uid, entry) in &pods {
        if !present.contains(uid) {
            let pod = entry.view.borrow().pod.clone();
            entry.view.send_replace(PodView { pod, gone: true });
        }
    }
    for dir in pod_dirs(&shared.options.data_dir) {
        let uid = dir.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !present.contains(&uid) && !pods.contains_key(&uid) {
            tracing::info!(%uid, "stopping a pod that is no longer in the cluster");
            workers.spawn(async move { clean_up(&dir, Duration::from_secs(2)).await });
        }
    }
}
