//! A driver pod, as far as decisions depend on it, and how a driver ended.

use firesteel_api::names;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;

use super::container::SparkContainer;
use super::exit::Ended;
use super::phase::{PodPhase, phase};
use super::reason::{Words, failure, waiting};

/// What decisions read from a driver pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPod {
    pub name: String,
    pub uid: String,
    /// The submission it belongs to, by its label.
    pub submission_id: Option<String>,
    /// The hash of the specification it was created from, by its annotation.
    pub spec_hash: Option<String>,
    /// The generation of the application it was created from, by its annotation.
    pub generation: Option<i64>,
    /// `spark.app.id`, by its label.
    pub app_id: Option<String>,
    pub owner: Owner,
    pub phase: PodPhase,
    /// It is being deleted.
    pub deleting: bool,
    /// When it should be gone, if it is being deleted.
    pub gone_by: Option<Timestamp>,
    /// Its deletion does not wait for its node.
    pub forced: bool,
    /// The node it runs on.
    pub node: Option<String>,
    /// Its status says that it is not ready.
    pub unready: bool,
    /// How Spark's container ended.
    pub ended: Option<Ended>,
    /// Why the pod failed as a whole, in Kubernetes' words.
    pub failure: Option<Words>,
    /// Why it does not run yet, in Kubernetes' words.
    pub waiting: Option<Words>,
    pub created: Option<Timestamp>,
    /// It has scheduling gates.
    pub gated: bool,
    /// Since when the scheduler finds no node for it.
    pub unschedulable: Option<Timestamp>,
    pub address: Option<String>,
}

/// The owner reference that Spark sets on the objects a driver needs.
pub fn driver_owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Whose pod it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The application's.
    Application,
    /// An application of the same name that no longer exists.
    Former,
    /// Someone else's.
    Other,
}

impl DriverPod {
    /// Reads a pod for the application `(app_name, app_uid)`.
    pub fn read(pod: &Pod, app_name: &str, app_uid: &str) -> Self {
        let meta = &pod.metadata;
        let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name)).cloned();
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name)).cloned();
        let status = pod.status.as_ref();
        let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        DriverPod {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            submission_id: label(names::LABEL_SUBMISSION_ID),
            spec_hash: annotation(names::ANNOTATION_SPEC),
            generation: annotation(names::ANNOTATION_GENERATION).and_then(|number| number.parse().ok()),
            app_id: label(names::LABEL_APP_SELECTOR),
            owner: owner(pod, app_name, app_uid),
            phase: phase(pod),
            deleting: meta.deletion_timestamp.is_some(),
            gone_by: meta.deletion_timestamp.as_ref().map(|t| t.0),
            forced: meta.deletion_timestamp.is_some() && meta.deletion_grace_period_seconds == Some(0),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
            unready: conditions.any(|c| c.type_ == "Ready" && c.status != "True"),
            ended: SparkContainer::of(pod).ended(),
            failure: status.and_then(failure),
            waiting: status.and_then(waiting),
            created: meta.creation_timestamp.as_ref().map(|t| t.0),
            gated: pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some()),
            unschedulable: unschedulable(pod),
            address: status.and_then(|status| status.pod_ip.clone()),
        }
    }

    /// Whether its node may be dead: only then is the node read.
    pub fn may_be_unreachable(&self) -> bool {
        let quiet = match self.phase {
            PodPhase::Pending => self.deleting,
            PodPhase::Running => self.deleting || (self.unready && self.outcome().is_none()),
            PodPhase::Unknown => true,
            // Such a pod is gone as soon as it is deleted.
            PodPhase::Succeeded | PodPhase::Failed => false,
        };
        quiet && self.node.is_some() && self.owner != Owner::Other
    }

    /// How the driver ended, if it did.
    pub fn outcome(&self) -> Option<Outcome> {
        Outcome::of(self.ended.as_ref(), self.phase)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

impl Outcome {
    /// Spark's container decides. A sidecar that keeps running does not hide its end, and one that fails does not change it.
    fn of(ended: Option<&Ended>, phase: PodPhase) -> Option<Self> {
        match (ended, phase) {
            (Some(ended), _) if ended.exit_code == 0 => Some(Outcome::Succeeded),
            (Some(_), _) => Some(Outcome::Failed),
            (None, PodPhase::Succeeded) => Some(Outcome::Succeeded),
            (None, PodPhase::Failed) => Some(Outcome::Failed),
            (None, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown) => None,
        }
    }
}

/// The end of a driver, as far as its pod tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverEnd {
    Succeeded,
    Failed {
        /// None if Spark's container never ran.
        ended: Option<Ended>,
        /// What happened to the pod as a whole.
        failure: Option<Words>,
    },
    /// Its pod was deleted before it ended.
    Deleted {
        phase: PodPhase,
        started: bool,
    },
}

impl DriverEnd {
    /// How the driver in a pod ended; `None` while it has not.
    pub fn of(pod: &Pod) -> Option<Self> {
        let ended = SparkContainer::of(pod).ended().filter(|ended| !starts_again(pod, ended));
        DriverEnd::read(pod, ended)
    }

    /// How the driver ended in a pod that was deleted, as it was last seen.
    pub fn of_deleted(pod: &Pod) -> Self {
        let (container, phase) = (SparkContainer::of(pod), phase(pod));
        DriverEnd::read(pod, container.ended()).unwrap_or_else(|| DriverEnd::Deleted {
            phase,
            started: container.has_started() || phase == PodPhase::Running,
        })
    }

    fn read(pod: &Pod, ended: Option<Ended>) -> Option<Self> {
        Some(match Outcome::of(ended.as_ref(), phase(pod))? {
            Outcome::Succeeded => DriverEnd::Succeeded,
            Outcome::Failed => DriverEnd::Failed { ended, failure: pod.status.as_ref().and_then(failure) },
        })
    }
}

/// Whether an ended container restarts. Never in Spark's own pods.
fn starts_again(pod: &Pod, ended: &Ended) -> bool {
    match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Always") => true,
        Some("OnFailure") => ended.exit_code != 0,
        Some(_) | None => false,
    }
}

/// Since when the scheduler finds no node for a pod.
fn unschedulable(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.find(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))?;
    found.last_transition_time.as_ref().or(pod.metadata.creation_timestamp.as_ref()).map(|at| at.0)
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

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "reads better where it is called")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(policy: &str, phase: &str, states: &[(&str, Value)]) -> Pod {
        let statuses: Vec<Value> = states
            .iter()
            .map(|(name, state)| {
                json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "d", "labels": {names::LABEL_ROLE: "driver"}},
            "spec": {"restartPolicy": policy, "containers": states.iter().map(|(name, _)| json!({"name": name})).collect::<Vec<_>>()},
            "status": {"phase": phase, "containerStatuses": statuses},
        }))
        .unwrap()
    }

    fn exit(code: i32) -> Value {
        json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }}})
    }

    #[test]
    fn a_driver_ends_when_its_container_does_whatever_its_sidecars_do() {
        let runs = || json!({"running": {}});
        let with = |phase: &str, sidecar: Value, driver: Value| {
            DriverEnd::of(&pod("Never", phase, &[("proxy", sidecar), (names::DRIVER_CONTAINER, driver)]))
        };
        assert_eq!(with("Running", runs(), runs()), None);
        assert_eq!(with("Running", runs(), exit(0)), Some(DriverEnd::Succeeded));
        assert_eq!(with("Failed", exit(1), exit(0)), Some(DriverEnd::Succeeded));
        for sidecar in [runs(), exit(0), exit(9)] {
            let Some(DriverEnd::Failed { ended: Some(ended), failure: None }) = with("Running", sidecar, exit(42))
            else {
                panic!()
            };
            assert_eq!(ended.exit_code, 42);
        }
    }

    #[test]
    fn a_container_that_is_started_again_has_not_ended() {
        let end = |policy: &str, code: i32| DriverEnd::of(&pod(policy, "Running", &[("main", exit(code))]));
        assert_eq!(end("Always", 0), None);
        assert_eq!(end("OnFailure", 1), None);
        assert_eq!(end("OnFailure", 0), Some(DriverEnd::Succeeded));
    }

    #[test]
    fn a_pod_that_was_deleted_tells_whether_its_driver_had_started() {
        let deleted = |phase: &str, states: &[(&str, Value)]| DriverEnd::of_deleted(&pod("Never", phase, states));
        let started = |phase, started| DriverEnd::Deleted { phase, started };
        assert_eq!(deleted("Running", &[]), started(PodPhase::Running, true));
        assert_eq!(deleted("Pending", &[]), started(PodPhase::Pending, false));
        assert_eq!(deleted("Running", &[(names::DRIVER_CONTAINER, exit(0))]), DriverEnd::Succeeded);
    }
}
