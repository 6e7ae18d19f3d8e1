//! Prepares a pod before its containers start: directory, address, volumes and hosts file.

use std::fs;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Backoff, HOST_IP, MOUNT_RETRY, PodWorker, REFRESH_RETRY, Shown, fetch};
use crate::agent::events::Kind;
use crate::environment::PodFacts;
use crate::hosts;
use crate::lifecycle::{self, Situation, Step};
use crate::volumes;

impl PodWorker {
    /// Creates or updates the pod's directory, address and volumes. Idempotent.
    pub(super) async fn prepare(&mut self) {
        match self.try_prepare().await {
            Ok(()) => {
                self.prepared = true;
                self.prepare_delay = None;
            }
            Err(message) => {
                let (first, longest) = if self.prepared { REFRESH_RETRY } else { MOUNT_RETRY };
                let delay = Backoff::after(self.prepare_delay, first, longest);
                self.prepare_delay = Some(delay);
                self.refresh_at = self.refresh_at.map(|_| delay.until);
                self.shared.recorder.record(&self.pod, None, Kind::Warning, "FailedMount", message);
            }
        }
    }

    pub(super) async fn try_prepare(&mut self) -> Result<(), String> {
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
        crate::shim_protocol::write_atomically(&self.dir.address(), address.to_string().as_bytes()).map_err(said)?;
        crate::shim_protocol::write_atomically(&self.dir.pod(), &serde_json::to_vec(&self.pod).unwrap_or_default())
            .map_err(said)?;
        // Subscribe before fetching, so that no change is missed.
        let held = volumes::held_in_volumes(&self.pod);
        self.changes = self.shared.sources.listen(&self.pod.namespace().unwrap_or_default(), &held);
        self.shown = self.to_show();
        self.supplies = fetch::fetch(&self.shared, &self.pod).await?;
        let facts = self.facts();
        let spec = self.pod.spec.clone().unwrap_or_default();
        let group = spec.security_context.as_ref().and_then(|s| s.fs_group).and_then(|g| u32::try_from(g).ok());
        for volume in spec.volumes.iter().flatten() {
            let place = volumes::plan(&self.pod, volume, &self.supplies, &facts)
                .and_then(|planned| {
                    volumes::materialise(
                        &planned,
                        &self.dir.volumes().join(&volume.name),
                        &self.dir.memory().join(&volume.name),
                        group,
                    )
                })
                .map_err(|e| format!("MountVolume.SetUp failed for volume \"{}\" : {e}", volume.name))?;
            self.sources.insert(volume.name.clone(), place);
        }
        self.refresh_at = fetch::shortest_token(&self.pod).map(|life| Instant::now() + life);
        self.write_hosts();
        Ok(())
    }

    /// The contents of downward API volumes, if the pod has any.
    pub(super) fn to_show(&self) -> Option<Shown> {
        let meta = &self.pod.metadata;
        volumes::shows_pod(&self.pod).then(|| (meta.labels.clone(), meta.annotations.clone()))
    }

    pub(super) fn facts(&self) -> PodFacts {
        PodFacts {
            pod_ip: self.address.map(|a| a.to_string()).unwrap_or_default(),
            host_ip: HOST_IP.to_owned(),
            node_cpu: self.shared.capacity.cpu_milli,
            node_memory: self.shared.capacity.memory_bytes,
        }
    }

    /// Environment variables for the Services in the namespace, unless the pod disables them.
    pub(super) fn links(&self) -> Vec<(String, String)> {
        if self.pod.spec.as_ref().and_then(|s| s.enable_service_links) == Some(false) {
            return Vec::new();
        }
        let (services, _, addresses) = self.shared.names.snapshot();
        hosts::links(&self.pod.namespace().unwrap_or_default(), &services, &addresses)
    }

    /// Rewrites the hosts file in place: containers bind-mount it and would not see a replacement.
    pub(super) fn write_hosts(&self) {
        let Some(address) = self.address else { return };
        let (services, endpoints, addresses) = self.shared.names.snapshot();
        let route = self.shared.route.name_address.to_string();
        let text = hosts::file(&self.pod, &address.to_string(), &route, &services, &endpoints, &addresses);
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
            tracing::warn!(%error, path = %path.display(), "could not write a hosts file");
        }
    }

    /// Whether the pod has been reported ready, or is about to be.
    fn is_ready(&self) -> bool {
        let address = self.address.map(|a| a.to_string());
        let situation = Situation { address: address.as_deref(), ..self.situation() };
        let status = lifecycle::status::status(&situation, &self.decide());
        status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
            && self.pod.metadata.deletion_timestamp.is_none()
    }

    /// Publishes this pod's endpoint for as long as it lives.
    pub(super) fn name(&self, step: &Step) {
        let lives = self.prepared && !step.outcome.is_final();
        let address = self.address.filter(|_| lives).map(|a| a.to_string());
        let endpoint = address.map(|address| hosts::Endpoint::of(&self.pod, address, self.is_ready()));
        self.shared.names.set_endpoint(&self.uid, endpoint);
    }
}
