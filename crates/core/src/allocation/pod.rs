//! What decisions see of an executor pod.

use std::collections::BTreeMap;

use firesteel_api::names;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::size::Size;
use crate::driver_pod::{Words, waiting};

/// An executor pod, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorPod {
    /// The executor's id, by its label; that of a member of a set by its address, see [`super::sets::identify`].
    pub id: Option<u64>,
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
    /// What it takes.
    pub size: Size,
    /// What only pods of sets have.
    pub member: Option<Member>,
}

/// A pod that a set made: its container is started again in place, and is another executor each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The uid of the set.
    pub set: String,
    /// The executor it is labelled with.
    pub label: Option<u64>,
    /// How many containers had ended in it when it was labelled, by its annotation: their ends are accounted for.
    pub accounted: u32,
    /// How many containers have ended in it.
    pub ends: u32,
    /// How the last of them ended.
    pub last: Option<End>,
    /// Executors that were in it and have ended, whose ends are to be told; see [`super::sets::identify`].
    pub former: Vec<u64>,
    /// Marked as the first to go when the set shrinks.
    pub cheap: bool,
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
    /// Reads a pod; `None` if it has no executor id and no set. `container` is the one that Spark runs in.
    pub fn read(pod: &Pod, container: &str) -> Option<Self> {
        let meta = &pod.metadata;
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let id = labels.get(names::LABEL_EXECUTOR_ID).and_then(|id| id.parse().ok());
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let disruption = conditions.iter().find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let spark = spark(status, container);
        let member = member(pod, id, spark);
        if id.is_none() && member.is_none() {
            return None;
        }
        Some(ExecutorPod {
            id,
            profile: labels.get(names::LABEL_EXECUTOR_PROFILE).cloned().unwrap_or_else(|| "0".to_owned()),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|s| s.node_name.clone()),
            address: status.pod_ip.clone(),
            created,
            state: state(status, spark, created, member.is_some()),
            leaving_by: meta.deletion_timestamp.as_ref().map(|t| t.0),
            disruption: disruption.map(|c| Words {
                reason: c.reason.clone().unwrap_or_default(),
                message: c.message.clone().unwrap_or_default(),
            }),
            inactive: labels.get(names::LABEL_EXECUTOR_INACTIVE).is_some_and(|v| v == "true"),
            claims: volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.clone()).collect(),
            size: Size::of_pod(pod.spec.as_ref(), container),
            member,
        })
    }

    /// What is left of a pod that is gone: an ended one, if it tells why it ended. Of a single pod that is why the platform
    /// took it: it may be gone before its end was looked at.
    pub fn departed(mut self) -> Option<Self> {
        let ended = self.member.as_ref().is_some_and(|member| member.ends > member.accounted);
        let tells = match self.member {
            Some(_) => ended || self.disruption.is_some() || matches!(self.state, State::Ended(_)),
            None => self.disruption.is_some() && !self.inactive,
        };
        if !tells {
            return None;
        }
        if !matches!(self.state, State::Ended(_)) {
            let unknown = || End { code: -1, reason: String::new(), message: String::new(), pod: None };
            let last = self.member.as_ref().and_then(|member| member.last.clone());
            self.state = State::Ended(last.filter(|_| ended).unwrap_or_else(unknown));
        }
        if let Some(member) = &mut self.member {
            member.ends = member.ends.max(member.accounted.saturating_add(1));
        }
        Some(self)
    }

    /// Every executor it is, or is labelled with.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.id.into_iter().chain(self.member.as_ref().and_then(|member| member.label))
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

/// The status of the container that Spark runs in.
fn spark<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    statuses.iter().find(|c| c.name == container).or(match statuses {
        [only] => Some(only),
        _ => None,
    })
}

fn state(status: &PodStatus, spark: Option<&ContainerStatus>, created: Timestamp, restarts: bool) -> State {
    let pod = status
        .reason
        .clone()
        .filter(|r| !r.is_empty())
        .map(|reason| Words { reason, message: status.message.clone().unwrap_or_default() });
    let terminated = spark.and_then(|c| c.state.as_ref()?.terminated.as_ref());
    let phase = status.phase.as_deref();
    if let Some(terminated) = terminated
        && (!restarts || matches!(phase, Some("Failed" | "Succeeded")))
    {
        return State::Ended(End { pod, ..end(terminated) });
    }
    let running = spark.is_none_or(|c| c.state.as_ref().is_none_or(|s| s.running.is_some()));
    match phase {
        Some("Failed") => State::Ended(End { code: -1, reason: String::new(), message: String::new(), pod }),
        Some("Succeeded") => State::Ended(End { code: 0, reason: String::new(), message: String::new(), pod }),
        Some("Running") if !restarts || running => State::Running { since: started(spark).unwrap_or(created) },
        _ => State::Pending { scheduled: is_scheduled(status) || terminated.is_some(), waiting: waiting(status) },
    }
}

fn end(terminated: &ContainerStateTerminated) -> End {
    End {
        code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone().unwrap_or_default(),
        pod: None,
    }
}

fn member(pod: &Pod, label: Option<u64>, spark: Option<&ContainerStatus>) -> Option<Member> {
    let meta = &pod.metadata;
    let is_set = |kind: &str| matches!(kind, "ReplicaSet" | "StatefulSet");
    let mut owners = meta.owner_references.iter().flatten();
    let set = owners.find(|owner| owner.controller == Some(true) && is_set(&owner.kind))?;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name));
    let terminated = spark.and_then(|c| c.state.as_ref()?.terminated.as_ref());
    let running = spark.is_some_and(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()));
    let before = spark.and_then(|c| c.last_state.as_ref()?.terminated.as_ref());
    let over = pod.status.as_ref().is_some_and(|s| matches!(s.phase.as_deref(), Some("Failed" | "Succeeded")));
    let restarts = spark.map_or(0, |c| u32::try_from(c.restart_count).unwrap_or_default());
    let backing_off =
        spark.and_then(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref()) == Some("CrashLoopBackOff");
    // The count is that of containers made after the first. One that ended, or waits after an end, is not in it yet; one
    // that is being made may be, and at least one has ended before it.
    let ends = match (over || terminated.is_some() || (backing_off && before.is_some()), running) {
        (true, _) => restarts.saturating_add(1),
        (false, true) => restarts,
        (false, false) => restarts.max(u32::from(before.is_some())),
    };
    Some(Member {
        set: set.uid.clone(),
        label,
        accounted: annotation(names::ANNOTATION_ACCOUNTED).and_then(|n| n.parse().ok()).unwrap_or_default(),
        ends,
        last: terminated.or(before).map(end),
        former: Vec::new(),
        cheap: annotation(names::ANNOTATION_DELETION_COST).is_some_and(|cost| cost.starts_with('-')),
    })
}

fn started(container: Option<&ContainerStatus>) -> Option<Timestamp> {
    Some(container?.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn is_scheduled(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "PodScheduled" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ends(restarts: u32, state: &Value, last: &Value) -> u32 {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "s", "controller": true});
        let pod = json!({
            "metadata": {"name": "p", "ownerReferences": [owner]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "spark", "image": "", "imageID": "", "ready": true,
                "restartCount": restarts, "state": state, "lastState": last}]},
        });
        ExecutorPod::read(&serde_json::from_value(pod).unwrap(), "spark").unwrap().member.unwrap().ends
    }

    #[test]
    fn ends_of_containers_are_counted_alike_in_every_state_that_nodes_write() {
        let (running, ended) = (json!({"running": {}}), json!({"terminated": {"exitCode": 1}}));
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        assert_eq!(ends(0, &waiting("ContainerCreating"), &none), 0);
        assert_eq!(ends(0, &running, &none), 0);
        assert_eq!(ends(0, &ended, &none), 1);
        // Being made again: some nodes count it already, some do not.
        assert_eq!(ends(0, &waiting("ContainerCreating"), &ended), 1);
        assert_eq!(ends(1, &waiting("ContainerCreating"), &ended), 1);
        assert_eq!(ends(1, &running, &ended), 1);
        assert_eq!(ends(1, &ended, &ended), 2);
        assert_eq!(ends(1, &waiting("CrashLoopBackOff"), &ended), 2);
        assert_eq!(ends(2, &running, &ended), 2);
    }
}
