//! What the operator remembers of one application between two passes: what it saw a moment ago, what it asked of the cluster
//! and what came of it. Only the ledger lasts; whoever begins without a memory looks, asks and waits a little longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firesteel_api::executors::{ExecutorGrantStatus, ExecutorLedgerStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pod::{ExecutorPod, Flight};
use super::sets::Mark;
use super::{Effects, Removal};
use crate::event_reason::executors as reason;

/// How long after the end of a wait the next refusal is one more in a row.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(60);
/// How long to wait for an API server that does not say how long.
const BUSY: Duration = Duration::from_millis(500);
/// A deletion that has had no effect for so long is asked for again.
const DELETE_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// The same for the labels and annotations of a member.
const MARK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// A ledger in which nothing but counts has changed is written no more often than this.
const NEWS: SignedDuration = SignedDuration::from_secs(3);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Executors that this operator made and that are still there, or on their way.
    pub(super) made: BTreeSet<u64>,
    /// Registered executors that had a pod.
    pub(super) registered: BTreeSet<u64>,
    pub(super) unregistered_since: BTreeMap<u64, Timestamp>,
    pub(super) disconnected_since: BTreeMap<u64, Timestamp>,
    /// Registered executors for which no pod was found yet.
    pub(super) nowhere_since: BTreeMap<u64, Timestamp>,
    /// Why no executor can be created for the moment, or could not a moment ago.
    pub(super) hold: Option<Hold>,
    /// Why the cluster refused an executor for good, while the ledger does not say so.
    pub(super) refused: Option<String>,
    /// Ids that no executor was made with and that the ledger does not count as such yet.
    pub(super) unused: u64,
    /// Claims of this application that exist; none before they were listed.
    pub(super) claims: Option<BTreeSet<String>>,
    /// Deletions that were asked for: pods by uid, whether at once, and until when they are waited for.
    deleted: BTreeMap<(String, bool), Timestamp>,
    /// Marks by the uid of their pods, and until when they are waited for.
    marked: BTreeMap<String, (Mark, Timestamp)>,
    /// By profile: what a set's template was made from, and what the cluster made of it.
    pub(super) templates: BTreeMap<String, (String, String)>,
    /// Until then, news need not be written.
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
    /// People were told.
    pub(super) told: bool,
}

/// Why the cluster did not take an executor, or a set of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Not the request's fault.
    Later { why: String, retry_after: Option<Duration> },
    /// There is no room.
    Quota(String),
    /// It will be refused again.
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

    /// People were told; what follows is asked of the cluster.
    pub fn begin(&mut self, effects: &Effects) {
        if let Some(hold) = &mut self.hold {
            hold.told = true;
        }
        self.claims.clone_from(&effects.claims);
        self.made.extend(effects.create.iter().map(|creation| creation.id));
    }

    /// So many creations were taken back before the cluster was asked for them. Claims that were counted are not there.
    pub fn cancelled(&mut self, count: usize) {
        self.unused += u64::try_from(count).unwrap_or(u64::MAX);
        if count > 0 {
            self.claims = None;
        }
    }

    pub fn marked(&mut self, mark: Mark, now: Timestamp) {
        self.marked.insert(mark.uid.clone(), (mark, now + MARK_AGAIN));
    }

    /// What the cluster made of a set's template.
    pub fn templated(&mut self, profile: &str, plan: &str, as_made: String) {
        self.templates.insert(profile.to_owned(), (plan.to_owned(), as_made));
    }

    /// The cluster took these deletions.
    pub fn deleted(&mut self, pods: &[Removal], now: Timestamp) {
        self.deleted.extend(pods.iter().map(|pod| ((pod.uid.clone(), pod.at_once), now + DELETE_AGAIN)));
    }

    /// Everything was done.
    pub fn done(&mut self, effects: &Effects) {
        // A driver may stop and, with a second SparkContext, begin again.
        self.over = effects.over;
        if effects.remove_claims {
            self.claims = None;
        }
    }

    /// The cluster would not take an executor. Refusals that come together are one.
    pub fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        if self.held(now).is_some() {
            return;
        }
        // What was long ago is another matter.
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

    /// An executor was not made. Whether its claims were is not known.
    pub fn abandoned(&mut self, refusal: Refusal, now: Timestamp) {
        self.unused += 1;
        self.claims = None;
        self.refuse(refusal, now);
    }

    /// What creations wait for now.
    pub(super) fn held(&self, now: Timestamp) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }

    /// Until when a deletion is waited for that was asked for before.
    pub(super) fn deleted_until(&self, pod: &Removal) -> Option<Timestamp> {
        self.deleted.get(&(pod.uid.clone(), pod.at_once)).copied()
    }

    pub(super) fn is_marked(&self, mark: &Mark) -> bool {
        self.marked.get(&mark.uid).is_some_and(|(before, _)| before == mark)
    }
}
