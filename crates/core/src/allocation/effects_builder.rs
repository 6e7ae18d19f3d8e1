//! A decision in the making: the parts common to every strategy.

use std::collections::{BTreeMap, HashSet};

use firesteel_api::executors::{Cause, ExecutorLedgerStatus, LedgerCounts, Loss, ProfileDemand, Strategy, Verdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::ending::{self, Ending, EndingKind};
use super::pod::{ExecutorPod, State};
use super::{Asked, CONDITION_SATISFIED, Driver, Effects, MOST_LOSSES, Note, Removal, Sight, Slots};
use crate::conditions::{self, Holds};
use crate::event_reason::executors as reason;
use crate::pod::Words;

/// How long to wait for the reason of a lost connection.
const DISCONNECTED: SignedDuration = SignedDuration::from_secs(10);
/// How long an executor may keep running after Spark removed it.
const HUNG: SignedDuration = SignedDuration::from_secs(30);
/// How long after its grace period a deleted pod may still exist.
pub(super) const OVERDUE: SignedDuration = SignedDuration::from_secs(10);
/// How long to wait on an error that the same node is unlikely to get past: it has tried twice by then.
pub(super) const START_ERROR: SignedDuration = SignedDuration::from_secs(15);
/// The same for an error that retrying on that node cannot fix.
const CERTAIN_ERROR: SignedDuration = SignedDuration::from_secs(5);
/// The largest id Spark accepts.
pub(super) const LARGEST_ID: u64 = 2_147_483_647;

/// A decision in the making.
#[derive(Debug)]
pub(super) struct EffectsBuilder<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) registered: HashSet<u64>,
    /// Executors whose end is recorded in the ledger.
    pub(super) reported: HashSet<u64>,
    /// Pods, by uid, that ended in this pass; they no longer count as live, whatever their state says.
    pub(super) ended: HashSet<String>,
    /// Failures of this pass that delay the next start.
    pub(super) fresh_failures: Vec<(Option<String>, Ending)>,
    /// Members to delete so that their set creates others.
    pub(super) given_up: Vec<&'a ExecutorPod>,
    /// The size of each profile's set; a profile without an entry gets no set.
    pub(super) sizes: BTreeMap<String, u32>,
    pub(super) asked: Vec<Asked>,
    /// Why fewer are requested or granted than are missing: a reason and its explanation.
    pub(super) waits: Option<(&'static str, String)>,
    pub(super) effects: Effects,
}

impl<'a> EffectsBuilder<'a> {
    pub(super) fn new(sight: &'a Sight<'a>) -> Self {
        let mut ledger = sight.ledger.clone();
        let registered: HashSet<u64> = sight.demand.registered.keys().filter_map(|id| id.parse().ok()).collect();
        if sight.grant.strategy == Strategy::Pods {
            let used = sight.pods.iter().filter_map(|p| p.id).chain(sight.in_flight.keys().copied());
            // A driver may claim any id; only those up to the limit can have been used.
            ledger.reserved_through = used.fold(ledger.reserved_through, u64::max).min(LARGEST_ID);
        }
        if sight.grant.maximum.lifetime.is_some() {
            ledger.unused += sight.memory.unused;
        }
        EffectsBuilder {
            sight,
            registered,
            reported: ledger.losses.iter().filter_map(|l| l.id.parse().ok()).collect(),
            ended: HashSet::new(),
            fresh_failures: Vec::new(),
            given_up: Vec::new(),
            sizes: BTreeMap::new(),
            asked: Vec::new(),
            waits: None,
            effects: Effects { ledger, claims: sight.memory.claims.clone(), ..Effects::default() },
        }
    }

    /// The driver has ended or stopped, and so do its executors. Members of sets go with their sets.
    pub(super) fn end(&mut self) {
        self.effects.cancel.extend(self.sight.queued());
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
                self.effects.retire.push(pod.name.clone());
            } else {
                self.remove(pod, false);
            }
        }
        self.effects.ledger.losses.clear();
        self.effects.over = true;
        self.effects.remove_claims = !self.sight.memory.over && !self.sight.grant.claims.is_empty();
    }

    /// Demand by profile. Before the driver has reported, the early demand.
    pub(super) fn profiles(&self) -> &'a BTreeMap<String, ProfileDemand> {
        self.sight.early.filter(|_| self.is_forecast()).unwrap_or(&self.sight.demand.profiles)
    }

    pub(super) fn remove(&mut self, pod: &ExecutorPod, at_once: bool) {
        self.effects.remove.push(Removal { name: pod.name.clone(), uid: pod.uid.clone(), at_once });
    }

    pub(super) fn wake(&mut self, at: Timestamp) {
        let wake = self.effects.wake.map_or(at, |known| known.min(at));
        self.effects.wake = Some(wake);
    }

    pub(super) fn is_registered(&self, pod: &ExecutorPod) -> bool {
        pod.id.is_some_and(|id| self.registered.contains(&id))
    }

    /// Whether it counts towards demand, given what this pass found out.
    pub(super) fn is_live(&self, pod: &ExecutorPod) -> bool {
        pod.is_live() && !self.ended.contains(&pod.uid)
    }

    /// Whether more executors can be started at all.
    pub(super) fn is_ready(&self) -> bool {
        let ledger = &self.effects.ledger;
        let driver = match self.sight.driver {
            Driver::Starting => self.is_forecast() && !self.sight.place.gated,
            Driver::Running => true,
            Driver::Ended => false,
        };
        // Executors are owned by the driver's pod.
        driver && ledger.driver_uid.is_some() && ledger.accepted && ledger.verdict.is_none()
    }

    /// Until when nothing is started, after consecutive failures.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        let not_before = self.effects.ledger.failures.not_before.as_ref().map(|t| t.0);
        not_before.filter(|at| *at > self.sight.now)
    }

    /// Why an executor that has not ended is given up, if it is. Sets a wake-up for when that may change.
    pub(super) fn ending(&mut self, pod: &ExecutorPod) -> Option<Ending> {
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
                if self.is_held(pod) {
                    return None;
                }
                // One that was held could not register before.
                let since = self.admitted().filter(|_| pod.early).map_or(*since, |admitted| admitted.max(*since));
                let deadline = if let Some(since) = known(&memory.disconnected_since) {
                    (since + DISCONNECTED, ending::of_disconnected())
                } else if self.is_registered(pod) {
                    return None;
                } else if let Some(since) = known(&memory.unregistered_since) {
                    (since + HUNG, ending::of_hung())
                } else {
                    let limit = SignedDuration::from_secs(i64::from(grant.register_seconds));
                    (since + limit, ending::of_unregistered(grant.register_seconds))
                };
                self.due(deadline)
            }
            // It started once; why it ended is known, and its node restarts it.
            State::Pending { .. } if pod.member.as_ref().is_some_and(|m| m.ends > 0) => None,
            State::Pending { waiting, .. } => {
                let error = waiting.as_ref().filter(|words| words.is_start_error());
                if self.is_held(pod) && error.is_none() {
                    return None;
                }
                let limit = SignedDuration::from_secs(i64::from(grant.start_seconds));
                let patience = |words: &Words| if words.is_certain() { CERTAIN_ERROR } else { START_ERROR };
                let limit = error.map_or(limit, |words| limit.min(patience(words)));
                let seconds = u32::try_from(pod.age(now).as_secs()).unwrap_or_default();
                self.due((pod.created + limit, ending::of_waiting(waiting.as_ref(), seconds)))
            }
        }
    }

    /// The ending, once it is due; until then a wake-up.
    pub(super) fn due(&mut self, (at, ending): (Timestamp, Ending)) -> Option<Ending> {
        if self.sight.now >= at {
            return Some(ending);
        }
        self.wake(at);
        None
    }

    /// Records a loss. Spark never heard of an executor without an id: it is only counted.
    pub(super) fn report(&mut self, id: Option<u64>, node: Option<String>, ending: &Ending) {
        let now = Time(self.sight.now);
        if ending.kind == EndingKind::Done && !id.is_some_and(|id| self.registered.contains(&id)) {
            // Spark released it and knows.
            return;
        }
        let ledger = &mut self.effects.ledger;
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
        if ending.kind != EndingKind::Done {
            let who =
                id.map_or_else(|| "an executor that had not registered".to_owned(), |id| format!("executor {id}"));
            let text = format!("{who} was lost: {}", ending.text);
            self.effects.notes.push(Note { warning: true, reason: reason::EXECUTOR_LOST, text });
        }
        if matches!(ending.kind, EndingKind::Failed | EndingKind::NeverStarted) {
            self.fresh_failures.push((node, ending.clone()));
        }
    }

    /// Ends the application.
    pub(super) fn sentence(&mut self, reason: &'static str, message: String) {
        let at = Time(self.sight.now);
        self.effects.notes.push(Note { warning: true, reason, text: message.clone() });
        self.effects.ledger.verdict = Some(Verdict { reason: reason.to_owned(), message, at });
    }

    /// Requests `count` executors of a profile that has `have`.
    pub(super) fn ask(&mut self, profile: &str, count: u32, have: u32) {
        let size = self.size(profile);
        self.asked.push(Asked { profile: profile.to_owned(), size, count, have });
    }

    /// Requests no more than holds, flapping demand and admission allow.
    pub(super) fn hold_back(&mut self) {
        let memory = self.sight.memory;
        if let Some(hold) = memory.hold.as_ref().filter(|hold| !hold.told) {
            self.effects.notes.push(Note { warning: true, reason: hold.reason, text: hold.why.clone() });
        }
        if let Some(hold) = memory.held(self.sight.now).filter(|_| !self.asked.is_empty()) {
            self.waits = Some((hold.reason, hold.why.clone()));
            self.wake(hold.until);
        }
        if let Some(at) = self.held_until().filter(|_| !self.asked.is_empty()) {
            self.wake(at);
        }
        if memory.held(self.sight.now).is_some() || self.held_until().is_some() {
            self.asked.clear();
        }
        self.calm();
        self.keep_admitted();
        self.asked.retain(|asked| asked.count > 0);
    }

    /// Requests no more than was admitted.
    fn keep_admitted(&mut self) {
        let Some(admitted) = self.sight.admitted else { return };
        let there = match self.sight.grant.strategy {
            Strategy::Pods => {
                let going = self.effects.cancel.len();
                self.sight.pods.iter().filter(|p| self.is_live(p)).count() + self.sight.in_flight.len() - going
            }
            Strategy::ReplicaSet | Strategy::StatefulSet => {
                self.sight.sets.iter().filter(|set| !set.leaving).map(|set| set.replicas as usize).sum()
            }
        };
        let mut left = admitted.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX));
        let mut cut = 0;
        for asked in &mut self.asked {
            cut += asked.count.saturating_sub(left);
            asked.count = asked.count.min(left);
            left -= asked.count;
        }
        if cut > 0 {
            let why = format!("{cut} more executors wait to be admitted; {admitted} are admitted");
            self.waits = Some(("NotAdmitted", why));
        }
    }

    /// Cuts the requests down to the available slots.
    pub(super) fn take(&mut self, slots: &Slots) {
        let mut cut = 0;
        for (asked, room) in self.asked.iter_mut().zip(slots.namespace.iter().flatten().copied()) {
            cut += asked.count.saturating_sub(room);
            asked.count = asked.count.min(room);
        }
        if cut > 0 {
            let (namespace, limit) = (self.sight.namespace, self.sight.namespace_limit);
            let why = format!(
                "{cut} more executors wait: the operator limits namespace {namespace} to {limit}; see its flags \
                 --max-executors-per-namespace, --max-executor-cores-per-namespace and \
                 --max-executor-memory-per-namespace"
            );
            let known = |c: &&Condition| c.type_ == CONDITION_SATISFIED && c.reason == reason::NAMESPACE_LIMIT;
            if !self.sight.ledger.conditions.iter().any(|c| known(&c)) {
                self.effects.notes.push(Note { warning: true, reason: reason::NAMESPACE_LIMIT, text: why.clone() });
            }
            self.waits = Some((reason::NAMESPACE_LIMIT, why));
        }
        let mut left = slots.most;
        for asked in &mut self.asked {
            asked.count = asked.count.min(left);
            left -= asked.count;
        }
        self.asked.retain(|asked| asked.count > 0);
        self.count_flaps();
        if let Some(at) = slots.again {
            self.wake(at);
        }
    }

    /// Leaves out what was recently requested and is not visible yet.
    pub(super) fn skip_sent(&mut self) {
        let memory = self.sight.memory;
        let sent: Vec<_> = self.effects.remove.iter().filter_map(|pod| memory.deleted_until(pod)).collect();
        sent.into_iter().for_each(|at| self.wake(at));
        self.effects.remove.retain(|pod| memory.deleted_until(pod).is_none());
        self.effects.marks.retain(|mark| !memory.is_marked(mark));
    }

    /// Updates counts and conditions, drops acknowledged losses, and decides whether the write may wait.
    pub(super) fn finish(mut self, wanted: &BTreeMap<String, u32>) -> Effects {
        if self.effects.over {
            self.finish_over();
        } else {
            self.finish_live(wanted);
        }
        let due = self.sight.memory.ledger_due.filter(|_| !self.effects.over);
        if let Some(at) = due.filter(|_| is_news(self.sight.ledger, &self.effects.ledger)) {
            self.effects.ledger_may_wait = true;
            self.wake(at);
        }
        self.effects
    }

    fn finish_over(&mut self) {
        let ledger = &mut self.effects.ledger;
        ledger.counts = LedgerCounts { lost: ledger.counts.lost, ..LedgerCounts::default() };
        let (reason, message) = match self.sight.driver {
            Driver::Ended => ("DriverEnded", "the driver ended"),
            Driver::Starting | Driver::Running => ("Stopped", "the application stopped by itself"),
        };
        let holds = Holds { kind: CONDITION_SATISFIED, status: "False", reason, message };
        conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
    }

    fn finish_live(&mut self, wanted: &BTreeMap<String, u32>) {
        let now = self.sight.now;
        let live: Vec<&ExecutorPod> = self.sight.pods.iter().filter(|p| self.is_live(p)).collect();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let running = live.iter().filter(|p| matches!(p.state, State::Running { .. })).count();
        let counts = LedgerCounts {
            wanted: wanted.values().sum(),
            pending: number(live.len() - running),
            running: number(running),
            registered: number(live.iter().filter(|p| self.is_registered(p)).count()),
            lost: self.effects.ledger.counts.lost,
        };
        let (status, reason, message) = self.satisfaction(&counts, &live);
        let pods = self.sight.pods.iter();
        let present: HashSet<u64> = pods.filter(|p| !p.inactive).flat_map(ExecutorPod::ids).collect();
        let (seen, registered) = (self.sight.demand.loss_seen, &self.registered);
        let ledger = &mut self.effects.ledger;
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
    }

    /// Whether as many executors run as are wanted; if not, what they wait for.
    fn satisfaction(&self, counts: &LedgerCounts, live: &[&ExecutorPod]) -> (&'static str, String, String) {
        let ledger = &self.effects.ledger;
        if let Some(verdict) = &ledger.verdict {
            return ("False", verdict.reason.clone(), verdict.message.clone());
        }
        if let Some((reason, why)) = &self.waits {
            return ("False", (*reason).to_owned(), why.clone());
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

/// Whether only counts, conditions and acknowledged losses changed, which neither a driver nor another operator waits for.
fn is_news(old: &ExecutorLedgerStatus, new: &ExecutorLedgerStatus) -> bool {
    let rest = |ledger: &ExecutorLedgerStatus| ExecutorLedgerStatus {
        counts: LedgerCounts::default(),
        conditions: Vec::new(),
        // New losses change `loss_seq`; removed ones were seen.
        losses: Vec::new(),
        ..ledger.clone()
    };
    old != new && rest(old) == rest(new)
}
