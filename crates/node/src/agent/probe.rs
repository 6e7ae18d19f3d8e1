//! Startup, readiness and liveness probes of a container.
//!
//! [`Counter`] decides; the tasks here run the probes. A task belongs to one start of one container.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::mpsc;

use super::exec;
use super::probe_client::{self, HttpGet};
use crate::lifecycle::Health;

/// The probe results for one start of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeState {
    pub(super) container: String,
    pub(super) attempt: u32,
    pub(super) health: Health,
    /// A probe failure to report: which probe, and its output.
    pub(super) complaint: Option<String>,
    /// It failed often enough that the container must be restarted.
    pub(super) kill: Option<ProbeKill>,
}

/// A restart decided by a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeKill {
    /// `liveness` or `startup`.
    pub(super) probe: &'static str,
    /// The probe's own grace period, which overrides the pod's.
    pub(super) grace: Option<Duration>,
}

impl ProbeKill {
    fn of(name: &'static str, probe: &Probe) -> Self {
        let grace = probe.termination_grace_period_seconds.and_then(|s| u64::try_from(s).ok());
        Self { probe: name, grace: grace.map(Duration::from_secs) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeResult {
    Unchanged,
    Good,
    Bad,
}

/// Counts consecutive results against a probe's thresholds.
#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    good: i32,
    bad: i32,
}

impl Counter {
    fn count(&mut self, success: bool, probe: &Probe) -> ProbeResult {
        let threshold = |n: Option<i32>, default: i32| n.filter(|n| *n > 0).unwrap_or(default);
        if success {
            self.bad = 0;
            self.good += 1;
            if self.good >= threshold(probe.success_threshold, 1) { ProbeResult::Good } else { ProbeResult::Unchanged }
        } else {
            self.good = 0;
            self.bad += 1;
            if self.bad >= threshold(probe.failure_threshold, 3) { ProbeResult::Bad } else { ProbeResult::Unchanged }
        }
    }
}

/// What a task needs to probe one container.
#[derive(Debug, Clone)]
pub(super) struct ProbeTarget {
    pub(super) container: Container,
    pub(super) attempt: u32,
    pub(super) address: String,
    pub(super) shim: Vec<OsString>,
    pub(super) dir: PathBuf,
}

pub(super) fn has_probes(container: &Container) -> bool {
    container.startup_probe.is_some() || container.readiness_probe.is_some() || container.liveness_probe.is_some()
}

/// Probes a container until the receiver is dropped.
pub(super) async fn watch(target: ProbeTarget, findings: mpsc::Sender<ProbeState>) {
    let container = target.container.clone();
    let mut health = Health { started: container.startup_probe.is_none(), ready: container.readiness_probe.is_none() };
    if let Some(probe) = &container.startup_probe {
        let mut counter = Counter::default();
        pause(probe.initial_delay_seconds, 0).await;
        loop {
            let result = run_probe(&target, probe).await;
            let verdict = counter.count(result.is_ok(), probe);
            health.started = verdict == ProbeResult::Good;
            let kill = (verdict == ProbeResult::Bad).then(|| ProbeKill::of("startup", probe));
            let over = kill.is_some();
            if !report(&target, &findings, health, complaint("Startup", result), kill).await || over {
                return;
            }
            if health.started {
                break;
            }
            pause(probe.period_seconds, 10).await;
        }
    }
    let (mut ready, mut alive) = (Counter::default(), Counter::default());
    let begun = tokio::time::Instant::now();
    let due = |probe: &Probe| begun + seconds(probe.initial_delay_seconds, 0);
    let mut next_ready = container.readiness_probe.as_ref().map(due);
    let mut next_alive = container.liveness_probe.as_ref().map(due);
    loop {
        let Some(next) = [next_ready, next_alive].into_iter().flatten().min() else { return };
        tokio::time::sleep_until(next).await;
        let now = tokio::time::Instant::now();
        if let (Some(probe), Some(at)) = (&container.readiness_probe, next_ready)
            && now >= at
        {
            let result = run_probe(&target, probe).await;
            match ready.count(result.is_ok(), probe) {
                ProbeResult::Good => health.ready = true,
                ProbeResult::Bad => health.ready = false,
                ProbeResult::Unchanged => {}
            }
            next_ready = Some(now + seconds(probe.period_seconds, 10));
            if !report(&target, &findings, health, complaint("Readiness", result), None).await {
                return;
            }
        }
        if let (Some(probe), Some(at)) = (&container.liveness_probe, next_alive)
            && now >= at
        {
            let result = run_probe(&target, probe).await;
            let kill =
                (alive.count(result.is_ok(), probe) == ProbeResult::Bad).then(|| ProbeKill::of("liveness", probe));
            let over = kill.is_some();
            next_alive = Some(now + seconds(probe.period_seconds, 10));
            if !report(&target, &findings, health, complaint("Liveness", result), kill).await || over {
                return;
            }
        }
    }
}

fn complaint(which: &str, result: Result<(), String>) -> Option<String> {
    result.err().map(|why| format!("{which} probe failed: {why}"))
}

async fn report(
    target: &ProbeTarget,
    findings: &mpsc::Sender<ProbeState>,
    health: Health,
    complaint: Option<String>,
    kill: Option<ProbeKill>,
) -> bool {
    let finding =
        ProbeState { container: target.container.name.clone(), attempt: target.attempt, health, complaint, kill };
    findings.send(finding).await.is_ok()
}

fn seconds(wanted: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(wanted.and_then(|s| u64::try_from(s).ok()).filter(|s| *s > 0).unwrap_or(default))
}

async fn pause(wanted: Option<i32>, default: u64) {
    tokio::time::sleep(seconds(wanted, default)).await;
}

async fn run_probe(target: &ProbeTarget, probe: &Probe) -> Result<(), String> {
    let limit = seconds(probe.timeout_seconds, 1);
    let host = |wanted: &Option<String>| wanted.clone().filter(|h| !h.is_empty()).unwrap_or(target.address.clone());
    if let Some(action) = &probe.exec {
        let words = action.command.as_deref().unwrap_or_default();
        let ran = exec::run(&target.shim, &target.dir, &target.container.name, words, limit).await;
        return ran.map_err(exec::ExecError::of_probe);
    }
    if let Some(action) = &probe.tcp_socket {
        let (host, port) = (host(&action.host), port_of(&target.container, &action.port)?);
        return within(limit, async { probe_client::connect(&host, port).await.map(|_| ()) }).await;
    }
    if let Some(action) = &probe.http_get {
        let wanted = HttpGet {
            https: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
            host: host(&action.host),
            port: port_of(&target.container, &action.port)?,
            path: action.path.as_deref().unwrap_or("/"),
            headers: action.http_headers.as_deref().unwrap_or_default(),
            agent: "kube-probe/1.35",
        };
        return within(limit, async {
            match probe_client::get(&wanted).await? {
                200..=399 => Ok(()),
                code => Err(format!("HTTP probe failed with statuscode: {code}")),
            }
        })
        .await;
    }
    if let Some(action) = &probe.grpc {
        let port = u16::try_from(action.port).map_err(|_| format!("there is no port {}", action.port))?;
        let asked = probe_client::grpc(&target.address, port, action.service.as_deref().unwrap_or_default());
        return match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("timeout: health rpc did not complete within {}s", limit.as_secs())),
        };
    }
    Err("the probe names nothing to ask".to_owned())
}

async fn within(limit: Duration, work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
}

pub(super) fn port_of(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named =
                container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name)).map(|p| p.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    number.and_then(|n| u16::try_from(n).ok()).ok_or_else(|| format!("there is no port {port:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_counted_in_a_row() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(2), ..Probe::default() };
        let mut counter = Counter::default();
        let verdicts: Vec<ProbeResult> =
            [false, true, false, false, true, true].map(|s| counter.count(s, &probe)).to_vec();
        use ProbeResult::{Bad, Good, Unchanged};
        assert_eq!(verdicts, [Unchanged, Unchanged, Unchanged, Bad, Unchanged, Good]);
    }

    #[test]
    fn ports_are_found_by_name() {
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "ports": [{"name": "ui", "containerPort": 4040}]}))
                .expect("a container");
        assert_eq!(port_of(&container, &IntOrString::String("ui".to_owned())), Ok(4040));
        assert!(port_of(&container, &IntOrString::String("none".to_owned())).is_err());
    }
}
