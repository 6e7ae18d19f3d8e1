//! A cluster with sets: its controllers create pods, its nodes restart containers, the driver assigns ids.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use firesteel_api::executors::Strategy as Kind;
use firesteel_core::allocation::memory::Memory;
use firesteel_core::allocation::nodes;
use firesteel_core::allocation::pod::{End, ExecutorPod, Member, State};
use firesteel_core::allocation::set_plan::SetWrite;
use firesteel_core::allocation::sets::{ExecutorSet, MemberPatch, identify};
use firesteel_core::pod::Words;

use crate::allocation::application::{Application, Decision, Life, pod, seconds};

pub(crate) struct World {
    app: Application,
    pub(crate) set: Option<ExecutorSet>,
    sets_made: u32,
    /// By name.
    pub(crate) pods: BTreeMap<String, ExecutorPod>,
    pods_made: u32,
    /// Which executor actually is in a pod.
    inside: BTreeMap<String, u64>,
    /// The driver's counter.
    ids: u64,
    avoided: Vec<String>,
    /// Executors that were registered when the set was last resized.
    busy: BTreeSet<String>,
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
    pub(crate) fn new(strategy: Kind, maximum: Option<u32>, failures: Option<u32>) -> Self {
        World {
            app: Application::new(strategy, maximum, failures),
            set: None,
            sets_made: 0,
            pods: BTreeMap::new(),
            pods_made: 0,
            inside: BTreeMap::new(),
            ids: 0,
            avoided: Vec::new(),
            busy: BTreeSet::new(),
        }
    }

    pub(crate) fn decide(&mut self) -> Decision {
        self.decide_with(0)
    }

    fn decide_with(&mut self, slots: u32) -> Decision {
        let sets: Vec<ExecutorSet> = self.set.iter().cloned().collect();
        let pods = self.pods.values().cloned().collect();
        let pods = identify(&self.grant, &self.demand, &self.ledger, &sets, pods);
        self.app.decide(&pods, &sets, slots)
    }

    /// One pass of the operator. `dies` is the number of writes after which it is killed.
    pub(crate) fn pass(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let decision = self.decide_with(slots);
        let mut life = Life::ending_after(dies);
        if decision.ledger != self.ledger && !life.writes() {
            self.memory = Memory::default();
            return decision;
        }
        self.write(&decision);
        for mark in decision.marks.iter().filter(|_| life.writes()) {
            self.mark(mark);
            let now = self.now;
            self.memory.marked(mark.clone(), now);
        }
        if life.writes() {
            decision.sets.iter().for_each(|write| self.write_set(write));
            self.avoided = nodes::avoided(&self.ledger.avoided_nodes, self.now);
        }
        for removal in decision.remove.iter().filter(|_| life.writes()) {
            self.pods.retain(|_, pod| pod.uid != removal.uid);
            // An executor may have registered in it after it was given up.
            self.hang_up(&removal.uid, false);
        }
        if !life.writes() && dies.is_some() {
            self.memory = Memory::default();
        }
        decision
    }

    pub(crate) fn mark(&mut self, mark: &MemberPatch) {
        let Some(member) = self.pods.get_mut(&mark.name).filter(|p| p.uid == mark.uid).and_then(|p| p.member.as_mut())
        else {
            return;
        };
        if let Some((id, ended)) = mark.executor {
            (member.label, member.accounted) = (id, ended);
        }
        member.cheap = mark.cheap.unwrap_or(member.cheap);
    }

    fn write_set(&mut self, write: &SetWrite) {
        match write {
            SetWrite::Delete { uid, .. } => {
                assert_eq!(self.set.as_ref().map(|set| &set.uid), Some(uid));
                self.resize(None);
            }
            SetWrite::Resize { replicas, .. } => self.resize(Some(*replicas)),
            SetWrite::Create(plan) => {
                assert!(self.set.is_none(), "there is one already");
                self.resize(Some(number(&plan.object["spec"]["replicas"])));
                self.template(&plan.hash);
                let annotations = &plan.object["metadata"]["annotations"];
                self.set.as_mut().unwrap().early = annotations.get("firesteel.dev/early").is_some();
            }
            SetWrite::Replace { plan, operations, .. } => {
                self.resize(Some(number(&operations[0]["value"])));
                self.template(plan);
            }
        }
    }

    /// The template is written, and the cluster adds its defaults.
    fn template(&mut self, plan: &str) {
        let set = self.set.as_mut().unwrap();
        set.plan = Some(plan.to_owned());
        set.template = format!("{plan} as made");
        let as_made = set.template.clone();
        self.memory.templated("0", plan, as_made);
    }

    /// The size of the set.
    pub(crate) fn size(&self) -> Option<u32> {
        self.set.as_ref().map(|set| set.replicas)
    }

    pub(crate) fn resize(&mut self, size: Option<u32>) {
        let old = self.set.as_ref().map(|set| set.replicas);
        if size != old {
            let doomed: Vec<u64> = self.beyond(old).filter_map(|pod| self.executor_in(pod)).collect();
            let registered = self.demand.registered.keys().cloned();
            self.busy = registered.filter(|id| !doomed.iter().any(|gone| gone.to_string() == *id)).collect();
        }
        match (size, &mut self.set) {
            (None, _) => {
                // Garbage collection.
                self.set = None;
                let names: Vec<String> = self.pods.keys().cloned().collect();
                names.iter().for_each(|name| self.take(name));
            }
            (Some(size), Some(set)) => {
                set.replicas = size;
                if self.grant.strategy == Kind::ReplicaSet {
                    self.take_those_without_node(size as usize);
                }
            }
            (Some(size), None) => {
                self.sets_made += 1;
                self.set = Some(ExecutorSet {
                    profile: "0".into(),
                    name: "set".into(),
                    uid: format!("set-{}", self.sets_made),
                    replicas: size,
                    size: None,
                    early: false,
                    leaving: false,
                    trouble: None,
                    plan: None,
                    template: String::new(),
                });
            }
        }
    }

    /// Members beyond the size of a StatefulSet. Its controller is about to delete them, and one that registers now is too
    /// late: a larger size does not save it unless it includes its ordinal.
    fn beyond(&self, size: Option<u32>) -> impl Iterator<Item = &ExecutorPod> {
        let stateful = self.grant.strategy == Kind::StatefulSet;
        self.pods.values().filter(move |pod| stateful && size.is_some_and(|size| ordinal(&pod.name) >= size))
    }

    /// A ReplicaSet's controller sees a smaller size sooner than a pod can get a node and start.
    pub(crate) fn take_those_without_node(&mut self, size: usize) {
        let live = self.pods.values().filter(|p| p.is_live()).count();
        let waits = |p: &&ExecutorPod| p.is_live() && matches!(p.state, State::Pending { scheduled: false, .. });
        let waiting = self.pods.values().filter(waits).map(|p| p.name.clone());
        let gone: Vec<String> = waiting.take(live.saturating_sub(size)).collect();
        gone.iter().for_each(|name| self.take(name));
    }

    /// What the set's controller does.
    pub(crate) fn control(&mut self) {
        let Some(set) = self.set.clone() else { return };
        let live: Vec<String> = self.pods.values().filter(|p| p.is_live()).map(|p| p.name.clone()).collect();
        let stateful = self.grant.strategy == Kind::StatefulSet;
        if stateful {
            self.pods.retain(|_, pod| !matches!(pod.state, State::Ended(_)));
            let beyond: Vec<String> = live.iter().filter(|name| ordinal(name) >= set.replicas).cloned().collect();
            for name in beyond {
                self.take(&name);
            }
            for i in 0..set.replicas {
                let name = format!("set-{i}");
                if !self.pods.contains_key(&name) {
                    self.make(&name, &set.uid);
                }
            }
            return;
        }
        for _ in live.len()..set.replicas as usize {
            let name = format!("set-x{}", self.pods_made);
            self.make(&name, &set.uid);
        }
        let mut order: Vec<&ExecutorPod> = self.pods.values().filter(|p| p.is_live()).collect();
        let progress = |state: &State| match state {
            State::Pending { scheduled, .. } => u8::from(*scheduled),
            State::Running { .. } | State::Ended(_) => 2,
        };
        order.sort_by_key(|p| (progress(&p.state), !p.member.as_ref().unwrap().cheap));
        let surplus = live.len().saturating_sub(set.replicas as usize);
        let gone: Vec<String> = order.into_iter().take(surplus).map(|p| p.name.clone()).collect();
        for name in gone {
            self.take(&name);
        }
    }

    /// A controller deletes a pod because its set shrank.
    pub(crate) fn take(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        let busy = self.executor_in(&pod).is_some_and(|id| self.busy.contains(&id.to_string()));
        assert!(!busy, "{name} is deleted with a registered executor in it");
        self.hang_up(&pod.uid, false);
    }

    pub(crate) fn make(&mut self, name: &str, set: &str) {
        self.pods_made += 1;
        let member = Member {
            set: set.to_owned(),
            label: None,
            accounted: 0,
            ends: 0,
            last: None,
            former: Vec::new(),
            cheap: false,
        };
        let early = self.set.as_ref().is_some_and(|set| set.early);
        let fresh = pod(name.to_owned(), format!("uid-{}", self.pods_made), "0", self.now);
        self.pods.insert(name.to_owned(), ExecutorPod { member: Some(member), early, ..fresh });
    }

    pub(crate) fn executor_in(&self, pod: &ExecutorPod) -> Option<u64> {
        self.inside.get(&pod.uid).copied()
    }

    pub(crate) fn nth(&self, n: usize) -> Option<String> {
        if self.pods.is_empty() { None } else { self.pods.keys().nth(n % self.pods.len()).cloned() }
    }

    /// A node starts the container.
    pub(crate) fn run(&mut self, name: &str) {
        let (now, avoided) = (self.now, self.avoided.clone());
        let used: BTreeSet<String> =
            self.pods.values().filter(|p| p.is_live()).filter_map(|p| p.address.clone()).collect();
        let Some(pod) = self.pods.get_mut(name) else { return };
        if matches!(pod.state, State::Pending { .. }) {
            pod.state = State::Running { since: now };
            let number: u32 = pod.uid.trim_start_matches("uid-").parse().unwrap();
            let free = (0..3).map(|n| format!("node-{}", (number + n) % 3)).find(|n| !avoided.contains(n));
            pod.node.get_or_insert_with(|| free.unwrap_or_else(|| "node-0".into()));
            // Addresses are reused at once.
            let free = (1..).map(|n| format!("10.0.0.{n}")).find(|a| !used.contains(a));
            pod.address = pod.address.take().or(free);
        }
    }

    /// The executor in it registers.
    pub(crate) fn register(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name).cloned() else { return };
        if matches!(pod.state, State::Running { .. }) && self.executor_in(&pod).is_none() {
            self.ids += 1;
            self.inside.insert(pod.uid, self.ids);
            self.app.demand.registered.insert(self.ids.to_string(), pod.address.unwrap());
        }
    }

    /// The container ends.
    pub(crate) fn end(&mut self, name: &str, code: i32) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        if !matches!(pod.state, State::Running { .. }) {
            return;
        }
        let member = pod.member.as_mut().unwrap();
        member.ends += 1;
        member.last = Some(End { code, reason: "Error".into(), message: String::new(), pod: None });
        pod.state = State::Pending { scheduled: true, waiting: None };
        let uid = pod.uid.clone();
        self.hang_up(&uid, code == 0);
    }

    /// Spark notices that an executor is gone; it forgets one that it released.
    pub(crate) fn hang_up(&mut self, uid: &str, forgotten: bool) {
        if let Some(id) = self.inside.remove(uid).map(|id| id.to_string()) {
            if forgotten {
                self.demand.registered.remove(&id);
            } else if self.demand.registered.contains_key(&id) {
                self.demand.disconnected.push(id);
            }
        }
    }

    pub(crate) fn vanish(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.hang_up(&pod.uid, false);
        }
    }

    pub(crate) fn evict(&mut self, name: &str) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let words = Words { reason: "Evicted".into(), message: String::new() };
        let end = End { code: 143, reason: "Error".into(), message: String::new(), pod: Some(words) };
        let member = pod.member.as_mut().unwrap();
        if !matches!(pod.state, State::Ended(_)) {
            member.ends += 1;
            member.last = Some(End { pod: None, ..end.clone() });
            pod.state = State::Ended(end);
            let uid = pod.uid.clone();
            self.hang_up(&uid, false);
        }
    }

    /// Spark releases executors it no longer wants.
    pub(crate) fn let_go(&mut self, wanted: usize) {
        let surplus = self.demand.registered.len().saturating_sub(wanted);
        let known = |id: &u64| self.demand.registered.contains_key(&id.to_string());
        let ids: Vec<u64> = self.inside.values().copied().filter(known).take(surplus).collect();
        for id in ids {
            let uid = self.inside.iter().find(|(_, inside)| **inside == id).unwrap().0.clone();
            let name = self.pods.values().find(|p| p.uid == uid).unwrap().name.clone();
            self.end(&name, 0);
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.pods.values().filter(|p| p.is_live()).count()
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..60 {
            self.now += seconds(61);
            self.pass(u32::MAX, None);
            self.control();
            let names: Vec<String> = self.pods.keys().cloned().collect();
            for name in names {
                self.run(&name);
                self.register(&name);
            }
            if self.grant.strategy == Kind::ReplicaSet {
                self.let_go(self.wanted());
            }
            self.bridge();
        }
    }
}

fn number(value: &serde_json::Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

fn ordinal(name: &str) -> u32 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}
