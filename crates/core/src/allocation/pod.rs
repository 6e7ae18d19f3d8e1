//! What decisions see of an executor pod.

use std::collections::BTreeMap;

use firesteel_api::names;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::driver_pod::{Words, waiting};

/// An executor pod, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorPod {
    /// The executor's id, by its label.
    pub id: u64,
    /// The resource profile, by its label.
    pub profile: String,
    pub name: String,
    pub uid: String,
    pub node: Option<String>,
    pub address: Option<String>,
    pub created: Timestamp,
    pub state: State,
    /// When it must be gone, if its deletion was asked for.
    pub leaving_by: Option<Timestamp>,
    /// Why the platform ends it, in the platform's words.
    pub disruption: Option<Words>,
    /// Ended, reported, and kept for inspection.
    pub inactive: bool,
    /// Claims its volumes refer to.
    pub claims: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No container runs yet; `waiting` says what it waits for, if that is known.
    Pending {
        scheduled: bool,
        waiting: Option<Words>,
    },
    Running {
        since: Timestamp,
    },
    Ended(End),
}

/// How Spark's container, or the pod as a whole, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// -1 if no container tells.
    pub code: i32,
    pub reason: String,
    pub message: String,
    /// The pod's own reason, such as `Evicted`.
    pub pod: Option<Words>,
}

impl ExecutorPod {
    /// Reads a pod; `None` if it has no executor id. `container` is the one that Spark runs in.
    pub fn read(pod: &Pod, container: &str) -> Option<Self> {
        let meta = &pod.metadata;
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let id = labels.get(names::LABEL_EXECUTOR_ID)?.parse().ok()?;
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let disruption = conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        Some(ExecutorPod {
            id,
            profile: labels.get(names::LABEL_EXECUTOR_PROFILE).cloned().unwrap_or_else(|| "0".to_owned()),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|s| s.node_name.clone()),
            address: status.pod_ip.clone(),
            created,
            state: state(status, container, created),
            leaving_by: meta.deletion_timestamp.as_ref().map(|t| t.0),
            disruption: disruption.map(|c| Words {
                reason: c.reason.clone().unwrap_or_default(),
                message: c.message.clone().unwrap_or_default(),
            }),
            inactive: labels.get(names::LABEL_EXECUTOR_INACTIVE).is_some_and(|v| v == "true"),
            claims: volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.clone()).collect(),
        })
    }

    /// Counts towards what is wanted: it works, or may come to.
    pub fn is_live(&self) -> bool {
        self.leaving_by.is_none() && !matches!(self.state, State::Ended(_))
    }

    /// How old it is.
    pub fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.created)
    }
}

fn state(status: &PodStatus, container: &str, created: Timestamp) -> State {
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    let spark = statuses.iter().find(|c| c.name == container).or(match statuses {
        [only] => Some(only),
        _ => None,
    });
    let pod = status
        .reason
        .clone()
        .filter(|r| !r.is_empty())
        .map(|reason| Words { reason, message: status.message.clone().unwrap_or_default() });
    let terminated = spark.and_then(|c| c.state.as_ref()?.terminated.as_ref());
    if let Some(end) = terminated {
        return State::Ended(End {
            code: end.exit_code,
            reason: end.reason.clone().unwrap_or_default(),
            message: end.message.clone().unwrap_or_default(),
            pod,
        });
    }
    match status.phase.as_deref() {
        Some("Failed") => State::Ended(End { code: -1, reason: String::new(), message: String::new(), pod }),
        Some("Succeeded") => State::Ended(End { code: 0, reason: String::new(), message: String::new(), pod }),
        Some("Running") => State::Running { since: started(spark).unwrap_or(created) },
        _ => State::Pending { scheduled: is_scheduled(status), waiting: waiting(status) },
    }
}

fn started(container: Option<&ContainerStatus>) -> Option<Timestamp> {
    Some(container?.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn is_scheduled(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "PodScheduled" && c.status == "True")
}
