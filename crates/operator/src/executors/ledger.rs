//! The ledger of one application, as this operator knows it: read once, then written when a pass has changed it. What nobody
//! waits for is written once in a while.

use std::time::{Duration, Instant};

use firesteel_api::ExecutorGrant;
use firesteel_api::executors::{ExecutorLedgerStatus, LedgerCounts};
use firesteel_core::allocation;
use kube::Client;

use super::writes;
use crate::error::Error;

/// News that change nothing for the driver, such as counts, are written no more often than this.
const NEWS: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// As it was last written or read, with its version.
    known: Option<(ExecutorLedgerStatus, String)>,
    /// Ids that were used for sure, whatever a ledger says that someone else changed.
    floor: u64,
    /// The grant was accepted once.
    accepted: bool,
    /// When it was last written.
    written: Option<Instant>,
}

impl Ledger {
    /// As it was last written or read; none while that has to be found out.
    pub(super) fn status(&self) -> Option<&ExecutorLedgerStatus> {
        self.known.as_ref().map(|(status, _)| status)
    }

    /// The ledger, from memory or from the cluster, if there is one.
    pub(super) async fn read(
        &mut self,
        client: &Client,
        grant: &ExecutorGrant,
    ) -> Result<Option<ExecutorLedgerStatus>, Error> {
        if self.known.is_none() {
            let Some((mut status, version)) = writes::read_ledger(client, grant).await? else { return Ok(None) };
            status.reserved_through = status.reserved_through.max(self.floor);
            self.known = Some((status, version));
        }
        let status = self.status().cloned();
        self.accepted |= status.as_ref().is_some_and(|status| status.accepted);
        Ok(status)
    }

    /// Whether the grant was accepted once, whatever became of its ledger.
    pub(super) fn was_accepted(&self) -> bool {
        self.accepted
    }

    /// Writes down that the grant is accepted, or why not: in the ledger that was read, or in a new one.
    pub(super) async fn answer(
        &mut self,
        client: &Client,
        grant: &ExecutorGrant,
        refusal: Option<String>,
    ) -> Result<ExecutorLedgerStatus, Error> {
        let (accepted, message) = (refusal.is_none(), refusal.unwrap_or_default());
        let status = if let Some(old) = self.status().cloned() {
            let status = ExecutorLedgerStatus { accepted, message, ..old };
            self.write(client, grant, &status).await?;
            status
        } else {
            let status = ExecutorLedgerStatus {
                accepted,
                message,
                reserved_through: self.floor,
                loss_seq: grant.status.as_ref().map_or(0, |status| above_all_seen(status.loss_seen)),
                ..ExecutorLedgerStatus::default()
            };
            let version = writes::create_ledger(client, grant, &status).await?;
            self.known = Some((status.clone(), version));
            status
        };
        self.accepted |= accepted;
        Ok(status)
    }

    /// Ids up to this one are going to be used.
    pub(super) fn reserve(&mut self, through: u64) {
        self.floor = self.floor.max(through);
    }

    /// Writes what changed.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        grant: &ExecutorGrant,
        new: &ExecutorLedgerStatus,
    ) -> Result<(), Error> {
        // Forgotten until the write is known to have been made: after an error the cluster is asked again.
        let Some((old, version)) = self.known.take() else { return Err(Error::Changed) };
        let version = writes::update_ledger(client, grant, &old, new, &version).await?;
        if old != *new {
            self.written = Some(Instant::now());
        }
        self.known = Some((new.clone(), version));
        Ok(())
    }

    /// How long a ledger that holds nothing but news may wait; none if it has to be written now.
    pub(super) fn postponed(
        &self,
        old: &ExecutorLedgerStatus,
        new: &ExecutorLedgerStatus,
        now: Instant,
    ) -> Option<Duration> {
        let news = |ledger: &ExecutorLedgerStatus| ExecutorLedgerStatus {
            counts: LedgerCounts::default(),
            conditions: Vec::new(),
            // Those that come have a number; those that go were seen.
            losses: Vec::new(),
            ..ledger.clone()
        };
        if old == new || news(old) != news(new) {
            return None;
        }
        NEWS.checked_sub(now.duration_since(self.written?)).filter(|wait| !wait.is_zero())
    }
}

/// A number above those of all losses that the driver has seen, though it may not have said so yet. It says what it likes: what
/// the API server cannot store as a number is cut off.
fn above_all_seen(said: u64) -> u64 {
    const LARGEST: u64 = 1 << 53;
    said.min(LARGEST) + allocation::MOST_LOSSES
}

#[cfg(test)]
mod tests {
    use firesteel_api::executors::{Cause, Loss};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn loss(seq: u64) -> Loss {
        let at = Time(Timestamp::UNIX_EPOCH);
        Loss { seq, id: seq.to_string(), code: 1, cause: Cause::Platform, text: String::new(), node: None, at }
    }

    /// How long the change of a ledger waits that was last written so many milliseconds ago.
    fn wait(old: &ExecutorLedgerStatus, change: impl Fn(&mut ExecutorLedgerStatus), ago: u64) -> Option<u128> {
        let mut new = old.clone();
        change(&mut new);
        let written = Instant::now();
        let ledger = Ledger { written: Some(written), ..Ledger::default() };
        let wait = ledger.postponed(old, &new, written + Duration::from_millis(ago));
        wait.map(|wait| wait.as_millis())
    }

    #[test]
    fn counts_and_losses_that_were_seen_wait_until_three_seconds_after_the_last_write() {
        let old = ExecutorLedgerStatus { losses: vec![loss(1)], loss_seq: 1, ..ExecutorLedgerStatus::default() };
        let counts = |ledger: &mut ExecutorLedgerStatus| ledger.counts.running = 5;
        assert_eq!((wait(&old, counts, 0), wait(&old, counts, 2_900)), (Some(3_000), Some(100)));
        assert_eq!((wait(&old, counts, 3_000), wait(&old, counts, 60_000)), (None, None));
        assert_eq!(wait(&old, |ledger| ledger.losses.clear(), 1_000), Some(2_000));
        let mut new = old.clone();
        counts(&mut new);
        assert_eq!(Ledger::default().postponed(&old, &new, Instant::now()), None, "nothing was written yet");
        assert_eq!(wait(&old, |_| {}, 1_000), None, "nothing is to be written");
    }

    #[test]
    fn what_the_driver_or_a_next_operator_has_to_know_does_not_wait() {
        let old = ExecutorLedgerStatus::default();
        let loses = |ledger: &mut ExecutorLedgerStatus| {
            ledger.losses.push(loss(1));
            ledger.loss_seq = 1;
        };
        assert_eq!(wait(&old, loses, 0), None);
        assert_eq!(wait(&old, |ledger| ledger.reserved_through = 8, 0), None);
        assert_eq!(wait(&old, |ledger| ledger.failures.count = 1, 0), None);
        assert_eq!(wait(&old, |ledger| ledger.driver_uid = Some("u".to_owned()), 0), None);
        let verdict = firesteel_api::executors::Verdict {
            reason: "ExecutorsKeepFailing".to_owned(),
            message: String::new(),
            at: Time(Timestamp::UNIX_EPOCH),
        };
        assert_eq!(wait(&old, |ledger| ledger.verdict = Some(verdict.clone()), 0), None);
    }

    #[test]
    fn a_driver_that_says_it_has_seen_everything_leaves_room_for_more() {
        assert_eq!((above_all_seen(0), above_all_seen(7)), (1000, 1007));
        assert!(above_all_seen(u64::MAX) < u64::try_from(i64::MAX).unwrap() / 2);
    }
}
