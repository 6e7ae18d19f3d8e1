//! An application's ledger as this operator knows it: read once, then written when a pass changes it.

use firesteel_api::ExecutorGrant;
use firesteel_api::executors::ExecutorLedgerStatus;
use firesteel_core::allocation;
use kube::Client;

use super::writes;
use crate::error::Error;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// As last written or read, with its resource version.
    known: Option<(ExecutorLedgerStatus, String)>,
    /// Ids up to here may have been used, even if someone changed the ledger.
    floor: u64,
    /// Whether the grant was ever accepted.
    accepted: bool,
}

impl Ledger {
    /// As last written or read; `None` if it has to be read first.
    pub(super) fn status(&self) -> Option<&ExecutorLedgerStatus> {
        self.known.as_ref().map(|(status, _)| status)
    }

    /// The ledger, from memory or from the cluster, if it exists.
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

    /// Whether the grant was ever accepted, whatever happened to its ledger.
    pub(super) fn was_accepted(&self) -> bool {
        self.accepted
    }

    /// Records that the grant is accepted, or why not, in the existing ledger or a new one.
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

    /// Writes what changed.
    pub(super) async fn write(
        &mut self,
        client: &Client,
        grant: &ExecutorGrant,
        new: &ExecutorLedgerStatus,
    ) -> Result<(), Error> {
        // Even if the response is lost, these ids may have been used.
        self.floor = self.floor.max(new.reserved_through);
        // Forgotten until the write has succeeded: after an error the ledger is read again.
        let Some((old, version)) = self.known.take() else { return Err(Error::Changed) };
        let version = writes::update_ledger(client, grant, &old, new, &version).await?;
        self.known = Some((new.clone(), version));
        Ok(())
    }
}

/// A sequence number above those of all losses that the driver can have seen, including ones it has not acknowledged yet. The
/// driver's value is untrusted, so it is capped at what the API server can store as a number.
fn above_all_seen(said: u64) -> u64 {
    const LARGEST: u64 = 1 << 53;
    said.min(LARGEST) + allocation::MOST_LOSSES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_says_it_has_seen_everything_leaves_room_for_more() {
        assert_eq!((above_all_seen(0), above_all_seen(7)), (1000, 1007));
        assert!(above_all_seen(u64::MAX) < u64::try_from(i64::MAX).unwrap() / 2);
    }
}
