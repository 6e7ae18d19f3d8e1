//! Decides which grants are accepted: those that can be served, and only one per service account at a time unless the admission
//! policy isolates drivers. An accepted grant stays accepted; others are checked again regularly.

use std::sync::PoisonError;
use std::time::Duration;

use firesteel_api::ExecutorGrant;
use firesteel_api::executors::ExecutorLedgerStatus;
use firesteel_core::allocation::{self, Note};
use firesteel_core::event_reason::executors as reason;
use firesteel_core::grant::admission::{self, Apart, LiveDriver, Neighbour};
use kube::runtime::controller::Action;

use super::pass::{AppState, own_driver, record};
use super::{Allocator, writes};
use crate::error::Error;
use crate::pods::allocated::{AllocatedPods, AppIdKey, live_driver};

/// How soon to check a grant again that waits for the admission policy or for another driver to end.
const WAITING: Duration = Duration::from_secs(3);
/// The same for a grant whose driver has not been seen. The pod watch usually triggers a pass sooner.
const UNSEEN: Duration = Duration::from_secs(10);

/// The decision on a grant.
#[derive(Debug)]
pub(super) enum Answer {
    Accepted(Box<ExecutorLedgerStatus>),
    /// Not now; when to check again.
    Later(Action),
}

/// Accepts a grant, or writes into its ledger why not.
pub(super) async fn admit(
    grant: &ExecutorGrant,
    allocator: &Allocator,
    key: &AppIdKey,
    state: &mut AppState,
    pods: &AllocatedPods,
) -> Result<Answer, Error> {
    let client = &allocator.client;
    let old = state.ledger.read(client, grant).await?;
    if let Some(ledger) = old.as_ref().filter(|ledger| ledger.accepted) {
        allocator.note_accepted(key);
        return Ok(Answer::Accepted(Box::new(ledger.clone())));
    }
    if let Some(refusal) = allocation::refusal(&grant.spec) {
        state.ledger.answer(client, grant, Some(refusal)).await?;
        return Ok(Answer::Later(Action::await_change()));
    }
    if !state.ledger.was_accepted() && !allocator.shared.options.drivers_trust_each_other {
        let Some(driver) = own_driver(grant, pods, None) else { return Ok(Answer::Later(Action::requeue(UNSEEN))) };
        if driver.outcome().is_none() {
            if let Some(first) = allocator.first(key, &pods.account, &live_driver(driver)).await? {
                let apart = allocator.shared.policy.apart(client, grant).await;
                if let Some(refusal) = admission::refusal(&pods.account, &first, &apart) {
                    return wait(grant, allocator, state, &driver.uid, refusal).await;
                }
            }
        } else if old.is_some() {
            // It ended before its grant was accepted.
            return Ok(Answer::Later(Action::await_change()));
        }
    }
    allocator.note_accepted(key);
    let ledger = state.ledger.answer(client, grant, None).await?;
    Ok(Answer::Accepted(Box::new(ledger)))
}

/// Records why a grant waits.
async fn wait(
    grant: &ExecutorGrant,
    allocator: &Allocator,
    state: &mut AppState,
    driver: &str,
    refusal: String,
) -> Result<Answer, Error> {
    let told = state.ledger.status().is_some_and(|ledger| ledger.message == refusal);
    if !told {
        state.ledger.answer(&allocator.client, grant, Some(refusal.clone())).await?;
        record(allocator, grant, Some(driver), &[Note { warning: true, reason: reason::NOT_ACCEPTED, text: refusal }]);
    }
    Ok(Answer::Later(Action::requeue(WAITING)))
}

impl Allocator {
    /// Whether only its own driver can have written a grant's status.
    pub(super) async fn is_alone(&self, grant: &ExecutorGrant, key: &AppIdKey, account: &str) -> bool {
        self.shared.options.drivers_trust_each_other
            || self.index.neighbours(key, account).is_empty()
            || self.shared.policy.apart(&self.client, grant).await == Apart::Yes
    }

    /// The neighbour that takes precedence over a driver. If there is none, the driver takes precedence from now on.
    async fn first(&self, key: &AppIdKey, account: &str, driver: &LiveDriver) -> Result<Option<LiveDriver>, Error> {
        // What a previous operator accepted is in the ledgers.
        for (app, grant) in self.unasked(key, account, driver) {
            if writes::is_accepted(&self.client, &key.0, &grant).await? {
                self.note_accepted(&app);
            }
        }
        let grants = self.grants();
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.retain(|app| grants.contains_key(app));
        let beside = self.index.neighbours(key, account).into_iter().filter(|(app, _)| grants.contains_key(app));
        let neighbours: Vec<Neighbour> =
            beside.map(|(app, driver)| Neighbour { driver, accepted: accepted.contains(&app) }).collect();
        let first = admission::first(driver, &neighbours).cloned();
        if first.is_none() {
            accepted.insert(key.clone());
        }
        Ok(first)
    }

    /// Younger neighbours whose grants may or may not have been accepted, and the names of those grants.
    fn unasked(&self, key: &AppIdKey, account: &str, driver: &LiveDriver) -> Vec<(AppIdKey, String)> {
        let grants = self.grants();
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = self.index.neighbours(key, account).into_iter();
        let unknown = beside.filter(|(app, other)| other > driver && !accepted.contains(app));
        unknown.filter_map(|(app, _)| grants.get(&app).map(|grant| (app.clone(), grant.name.clone()))).collect()
    }

    fn note_accepted(&self, key: &AppIdKey) {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
    }
}
