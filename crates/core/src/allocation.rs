//! Executors of one application: how many to start, which to withdraw, which were lost and why.
//!
//! [`step`] looks at what was granted, what the driver asks for, the ledger, and the pods that are there, and decides. The
//! caller writes the ledger first, then deletes, then creates: whatever dies in between, ids are not used twice and no loss
//! goes unreported. What cannot be seen in the cluster (creations under way, who was registered a moment ago) is
//! [`Memory`]; losing it costs time, never correctness.
//!
//! - [`pod`] is what is seen of a pod, [`ending`] why it ended;
//! - [`nodes`] remembers nodes on which executors fail;
//! - [`fair`] shares what may be started now between applications.

pub mod ending;
pub mod fair;
pub mod nodes;
pub mod pod;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use firesteel_api::executors::{
    Cause, ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, LedgerCounts, Loss, Strategy, Verdict,
};
use firesteel_spark::value::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::conditions::{self, Holds};
use ending::{Ending, Kind};
use pod::{ExecutorPod, State};

/// True while as many executors run as are wanted.
pub const CONDITION_SATISFIED: &str = "Satisfied";
/// False while the driver asks for more than it was granted.
pub const CONDITION_WITHIN_MAXIMUM: &str = "WithinMaximum";

/// How long a lost connection may stay without a reason.
const DISCONNECTED: SignedDuration = SignedDuration::from_secs(10);
/// How long an executor may go on after Spark removed it.
const HUNG: SignedDuration = SignedDuration::from_secs(30);
/// How long after its grace period a deleted pod may still be there.
const OVERDUE: SignedDuration = SignedDuration::from_secs(10);
/// How long an error that waiting does not mend is waited for.
const START_ERROR: SignedDuration = SignedDuration::from_secs(15);
/// The longest wait between failures in a row.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// After so many failures in a row, with no executor left, none will start.
const HOPELESS_ROW: u32 = 6;
/// More unseen losses than this are a driver that does not listen.
const MOST_LOSSES: usize = 1000;
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
    pub pods: &'a [ExecutorPod],
    pub memory: &'a Memory,
    pub now: Timestamp,
}

/// What the operator remembers between two passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Executors being created, with their profiles, until their pods are seen.
    pub in_flight: BTreeMap<u64, String>,
    registered: BTreeSet<u64>,
    unregistered_since: BTreeMap<u64, Timestamp>,
    disconnected_since: BTreeMap<u64, Timestamp>,
}

impl Memory {
    /// Takes in what is seen now.
    pub fn observe(&mut self, demand: &ExecutorGrantStatus, pods: &[ExecutorPod], now: Timestamp) {
        let present: BTreeSet<u64> = pods.iter().map(|p| p.id).collect();
        self.in_flight.retain(|id, _| !present.contains(id));
        let registered: BTreeSet<u64> = demand.registered.keys().filter_map(|id| id.parse().ok()).collect();
        let disconnected: BTreeSet<u64> = demand.disconnected.iter().filter_map(|id| id.parse().ok()).collect();
        self.registered.retain(|id| present.contains(id));
        self.registered.extend(registered.intersection(&present));
        self.unregistered_since.retain(|id, _| present.contains(id) && !registered.contains(id));
        for id in self.registered.difference(&registered) {
            self.unregistered_since.entry(*id).or_insert(now);
        }
        self.disconnected_since.retain(|id, _| disconnected.contains(id));
        for id in disconnected {
            self.disconnected_since.entry(id).or_insert(now);
        }
    }
}

/// What to do. The ledger comes first, then deletions, then creations.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub ledger: ExecutorLedgerStatus,
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
    if let Some(refusal) = unsupported(grant.strategy) {
        return Some(refusal);
    }
    if grant.strategy == Strategy::StatefulSet && grant.dynamic {
        return Some(
            "a StatefulSet removes its pods by number, busy or not, so it cannot follow dynamic allocation; use \
             spark.kubernetes.allocation.pods.allocator=firesteel or firesteel-replicaset"
                .to_owned(),
        );
    }
    None
}

/// What cannot be had yet.
pub fn unsupported(strategy: Strategy) -> Option<String> {
    match strategy {
        Strategy::Pods => None,
        Strategy::ReplicaSet | Strategy::StatefulSet => Some(format!(
            "this release makes executors as single pods only, not as a {}; use \
             spark.kubernetes.allocation.pods.allocator=firesteel",
            strategy.word()
        )),
    }
}

/// Decides. Pure.
pub fn step(sight: &Sight<'_>) -> Decision {
    let mut draft = Draft::new(sight);
    if sight.driver == Driver::Ended || sight.demand.stopped {
        return draft.end();
    }
    draft.judge();
    draft.judge_missing();
    draft.follow_failures();
    draft.follow_nodes();
    let wanted = draft.clamp();
    draft.balance(&wanted);
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

/// Writes down that the cluster refused an executor, for a reason that waiting alone does not mend.
pub fn refused(ledger: &mut ExecutorLedgerStatus, why: &str, any_live: bool, now: Timestamp) {
    let failures = &mut ledger.failures;
    failures.row = failures.row.saturating_add(1);
    failures.last = Some(Time(now));
    failures.not_before = delay(failures.row.saturating_add(1)).map(|wait| Time(now + wait));
    let message = format!("the cluster refuses executors: {why}");
    if failures.row >= HOPELESS_ROW && !any_live && ledger.verdict.is_none() {
        let reason = "ExecutorsRefused".to_owned();
        ledger.verdict = Some(Verdict { reason, message: message.clone(), at: Time(now) });
    }
    let holds = Holds { kind: CONDITION_SATISFIED, status: "False", reason: "Refused", message: &message };
    conditions::set(&mut ledger.conditions, &holds, 0, now);
}

/// Writes down what creations wait for, other than time.
pub fn held(ledger: &mut ExecutorLedgerStatus, reason: &str, why: &str, now: Timestamp) {
    let holds = Holds { kind: CONDITION_SATISFIED, status: "False", reason, message: why };
    conditions::set(&mut ledger.conditions, &holds, 0, now);
}

/// A decision in the making.
struct Draft<'a> {
    sight: &'a Sight<'a>,
    registered: HashSet<u64>,
    reported: HashSet<u64>,
    /// Pods that ended in this pass; they are not live any more, whatever their state says.
    ended: HashSet<u64>,
    /// Failures of this pass that make the next start wait.
    fresh_failures: Vec<(Option<String>, Ending)>,
    decision: Decision,
}

impl<'a> Draft<'a> {
    fn new(sight: &'a Sight<'a>) -> Self {
        let mut ledger = sight.ledger.clone();
        let registered: HashSet<u64> = sight.demand.registered.keys().filter_map(|id| id.parse().ok()).collect();
        let used = sight.pods.iter().map(|p| p.id).chain(sight.memory.in_flight.keys().copied());
        // A driver may claim any id; only those below the limit can be believed to have been used.
        ledger.reserved_through = used.fold(ledger.reserved_through, u64::max).min(LARGEST_ID);
        Draft {
            sight,
            registered,
            reported: ledger.losses.iter().filter_map(|l| l.id.parse().ok()).collect(),
            ended: HashSet::new(),
            fresh_failures: Vec::new(),
            decision: Decision {
                ledger,
                remove: Vec::new(),
                retire: Vec::new(),
                missing: Vec::new(),
                notes: Vec::new(),
                wake: None,
                over: false,
            },
        }
    }

    /// The driver is gone or done: so are its executors.
    fn end(mut self) -> Decision {
        for pod in self.sight.pods.iter().filter(|p| !p.inactive && p.leaving_by.is_none()) {
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

    /// Looks at each pod: has it ended, or will it never work?
    fn judge(&mut self) {
        let pods = self.sight.pods;
        for pod in pods.iter().filter(|p| !p.inactive) {
            if self.reported.contains(&pod.id) {
                // Reported in an earlier pass that did not come to removing it.
                self.ended.insert(pod.id);
                self.put_away(pod, self.kept_before(pod));
                continue;
            }
            if let Some(ending) = self.ending(pod) {
                self.ended.insert(pod.id);
                self.report(pod.id, pod.node.clone(), &ending);
                let keep = self.sight.grant.keep_failed
                    && ending.cause == Cause::Application
                    && matches!(ending.kind, Kind::Failed);
                self.put_away(pod, keep);
            }
        }
    }

    fn kept_before(&self, pod: &ExecutorPod) -> bool {
        let application = |l: &Loss| l.id.parse() == Ok(pod.id) && l.cause == Cause::Application && l.code != 0;
        self.sight.grant.keep_failed && self.sight.ledger.losses.iter().any(application)
    }

    fn put_away(&mut self, pod: &ExecutorPod, keep: bool) {
        if keep {
            self.decision.retire.push(pod.name.clone());
        } else if pod.leaving_by.is_none() {
            self.remove(pod, matches!(pod.state, State::Ended(_) | State::Pending { .. }));
        } else if self.sight.now > pod.leaving_by.unwrap_or(self.sight.now) {
            // Its node does not answer; nothing will confirm its end.
            self.remove(pod, true);
        }
    }

    /// Why an executor has to be given up, if so. Asks to be woken when that may change.
    fn ending(&mut self, pod: &ExecutorPod) -> Option<Ending> {
        let (now, grant, memory) = (self.sight.now, self.sight.grant, self.sight.memory);
        if let State::Ended(end) = &pod.state {
            return Some(ending::of_end(pod, end));
        }
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
                let deadline = if let Some(since) = memory.disconnected_since.get(&pod.id) {
                    (*since + DISCONNECTED, ending::of_disconnected())
                } else if self.registered.contains(&pod.id) {
                    return None;
                } else if let Some(since) = memory.unregistered_since.get(&pod.id) {
                    (*since + HUNG, ending::of_hung())
                } else {
                    let limit = SignedDuration::from_secs(i64::from(grant.register_seconds));
                    (*since + limit, ending::of_unregistered(grant.register_seconds))
                };
                self.due(deadline)
            }
            State::Pending { waiting, .. } => {
                let error = waiting.as_ref().filter(|w| ending::is_start_error(&w.reason));
                let limit = SignedDuration::from_secs(i64::from(grant.start_seconds));
                let limit = error.map_or(limit, |_| limit.min(START_ERROR));
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

    /// Registered executors whose pods are not there any more.
    fn judge_missing(&mut self) {
        let present: HashSet<u64> = self.sight.pods.iter().map(|p| p.id).collect();
        let through = self.sight.ledger.reserved_through;
        let mut missing: Vec<u64> = self.registered.iter().copied().collect();
        missing.retain(|id| {
            *id <= through
                && !present.contains(id)
                && !self.reported.contains(id)
                && !self.sight.memory.in_flight.contains_key(id)
        });
        missing.sort_unstable();
        for id in missing {
            self.report(id, None, &ending::of_missing());
        }
    }

    /// Writes a loss down.
    fn report(&mut self, id: u64, node: Option<String>, ending: &Ending) {
        let now = Time(self.sight.now);
        if ending.kind == Kind::Done && !self.registered.contains(&id) {
            // Spark let it go and knows.
            return;
        }
        let ledger = &mut self.decision.ledger;
        ledger.loss_seq += 1;
        ledger.counts.lost += 1;
        ledger.losses.push(Loss {
            seq: ledger.loss_seq,
            id: id.to_string(),
            code: ending.code,
            cause: ending.cause,
            text: ending.text.clone(),
            node: node.clone(),
            at: now,
        });
        if ending.kind != Kind::Done {
            let text = format!("executor {id} was lost: {}", ending.text);
            self.decision.notes.push(Note { warning: true, reason: "ExecutorLost", text });
        }
        if matches!(ending.kind, Kind::Failed | Kind::NeverStarted) {
            self.fresh_failures.push((node, ending.clone()));
        }
    }

    /// Counts failures, delays what follows them, and ends what is hopeless.
    fn follow_failures(&mut self) {
        let (now, budget) = (self.sight.now, self.sight.grant.failures);
        let by_application = self.fresh_failures.iter().filter(|(_, e)| e.cause == Cause::Application).count();
        let failures = &mut self.decision.ledger.failures;
        match budget.window_seconds {
            Some(window) => {
                let since = now - SignedDuration::from_secs(i64::try_from(window).unwrap_or(i64::MAX / 2));
                failures.at.retain(|at| at.0 > since);
                failures.at.extend(std::iter::repeat_n(Time(now), by_application));
                failures.count = u32::try_from(failures.at.len()).unwrap_or(u32::MAX);
            }
            None => failures.count = failures.count.saturating_add(u32::try_from(by_application).unwrap_or(u32::MAX)),
        }
        let last = failures.last.as_ref().map(|t| t.0);
        let works = |pod: &ExecutorPod| match pod.state {
            State::Running { since } => {
                self.registered.contains(&pod.id)
                    && !self.ended.contains(&pod.id)
                    && last.is_none_or(|last| since > last)
            }
            State::Pending { .. } | State::Ended(_) => false,
        };
        if failures.row > 0 && self.sight.pods.iter().any(works) {
            failures.row = 0;
            failures.not_before = None;
        }
        if !self.fresh_failures.is_empty() {
            failures.row = failures.row.saturating_add(1);
            failures.last = Some(Time(now));
            failures.not_before = delay(failures.row).map(|wait| Time(now + wait));
        }
        let (count, row) = (failures.count, failures.row);
        if self.decision.ledger.verdict.is_some() {
            return;
        }
        let latest = self.fresh_failures.last().map(|(_, e)| e.text.clone());
        let over_budget = budget.maximum.is_some_and(|most| count > most);
        let none_left = !self
            .sight
            .pods
            .iter()
            .any(|p| p.is_live() && !self.ended.contains(&p.id) && matches!(p.state, State::Running { .. }));
        let verdict = if let (true, Some(latest)) = (over_budget, &latest) {
            let most = budget.maximum.unwrap_or_default();
            Some((
                "ExecutorsKeepFailing",
                format!(
                    "{count} executors failed by the application's fault, more than the {most} that \
                     spark.executor.maxNumFailures allows; the last one: {latest}"
                ),
            ))
        } else if let (true, true, Some(latest)) = (row >= HOPELESS_ROW, none_left, latest) {
            Some((
                "NoExecutorStarts",
                format!("no executor is left, and {row} attempts in a row to start one failed; the last one: {latest}"),
            ))
        } else {
            None
        };
        if let Some((reason, message)) = verdict {
            self.decision.notes.push(Note { warning: true, reason, text: message.clone() });
            self.decision.ledger.verdict = Some(Verdict { reason: reason.to_owned(), message, at: Time(now) });
        }
    }

    fn follow_nodes(&mut self) {
        let now = self.sight.now;
        let list = &mut self.decision.ledger.avoided_nodes;
        let fresh = self.fresh_failures.iter().filter_map(|(node, ending)| Some((node.as_deref()?, ending)));
        let avoided = nodes::record(list, fresh, now);
        for node in avoided {
            let text = format!("no executor goes to node {node} for a while: they keep failing there");
            self.decision.notes.push(Note { warning: true, reason: "NodeAvoided", text });
        }
        let stuck = |pod: &ExecutorPod| match &pod.state {
            State::Pending { scheduled: false, waiting: Some(words) } => {
                words.reason == "Unschedulable" && pod.age(now) > START_ERROR
            }
            State::Pending { .. } | State::Running { .. } | State::Ended(_) => false,
        };
        if !nodes::avoided(&self.decision.ledger.avoided_nodes, now).is_empty() && self.sight.pods.iter().any(stuck) {
            // Better a bad node than none.
            self.decision.ledger.avoided_nodes.clear();
            let stuck: Vec<&ExecutorPod> =
                self.sight.pods.iter().filter(|p| stuck(p) && !self.ended.contains(&p.id)).collect();
            for pod in stuck {
                self.withdraw(pod);
            }
        }
    }

    /// What is wanted, within the maxima.
    fn clamp(&mut self) -> BTreeMap<String, u32> {
        let most = &self.sight.grant.maximum;
        let mut named = most.resources.clone();
        let mut executors = most.executors.unwrap_or(u32::MAX);
        let (mut cores, mut memory) = (most.cores.unwrap_or(u64::MAX), most.memory_mib.unwrap_or(u64::MAX));
        let mut wanted = BTreeMap::new();
        let mut cut = Vec::new();
        for (profile, demand) in by_number(&self.sight.demand.profiles) {
            let requested = demand.cpu.as_deref().map_or(0, |cpu| whole(cpu, 1));
            let each_cores = u64::from(demand.cores).max(requested).max(1);
            let each_memory = mebibytes(&demand.memory);
            if each_memory == 0 {
                // It would have no limit at all.
                cut.push(format!("profile {profile} does not say how much memory an executor has"));
                wanted.insert(profile.clone(), 0);
                continue;
            }
            let each_named: Vec<(&String, u64)> = demand
                .resources
                .iter()
                .map(|(name, amount)| (name, whole(amount, 1)))
                .filter(|(_, n)| *n > 0)
                .collect();
            let of_named = named.iter().flat_map(|left| {
                each_named.iter().map(|(name, each)| left.get(*name).copied().unwrap_or_default() / *each)
            });
            let fit = of_named.fold((cores / each_cores).min(memory / each_memory), u64::min);
            let given = demand.wanted.min(executors).min(u32::try_from(fit).unwrap_or(u32::MAX));
            if given < demand.wanted {
                cut.push(format!("{} executors of profile {profile} wanted, {given} granted", demand.wanted));
            }
            executors -= given;
            cores -= u64::from(given) * each_cores;
            memory -= u64::from(given) * each_memory;
            for (name, each) in each_named {
                if let Some(left) = named.as_mut().and_then(|left| left.get_mut(name)) {
                    *left -= u64::from(given) * each;
                }
            }
            wanted.insert(profile.clone(), given);
        }
        let before = is_false(self.sight.ledger, CONDITION_WITHIN_MAXIMUM);
        let message = format!(
            "{}; raise spark.dynamicAllocation.maxExecutors, spark.firesteel.executors.maxCores, \
             spark.firesteel.executors.maxMemory or spark.firesteel.executors.maxResources at submission",
            cut.join(", ")
        );
        let ledger = &mut self.decision.ledger;
        if cut.is_empty() {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "True", reason: "Granted", message: "" };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
        } else {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "False", reason: "Clamped", message: &message };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
            if !before {
                self.decision.notes.push(Note { warning: true, reason: "DemandClamped", text: message });
            }
        }
        wanted
    }

    /// Finds what is missing, and withdraws what is too much and does not run yet.
    fn balance(&mut self, wanted: &BTreeMap<String, u32>) {
        let mut live: HashMap<&str, Vec<&ExecutorPod>> = HashMap::new();
        for pod in self.sight.pods.iter().filter(|p| p.is_live() && !self.ended.contains(&p.id)) {
            live.entry(&pod.profile).or_default().push(pod);
        }
        let mut excess = Vec::new();
        for (profile, pods) in &mut live {
            let flying = self.flying(profile);
            let target = wanted.get(*profile).copied().unwrap_or_default() as usize;
            let too_many = (pods.len() + flying).saturating_sub(target);
            // One that came to the driver runs, even if its pod's status does not say so yet.
            pods.retain(|p| matches!(p.state, State::Pending { .. }) && !self.registered.contains(&p.id));
            // Those furthest from running go first.
            pods.sort_by_key(|p| (matches!(p.state, State::Pending { scheduled: true, .. }), std::cmp::Reverse(p.id)));
            excess.extend(pods.iter().take(too_many).copied());
        }
        for pod in excess {
            self.withdraw(pod);
        }
        let ready = self.sight.driver == Driver::Running
            && self.decision.ledger.accepted
            && self.decision.ledger.verdict.is_none();
        let not_before = self.decision.ledger.failures.not_before.as_ref().map(|t| t.0);
        let held = not_before.filter(|at| *at > self.sight.now);
        let mut left = self.left();
        for (profile, count) in wanted {
            let have = self.count_live(profile) + self.flying(profile);
            let missing = u32::try_from((*count as usize).saturating_sub(have)).unwrap_or(u32::MAX);
            if missing == 0 || !ready {
                continue;
            }
            let given = missing.min(left);
            left -= given;
            match held {
                Some(at) => self.wake(at),
                None if given > 0 => self.decision.missing.push((profile.clone(), given)),
                None => self.used_up(),
            }
        }
    }

    /// How many executors may still be made in the life of the application.
    fn left(&self) -> u32 {
        let used = u32::try_from(self.decision.ledger.reserved_through).unwrap_or(u32::MAX);
        self.sight.grant.maximum.lifetime.map_or(u32::MAX, |most| most.saturating_sub(used))
    }

    /// All executors that may ever be made were made: the application goes on with those it has, and without any not at all.
    fn used_up(&mut self) {
        let any = self.sight.pods.iter().any(|p| p.is_live() && !self.ended.contains(&p.id));
        if any || !self.sight.memory.in_flight.is_empty() {
            return;
        }
        let most = self.sight.grant.maximum.lifetime.unwrap_or_default();
        let message = format!(
            "no executor is left, and all {most} that spark.kubernetes.allocation.maximum allows in the life of an \
             application were made"
        );
        let reason = "ExecutorsUsedUp";
        self.decision.notes.push(Note { warning: true, reason, text: message.clone() });
        self.decision.ledger.verdict = Some(Verdict { reason: reason.to_owned(), message, at: Time(self.sight.now) });
    }

    fn withdraw(&mut self, pod: &ExecutorPod) {
        self.ended.insert(pod.id);
        let ledger = &mut self.decision.ledger;
        ledger.loss_seq += 1;
        ledger.losses.push(Loss {
            seq: ledger.loss_seq,
            id: pod.id.to_string(),
            code: -1,
            cause: Cause::Withdrawn,
            text: "it was no longer wanted".to_owned(),
            node: None,
            at: Time(self.sight.now),
        });
        self.remove(pod, true);
    }

    fn flying(&self, profile: &str) -> usize {
        self.sight.memory.in_flight.values().filter(|p| *p == profile).count()
    }

    fn count_live(&self, profile: &str) -> usize {
        let live = |p: &&ExecutorPod| p.profile == profile && p.is_live() && !self.ended.contains(&p.id);
        self.sight.pods.iter().filter(live).count()
    }

    /// Counts, conditions, and the losses that need no longer be told.
    fn finish(mut self, wanted: &BTreeMap<String, u32>) -> Decision {
        let now = self.sight.now;
        let live: Vec<&ExecutorPod> =
            self.sight.pods.iter().filter(|p| p.is_live() && !self.ended.contains(&p.id)).collect();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let running = live.iter().filter(|p| matches!(p.state, State::Running { .. })).count();
        let counts = LedgerCounts {
            wanted: wanted.values().sum(),
            pending: number(live.len() - running),
            running: number(running),
            registered: number(live.iter().filter(|p| self.registered.contains(&p.id)).count()),
            lost: self.decision.ledger.counts.lost,
        };
        let (status, reason, message) = self.satisfaction(&counts, &live);
        let present: HashSet<u64> = self.sight.pods.iter().filter(|p| !p.inactive).map(|p| p.id).collect();
        let (seen, registered) = (self.sight.demand.loss_seen, &self.registered);
        let ledger = &mut self.decision.ledger;
        ledger.losses.retain(|loss| {
            let id = loss.id.parse().unwrap_or_default();
            loss.seq > seen || registered.contains(&id) || present.contains(&id)
        });
        let surplus = ledger.losses.len().saturating_sub(MOST_LOSSES);
        ledger.losses.drain(..surplus);
        ledger.counts = counts;
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
        if let Some(words) = waiting {
            return ("False", words.reason.clone(), ending::explain(words));
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

/// How long to wait after so many failures in a row: not at all after the first.
fn delay(row: u32) -> Option<SignedDuration> {
    let doublings = row.checked_sub(2)?;
    Some(SignedDuration::from_secs(1 << doublings.min(10)).min(LONGEST_DELAY))
}

/// Profiles in the order of their numbers.
fn by_number<T>(profiles: &BTreeMap<String, T>) -> Vec<(&String, &T)> {
    let mut list: Vec<_> = profiles.iter().collect();
    list.sort_by_key(|(id, _)| id.parse::<u64>().unwrap_or(u64::MAX));
    list
}

fn is_false(ledger: &ExecutorLedgerStatus, kind: &str) -> bool {
    ledger.conditions.iter().any(|c| c.type_ == kind && c.status == "False")
}

const NANOS: i128 = 1_000_000_000;

/// A memory quantity in MiB, rounded up; 0 if it is none.
pub(crate) fn mebibytes(text: &str) -> u64 {
    whole(text, 1024 * 1024)
}

/// A quantity in units, rounded up; 0 if it is none.
pub(crate) fn whole(text: &str, unit: i128) -> u64 {
    let Ok(quantity) = text.parse::<Quantity>() else { return 0 };
    let unit = unit * NANOS;
    u64::try_from((quantity.nanos() + unit - 1).div_euclid(unit)).unwrap_or_default()
}
