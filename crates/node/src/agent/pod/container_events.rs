//! Events about a pod's containers.

use jiff::Timestamp;
use kube::ResourceExt as _;

use super::PodWorker;
use crate::agent::events::Kind;
use crate::lifecycle;
use crate::shim_protocol::{ContainerState, Exit, ExitCause};

impl PodWorker {
    /// Records pending events: every start and every exit is reported once.
    pub(super) fn announce(&mut self) {
        let mut told = Vec::new();
        for (name, container) in &self.record.containers {
            let new = self.announced.get(name) != Some(&(container.attempt, true));
            match &container.state {
                ContainerState::Starting => continue,
                ContainerState::Running { .. } if new => self.record_started(name),
                ContainerState::Exited(exit) if new && exit.cause == ExitCause::NotStarted => {
                    let why = exit.message.clone().unwrap_or_default();
                    self.record_event(name, Kind::Normal, "Created", format!("Created container: {name}"));
                    self.record_event(name, Kind::Warning, "Failed", format!("Error: {why}"));
                }
                ContainerState::Exited(_) if new => self.record_started(name),
                ContainerState::Running { .. } | ContainerState::Exited(_) => {}
            }
            if let ContainerState::Exited(exit) = &container.state
                && self.backed_off.get(name) != Some(&exit.attempt)
                && self.waits_to_restart(exit)
            {
                told.push((name.clone(), exit.attempt));
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}_{}({})",
                    self.pod.name_any(),
                    self.pod.namespace().unwrap_or_default(),
                    self.uid
                );
                self.record_event(name, Kind::Warning, "BackOff", message);
            }
            self.announced.insert(name.clone(), (container.attempt, true));
        }
        self.backed_off.extend(told);
    }

    fn record_started(&self, name: &str) {
        self.record_event(name, Kind::Normal, "Created", format!("Created container: {name}"));
        self.record_event(name, Kind::Normal, "Started", format!("Started container {name}"));
    }

    fn waits_to_restart(&self, exit: &Exit) -> bool {
        lifecycle::restart_at(exit) > Timestamp::now()
            && self.pod.metadata.deletion_timestamp.is_none()
            && self.pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) != Some("Never")
    }
}
