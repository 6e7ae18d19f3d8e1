//! Starts and stops a pod's containers.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Backoff, CONFIG_RETRY, PodWorker, WRITE_RETRY, millis};
use crate::agent::events::Kind;
use crate::agent::shim_connection::ShimConnection;
use crate::container_config::{self, NodeEnvironment, Prepared};
use crate::lifecycle::containers;
use crate::security;
use crate::shim_protocol::Command;
use crate::volumes;

impl PodWorker {
    pub(super) async fn start(&mut self, name: &str, attempt: u32) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let Some((_, container)) = containers(&spec).into_iter().find(|(_, c)| c.name == name) else { return };
        let Some(image) = self.ready_images.get(name) else { return };
        let around = NodeEnvironment {
            facts: self.facts(),
            api_host: self.shared.route.host.clone(),
            api_port: self.shared.route.port,
            driver_master: self.shared.route.driver_master.clone(),
            links: self.links(),
            root: nix::unistd::Uid::effective().is_root(),
        };
        let prepared = Prepared {
            image,
            around: &around,
            objects: &self.supplies.objects,
            sources: &self.sources,
            dir: &self.dir,
        };
        let launch = container_config::launch(&self.pod, container, attempt, prepared);
        let launch = launch.map_err(|e| e.to_string()).and_then(|launch| {
            for mount in &launch.mounts {
                volumes::make_sub_path(mount).map_err(|e| {
                    format!(
                        "failed to prepare subPath for volumeMount at {} of container \"{name}\": {e}",
                        mount.target
                    )
                })?;
            }
            fs::create_dir_all(self.dir.container(name)).map_err(|e| e.to_string())?;
            Ok(launch)
        });
        match launch {
            Ok(launch) => {
                for note in security::not_applied(&self.pod, container, around.root) {
                    self.record_event(name, Kind::Warning, "SecurityContextNotApplied", note);
                }
                self.stopping.remove(name);
                self.command(Command::Start(Box::new(launch))).await;
            }
            Err(message) => {
                self.record_event(name, Kind::Warning, "Failed", format!("Error: {message}"));
                self.config_errors.insert(name.to_owned(), message);
                self.config_delay = Some(Backoff::after(self.config_delay, CONFIG_RETRY.0, CONFIG_RETRY.1));
            }
        }
    }

    /// Sends a command to the shim, and starts a shim if a container is to be started.
    pub(super) async fn command(&mut self, command: Command) {
        if self.link.is_none() {
            if !matches!(command, Command::Start(_)) {
                return;
            }
            match ShimConnection::start(&self.dir, &self.shared.options.shim).await {
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
            tracing::warn!(%error, pod = %self.pod.name_any(), "could not send a command to a shim");
            return;
        }
        if let Command::Start(launch) = command {
            // The container counts as starting until the shim answers, so that it is requested only once.
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
            self.record_event(name, Kind::Normal, "Killing", format!("Stopping container {name}"));
        }
        self.end_container(name, grace, first).await;
    }

    /// Stops a container, after its preStop hook if there is one and time is left.
    pub(super) async fn end_container(&mut self, name: &str, grace: Duration, first: bool) {
        let hook = self.container(name).and_then(|c| c.lifecycle?.pre_stop);
        match hook {
            Some(hook) if first && !grace.is_zero() => self.run_pre_stop(name, hook, grace),
            Some(_) if !grace.is_zero() => {}
            _ => self.command(Command::Stop { container: name.to_owned(), grace_ms: millis(grace) }).await,
        }
    }

    pub(super) fn container(&self, name: &str) -> Option<Container> {
        let spec = self.pod.spec.as_ref()?;
        containers(spec).into_iter().map(|(_, c)| c).find(|c| c.name == name).cloned()
    }

    /// Records an event about a container.
    pub(super) fn record_event(&self, container: &str, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.shared.recorder.record(&self.pod, Some(container), kind, reason, message);
    }
}
