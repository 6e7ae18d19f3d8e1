//! The core of every miniature cluster: one application with its grant, its ledger, its driver's demand, and the operator's
//! memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use firesteel_api::executors::{
    ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, FailureBudget, Maximum, ProfileDemand, Strategy,
};
use firesteel_core::allocation::early::DriverPlace;
use firesteel_core::allocation::memory::Memory;
use firesteel_core::allocation::pod::{ExecutorPod, Flight, State};
use firesteel_core::allocation::sets::ExecutorSet;
use firesteel_core::allocation::size::{Amount, Size};
use firesteel_core::allocation::{Asked, Demand, Driver, Effects, Sight, Slots, demand, step};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

pub(crate) struct Application {
    pub(crate) grant: ExecutorGrantSpec,
    pub(crate) demand: ExecutorGrantStatus,
    pub(crate) ledger: ExecutorLedgerStatus,
    pub(crate) memory: Memory,
    /// Creations in flight.
    pub(crate) in_flight: BTreeMap<u64, Flight>,
    pub(crate) driver: Driver,
    /// Since when there is no node for the driver.
    pub(crate) unschedulable: Option<Timestamp>,
    /// Demand before the driver reports.
    pub(crate) early: Option<BTreeMap<String, ProfileDemand>>,
    /// What a queue admits.
    pub(crate) admitted: Option<u32>,
    /// Claims that exist.
    pub(crate) claims: BTreeSet<String>,
    /// The operator's limit per application.
    pub(crate) limit: Amount,
    pub(crate) now: Timestamp,
    /// Losses reported to Spark: how often, by id.
    pub(crate) told: BTreeMap<String, u32>,
}

/// The result of a pass.
#[derive(Debug)]
pub(crate) struct Decision {
    /// How many were requested of each profile.
    pub(crate) missing: Vec<(String, u32)>,
    pub(crate) effects: Effects,
}

impl Deref for Decision {
    type Target = Effects;

    fn deref(&self) -> &Effects {
        &self.effects
    }
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
            ledger: ExecutorLedgerStatus {
                accepted: true,
                driver_uid: Some("driver".into()),
                ..ExecutorLedgerStatus::default()
            },
            memory: Memory::default(),
            in_flight: BTreeMap::new(),
            driver: Driver::Running,
            unschedulable: None,
            early: None,
            admitted: None,
            claims: BTreeSet::new(),
            limit: Amount { executors: 5000, cores: 20_000, memory_mib: 80 << 20 },
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            told: BTreeMap::new(),
        }
    }

    pub(crate) fn want(&mut self, wanted: u32) {
        self.demand.profiles.insert("0".into(), usual(wanted));
    }

    /// How many are wanted, within the grant.
    pub(crate) fn wanted(&self) -> usize {
        let wanted = self.demand.profiles.get("0").map_or(0, |p| p.wanted);
        self.grant.maximum.executors.map_or(wanted, |most| wanted.min(most)) as usize
    }

    /// Decides with this many slots.
    pub(crate) fn decide(&mut self, pods: &[ExecutorPod], sets: &[ExecutorSet], slots: u32) -> Decision {
        self.decide_with(pods, sets, |_| Slots { most: slots, ..Slots::default() })
    }

    pub(crate) fn decide_with(
        &mut self,
        pods: &[ExecutorPod],
        sets: &[ExecutorSet],
        slots: impl FnOnce(&[Asked]) -> Slots,
    ) -> Decision {
        self.memory.observe(&self.demand, pods, &self.in_flight, self.now);
        let sight = Sight {
            namespace: "n",
            grant: &self.grant,
            demand: &self.demand,
            early: self.early.as_ref(),
            admitted: self.admitted,
            ledger: &self.ledger,
            driver: self.driver,
            place: DriverPlace { unschedulable: self.unschedulable, ..DriverPlace::default() },
            pods,
            sets,
            in_flight: &self.in_flight,
            memory: &self.memory,
            limit: self.limit,
            namespace_limit: NAMESPACE,
            now: self.now,
        };
        let demand: Demand<'_> = demand(&sight);
        let missing = demand.asked().iter().map(|asked| (asked.profile.clone(), asked.count)).collect();
        let mut slots = slots(demand.asked());
        slots.claims = demand.needs_claims().then(|| self.claims.clone());
        Decision { missing, effects: step(demand, &slots) }
    }

    /// The ledger is written, and the operator continues. Writes are never delayed here, so that each pass can be checked.
    pub(crate) fn write(&mut self, effects: &Effects) {
        self.ledger = effects.ledger.clone();
        self.memory.wrote(effects, &self.ledger, self.now);
        self.memory.begin(effects);
    }

    /// The bridge reads the ledger.
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

/// The limit of a namespace.
pub(crate) const NAMESPACE: Amount = Amount { executors: 14, cores: 30, memory_mib: 24 << 10 };

/// Demand for executors of the usual size.
pub(crate) fn usual(wanted: u32) -> ProfileDemand {
    ProfileDemand { wanted, cores: 1, memory: "1408Mi".into(), ..ProfileDemand::default() }
}

/// A new pod that waits for a node.
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
        early: false,
        inactive: false,
        claims: Vec::new(),
        size: Size::default(),
        member: None,
    }
}

/// An operator that is killed after a number of writes.
pub(crate) struct Life {
    writes: usize,
    last: Option<usize>,
}

impl Life {
    pub(crate) fn ending_after(last: Option<usize>) -> Self {
        Life { writes: 0, last }
    }

    /// Whether it survives to its next write.
    pub(crate) fn writes(&mut self) -> bool {
        self.writes += 1;
        self.last.is_none_or(|last| self.writes <= last)
    }
}

pub(crate) fn seconds(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}
