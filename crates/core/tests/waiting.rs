//! States that wait: each has a time to wake up, and delays count from what they wait after.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeMap;

use firesteel_api::{SparkApplicationSpec, SparkApplicationStatus};
use firesteel_core::conf::Subject;
use firesteel_core::driver_pod::{DriverPod, Owner, PodPhase};
use firesteel_core::lifecycle::{App, Decision, Effect, Limits, Observation, Seen, Submission, step, submitted};
use firesteel_core::phase::WORDS;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const UID: &str = "7d0a4f52-0000-4000-8000-000000000001";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

struct World {
    spec: SparkApplicationSpec,
    status: SparkApplicationStatus,
}

impl World {
    fn new(spec: Value, status: Value) -> Self {
        World { spec: serde_json::from_value(spec).unwrap(), status: serde_json::from_value(status).unwrap() }
    }

    fn with<T>(&self, f: impl FnOnce(&App<'_>) -> T) -> T {
        let labels = BTreeMap::new();
        let subject = Subject { name: "pi", namespace: "n", uid: UID, labels: &labels, spec: &self.spec };
        let status = &self.status;
        f(&App { subject, spec_hash: "h", generation: 1, deleting: false, status, problem: None })
    }

    fn step(&self, (driver, confirmed): (Seen, bool), now: Timestamp, limits: &Limits) -> Decision {
        let seen = Observation { confirmed, ..Observation::of(driver, now) };
        self.with(|app| step(app, &seen, limits))
    }
}

fn driver(phase: PodPhase, deleting: bool) -> DriverPod {
    DriverPod {
        name: "pi-driver".to_owned(),
        uid: "u".to_owned(),
        submission_id: Some("s".to_owned()),
        spec_hash: Some("h".to_owned()),
        app_id: None,
        owner: Owner::Application,
        phase,
        deleting,
        gone_by: deleting.then(|| at(30)),
        forced: false,
        node: None,
        unready: false,
        ended: None,
        failure: None,
        waiting: None,
        created: None,
    }
}

#[test]
fn d3_every_waiting_state_has_a_wake_up() {
    let drivers = [
        (Seen::Absent { last: None }, false),
        (Seen::Absent { last: None }, true),
        (Seen::Present(driver(PodPhase::Pending, false)), false),
        (Seen::Present(driver(PodPhase::Running, false)), false),
        (Seen::Present(driver(PodPhase::Running, true)), false),
        (Seen::Present(driver(PodPhase::Unknown, false)), false),
    ];
    for word in WORDS.iter().filter(|w| !matches!(**w, "COMPLETED" | "FAILED")) {
        for suspend in [false, true] {
            for seen in &drivers {
                let status = json!({
                    "applicationState": {"state": word}, "submissionID": "s", "attempt": 1, "specHash": "h",
                    "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "terminationTime": at(0),
                });
                let policy =
                    json!({"type": "Always", "onFailureRetryInterval": 100, "onSubmissionFailureRetryInterval": 100});
                let world = World::new(json!({"suspend": suspend, "restartPolicy": policy}), status);
                let decision = world.step(seen.clone(), at(5), &Limits::default());
                let goes_on = decision.confirm_absence || decision.wake.is_some_and(|w| w < Timestamp::MAX);
                assert!(goes_on, "nothing wakes {word:?} with suspend={suspend} and {seen:?}");
            }
        }
    }
}

#[test]
fn d6_each_refused_submission_delays_the_next_from_its_own_time() {
    let policy = json!({"type": "OnFailure", "onSubmissionFailureRetries": 5, "onSubmissionFailureRetryInterval": 10});
    let mut world = World::new(json!({"restartPolicy": policy}), json!({"applicationState": {"state": ""}}));
    let mut now = 0;
    for failures in 1..=4 {
        let refused = Submission::Refused("no".to_owned());
        world.status = world.with(|app| submitted(app, failures, &refused, at(now))).status;
        let nothing = (Seen::Absent { last: None }, true);
        let decision = world.step(nothing.clone(), at(now + 1), &Limits::default());
        assert_eq!(decision.wake, Some(at(now + 10 * failures)), "after {failures} failures");
        assert!(decision.effects.is_empty());
        now += 10 * failures;
        let due = world.step(nothing, at(now), &Limits::default());
        assert!(due.effects.iter().any(|e| matches!(e, Effect::Submit { .. })), "{due:?}");
        // It takes a while to be refused.
        now += 7;
    }
}

#[test]
fn a_driver_given_up_while_pending_is_deleted_before_it_can_start() {
    let status = json!({
        "applicationState": {"state": "SUBMITTED"}, "submissionID": "s", "attempt": 1, "specHash": "h",
        "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 1,
    });
    let limits = Limits { pending_timeout: Some(SignedDuration::from_secs(30)), ..Limits::default() };
    for policy in
        [json!({"type": "Never"}), json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 60})]
    {
        let mut world = World::new(json!({"restartPolicy": policy}), status.clone());
        let pending = || (Seen::Present(driver(PodPhase::Pending, false)), false);
        assert_eq!(world.step(pending(), at(20), &limits).wake, Some(at(30)));
        let given_up = world.step(pending(), at(30), &limits);
        assert_eq!(given_up.status.application_state.state, "FAILING");
        world.status = given_up.status;
        let next = world.step(pending(), at(30), &limits);
        assert!(next.effects.iter().any(|e| matches!(e, Effect::DeleteDriver { .. })), "{next:?}");
    }
}

#[test]
fn d5_a_cache_that_still_shows_the_last_attempt_does_not_decide_that_this_one_is_gone() {
    let status = json!({
        "applicationState": {"state": "SUBMITTED"}, "submissionID": "next", "attempt": 2, "specHash": "h",
        "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 2,
    });
    let mut world = World::new(json!({"restartPolicy": {"type": "Never"}}), status);
    let last = || Seen::Present(driver(PodPhase::Failed, true));
    // It is waited for, and then the API server itself is asked.
    world.status = world.step((last(), false), at(1), &Limits::default()).status;
    let late = world.step((last(), false), at(1000), &Limits::default());
    assert!(late.confirm_absence, "{late:?}");
    assert_eq!(late.status.application_state.state, "SUBMITTED");
    let gone = world.step((last(), true), at(1000), &Limits::default());
    assert_eq!(gone.status.application_state.state, "FAILING", "{gone:?}");
}
