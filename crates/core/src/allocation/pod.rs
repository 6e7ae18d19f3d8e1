//! An executor pod, as far as decisions depend on it.

use std::collections::BTreeMap;

use firesteel_api::names;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::size::Size;
use crate::pod::{Ended, PodPhase, SparkContainer, Words, disruption, own_words, phase, waiting};

/// What decisions read from an executor pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorPod {
    /// The executor's id, by its label; for a member of a set by its address, see [`super::sets::identify`].
    pub id: Option<u64>,
    /// The resource profile, by its label.
    pub profile: String,
    pub name: String,
    pub uid: String,
    pub node: Option<String>,
    pub address: Option<String>,
    pub created: Timestamp,
    pub state: State,
    /// When it must be gone, if it is being deleted.
    pub leaving_by: Option<Timestamp>,
    /// Why the platform ends it, in Kubernetes' words.
    pub disruption: Option<Words>,
    /// Created before the driver asked for it.
    pub early: bool,
    /// Ended, reported, and kept for inspection.
    pub inactive: bool,
    /// The claims of its volumes.
    pub claims: Vec<String>,
    pub size: Size,
    /// Only for pods of sets.
    pub member: Option<Member>,
}

/// A pod created by a set: its container restarts in place, as another executor each time.
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
    /// Executors that ran in it and whose ends are yet to be reported; see [`super::sets::identify`].
    pub former: Vec<u64>,
    /// Marked as the first to go when the set shrinks.
    pub cheap: bool,
}

/// An executor being created, until its pod is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    pub profile: String,
    pub size: Size,
    /// Created before the driver asked for it.
    pub early: bool,
    /// Its claims, new and taken over.
    pub claims: Vec<String>,
    pub stage: Stage,
}

/// The progress of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting to be sent.
    Queued,
    /// Sent to the API server.
    Asked,
    /// The pod was created, and the watch has yet to show it.
    Made,
    /// The same, from before a relist: if the list does not contain the pod, it is gone.
    MadeBeforeList,
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
    /// -1 if no container reports one.
    pub code: i32,
    pub reason: String,
    pub message: String,
    /// The pod's own reason, such as `Evicted`.
    pub pod: Option<Words>,
}

impl ExecutorPod {
    /// Reads a pod; `None` if it has no executor id and no set. `container` names Spark's container.
    pub fn read(pod: &Pod, container: &str) -> Option<Self> {
        let meta = &pod.metadata;
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let id = labels.get(names::LABEL_EXECUTOR_ID).and_then(|id| id.parse().ok());
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let spark = SparkContainer::named(Some(status), container);
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
            state: state(pod, status, spark, created, member.is_some()),
            leaving_by: meta.deletion_timestamp.as_ref().map(|t| t.0),
            disruption: disruption(status),
            early: meta.annotations.as_ref().is_some_and(|a| a.contains_key(names::ANNOTATION_EARLY)),
            inactive: labels.get(names::LABEL_EXECUTOR_INACTIVE).is_some_and(|v| v == "true"),
            claims: volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).map(|c| c.claim_name.clone()).collect(),
            size: Size::of_pod(pod.spec.as_ref(), container),
            member,
        })
    }

    /// A deleted pod as an ended one, if it tells why it ended. For a single pod that is a disruption: the pod may be gone
    /// before its end was processed.
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

    /// Ids of the executor in it and of the one it is labelled with.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.id.into_iter().chain(self.member.as_ref().and_then(|member| member.label))
    }

    /// Whether it counts towards demand: it works, or still may.
    pub fn is_live(&self) -> bool {
        self.leaving_by.is_none() && !matches!(self.state, State::Ended(_))
    }

    /// How old it is.
    pub fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.created)
    }
}

fn state(pod: &Pod, status: &PodStatus, spark: SparkContainer<'_>, created: Timestamp, restarts: bool) -> State {
    let (ended, phase) = (spark.ended(), phase(pod));
    let is_over = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
    let no_container = |code| End { code, reason: String::new(), message: String::new(), pod: own_words(status) };
    match (ended, phase) {
        (Some(ended), _) if !restarts || is_over => State::Ended(End { pod: own_words(status), ..End::from(ended) }),
        (_, PodPhase::Failed) => State::Ended(no_container(-1)),
        (_, PodPhase::Succeeded) => State::Ended(no_container(0)),
        (_, PodPhase::Running) if !restarts || spark.is_running() || spark.is_unknown() => {
            State::Running { since: spark.running_since().unwrap_or(created) }
        }
        (ended, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown) => {
            State::Pending { scheduled: is_scheduled(status) || ended.is_some(), waiting: waiting(status) }
        }
    }
}

impl From<Ended> for End {
    fn from(ended: Ended) -> Self {
        End { code: ended.exit_code, reason: ended.reason, message: ended.message, pod: None }
    }
}

fn member(pod: &Pod, label: Option<u64>, spark: SparkContainer<'_>) -> Option<Member> {
    let meta = &pod.metadata;
    let is_set = |kind: &str| matches!(kind, "ReplicaSet" | "StatefulSet");
    let mut owners = meta.owner_references.iter().flatten();
    let set = owners.find(|owner| owner.controller == Some(true) && is_set(&owner.kind))?;
    let annotation = |name: &str| meta.annotations.as_ref().and_then(|a| a.get(name));
    let (ended, before, restarts) = (spark.ended(), spark.ended_before(), spark.restarts());
    let is_over = matches!(phase(pod), PodPhase::Succeeded | PodPhase::Failed);
    let backing_off = spark.waiting() == Some("CrashLoopBackOff");
    // The restart count excludes the first container. One that ended, or backs off after its end, is not counted yet; one
    // that is being created may be, and at least one has ended before it.
    let ends = match (is_over || ended.is_some() || (backing_off && before.is_some()), spark.is_running()) {
        (true, _) => restarts.saturating_add(1),
        (false, true) => restarts,
        (false, false) => restarts.max(u32::from(before.is_some())),
    };
    Some(Member {
        set: set.uid.clone(),
        label,
        accounted: annotation(names::ANNOTATION_ACCOUNTED).and_then(|n| n.parse().ok()).unwrap_or_default(),
        ends,
        last: ended.or(before).map(End::from),
        former: Vec::new(),
        cheap: annotation(names::ANNOTATION_DELETION_COST).is_some_and(|cost| cost.starts_with('-')),
    })
}

fn is_scheduled(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "PodScheduled" && c.status == "True")
}
