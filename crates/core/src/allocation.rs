//! Executors of one application: how many to start, which to withdraw, which were lost and why.
//!
//! [`step`] looks at what was granted, what the driver asks for, the ledger, and the pods that are there, and decides. The
//! caller writes the ledger first, then deletes, then creates: whatever dies in between, ids are not used twice and no loss
//! goes unreported. What cannot be seen in the cluster (creations under way, who was registered a moment ago) is
//! [`Memory`]; losing it costs time, never correctness.
//!
//! - [`pod`] is what is seen of a pod, [`ending`] why it ended;
//! - `singles` decides about pods that the operator makes one by one, [`sets`] about those that a ReplicaSet or a
//!   StatefulSet makes;
//! - `clamp` keeps demand within what was granted, and [`size`] counts it;
//! - `failures` says what follows from failures, [`nodes`] remembers nodes on which executors fail;
//! - [`fair`] shares what may be started now, and what a namespace may have, between applications;
//! - [`admission`] says whether a grant can be accepted beside the drivers that are there, and [`heard`] what can be believed
//!   of what is asked for in a driver's name.

pub mod admission;
mod clamp;
pub mod ending;
mod failures;
pub mod fair;
pub mod heard;
pub mod nodes;
pub mod pod;
pub mod sets;
mod singles;
pub mod size;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use firesteel_api::executors::{
    Cause, ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, LedgerCounts, Loss, Strategy, Verdict,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::conditions::{self, Holds};
use crate::pod::Words;
use ending::{Ending, Kind};
pub use failures::{held, refused};
use pod::{ExecutorPod, State};
use sets::{ExecutorSet, Mark};
use size::{Amount, Size};
pub(crate) use size::{mebibytes, whole};

/// True while as many executors run as are wanted.
pub const CONDITION_SATISFIED: &str = "Satisfied";
/// False while the driver asks for more than it was granted.
pub const CONDITION_WITHIN_MAXIMUM: &str = "WithinMaximum";

/// Why executors wait that their namespace has no room for.
const NAMESPACE_LIMIT: &str = "NamespaceLimit";

/// How long a lost connection may stay without a reason.
const DISCONNECTED: SignedDuration = SignedDuration::from_secs(10);
/// How long an executor may go on after Spark removed it.
const HUNG: SignedDuration = SignedDuration::from_secs(30);
/// How long after its grace period a deleted pod may still be there.
const OVERDUE: SignedDuration = SignedDuration::from_secs(10);
/// How long an error that waiting on the same node hardly mends is waited for: its node has tried twice by then.
const START_ERROR: SignedDuration = SignedDuration::from_secs(15);
/// The same for one that trying again on that node cannot mend.
const CERTAIN_ERROR: SignedDuration = SignedDuration::from_secs(5);
/// More unseen losses than this are a driver that does not listen.
pub const MOST_LOSSES: u64 = 1000;
/// The largest id Spark takes.
const LARGEST_ID: u64 = 2_147_483_647;

/// Whether the driver of a grant is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Not seen yet, or not running yet.
    Starting,
    Running,
    /// Ended, deleted, or replaced by another pod.
    Ended,
}

/// Everything a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    pub grant: &'a ExecutorGrantSpec,
    pub demand: &'a ExecutorGrantStatus,
    pub ledger: &'a ExecutorLedgerStatus,
    pub driver: Driver,
    /// With sets: as [`sets::identify`] gives them.
    pub pods: &'a [ExecutorPod],
    pub sets: &'a [ExecutorSet],
    pub memory: &'a Memory,
    /// The most that the operator allows an application, whatever was granted.
    pub limit: Amount,
    pub now: Timestamp,
}

/// What the operator remembers between two passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Executors being created, with their profiles, until their pods are seen.
    pub in_flight: BTreeMap<u64, String>,
    /// What they take, where that is known; else what their profile takes now.
    pub sizes: BTreeMap<u64, Size>,
    /// Those of them that the cluster was not asked for yet.
    pub queued: BTreeSet<u64>,
    /// Executors that this operator made and that are still there, or on their way.
    made: BTreeSet<u64>,
    /// Registered executors that had a pod.
    registered: BTreeSet<u64>,
    unregistered_since: BTreeMap<u64, Timestamp>,
    disconnected_since: BTreeMap<u64, Timestamp>,
    /// Registered executors for which no pod was found yet.
    nowhere_since: BTreeMap<u64, Timestamp>,
}

impl Memory {
    /// Notes that an executor is about to be made.
    pub fn make(&mut self, id: u64) {
        self.made.insert(id);
    }

    /// Takes in what is seen now.
    pub fn observe(&mut self, demand: &ExecutorGrantStatus, pods: &[ExecutorPod], now: Timestamp) {
        let present: BTreeSet<u64> = pods.iter().filter_map(|p| p.id).collect();
        self.made.retain(|id| present.contains(id) || self.in_flight.contains_key(id));
        self.in_flight.retain(|id, _| !present.contains(id));
        self.queued.retain(|id| self.in_flight.contains_key(id));
        let registered: BTreeSet<u64> = demand.registered.keys().filter_map(|id| id.parse().ok()).collect();
        let disconnected: BTreeSet<u64> = demand.disconnected.iter().filter_map(|id| id.parse().ok()).collect();
        self.registered.retain(|id| present.contains(id) || registered.contains(id));
        self.registered.extend(registered.intersection(&present));
        self.unregistered_since.retain(|id, _| present.contains(id) && !registered.contains(id));
        for id in self.registered.difference(&registered) {
            self.unregistered_since.entry(*id).or_insert(now);
        }
        self.disconnected_since.retain(|id, _| disconnected.contains(id));
        for id in disconnected {
            self.disconnected_since.entry(id).or_insert(now);
        }
        self.nowhere_since.retain(|id, _| registered.contains(id) && !present.contains(id));
        for id in registered.difference(&present) {
            self.nowhere_since.entry(*id).or_insert(now);
        }
    }
}

/// What to do. The ledger comes first, then marks, sets, deletions and creations, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub ledger: ExecutorLedgerStatus,
    /// Members of sets to be labelled.
    pub marks: Vec<Mark>,
    /// How many members the set of each profile has to have, before [`sets::grow`]; none: there is to be no such set.
    pub sizes: BTreeMap<String, u32>,
    /// Creations that are not wanted any more, if the cluster was still not asked for them.
    pub cancel: Vec<u64>,
    /// Pods to delete.
    pub remove: Vec<Removal>,
    /// Ended pods to keep, marked as done with.
    pub retire: Vec<String>,
    /// How many executors of each profile are to be started; [`reserve`] gives them ids.
    pub missing: Vec<(String, u32)>,
    pub notes: Vec<Note>,
    /// When to look again even if nothing happens.
    pub wake: Option<Timestamp>,
    /// Nothing of this application is needed any more: claims can go too.
    pub over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub name: String,
    pub uid: String,
    /// Without a grace period: nothing in it could use one.
    pub at_once: bool,
}

/// Something people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Whether a grant can be served at all; a sentence if not.
pub fn refusal(grant: &ExecutorGrantSpec) -> Option<String> {
    let containers = grant.template.spec.iter().flat_map(|s| &s.containers);
    if !containers.clone().any(|c| c.name == grant.container) {
        return Some(format!("spec.template has no container named {}, which Spark is to run in", grant.container));
    }
    if grant.strategy == Strategy::StatefulSet && grant.dynamic {
        return Some(
            "a StatefulSet removes its pods by number, busy or not, so it cannot follow dynamic allocation; use \
             spark.kubernetes.allocation.pods.allocator=firesteel or firesteel-replicaset"
                .to_owned(),
        );
    }
    if grant.strategy == Strategy::ReplicaSet && !grant.claims.is_empty() {
        return Some(
            "the members of a ReplicaSet cannot have a PersistentVolumeClaim each; use \
             spark.kubernetes.allocation.pods.allocator=firesteel or firesteel-statefulset"
                .to_owned(),
        );
    }
    let shared = grant.template.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    sets::refusal(grant.strategy, shared).map(str::to_owned)
}

/// Decides. Pure.
pub fn step(sight: &Sight<'_>) -> Decision {
    let mut draft = Draft::new(sight);
    if sight.driver == Driver::Ended || sight.demand.stopped {
        return draft.end();
    }
    match sight.grant.strategy {
        Strategy::Pods => {
            draft.judge();
            draft.judge_missing();
        }
        Strategy::ReplicaSet | Strategy::StatefulSet => {
            draft.judge_members();
            draft.judge_nowhere();
        }
    }
    draft.follow_failures();
    draft.follow_nodes();
    let wanted = draft.clamp();
    match sight.grant.strategy {
        Strategy::Pods => draft.balance(&wanted),
        Strategy::ReplicaSet | Strategy::StatefulSet => {
            draft.replace_members();
            draft.size_sets(&wanted);
            draft.mark_members();
        }
    }
    draft.finish(&wanted)
}

/// Gives ids to as many of the missing executors as `slots` allows, and reserves them in the ledger.
pub fn reserve(ledger: &mut ExecutorLedgerStatus, missing: &[(String, u32)], slots: u32) -> Vec<(u64, String)> {
    let mut left = slots;
    let mut reserved = Vec::new();
    for (profile, count) in missing {
        for _ in 0..(*count).min(left) {
            if ledger.reserved_through >= LARGEST_ID {
                return reserved;
            }
            ledger.reserved_through += 1;
            left -= 1;
            reserved.push((ledger.reserved_through, profile.clone()));
        }
    }
    reserved
}

/// Cuts what is missing down to what each profile gets of its namespace, in the same order, and says so. `old` is the ledger
/// before this pass.
pub fn keep_within_namespace(
    decision: &mut Decision,
    given: &[u32],
    old: &ExecutorLedgerStatus,
    (namespace, limit): (&str, &Amount),
    now: Timestamp,
) {
    let asked: u32 = decision.missing.iter().map(|(_, count)| count).sum();
    for ((_, count), given) in decision.missing.iter_mut().zip(given) {
        *count = (*count).min(*given);
    }
    decision.missing.retain(|(_, count)| *count > 0);
    let left: u32 = decision.missing.iter().map(|(_, count)| count).sum();
    if left == asked {
        return;
    }
    let why = format!(
        "{} more executors wait: the operator allows all applications of namespace {namespace} together {limit}; see its flags \
         --max-executors-per-namespace, --max-executor-cores-per-namespace and --max-executor-memory-per-namespace",
        asked - left
    );
    if !old.conditions.iter().any(|c| c.type_ == CONDITION_SATISFIED && c.reason == NAMESPACE_LIMIT) {
        decision.notes.push(Note { warning: true, reason: NAMESPACE_LIMIT, text: why.clone() });
    }
    held(&mut decision.ledger, NAMESPACE_LIMIT, &why, now);
}

/// A decision in the making.
struct Draft<'a> {
    sight: &'a Sight<'a>,
    registered: HashSet<u64>,
    /// Executors whose end is in the ledger.
    reported: HashSet<u64>,
    /// Pods, by uid, that ended in this pass; they are not live any more, whatever their state says.
    ended: HashSet<String>,
    /// Failures of this pass that make the next start wait.
    fresh_failures: Vec<(Option<String>, Ending)>,
    /// Members of sets that are to go, so that their set makes others.
    given_up: Vec<&'a ExecutorPod>,
    decision: Decision,
}

impl<'a> Draft<'a> {
    fn new(sight: &'a Sight<'a>) -> Self {
        let mut ledger = sight.ledger.clone();
        let registered: HashSet<u64> = sight.demand.registered.keys().filter_map(|id| id.parse().ok()).collect();
        if sight.grant.strategy == Strategy::Pods {
            let used = sight.pods.iter().filter_map(|p| p.id).chain(sight.memory.in_flight.keys().copied());
            // A driver may claim any id; only those below the limit can be believed to have been used.
            ledger.reserved_through = used.fold(ledger.reserved_through, u64::max).min(LARGEST_ID);
        }
        Draft {
            sight,
            registered,
            reported: ledger.losses.iter().filter_map(|l| l.id.parse().ok()).collect(),
            ended: HashSet::new(),
            fresh_failures: Vec::new(),
            given_up: Vec::new(),
            decision: Decision {
                ledger,
                marks: Vec::new(),
                sizes: BTreeMap::new(),
                cancel: Vec::new(),
                remove: Vec::new(),
                retire: Vec::new(),
                missing: Vec::new(),
                notes: Vec::new(),
                wake: None,
                over: false,
            },
        }
    }

    /// The driver is gone or done: so are its executors. Those of sets go with their sets.
    fn end(mut self) -> Decision {
        self.decision.cancel.extend(&self.sight.memory.queued);
        let single = |p: &&ExecutorPod| p.member.is_none() && !p.inactive && p.leaving_by.is_none();
        for pod in self.sight.pods.iter().filter(single) {
            let keep = match &pod.state {
                State::Ended(end) => {
                    self.sight.grant.keep_failed
                        && ending::of_end(pod, end).cause == Cause::Application
                        && end.code != 0
                }
                State::Pending { .. } | State::Running { .. } => false,
            };
            if keep {
                self.decision.retire.push(pod.name.clone());
            } else {
                self.remove(pod, false);
            }
        }
        let ledger = &mut self.decision.ledger;
        ledger.losses.clear();
        ledger.counts = LedgerCounts { lost: ledger.counts.lost, ..LedgerCounts::default() };
        let (reason, message) = match self.sight.driver {
            Driver::Ended => ("DriverEnded", "the driver ended"),
            Driver::Starting | Driver::Running => ("Stopped", "the application stopped by itself"),
        };
        let holds = Holds { kind: CONDITION_SATISFIED, status: "False", reason, message };
        conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
        self.decision.over = true;
        self.decision
    }

    fn remove(&mut self, pod: &ExecutorPod, at_once: bool) {
        self.decision.remove.push(Removal { name: pod.name.clone(), uid: pod.uid.clone(), at_once });
    }

    fn wake(&mut self, at: Timestamp) {
        let wake = self.decision.wake.map_or(at, |known| known.min(at));
        self.decision.wake = Some(wake);
    }

    fn is_registered(&self, pod: &ExecutorPod) -> bool {
        pod.id.is_some_and(|id| self.registered.contains(&id))
    }

    /// Counts towards what is wanted, after what this pass found out.
    fn is_live(&self, pod: &ExecutorPod) -> bool {
        pod.is_live() && !self.ended.contains(&pod.uid)
    }

    /// Whether more executors can be started at all.
    fn is_ready(&self) -> bool {
        let ledger = &self.decision.ledger;
        self.sight.driver == Driver::Running && ledger.accepted && ledger.verdict.is_none()
    }

    /// Until when nothing is started, after failures in a row.
    fn held_until(&self) -> Option<Timestamp> {
        let not_before = self.decision.ledger.failures.not_before.as_ref().map(|t| t.0);
        not_before.filter(|at| *at > self.sight.now)
    }

    /// Why an executor that has not ended has to be given up, if so. Asks to be woken when that may change.
    fn ending(&mut self, pod: &ExecutorPod) -> Option<Ending> {
        let (now, grant, memory) = (self.sight.now, self.sight.grant, self.sight.memory);
        if let Some(by) = pod.leaving_by {
            let overdue = by + OVERDUE;
            if now >= overdue {
                return Some(ending::of_overdue(pod));
            }
            self.wake(overdue);
            return None;
        }
        match &pod.state {
            State::Ended(_) => None,
            State::Running { since } => {
                let known = |times: &BTreeMap<u64, Timestamp>| pod.id.and_then(|id| times.get(&id)).copied();
                let deadline = if let Some(since) = known(&memory.disconnected_since) {
                    (since + DISCONNECTED, ending::of_disconnected())
                } else if self.is_registered(pod) {
                    return None;
                } else if let Some(since) = known(&memory.unregistered_since) {
                    (since + HUNG, ending::of_hung())
                } else {
                    let limit = SignedDuration::from_secs(i64::from(grant.register_seconds));
                    (*since + limit, ending::of_unregistered(grant.register_seconds))
                };
                self.due(deadline)
            }
            // It started once; what ended it is known, and its node starts it again.
            State::Pending { .. } if pod.member.as_ref().is_some_and(|m| m.ends > 0) => None,
            State::Pending { waiting, .. } => {
                let error = waiting.as_ref().filter(|words| words.is_start_error());
                let limit = SignedDuration::from_secs(i64::from(grant.start_seconds));
                let patience = |words: &Words| if words.is_certain() { CERTAIN_ERROR } else { START_ERROR };
                let limit = error.map_or(limit, |words| limit.min(patience(words)));
                let seconds = u32::try_from(pod.age(now).as_secs()).unwrap_or_default();
                self.due((pod.created + limit, ending::of_waiting(waiting.as_ref(), seconds)))
            }
        }
    }

    /// An ending that is due at a time.
    fn due(&mut self, (at, ending): (Timestamp, Ending)) -> Option<Ending> {
        if self.sight.now >= at {
            return Some(ending);
        }
        self.wake(at);
        None
    }

    /// Writes a loss down. An executor without an id is one that Spark never heard of: it counts, and that is all.
    fn report(&mut self, id: Option<u64>, node: Option<String>, ending: &Ending) {
        let now = Time(self.sight.now);
        if ending.kind == Kind::Done && !id.is_some_and(|id| self.registered.contains(&id)) {
            // Spark let it go and knows.
            return;
        }
        let ledger = &mut self.decision.ledger;
        ledger.counts.lost += 1;
        if let Some(id) = id {
            self.reported.insert(id);
            ledger.loss_seq += 1;
            ledger.losses.push(Loss {
                seq: ledger.loss_seq,
                id: id.to_string(),
                code: ending.code,
                cause: ending.cause,
                text: ending.text.clone(),
                node: node.clone(),
                at: now,
            });
        }
        if ending.kind != Kind::Done {
            let who =
                id.map_or_else(|| "an executor that had not registered".to_owned(), |id| format!("executor {id}"));
            let text = format!("{who} was lost: {}", ending.text);
            self.decision.notes.push(Note { warning: true, reason: "ExecutorLost", text });
        }
        if matches!(ending.kind, Kind::Failed | Kind::NeverStarted) {
            self.fresh_failures.push((node, ending.clone()));
        }
    }

    /// Ends the application.
    fn sentence(&mut self, reason: &'static str, message: String) {
        let at = Time(self.sight.now);
        self.decision.notes.push(Note { warning: true, reason, text: message.clone() });
        self.decision.ledger.verdict = Some(Verdict { reason: reason.to_owned(), message, at });
    }

    /// Counts, conditions, and the losses that need no longer be told.
    fn finish(mut self, wanted: &BTreeMap<String, u32>) -> Decision {
        let now = self.sight.now;
        let live: Vec<&ExecutorPod> = self.sight.pods.iter().filter(|p| self.is_live(p)).collect();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let running = live.iter().filter(|p| matches!(p.state, State::Running { .. })).count();
        let counts = LedgerCounts {
            wanted: wanted.values().sum(),
            pending: number(live.len() - running),
            running: number(running),
            registered: number(live.iter().filter(|p| self.is_registered(p)).count()),
            lost: self.decision.ledger.counts.lost,
        };
        let (status, reason, message) = self.satisfaction(&counts, &live);
        let pods = self.sight.pods.iter();
        let present: HashSet<u64> = pods.filter(|p| !p.inactive).flat_map(ExecutorPod::ids).collect();
        let (seen, registered) = (self.sight.demand.loss_seen, &self.registered);
        let ledger = &mut self.decision.ledger;
        ledger.losses.retain(|loss| {
            let id = loss.id.parse().unwrap_or_default();
            loss.seq > seen || registered.contains(&id) || present.contains(&id)
        });
        let surplus = ledger.losses.len().saturating_sub(usize::try_from(MOST_LOSSES).unwrap_or(usize::MAX));
        ledger.losses.drain(..surplus);
        ledger.counts = counts;
        let there: HashSet<&str> = self.sight.pods.iter().map(|p| p.uid.as_str()).collect();
        ledger.failures.members.retain(|uid, _| there.contains(uid.as_str()));
        let holds = Holds { kind: CONDITION_SATISFIED, status, reason: &reason, message: &message };
        conditions::set(&mut ledger.conditions, &holds, 0, now);
        self.decision
    }

    /// Whether there are as many executors as wanted; if not, what they wait for.
    fn satisfaction(&self, counts: &LedgerCounts, live: &[&ExecutorPod]) -> (&'static str, String, String) {
        let ledger = &self.decision.ledger;
        if let Some(verdict) = &ledger.verdict {
            return ("False", verdict.reason.clone(), verdict.message.clone());
        }
        if counts.running >= counts.wanted {
            return ("True", "Enough".to_owned(), String::new());
        }
        let waiting = live.iter().find_map(|p| match &p.state {
            State::Pending { waiting, .. } => waiting.as_ref(),
            State::Running { .. } | State::Ended(_) => None,
        });
        let refused = self.sight.sets.iter().find_map(|set| Some(&set.trouble.as_ref()?.words));
        if let Some(words) = waiting {
            return ("False", words.reason.clone(), words.explain());
        }
        if let Some(words) = refused {
            return ("False", words.reason.clone(), words.message.clone());
        }
        match ledger.failures.not_before.as_ref().filter(|at| at.0 > self.sight.now) {
            Some(at) => {
                let row = ledger.failures.row;
                ("False", "BackingOff".to_owned(), format!("{row} failures in a row; the next start is at {}", at.0))
            }
            None => ("False", "Starting".to_owned(), String::new()),
        }
    }
}
