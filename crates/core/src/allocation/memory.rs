//! What the operator remembers of one application between two passes: recent observations, requests to the cluster and their
//! results. Only the ledger is durable; an operator without this memory looks, asks and waits a little longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firesteel_api::executors::{ExecutorGrantStatus, ExecutorLedgerStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::{ExecutorPod, Flight};
use super::sets::MemberPatch;
use super::{Effects, Removal};
use crate::event_reason::executors as reason;

/// How long after the end of a wait another refusal still counts as consecutive.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(60);
/// How long to wait for an API server that sends no Retry-After.
const BUSY: Duration = Duration::from_millis(500);
/// When to repeat a deletion that has had no effect.
const DELETE_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// The same for the labels and annotations of a member.
const MARK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// A ledger in which only counts have changed is written at most this often.
const NEWS: SignedDuration = SignedDuration::from_secs(3);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Executors that this operator created and that still exist or are being created.
    pub(super) made: BTreeSet<u64>,
    /// Registered executors that had a pod.
    pub(super) registered: BTreeSet<u64>,
    pub(super) unregistered_since: BTreeMap<u64, Timestamp>,
    pub(super) disconnected_since: BTreeMap<u64, Timestamp>,
    /// Registered executors without a known pod.
    pub(super) nowhere_since: BTreeMap<u64, Timestamp>,
    /// Why no executor can be created at the moment, or could not recently.
    pub(super) hold: Option<Hold>,
    /// Why the cluster permanently refused an executor, until the ledger records it.
    pub(super) refused: Option<String>,
    /// Ids that went unused and that the ledger does not count as such yet.
    pub(super) unused: u64,
    /// Claims of this application that exist; `None` before they were listed.
    pub(super) claims: Option<BTreeSet<String>>,
    /// Requested deletions: pods by uid, whether at once, and until when to wait for them.
    deleted: BTreeMap<(String, bool), Timestamp>,
    /// Marks by pod uid, and until when to wait for them.
    marked: BTreeMap<String, (MemberPatch, Timestamp)>,
    /// By profile: the plan of a set's template, and the template as the API server stored it.
    pub(super) templates: BTreeMap<String, (String, String)>,
    /// Until then, changed counts need not be written.
    pub(super) ledger_due: Option<Timestamp>,
    pub(super) over: bool,
}

/// A wait after a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) until: Timestamp,
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// How often in a row.
    row: u32,
    /// Its event was published.
    pub(super) told: bool,
}

/// Why the cluster rejected an executor or a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not the request's fault.
    Later { why: String, retry_after: Option<Duration> },
    /// A quota is full.
    Quota(String),
    /// A retry would be refused too.
    Final(String),
}

impl Memory {
    /// Takes in what is seen now.
    pub fn observe(
        &mut self,
        demand: &ExecutorGrantStatus,
        pods: &[ExecutorPod],
        in_flight: &BTreeMap<u64, Flight>,
        now: Timestamp,
    ) {
        let present: BTreeSet<u64> = pods.iter().filter_map(|p| p.id).collect();
        self.made.retain(|id| present.contains(id) || in_flight.contains_key(id));
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
        let there: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        // A clock may be set back.
        let soon = |until: Timestamp, at_most: SignedDuration| until > now && until <= now + at_most;
        self.deleted.retain(|(uid, _), until| there.contains(uid.as_str()) && soon(*until, DELETE_AGAIN));
        self.marked.retain(|_, (_, until)| soon(*until, MARK_AGAIN));
        self.ledger_due = self.ledger_due.filter(|due| soon(*due, NEWS));
    }

    /// The ledger of these effects was written.
    pub fn wrote(&mut self, effects: &Effects, old: &ExecutorLedgerStatus, now: Timestamp) {
        (self.unused, self.refused) = (0, None);
        if effects.ledger != *old {
            self.ledger_due = Some(now + NEWS);
        }
    }

    /// Events were published; the requests to the cluster follow.
    pub fn begin(&mut self, effects: &Effects) {
        if let Some(hold) = &mut self.hold {
            hold.told = true;
        }
        self.claims.clone_from(&effects.claims);
        self.made.extend(effects.create.iter().map(|creation| creation.id));
    }

    /// `count` creations were cancelled before they reached the API server. Their claims do not exist.
    pub fn cancelled(&mut self, count: usize) {
        self.unused += u64::try_from(count).unwrap_or(u64::MAX);
        if count > 0 {
            self.claims = None;
        }
    }

    pub fn marked(&mut self, mark: MemberPatch, now: Timestamp) {
        self.marked.insert(mark.uid.clone(), (mark, now + MARK_AGAIN));
    }

    /// A set's template as the API server stored it.
    pub fn templated(&mut self, profile: &str, plan: &str, as_made: String) {
        self.templates.insert(profile.to_owned(), (plan.to_owned(), as_made));
    }

    /// The API server accepted these deletions.
    pub fn deleted(&mut self, pods: &[Removal], now: Timestamp) {
        self.deleted.extend(pods.iter().map(|pod| ((pod.uid.clone(), pod.at_once), now + DELETE_AGAIN)));
    }

    /// Everything was done.
    pub fn done(&mut self, effects: &Effects) {
        // A driver may stop and start again with a second SparkContext.
        self.over = effects.over;
        if effects.remove_claims {
            self.claims = None;
        }
    }

    /// The cluster refused an executor. Refusals during a wait count as one.
    pub fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        if self.held(now).is_some() {
            return;
        }
        // Older refusals do not count.
        let recent = self.hold.as_ref().filter(|hold| now.duration_since(hold.until) < FORGIVEN);
        let row = recent.map_or(0, |hold| hold.row);
        let (reason, why, wait) = match refusal {
            Refusal::Later { why, retry_after } => (reason::API_SERVER_BUSY, why, retry_after.unwrap_or(BUSY)),
            Refusal::Quota(why) => (reason::QUOTA_EXCEEDED, why, Duration::from_secs(1 << row.min(4))),
            Refusal::Final(why) => {
                self.refused = Some(why.clone());
                (reason::REFUSED, why, Duration::from_secs(1 << row.min(5)))
            }
        };
        let until = now + SignedDuration::try_from(wait).unwrap_or_default();
        self.hold = Some(Hold { until, reason, why, row: row + 1, told: false });
    }

    /// An executor was not created. Whether its claims were is unknown.
    pub fn abandoned(&mut self, refusal: Refusal, now: Timestamp) {
        self.unused += 1;
        self.claims = None;
        self.refuse(refusal, now);
    }

    /// The refusal that creations wait for now.
    pub(super) fn held(&self, now: Timestamp) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }

    /// Until when to wait for a deletion requested earlier.
    pub(super) fn deleted_until(&self, pod: &Removal) -> Option<Timestamp> {
        self.deleted.get(&(pod.uid.clone(), pod.at_once)).copied()
    }

    pub(super) fn is_marked(&self, mark: &MemberPatch) -> bool {
        self.marked.get(&mark.uid).is_some_and(|(before, _)| before == mark)
    }
}
