//! A driver's exposure never decides the fate of the driver; effects are not requested over and over; a cluster that
//! fails at a submission is retried for a while, then counts as one that rejects.

use std::collections::BTreeSet;

use firesteel_api::SparkApplicationStatus;
use firesteel_core::lifecycle::{
    Decision, EXPOSURE_BUDGET, Effect, Exposed, ExposureJob, ExposureOutcome, Limits, Observation, Seen, Sent,
    Submission, Work, exposed, step, still_exposed, submitted,
};
use firesteel_core::pod::DriverPod;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::lifecycle::{Pi, UID, at, driver_metadata, submitted_once};

impl Pi {
    /// Observes, and writes the status.
    fn look(&mut self, seen: &Observation) -> Decision {
        let decision = self.with(|app| step(app, seen, &Limits::default()));
        self.status = decision.status.clone();
        decision
    }

    fn condition(&self, kind: &str) -> Option<(String, String, String)> {
        let condition = self.status.conditions.iter().find(|c| c.type_ == kind)?;
        Some((condition.status.clone(), condition.reason.clone(), condition.message.clone()))
    }

    fn state(&self) -> &str {
        &self.status.application_state.state
    }
}

fn driver(phase: &str, code: Option<i32>) -> DriverPod {
    let ended = code.map(|code| {
        json!([{"name": "spark-kubernetes-driver", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}}}])
    });
    let pod = json!({"metadata": driver_metadata(), "status": {"phase": phase, "containerStatuses": ended}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    DriverPod::read(&pod, "pi", UID)
}

fn running(now: i64, job: Option<ExposureJob>) -> Observation {
    Observation { exposure_job: job, ..Observation::of(Seen::Present(driver("Running", None)), at(now)) }
}

fn job(work: Work, failures: u32, last: i64, failed: &[&str]) -> ExposureJob {
    let failed = failed.iter().map(|&why| why.to_owned()).collect();
    let outcome = ExposureOutcome { web_service: Some("pi-ui-svc".to_owned()), failed, ..ExposureOutcome::default() };
    let (first, last) = (at(10), at(last));
    ExposureJob {
        work,
        objects: 2,
        under_way: false,
        failures,
        first,
        last,
        outcome: Some(outcome),
        kind_appeared: false,
    }
}

fn made(failures: u32, last: i64, failed: &[&str]) -> Option<ExposureJob> {
    Some(job(Work::Make { submission_id: "s".to_owned() }, failures, last, failed))
}

#[test]
fn a_driver_runs_without_its_exposure_which_is_retried_for_a_while() {
    let mut world = Pi::new(json!({}), submitted_once("RUNNING"));
    let words = "Ingress pi-ui-ingress: failed calling webhook";
    let told = world.look(&running(10, made(1, 10, &[words])));
    assert_eq!(world.state(), "RUNNING");
    let (status, reason, message) = world.condition("Exposed").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Retrying"));
    assert!(message.contains(words), "{message}");
    assert!(told.events.iter().any(|e| e.warning && e.reason == "SparkDriverNotExposed"), "{:?}", told.events);
    assert_eq!(world.status.driver_info.web_ui_service_name.as_deref(), Some("pi-ui-svc"), "what exists is shown");
    assert_eq!((told.wake, told.effects.len()), (Some(at(12)), 0));
    let next = world.look(&running(12, made(1, 10, &[words])));
    assert_eq!((next.effects, next.events.len()), (vec![Effect::Expose], 0));
    // Delays grow up to a minute.
    let late = world.look(&running(400, made(9, 400, &[words])));
    assert_eq!((late.wake, late.effects.len()), (Some(at(460)), 0));
    // It succeeds after all.
    let works = world.look(&running(470, made(0, 470, &[])));
    assert!(works.effects.is_empty());
    assert_eq!(world.condition("Exposed").unwrap().0, "True");
}

#[test]
fn exposing_is_given_up_after_its_time_limit_also_by_another_operator() {
    let mut world = Pi::new(json!({}), submitted_once("RUNNING"));
    world.look(&running(10, made(1, 10, &["no"])));
    // Another operator does not know of the tries, but the condition does.
    let next = world.look(&running(100, None));
    assert_eq!(next.effects, [Effect::Expose]);
    let over = 10 + EXPOSURE_BUDGET.as_secs();
    let fresh = ExposureJob { first: at(over), ..made(1, over, &["no"]).unwrap() };
    let given_up = world.look(&running(over, Some(fresh.clone())));
    assert!(given_up.effects.is_empty());
    assert_eq!(given_up.events.len(), 1);
    let (status, reason, message) = world.condition("Exposed").unwrap();
    assert_eq!((status.as_str(), reason.as_str(), world.state()), ("False", "GivenUp", "RUNNING"));
    assert!(message.starts_with("gave up after 30 minutes: "), "{message}");
    for seen in [Some(fresh), None] {
        let quiet = world.look(&running(over + 500, seen));
        assert!(quiet.effects.is_empty() && quiet.events.is_empty(), "{quiet:?}");
    }
}

#[test]
fn rejections_are_reported_and_not_retried() {
    let mut world = Pi::new(json!({}), submitted_once("RUNNING"));
    let mut job = made(0, 10, &[]).unwrap();
    job.outcome.as_mut().unwrap().refused = vec!["a Service named pi-ui-svc already exists".to_owned()];
    let told = world.look(&running(10, Some(job)));
    assert_eq!((told.effects.len(), told.events.len()), (0, 1));
    assert_eq!(world.condition("Exposed").unwrap().1, "Refused");
    assert!(world.look(&running(500, None)).effects.is_empty());
}

#[test]
fn a_missing_kind_is_reported_once_and_awaited_for_as_long_as_it_takes() {
    let mut world = Pi::new(json!({}), submitted_once("RUNNING"));
    let words = "HTTPRoute pi-ui-route: the cluster has no HTTPRoutes";
    let mut job = made(0, 10, &[]).unwrap();
    job.outcome.as_mut().unwrap().missing = vec![words.to_owned()];
    let told = world.look(&running(10, Some(job.clone())));
    assert_eq!((told.effects.len(), told.events.len()), (0, 1), "{told:?}");
    assert_eq!(world.condition("Exposed").unwrap(), ("False".to_owned(), "KindMissing".to_owned(), words.to_owned()));
    assert_eq!(world.state(), "RUNNING");
    let later = 10 + 2 * EXPOSURE_BUDGET.as_secs();
    let quiet = world.look(&running(later, Some(job.clone())));
    assert!(quiet.effects.is_empty() && quiet.events.is_empty(), "{quiet:?}");
    // It is there now.
    let again = world.look(&running(later, Some(ExposureJob { kind_appeared: true, ..job })));
    assert_eq!(again.effects, [Effect::Expose]);
    // Another operator looks for itself.
    assert_eq!(world.look(&running(later, None)).effects, [Effect::Expose]);
    world.look(&running(later, made(0, later, &[])));
    assert_eq!(world.condition("Exposed").unwrap().1, "Applied");
}

#[test]
fn a_slow_exposure_is_reported_once_it_exists() {
    let mut world = Pi::new(json!({}), submitted_once("SUBMITTED"));
    let waiting = Work::Wait { submission_id: "s".to_owned() };
    let decision = world.look(&running(4, Some(job(waiting, 0, 0, &[]))));
    assert_eq!(decision.effects, [Effect::Expose]);
    let under_way = ExposureJob { under_way: true, outcome: None, ..made(0, 0, &[]).unwrap() };
    let told = world.with(|app| exposed(app, decision, &under_way, at(4)));
    world.status = told.status;
    assert_eq!((world.state(), world.condition("Exposed").unwrap().1.as_str()), ("RUNNING", "Applying"));
    assert_eq!(world.status.driver_info.web_ui_service_name, None);
    assert!(told.effects.is_empty() && told.wake.is_some());
    world.look(&running(5, made(0, 5, &[])));
    assert_eq!(world.condition("Exposed").unwrap().1, "Applied");
    assert_eq!(world.status.driver_info.web_ui_service_name.as_deref(), Some("pi-ui-svc"));
}

#[test]
fn a_driver_is_exposed_when_it_runs_not_before() {
    let mut world = Pi::new(json!({}), submitted_once("SUBMITTED"));
    let waiting = || Some(job(Work::Wait { submission_id: "s".to_owned() }, 0, 0, &[]));
    let pending = |job: Option<ExposureJob>| Observation {
        exposure_job: job,
        ..Observation::of(Seen::Present(driver("Pending", None)), at(5))
    };
    for job in [waiting(), None] {
        assert!(world.look(&pending(job)).effects.is_empty());
        assert_eq!((world.state(), world.condition("Exposed")), ("SUBMITTED", None));
    }
    // It ends before anyone saw it run: this operator knows that it made nothing, another one looks.
    let ended = |job: Option<ExposureJob>| Observation {
        exposure_job: job,
        ..Observation::of(Seen::Present(driver("Succeeded", Some(0))), at(9))
    };
    for (job, effects) in [(waiting(), vec![]), (None, vec![Effect::DeleteExposure(Exposed::ALL)])] {
        let mut world = Pi { spec: world.spec.clone(), status: world.status.clone() };
        assert_eq!(world.look(&ended(job)).effects, effects);
        assert_eq!(world.state(), "COMPLETED");
    }
}

#[test]
fn the_end_does_not_wait_for_the_exposure_and_the_rest_is_deleted_later() {
    let mut world = Pi::new(json!({}), submitted_once("RUNNING"));
    world.look(&running(10, made(0, 10, &[])));
    let ended = Observation {
        exposure_job: made(0, 10, &[]),
        ..Observation::of(Seen::Present(driver("Succeeded", Some(0))), at(20))
    };
    let decision = world.look(&ended);
    assert_eq!(world.state(), "COMPLETED");
    assert!(matches!(decision.effects[..], [Effect::DeleteExposure(_)]), "{:?}", decision.effects);
    assert_eq!(world.condition("Exposed"), None);
    // Not everything is deleted at once: the status remembers that for the next observer.
    let left = job(Work::Remove, 1, 20, &["Ingress: no answer within 35 s"]);
    let told = world.with(|app| still_exposed(app, decision, &left, at(20)));
    world.status = told.status;
    assert_eq!((world.state(), world.condition("Exposed").unwrap().1.as_str()), ("COMPLETED", "Removing"));
    assert!(told.wake.is_some());
    let rest = |now: i64, job: Option<ExposureJob>| Observation {
        exposure_job: job,
        ..Observation::of(Seen::Absent { last: None }, at(now))
    };
    let early = world.look(&rest(21, Some(left.clone())));
    assert_eq!((early.effects.len(), early.wake), (0, Some(at(22))));
    for seen in [Some(left), None] {
        let mut other = Pi { spec: world.spec.clone(), status: world.status.clone() };
        let next = other.look(&rest(30, seen));
        assert!(matches!(next.effects[..], [Effect::DeleteExposure(_)]), "{next:?}");
    }
    let gone = world.look(&rest(40, Some(job(Work::Remove, 0, 40, &[]))));
    assert_eq!((gone.effects.len(), world.condition("Exposed")), (0, None));
}

#[test]
fn a_cluster_that_fails_at_a_submission_for_two_minutes_counts_as_rejecting_it() {
    let policy = json!({"type": "OnFailure", "onSubmissionFailureRetries": 1, "onSubmissionFailureRetryInterval": 10});
    let mut world = Pi::new(json!({"restartPolicy": policy}), submitted_once(""));
    world.status = SparkApplicationStatus::default();
    let why = "pod pi-driver: Internal error occurred: failed calling webhook \"w.example\": context deadline exceeded";
    let hinder = |world: &mut Pi, now: i64, times: u32| {
        let outcome = Submission::Hindered { why: why.to_owned(), since: at(0), times };
        let decision = world.with(|app| submitted(app, 1, &outcome, at(now)));
        world.status = decision.status.clone();
        decision
    };
    let first = hinder(&mut world, 0, 1);
    let (status, reason, message) = world.condition("DriverPresent").unwrap();
    assert_eq!((status.as_str(), reason.as_str(), message.as_str()), ("False", "NotCreated", why));
    assert_eq!(first.events.len(), 1, "{:?}", first.events);
    assert!(first.events[0].warning && first.events[0].note.contains("w.example"));
    assert_eq!((world.state(), first.wake), ("", Some(at(1))));
    assert!(hinder(&mut world, 60, 4).events.is_empty(), "it was reported");
    // Other events do not make the retries more frequent.
    let sent = Sent { effect: Effect::Submit { attempt: 1 }, first: at(0), last: at(60), times: 4 };
    let seen =
        |now: i64| Observation { sent: vec![sent.clone()], ..Observation::of(Seen::Absent { last: None }, at(now)) };
    let early = world.look(&seen(61));
    assert_eq!((early.effects.len(), early.wake), (0, Some(at(90))));
    assert_eq!(world.look(&seen(90)).effects, [Effect::Submit { attempt: 1 }]);
    let spent = hinder(&mut world, 120, 6);
    assert_eq!(world.state(), "SUBMISSION_FAILED");
    assert_eq!(world.status.submission_failures, Some(1));
    let message = &world.status.application_state.error_message;
    assert!(message.starts_with("failed to run spark-submit: ") && message.contains("w.example"), "{message}");
    assert!(message.contains("an admission webhook of the cluster is failing"), "{message}");
    assert!(spent.events.iter().any(|e| e.reason == "SparkApplicationSubmissionFailed"), "{:?}", spent.events);
    // The next attempt gets two minutes as well.
    let outcome = Submission::Hindered { why: why.to_owned(), since: at(130), times: 3 };
    world.status = world.with(|app| submitted(app, 2, &outcome, at(130))).status;
    assert_eq!(world.state(), "SUBMISSION_FAILED");
    assert_eq!(world.condition("DriverPresent").unwrap().1, "NotCreated");
    assert_eq!(world.status.submission_failures, Some(1), "not counted yet");
}

#[test]
fn an_operator_that_was_away_does_not_count_the_time_as_tries() {
    let mut world = Pi::new(json!({}), submitted_once(""));
    world.status = SparkApplicationStatus::default();
    for (now, since) in [(0, 0), (3600, 3600)] {
        let outcome = Submission::Hindered { why: "no".to_owned(), since: at(since), times: 1 };
        world.status = world.with(|app| submitted(app, 1, &outcome, at(now))).status;
    }
    assert_eq!(world.state(), "");
}

#[test]
fn deletes_are_sent_once_and_then_watched() {
    let mut world = Pi::new(json!({"suspend": true}), submitted_once("SUSPENDING"));
    let mut pod = driver("Running", None);
    pod.deleting = true;
    let all: BTreeSet<String> = BTreeSet::from(["s".to_owned()]);
    let look = |now: i64, undeleted: &BTreeSet<String>, sent: &[Sent]| Observation {
        undeleted: undeleted.clone(),
        sent: sent.to_vec(),
        strays: 1,
        exposure_job: Some(job(Work::Remove, 0, 0, &[])),
        ..Observation::of(Seen::Present(pod.clone()), at(now))
    };
    let first = world.look(&look(0, &all, &[])).effects;
    assert_eq!(first, [Effect::DeleteObjects { keep: None }, Effect::DeleteExecutors { keep: None }]);
    let sent: Vec<Sent> =
        first.into_iter().map(|effect| Sent { effect, first: at(0), last: at(0), times: 1 }).collect();
    // Pods may terminate slowly: the deletion is not repeated.
    for now in (2..300).step_by(2) {
        let looked = world.look(&look(now, &BTreeSet::new(), &sent));
        assert!(looked.effects.is_empty(), "at {now} s: {:?}", looked.effects);
        assert!(looked.wake.is_some());
    }
    // An executor created later is deleted too.
    assert_eq!(world.look(&look(20, &all, &sent)).effects, [Effect::DeleteExecutors { keep: None }]);
    // Other objects are not watched.
    assert_eq!(world.look(&look(300, &BTreeSet::new(), &sent)).effects, [Effect::DeleteObjects { keep: None }]);
}
