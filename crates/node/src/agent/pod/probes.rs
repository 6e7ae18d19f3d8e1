//! Probes and hooks of a pod's containers.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use tokio::time::Instant;

use super::{AbortOnDrop, FORCED_GRACE, PodWorker, TaskReport};
use crate::agent::events::Kind;
use crate::agent::hooks;
use crate::agent::probe::{self, ProbeState, ProbeTarget};
use crate::lifecycle::{Health, containers};
use crate::shim_protocol::ContainerState;

/// A hook that takes longer has failed; a kubelet would wait forever.
const POST_START_LIMIT: Duration = Duration::from_secs(600);

impl PodWorker {
    /// Runs one probe task per container start.
    pub(super) fn probe(&mut self) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some(address) = self.address else { return };
        for (_, container) in containers(&spec).into_iter().filter(|(_, c)| probe::has_probes(c)) {
            let running = self
                .record
                .containers
                .get(&container.name)
                .filter(|c| matches!(c.state, ContainerState::Running { .. }))
                .map(|c| c.attempt);
            if self.starting_up.contains_key(&container.name) {
                continue;
            }
            let Some(attempt) = running else {
                self.probes.remove(&container.name);
                self.health.remove(&container.name);
                continue;
            };
            if self.probes.get(&container.name).is_some_and(|(probed, _)| *probed == attempt) {
                continue;
            }
            let health =
                Health { started: container.startup_probe.is_none(), ready: container.readiness_probe.is_none() };
            self.health.insert(container.name.clone(), health);
            let target = self.target(container, attempt, address);
            let task = tokio::spawn(probe::watch(target, self.findings.0.clone()));
            self.probes.insert(container.name.clone(), (attempt, AbortOnDrop(task)));
        }
    }

    pub(super) async fn found(&mut self, finding: ProbeState) {
        let current = self
            .record
            .containers
            .get(&finding.container)
            .is_some_and(|c| c.attempt == finding.attempt && matches!(c.state, ContainerState::Running { .. }));
        if !current {
            return;
        }
        self.health.insert(finding.container.clone(), finding.health);
        if let Some(complaint) = finding.complaint {
            self.shared.recorder.record(&self.pod, Some(&finding.container), Kind::Warning, "Unhealthy", complaint);
        }
        if let Some(kill) = finding.kill {
            let message = format!("Container {} failed {} probe, will be restarted", finding.container, kill.probe);
            self.record_event(&finding.container, Kind::Normal, "Killing", message);
            let grace = kill.grace.unwrap_or_else(|| self.grace());
            self.stopping.insert(finding.container.clone(), finding.attempt);
            self.end_container(&finding.container, grace, true).await;
        }
    }

    /// The pod's termination grace period.
    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
        Duration::from_secs(seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(30))
    }

    fn target(&self, container: &Container, attempt: u32, address: Ipv4Addr) -> ProbeTarget {
        ProbeTarget {
            container: container.clone(),
            attempt,
            address: address.to_string(),
            shim: self.shared.options.shim.clone(),
            dir: self.dir.path().to_owned(),
        }
    }

    /// Starts the postStart hooks of new containers. A container counts as started once its hook has finished.
    pub(super) fn run_post_start(&mut self) {
        let Some(address) = self.address else { return };
        let running: Vec<(String, u32)> = self
            .record
            .containers
            .iter()
            .filter(|(_, c)| matches!(c.state, ContainerState::Running { .. }))
            .map(|(name, c)| (name.clone(), c.attempt))
            .collect();
        self.starting_up.retain(|name, (attempt, _)| running.contains(&(name.clone(), *attempt)));
        for (name, attempt) in running {
            let Some(container) = self.container(&name) else { continue };
            let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.post_start.clone()) else { continue };
            if self.hooked.get(&name) == Some(&attempt) {
                continue;
            }
            self.hooked.insert(name.clone(), attempt);
            self.health.insert(name.clone(), Health { started: false, ready: false });
            let (target, notes) = (self.target(&container, attempt, address), self.notes.0.clone());
            let task = tokio::spawn(async move {
                let failed = hooks::run(&target, &hook, POST_START_LIMIT).await.err();
                let _ = notes.send(TaskReport::StartedUp { container: target.container.name, attempt, failed }).await;
            });
            self.starting_up.insert(name, (attempt, AbortOnDrop(task)));
        }
    }

    /// A postStart hook has finished.
    pub(super) async fn started_up(&mut self, name: &str, attempt: u32, failed: Option<String>) {
        if self.starting_up.get(name).is_none_or(|(running, _)| *running != attempt) {
            return;
        }
        self.starting_up.remove(name);
        self.health.remove(name);
        if let Some(why) = failed {
            tracing::info!(container = name, %why, "a postStart hook failed");
            self.record_event(name, Kind::Warning, "FailedPostStartHook", format!("PostStartHook failed: {why}"));
            self.record_event(name, Kind::Normal, "Killing", "FailedPostStartHook");
            self.stopping.insert(name.to_owned(), attempt);
            self.end_container(name, self.grace(), true).await;
        }
    }

    /// Runs a preStop hook within the grace period.
    pub(super) fn run_pre_stop(&self, name: &str, hook: LifecycleHandler, grace: Duration) {
        let (Some(container), Some(address)) = (self.container(name), self.address) else { return };
        let (target, notes) = (self.target(&container, 0, address), self.notes.0.clone());
        tokio::spawn(async move {
            let begun = Instant::now();
            let outcome = hooks::run(&target, &hook, grace).await;
            let left = grace.saturating_sub(begun.elapsed()).max(FORCED_GRACE);
            let container = target.container.name;
            let _ = notes.send(TaskReport::HookDone { container, left, failed: outcome.err() }).await;
        });
    }
}
