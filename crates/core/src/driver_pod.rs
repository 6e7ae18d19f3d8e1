//! What the life cycle sees of a driver pod.

use firesteel_api::names;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;

/// A driver pod, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPod {
    pub name: String,
    pub uid: String,
    /// The submission it belongs to, by its label.
    pub submission_id: Option<String>,
    /// The specification it was made from, by its annotation.
    pub spec_hash: Option<String>,
    /// The generation of the application it was made from, by its annotation.
    pub generation: Option<i64>,
    /// `spark.app.id`, by its label.
    pub app_id: Option<String>,
    pub owner: Owner,
    pub phase: PodPhase,
    /// Someone asked for its deletion.
    pub deleting: bool,
    /// When it should be gone, if someone asked for its deletion.
    pub gone_by: Option<Timestamp>,
    /// Its deletion does not wait for its node.
    pub forced: bool,
    /// The node it runs on.
    pub node: Option<String>,
    /// Its status says that it is not ready.
    pub unready: bool,
    /// The end of the container Spark runs in.
    pub ended: Option<Ended>,
    /// Why the pod failed as a whole, in Kubernetes' words.
    pub failure: Option<Words>,
    /// Why it does not run yet, in Kubernetes' words.
    pub waiting: Option<Words>,
    pub created: Option<Timestamp>,
}

/// Whose pod it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The application's.
    Application,
    /// An application of the same name that exists no more.
    Former,
    /// Someone else's.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
}

/// A reason and its explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub reason: String,
    pub message: String,
}

impl DriverPod {
    /// Reads a pod for the application `(app_name, app_uid)`.
    pub fn read(pod: &Pod, app_name: &str, app_uid: &str) -> Self {
        let meta = &pod.metadata;
        let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name)).cloned();
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name)).cloned();
        let status = pod.status.clone().unwrap_or_default();
        let main = main_container(pod);
        let container = status.container_statuses.iter().flatten().find(|c| c.name == main);
        DriverPod {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            submission_id: label(names::LABEL_SUBMISSION_ID),
            spec_hash: annotation(names::ANNOTATION_SPEC),
            generation: annotation(names::ANNOTATION_GENERATION).and_then(|number| number.parse().ok()),
            app_id: label(names::LABEL_APP_SELECTOR),
            owner: owner(pod, app_name, app_uid),
            phase: phase(status.phase.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            gone_by: meta.deletion_timestamp.as_ref().map(|t| t.0),
            forced: meta.deletion_timestamp.is_some() && meta.deletion_grace_period_seconds == Some(0),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            unready: status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status != "True"),
            ended: container.and_then(|c| c.state.as_ref()?.terminated.as_ref()).map(Ended::from),
            failure: failure(&status),
            waiting: waiting(&status),
            created: meta.creation_timestamp.as_ref().map(|t| t.0),
        }
    }

    /// Whether its node may be dead: only then is the node worth a look.
    pub fn may_be_unreachable(&self) -> bool {
        let quiet = match self.phase {
            PodPhase::Pending => self.deleting,
            PodPhase::Running => self.deleting || (self.unready && self.outcome().is_none()),
            PodPhase::Unknown => true,
            // Such a pod goes at once when it is deleted.
            PodPhase::Succeeded | PodPhase::Failed => false,
        };
        quiet && self.node.is_some() && self.owner != Owner::Other
    }

    /// How the driver ended, if it did. A sidecar that lives on does not hide it.
    pub fn outcome(&self) -> Option<Outcome> {
        match (&self.ended, self.phase) {
            (Some(ended), _) if ended.exit_code == 0 => Some(Outcome::Succeeded),
            (Some(_), _) => Some(Outcome::Failed),
            (None, PodPhase::Succeeded) => Some(Outcome::Succeeded),
            (None, PodPhase::Failed) => Some(Outcome::Failed),
            (None, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// The name of the container Spark runs in.
pub fn main_container(pod: &Pod) -> &str {
    pod.metadata
        .annotations
        .as_ref()
        .and_then(|a| a.get(names::ANNOTATION_DEFAULT_CONTAINER))
        .map_or(names::DRIVER_CONTAINER, String::as_str)
}

/// The phase of a pod, by its word.
pub fn phase(word: Option<&str>) -> PodPhase {
    match word {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Pending") | None => PodPhase::Pending,
        Some(_) => PodPhase::Unknown,
    }
}

fn owner(pod: &Pod, app_name: &str, app_uid: &str) -> Owner {
    let mut owner = Owner::Other;
    for reference in pod.metadata.owner_references.iter().flatten() {
        let ours = reference.kind == names::KIND
            && reference.api_version.starts_with(&format!("{}/", names::GROUP))
            && reference.name == app_name;
        if ours && reference.uid == app_uid {
            return Owner::Application;
        }
        if ours {
            owner = Owner::Former;
        }
    }
    owner
}

impl From<&ContainerStateTerminated> for Ended {
    fn from(state: &ContainerStateTerminated) -> Self {
        Ended {
            exit_code: state.exit_code,
            signal: state.signal,
            reason: state.reason.clone().unwrap_or_default(),
            message: state.message.clone().unwrap_or_default(),
            at: state.finished_at.as_ref().map(|t| t.0),
        }
    }
}

/// Why a pod failed as a whole: its own words, those of who disrupted it, or an init container that failed.
pub fn failure(status: &PodStatus) -> Option<Words> {
    if let Some(reason) = &status.reason {
        return Some(Words { reason: reason.clone(), message: status.message.clone().unwrap_or_default() });
    }
    let disrupted = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
    if let Some(condition) = disrupted {
        return Some(Words {
            reason: condition.reason.clone().unwrap_or_else(|| "DisruptionTarget".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        });
    }
    let inits = status.init_container_statuses.iter().flatten();
    let mut ended = inits.filter_map(|c| Some((&c.name, c.state.as_ref()?.terminated.as_ref()?)));
    ended.find(|(_, state)| state.exit_code != 0).map(|(name, state)| Words {
        reason: "InitContainerFailed".to_owned(),
        message: format!(
            "init container {name} ended with exit code {} ({})",
            state.exit_code,
            state.reason.as_deref().unwrap_or("Error")
        ),
    })
}

/// Why a pod does not run: the scheduler's words first, then what its containers wait for.
pub(crate) fn waiting(status: &PodStatus) -> Option<Words> {
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled {
        return Some(Words {
            reason: condition.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        });
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    containers
        .filter_map(|c| c.state.as_ref()?.waiting.as_ref())
        .filter_map(|w| Some(Words { reason: w.reason.clone()?, message: w.message.clone().unwrap_or_default() }))
        .find(|w| !matches!(w.reason.as_str(), "ContainerCreating" | "PodInitializing"))
}
