//! Sets: the planner has to identify executors, whatever happens and wherever the operator crashes.

pub(crate) mod world;

use std::collections::BTreeSet;

use firesteel_api::executors::{Cause, Strategy as Kind};
use firesteel_core::allocation::memory::Memory;
use firesteel_core::allocation::nodes;
use firesteel_core::allocation::pod::State;
use firesteel_core::allocation::set_plan::SetWrite;
use firesteel_core::allocation::sets::{Trouble, name};
use firesteel_core::allocation::size::Size;
use firesteel_core::pod::Words;
use proptest::prelude::*;

use crate::allocation::application::seconds;
use world::World;

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
        // Every executor that Spark knows exists, under its own id.
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
            // Settled: nothing is left to do, and another pass changes nothing.
            let decision = world.decide();
            prop_assert!(decision.missing.is_empty() && decision.remove.is_empty() && decision.marks.is_empty(), "{decision:?}");
            prop_assert!(decision.sets.is_empty(), "{decision:?}");
            prop_assert_eq!(&decision.ledger, &world.ledger);
        }
    }
}

/// A set of `count` registered executors.
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
    // Its restart went unnoticed.
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
    assert!(decision.missing.is_empty(), "the set replaces it");
    let loss = &world.ledger.losses[0];
    assert_eq!((loss.id.as_str(), loss.cause, world.ledger.failures.count), ("2", Cause::Platform, 0));
    // A new operator notices it as well.
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
        // The operator crashes after writing the ledger, before anything else.
        world.pass(99, Some(1));
        assert!(world.pass(99, None).remove.is_empty());
        assert_eq!(world.ledger.failures.count, round);
    }
    // After two failures its node is avoided, and after a while its set has to create another pod.
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
    assert_eq!(world.ledger.verdict.as_ref().unwrap().reason, "ExecutorsKeepFailing");
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
    assert!(decision.marks.is_empty() && world.size() == Some(4), "all are busy");
    let name = world.nth(2).unwrap();
    world.end(&name, 0);
    world.run(&name);
    let decision = world.pass(99, None);
    let cheap: Vec<_> = decision.marks.iter().filter(|m| m.cheap == Some(true)).map(|m| &m.name).collect();
    assert_eq!((cheap, world.size()), (vec![&name], Some(4)));
    assert!(world.ledger.losses.is_empty(), "Spark knows");
    world.pass(99, None);
    assert_eq!(world.size(), Some(3), "the mark is seen");
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
    assert_eq!((marked, world.size()), (vec![(&new[1], Some(true))], Some(3)), "one may start any moment");
    assert_eq!(world.pods.len(), 3);
    world.pass(99, None);
    assert_eq!(world.size(), Some(2));
    world.control();
    assert_eq!((world.pods.len(), world.demand.registered.len()), (2, 2));
}

#[test]
fn a_set_that_nobody_wants_goes_and_one_with_a_busy_executor_stays() {
    let mut world = at_work(Kind::ReplicaSet, 1, None);
    world.want(0);
    world.pass(99, None);
    assert_eq!(world.size(), Some(1));
    let name = world.nth(0).unwrap();
    world.end(&name, 0);
    world.pass(99, None);
    assert!(world.set.is_none());
}

#[test]
fn a_stateful_set_keeps_its_last_pod_while_an_executor_is_in_it() {
    let mut world = at_work(Kind::StatefulSet, 3, None);
    world.want(1);
    world.end("set-1", 0);
    world.pass(99, None);
    assert_eq!(world.size(), Some(3));
    world.end("set-2", 0);
    world.pass(99, None);
    assert_eq!(world.size(), Some(1));
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

#[test]
fn a_set_whose_profile_changes_its_size_is_not_grown_and_has_to_be_gone_first() {
    let mut world = at_work(Kind::ReplicaSet, 2, None);
    world.grant.maximum.memory_mib = Some(4 * 1408);
    world.set.as_mut().unwrap().size = Some(Size { cores: 1, memory_mib: 1408, ..Size::default() });
    let profile = world.demand.profiles.get_mut("0").unwrap();
    (profile.wanted, profile.memory) = (4, "704Mi".to_owned());
    let decision = world.decide();
    assert_eq!((decision.missing.len(), decision.sets.len()), (0, 0), "those at work stay");
    world.demand.registered.clear();
    let decision = world.decide();
    assert!(decision.missing.is_empty());
    assert!(matches!(&decision.sets[..], [SetWrite::Delete { .. }]), "and then it goes: {:?}", decision.sets);
}

#[test]
fn sets_of_other_profiles_leave_what_was_granted_to_those_that_are_there() {
    let mut world = at_work(Kind::ReplicaSet, 3, None);
    world.grant.maximum.executors = Some(4);
    let mut other = world.demand.profiles["0"].clone();
    other.wanted = 4;
    world.demand.profiles = [("1".to_owned(), other)].into();
    assert_eq!(world.decide().missing, [("1".to_owned(), 1)]);
}
