//! The pod lifecycle on a node: which container starts or stops next, and the pod's status. Pure.
//!
//! [`step`] is called whenever something changes. It is level-triggered: the same input gives the same result, so a restarted agent
//! continues where the last one stopped. Times are arguments.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde::{Deserialize, Serialize};

use crate::names::reason;
use crate::shim_protocol::{ContainerState, Exit, ExitCause, PodRecord};

pub(crate) mod status;

/// Everything known about a pod at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Situation<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) record: &'a PodRecord,
    /// Volumes are ready and the pod has its address.
    pub(crate) prepared: bool,
    /// By container. Containers that are missing here have not been requested yet.
    pub(crate) images: &'a BTreeMap<String, ImageState>,
    /// Containers whose configuration refers to missing objects, and which ones.
    pub(crate) config_errors: &'a BTreeMap<String, String>,
    /// Probe results, for containers with probes.
    pub(crate) health: &'a BTreeMap<String, Health>,
    /// The node has decided to terminate the pod.
    pub(crate) order: Option<&'a TerminationByKubelet>,
    pub(crate) address: Option<&'a str>,
    pub(crate) host_ip: &'a str,
    pub(crate) now: Timestamp,
}

/// Why the node itself terminates a pod: eviction or node shutdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminationByKubelet {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// An upper bound on the pod's grace period.
    pub(crate) grace_seconds: i64,
    /// The pod is not at fault: reported as the condition `DisruptionTarget`.
    pub(crate) disruption: bool,
}

impl TerminationByKubelet {
    pub(crate) fn evict(message: String, disruption: bool) -> Self {
        Self { reason: "Evicted".to_owned(), message, grace_seconds: 1, disruption }
    }

    pub(crate) fn shut_down(grace_seconds: i64) -> Self {
        let message = "Pod was terminated in response to imminent node shutdown.".to_owned();
        Self { reason: "Terminated".to_owned(), message, grace_seconds, disruption: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageState {
    Pulling,
    Ready { id: String },
    Failed { why: NoImage, message: String },
}

/// Why an image is unavailable, in a kubelet's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoImage {
    /// The reference is invalid.
    InvalidName,
    /// It is not present, and the pod's pull policy forbids pulling.
    NeverPull,
    /// The pull failed.
    NotPulled,
    /// The pull failed repeatedly.
    BackingOff,
}

impl NoImage {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            NoImage::InvalidName => reason::INVALID_IMAGE_NAME,
            NoImage::NeverPull => reason::ERR_IMAGE_NEVER_PULL,
            NoImage::NotPulled => reason::ERR_IMAGE_PULL,
            NoImage::BackingOff => reason::IMAGE_PULL_BACK_OFF,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) started: bool,
    pub(crate) ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Start {
        container: String,
        attempt: u32,
    },
    Stop {
        container: String,
        grace: SignedDuration,
    },
    /// Nothing is running and the pod is being deleted: delete the object.
    Release,
}

/// What to do now, and when to look again if nothing happens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) actions: Vec<Action>,
    pub(crate) wake: Option<Timestamp>,
    pub(crate) outcome: Outcome,
}

/// The state of the pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Running,
    Succeeded,
    Failed { reason: Option<String>, message: Option<String> },
}

impl Outcome {
    const PLAIN_FAILURE: Self = Self::Failed { reason: None, message: None };

    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed { .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Init,
    /// A restartable init container (sidecar).
    Sidecar,
    Main,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Why all containers have to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Deleted,
    Deadline,
    Ordered,
    /// The API server says the pod has terminated: evicted, or given up by a controller.
    Declared,
}

/// What to do with one container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    Start(u32),
    RunningContainer,
    Later(Timestamp),
    Done,
}

const DEADLINE: (&str, &str) = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");
const DEFAULT_GRACE: i64 = 30;
const FIRST_DELAY: i64 = 10;
const LONGEST_DELAY: i64 = 300;
/// A container that ran this long restarts without back-off.
const FORGIVEN: i64 = 600;

/// A pod's containers with their roles, in start order.
pub(crate) fn containers(spec: &PodSpec) -> Vec<(Role, &Container)> {
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|c| (if c.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }, c));
    init.chain(spec.containers.iter().map(|c| (Role::Main, c))).collect()
}

/// When an exited container may restart: at once the first time, then after 10 s, 20 s, … up to 5 minutes.
pub(crate) fn restart_at(exit: &Exit) -> Timestamp {
    let ran = exit.started.map_or(0, |s| exit.finished.duration_since(s).as_secs());
    let delay = match exit.attempt {
        0 => 0,
        _ if ran >= FORGIVEN => 0,
        n => FIRST_DELAY.saturating_mul(1_i64 << (n - 1).min(10)).min(LONGEST_DELAY),
    };
    exit.finished.checked_add(SignedDuration::from_secs(delay)).unwrap_or(exit.finished)
}

/// Decides what happens next.
pub(crate) fn step(s: &Situation<'_>) -> Step {
    let none = PodSpec::default();
    let spec = s.pod.spec.as_ref().unwrap_or(&none);
    let all = containers(spec);
    let policy = policy_of(spec);
    match ending(s, spec) {
        Some(ending) => {
            let own = grace(s.pod, spec);
            let ordered = s.order.map_or(own, |o| own.min(SignedDuration::from_secs(o.grace_seconds)));
            end(s, &all, ending, ordered)
        }
        None => advance(s, spec, &all, policy),
    }
}

fn policy_of(spec: &PodSpec) -> Restart {
    match spec.restart_policy.as_deref() {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    }
}

fn ending(s: &Situation<'_>, spec: &PodSpec) -> Option<Ending> {
    if s.pod.metadata.deletion_timestamp.is_some() {
        return Some(Ending::Deleted);
    }
    let told = s.pod.status.as_ref();
    if told.and_then(|t| t.reason.as_deref()) == Some(DEADLINE.0) || deadline(s.pod, spec).is_some_and(|at| s.now >= at)
    {
        return Some(Ending::Deadline);
    }
    if matches!(told.and_then(|t| t.phase.as_deref()), Some("Failed" | "Succeeded")) {
        return Some(Ending::Declared);
    }
    s.order.map(|_| Ending::Ordered)
}

fn deadline(pod: &Pod, spec: &PodSpec) -> Option<Timestamp> {
    let start = pod.status.as_ref()?.start_time.as_ref()?.0;
    start.checked_add(SignedDuration::from_secs(spec.active_deadline_seconds?)).ok()
}

fn grace(pod: &Pod, spec: &PodSpec) -> SignedDuration {
    let seconds =
        pod.metadata.deletion_grace_period_seconds.or(spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE);
    SignedDuration::from_secs(seconds.max(0))
}

fn due(s: &Situation<'_>, role: Role, container: &Container, policy: Restart) -> Due {
    let Some(record) = s.record.containers.get(&container.name) else { return Due::Start(0) };
    let exit = match &record.state {
        ContainerState::Starting | ContainerState::Running { .. } => return Due::RunningContainer,
        ContainerState::Exited(exit) => exit,
    };
    let policy = match (role, policy) {
        (Role::Sidecar, _) => Restart::Always,
        (Role::Init, Restart::Always) => Restart::OnFailure,
        (Role::Init | Role::Main, policy) => policy,
    };
    let again = match policy {
        Restart::Always => true,
        Restart::OnFailure => exit.code != 0,
        Restart::Never => false,
    };
    let at = restart_at(exit);
    match again {
        false => Due::Done,
        true if s.now >= at => Due::Start(exit.attempt + 1),
        true => Due::Later(at),
    }
}

fn exit_of<'a>(record: &'a PodRecord, name: &str) -> Option<&'a Exit> {
    match &record.containers.get(name)?.state {
        ContainerState::Exited(exit) => Some(exit),
        ContainerState::Starting | ContainerState::Running { .. } => None,
    }
}

fn is_live(record: &PodRecord, name: &str) -> bool {
    record.containers.get(name).is_some_and(|c| !matches!(c.state, ContainerState::Exited(_)))
}

/// The normal course: init containers one after another, then all others in parallel.
fn advance(s: &Situation<'_>, spec: &PodSpec, all: &[(Role, &Container)], policy: Restart) -> Step {
    let mut actions = Vec::new();
    let mut wake = deadline(s.pod, spec);
    let mut later = |at: Timestamp| wake = Some(wake.map_or(at, |w| w.min(at)));
    let startable = |c: &Container| {
        s.prepared
            && matches!(s.images.get(&c.name), Some(ImageState::Ready { .. }))
            && !s.config_errors.contains_key(&c.name)
    };
    let mut initialised = true;
    let mut init_failed = false;
    let mains_done = all.iter().filter(|(r, _)| *r == Role::Main).all(|(r, c)| due(s, *r, c, policy) == Due::Done);
    for (role, container) in all.iter().filter(|(r, _)| *r != Role::Main) {
        match (role, due(s, *role, container, policy)) {
            (Role::Sidecar, Due::Start(_) | Due::Later(_)) if mains_done => {}
            (_, Due::Start(attempt)) => {
                if startable(container) {
                    actions.push(Action::Start { container: container.name.clone(), attempt });
                }
                // A sidecar that has run before does not block the others while it restarts.
                initialised &= *role == Role::Sidecar && attempt > 0;
            }
            (Role::Sidecar, Due::RunningContainer) => initialised &= status::is_started(s, container),
            (Role::Sidecar, Due::Later(at)) => later(at),
            (_, Due::RunningContainer) => initialised = false,
            (_, Due::Later(at)) => {
                initialised = false;
                later(at);
            }
            (_, Due::Done) => {
                if exit_of(s.record, &container.name).is_some_and(|e| e.code != 0) {
                    init_failed = true;
                    initialised = false;
                }
            }
        }
        if !initialised {
            break;
        }
    }
    if init_failed {
        let over = stop_all(s, all, grace(s.pod, spec), &mut actions);
        let outcome = if over { Outcome::PLAIN_FAILURE } else { Outcome::Pending };
        return Step { actions, wake, outcome };
    }
    if initialised {
        for (role, container) in all.iter().filter(|(r, _)| *r == Role::Main) {
            match due(s, *role, container, policy) {
                Due::Start(attempt) if startable(container) => {
                    actions.push(Action::Start { container: container.name.clone(), attempt });
                }
                Due::Later(at) => later(at),
                Due::Start(_) | Due::RunningContainer | Due::Done => {}
            }
        }
    }
    if mains_done {
        let over = stop_all(s, all, grace(s.pod, spec), &mut actions);
        let outcome = if over { final_outcome(s.record, all) } else { Outcome::Running };
        return Step { actions, wake, outcome };
    }
    let ever = all.iter().filter(|(r, _)| *r == Role::Main).all(|(_, c)| has_run(s.record, &c.name));
    Step { actions, wake, outcome: if initialised && ever { Outcome::Running } else { Outcome::Pending } }
}

/// The container is running or has run.
fn has_run(record: &PodRecord, name: &str) -> bool {
    record.containers.get(name).is_some_and(|c| c.previous.is_some() || !matches!(c.state, ContainerState::Starting))
}

fn final_outcome(record: &PodRecord, all: &[(Role, &Container)]) -> Outcome {
    let fine = all
        .iter()
        .filter(|(r, _)| *r == Role::Main)
        .all(|(_, c)| exit_of(record, &c.name).is_some_and(|e| e.code == 0));
    if fine { Outcome::Succeeded } else { Outcome::PLAIN_FAILURE }
}

/// Stops all containers, sidecars last. `true` once nothing is running.
fn stop_all(s: &Situation<'_>, all: &[(Role, &Container)], grace: SignedDuration, actions: &mut Vec<Action>) -> bool {
    let live: Vec<&(Role, &Container)> = all.iter().filter(|(_, c)| is_live(s.record, &c.name)).collect();
    let others = live.iter().any(|(r, _)| *r != Role::Sidecar);
    for (role, container) in &live {
        if *role != Role::Sidecar || !others {
            actions.push(Action::Stop { container: container.name.clone(), grace });
        }
    }
    live.is_empty()
}

fn end(s: &Situation<'_>, all: &[(Role, &Container)], ending: Ending, grace: SignedDuration) -> Step {
    let mut actions = Vec::new();
    let over = stop_all(s, all, grace, &mut actions);
    let ever = all.iter().any(|(r, c)| *r == Role::Main && has_run(s.record, &c.name));
    let outcome = match (over, ending) {
        (false, _) => {
            if ever {
                Outcome::Running
            } else {
                Outcome::Pending
            }
        }
        (true, Ending::Deadline) => {
            Outcome::Failed { reason: Some(DEADLINE.0.to_owned()), message: Some(DEADLINE.1.to_owned()) }
        }
        (true, Ending::Ordered) => {
            Outcome::Failed { reason: s.order.map(|o| o.reason.clone()), message: s.order.map(|o| o.message.clone()) }
        }
        (true, Ending::Declared | Ending::Deleted) => final_outcome(s.record, all),
    };
    if over && ending == Ending::Deleted {
        actions.push(Action::Release);
    }
    Step { actions, wake: None, outcome }
}

/// The record of a pod whose shim died without recording exit codes: whatever was running is lost.
pub(crate) fn without_shim(record: &PodRecord, now: Timestamp) -> PodRecord {
    let mut record = record.clone();
    for container in record.containers.values_mut() {
        let started = match &container.state {
            ContainerState::Exited(_) => continue,
            ContainerState::Starting => None,
            ContainerState::Running { started, .. } => Some(*started),
        };
        container.state = ContainerState::Exited(Exit {
            attempt: container.attempt,
            code: 137,
            cause: ExitCause::Lost,
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            started,
            finished: now,
        });
    }
    record
}

#[cfg(test)]
mod tests;
