//! Reports a pod's status to the API server, and cleans up after it.

use std::fs;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use tokio::time::Instant;

use super::{FORCED_GRACE, PodWorker, WRITE_RETRY};
use crate::agent::shim_connection::remove_tree;
use crate::agent::{apart, clean_up, lock};
use crate::lifecycle::{self, Situation, Step};
use crate::shim_protocol::{Command, ContainerRecord, ContainerState, Exit, ExitCause, PodRecord};

impl PodWorker {
    /// Signals that this pod has terminated to whoever waits for all of them.
    pub(super) fn signal_terminated(&self) {
        if let Some(entry) = lock(&self.shared.pods).get(&self.uid) {
            entry.over.send_replace(self.over);
        }
    }

    pub(super) async fn write_status(&mut self, step: &Step) {
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
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                tracing::debug!(%status.message, "the pod is gone or was replaced");
            }
            Err(error) => {
                tracing::warn!(%error, pod = %self.pod.name_any(), "could not write a pod's status");
                self.write_again = Some(Instant::now() + WRITE_RETRY);
            }
        }
    }

    pub(super) fn api(&self) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), &self.pod.namespace().unwrap_or_default())
    }

    /// A terminated pod needs no shim: its logs and exit codes are in its directory.
    pub(super) async fn dismiss_shim(&mut self) {
        if let Some(link) = &mut self.link {
            let _ = link.send(&Command::End { grace_ms: 0 }).await;
        }
    }

    /// Removes what a terminated pod no longer needs: volumes and writable layers. Logs are kept.
    pub(super) async fn give_back(&mut self) {
        if self.given_back || self.link.is_some() {
            return;
        }
        self.given_back = true;
        let dir = self.dir.clone();
        let _ = apart(move || {
            let containers = fs::read_dir(dir.path().join("containers")).into_iter().flatten().flatten();
            let starts = containers.flat_map(|c| fs::read_dir(c.path()).into_iter().flatten().flatten());
            let scratch = starts.filter(|s| s.file_type().is_ok_and(|t| t.is_dir())).map(|s| s.path());
            for path in scratch.chain([dir.volumes(), dir.memory()]) {
                if let Err(error) = remove_tree(&path) {
                    tracing::debug!(%error, path = %path.display(), "could not free the space of a terminated pod");
                }
            }
        })
        .await;
    }

    /// Deletes the pod object: nothing of the pod is left on this node.
    pub(super) async fn release(&mut self) {
        if self.released {
            return;
        }
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api().delete(&self.pod.name_any(), &parameters).await {
            Ok(_) => self.released = true,
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => self.released = true,
            Err(error) => {
                tracing::warn!(%error, pod = %self.pod.name_any(), "could not delete a terminated pod");
                self.write_again = Some(Instant::now() + WRITE_RETRY);
            }
        }
    }

    /// The pod is gone from the API server: removes everything of it.
    pub(super) async fn leave(mut self) {
        self.shared.names.set_endpoint(&self.uid, None);
        self.link = None;
        clean_up(&self.dir, FORCED_GRACE).await;
        if let Some(address) = self.address {
            self.shared.addresses.release(address);
        }
        lock(&self.shared.pods).remove(&self.uid);
    }
}

/// The API server knows of containers that ran, but their directory is gone: they are lost.
pub(super) fn lost_with_directory(pod: &Pod) -> PodRecord {
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return PodRecord::default();
    }
    let all = status
        .into_iter()
        .flat_map(|s| s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten()));
    let ran = all.filter(|c| c.container_id.is_some());
    let containers = ran.map(|c| {
        let attempt = u32::try_from(c.restart_count).unwrap_or(0);
        let code = c.state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| t.exit_code);
        let started = c.state.as_ref().and_then(|s| s.running.as_ref()?.started_at.as_ref()).map(|t| t.0);
        let state = match code {
            Some(code) => ContainerState::Exited(Exit {
                attempt,
                code,
                cause: ExitCause::Ended,
                message: None,
                started,
                finished: Timestamp::now(),
            }),
            None => ContainerState::Running { pid: 0, started: started.unwrap_or_else(Timestamp::now) },
        };
        (c.name.clone(), ContainerRecord { attempt, state, previous: None })
    });
    let record = PodRecord { containers: containers.collect(), ..PodRecord::default() };
    lifecycle::without_shim(&record, Timestamp::now())
}
