//! Single pods: ids are used once, losses are reported once, demand is met.

pub(crate) mod world;

use std::collections::BTreeSet;

use firesteel_api::executors::{AvoidedNode, Cause, Maximum, ProfileDemand};
use firesteel_core::allocation::memory::Refusal;
use firesteel_core::allocation::pod::{End, State};
use firesteel_core::allocation::size::Size;
use firesteel_core::allocation::{nodes, refusal};
use firesteel_core::pod::Words;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use crate::allocation::application::seconds;
use world::World;

#[derive(Debug, Clone)]
enum Happening {
    Want(u32),
    Pass {
        slots: u32,
        dies: Option<usize>,
    },
    Ask {
        count: usize,
        shown: bool,
    },
    Show,
    Run(u64),
    Fail(u64, i32),
    Vanish(u64),
    Evict(u64),
    Bridge,
    Wait(i64),
    /// The cluster refuses the next creation; it may have created its claims.
    Refuse {
        room: bool,
        claims_made: bool,
    },
    /// Deletions have no effect for a while.
    Slow(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    let id = 1u64..40;
    prop_oneof![
        (0u32..12).prop_map(Happening::Want),
        (0u32..8, prop::option::of(0usize..5)).prop_map(|(slots, dies)| Happening::Pass { slots, dies }),
        (0u32..8, prop::option::of(0usize..5)).prop_map(|(slots, dies)| Happening::Pass { slots, dies }),
        (1usize..6, any::<bool>()).prop_map(|(count, shown)| Happening::Ask { count, shown }),
        Just(Happening::Show),
        id.clone().prop_map(Happening::Run),
        (id.clone(), prop_oneof![Just(1), Just(137), Just(0), Just(52)])
            .prop_map(|(id, code)| Happening::Fail(id, code)),
        id.clone().prop_map(Happening::Vanish),
        id.prop_map(Happening::Evict),
        Just(Happening::Bridge),
        (0i64..90).prop_map(Happening::Wait),
        any::<(bool, bool)>().prop_map(|(room, claims_made)| Happening::Refuse { room, claims_made }),
        any::<bool>().prop_map(Happening::Slow),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_happens_ids_are_used_once_losses_told_once_and_demand_is_met(
        happenings in prop::collection::vec(happening(), 1..80),
        maximum in prop::option::of(1u32..8),
        reuse_claims in any::<bool>(),
    ) {
        let mut world = World::new(maximum, None);
        if reuse_claims {
            world.with_claims();
        }
        for happening in happenings {
            match happening {
                Happening::Want(n) => world.want(n),
                Happening::Pass { slots, dies } => {
                    let before = world.ledger.reserved_through;
                    world.pass_without_asking(slots, dies);
                    prop_assert!(world.ledger.reserved_through >= before);
                    if let Some(most) = maximum {
                        prop_assert!(world.live() <= most as usize, "{} live, {most} granted", world.live());
                    }
                }
                Happening::Ask { count, shown } => {
                    world.ask(count, shown);
                    if let Some(most) = maximum {
                        prop_assert!(world.live() <= most as usize, "{} live, {most} granted", world.live());
                    }
                }
                Happening::Show => world.unseen.clear(),
                Happening::Run(id) => world.run(id),
                Happening::Fail(id, code) => world.fail(id, code, "Error"),
                Happening::Vanish(id) => { world.pods.remove(&id); }
                Happening::Evict(id) => {
                    if let Some(pod) = world.pods.get_mut(&id) {
                        let words = Words { reason: "Evicted".into(), message: String::new() };
                        let end = End { code: -1, reason: String::new(), message: String::new(), pod: Some(words) };
                        pod.state = State::Ended(end);
                    }
                }
                Happening::Bridge => world.bridge(),
                Happening::Wait(n) => world.now += seconds(n),
                Happening::Refuse { room, claims_made } => {
                    let why = "why".to_owned();
                    world.refuse(if room { Refusal::Final(why) } else { Refusal::Quota(why) }, claims_made);
                }
                Happening::Slow(slow) => world.slow = slow,
            }
        }
        world.slow = false;
        world.settle();
        prop_assert!(world.claims.len() <= world.claims_needed, "an unused claim was not taken over");
        for (id, times) in &world.told {
            prop_assert_eq!(*times, 1, "executor {} was reported {} times", id, times);
        }
        if world.ledger.verdict.is_none() {
            let wanted = world.wanted();
            prop_assert!(world.live() >= wanted, "{} live, {wanted} wanted", world.live());
            // Settled: nothing is left to do, and another pass changes nothing.
            let decision = world.decide();
            prop_assert!(decision.missing.is_empty() && decision.remove.is_empty());
            prop_assert_eq!(&decision.ledger, &world.ledger);
        }
    }
}

#[test]
fn a_lost_executor_is_replaced_in_the_same_pass_and_the_second_failure_waits() {
    let mut world = World::new(None, Some(10));
    world.want(1);
    world.pass(9, None);
    world.run(1);
    world.now += seconds(5);
    world.fail(1, 137, "OOMKilled");
    let first = world.pass(9, None);
    assert_eq!(first.missing, [("0".to_owned(), 1)]);
    assert!(world.pods.contains_key(&2) && !world.pods.contains_key(&1));
    let loss = &world.ledger.losses[0];
    assert_eq!((loss.code, loss.cause), (137, Cause::Application));
    assert!(loss.text.contains("OOM") && loss.text.contains("memoryOverhead"), "{}", loss.text);
    // The next one fails before any executor worked again.
    world.fail(2, 1, "Error");
    let second = world.pass(9, None);
    assert!(second.missing.is_empty());
    assert_eq!(second.wake, Some(world.now + seconds(1)));
    world.now += seconds(1);
    assert_eq!(world.pass(9, None).missing.len(), 1);
}

#[test]
fn evictions_are_told_as_the_platforms_doing_and_burn_no_budget() {
    let mut world = World::new(None, Some(1));
    world.want(3);
    world.pass(9, None);
    for round in 0..5 {
        let ids: Vec<u64> = world.pods.keys().copied().collect();
        for id in ids {
            world.run(id);
            let pod = world.pods.get_mut(&id).unwrap();
            let words = Words { reason: "EvictionByEvictionAPI".into(), message: "Eviction API: evicting".into() };
            pod.disruption = Some(words);
            world.fail(id, 143, "Error");
        }
        world.now += seconds(1);
        world.pass(9, None);
        assert_eq!(world.live(), 3, "round {round}");
    }
    assert_eq!(world.ledger.failures.count, 0);
    assert!(world.ledger.losses.iter().all(|l| l.cause == Cause::Platform && l.text.contains("evicted")));
    assert!(world.ledger.verdict.is_none());
}

#[test]
fn too_many_failures_by_the_application_end_it_with_a_sentence() {
    let mut world = World::new(None, Some(3));
    world.want(2);
    for _ in 0..40 {
        world.now += seconds(61);
        world.pass(9, None);
        let ids: Vec<u64> = world.pods.keys().copied().collect();
        for id in ids {
            world.run(id);
            world.fail(id, 52, "Error");
        }
    }
    let verdict = world.ledger.verdict.clone().unwrap();
    assert_eq!(verdict.reason, "ExecutorsKeepFailing");
    assert!(verdict.message.contains("spark.executor.maxNumFailures") && verdict.message.contains("52"), "{verdict:?}");
    assert_eq!(world.live(), 0);
    assert!(world.used.len() <= 6, "{:?}", world.used);
}

#[test]
fn an_image_that_cannot_be_had_moves_executors_elsewhere_and_then_gives_up() {
    let mut world = World::new(None, Some(3));
    world.want(1);
    for _ in 0..200 {
        world.pass(9, None);
        let now = world.now;
        for pod in world.pods.values_mut() {
            pod.node = Some("node-a".into());
            let words = Words { reason: "ImagePullBackOff".into(), message: "Back-off pulling image".into() };
            pod.state = State::Pending { scheduled: true, waiting: Some(words) };
        }
        world.now = now + seconds(8);
        if world.ledger.verdict.is_some() {
            break;
        }
    }
    assert_eq!(nodes::avoided(&world.ledger.avoided_nodes, world.now), ["node-a"]);
    assert_eq!(world.ledger.failures.count, 0, "not the application's fault");
    assert_eq!(world.ledger.verdict.clone().unwrap().reason, "NoExecutorStarts");
}

/// One node, an executor that cannot start there, and the scheduler's message while it is avoided. Returns the seconds until
/// the verdict.
fn seconds_until_hopeless(message: &str) -> i64 {
    let mut world = World::new(None, None);
    world.want(2);
    let began = world.now;
    while world.ledger.verdict.is_none() {
        world.pass(9, None);
        let away = !nodes::avoided(&world.ledger.avoided_nodes, world.now).is_empty();
        let now = world.now;
        for pod in world.pods.values_mut().filter(|pod| pod.created == now) {
            let unfit =
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: none.";
            let (reason, message) = if away { ("Unschedulable", unfit) } else { ("ErrImagePull", message) };
            let waiting = Some(Words { reason: reason.into(), message: message.into() });
            pod.node = (!away).then(|| "only".into());
            pod.state = State::Pending { scheduled: !away, waiting };
        }
        world.now += seconds(1);
        assert!(world.now < began + seconds(600), "it hangs");
    }
    let verdict = world.ledger.verdict.clone().unwrap();
    assert_eq!(verdict.reason, "NoExecutorStarts");
    assert!(verdict.message.contains("6 attempts in a row") && verdict.message.contains(message), "{verdict:?}");
    assert_eq!(world.ledger.failures.count, 0, "not the application's fault");
    world.now.duration_since(began).as_secs()
}

#[test]
fn an_image_that_no_registry_has_ends_the_application_within_a_minute_and_one_that_may_come_after_two() {
    let certain = seconds_until_hopeless("rpc error: code = NotFound desc = r.example/spark:1: not found");
    assert!((30..=65).contains(&certain), "{certain}");
    let perhaps = seconds_until_hopeless("dial tcp: lookup r.example: no such host");
    assert!((90..=130).contains(&perhaps), "{perhaps}");
}

#[test]
fn pending_pods_above_the_demand_are_withdrawn_and_running_ones_never() {
    let mut world = World::new(None, None);
    world.want(4);
    world.pass(9, None);
    world.run(1);
    world.run(4);
    world.want(1);
    let decision = world.pass(9, None);
    let mut gone: Vec<&str> = decision.remove.iter().map(|r| r.name.as_str()).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["pi-exec-2", "pi-exec-3"]);
    assert!(world.ledger.losses.iter().all(|l| l.cause == Cause::Withdrawn));
    assert_eq!(world.live(), 2, "Spark itself stops what runs");
}

#[test]
fn creations_that_were_not_asked_for_yet_are_taken_back_before_pods() {
    let mut world = World::new(None, None);
    world.want(5);
    world.pass_without_asking(9, None);
    world.ask(2, true);
    world.want(1);
    let decision = world.pass_without_asking(9, None);
    assert_eq!(decision.cancel, [5, 4, 3]);
    assert_eq!(decision.remove.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["pi-exec-2"]);
    world.ask(9, true);
    assert_eq!(world.live(), 1);
    world.want(2);
    world.pass(9, None);
    assert_eq!(world.used, BTreeSet::from([1, 2, 6]), "ids of what was taken back are not used again");
}

#[test]
fn what_spark_lost_without_a_reason_is_the_platforms_after_ten_seconds() {
    let mut world = World::new(None, None).at_work(1);
    world.demand.disconnected = vec!["1".into()];
    let decision = world.pass(9, None);
    assert_eq!(decision.wake, Some(world.now + seconds(10)));
    assert!(world.ledger.losses.is_empty());
    world.now += seconds(10);
    world.pass(9, None);
    assert_eq!(world.ledger.losses[0].cause, Cause::Platform);
    assert!(world.pods.contains_key(&2));
}

#[test]
fn an_executor_that_ignores_sparks_stop_is_reaped() {
    let mut world = World::new(None, None).at_work(2);
    world.want(1);
    world.demand.registered.remove("1");
    world.pass(9, None);
    assert_eq!(world.live(), 2);
    world.now += seconds(30);
    world.pass(9, None);
    assert_eq!(world.pods.keys().collect::<Vec<_>>(), [&2]);
}

#[test]
fn demand_above_the_maxima_is_clamped_and_said_once() {
    let mut world = World::new(None, None);
    world.grant.maximum = Maximum { executors: Some(10), cores: Some(3), ..Maximum::default() };
    world.want(100);
    let decision = world.pass(99, None);
    assert_eq!(world.live(), 3);
    assert_eq!(decision.notes.iter().filter(|n| n.reason == "DemandClamped").count(), 1);
    assert!(world.pass(99, None).notes.is_empty());
    world.demand.profiles.get_mut("0").unwrap().memory = "0".into();
    assert!(world.decide().missing.is_empty(), "no limit at all is more than any limit");
}

/// A grant of four executors of the usual size, all running.
fn four_at_work() -> World {
    let mut world = World::new(Some(4), None);
    world.grant.maximum =
        Maximum { executors: Some(4), cores: Some(4), memory_mib: Some(4 * 1408), ..Maximum::default() };
    world = world.at_work(4);
    assert_eq!(world.live(), 4);
    world
}

#[test]
fn a_driver_that_asks_for_other_profiles_has_no_more_than_it_was_granted() {
    let mut world = four_at_work();
    let other = world.demand.profiles["0"].clone();
    for profile in ["1", "2", "3"] {
        world.demand.profiles = [(profile.to_owned(), other.clone())].into();
        world.pass(99, None);
        assert_eq!(world.live(), 4, "working executors are not deleted, and no others are created");
    }
    // Two are released: two others may follow.
    for id in [1, 2] {
        world.demand.registered.remove(&id.to_string());
        world.fail(id, 0, "Completed");
    }
    world.pass(99, None);
    assert_eq!(world.pods.values().filter(|p| p.profile == "3").count(), 2);
    assert_eq!(world.live(), 4);
}

#[test]
fn a_driver_that_changes_the_size_of_a_profile_has_no_more_than_it_was_granted() {
    let mut world = four_at_work();
    // All but one go; the last one has as much memory as the whole grant.
    for id in [2, 3, 4] {
        world.demand.registered.remove(&id.to_string());
        world.fail(id, 0, "Completed");
    }
    let profile = world.demand.profiles.get_mut("0").unwrap();
    (profile.wanted, profile.memory) = (4, "352Mi".to_owned());
    world.pods.get_mut(&1).unwrap().size.memory_mib = 4 * 1408;
    world.pass(99, None);
    assert_eq!(world.live(), 1);
    // Creations in flight count with the size they were requested with.
    let mut world = World::new(Some(4), None);
    world.grant.maximum.memory_mib = Some(4 * 1408);
    world.want(1);
    world.demand.profiles.get_mut("0").unwrap().memory = "5632Mi".to_owned();
    world.pass_without_asking(99, None);
    assert_eq!(world.queue[&1].flight.size, Size { cores: 1, memory_mib: 5632, ..Size::default() });
    world.want(4);
    assert!(world.decide().missing.is_empty());
}

#[test]
fn devices_of_the_template_count_though_the_driver_does_not_name_them() {
    let mut world = World::new(Some(10), None);
    let container =
        serde_json::json!({"name": "spark", "resources": {"limits": {"nvidia.com/gpu": "2", "memory": "1Gi"}}});
    world.grant.template = serde_json::from_value(serde_json::json!({"spec": {"containers": [container]}})).unwrap();
    world.grant.maximum.resources = Some([("nvidia.com/gpu".to_owned(), 5)].into());
    world.want(10);
    assert_eq!(world.decide().missing, [("0".to_owned(), 2)]);
    // Memory is not a device: it has a separate field.
    let profile = world.demand.profiles.get_mut("0").unwrap();
    profile.resources = [("memory".to_owned(), "900Gi".to_owned())].into();
    assert_eq!(world.decide().missing, [("0".to_owned(), 2)]);
}

#[test]
fn a_profile_with_too_many_words_gets_nothing() {
    let mut world = World::new(None, None);
    world.want(3);
    world.demand.profiles.get_mut("0").unwrap().env = (0..20).map(|n| (n.to_string(), "x".repeat(16_000))).collect();
    let decision = world.decide();
    assert!(decision.missing.is_empty());
    let told = decision.notes.iter().find(|n| n.reason == "DemandClamped").unwrap();
    assert!(told.text.contains("has 312 KiB of environment variables, more than 128 KiB"), "{}", told.text);
}

#[test]
fn an_executor_that_ends_well_before_it_registered_has_failed() {
    let mut world = World::new(None, Some(3));
    world.want(1);
    for _ in 0..10 {
        world.pass(9, None);
        let ids: Vec<u64> = world.pods.keys().copied().collect();
        ids.into_iter().for_each(|id| world.fail(id, 0, "Completed"));
        world.now += seconds(100);
    }
    let verdict = world.ledger.verdict.clone().expect("it ends");
    assert_eq!(verdict.reason, "ExecutorsKeepFailing");
    assert!(verdict.message.contains("(exit code 0) before it registered with the driver"), "{}", verdict.message);
    // An executor created by an earlier operator may have registered and been released.
    let mut world = World::new(None, Some(3));
    world.want(1);
    world.pass(9, None);
    world.forget();
    world.fail(1, 0, "Completed");
    world.pass(9, None);
    assert_eq!((world.ledger.failures.count, world.ledger.failures.row), (0, 0));
}

#[test]
fn executors_that_their_node_does_not_let_in_are_tried_again_later_and_elsewhere() {
    let mut world = World::new(None, None);
    world.want(1);
    world.pass(9, None);
    let mut refusals = 0;
    while world.ledger.verdict.is_none() {
        assert!(refusals < 20, "it never ends");
        if let Some(id) = world.pods.keys().next_back().copied() {
            let words = Words { reason: "OutOfexample.com/fpga".into(), message: "none is left".into() };
            world.fail(id, -1, "");
            let pod = world.pods.get_mut(&id).unwrap();
            pod.node = Some("full".to_owned());
            if let State::Ended(end) = &mut pod.state {
                end.pod = Some(words);
            }
            refusals += 1;
        }
        world.pass(9, None);
        world.now += seconds(61);
        world.pass(9, None);
    }
    assert_eq!(world.ledger.verdict.as_ref().unwrap().reason, "NoExecutorStarts");
    assert_eq!(world.ledger.failures.count, 0, "the application is not to blame");
    assert!(world.ledger.avoided_nodes.iter().any(|node| node.node == "full"));
}

#[test]
fn a_window_longer_than_the_calendar_means_all_failures() {
    let mut world = World::new(None, Some(1));
    world.grant.failures.window_seconds = Some(u64::MAX);
    world.want(1);
    for id in 1..=2 {
        world.pass(9, None);
        world.run(id);
        world.pass(9, None);
        world.fail(id, 1, "Error");
        world.now += seconds(100);
    }
    world.pass(9, None);
    assert!(world.ledger.verdict.is_some());
}

#[test]
fn a_pod_that_was_given_up_and_does_not_go_is_looked_at_when_it_should_be_gone() {
    let mut world = World::new(None, None).at_work(1);
    world.demand.disconnected = vec!["1".into()];
    world.pass(9, None);
    world.now += seconds(10);
    let lost = world.pods[&1].clone();
    world.pass(9, None);
    // Deleted, but its node does not confirm it.
    let by = world.now + seconds(30);
    world.pods.insert(1, firesteel_core::allocation::pod::ExecutorPod { leaving_by: Some(by), ..lost });
    assert_eq!(world.decide().wake, Some(by));
    world.now += seconds(31);
    let removal = world.decide().effects.remove;
    assert!(removal.iter().any(|pod| pod.uid == "uid-1" && pod.at_once), "{removal:?}");
}

#[test]
fn ids_that_no_executor_was_made_with_do_not_count_in_its_life() {
    let mut world = World::new(None, None);
    world.grant.maximum.lifetime = Some(3);
    world.want(2);
    world.ledger.reserved_through = 40;
    assert!(world.decide().missing.is_empty());
    world.ledger.unused = 38;
    assert_eq!(world.decide().missing, [("0".to_owned(), 1)]);
}

#[test]
fn named_resources_are_limited_by_the_grant_over_all_profiles() {
    let mut world = World::new(Some(10), None);
    world.grant.maximum.resources = Some([("nvidia.com/gpu".to_owned(), 5)].into());
    world.want(2);
    let gpus = |n: &str| [("nvidia.com/gpu".to_owned(), n.to_owned())].into();
    let mut large = world.demand.profiles["0"].clone();
    world.demand.profiles.get_mut("0").unwrap().resources = gpus("1");
    (large.wanted, large.resources) = (4, gpus("2"));
    world.demand.profiles.insert("1".to_owned(), large);
    let decision = world.decide();
    assert_eq!(decision.missing, [("0".to_owned(), 2), ("1".to_owned(), 1)]);
    let clamped = decision.notes.iter().find(|n| n.reason == "DemandClamped").unwrap();
    assert!(clamped.text.contains("4 executors of profile 1 wanted, 1 granted"), "{}", clamped.text);
    // Resources that the grant does not list are denied.
    world.demand.profiles.get_mut("1").unwrap().resources = [("example.com/fpga".to_owned(), "1".to_owned())].into();
    assert_eq!(world.decide().missing, [("0".to_owned(), 2)]);
    world.grant.maximum.resources = None;
    assert_eq!(world.decide().missing, [("0".to_owned(), 2), ("1".to_owned(), 4)]);
}

#[test]
fn no_more_executors_are_made_than_the_application_may_have_in_its_life() {
    let mut world = World::new(None, None);
    world.grant.maximum.lifetime = Some(4);
    world.want(3);
    world.pass(99, None);
    assert_eq!(world.live(), 3);
    for id in 1..=3 {
        world.run(id);
    }
    world.pods.remove(&1);
    world.pods.remove(&2);
    let decision = world.pass(99, None);
    assert_eq!((world.live(), decision.ledger.reserved_through), (2, 4));
    assert_eq!(world.pass(99, None).ledger.verdict, None, "it continues with what it has");
    world.pods.clear();
    let verdict = world.pass(99, None).effects.ledger.verdict.unwrap();
    assert_eq!(verdict.reason, "ExecutorsUsedUp");
    assert!(verdict.message.contains("all 4 that spark.kubernetes.allocation.maximum allows"), "{}", verdict.message);
    assert_eq!(world.live(), 0);
}

#[test]
fn when_no_node_is_left_but_avoided_ones_they_are_used_again_after_a_while() {
    let mut world = World::new(None, None);
    world.want(1);
    world.pass(9, None);
    let until = Time(world.now + seconds(600));
    let bad =
        AvoidedNode { node: "n".into(), failures: 2, last: Time(world.now), until: Some(until), why: String::new() };
    world.ledger.avoided_nodes = vec![bad];
    let words = Words { reason: "Unschedulable".into(), message: "0/1 nodes are available".into() };
    world.pods.get_mut(&1).unwrap().state = State::Pending { scheduled: false, waiting: Some(words) };
    // Nothing else happens: it sets a wake-up.
    let wake = world.pass(9, None).wake.expect("a time");
    assert!(wake <= world.now + seconds(15), "{wake}");
    world.now = wake;
    let decision = world.pass(9, None);
    assert!(decision.ledger.avoided_nodes.is_empty());
    assert_eq!(world.pods.keys().collect::<Vec<_>>(), [&2], "another one, which may go anywhere");
}

#[test]
fn when_the_application_stops_everything_goes_without_losses() {
    let mut world = World::new(None, None);
    world.want(3);
    world.pass(9, None);
    world.run(1);
    world.demand.stopped = true;
    let decision = world.pass(9, None);
    assert!(decision.over && decision.ledger.losses.is_empty());
    assert!(world.pods.is_empty());
}

#[test]
fn profiles_that_are_no_number_as_spark_writes_it_get_nothing() {
    let mut world = World::new(Some(4), None);
    let hostile = ProfileDemand { wanted: 4, cores: 1, memory: "1Gi".into(), ..ProfileDemand::default() };
    for name in ["00", "+0", "x", "4294967296"] {
        world.demand.profiles.insert(name.into(), hostile.clone());
    }
    assert!(world.decide().missing.is_empty(), "they would be counted under another id, and never be enough");
}

#[test]
fn strategies_that_cannot_be_had_are_refused_with_a_sentence() {
    use firesteel_api::executors::Strategy;
    let mut world = World::new(None, None);
    for strategy in [Strategy::Pods, Strategy::ReplicaSet, Strategy::StatefulSet] {
        world.grant.strategy = strategy;
        assert_eq!(refusal(&world.grant), None);
    }
    world.grant.dynamic = true;
    assert!(refusal(&world.grant).unwrap().contains("firesteel-replicaset"));
    world.grant.dynamic = false;
    world.grant.template.spec.as_mut().unwrap().host_network = Some(true);
    assert!(refusal(&world.grant).unwrap().contains("hostNetwork"));
    world.grant.strategy = Strategy::Pods;
    assert_eq!(refusal(&world.grant), None);
}
