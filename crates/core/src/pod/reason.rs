//! Kubernetes' reasons: why a pod waits, cannot start, was disrupted or failed. The only table that explains them.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

/// A reason and its explanation, both in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub reason: String,
    pub message: String,
}

/// The class of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// It waits for a node or a volume. That may pass.
    Waits,
    /// Its image cannot be pulled.
    Image,
    /// One of its containers cannot be created.
    Creation,
    /// Its container keeps crashing and restarting.
    Crashes,
    /// Its node rejected it. The scheduler may choose the same node again at once.
    Refused,
    /// The platform took it away.
    Taken,
    /// It ended by itself.
    Ended,
}

/// The table: the class of a reason, and an explanation in plain words.
fn known(reason: &str) -> Option<(Class, &'static str)> {
    Some(match reason {
        "Unschedulable" => (Class::Waits, "no node takes it"),
        "SchedulingGated" => (Class::Waits, "a scheduling gate holds it back"),
        "FailedMount" | "FailedAttachVolume" => (Class::Waits, "a volume cannot be mounted"),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable" => (Class::Image, "its image cannot be pulled"),
        "CreateContainerConfigError" => {
            (Class::Creation, "a ConfigMap, Secret or other setting it refers to is missing")
        }
        "CreateContainerError" | "RunContainerError" => (Class::Creation, ""),
        "CrashLoopBackOff" => (Class::Crashes, ""),
        "Evicted" => (Class::Taken, "the node evicted it"),
        "EvictionByEvictionAPI" => (Class::Taken, "it was evicted through the API, as by a drain"),
        "Preempting" | "Preempted" | "PreemptionByScheduler" => {
            (Class::Taken, "a pod of higher priority took its place")
        }
        "DeletionByTaintManager" => (Class::Taken, "its node got a taint that it does not tolerate"),
        "DeletionByPodGC" | "NodeLost" => (Class::Taken, "its node was lost"),
        "TerminationByKubelet" | "NodeShutdown" | "Shutdown" | "Terminated" => {
            (Class::Taken, "its node was shut down or out of resources")
        }
        "NodeAffinity"
        | "UnexpectedAdmissionError"
        | "TopologyAffinityError"
        | "SysctlForbidden"
        | "AppArmor"
        | "PodOSNotSupported" => (Class::Refused, "its node refused it"),
        other if other.starts_with("OutOf") => (Class::Refused, "its node refused it"),
        "DeadlineExceeded" => (Class::Ended, "it ran longer than its deadline"),
        INIT_CONTAINER_FAILED => (Class::Ended, "it never started"),
        _ => return None,
    })
}

/// Our own, for a pod without a reason from Kubernetes.
const INIT_CONTAINER_FAILED: &str = "InitContainerFailed";

impl Words {
    pub(super) fn class(&self) -> Option<Class> {
        known(&self.reason).map(|(class, _)| class)
    }

    /// The reason in plain words, followed by Kubernetes' own.
    pub fn explain(&self) -> String {
        let message = self.message.trim();
        let what = match self.reason.as_str() {
            "FailedMount" | "FailedAttachVolume" if message.contains("not found") => {
                "a ConfigMap, Secret or claim that it mounts is missing"
            }
            reason => known(reason).map_or("", |(_, what)| what),
        };
        match (what.is_empty(), message.is_empty()) {
            (true, true) => self.reason.clone(),
            (true, false) => format!("{}: {message}", self.reason),
            (false, true) => format!("{what} ({})", self.reason),
            (false, false) => format!("{what} ({}): {message}", self.reason),
        }
    }

    /// The reason itself, except that reasons which alternate for the same problem count as one.
    pub(crate) fn kind(&self) -> &str {
        reason_kind(&self.reason)
    }

    /// The platform took the pod away.
    pub(crate) fn is_taken(&self) -> bool {
        self.class() == Some(Class::Taken)
    }

    /// What took the pod away, as one word for metrics.
    pub(crate) fn taker(&self) -> Option<&'static str> {
        match self.reason.as_str() {
            "Evicted" | "EvictionByEvictionAPI" => Some("evicted"),
            "Preempting" | "Preempted" | "PreemptionByScheduler" => Some("preempted"),
            _ if self.is_taken() => Some("node"),
            _ => None,
        }
    }

    /// A node rejected the pod.
    pub(crate) fn is_node_refusal(&self) -> bool {
        self.class() == Some(Class::Refused)
    }

    /// Waiting does not help on the same node.
    pub(crate) fn is_start_error(&self) -> bool {
        matches!(self.class(), Some(Class::Image | Class::Creation | Class::Crashes))
    }

    /// The registry has no such image, the node has none and may not pull, or the name is invalid: a retry on this node is
    /// useless. Another node may have the image.
    pub(crate) fn is_certain(&self) -> bool {
        match self.reason.as_str() {
            "InvalidImageName" | "ErrImageNeverPull" => true,
            "ErrImagePull" | "ImagePullBackOff" => {
                // containerd, CRI-O and Docker, Docker Hub, our own agent.
                let phrases =
                    [": not found", "manifest unknown", "repository does not exist", "is not known on this machine"];
                phrases.iter().any(|phrase| self.message.contains(phrase))
            }
            _ => false,
        }
    }

    /// The pod's affinity excludes every node, and no node was refused for a reason that may pass. The scheduler's message is
    /// `0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. …`.
    pub(crate) fn keeps_away_from_all(&self) -> bool {
        let reasons = self.message.split_once(" nodes are available: ").and_then(|(_, rest)| rest.split(". ").next());
        let affinity =
            |reason: &str| reason.trim_end_matches('.').ends_with("node(s) didn't match Pod's node affinity/selector");
        self.reason == "Unschedulable" && reasons.is_some_and(|reasons| reasons.split(", ").all(affinity))
    }

    fn of_condition(condition: &PodCondition, otherwise: &str) -> Self {
        Words {
            reason: condition.reason.clone().unwrap_or_else(|| otherwise.to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        }
    }
}

/// See [`Words::kind`].
pub(crate) fn reason_kind(reason: &str) -> &str {
    match reason {
        "ErrImagePull" | "ImagePullBackOff" => "ErrImagePull",
        other => other,
    }
}

/// Why the platform ends a pod, in Kubernetes' words.
pub fn disruption(status: &PodStatus) -> Option<Words> {
    let condition = condition(status, "DisruptionTarget", "True")?;
    Some(Words::of_condition(condition, "DisruptionTarget"))
}

/// Why a pod failed as a whole: its own reason, that of its disruption, or a failed init container.
pub fn failure(status: &PodStatus) -> Option<Words> {
    own_words(status).or_else(|| disruption(status)).or_else(|| failed_init(status))
}

/// The reason and message in a pod's status.
pub(crate) fn own_words(status: &PodStatus) -> Option<Words> {
    let reason = status.reason.clone().filter(|reason| !reason.is_empty())?;
    Some(Words { reason, message: status.message.clone().unwrap_or_default() })
}

fn failed_init(status: &PodStatus) -> Option<Words> {
    let inits = status.init_container_statuses.iter().flatten();
    let mut ended = inits.filter_map(|c| Some((&c.name, c.state.as_ref()?.terminated.as_ref()?)));
    ended.find(|(_, state)| state.exit_code != 0).map(|(name, state)| Words {
        reason: INIT_CONTAINER_FAILED.to_owned(),
        message: format!(
            "init container {name} ended with exit code {} ({})",
            state.exit_code,
            state.reason.as_deref().unwrap_or("Error")
        ),
    })
}

/// Why a pod does not run: the scheduler's words first, then what its containers wait for.
pub fn waiting(status: &PodStatus) -> Option<Words> {
    unscheduled(status).or_else(|| {
        let mut waiting = waiting_containers(status).map(|(_, words)| words);
        waiting.find(|words| !matches!(words.reason.as_str(), "ContainerCreating" | "PodInitializing"))
    })
}

/// What the scheduler says about a pod that it has not placed.
pub(super) fn unscheduled(status: &PodStatus) -> Option<Words> {
    let condition = condition(status, "PodScheduled", "False")?;
    Some(Words::of_condition(condition, "Unschedulable"))
}

/// Waiting containers, init containers first.
pub(super) fn waiting_containers(status: &PodStatus) -> impl Iterator<Item = (&ContainerStatus, Words)> {
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    containers.filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let message = waiting.message.clone().unwrap_or_default();
        Some((container, Words { reason: waiting.reason.clone()?, message }))
    })
}

fn condition<'a>(status: &'a PodStatus, kind: &str, value: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(reason: &str, message: &str) -> Words {
        Words { reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn what_a_registry_does_not_have_is_told_from_a_registry_that_does_not_answer() {
        let pull = "rpc error: code = NotFound desc = failed to pull and unpack image \"r.example/spark:1\": failed to resolve \
                    image: r.example/spark:1: not found";
        assert!(Words::is_certain(&words("ErrImagePull", pull)));
        assert!(Words::is_certain(&words(
            "ImagePullBackOff",
            &format!("Back-off pulling image \"x\": ErrImagePull: {pull}")
        )));
        assert!(Words::is_certain(&words("ErrImagePull", "reading manifest 1 in r.example/spark: manifest unknown")));
        assert!(Words::is_certain(&words("InvalidImageName", "")));
        for message in ["dial tcp: lookup r.example: no such host", "503 Service Unavailable", "i/o timeout", ""] {
            assert!(!Words::is_certain(&words("ErrImagePull", message)), "{message}");
        }
        assert!(!Words::is_certain(&words("CreateContainerConfigError", "secret \"s\" not found: not found")));
    }

    #[test]
    fn a_pod_that_keeps_away_from_all_nodes_is_told_from_one_that_waits_for_room() {
        let away = "3 node(s) didn't match Pod's node affinity/selector";
        let end = "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful.";
        let said = |reasons: &str| words("Unschedulable", &format!("0/3 nodes are available: {reasons}. {end}"));
        assert!(Words::keeps_away_from_all(&said(away)));
        assert!(Words::keeps_away_from_all(&words("Unschedulable", &format!("0/3 nodes are available: {away}."))));
        assert!(!Words::keeps_away_from_all(&said(&format!("1 Insufficient cpu, {away}"))));
        assert!(!Words::keeps_away_from_all(&said(&format!("{away}, 1 node(s) had untolerated taint(s)"))));
        assert!(!Words::keeps_away_from_all(&words("Unschedulable", "no nodes available to schedule pods")));
    }
}
