//! Waiting states: each has a wake-up time, and delays count from what they follow.

use firesteel_core::identity;
use firesteel_core::lifecycle::{
    App, Decision, Effect, Limits, Observation, Seen, Submission, choose_driver, step, submitted,
};
use firesteel_core::phase::WORDS;
use firesteel_core::pod::{DriverPod, Ended, PodPhase};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::lifecycle::{self, Pi, UID, at};

impl Pi {
    fn decide(&self, (spec_hash, generation, problem): (&str, i64, Option<&str>), seen: &Observation) -> Decision {
        self.with(|app| step(&App { spec_hash, generation, problem, ..*app }, seen, &Limits::default()))
    }

    fn step(&self, (driver, confirmed): (Seen, bool), now: Timestamp, limits: &Limits) -> Decision {
        let seen = Observation { confirmed, ..Observation::of(driver, now) };
        self.with(|app| step(app, &seen, limits))
    }
}

fn driver(phase: PodPhase, deleting: bool) -> DriverPod {
    DriverPod { deleting, gone_by: deleting.then(|| at(30)), ..lifecycle::driver(phase) }
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
                let world = Pi::new(json!({"suspend": suspend, "restartPolicy": policy}), status);
                let decision = world.step(seen.clone(), at(5), &Limits::default());
                let goes_on = decision.confirm_drivers || decision.wake.is_some_and(|w| w < Timestamp::MAX);
                assert!(goes_on, "nothing wakes {word:?} with suspend={suspend} and {seen:?}");
            }
        }
    }
}

#[test]
fn d6_each_refused_submission_delays_the_next_from_its_own_time() {
    let policy = json!({"type": "OnFailure", "onSubmissionFailureRetries": 5, "onSubmissionFailureRetryInterval": 10});
    let mut world = Pi::new(json!({"restartPolicy": policy}), json!({"applicationState": {"state": ""}}));
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
        // The rejection takes a while.
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
        let mut world = Pi::new(json!({"restartPolicy": policy}), status.clone());
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
    let mut world = Pi::new(json!({"restartPolicy": {"type": "Never"}}), status);
    let last = || Seen::Present(driver(PodPhase::Failed, true));
    // The operator waits, then asks the API server itself.
    world.status = world.step((last(), false), at(1), &Limits::default()).status;
    let late = world.step((last(), false), at(1000), &Limits::default());
    assert!(late.confirm_drivers, "{late:?}");
    assert_eq!(late.status.application_state.state, "SUBMITTED");
    let gone = world.step((last(), true), at(1000), &Limits::default());
    assert_eq!(gone.status.application_state.state, "FAILING", "{gone:?}");
}

/// An observation of these driver pods, confirmed by the API server.
fn seen(driver: Seen, other_drivers: Vec<DriverPod>) -> Observation {
    Observation { other_drivers, confirmed: true, ..Observation::of(driver, at(10)) }
}

fn deleted(decision: &Decision) -> Vec<&str> {
    let deleted = decision.effects.iter().filter_map(|effect| match effect {
        Effect::DeleteDriver { uid, .. } => Some(uid.as_str()),
        _ => None,
    });
    deleted.collect()
}

fn submits(decision: &Decision) -> bool {
    decision.effects.iter().any(|effect| matches!(effect, Effect::Submit { .. }))
}

#[test]
fn an_unrecorded_driver_is_gone_before_the_next_starts_whatever_its_name() {
    let world = Pi::new(json!({"driver": {"podName": "new-name"}}), json!({"applicationState": {"state": ""}}));
    let unrecorded =
        DriverPod { submission_id: Some(identity::submission_id(UID, 1)), ..driver(PodPhase::Running, false) };
    // The cache may not show it yet: after an edit the API server itself is asked.
    let mut cached = seen(Seen::Absent { last: None }, Vec::new());
    cached.confirmed = false;
    let decision = world.decide(("edited", 2, None), &cached);
    assert!(decision.confirm_drivers && !submits(&decision), "{decision:?}");
    let decision = world.decide(("edited", 2, None), &seen(Seen::Absent { last: None }, vec![unrecorded]));
    assert_eq!(deleted(&decision), ["u"]);
    assert!(!submits(&decision));
    assert_eq!(decision.status.attempt, Some(1), "the attempt is spent");
}

#[test]
fn drivers_of_earlier_submissions_do_not_keep_running_next_to_the_current_one() {
    let id = |attempt| Some(identity::submission_id(UID, attempt));
    let of = |attempt, uid: &str| DriverPod {
        submission_id: id(attempt),
        uid: uid.to_owned(),
        name: format!("driver-{uid}"),
        ..driver(PodPhase::Running, false)
    };
    let status = json!({
        "applicationState": {"state": "RUNNING"}, "submissionID": id(2), "attempt": 2, "specHash": "h",
        "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 1,
    });
    let world = Pi::new(json!({}), status);
    let other_operators = DriverPod { submission_id: Some("random".to_owned()), ..of(0, "other") };
    let pods = vec![of(1, "first"), of(2, "second"), of(3, "third"), other_operators];
    let (current, others) = choose_driver(pods, id(2).as_deref(), "pi-driver");
    assert_eq!(current.as_ref().unwrap().uid, "second", "by its label, not by its name");
    let decision = world.decide(("h", 1, None), &seen(Seen::Present(current.unwrap()), others));
    assert_eq!(deleted(&decision), ["first", "other"], "a status that lags behind ends no newer driver");
}

#[test]
fn an_invalid_edit_waits_while_the_run_continues() {
    let mut world = Pi::new(
        json!({"restartPolicy": {"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1}}),
        json!({
            "applicationState": {"state": "RUNNING"}, "submissionID": "s", "attempt": 1, "specHash": "h",
            "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 1,
        }),
    );
    let running = seen(Seen::Present(driver(PodPhase::Running, false)), Vec::new());
    let refused = |decision: &Decision| {
        let mut conditions = decision.status.conditions.iter();
        conditions.find(|c| c.type_ == "SpecAccepted" && c.status == "False").map(|c| c.message.clone())
    };
    let broken = world.decide(("broken", 2, Some("spec.x: no")), &running);
    assert_eq!(broken.status.application_state.state, "RUNNING");
    assert!(broken.effects.is_empty() && refused(&broken).unwrap().starts_with("spec.x: no;"), "{broken:?}");
    assert_eq!(broken.events.iter().filter(|e| e.reason == "SparkApplicationSpecUpdateFailed").count(), 1);
    world.status = broken.status;
    assert!(world.decide(("broken", 2, Some("spec.x: no")), &running).events.is_empty(), "reported twice");

    // Reverted, it is not an edit; fixed, it is one like any other; so it is when a newer operator can parse it.
    let back = world.decide(("h", 3, None), &running);
    assert_eq!((back.status.application_state.state.as_str(), refused(&back)), ("RUNNING", None));
    for generation in [2, 3] {
        let mended = world.decide(("mended", generation, None), &running);
        assert_eq!((mended.status.application_state.state.as_str(), refused(&mended)), ("INVALIDATING", None));
    }

    // The run succeeds: that outcome stays.
    let mut succeeded = driver(PodPhase::Succeeded, false);
    succeeded.ended =
        Some(Ended { exit_code: 0, signal: None, reason: String::new(), message: String::new(), at: None });
    let succeeded = seen(Seen::Present(succeeded), Vec::new());
    let mut ended = Pi { spec: world.spec.clone(), status: world.status.clone() };
    for _ in 0..3 {
        let decision = ended.decide(("broken", 2, Some("spec.x: no")), &succeeded);
        assert!(decision.status.application_state.state == "COMPLETED" && refused(&decision).is_some(), "{decision:?}");
        ended.status = decision.status;
    }

    // The run fails: it is not retried with an invalid specification.
    let mut failed = driver(PodPhase::Failed, false);
    failed.ended =
        Some(Ended { exit_code: 1, signal: None, reason: String::new(), message: String::new(), at: Some(at(5)) });
    let failed = seen(Seen::Present(failed), Vec::new());
    for _ in 0..5 {
        world.status = world.decide(("broken", 2, Some("spec.x: no")), &failed).status;
    }
    assert_eq!(world.status.application_state.state, "FAILED");
    assert!(world.status.application_state.error_message.contains("spec.x: no"));
    let settled = world.decide(("broken", 2, Some("spec.x: no")), &failed);
    assert!(settled.status == world.status && deleted(&settled).is_empty() && !submits(&settled), "it comes to rest");
    let mended = world.decide(("mended", 3, None), &failed);
    assert_eq!(mended.status.application_state.state, "INVALIDATING");
}

#[test]
fn an_invalid_edit_fails_an_ended_application() {
    let world = Pi::new(
        json!({}),
        json!({
            "applicationState": {"state": "COMPLETED"}, "submissionID": "s", "attempt": 1, "specHash": "h",
            "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "terminationTime": at(5), "executionAttempts": 1,
        }),
    );
    let mut ended = driver(PodPhase::Succeeded, false);
    ended.ended =
        Some(Ended { exit_code: 0, signal: None, reason: String::new(), message: String::new(), at: Some(at(5)) });
    let decision = world.decide(("broken", 2, Some("spec.x: no")), &seen(Seen::Present(ended), Vec::new()));
    assert_eq!(decision.status.application_state.state, "FAILED");
    assert!(decision.status.application_state.error_message.contains("spec.x: no"));
    assert_eq!(deleted(&decision), [""; 0]);
}

#[test]
fn the_end_of_an_unrecorded_driver_does_not_count_for_the_next_one() {
    let id = |attempt| Some(identity::submission_id(UID, attempt));
    let world = |state: &str, suspend: bool| {
        let status = json!({
            "applicationState": {"state": state}, "submissionID": id(1), "attempt": 1, "specHash": "h",
            "observedGeneration": 1, "lastSubmissionAttemptTime": at(0), "executionAttempts": 1,
        });
        Pi::new(json!({"suspend": suspend}), status)
    };
    let unrecorded = DriverPod { submission_id: id(2), ..driver(PodPhase::Failed, false) };
    // It was created, failed and vanished: the cache may show its end before it shows the next driver.
    let gone = seen(Seen::Absent { last: Some(unrecorded.clone()) }, Vec::new());
    let decision = world("RESUMING", false).decide(("h", 1, None), &gone);
    assert!(!submits(&decision) && decision.wake.is_some());
    assert_eq!((decision.status.attempt, &decision.status.submission_id), (Some(2), &id(2)));
    // It is deleted because the application is suspended.
    let present = seen(Seen::Present(unrecorded), Vec::new());
    let decision = world("SUSPENDING", true).decide(("h", 1, None), &present);
    assert_eq!((deleted(&decision), decision.status.attempt), (vec!["u"], Some(2)));
}
