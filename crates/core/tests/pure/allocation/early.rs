//! Executors created before their driver asks for them: whatever the driver then asks for and whoever dies in between, Spark
//! meets only those it wants, no id is used twice, and none is left.

use std::collections::BTreeSet;

use firesteel_api::executors::{Cause, EarlyExecutors, ProfileDemand, Strategy};
use firesteel_core::allocation::Driver;
use firesteel_core::allocation::pod::State;
use proptest::prelude::*;

use super::application::{seconds, usual};
use super::sets;
use super::singles::world::World;

/// What the grant forecasts.
fn forecast(wanted: u32) -> EarlyExecutors {
    EarlyExecutors { profile: with_option(wanted, "-Da=1"), agent: "agent".to_owned() }
}

fn with_option(wanted: u32, option: &str) -> ProfileDemand {
    let env = [("SPARK_JAVA_OPT_0".to_owned(), option.to_owned())].into();
    ProfileDemand { env, ..usual(wanted) }
}

/// A driver that starts, with a forecast of this many executors.
fn starting(count: u32) -> World {
    let mut world = World::new(None, None);
    world.driver = Driver::Starting;
    let early = forecast(count);
    world.early = Some([("0".to_owned(), early.profile.clone())].into());
    world.grant.early = Some(early);
    world
}

/// These get a node and start. They are held, so they do not register.
fn start(world: &mut World, ids: &BTreeSet<u64>) {
    let now = world.now;
    for (id, pod) in world.pods.iter_mut().filter(|(id, _)| ids.contains(id)) {
        pod.state = State::Running { since: now };
        pod.node = Some(format!("node-{id}"));
    }
}

/// Those that are admitted register; nobody else can.
fn register(world: &mut World) {
    if world.ledger.early.as_ref().is_some_and(|early| early.admitted.is_some()) {
        let running = world.pods.values().filter(|pod| pod.early && matches!(pod.state, State::Running { .. }));
        let ids: Vec<u64> = running.filter_map(|pod| pod.id).collect();
        for id in ids {
            world.demand.registered.insert(id.to_string(), format!("10.0.0.{id}"));
        }
    }
}

fn held(world: &World) -> usize {
    world.pods.values().filter(|pod| pod.early && pod.is_live()).count()
}

proptest! {
    #[test]
    fn spark_meets_only_those_it_wants_whatever_it_changes_and_whoever_dies(
        early in 1u32..7, wanted in 0u32..9, changes in any::<bool>(), started in prop::collection::btree_set(1u64..7, 0..7),
        deaths in prop::collection::vec(prop::option::of(0usize..6), 4), slow in any::<bool>(),
    ) {
        let mut world = starting(early);
        for dies in &deaths[..2] {
            world.pass(99, *dies);
        }
        world.pass(99, None);
        prop_assert_eq!(world.live(), early as usize);
        prop_assert_eq!(held(&world), early as usize);
        start(&mut world, &started);
        world.driver = Driver::Running;
        world.demand.profiles.insert("0".into(), with_option(wanted, if changes { "-Da=2" } else { "-Da=1" }));
        // Pods that are being deleted are there until their processes have ended.
        world.slow = slow;
        for dies in &deaths[2..] {
            world.now += seconds(1);
            world.pass(99, *dies);
            register(&mut world);
            let registered = world.demand.registered.len();
            prop_assert!(registered <= wanted as usize, "{registered} registered, {wanted} wanted");
            prop_assert!(registered == 0 || !changes, "an executor with other Java options registered");
        }
        world.slow = false;
        world.now += seconds(11);
        for _ in 0..4 {
            world.now += seconds(1);
            world.pass(99, None);
            register(&mut world);
            world.bridge();
        }
        prop_assert_eq!(world.live(), wanted as usize);
        prop_assert!(world.demand.registered.len() <= wanted as usize);
        prop_assert_eq!(held(&world), if changes { 0 } else { early.min(wanted) as usize });
        let status = world.ledger.early.clone().unwrap();
        prop_assert_eq!(status.admitted.is_some(), !changes && wanted > 0, "{:?}", status);
        let application = world.ledger.losses.iter().any(|loss| loss.cause == Cause::Application);
        prop_assert!(!application && world.ledger.failures.count == 0 && world.ledger.failures.row == 0);
        world.settle();
        prop_assert_eq!(world.live(), wanted as usize);
        world.driver = Driver::Ended;
        world.pass(99, None);
        world.pass(99, None);
        prop_assert!(world.pods.is_empty(), "none is left");
    }

    #[test]
    fn members_of_sets_are_admitted_once_the_set_is_what_the_driver_wants(
        early in 1u32..5, wanted in 0u32..6, changes in any::<bool>(), stateful in any::<bool>(), runs in any::<bool>(),
        deaths in prop::collection::vec(prop::option::of(0usize..4), 3),
    ) {
        let strategy = if stateful { Strategy::StatefulSet } else { Strategy::ReplicaSet };
        let mut world = sets::world::World::new(strategy, None, None);
        world.driver = Driver::Starting;
        let granted = forecast(early);
        world.early = Some([("0".to_owned(), granted.profile.clone())].into());
        world.grant.early = Some(granted);
        for dies in deaths.into_iter().chain([None]) {
            world.pass(99, dies);
            world.control();
        }
        prop_assert_eq!(world.size(), Some(early));
        if runs {
            let now = world.now;
            world.pods.values_mut().for_each(|pod| pod.state = State::Running { since: now });
        }
        world.driver = Driver::Running;
        world.demand.profiles.insert("0".into(), with_option(wanted, if changes { "-Da=2" } else { "-Da=1" }));
        let mut admitted = false;
        for _ in 0..6 {
            world.now += seconds(1);
            world.pass(99, None);
            let now = world.ledger.early.as_ref().is_some_and(|early| early.admitted.is_some());
            if now && !admitted {
                let held = world.pods.values().filter(|pod| pod.early && pod.is_live()).count();
                prop_assert!(held <= wanted as usize && !changes, "{held} were admitted");
            }
            admitted |= now;
            world.control();
        }
        prop_assert_eq!(world.size(), (wanted > 0).then_some(wanted));
        prop_assert_eq!(admitted, !changes && wanted > 0);
        let early = world.pods.values().any(|pod| pod.early);
        prop_assert_eq!(early, admitted, "new members of a set that fits wait at an open gate");
        prop_assert_eq!(world.ledger.failures.count, 0);
    }
}

#[test]
fn a_held_executor_carries_the_agent_and_later_ones_do_not() {
    let mut world = starting(1);
    let first = world.pass(99, None).create[0].pod.clone();
    let env = first.spec.unwrap().containers[0].env.clone().unwrap();
    assert!(env.iter().any(|v| v.value.as_deref().is_some_and(|v| v.starts_with("-javaagent:"))), "{env:?}");
    world.driver = Driver::Running;
    world.demand.profiles.insert("0".into(), with_option(2, "-Da=1"));
    let decision = world.pass(99, None);
    assert!(decision.ledger.early.as_ref().unwrap().admitted.is_some(), "the first is one of the two");
    assert_eq!(decision.create.len(), 1);
    let env = decision.create[0].pod.spec.clone().unwrap().containers[0].env.clone().unwrap();
    assert!(!env.iter().any(|v| v.value.as_deref().is_some_and(|v| v.starts_with("-javaagent:"))), "{env:?}");
}

#[test]
fn a_held_executor_may_register_late_and_one_that_was_admitted_has_its_time() {
    let mut world = starting(1);
    world.pass(99, None);
    start(&mut world, &[1].into());
    world.now += seconds(500);
    assert!(world.pass(99, None).ledger.losses.is_empty(), "it waits for its driver");
    world.driver = Driver::Running;
    world.demand.profiles.insert("0".into(), with_option(1, "-Da=1"));
    world.pass(99, None);
    world.now += seconds(299);
    assert_eq!(world.pass(99, None).ledger.counts.lost, 0);
    world.now += seconds(1);
    assert_eq!(world.pass(99, None).ledger.counts.lost, 1);
}

/// Nothing is left of the early executors, nothing is counted as a failure, and nothing is created until the driver asks.
fn assert_withdrawn(world: &mut World, why: &str) {
    world.now += seconds(11);
    world.pass(99, None);
    assert_eq!((world.pods.len(), world.ledger.failures.row, world.ledger.counts.lost), (0, 0, 0));
    let early = world.ledger.early.clone().unwrap();
    assert!(early.closed.as_ref().unwrap().contains(why), "{early:?}");
    world.driver = Driver::Running;
    world.pass(99, None);
    assert_eq!(world.live(), 0);
    world.demand.profiles.insert("0".into(), with_option(2, "-Da=1"));
    world.pass(99, None);
    assert_eq!((world.live(), held(world)), (2, 0), "as if there had been none");
}

#[test]
fn early_executors_leave_the_nodes_to_a_driver_that_finds_none() {
    let mut world = starting(2);
    world.pass(99, None);
    world.unschedulable = Some(world.now);
    world.now += seconds(60);
    assert!(world.pass(99, None).remove.is_empty(), "none of them is in its way");
    start(&mut world, &[1].into());
    let decision = world.pass(99, None);
    assert_eq!(decision.remove.len(), 2);
    assert!(decision.remove.iter().all(|removal| !removal.at_once), "{decision:?}");
    assert_eq!(decision.ledger.early.as_ref().unwrap().withdrawn, 2);
    assert_withdrawn(&mut world, "no node for the driver");
}

#[test]
fn early_executors_do_not_wait_for_ever() {
    let mut world = starting(2);
    world.pass(99, None);
    start(&mut world, &[1, 2].into());
    world.driver = Driver::Running;
    let decision = world.pass(99, None);
    assert_eq!(decision.wake, Some(world.now + seconds(600)));
    world.now += seconds(600);
    assert_eq!(world.pass(99, None).remove.len(), 2);
    assert_withdrawn(&mut world, "within 10 minutes");
}

#[test]
fn an_early_executor_that_dies_takes_the_others_along_and_counts_for_nothing() {
    let mut world = starting(2);
    world.pass(99, None);
    start(&mut world, &[1, 2].into());
    world.fail(1, 1, "Error");
    let decision = world.pass(99, None);
    assert_eq!(decision.remove.len(), 2);
    assert_withdrawn(&mut world, "executor 1 ended before the driver asked for it");
}
