//! A cluster in miniature with sets: its controllers make pods, its nodes start containers again, the driver gives ids, and
//! the planner has to know who is who, whatever happens and wherever the operator dies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use firesteel_api::executors::{
    Cause, ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedgerStatus, FailureBudget, Maximum, ProfileDemand,
    Strategy as Kind,
};
use firesteel_core::allocation::pod::{End, ExecutorPod, Member, State};
use firesteel_core::allocation::sets::{ExecutorSet, Mark, Trouble, grow, identify, name};
use firesteel_core::allocation::{Decision, Driver, Memory, Sight, nodes, step};
use firesteel_core::driver_pod::Words;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

fn seconds(n: i64) -> SignedDuration {
    SignedDuration::from_secs(n)
}

struct World {
    grant: ExecutorGrantSpec,
    demand: ExecutorGrantStatus,
    ledger: ExecutorLedgerStatus,
    set: Option<ExecutorSet>,
    sets_made: u32,
    /// By name.
    pods: BTreeMap<String, ExecutorPod>,
    pods_made: u32,
    /// Which executor really is in a pod.
    inside: BTreeMap<String, u64>,
    /// The driver's counter.
    ids: u64,
    memory: Memory,
    now: Timestamp,
    told: BTreeMap<String, u32>,
    avoided: Vec<String>,
    /// Who was registered when the set was last given a size.
    busy: BTreeSet<String>,
}

impl World {
    fn new(strategy: Kind, maximum: Option<u32>, failures: Option<u32>) -> Self {
        let template = json!({"spec": {"containers": [{"name": "spark"}]}});
        World {
            grant: ExecutorGrantSpec {
                app_id: "spark-1".into(),
                strategy,
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
            set: None,
            sets_made: 0,
            pods: BTreeMap::new(),
            pods_made: 0,
            inside: BTreeMap::new(),
            ids: 0,
            memory: Memory::default(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            told: BTreeMap::new(),
            avoided: Vec::new(),
            busy: BTreeSet::new(),
        }
    }

    fn want(&mut self, wanted: u32) {
        let profile = ProfileDemand { wanted, cores: 1, memory: "1408Mi".into(), ..ProfileDemand::default() };
        self.demand.profiles.insert("0".into(), profile);
    }

    fn decide(&mut self) -> Decision {
        let sets: Vec<ExecutorSet> = self.set.iter().cloned().collect();
        let pods = self.pods.values().cloned().collect();
        let pods = identify(&self.grant, &self.demand, &self.ledger, &sets, pods);
        self.memory.observe(&self.demand, &pods, self.now);
        step(&Sight {
            grant: &self.grant,
            demand: &self.demand,
            ledger: &self.ledger,
            driver: Driver::Running,
            pods: &pods,
            sets: &sets,
            memory: &self.memory,
            now: self.now,
        })
    }

    /// One pass of the operator. `dies` is the number of writes after which it is killed.
    fn pass(&mut self, slots: u32, dies: Option<usize>) -> Decision {
        let mut decision = self.decide();
        grow(&mut decision.sizes, &decision.missing, slots);
        let mut writes = 0;
        let mut alive = || {
            writes += 1;
            dies.is_none_or(|limit| writes <= limit)
        };
        if decision.ledger != self.ledger {
            if !alive() {
                self.memory = Memory::default();
                return decision;
            }
            self.ledger = decision.ledger.clone();
        }
        for mark in decision.marks.iter().filter(|_| alive()) {
            self.mark(mark);
        }
        if alive() {
            self.resize(decision.sizes.get("0").copied());
            self.avoided = nodes::avoided(&self.ledger.avoided_nodes, self.now);
        }
        for removal in decision.remove.iter().filter(|_| alive()) {
            self.pods.retain(|_, pod| pod.uid != removal.uid);
        }
        if !alive() && dies.is_some() {
            self.memory = Memory::default();
        }
        decision
    }

    fn mark(&mut self, mark: &Mark) {
        let Some(member) = self.pods.get_mut(&mark.name).filter(|p| p.uid == mark.uid).and_then(|p| p.member.as_mut())
        else {
            return;
        };
        if let Some((id, ended)) = mark.executor {
            (member.label, member.accounted) = (id, ended);
        }
        member.cheap = mark.cheap.unwrap_or(member.cheap);
    }

    fn resize(&mut self, size: Option<u32>) {
        if size != self.set.as_ref().map(|set| set.replicas) {
            self.busy = self.demand.registered.keys().cloned().collect();
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
                    leaving: false,
                    trouble: None,
                });
            }
        }
    }

    /// A ReplicaSet's controller sees a smaller size sooner than a pod can get a node and start.
    fn take_those_without_node(&mut self, size: usize) {
        let live = self.pods.values().filter(|p| p.is_live()).count();
        let waits = |p: &&ExecutorPod| p.is_live() && matches!(p.state, State::Pending { scheduled: false, .. });
        let waiting = self.pods.values().filter(waits).map(|p| p.name.clone());
        let gone: Vec<String> = waiting.take(live.saturating_sub(size)).collect();
        gone.iter().for_each(|name| self.take(name));
    }

    /// What the set's controller does.
    fn control(&mut self) {
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

    /// A controller takes a pod away because its set shrank.
    fn take(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        let busy = self.executor_in(&pod).is_some_and(|id| self.busy.contains(&id.to_string()));
        assert!(!busy, "{name} is taken away with a registered executor in it");
        self.hang_up(&pod.uid, false);
    }

    fn make(&mut self, name: &str, set: &str) {
        self.pods_made += 1;
        let pod = ExecutorPod {
            id: None,
            profile: "0".into(),
            name: name.to_owned(),
            uid: format!("uid-{}", self.pods_made),
            node: None,
            address: None,
            created: self.now,
            state: State::Pending { scheduled: false, waiting: None },
            leaving_by: None,
            disruption: None,
            inactive: false,
            claims: Vec::new(),
            member: Some(Member {
                set: set.to_owned(),
                label: None,
                accounted: 0,
                ends: 0,
                last: None,
                former: Vec::new(),
                cheap: false,
            }),
        };
        self.pods.insert(name.to_owned(), pod);
    }

    fn executor_in(&self, pod: &ExecutorPod) -> Option<u64> {
        self.inside.get(&pod.uid).copied()
    }

    fn nth(&self, n: usize) -> Option<String> {
        if self.pods.is_empty() { None } else { self.pods.keys().nth(n % self.pods.len()).cloned() }
    }

    /// A node starts the container.
    fn run(&mut self, name: &str) {
        let (now, avoided) = (self.now, self.avoided.clone());
        let used: BTreeSet<String> =
            self.pods.values().filter(|p| p.is_live()).filter_map(|p| p.address.clone()).collect();
        let Some(pod) = self.pods.get_mut(name) else { return };
        if matches!(pod.state, State::Pending { .. }) {
            pod.state = State::Running { since: now };
            let number: u32 = pod.uid.trim_start_matches("uid-").parse().unwrap();
            let free = (0..3).map(|n| format!("node-{}", (number + n) % 3)).find(|n| !avoided.contains(n));
            pod.node.get_or_insert_with(|| free.unwrap_or_else(|| "node-0".into()));
            // Addresses are used again, at once.
            let free = (1..).map(|n| format!("10.0.0.{n}")).find(|a| !used.contains(a));
            pod.address = pod.address.take().or(free);
        }
    }

    /// The executor in it registers.
    fn register(&mut self, name: &str) {
        let Some(pod) = self.pods.get(name).cloned() else { return };
        if matches!(pod.state, State::Running { .. }) && self.executor_in(&pod).is_none() {
            self.ids += 1;
            self.inside.insert(pod.uid, self.ids);
            self.demand.registered.insert(self.ids.to_string(), pod.address.unwrap());
        }
    }

    /// The container ends.
    fn end(&mut self, name: &str, code: i32) {
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

    /// Spark notices that an executor is gone; one that it let go it forgets.
    fn hang_up(&mut self, uid: &str, forgotten: bool) {
        if let Some(id) = self.inside.remove(uid).map(|id| id.to_string()) {
            if forgotten {
                self.demand.registered.remove(&id);
            } else if self.demand.registered.contains_key(&id) {
                self.demand.disconnected.push(id);
            }
        }
    }

    fn vanish(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.hang_up(&pod.uid, false);
        }
    }

    fn evict(&mut self, name: &str) {
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

    /// What the bridge does with the ledger.
    fn bridge(&mut self) {
        for loss in self.ledger.losses.iter().filter(|l| l.seq > self.demand.loss_seen) {
            *self.told.entry(loss.id.clone()).or_default() += 1;
            self.demand.registered.remove(&loss.id);
            self.demand.disconnected.retain(|id| *id != loss.id);
        }
        let last = self.ledger.losses.iter().map(|l| l.seq).max();
        self.demand.loss_seen = self.demand.loss_seen.max(last.unwrap_or_default());
    }

    /// Spark lets go what it does not want any more.
    fn let_go(&mut self, wanted: usize) {
        let surplus = self.demand.registered.len().saturating_sub(wanted);
        let known = |id: &u64| self.demand.registered.contains_key(&id.to_string());
        let ids: Vec<u64> = self.inside.values().copied().filter(known).take(surplus).collect();
        for id in ids {
            let uid = self.inside.iter().find(|(_, inside)| **inside == id).unwrap().0.clone();
            let name = self.pods.values().find(|p| p.uid == uid).unwrap().name.clone();
            self.end(&name, 0);
        }
    }

    fn live(&self) -> usize {
        self.pods.values().filter(|p| p.is_live()).count()
    }

    fn wanted(&self) -> usize {
        let wanted = self.demand.profiles.get("0").map_or(0, |p| p.wanted);
        self.grant.maximum.executors.map_or(wanted, |most| wanted.min(most)) as usize
    }

    fn settle(&mut self) {
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

fn ordinal(name: &str) -> u32 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

#[derive(Debug, Clone)]
enum Happening {
    Want(u32),
    Pass { slots: u32, dies: Option<usize> },
    Control,
    Run(usize),
    Register(usize),
    End(usize, i32),
    Vanish(usize),
    Evict(usize),
    LetGo,
    Bridge,
    Wait(i64),
    LoseSet,
}

fn happening() -> impl Strategy<Value = Happening> {
    let n = 0usize..12;
    let code = prop_oneof![Just(1), Just(137), Just(0), Just(52)];
    prop_oneof![
        2 => (0u32..9).prop_map(Happening::Want),
        6 => (0u32..8, prop::option::of(0usize..6)).prop_map(|(slots, dies)| Happening::Pass { slots, dies }),
        4 => Just(Happening::Control),
        4 => n.clone().prop_map(Happening::Run),
        4 => n.clone().prop_map(Happening::Register),
        3 => (n.clone(), code).prop_map(|(n, code)| Happening::End(n, code)),
        1 => n.clone().prop_map(Happening::Vanish),
        1 => n.prop_map(Happening::Evict),
        1 => Just(Happening::LetGo),
        2 => Just(Happening::Bridge),
        2 => (0i64..90).prop_map(Happening::Wait),
        1 => Just(Happening::LoseSet),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_happens_losses_are_told_once_nobody_busy_goes_and_demand_is_met(
        happenings in prop::collection::vec(happening(), 1..90),
        maximum in prop::option::of(1u32..8),
        stateful in any::<bool>(),
    ) {
        let mut world = World::new(if stateful { Kind::StatefulSet } else { Kind::ReplicaSet }, maximum, None);
        for happening in happenings {
            match happening {
                Happening::Want(n) => world.want(n),
                Happening::Pass { slots, dies } => {
                    world.pass(slots, dies);
                    if let (Some(most), Some(set)) = (maximum, &world.set) {
                        prop_assert!(set.replicas <= most, "{} replicas, {most} granted", set.replicas);
                    }
                }
                Happening::Control => world.control(),
                Happening::Run(n) => if let Some(name) = world.nth(n) { world.run(&name) },
                Happening::Register(n) => if let Some(name) = world.nth(n) { world.register(&name) },
                Happening::End(n, code) => if let Some(name) = world.nth(n) { world.end(&name, code) },
                Happening::Vanish(n) => if let Some(name) = world.nth(n) { world.vanish(&name) },
                Happening::Evict(n) => if let Some(name) = world.nth(n) { world.evict(&name) },
                Happening::LetGo => { let wanted = world.wanted(); world.let_go(wanted) },
                Happening::Bridge => world.bridge(),
                Happening::Wait(n) => world.now += seconds(n),
                Happening::LoseSet => {
                    // Somebody deletes the set, and its pods go with it.
                    world.set = None;
                    let names: Vec<String> = world.pods.keys().cloned().collect();
                    names.iter().for_each(|name| world.vanish(name));
                }
            }
        }
        world.settle();
        for (id, times) in &world.told {
            prop_assert_eq!(*times, 1, "executor {} was reported {} times", id, times);
        }
        // Whoever Spark believes in is there, under its own name.
        let real: BTreeSet<String> = world.pods.values().filter_map(|p| world.executor_in(p)).map(|id| id.to_string()).collect();
        let believed: BTreeSet<String> = world.demand.registered.keys().cloned().collect();
        prop_assert_eq!(&believed, &real);
        if world.ledger.verdict.is_none() {
            let wanted = world.wanted();
            prop_assert!(world.live() >= wanted, "{} live, {wanted} wanted", world.live());
            if !stateful {
                prop_assert_eq!(world.live(), wanted);
            }
            for pod in world.pods.values() {
                prop_assert_eq!(pod.member.as_ref().unwrap().label, world.executor_in(pod), "{}", &pod.name);
            }
            // Settled: nothing more to do, and looking again changes nothing.
            let decision = world.decide();
            prop_assert!(decision.missing.is_empty() && decision.remove.is_empty() && decision.marks.is_empty(), "{decision:?}");
            prop_assert_eq!(decision.sizes.get("0").copied(), world.set.as_ref().map(|s| s.replicas));
            prop_assert_eq!(&decision.ledger, &world.ledger);
        }
    }
}

/// A set of so many registered executors.
fn at_work(strategy: Kind, count: u32, failures: Option<u32>) -> World {
    let mut world = World::new(strategy, None, failures);
    world.want(count);
    world.pass(99, None);
    world.control();
    let names: Vec<String> = world.pods.keys().cloned().collect();
    for name in &names {
        world.run(name);
        world.register(name);
    }
    world.pass(99, None);
    world.now += seconds(5);
    world
}

#[test]
fn a_registered_executor_is_found_by_its_address_and_its_pod_labelled() {
    let world = at_work(Kind::StatefulSet, 2, None);
    let labels: Vec<_> = world.pods.values().map(|p| p.member.as_ref().unwrap().label).collect();
    assert_eq!(labels, [Some(1), Some(2)]);
    assert_eq!(world.ledger.counts.registered, 2);
}

#[test]
fn a_container_started_again_ends_the_old_executor_with_its_own_reason() {
    let mut world = at_work(Kind::ReplicaSet, 2, Some(5));
    let name = world.nth(0).unwrap();
    world.end(&name, 137);
    world.run(&name);
    let decision = world.pass(99, None);
    assert!(decision.remove.is_empty(), "its node started it again");
    let loss = &world.ledger.losses[0];
    assert_eq!((loss.id.as_str(), loss.code, loss.cause), ("1", 137, Cause::Application));
    assert_eq!(world.pods[&name].member.as_ref().unwrap().label, None);
    assert_eq!((world.ledger.counts.running, world.ledger.counts.registered), (2, 1));
    world.bridge();
    world.register(&name);
    world.pass(99, None);
    assert_eq!(world.pods[&name].member.as_ref().unwrap().label, Some(3));
    assert_eq!((world.ledger.failures.count, world.ledger.counts.lost), (1, 1), "and it counts once");
}

#[test]
fn an_old_executor_ends_when_another_registers_from_its_pod() {
    let mut world = at_work(Kind::StatefulSet, 1, None);
    // Its restart went unseen.
    let address = world.demand.registered["1"].clone();
    world.demand.registered.insert("2".into(), address);
    world.pass(99, None);
    let told: Vec<_> = world.ledger.losses.iter().map(|l| (l.id.as_str(), l.cause)).collect();
    assert_eq!(told, [("1", Cause::Platform)]);
    assert_eq!(world.pods["set-0"].member.as_ref().unwrap().label, Some(2));
}

#[test]
fn a_pod_that_is_gone_ends_its_executor_at_once_and_its_set_replaces_it() {
    let mut world = at_work(Kind::ReplicaSet, 2, Some(0));
    let name = world.nth(1).unwrap();
    world.vanish(&name);
    let decision = world.pass(99, None);
    assert!(decision.missing.is_empty(), "the set keeps the number by itself");
    let loss = &world.ledger.losses[0];
    assert_eq!((loss.id.as_str(), loss.cause, world.ledger.failures.count), ("2", Cause::Platform, 0));
    // An operator that comes later finds it out as well.
    let mut world = at_work(Kind::ReplicaSet, 2, Some(0));
    world.vanish(&name);
    world.demand.disconnected.clear();
    world.memory = Memory::default();
    assert_eq!(world.pass(99, None).wake, Some(world.now + seconds(10)));
    world.now += seconds(10);
    world.pass(99, None);
    assert_eq!(world.ledger.losses[0].id, "2");
}

#[test]
fn evicted_members_are_cleared_away_and_burn_no_budget() {
    let mut world = at_work(Kind::ReplicaSet, 2, Some(0));
    let name = world.nth(0).unwrap();
    world.evict(&name);
    let decision = world.pass(99, None);
    assert_eq!(decision.remove.len(), 1);
    let loss = &world.ledger.losses[0];
    assert_eq!((loss.cause, world.ledger.failures.count), (Cause::Platform, 0));
    assert!(loss.text.contains("evicted"), "{}", loss.text);
}

#[test]
fn containers_that_fail_before_they_register_count_once_each_and_end_the_application() {
    let mut world = World::new(Kind::ReplicaSet, None, Some(3));
    world.want(1);
    world.pass(99, None);
    world.control();
    let name = world.nth(0).unwrap();
    for round in 1..=2 {
        world.now += seconds(1);
        world.run(&name);
        world.end(&name, 1);
        // The operator dies after the ledger, before anything else.
        world.pass(99, Some(1));
        assert!(world.pass(99, None).remove.is_empty());
        assert_eq!(world.ledger.failures.count, round);
    }
    // Two failures make its node one to avoid, and after a while its set has to make another pod.
    assert_eq!(nodes::avoided(&world.ledger.avoided_nodes, world.now).len(), 1);
    world.now += seconds(1);
    world.pass(99, None);
    assert!(world.pods.is_empty());
    for _ in 0..2 {
        world.control();
        let name = world.nth(0).unwrap();
        world.run(&name);
        world.end(&name, 1);
        world.now += seconds(1);
        world.pass(99, None);
    }
    assert_eq!(world.ledger.verdict.unwrap().reason, "ExecutorsKeepFailing");
}

#[test]
fn an_image_that_cannot_be_had_is_tried_elsewhere() {
    let mut world = World::new(Kind::ReplicaSet, None, Some(3));
    world.want(1);
    world.pass(99, None);
    world.control();
    let name = world.nth(0).unwrap();
    let pod = world.pods.get_mut(&name).unwrap();
    pod.node = Some("bad".into());
    let words = Words { reason: "ImagePullBackOff".into(), message: "Back-off".into() };
    pod.state = State::Pending { scheduled: true, waiting: Some(words) };
    world.now += seconds(15);
    let decision = world.pass(99, None);
    assert_eq!(decision.remove.len(), 1);
    assert_eq!(nodes::avoided(&world.ledger.avoided_nodes, world.now), ["bad"]);
    assert_eq!((world.ledger.failures.count, world.ledger.counts.lost), (0, 1));
    assert!(world.ledger.losses.is_empty(), "Spark never heard of it");
}

#[test]
fn a_replica_set_shrinks_by_what_spark_let_go_and_marks_it_first() {
    let mut world = at_work(Kind::ReplicaSet, 4, None);
    world.want(1);
    let decision = world.pass(99, None);
    assert!(decision.marks.is_empty() && decision.sizes["0"] == 4, "all are busy");
    let name = world.nth(2).unwrap();
    world.end(&name, 0);
    world.run(&name);
    let decision = world.pass(99, None);
    let cheap: Vec<_> = decision.marks.iter().filter(|m| m.cheap == Some(true)).map(|m| &m.name).collect();
    assert_eq!((cheap, decision.sizes["0"]), (vec![&name], 4));
    assert!(world.ledger.losses.is_empty(), "Spark knows");
    assert_eq!(world.pass(99, None).sizes["0"], 3, "the mark is seen");
    world.control();
    assert!(!world.pods.contains_key(&name));
    assert_eq!(world.ledger.failures.count, 0);
}

#[test]
fn a_replica_set_shrinks_at_once_by_pods_that_have_no_node() {
    let mut world = at_work(Kind::ReplicaSet, 2, None);
    world.want(6);
    world.pass(99, None);
    world.control();
    let new: Vec<String> = world.pods.values().filter(|p| p.node.is_none()).map(|p| p.name.clone()).collect();
    world.pods.get_mut(&new[1]).unwrap().state = State::Pending { scheduled: true, waiting: None };
    world.want(2);
    let decision = world.pass(99, None);
    let marked: Vec<_> = decision.marks.iter().map(|mark| (&mark.name, mark.cheap)).collect();
    assert_eq!((marked, decision.sizes["0"]), (vec![(&new[1], Some(true))], 3), "one may start any moment");
    assert_eq!(world.pods.len(), 3);
    assert_eq!(world.pass(99, None).sizes["0"], 2);
    world.control();
    assert_eq!((world.pods.len(), world.demand.registered.len()), (2, 2));
}

#[test]
fn a_set_that_nobody_wants_goes_and_one_with_a_busy_executor_stays() {
    let mut world = at_work(Kind::ReplicaSet, 1, None);
    world.want(0);
    assert_eq!(world.pass(99, None).sizes["0"], 1);
    let name = world.nth(0).unwrap();
    world.end(&name, 0);
    assert!(world.pass(99, None).sizes.is_empty());
    assert!(world.set.is_none());
}

#[test]
fn a_stateful_set_keeps_its_last_pod_while_an_executor_is_in_it() {
    let mut world = at_work(Kind::StatefulSet, 3, None);
    world.want(1);
    world.end("set-1", 0);
    assert_eq!(world.pass(99, None).sizes["0"], 3);
    world.end("set-2", 0);
    assert_eq!(world.pass(99, None).sizes["0"], 1);
}

#[test]
fn a_set_that_is_refused_pods_says_why_and_gives_up_in_the_end_but_waits_for_quota() {
    for (message, verdict) in [("pods is forbidden: exceeded quota: few", false), ("violates PodSecurity", true)] {
        let mut world = World::new(Kind::ReplicaSet, None, None);
        world.want(1);
        world.pass(99, None);
        let words = Words { reason: "FailedCreate".into(), message: message.into() };
        world.set.as_mut().unwrap().trouble = Some(Trouble { words, since: world.now });
        world.pass(99, None);
        let condition = world.ledger.conditions.iter().find(|c| c.type_ == "Satisfied").unwrap();
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("FailedCreate", message));
        world.now += seconds(60);
        world.pass(99, None);
        assert_eq!(world.ledger.verdict.is_some(), verdict);
        assert_eq!(world.ledger.failures.count, 0);
    }
}

#[test]
fn names_of_sets_are_sparks_and_fit() {
    let id = format!("spark-{}", "a".repeat(32));
    assert_eq!(name(Kind::StatefulSet, &id, "0"), format!("spark-s-{id}-0"));
    let long = name(Kind::ReplicaSet, &"Odd_Id".repeat(20), "17");
    assert!(long.len() <= 52 && long.starts_with("spark-r-odd-id") && !long.contains('_'), "{long}");
    assert_ne!(long, name(Kind::ReplicaSet, &"Odd_Id".repeat(20), "18"));
}
