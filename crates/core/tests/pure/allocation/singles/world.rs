//! A cluster with single pods.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use firesteel_api::executors::{ClaimTemplate, Strategy};
use firesteel_core::allocation::Removal;
use firesteel_core::allocation::creation::Creation;
use firesteel_core::allocation::memory::{Memory, Refusal};
use firesteel_core::allocation::pod::{End, ExecutorPod, Flight, Stage, State};
use k8s_openapi::jiff::Timestamp;

use crate::allocation::application::{Application, Decision, Life, pod, seconds};

/// The state of a cluster, a driver and the operator's writes.
pub(crate) struct World {
    app: Application,
    pub(crate) pods: BTreeMap<u64, ExecutorPod>,
    /// Creations decided but not sent yet; they are lost with the operator.
    pub(crate) queue: BTreeMap<u64, Creation>,
    /// Pods that the operator's watch has not shown yet.
    pub(crate) unseen: BTreeMap<u64, Flight>,
    /// Every id a pod was ever created with.
    pub(crate) used: BTreeSet<u64>,
    /// Deletions have no effect.
    pub(crate) slow: bool,
    /// The most claims ever needed at the same time.
    pub(crate) claims_needed: usize,
    /// Pods, by uid, whose deletion the cluster has accepted.
    going: BTreeSet<String>,
    /// Every deletion of this operator, by uid, whether at once, and when.
    pub(crate) deletions: Vec<(String, bool, Timestamp)>,
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
            unseen: BTreeMap::new(),
            used: BTreeSet::new(),
            slow: false,
            claims_needed: 0,
            going: BTreeSet::new(),
            deletions: Vec::new(),
        }
    }

    /// Each executor has a volume claim, and takes over an unused one.
    pub(crate) fn with_claims(&mut self) {
        let claim = ClaimTemplate { name: "pi-exec-EXECID-pvc-0".into(), ..ClaimTemplate::default() };
        (self.grant.claims, self.grant.reuse_claims) = (vec![claim], true);
    }

    /// With `count` executors that run and have registered.
    pub(crate) fn at_work(mut self, count: u32) -> Self {
        self.want(count);
        self.pass(count, None);
        (1..=u64::from(count)).for_each(|id| self.run(id));
        self.pass(count, None);
        self
    }

    pub(crate) fn decide(&mut self) -> Decision {
        self.decide_with(0)
    }

    fn decide_with(&mut self, slots: u32) -> Decision {
        let pods: Vec<ExecutorPod> =
            self.pods.iter().filter(|(id, _)| !self.unseen.contains_key(id)).map(|(_, pod)| pod.clone()).collect();
        let queued = self.queue.iter().map(|(id, creation)| (*id, creation.flight.clone()));
        let flights = queued.chain(self.unseen.clone()).collect();
        self.in_flight = flights;
        self.app.decide(&pods, &[], slots)
    }

    /// The operator is gone with its memory; the next one sees what exists.
    pub(crate) fn forget(&mut self) {
        self.memory = Memory::default();
        self.deletions.clear();
        self.queue.clear();
        self.unseen.clear();
    }

    /// The next creations are sent, and the watch shows them at once or later.
    pub(crate) fn ask(&mut self, count: usize, shown: bool) {
        for _ in 0..count {
            let Some((id, creation)) = self.queue.pop_first() else { return };
            assert!(self.used.insert(id), "id {id} is used twice");
            self.make_claims(&creation);
            let Creation { flight, pod, .. } = creation;
            let made = pending(id, &flight.profile, self.app.now);
            assert_eq!(pod.metadata.name.as_ref(), Some(&made.name));
            let made =
                ExecutorPod { size: flight.size.clone(), early: flight.early, claims: flight.claims.clone(), ..made };
            self.pods.insert(id, made);
            if !shown {
                self.unseen.insert(id, Flight { stage: Stage::Asked, ..flight });
            }
        }
    }

    /// The cluster creates the claims of a creation; those that it takes over exist and are unused.
    fn make_claims(&mut self, creation: &Creation) {
        for claim in &creation.claims {
            self.claims.insert(claim.metadata.name.clone().unwrap());
        }
        for name in &creation.flight.claims {
            assert!(self.claims.contains(name), "executor {} waits for {name}, which does not exist", creation.id);
            let mut others = self.pods.iter().filter(|(_, pod)| !matches!(pod.state, State::Ended(_)));
            let taken = others.find(|(_, pod)| pod.claims.contains(name));
            assert!(taken.is_none(), "executors {} and {} share {name}", creation.id, taken.unwrap().0);
        }
    }

    /// The cluster refuses the next creation; it may have created its claims.
    pub(crate) fn refuse(&mut self, refusal: Refusal, claims_made: bool) {
        let Some((_, creation)) = self.queue.pop_first() else { return };
        if claims_made {
            self.make_claims(&creation);
        }
        let now = self.now;
        self.memory.abandoned(refusal, now);
    }

    /// A pass after which all creations are made and visible.
    pub(crate) fn pass(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let decision = self.pass_without_asking(slots, dies);
        self.ask(usize::MAX, true);
        self.unseen.clear();
        decision
    }

    /// One pass of the operator, without sending its creations. `dies` is the number of writes after which it is killed.
    pub(crate) fn pass_without_asking(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let decision = self.decide_with(slots);
        let mut life = Life::ending_after(dies);
        if decision.ledger != self.ledger && !life.writes() {
            self.forget();
            return decision;
        }
        self.write(&decision);
        let pods = self.pods.values().filter(|pod| !matches!(pod.state, State::Ended(_)));
        let needed = pods.count() + self.queue.len() + decision.create.len();
        self.claims_needed = self.claims_needed.max(needed);
        let before = self.queue.len();
        self.queue.retain(|id, _| !decision.cancel.contains(id));
        let cancelled = before - self.queue.len();
        self.memory.cancelled(cancelled);
        for removal in &decision.remove {
            if life.writes() {
                self.remove(removal);
            }
        }
        self.queue.extend(decision.create.iter().map(|creation| (creation.id, creation.clone())));
        self.memory.done(&decision);
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

    /// The cluster is asked to delete a pod, and does so unless it is slow.
    fn remove(&mut self, removal: &Removal) {
        let now = self.now;
        let same = |(uid, at_once, _): &&(String, bool, Timestamp)| *uid == removal.uid && *at_once == removal.at_once;
        if let Some((.., last)) = self.deletions.iter().rev().find(same) {
            assert!(now.duration_since(*last) >= seconds(10), "{} is deleted again too soon", removal.uid);
        }
        self.deletions.push((removal.uid.clone(), removal.at_once, now));
        self.memory.deleted(std::slice::from_ref(removal), now);
        self.going.insert(removal.uid.clone());
        if !self.slow {
            self.pods.retain(|_, pod| pod.uid != removal.uid);
        }
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
        self.pods.values().filter(|p| p.is_live() && !self.going.contains(&p.uid)).count()
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
