//! A cluster with single pods.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use firesteel_api::executors::Strategy;
use firesteel_core::allocation::pod::{End, ExecutorPod, State};
use firesteel_core::allocation::size::Size;
use firesteel_core::allocation::{Decision, Memory, reserve};
use k8s_openapi::jiff::Timestamp;

use crate::allocation::application::{Application, Life, pod, seconds};

/// The world: what a cluster, a driver and the operator's own writes consist of.
pub(crate) struct World {
    app: Application,
    pub(crate) pods: BTreeMap<u64, ExecutorPod>,
    /// Creations that were decided and not asked for yet; they are lost with the operator.
    pub(crate) queue: BTreeMap<u64, String>,
    /// Pods that the operator's watch has not shown yet.
    pub(crate) unseen: BTreeSet<u64>,
    /// Every id a pod was ever made with.
    pub(crate) used: BTreeSet<u64>,
}

impl Deref for World {
    type Target = Application;

    fn deref(&self) -> &Application {
        &self.app
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Application {
        &mut self.app
    }
}

impl World {
    pub(crate) fn new(maximum: Option<u32>, failures: Option<u32>) -> Self {
        World {
            app: Application::new(Strategy::Pods, maximum, failures),
            pods: BTreeMap::new(),
            queue: BTreeMap::new(),
            unseen: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// With so many executors that run and have registered.
    pub(crate) fn at_work(mut self, count: u32) -> Self {
        self.want(count);
        self.pass(count, None);
        (1..=u64::from(count)).for_each(|id| self.run(id));
        self.pass(count, None);
        self
    }

    pub(crate) fn decide(&mut self) -> Decision {
        let pods: Vec<ExecutorPod> =
            self.pods.iter().filter(|(id, _)| !self.unseen.contains(id)).map(|(_, pod)| pod.clone()).collect();
        let asked = self.unseen.iter().map(|id| (*id, self.pods.get(id).map_or("0", |p| &p.profile).to_owned()));
        self.memory.in_flight = self.queue.clone().into_iter().chain(asked).collect();
        self.memory.queued = self.queue.keys().copied().collect();
        self.app.decide(&pods, &[])
    }

    /// The operator is gone, with all it remembered; the next one sees what is there.
    pub(crate) fn forget(&mut self) {
        self.memory = Memory::default();
        self.queue.clear();
        self.unseen.clear();
    }

    /// The cluster is asked for the next creations, and shows what it made at once or later.
    pub(crate) fn ask(&mut self, count: usize, shown: bool) {
        for _ in 0..count {
            let Some((id, profile)) = self.queue.pop_first() else { return };
            assert!(self.used.insert(id), "id {id} is used twice");
            let demand = self.demand.profiles.get(&profile);
            let size = demand.map(|demand| Size::of(&self.grant, &profile, demand)).unwrap_or_default();
            self.pods.insert(id, ExecutorPod { size, ..pending(id, &profile, self.app.now) });
            if !shown {
                self.unseen.insert(id);
            }
        }
    }

    /// A pass after which all creations are made and seen.
    pub(crate) fn pass(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let decision = self.pass_without_asking(slots, dies);
        self.ask(usize::MAX, true);
        self.unseen.clear();
        decision
    }

    /// One pass of the operator, which leaves its creations to be asked for. `dies` is the number of writes after which it
    /// is killed.
    pub(crate) fn pass_without_asking(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let mut decision = self.decide();
        let made = reserve(&mut decision.ledger, &decision.missing, slots);
        let mut life = Life::ending_after(dies);
        if decision.ledger != self.ledger && life.writes() {
            self.ledger = decision.ledger.clone();
        } else if decision.ledger != self.ledger {
            self.forget();
            return decision;
        }
        self.queue.retain(|id, _| !decision.cancel.contains(id));
        for removal in &decision.remove {
            if life.writes() {
                self.pods.retain(|_, pod| pod.uid != removal.uid);
            }
        }
        made.iter().for_each(|(id, _)| self.app.memory.make(*id));
        self.queue.extend(made);
        if dies.is_some() {
            while !self.queue.is_empty() && life.writes() {
                self.ask(1, true);
            }
            if !life.writes() {
                self.forget();
            }
        }
        decision
    }

    pub(crate) fn run(&mut self, id: u64) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id)
            && matches!(pod.state, State::Pending { .. })
        {
            pod.state = State::Running { since: now };
            pod.node = Some(format!("node-{}", id % 3));
            self.demand.registered.insert(id.to_string(), format!("10.0.0.{id}"));
        }
    }

    pub(crate) fn fail(&mut self, id: u64, code: i32, reason: &str) {
        if let Some(pod) = self.pods.get_mut(&id) {
            let (reason, message) = (reason.to_owned(), String::new());
            pod.state = State::Ended(End { code, reason, message, pod: None });
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.pods.values().filter(|p| p.is_live()).count()
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..60 {
            self.now += seconds(61);
            self.pass(u32::MAX, None);
            let ids: Vec<u64> = self.pods.keys().copied().collect();
            ids.into_iter().for_each(|id| self.run(id));
            self.bridge();
        }
    }
}

fn pending(id: u64, profile: &str, now: Timestamp) -> ExecutorPod {
    ExecutorPod { id: Some(id), ..pod(format!("pi-exec-{id}"), format!("uid-{id}"), profile, now) }
}
