//! What every cluster in miniature has: one application with its grant, its ledger, what its driver says, and what the
//! operator remembers.

use std::collections::BTreeMap;

use firesteel_api::executors::{
    ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, FailureBudget, Maximum, ProfileDemand, Strategy,
};
use firesteel_core::allocation::pod::{ExecutorPod, State};
use firesteel_core::allocation::sets::ExecutorSet;
use firesteel_core::allocation::size::{Amount, Size};
use firesteel_core::allocation::{Decision, Driver, Memory, Sight, step};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub(crate) struct Application {
    pub(crate) grant: ExecutorGrantSpec,
    pub(crate) demand: ExecutorGrantStatus,
    pub(crate) ledger: ExecutorLedgerStatus,
    pub(crate) memory: Memory,
    /// What the operator allows an application.
    pub(crate) limit: Amount,
    pub(crate) now: Timestamp,
    /// Losses handed to Spark: id to how often.
    pub(crate) told: BTreeMap<String, u32>,
}

impl Application {
    pub(crate) fn new(strategy: Strategy, maximum: Option<u32>, failures: Option<u32>) -> Self {
        let template = json!({"spec": {"containers": [{"name": "spark"}]}});
        Application {
            grant: ExecutorGrantSpec {
                app_id: "spark-1".into(),
                strategy,
                name_prefix: "pi".into(),
                container: "spark".into(),
                template: serde_json::from_value(template).unwrap(),
                maximum: Maximum { executors: maximum, ..Maximum::default() },
                failures: FailureBudget { maximum: failures, window_seconds: None },
                register_seconds: 300,
                start_seconds: 600,
                ..ExecutorGrantSpec::default()
            },
            demand: ExecutorGrantStatus::default(),
            ledger: ExecutorLedgerStatus { accepted: true, ..ExecutorLedgerStatus::default() },
            memory: Memory::default(),
            limit: Amount { executors: 5000, cores: 20_000, memory_mib: 80 << 20 },
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            told: BTreeMap::new(),
        }
    }

    pub(crate) fn want(&mut self, wanted: u32) {
        let profile = ProfileDemand { wanted, cores: 1, memory: "1408Mi".into(), ..ProfileDemand::default() };
        self.demand.profiles.insert("0".into(), profile);
    }

    /// How many are wanted, as far as they were granted.
    pub(crate) fn wanted(&self) -> usize {
        let wanted = self.demand.profiles.get("0").map_or(0, |p| p.wanted);
        self.grant.maximum.executors.map_or(wanted, |most| wanted.min(most)) as usize
    }

    pub(crate) fn decide(&mut self, pods: &[ExecutorPod], sets: &[ExecutorSet]) -> Decision {
        self.memory.observe(&self.demand, pods, self.now);
        step(&Sight {
            grant: &self.grant,
            demand: &self.demand,
            ledger: &self.ledger,
            driver: Driver::Running,
            pods,
            sets,
            memory: &self.memory,
            limit: self.limit,
            now: self.now,
        })
    }

    /// What the bridge does with the ledger.
    pub(crate) fn bridge(&mut self) {
        for loss in self.ledger.losses.iter().filter(|l| l.seq > self.demand.loss_seen) {
            *self.told.entry(loss.id.clone()).or_default() += 1;
            self.demand.registered.remove(&loss.id);
            self.demand.disconnected.retain(|id| *id != loss.id);
        }
        let last = self.ledger.losses.iter().map(|l| l.seq).max();
        self.demand.loss_seen = self.demand.loss_seen.max(last.unwrap_or_default());
    }
}

/// A pod that was made now and waits for a node.
pub(crate) fn pod(name: String, uid: String, profile: &str, now: Timestamp) -> ExecutorPod {
    ExecutorPod {
        id: None,
        profile: profile.to_owned(),
        name,
        uid,
        node: None,
        address: None,
        created: now,
        state: State::Pending { scheduled: false, waiting: None },
        leaving_by: None,
        disruption: None,
        inactive: false,
        claims: Vec::new(),
        size: Size::default(),
        member: None,
    }
}

/// An operator that is killed after so many writes.
pub(crate) struct Life {
    writes: usize,
    last: Option<usize>,
}

impl Life {
    pub(crate) fn ending_after(last: Option<usize>) -> Self {
        Life { writes: 0, last }
    }

    /// Whether it comes to its next write.
    pub(crate) fn writes(&mut self) -> bool {
        self.writes += 1;
        self.last.is_none_or(|last| self.writes <= last)
    }
}

pub(crate) fn seconds(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}
