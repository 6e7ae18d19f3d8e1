//! The pod worker: a task that compares a pod's actual state with the desired one and performs what [`crate::lifecycle`] decides.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::Shared;
use super::events::Kind;
use super::object_watches::{ObjectChange, PodWatches};
use super::probe::ProbeState;
use super::shim_connection::{ShimConnection, record_without_shim};
use crate::lifecycle::{self, Action, Health, ImageState, NoImage, Situation, Step, TerminationByKubelet};
use crate::runtime::Image;
use crate::shim_protocol::{Command, PodDir, PodRecord};
use crate::volumes::{self, Supplies};

mod container_events;
mod containers;
mod fetch;
mod images;
mod prepare;
mod probes;
mod status;

/// The latest pod object a worker has been given.
#[derive(Debug, Clone)]
pub(crate) struct PodView {
    pub(crate) pod: Arc<Pod>,
    /// It has been deleted from the API server.
    pub(crate) gone: bool,
}

/// Reports from tasks that the worker started.
#[derive(Debug)]
enum TaskReport {
    /// The pull is slow.
    Pulling {
        container: String,
    },
    Pulled {
        container: String,
        result: Result<Box<Image>, (NoImage, String)>,
        took: Duration,
    },
    /// The preStop hook has finished; this is left of the grace period.
    HookDone {
        container: String,
        left: Duration,
        failed: Option<String>,
    },
    /// The postStart hook has finished.
    StartedUp {
        container: String,
        attempt: u32,
        failed: Option<String>,
    },
}

/// A task that is aborted when its owner is dropped.
pub(super) struct AbortOnDrop(pub(super) tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A delay that grows with each failure.
#[derive(Debug, Clone, Copy)]
struct Backoff {
    until: Instant,
    length: Duration,
}

impl Backoff {
    fn after(previous: Option<Self>, first: Duration, longest: Duration) -> Self {
        let length = previous.map_or(first, |p| (p.length * 2).min(longest));
        Self { until: Instant::now() + length, length }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

type Shown = (Option<BTreeMap<String, String>>, Option<BTreeMap<String, String>>);

const HOST_IP: &str = "127.0.0.1";
const MOUNT_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A running pod keeps its old volumes while they cannot be updated.
const REFRESH_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const PULL_RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// A pull slower than this is reported in an event.
const SLOW_PULL: Duration = Duration::from_secs(2);
const CONFIG_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
const WRITE_RETRY: Duration = Duration::from_secs(1);
const FORCED_GRACE: Duration = Duration::from_secs(2);

pub(super) struct PodWorker {
    shared: Arc<Shared>,
    uid: String,
    dir: PodDir,
    view: watch::Receiver<PodView>,
    pod: Pod,
    link: Option<ShimConnection>,
    record: PodRecord,
    address: Option<Ipv4Addr>,
    prepared: bool,
    prepare_delay: Option<Backoff>,
    refresh_at: Option<Instant>,
    /// Changes of the objects in its volumes.
    changes: PodWatches,
    /// Labels and annotations shown in downward API volumes.
    shown: Option<Shown>,
    supplies: Supplies,
    sources: BTreeMap<String, PathBuf>,
    images: BTreeMap<String, ImageState>,
    ready_images: BTreeMap<String, Image>,
    pull_delays: BTreeMap<String, Backoff>,
    config_errors: BTreeMap<String, String>,
    config_delay: Option<Backoff>,
    health: BTreeMap<String, Health>,
    /// Containers being stopped, by attempt.
    stopping: BTreeMap<String, u32>,
    /// Probe tasks, by the attempt they probe.
    probes: BTreeMap<String, (u32, AbortOnDrop)>,
    /// Running postStart hooks, and for each container the last start whose hook has run.
    starting_up: BTreeMap<String, (u32, AbortOnDrop)>,
    hooked: BTreeMap<String, u32>,
    /// The node has decided to terminate this pod.
    orders: watch::Receiver<Option<TerminationByKubelet>>,
    order: Option<TerminationByKubelet>,
    findings: (mpsc::Sender<ProbeState>, mpsc::Receiver<ProbeState>),
    /// What events have reported about each container: attempt, and whether it ran.
    announced: BTreeMap<String, (u32, bool)>,
    /// Exits already reported as waiting for a restart.
    backed_off: BTreeMap<String, u32>,
    written: Option<serde_json::Value>,
    write_again: Option<Instant>,
    released: bool,
    /// Nothing is running and the API server knows the outcome.
    over: bool,
    given_back: bool,
    notes: (mpsc::Sender<TaskReport>, mpsc::Receiver<TaskReport>),
}

impl PodWorker {
    pub(super) fn new(
        shared: Arc<Shared>,
        uid: String,
        view: watch::Receiver<PodView>,
        orders: watch::Receiver<Option<TerminationByKubelet>>,
    ) -> Self {
        let dir = PodDir::new(&shared.options.data_dir, &uid);
        let dir_order = dir.order();
        let pod = view.borrow().pod.as_ref().clone();
        // Registered before the task runs, so that no other pod gets the address of a running one.
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
            changes: PodWatches::default(),
            shown: None,
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
            starting_up: BTreeMap::new(),
            hooked: BTreeMap::new(),
            order: fs::read(dir_order).ok().and_then(|text| serde_json::from_slice(&text).ok()),
            orders,
            findings: mpsc::channel(16),
            announced: BTreeMap::new(),
            backed_off: BTreeMap::new(),
            written: None,
            write_again: None,
            released: false,
            over: false,
            given_back: false,
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
                alive = shim_changed(&mut self.link) => self.on_shim_change(alive),
                finding = self.findings.1.recv() => if let Some(finding) = finding { self.found(finding).await },
                note = self.notes.1.recv() => if let Some(note) = note { self.take(note).await },
                _ = names.changed() => self.write_hosts(),
                _ = self.orders.changed() => self.execute(),
                change = self.changes.next() => self.changed(change.as_ref()),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Picks up what an earlier agent left behind.
    async fn adopt(&mut self) {
        if !self.dir.path().exists() {
            self.record = status::lost_with_directory(&self.pod);
            return;
        }
        match ShimConnection::connect(&self.dir).await {
            Ok(link) => {
                self.record = link.record.borrow().clone();
                self.link = Some(link);
            }
            Err(_) => self.record = record_without_shim(&self.dir),
        }
        if !self.record.containers.is_empty() {
            // Containers have run, so everything existed; the first pass updates it.
            self.prepared = true;
            self.refresh_at = Some(Instant::now());
        }
        self.hooked = self.record.containers.iter().map(|(name, c)| (name.clone(), c.attempt)).collect();
        self.announced = self.record.containers.iter().map(|(name, c)| (name.clone(), (c.attempt, true))).collect();
    }

    /// Accepts a pod object unless it is older than the current one.
    fn absorb(&mut self, pod: &Pod) {
        let version = |p: &Pod| p.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
        match (version(&self.pod), version(pod)) {
            (Some(held), Some(offered)) if offered < held => {}
            _ => self.pod = pod.clone(),
        }
    }

    /// An object in the namespace changed that volumes may show.
    fn changed(&mut self, change: Option<&ObjectChange>) {
        let concerns = change.is_none_or(|c| {
            volumes::held_in_volumes(&self.pod).contains(&(c.holder, c.name.clone()))
                && self.supplies.objects.version(c.holder, &c.name) != c.version.as_deref()
        });
        if !concerns {
            return;
        }
        if self.prepared {
            self.refresh_at = Some(Instant::now());
        } else {
            // What it was waiting for may exist now.
            self.prepare_delay = self.prepare_delay.map(|d| Backoff { until: Instant::now(), ..d });
        }
    }

    /// Accepts a termination by the node. It is persisted, so that another agent completes it if this one dies.
    fn execute(&mut self) {
        let Some(order) = self.orders.borrow_and_update().clone() else { return };
        if self.order.is_some() || self.over {
            return;
        }
        if let Ok(text) = serde_json::to_vec(&order)
            && let Err(error) = crate::shim_protocol::write_atomically(&self.dir.order(), &text)
        {
            tracing::debug!(%error, "could not save the termination of a pod");
        }
        let kind = if order.disruption && order.reason == "Terminated" { Kind::Normal } else { Kind::Warning };
        let reason = if order.reason == "Evicted" { "Evicted" } else { "NodeShutdown" };
        self.shared.recorder.record(&self.pod, None, kind, reason, order.message.clone());
        self.order = Some(order);
    }

    fn on_shim_change(&mut self, alive: bool) {
        if alive {
            if let Some(link) = &mut self.link {
                self.record = link.record.borrow_and_update().clone();
            }
        } else {
            self.link = None;
            self.record = record_without_shim(&self.dir);
        }
    }

    /// One pass. Returns the time of the next pass if nothing happens before.
    async fn turn(&mut self) -> Instant {
        let deleting = self.pod.metadata.deletion_timestamp.is_some();
        if self.has_ended() && self.record.containers.is_empty() {
            // It terminated before this agent started, so nothing is left to learn about it.
            self.over = true;
            self.signal_terminated();
            if deleting {
                self.release().await;
            }
            return far();
        }
        if self.is_wanted() {
            self.pull_images();
            if self.prepared && self.shown.is_some() && self.shown != self.to_show() {
                self.refresh_at = Some(Instant::now());
            }
            let due = self.prepare_delay.is_none_or(|d| d.is_over());
            let refresh = self.refresh_at.is_some_and(|at| Instant::now() >= at);
            if (!self.prepared && due) || refresh {
                self.prepare().await;
            }
            if self.config_delay.is_some_and(|d| d.is_over()) && !self.config_errors.is_empty() {
                self.config_errors.clear();
                self.supplies = fetch::fetch(&self.shared, &self.pod).await.unwrap_or_default();
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
        self.run_post_start();
        self.probe();
        self.name(&step);
        let step = Step { outcome: step.outcome.clone(), ..self.decide() };
        self.write_status(&step).await;
        if step.outcome.is_final() {
            self.dismiss_shim().await;
            self.give_back().await;
            self.over = self.write_again.is_none();
            self.signal_terminated();
        }
        if release {
            self.release().await;
        }
        self.next_look(&step)
    }

    /// The API server knows that it has terminated.
    fn has_ended(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Whether the pod should run, so that its dependencies are fetched and kept up to date.
    fn is_wanted(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_none() && !self.has_ended() && self.order.is_none()
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            pod: &self.pod,
            record: &self.record,
            prepared: self.prepared,
            images: &self.images,
            config_errors: &self.config_errors,
            health: &self.health,
            order: self.order.as_ref(),
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
        let pulls = self
            .pull_delays
            .iter()
            .filter(|(c, _)| matches!(self.images.get(*c), Some(ImageState::Failed { .. })))
            .map(|(_, d)| d.until)
            .min();
        let config = self.config_delay.filter(|_| !self.config_errors.is_empty()).map(|d| d.until);
        // None of this applies to a terminated pod, so nothing needs to wake up for it.
        let needs = [preparing, pulls, config, self.refresh_at].into_iter().flatten().min();
        [wake, needs.filter(|_| self.is_wanted()), self.write_again].into_iter().flatten().min().unwrap_or_else(far)
    }

    async fn take(&mut self, note: TaskReport) {
        match note {
            TaskReport::Pulling { container } => {
                let message = format!("Pulling image \"{}\"", self.image_of(&container));
                self.shared.recorder.record(&self.pod, Some(&container), Kind::Normal, "Pulling", message);
            }
            TaskReport::Pulled { container, result, took } => self.pulled(&container, result, took),
            TaskReport::HookDone { container, left, failed } => {
                if let Some(why) = failed {
                    self.record_event(
                        &container,
                        Kind::Warning,
                        "FailedPreStopHook",
                        format!("PreStopHook failed: {why}"),
                    );
                }
                self.command(Command::Stop { container, grace_ms: millis(left) }).await;
            }
            TaskReport::StartedUp { container, attempt, failed } => self.started_up(&container, attempt, failed).await,
        }
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for a change from the shim; `false` when the shim is gone. Without a shim it waits forever.
async fn shim_changed(link: &mut Option<ShimConnection>) -> bool {
    match link {
        Some(link) => link.record.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
