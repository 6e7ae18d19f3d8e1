//! Computes a pod's status, in a kubelet's words. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{ImageState, NoImage, Outcome, Role, Situation, Step, containers, restart_at};
use crate::names::reason;
use crate::shim_protocol::{ContainerState, Exit};

/// Builds the status. Conditions set by others are kept; our transition times change only with the value.
pub(crate) fn status(s: &Situation<'_>, step: &Step) -> PodStatus {
    let none = PodSpec::default();
    let spec = s.pod.spec.as_ref().unwrap_or(&none);
    let old = s.pod.status.clone().unwrap_or_default();
    let all = containers(spec);
    let initialised = is_initialised(s, &all);
    let built: Vec<(Role, ContainerStatus)> =
        all.iter().map(|(role, c)| (*role, container_status(s, step, spec, *role, c, initialised))).collect();
    let (phase, why, message) = match &step.outcome {
        Outcome::Pending => ("Pending", None, None),
        Outcome::Running => ("Running", None, None),
        Outcome::Succeeded => ("Succeeded", None, None),
        Outcome::Failed { reason, message } => ("Failed", reason.clone(), message.clone()),
    };
    // A terminal status already reported is kept: an eviction keeps its reason.
    let told_end = old.phase.as_deref() == Some("Failed") && phase == "Failed";
    let declared = old.phase.clone().filter(|p| p == "Succeeded" || p == "Failed");
    let conditions = conditions(s, step, spec, &built, initialised, old.conditions.as_deref().unwrap_or_default());
    let address = s.address.map(str::to_owned).filter(|_| s.prepared).or(old.pod_ip.clone());
    PodStatus {
        phase: Some(declared.unwrap_or_else(|| phase.to_owned())),
        reason: if told_end { old.reason.clone() } else { why.or(old.reason.clone()) },
        message: if told_end { old.message.clone() } else { message.or(old.message.clone()) },
        conditions: Some(conditions),
        host_ip: Some(s.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: s.host_ip.to_owned() }]),
        pod_ips: address.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: address,
        start_time: Some(old.start_time.clone().unwrap_or(Time(to_seconds(s.now)))),
        init_container_statuses: Some(
            built.iter().filter(|(r, _)| *r != Role::Main).map(|(_, c)| c.clone()).collect::<Vec<_>>(),
        )
        .filter(|v| !v.is_empty()),
        container_statuses: Some(built.iter().filter(|(r, _)| *r == Role::Main).map(|(_, c)| c.clone()).collect()),
        ..old
    }
}

/// Kubernetes timestamps have whole seconds.
fn to_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn is_initialised(s: &Situation<'_>, all: &[(Role, &Container)]) -> bool {
    all.iter().all(|(role, c)| match (role, s.record.containers.get(&c.name).map(|r| &r.state)) {
        (Role::Main, _) => true,
        (Role::Init, Some(ContainerState::Exited(exit))) => exit.code == 0,
        (Role::Init, _) => false,
        (Role::Sidecar, Some(ContainerState::Running { .. })) => is_started(s, c),
        (Role::Sidecar, Some(ContainerState::Exited(_))) => true,
        (Role::Sidecar, Some(ContainerState::Starting) | None) => false,
    })
}

/// The container is running and its startup probe, if any, has succeeded.
pub(crate) fn is_started(s: &Situation<'_>, container: &Container) -> bool {
    let running =
        s.record.containers.get(&container.name).is_some_and(|c| matches!(c.state, ContainerState::Running { .. }));
    let default = container.startup_probe.is_none();
    running && s.health.get(&container.name).map_or(default, |h| h.started)
}

fn is_ready(s: &Situation<'_>, container: &Container) -> bool {
    let default = container.readiness_probe.is_none();
    is_started(s, container) && s.health.get(&container.name).map_or(default, |h| h.ready || default)
}

fn container_status(
    s: &Situation<'_>,
    step: &Step,
    spec: &PodSpec,
    role: Role,
    container: &Container,
    initialised: bool,
) -> ContainerStatus {
    let record = s.record.containers.get(&container.name);
    let uid = s.pod.metadata.uid.clone().unwrap_or_default();
    let (state, last) = match record.map(|r| &r.state) {
        None => (waiting_to_start(s, role, container, initialised), None),
        Some(ContainerState::Starting) => {
            (waiting(reason::CONTAINER_CREATING, None), record.and_then(|r| r.previous.as_ref()))
        }
        Some(ContainerState::Running { started, .. }) => {
            let running = ApiState {
                running: Some(ContainerStateRunning { started_at: Some(Time(to_seconds(*started))) }),
                ..ApiState::default()
            };
            (running, record.and_then(|r| r.previous.as_ref()))
        }
        Some(ContainerState::Exited(exit)) => {
            ended(s, step, spec, role, container, exit, record.and_then(|r| r.previous.as_ref()))
        }
    };
    let image_id = match s.images.get(&container.name) {
        Some(ImageState::Ready { id }) => format!("firesteel://{id}"),
        _ => reported(s, &container.name).map(|c| c.image_id.clone()).unwrap_or_default(),
    };
    let ready = match (role, record.map(|r| &r.state)) {
        (Role::Init, Some(ContainerState::Exited(exit))) => exit.code == 0,
        (Role::Init, _) => false,
        (Role::Sidecar | Role::Main, _) => is_ready(s, container),
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id,
        container_id: record.map(|r| format!("firesteel://{uid}/{}/{}", container.name, r.attempt)),
        ready,
        started: Some(is_started(s, container)),
        restart_count: record.map_or(0, |r| i32::try_from(r.attempt).unwrap_or(i32::MAX)),
        state: Some(state),
        last_state: Some(last.map(|exit| terminated(&uid, &container.name, exit)).unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

/// What the API server knows about a container.
fn reported<'a>(s: &'a Situation<'_>, name: &str) -> Option<&'a ContainerStatus> {
    let status = s.pod.status.as_ref()?;
    status
        .container_statuses
        .iter()
        .flatten()
        .chain(status.init_container_statuses.iter().flatten())
        .find(|c| c.name == name)
}

fn waiting_to_start(s: &Situation<'_>, role: Role, container: &Container, initialised: bool) -> ApiState {
    if role == Role::Main && !initialised {
        return waiting(reason::POD_INITIALIZING, None);
    }
    if let Some(ImageState::Failed { why, message }) = s.images.get(&container.name) {
        let message = match why {
            NoImage::BackingOff => {
                let image = container.image.clone().unwrap_or_default();
                format!("Back-off pulling image \"{image}\": ErrImagePull: {message}")
            }
            NoImage::InvalidName | NoImage::NeverPull | NoImage::NotPulled => message.clone(),
        };
        return waiting(why.reason(), Some(message));
    }
    if let Some(message) = s.config_errors.get(&container.name) {
        return waiting(reason::CONFIG_ERROR, Some(message.clone()));
    }
    waiting(if role == Role::Main || initialised { reason::CONTAINER_CREATING } else { reason::POD_INITIALIZING }, None)
}

/// An exited container: terminated, or waiting to restart.
fn ended<'a>(
    s: &Situation<'_>,
    step: &Step,
    spec: &PodSpec,
    role: Role,
    container: &Container,
    exit: &'a Exit,
    previous: Option<&'a Exit>,
) -> (ApiState, Option<&'a Exit>) {
    let uid = s.pod.metadata.uid.clone().unwrap_or_default();
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    let again = match role {
        Role::Sidecar => true,
        Role::Init => exit.code != 0 && policy != "Never",
        Role::Main => policy == "Always" || (policy == "OnFailure" && exit.code != 0),
    };
    let over = step.outcome.is_final() || s.pod.metadata.deletion_timestamp.is_some();
    let at = restart_at(exit);
    if again && !over && at > s.now {
        let delay = at.duration_since(exit.finished).as_secs();
        let (name, namespace) =
            (s.pod.metadata.name.clone().unwrap_or_default(), s.pod.metadata.namespace.clone().unwrap_or_default());
        let delay = if delay >= 60 && delay % 60 == 0 {
            format!("{}m0s", delay / 60)
        } else if delay >= 60 {
            format!("{}m{}s", delay / 60, delay % 60)
        } else {
            format!("{delay}s")
        };
        let message =
            format!("back-off {delay} restarting failed container={} pod={name}_{namespace}({uid})", container.name);
        return (waiting(reason::CRASH_LOOP, Some(message)), Some(exit));
    }
    (terminated(&uid, &container.name, exit), previous)
}

fn waiting(reason: &str, message: Option<String>) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ApiState::default()
    }
}

fn terminated(uid: &str, name: &str, exit: &Exit) -> ApiState {
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(exit.reason().to_owned()),
        message: exit.message.clone(),
        signal: None,
        started_at: Some(Time(to_seconds(exit.started.unwrap_or(exit.finished)))),
        finished_at: Some(Time(to_seconds(exit.finished))),
        container_id: Some(format!("firesteel://{uid}/{name}/{}", exit.attempt)),
    };
    ApiState { terminated: Some(terminated), ..ApiState::default() }
}

fn conditions(
    s: &Situation<'_>,
    step: &Step,
    spec: &PodSpec,
    built: &[(Role, ContainerStatus)],
    initialised: bool,
    old: &[PodCondition],
) -> Vec<PodCondition> {
    let unready: Vec<&str> =
        built.iter().filter(|(r, c)| *r == Role::Main && !c.ready).map(|(_, c)| c.name.as_str()).collect();
    let incomplete: Vec<&str> =
        built.iter().filter(|(r, c)| *r != Role::Main && !c.ready).map(|(_, c)| c.name.as_str()).collect();
    let completed = step.outcome == Outcome::Succeeded;
    let failed = matches!(step.outcome, Outcome::Failed { .. });
    let containers_ready = if completed {
        (false, Some("PodCompleted"), None)
    } else if failed {
        (false, Some("PodFailed"), None)
    } else if unready.is_empty() {
        (true, None, None)
    } else {
        (false, Some("ContainersNotReady"), Some(format!("containers with unready status: [{}]", unready.join(" "))))
    };
    let gates_open = spec
        .readiness_gates
        .iter()
        .flatten()
        .all(|g| old.iter().any(|c| c.type_ == g.condition_type && c.status == "True"));
    let ready = if containers_ready.0 && !gates_open {
        (false, Some("ReadinessGatesNotReady"), None)
    } else {
        containers_ready.clone()
    };
    let initialized = if completed {
        (true, Some("PodCompleted"), None)
    } else if initialised {
        (true, None, None)
    } else {
        (
            false,
            Some("ContainersNotInitialized"),
            Some(format!("containers with incomplete status: [{}]", incomplete.join(" "))),
        )
    };
    let sandbox = (s.prepared && !step.outcome.is_final(), None, None);
    let mut all: Vec<PodCondition> = Vec::new();
    for (kind, (value, reason, message)) in [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
    ] {
        all.push(condition(kind, value, reason, message, old, s.now));
    }
    if !old.iter().any(|c| c.type_ == "PodScheduled") {
        all.push(condition("PodScheduled", true, None, None, old, s.now));
    }
    if let Some(order) = s.order.filter(|o| o.disruption) {
        let why = Some(order.message.clone());
        all.push(condition("DisruptionTarget", true, Some("TerminationByKubelet"), why, old, s.now));
    }
    let ours: Vec<String> = all.iter().map(|c| c.type_.clone()).collect();
    all.extend(old.iter().filter(|c| !ours.contains(&c.type_)).cloned());
    all
}

fn condition(
    kind: &str,
    value: bool,
    reason: Option<&str>,
    message: Option<String>,
    old: &[PodCondition],
    now: Timestamp,
) -> PodCondition {
    let status = if value { "True" } else { "False" };
    let before = old.iter().find(|c| c.type_ == kind);
    let since = before.filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message,
        last_transition_time: Some(since.unwrap_or(Time(to_seconds(now)))),
        ..PodCondition::default()
    }
}
