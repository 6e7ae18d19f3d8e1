//! Starting, stopping and probing the containers of a pod.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{AbortOnDrop, CONFIG_RETRY, Delay, FORCED_GRACE, Note, PodWorker, WRITE_RETRY, millis};
use crate::agent::events::Kind;
use crate::agent::exec;
use crate::agent::link::Link;
use crate::agent::probe::{self, Finding};
use crate::configure::{self, Prepared, Surroundings};
use crate::launch::{Command, ContainerState, ExitCause};
use crate::lifecycle::{self, Health, containers};
use crate::volumes;

impl PodWorker {
    pub(super) async fn start(&mut self, name: &str, attempt: u32) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some((_, container)) = containers(&spec).into_iter().find(|(_, c)| c.name == name) else { return };
        let Some(image) = self.ready_images.get(name) else { return };
        let around = Surroundings {
            facts: self.facts(),
            api_host: self.shared.route.host.clone(),
            api_port: self.shared.route.port,
            driver_master: self.shared.route.driver_master.clone(),
        };
        let prepared = Prepared {
            image,
            around: &around,
            objects: &self.supplies.objects,
            sources: &self.sources,
            dir: &self.dir,
        };
        let launch = configure::launch(&self.pod, container, attempt, prepared);
        let launch = launch.map_err(|e| e.to_string()).and_then(|launch| {
            let mut own = launch
                .mounts
                .iter()
                .filter(|m| m.source.starts_with(self.dir.volumes()) || m.source.starts_with("/dev/shm"));
            own.try_for_each(volumes::make_sub_path).map_err(|e| e.to_string())?;
            fs::create_dir_all(self.dir.container(name)).map_err(|e| e.to_string())?;
            Ok(launch)
        });
        match launch {
            Ok(launch) => {
                self.stopping.remove(name);
                self.command(Command::Start(Box::new(launch))).await;
            }
            Err(message) => {
                self.shared.recorder.record(
                    &self.pod,
                    Some(name),
                    Kind::Warning,
                    "Failed",
                    format!("Error: {message}"),
                );
                self.config_errors.insert(name.to_owned(), message);
                self.config_delay = Some(Delay::after(self.config_delay, CONFIG_RETRY.0, CONFIG_RETRY.1));
            }
        }
    }

    /// Tells the shim, starting one if there is none and there is something to start.
    pub(super) async fn command(&mut self, command: Command) {
        if self.link.is_none() {
            if !matches!(command, Command::Start(_)) {
                return;
            }
            match Link::start(&self.dir, &self.shared.options.shim).await {
                Ok(link) => self.link = Some(link),
                Err(error) => {
                    self.shared.recorder.record(
                        &self.pod,
                        None,
                        Kind::Warning,
                        "FailedCreatePodSandBox",
                        format!("Failed to create pod sandbox: {error}"),
                    );
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
                while link
                    .record
                    .borrow_and_update()
                    .containers
                    .get(&launch.container)
                    .is_none_or(|c| c.attempt < launch.attempt)
                {
                    if link.record.changed().await.is_err() {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(5), heard).await;
            self.record = link.record.borrow().clone();
        }
    }

    pub(super) async fn stop(&mut self, name: &str, grace: Duration) {
        let Some(attempt) = self.record.containers.get(name).map(|c| c.attempt) else { return };
        let first = self.stopping.insert(name.to_owned(), attempt) != Some(attempt);
        if first {
            self.shared.recorder.record(
                &self.pod,
                Some(name),
                Kind::Normal,
                "Killing",
                format!("Stopping container {name}"),
            );
        }
        let spec = self.pod.spec.as_ref();
        let container = spec.and_then(|s| containers(s).into_iter().map(|(_, c)| c).find(|c| c.name == name));
        let hook = container
            .and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref())
            .and_then(|h| h.exec.as_ref()?.command.clone());
        match hook {
            Some(words) if first && !grace.is_zero() => self.run_hook(name, words, grace),
            Some(_) if !grace.is_zero() => {}
            _ => self.command(Command::Stop { container: name.to_owned(), grace_ms: millis(grace) }).await,
        }
    }

    /// Runs a preStop hook; the grace time goes on meanwhile.
    pub(super) fn run_hook(&self, name: &str, words: Vec<String>, grace: Duration) {
        let (notes, shim, dir, container) =
            (self.notes.0.clone(), self.shared.options.shim.clone(), self.dir.path().to_owned(), name.to_owned());
        tokio::spawn(async move {
            let begun = Instant::now();
            let outcome = exec::run(&shim, &dir, &container, &words, grace).await;
            let left = grace.saturating_sub(begun.elapsed()).max(FORCED_GRACE);
            let _ = notes.send(Note::HookDone { container, left, failed: outcome.err() }).await;
        });
    }

    /// Keeps one task for each start of a container that has probes.
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

    pub(super) async fn found(&mut self, finding: Finding) {
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
        if finding.kill {
            let message = format!("Container {} failed liveness probe, will be restarted", finding.container);
            self.shared.recorder.record(&self.pod, Some(&finding.container), Kind::Normal, "Killing", message);
            let seconds = self
                .pod
                .spec
                .as_ref()
                .and_then(|s| s.termination_grace_period_seconds)
                .and_then(|s| u64::try_from(s).ok())
                .unwrap_or(30);
            self.stop(&finding.container, Duration::from_secs(seconds)).await;
        }
    }

    /// Writes events about what has happened to containers.
    pub(super) fn announce(&mut self) {
        let recorder = &self.shared.recorder;
        for (name, container) in &self.record.containers {
            let (attempt, ran) = self.announced.get(name).copied().unwrap_or((u32::MAX, false));
            let new = attempt != container.attempt || !ran;
            match &container.state {
                ContainerState::Starting => continue,
                ContainerState::Running { .. } if new => {
                    recorder.record(
                        &self.pod,
                        Some(name),
                        Kind::Normal,
                        "Created",
                        format!("Created container: {name}"),
                    );
                    recorder.record(
                        &self.pod,
                        Some(name),
                        Kind::Normal,
                        "Started",
                        format!("Started container {name}"),
                    );
                }
                ContainerState::Exited(exit) if new => {
                    if exit.cause == ExitCause::NotStarted {
                        recorder.record(
                            &self.pod,
                            Some(name),
                            Kind::Warning,
                            "Failed",
                            format!("Error: {}", exit.message.clone().unwrap_or_default()),
                        );
                    } else {
                        recorder.record(
                            &self.pod,
                            Some(name),
                            Kind::Normal,
                            "Created",
                            format!("Created container: {name}"),
                        );
                        recorder.record(
                            &self.pod,
                            Some(name),
                            Kind::Normal,
                            "Started",
                            format!("Started container {name}"),
                        );
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
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}_{}({})",
                    self.pod.name_any(),
                    self.pod.namespace().unwrap_or_default(),
                    self.uid
                );
                recorder.record(&self.pod, Some(name), Kind::Warning, "BackOff", message);
            }
            self.announced.insert(name.clone(), (container.attempt, true));
        }
    }
}
