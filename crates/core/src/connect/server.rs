//! A server pod, as far as decisions depend on it.

use firesteel_api::names;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::diagnosis::{self, Cause};
use crate::pod::{DriverEnd, DriverPod, PodPhase};

use super::application::in_terms_of_servers;

/// What decisions read from a server pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPod {
    /// Whether it belongs to this SparkConnect.
    pub is_ours: bool,
    /// Its number, by its annotation.
    pub attempt: i64,
    /// The hash of the specification it was created from, by its annotation.
    pub spec_hash: Option<String>,
    pub submission_id: String,
    /// Its probes say that it accepts connections.
    pub is_ready: bool,
    pub ip: Option<String>,
    /// How it ended, if it did.
    pub end: Option<DriverEnd>,
    pub pod: DriverPod,
}

impl ServerPod {
    /// Reads a pod for the SparkConnect with this uid.
    pub fn read(pod: &Pod, uid: &str) -> Self {
        let meta = &pod.metadata;
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name)).cloned();
        let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name)).cloned();
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
        let end = DriverEnd::of(pod);
        ServerPod {
            is_ours: meta.owner_references.iter().flatten().any(|owner| owner.uid == uid),
            attempt: annotation(names::ANNOTATION_ATTEMPT).and_then(|number| number.parse().ok()).unwrap_or(1),
            spec_hash: annotation(names::ANNOTATION_SPEC),
            submission_id: label(names::LABEL_SUBMISSION_ID).unwrap_or_default(),
            is_ready: is_ready && end.is_none() && meta.deletion_timestamp.is_none(),
            ip: pod.status.as_ref().and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
            end,
            pod: DriverPod::read(pod, "", ""),
        }
    }

    /// When it ended, as far as its status tells.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.pod.ended.as_ref().and_then(|ended| ended.at)
    }

    /// Whether the platform took it away (an eviction, a preemption, a lost node): no fault of the server.
    pub(super) fn was_taken(&self) -> bool {
        self.pod.failure.as_ref().is_some_and(|words| words.is_taken() || words.is_node_refusal())
    }

    /// How it ended, as a sentence without a full stop; `None` while it runs.
    pub(super) fn last_words(&self, cause: Option<&Cause>) -> Option<String> {
        let words = match self.end.as_ref()? {
            DriverEnd::Succeeded => "the driver ended by itself with exit code 0".to_owned(),
            end => diagnosis::driver_end(end, cause),
        };
        Some(in_terms_of_servers(&words))
    }

    /// What a server that is not ready is doing: Kubernetes' reason, and a sentence without a full stop.
    pub(super) fn progress(&self) -> (String, String) {
        match (&self.pod.waiting, self.pod.phase) {
            (Some(words), _) => (words.reason.clone(), in_terms_of_servers(&words.explain())),
            (None, PodPhase::Running) => {
                (NOT_READY.to_owned(), "the server runs but does not accept connections".to_owned())
            }
            (None, PodPhase::Unknown) => {
                (NOT_READY.to_owned(), "the server's node does not report its state".to_owned())
            }
            (None, PodPhase::Pending | PodPhase::Succeeded | PodPhase::Failed) => {
                (NOT_READY.to_owned(), "the server pod is starting".to_owned())
            }
        }
    }
}

/// The existing operator's reason for a server that is not ready.
pub(super) const NOT_READY: &str = "ServerPodNotReady";
/// And for one that is.
pub(super) const READY: &str = "ServerPodReady";
