//! What delays the creation of executors: refusals, flapping demand, a queue that has not admitted them, and a driver that has
//! not started.

use firesteel_core::allocation::Driver;
use firesteel_core::allocation::memory::Refusal;
use firesteel_core::allocation::pod::State;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;

use crate::allocation::application::{seconds, usual};
use crate::allocation::singles::world::World;

fn milliseconds(n: i64) -> SignedDuration {
    SignedDuration::from_millis(n)
}

fn refusal(kind: usize) -> (Refusal, &'static str) {
    let why = || "why".to_owned();
    match kind {
        0 => (Refusal::Final(why()), "Refused"),
        1 => (Refusal::Quota(why()), "QuotaExceeded"),
        _ => (Refusal::Later { why: why(), retry_after: Some(std::time::Duration::from_secs(7)) }, "ApiServerBusy"),
    }
}

fn satisfied(world: &World) -> (&str, &str) {
    let condition = world.ledger.conditions.iter().find(|c| c.type_ == "Satisfied").unwrap();
    (&condition.status, &condition.reason)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn after_a_refusal_nothing_is_created_until_its_time_which_doubles_and_then_at_once(
        refusals in prop::collection::vec((0usize..3, 1usize..5, 0i64..40), 1..6)
    ) {
        let mut world = World::new(None, None);
        world.want(4);
        for (row, (kind, together, calm)) in refusals.into_iter().enumerate() {
            let created = world.pass_without_asking(9, None).create.len();
            prop_assert!(created > 0, "nothing holds it back");
            let (refusal, reason) = refusal(kind);
            for _ in 0..together {
                world.refuse(refusal.clone(), false);
            }
            let wait = if reason == "ApiServerBusy" { 7 } else { 1 << row };
            let told = world.pass_without_asking(9, None);
            prop_assert!(told.create.is_empty());
            prop_assert_eq!(told.notes.iter().filter(|note| note.reason == reason).count(), 1);
            world.queue.clear();
            world.now += seconds(wait) - milliseconds(1);
            let early = world.pass_without_asking(9, None);
            prop_assert!(early.create.is_empty() && early.notes.is_empty(), "{early:?}");
            prop_assert_eq!(satisfied(&world), ("False", reason));
            prop_assert_eq!(early.wake, Some(world.now + milliseconds(1)));
            world.now += milliseconds(1) + seconds(calm);
            world.queue.clear();
        }
        world.pass(9, None);
        prop_assert_eq!(world.live(), 4);
    }

    #[test]
    fn flapping_demand_costs_a_bounded_number_of_executors_and_lost_ones_are_replaced_at_once(
        flaps in prop::collection::vec((3u32..9, 0i64..300, any::<bool>(), any::<bool>()), 1..80)
    ) {
        // Two executors are wanted all the time.
        let mut world = World::new(None, None).at_work(2);
        let began = world.now;
        let mut created = 0;
        for (high, milli, lost, restarts) in flaps {
            for wanted in [high, 2] {
                world.want(wanted);
                created += world.pass(99, None).create.len();
                world.now += milliseconds(milli);
            }
            if lost {
                let id = *world.pods.iter().find(|(_, pod)| pod.is_live()).unwrap().0;
                world.pods.remove(&id);
                world.bridge();
                created += world.pass(99, None).create.len();
                let ids: Vec<u64> = world.pods.keys().copied().collect();
                ids.into_iter().for_each(|id| world.run(id));
                created -= 1;
            }
            prop_assert_eq!(world.live(), 2, "what is wanted all the time is there");
            if restarts {
                world.forget();
            }
        }
        let passed = usize::try_from(world.now.duration_since(began).as_secs()).unwrap();
        let most = 6 * (9 + passed / 8);
        prop_assert!(created <= most, "{created} created in {passed} s");
        world.want(5);
        world.settle();
        prop_assert_eq!(world.live(), 5);
    }

    #[test]
    fn demand_that_changes_every_ten_seconds_never_waits(flaps in prop::collection::vec((1u32..9, 10i64..60), 1..40)) {
        let mut world = World::new(None, None);
        for (wanted, pause) in flaps {
            world.want(wanted);
            prop_assert_eq!(world.pass(99, None).create.len(), wanted as usize);
            world.now += seconds(pause);
            world.want(0);
            world.pass(99, None);
            world.bridge();
        }
    }

    #[test]
    fn no_more_is_created_than_was_admitted_and_what_waits_says_so(
        changes in prop::collection::vec((0u32..9, prop::option::of(0u32..9), 0u64..12, any::<bool>()), 1..40)
    ) {
        let mut world = World::new(None, None);
        for (wanted, admitted, id, runs) in changes {
            world.want(wanted);
            world.admitted = admitted;
            if runs {
                world.run(id);
            } else {
                world.pods.remove(&id);
            }
            world.now += seconds(11);
            let before = world.live();
            let decision = world.pass(99, None);
            let most = admitted.map_or(usize::MAX, |n| n as usize);
            prop_assert!(world.live() <= before.max(most), "{} live, {most} admitted", world.live());
            prop_assert!(world.live() >= most.min(wanted as usize), "{} live, {most} admitted", world.live());
            let waits = world.live() < wanted as usize;
            prop_assert_eq!(satisfied(&world).1 == "NotAdmitted", waits, "{:?}", decision);
            world.bridge();
        }
        world.admitted = None;
        world.settle();
        prop_assert!(world.live() >= world.wanted());
    }

    #[test]
    fn executors_wanted_early_are_there_before_the_driver_and_follow_it_once_it_reports(
        early in 1u32..9, reported in 0u32..9, started in prop::collection::btree_set(1u64..9, 0..9), runs in any::<bool>()
    ) {
        let mut world = World::new(None, None);
        world.driver = Driver::Starting;
        world.pass(99, None);
        prop_assert_eq!(world.live(), 0, "nobody said so");
        world.early = Some([("0".to_owned(), usual(early))].into());
        let uid = world.ledger.driver_uid.take();
        world.pass(99, None);
        prop_assert_eq!(world.live(), 0, "executors belong to their driver's pod");
        world.ledger.driver_uid = uid;
        world.pass(99, None);
        prop_assert_eq!(world.live(), early as usize);
        for (id, pod) in world.pods.iter_mut().filter(|(id, _)| started.contains(id)) {
            pod.state = State::Running { since: pod.created };
            pod.node = Some(format!("node-{id}"));
        }
        // It runs, and has not reported yet.
        world.driver = if runs { Driver::Running } else { Driver::Starting };
        let decision = world.pass(99, None);
        prop_assert!(decision.create.is_empty() && decision.remove.is_empty());
        world.driver = Driver::Running;
        world.want(reported);
        world.pass(99, None);
        let running = started.iter().filter(|id| **id <= u64::from(early)).count();
        prop_assert_eq!(world.live(), running.max(reported as usize), "what runs stays, what does not follows demand");
    }
}

#[test]
fn three_flaps_are_free_and_the_fourth_says_why_it_waits() {
    let mut world = World::new(None, None);
    for _ in 0..4 {
        world.want(4);
        assert_eq!(world.pass(99, None).create.len(), 4);
        world.want(0);
        world.pass(99, None);
    }
    world.want(4);
    let decision = world.pass(99, None);
    assert_eq!((decision.create.len(), decision.wake), (0, Some(world.now + seconds(1))));
    assert_eq!(satisfied(&world), ("False", "DemandFlapping"));
    world.now += seconds(1);
    assert_eq!(world.pass(99, None).create.len(), 4);
}

#[test]
fn the_sixth_refusal_for_good_ends_an_application_without_executors() {
    let mut world = World::new(None, None);
    world.want(1);
    for row in 1..=6 {
        assert!(world.ledger.verdict.is_none(), "{row}");
        world.pass_without_asking(9, None);
        world.refuse(refusal(0).0, false);
        world.pass_without_asking(9, None);
        assert_eq!(world.ledger.failures.row, row);
        world.now += seconds(61);
    }
    let verdict = world.ledger.verdict.clone().unwrap();
    assert_eq!(verdict.reason, "ExecutorsRefused");
    assert_eq!(verdict.message, "the cluster refuses executors: why");
}

#[test]
fn a_deletion_without_effect_is_asked_for_again_after_ten_seconds_and_not_before() {
    let mut world = World::new(None, None).at_work(1);
    world.slow = true;
    world.fail(1, 1, "Error");
    assert_eq!(world.pass(9, None).remove.len(), 1);
    for _ in 0..3 {
        let decision = world.pass(9, None);
        assert!(decision.remove.is_empty());
        assert!(decision.wake.unwrap() <= world.now + seconds(10));
        world.now += seconds(3);
    }
    world.now += seconds(1);
    assert_eq!(world.pass(9, None).remove.len(), 1);
}

#[test]
fn counts_wait_until_three_seconds_after_the_last_write_and_what_others_have_to_know_does_not() {
    let mut world = World::new(None, None);
    world.want(2);
    let decision = world.pass(9, None);
    assert!(!decision.ledger_may_wait, "ids were reserved");
    let written = world.now;
    let before = firesteel_api::executors::ExecutorLedgerStatus::default();
    world.memory.wrote(&decision, &before, written);
    world.run(1);
    let decision = world.decide();
    assert!(decision.ledger_may_wait && decision.ledger.counts.running == 1);
    assert_eq!(decision.wake, Some(written + seconds(3)));
    world.fail(1, 1, "Error");
    assert!(!world.decide().ledger_may_wait, "a loss");
    world.run(2);
    world.pods.remove(&1);
    world.demand.registered.remove("1");
    world.now += seconds(3);
    assert!(!world.decide().ledger_may_wait, "it has waited long enough");
    // A clock that was set back.
    world.now -= seconds(3600);
    assert!(!world.decide().ledger_may_wait);
}
