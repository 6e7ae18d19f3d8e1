//! One pod: a task that compares what is with what should be, and performs what [`crate::lifecycle`] decides.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::events::Kind;
use super::link::{Link, record_without_shim};
use super::probe::{self, Finding};
use super::{Shared, clean_up, lock};
use crate::configure::{self, Surroundings};
use crate::environment::PodFacts;
use crate::hosts;
use crate::launch::{Command, ContainerState, ExitCause, PodDir, PodRecord};
use crate::lifecycle::{self, Action, Health, ImageState, Situation, Step, containers};
use crate::runtime::Image;
use crate::volumes::{self, Supplies};

mod supply;

/// The newest a worker has been told about its pod.
#[derive(Debug, Clone)]
pub(crate) struct PodView {
    pub(crate) pod: Arc<Pod>,
    /// It is no longer in the API server.
    pub(crate) gone: bool,
}

/// What tasks started by a worker tell it.
#[derive(Debug)]
enum Note {
    /// It takes a while.
    Pulling { container: String },
    Pulled { container: String, result: Result<Box<Image>, String>, took: Duration },
    /// The preStop hook is through: what is left of the grace time.
    HookDone { container: String, left: Duration, failed: Option<String> },
}

/// A task that ends with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A wait that gets longer with each failure.
#[derive(Debug, Clone, Copy)]
struct Delay {
    until: Instant,
    length: Duration,
}

impl Delay {
    fn after(previous: Option<Self>, first: Duration, longest: Duration) -> Self {
        let length = previous.map_or(first, |p| (p.length * 2).min(longest));
        Self { until: Instant::now() + length, length }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

const HOST_IP: &str = "127.0.0.1";
const MOUNT_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
const PULL_RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// A pull that takes longer is worth an event.
const SLOW_PULL: Duration = Duration::from_secs(2);
const CONFIG_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
const WRITE_RETRY: Duration = Duration::from_secs(1);
const FORCED_GRACE: Duration = Duration::from_secs(2);

/// Where memory-backed volumes of a pod lie.
pub(super) fn memory_dir(uid: &str) -> PathBuf {
    PathBuf::from("/dev/shm").join(format!("firesteel-{uid}"))
}

pub(super) struct PodWorker {
    shared: Arc<Shared>,
    uid: String,
    dir: PodDir,
    view: watch::Receiver<PodView>,
    pod: Pod,
    link: Option<Link>,
    record: PodRecord,
    address: Option<Ipv4Addr>,
    prepared: bool,
    prepare_delay: Option<Delay>,
    refresh_at: Option<Instant>,
    supplies: Supplies,
    sources: BTreeMap<String, PathBuf>,
    images: BTreeMap<String, ImageState>,
    ready_images: BTreeMap<String, Image>,
    pull_delays: BTreeMap<String, Delay>,
    config_errors: BTreeMap<String, String>,
    config_delay: Option<Delay>,
    health: BTreeMap<String, Health>,
    /// Containers that are being stopped, by the attempt that is.
    stopping: BTreeMap<String, u32>,
    /// Tasks that probe containers, by the attempt they probe.
    probes: BTreeMap<String, (u32, AbortOnDrop)>,
    findings: (mpsc::Sender<Finding>, mpsc::Receiver<Finding>),
    /// What has been said in events about each container: attempt and whether it ran.
    announced: BTreeMap<String, (u32, bool)>,
    written: Option<serde_json::Value>,
    write_again: Option<Instant>,
    released: bool,
    notes: (mpsc::Sender<Note>, mpsc::Receiver<Note>),
}

impl PodWorker {
    pub(super) fn new(shared: Arc<Shared>, uid: String, view: watch::Receiver<PodView>) -> Self {
        let dir = PodDir::new(&shared.options.data_dir, &uid);
        let pod = view.borrow().pod.as_ref().clone();
        // Known before the task runs, so that no other pod gets the address of one that still runs.
        let address = fs::read_to_string(dir.address()).ok().and_then(|t| t.trim().parse().ok());
        if let Some(address) = address {
            shared.addresses.keep(address);
        }
        Self {
            shared,
            uid,
            dir,
            view,
            pod,
            link: None,
            record: PodRecord::default(),
            address,
            prepared: false,
            prepare_delay: None,
            refresh_at: None,
            supplies: Supplies::default(),
            sources: BTreeMap::new(),
            images: BTreeMap::new(),
            ready_images: BTreeMap::new(),
            pull_delays: BTreeMap::new(),
            config_errors: BTreeMap::new(),
            config_delay: None,
            health: BTreeMap::new(),
            stopping: BTreeMap::new(),
            probes: BTreeMap::new(),
            findings: mpsc::channel(16),
            announced: BTreeMap::new(),
            written: None,
            write_again: None,
            released: false,
            notes: mpsc::channel(16),
        }
    }

    pub(super) async fn run(mut self) {
        let mut names = self.shared.names.subscribe();
        self.adopt().await;
        loop {
            let view = self.view.borrow_and_update().clone();
            self.absorb(&view.pod);
            if view.gone {
                return self.leave().await;
            }
            let wake = self.turn().await;
            tokio::select! {
                changed = self.view.changed() => if changed.is_err() { return },
                alive = shim_says(&mut self.link) => self.heard_from_shim(alive),
                finding = self.findings.1.recv() => if let Some(finding) = finding { self.found(finding).await },
                note = self.notes.1.recv() => if let Some(note) = note { self.take(note).await },
                _ = names.changed() => self.write_hosts(),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Finds what an earlier agent has left.
    async fn adopt(&mut self) {
        if !self.dir.path().exists() {
            self.record = lost_with_directory(&self.pod);
            return;
        }
        match Link::connect(&self.dir).await {
            Ok(link) => {
                self.record = link.record.borrow().clone();
                self.link = Some(link);
            }
            Err(_) => self.record = record_without_shim(&self.dir),
        }
        if !self.record.containers.is_empty() {
            // Containers have run, so everything was there; it is brought up to date in the first turn.
            self.prepared = true;
            self.refresh_at = Some(Instant::now());
        }
        self.announced = self.record.containers.iter().map(|(name, c)| (name.clone(), (c.attempt, true))).collect();
    }

    /// Takes a pod object unless it is older than the one at hand.
    fn absorb(&mut self, pod: &Pod) {
        let version = |p: &Pod| p.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
        match (version(&self.pod), version(pod)) {
            (Some(held), Some(offered)) if offered < held => {}
            _ => self.pod = pod.clone(),
        }
    }

    fn heard_from_shim(&mut self, alive: bool) {
        if alive {
            if let Some(link) = &mut self.link {
                self.record = link.record.borrow_and_update().clone();
            }
        } else {
            self.link = None;
            self.record = record_without_shim(&self.dir);
        }
    }

    /// One look at everything. Gives the time of the next one, should nothing happen.
    async fn turn(&mut self) -> Instant {
        let deleting = self.pod.metadata.deletion_timestamp.is_some();
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        if ended && self.record.containers.is_empty() {
            // Ended before this agent's time: there is nothing left to know about it.
            if deleting {
                self.release().await;
            }
            return far();
        }
        if !deleting && !ended {
            self.pull_images();
            let due = self.prepare_delay.is_none_or(|d| d.is_over());
            let refresh = self.refresh_at.is_some_and(|at| Instant::now() >= at);
            if (!self.prepared && due) || refresh {
                self.prepare().await;
            }
            if self.config_delay.is_some_and(|d| d.is_over()) && !self.config_errors.is_empty() {
                self.config_errors.clear();
                self.supplies = supply::fetch(&self.shared, &self.pod).await.unwrap_or_default();
            }
        }
        let step = self.decide();
        let mut release = false;
        for action in &step.actions {
            match action {
                Action::Start { container, attempt } => self.start(container, *attempt).await,
                Action::Stop { container, grace } => self.stop(container, grace.unsigned_abs()).await,
                Action::Release => release = true,
            }
        }
        self.announce();
        self.probe();
        self.name(&step);
        let step = Step { outcome: step.outcome.clone(), ..self.decide() };
        self.write_status(&step).await;
        if step.outcome.is_final() {
            self.dismiss_shim().await;
        }
        if release {
            self.release().await;
        }
        self.next_look(&step)
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            pod: &self.pod,
            record: &self.record,
            prepared: self.prepared,
            images: &self.images,
            config_errors: &self.config_errors,
            health: &self.health,
            address: None,
            host_ip: HOST_IP,
            now: Timestamp::now(),
        }
    }

    fn decide(&self) -> Step {
        lifecycle::step(&self.situation())
    }

    fn next_look(&self, step: &Step) -> Instant {
        let now = Timestamp::now();
        let wake = step.wake.map(|at| Instant::now() + Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let preparing = self.prepare_delay.filter(|_| !self.prepared).map(|d| d.until);
        let pulls = self.pull_delays.iter().filter(|(c, _)| matches!(self.images.get(*c), Some(ImageState::Failed { .. }))).map(|(_, d)| d.until).min();
        let config = self.config_delay.filter(|_| !self.config_errors.is_empty()).map(|d| d.until);
        [wake, preparing, pulls, config, self.refresh_at, self.write_again].into_iter().flatten().min().unwrap_or_else(far)
    }

    fn pull_images(&mut self) {
        let Some(spec) = self.pod.spec.as_ref() else { return };
        let wanted: Vec<(String, String)> = containers(spec).into_iter().map(|(_, c)| (c.name.clone(), c.image.clone().unwrap_or_default())).collect();
        for (container, reference) in wanted {
            let again = match self.images.get(&container) {
                None => true,
                Some(ImageState::Failed { .. }) => self.pull_delays.get(&container).is_some_and(Delay::is_over),
                Some(ImageState::Pulling | ImageState::Ready { .. }) => false,
            };
            if !again {
                continue;
            }
            self.images.insert(container.clone(), ImageState::Pulling);
            let (runtimes, notes, begun) = (self.shared.runtimes.clone(), self.notes.0.clone(), Instant::now());
            tokio::spawn(async move {
                let mut resolving = tokio::task::spawn_blocking(move || runtimes.resolve(&reference));
                let result = match tokio::time::timeout(SLOW_PULL, &mut resolving).await {
                    Ok(result) => result,
                    Err(_) => {
                        let _ = notes.send(Note::Pulling { container: container.clone() }).await;
                        resolving.await
                    }
                };
                let result = match result {
                    Ok(Ok(image)) => Ok(Box::new(image)),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                let _ = notes.send(Note::Pulled { container, result, took: begun.elapsed() }).await;
            });
        }
    }

    async fn take(&mut self, note: Note) {
        match note {
            Note::Pulling { container } => {
                let message = format!("Pulling image \"{}\"", self.image_of(&container));
                self.shared.recorder.record(&self.pod, Some(&container), Kind::Normal, "Pulling", message);
            }
            Note::Pulled { container, result, took } => self.pulled(&container, result, took),
            Note::HookDone { container, left, failed } => {
                if let Some(why) = failed {
                    self.shared.recorder.record(&self.pod, Some(&container), Kind::Warning, "FailedPreStopHook", why);
                }
                self.command(Command::Stop { container, grace_ms: millis(left) }).await;
            }
        }
    }

    fn image_of(&self, container: &str) -> String {
        let spec = self.pod.spec.as_ref();
        spec.and_then(|s| containers(s).into_iter().find(|(_, c)| c.name == container)).and_then(|(_, c)| c.image.clone()).unwrap_or_default()
    }

    fn pulled(&mut self, container: &str, result: Result<Box<Image>, String>, took: Duration) {
        let reference = self.image_of(container);
        let recorder = &self.shared.recorder;
        match result {
            Ok(image) => {
                let message = if took > SLOW_PULL {
                    format!("Successfully pulled image \"{reference}\" in {:.3}s", took.as_secs_f64())
                } else {
                    format!("Container image \"{reference}\" already present on machine")
                };
                // An agent that has just restarted finds again what a running container came from.
                if !self.record.containers.contains_key(container) {
                    recorder.record(&self.pod, Some(container), Kind::Normal, "Pulled", message);
                }
                self.images.insert(container.to_owned(), ImageState::Ready { id: image.id.clone() });
                self.ready_images.insert(container.to_owned(), *image);
                self.pull_delays.remove(container);
            }
            Err(message) => {
                let previous = self.pull_delays.get(container).copied();
                recorder.record(&self.pod, Some(container), Kind::Warning, "Failed", format!("Failed to pull image \"{reference}\": {message}"));
                recorder.record(&self.pod, Some(container), Kind::Warning, "Failed", "Error: ErrImagePull");
                if previous.is_some() {
                    recorder.record(&self.pod, Some(container), Kind::Normal, "BackOff", format!("Back-off pulling image \"{reference}\""));
                }
                // The first failure is shown as such, later ones as waiting.
                self.images.insert(container.to_owned(), ImageState::Failed { message, backing_off: previous.is_some() });
                self.pull_delays.insert(container.to_owned(), Delay::after(previous, PULL_RETRY.0, PULL_RETRY.1));
            }
        }
    }

    /// Gives the pod its directory, address and volumes; doing it again brings them up to date.
    async fn prepare(&mut self) {
        match self.try_prepare().await {
            Ok(()) => {
                self.prepared = true;
                self.prepare_delay = None;
            }
            Err(message) => {
                let delay = Delay::after(self.prepare_delay, MOUNT_RETRY.0, MOUNT_RETRY.1);
                self.prepare_delay = Some(delay);
                self.refresh_at = self.refresh_at.map(|_| delay.until);
                self.shared.recorder.record(&self.pod, None, Kind::Warning, "FailedMount", message);
            }
        }
    }

    async fn try_prepare(&mut self) -> Result<(), String> {
        let said = |e: std::io::Error| format!("{}: {e}", self.dir.path().display());
        fs::create_dir_all(self.dir.volumes()).map_err(said)?;
        let address = match self.address {
            Some(address) => address,
            None => {
                let address = self.shared.addresses.lease().ok_or("no address is free for the pod")?;
                self.address = Some(address);
                address
            }
        };
        crate::launch::write_atomically(&self.dir.address(), address.to_string().as_bytes()).map_err(said)?;
        crate::launch::write_atomically(&self.dir.pod(), &serde_json::to_vec(&self.pod).unwrap_or_default()).map_err(said)?;
        self.supplies = supply::fetch(&self.shared, &self.pod).await?;
        let facts = self.facts();
        let spec = self.pod.spec.clone().unwrap_or_default();
        let group = spec.security_context.as_ref().and_then(|s| s.fs_group).and_then(|g| u32::try_from(g).ok());
        for volume in spec.volumes.iter().flatten() {
            let place = volumes::plan(&self.pod, volume, &self.supplies, &facts)
                .and_then(|planned| volumes::materialise(&planned, &self.dir.volumes().join(&volume.name), &memory_dir(&self.uid).join(&volume.name), group))
                .map_err(|e| format!("MountVolume.SetUp failed for volume \"{}\" : {e}", volume.name))?;
            self.sources.insert(volume.name.clone(), place);
        }
        self.refresh_at = supply::shortest_token(&self.pod).map(|life| Instant::now() + life);
        self.write_hosts();
        Ok(())
    }

    fn facts(&self) -> PodFacts {
        PodFacts {
            pod_ip: self.address.map(|a| a.to_string()).unwrap_or_default(),
            host_ip: HOST_IP.to_owned(),
            node_cpu: self.shared.capacity.cpu_milli,
            node_memory: self.shared.capacity.memory_bytes,
        }
    }

    /// Writes the hosts file in place: containers have it bound and would not see another file of that name.
    fn write_hosts(&self) {
        let Some(address) = self.address else { return };
        let (services, endpoints) = self.shared.names.snapshot();
        let route = self.shared.route.name_address.to_string();
        let text = hosts::file(&self.pod, &address.to_string(), &route, &services, &endpoints);
        let path = self.dir.hosts();
        if !self.dir.path().exists() || fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return;
        }
        let written = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).and_then(|file| {
            use std::os::unix::fs::FileExt as _;
            file.write_all_at(text.as_bytes(), 0)?;
            file.set_len(text.len() as u64)
        });
        if let Err(error) = written {
            tracing::warn!(%error, path = %path.display(), "a hosts file was not written");
        }
    }

    /// Tells others where this pod is, as long as it lives.
    fn name(&self, step: &Step) {
        let endpoint = self.address.filter(|_| self.prepared && !step.outcome.is_final()).map(|address| hosts::Endpoint {
            namespace: self.pod.namespace().unwrap_or_default(),
            address: address.to_string(),
            labels: self.pod.labels().clone(),
            hostname: hosts::hostname(&self.pod),
            subdomain: self.pod.spec.as_ref().and_then(|s| s.subdomain.clone()),
        });
        self.shared.names.set_endpoint(&self.uid, endpoint);
    }

    async fn start(&mut self, name: &str, attempt: u32) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some((_, container)) = containers(&spec).into_iter().find(|(_, c)| c.name == name) else { return };
        let Some(image) = self.ready_images.get(name) else { return };
        let around = Surroundings {
            facts: self.facts(),
            api_host: self.shared.route.host.clone(),
            api_port: self.shared.route.port,
            driver_master: self.shared.route.driver_master.clone(),
        };
        let launch = configure::launch(&self.pod, container, attempt, image, &around, &self.supplies.objects, &self.sources, &self.dir);
        let launch = launch.map_err(|e| e.to_string()).and_then(|launch| {
            let own = launch.mounts.iter().filter(|m| m.source.starts_with(self.dir.volumes()) || m.source.starts_with("/dev/shm"));
            own.map(volumes::make_sub_path).collect::<Result<(), _>>().map_err(|e| e.to_string())?;
            fs::create_dir_all(self.dir.container(name)).map_err(|e| e.to_string())?;
            Ok(launch)
        });
        match launch {
            Ok(launch) => {
                self.stopping.remove(name);
                self.command(Command::Start(Box::new(launch))).await;
            }
            Err(message) => {
                self.shared.recorder.record(&self.pod, Some(name), Kind::Warning, "Failed", format!("Error: {message}"));
                self.config_errors.insert(name.to_owned(), message);
                self.config_delay = Some(Delay::after(self.config_delay, CONFIG_RETRY.0, CONFIG_RETRY.1));
            }
        }
    }

    /// Tells the shim, starting one if there is none and there is something to start.
    async fn command(&mut self, command: Command) {
        if self.link.is_none() {
            if !matches!(command, Command::Start(_)) {
                return;
            }
            match Link::start(&self.dir, &self.shared.options.shim).await {
                Ok(link) => self.link = Some(link),
                Err(error) => {
                    self.shared.recorder.record(&self.pod, None, Kind::Warning, "FailedCreatePodSandBox", format!("Failed to create pod sandbox: {error}"));
                    self.write_again = Some(Instant::now() + WRITE_RETRY);
                    return;
                }
            }
        }
        let Some(link) = &mut self.link else { return };
        if let Err(error) = link.send(&command).await {
            tracing::warn!(%error, pod = %self.pod.name_any(), "a shim could not be told");
            return;
        }
        if let Command::Start(launch) = command {
            // Until the shim has answered the container counts as starting, so that it is asked for once.
            let heard = async {
                while link.record.borrow_and_update().containers.get(&launch.container).is_none_or(|c| c.attempt < launch.attempt) {
                    if link.record.changed().await.is_err() {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(5), heard).await;
            self.record = link.record.borrow().clone();
        }
    }

    async fn stop(&mut self, name: &str, grace: Duration) {
        let Some(attempt) = self.record.containers.get(name).map(|c| c.attempt) else { return };
        let first = self.stopping.insert(name.to_owned(), attempt) != Some(attempt);
        if first {
            self.shared.recorder.record(&self.pod, Some(name), Kind::Normal, "Killing", format!("Stopping container {name}"));
        }
        let spec = self.pod.spec.as_ref();
        let container = spec.and_then(|s| containers(s).into_iter().map(|(_, c)| c).find(|c| c.name == name));
        let hook = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref()).and_then(|h| h.exec.as_ref()?.command.clone());
        match hook {
            Some(words) if first && !grace.is_zero() => self.run_hook(name, words, grace),
            Some(_) if !grace.is_zero() => {}
            _ => self.command(Command::Stop { container: name.to_owned(), grace_ms: millis(grace) }).await,
        }
    }

    /// Runs a preStop hook; the grace time goes on meanwhile.
    fn run_hook(&self, name: &str, words: Vec<String>, grace: Duration) {
        let (notes, shim, dir, container) = (self.notes.0.clone(), self.shared.options.shim.clone(), self.dir.path().to_owned(), name.to_owned());
        tokio::spawn(async move {
            let begun = Instant::now();
            let outcome = super::exec::run(&shim, &dir, &container, &words, grace).await;
            let left = grace.saturating_sub(begun.elapsed()).max(FORCED_GRACE);
            let _ = notes.send(Note::HookDone { container, left, failed: outcome.err() }).await;
        });
    }

    /// Keeps one task for each start of a container that has probes.
    fn probe(&mut self) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some(address) = self.address else { return };
        for (_, container) in containers(&spec).into_iter().filter(|(_, c)| probe::has_probes(c)) {
            let running = self.record.containers.get(&container.name).filter(|c| matches!(c.state, ContainerState::Running { .. })).map(|c| c.attempt);
            let Some(attempt) = running else {
                self.probes.remove(&container.name);
                self.health.remove(&container.name);
                continue;
            };
            if self.probes.get(&container.name).is_some_and(|(probed, _)| *probed == attempt) {
                continue;
            }
            let health = Health { started: container.startup_probe.is_none(), ready: container.readiness_probe.is_none() };
            self.health.insert(container.name.clone(), health);
            let target = probe::Target {
                container: container.clone(),
                attempt,
                address: address.to_string(),
                shim: self.shared.options.shim.clone(),
                dir: self.dir.path().to_owned(),
            };
            let task = tokio::spawn(probe::watch(target, self.findings.0.clone()));
            self.probes.insert(container.name.clone(), (attempt, AbortOnDrop(task)));
        }
    }

    async fn found(&mut self, finding: Finding) {
        let current = self.record.containers.get(&finding.container).is_some_and(|c| c.attempt == finding.attempt && matches!(c.state, ContainerState::Running { .. }));
        if !current {
            return;
        }
        self.health.insert(finding.container.clone(), finding.health);
        if let Some(complaint) = finding.complaint {
            self.shared.recorder.record(&self.pod, Some(&finding.container), Kind::Warning, "Unhealthy", complaint);
        }
        if finding.kill {
            let message = format!("Container {} failed liveness probe, will be restarted", finding.container);
            self.shared.recorder.record(&self.pod, Some(&finding.container), Kind::Normal, "Killing", message);
            let seconds = self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).and_then(|s| u64::try_from(s).ok()).unwrap_or(30);
            self.stop(&finding.container, Duration::from_secs(seconds)).await;
        }
    }

    /// Writes events about what has happened to containers.
    fn announce(&mut self) {
        let recorder = &self.shared.recorder;
        for (name, container) in &self.record.containers {
            let (attempt, ran) = self.announced.get(name).copied().unwrap_or((u32::MAX, false));
            let new = attempt != container.attempt || !ran;
            match &container.state {
                ContainerState::Starting => continue,
                ContainerState::Running { .. } if new => {
                    recorder.record(&self.pod, Some(name), Kind::Normal, "Created", format!("Created container: {name}"));
                    recorder.record(&self.pod, Some(name), Kind::Normal, "Started", format!("Started container {name}"));
                }
                ContainerState::Exited(exit) if new => {
                    if exit.cause == ExitCause::NotStarted {
                        recorder.record(&self.pod, Some(name), Kind::Warning, "Failed", format!("Error: {}", exit.message.clone().unwrap_or_default()));
                    } else {
                        recorder.record(&self.pod, Some(name), Kind::Normal, "Created", format!("Created container: {name}"));
                        recorder.record(&self.pod, Some(name), Kind::Normal, "Started", format!("Started container {name}"));
                    }
                }
                ContainerState::Running { .. } | ContainerState::Exited(_) => {}
            }
            if let ContainerState::Exited(exit) = &container.state
                && lifecycle::restart_at(exit) > Timestamp::now()
                && self.pod.metadata.deletion_timestamp.is_none()
                && self.pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) != Some("Never")
                && new
            {
                let message = format!("Back-off restarting failed container {name} in pod {}_{}({})", self.pod.name_any(), self.pod.namespace().unwrap_or_default(), self.uid);
                recorder.record(&self.pod, Some(name), Kind::Warning, "BackOff", message);
            }
            self.announced.insert(name.clone(), (container.attempt, true));
        }
    }

    async fn write_status(&mut self, step: &Step) {
        self.write_again = None;
        let address = self.address.map(|a| a.to_string());
        let situation = Situation { address: address.as_deref(), ..self.situation() };
        let status = lifecycle::status::status(&situation, step);
        let Ok(value) = serde_json::to_value(&status) else { return };
        let known = self.pod.status.as_ref().and_then(|s| serde_json::to_value(s).ok());
        if self.written.as_ref() == Some(&value) || known.as_ref() == Some(&value) {
            return;
        }
        let api = self.api();
        let patch = serde_json::json!({"metadata": {"uid": self.uid}, "status": value});
        match api.patch_status(&self.pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(pod) => {
                self.written = Some(value);
                self.absorb(&pod);
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => tracing::debug!(%status.message, "the pod is gone or another one"),
            Err(error) => {
                tracing::warn!(%error, pod = %self.pod.name_any(), "a pod's status was not written");
                self.write_again = Some(Instant::now() + WRITE_RETRY);
            }
        }
    }

    fn api(&self) -> Api<Pod> {
        let client: Client = self.shared.client.clone();
        Api::namespaced(client, &self.pod.namespace().unwrap_or_default())
    }

    /// A pod that has ended needs no shim; its logs and exit codes are in its directory.
    async fn dismiss_shim(&mut self) {
        if let Some(link) = &mut self.link {
            let _ = link.send(&Command::End { grace_ms: 0 }).await;
        }
    }

    /// Tells the API server that nothing of the pod is left on this node.
    async fn release(&mut self) {
        if self.released {
            return;
        }
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let parameters = DeleteParams { grace_period_seconds: Some(0), preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api().delete(&self.pod.name_any(), &parameters).await {
            Ok(_) => self.released = true,
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => self.released = true,
            Err(error) => {
                tracing::warn!(%error, pod = %self.pod.name_any(), "a pod was not released");
                self.write_again = Some(Instant::now() + WRITE_RETRY);
            }
        }
    }

    /// The pod is gone from the API server: nothing of it stays here.
    async fn leave(mut self) {
        self.shared.names.set_endpoint(&self.uid, None);
        self.link = None;
        clean_up(&self.dir, FORCED_GRACE).await;
        if let Some(address) = self.address {
            self.shared.addresses.release(address);
        }
        lock(&self.shared.pods).remove(&self.uid);
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for news from a shim; `false` when it is gone. Without a shim there are none.
async fn shim_says(link: &mut Option<Link>) -> bool {
    match link {
        Some(link) => link.record.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// The API server says that containers of this pod ran, but its directory is gone: they are lost.
fn lost_with_directory(pod: &Pod) -> PodRecord {
    use crate::launch::ContainerRecord;
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return PodRecord::default();
    }
    let all = status.into_iter().flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()));
    let ran = all.filter(|c| c.container_id.is_some());
    let containers = ran.map(|c| {
        let attempt = u32::try_from(c.restart_count).unwrap_or(0);
        let code = c.state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
        let started = c.state.as_ref().and_then(|s| s.running.as_ref()?.started_at.as_ref()).map(|t| t.0);
        let state = match code {
            Some(code) => ContainerState::Exited(crate::launch::Exit { attempt, code, cause: ExitCause::Ended, message: None, started, finished: Timestamp::now() }),
            None => ContainerState::Running { pid: 0, started: started.unwrap_or_else(Timestamp::now) },
        };
        (c.name.clone(), ContainerRecord { attempt, state, previous: None })
    });
    let record = PodRecord { containers: containers.collect(), ..PodRecord::default() };
    lifecycle::without_shim(&record, Timestamp::now())
}

