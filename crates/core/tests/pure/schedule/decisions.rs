//! A schedule, its runs and a clock, all in memory. The operator may die after any effect.

use firesteel_api::names::{ANNOTATION_RUN_NOW, CONDITION_SCHEDULED};
use firesteel_api::{ScheduledSparkApplication, ScheduledSparkApplicationStatus, SparkApplicationStatus};
use firesteel_core::schedule::{
    self, Cause, Decision, Effect, NewRun, Precision, RunSeen, RunState, Sight, Started, Zones,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A cluster with one schedule.
struct World {
    object: ScheduledSparkApplication,
    runs: Vec<RunSeen>,
    now: Timestamp,
    zones: Zones,
    /// Every run that ever existed: its name and when it started.
    started: Vec<(String, Timestamp)>,
    events: Vec<(String, String)>,
    missed: usize,
    /// What the cluster says to new runs.
    refuses: Option<String>,
    /// How many effects are left before the operator dies.
    lives: Option<usize>,
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

impl World {
    fn new(now: &str, spec: Value) -> Self {
        let template = json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "i", "mainClass": "M",
            "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {},
        });
        let mut full = json!({"schedule": "0 * * * *", "template": template});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "ScheduledSparkApplication",
            "metadata": {"name": "pi", "namespace": "n", "uid": "u", "generation": 1, "labels": {"team": "a"}},
            "spec": full,
        });
        World {
            object: serde_json::from_value(object).unwrap(),
            runs: Vec::new(),
            now: at(now),
            zones: Zones::bundled(),
            started: Vec::new(),
            events: Vec::new(),
            missed: 0,
            refuses: None,
            lives: None,
        }
    }

    fn edit(&mut self, spec: Value) {
        let mut all = serde_json::to_value(&self.object.spec).unwrap();
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.object.spec = serde_json::from_value(all).unwrap();
        *self.object.metadata.generation.as_mut().unwrap() += 1;
    }

    fn ask(&mut self, request: &str) {
        let annotations = self.object.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_RUN_NOW.to_owned(), request.to_owned());
    }

    /// One effect; false once the operator is dead.
    fn lives(&mut self) -> bool {
        match &mut self.lives {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// One pass of an operator. `None` if it died.
    fn pass(&mut self) -> Option<Decision> {
        let (object, runs, zones) = (self.object.clone(), self.runs.clone(), self.zones.clone());
        let sight =
            Sight { object: &object, unreadable: None, runs: &runs, zones: &zones, precision: Precision::Nanos };
        let mut decision = schedule::step(&sight, self.now);
        self.note(&decision);
        let mut effects = std::mem::take(&mut decision.effects);
        while !effects.is_empty() {
            if !self.lives() {
                return None;
            }
            match effects.remove(0) {
                Effect::DeleteRun { name, uid, .. } => self.runs.retain(|run| (&run.name, &run.uid) != (&name, &uid)),
                Effect::RemoveRequest => {
                    self.object.metadata.annotations.as_mut().unwrap().remove(ANNOTATION_RUN_NOW);
                }
                Effect::StartRun(run) => {
                    let outcome = self.start(&sight, &run);
                    let after = schedule::started(&sight, &run, &outcome, self.now);
                    self.note(&after);
                    effects.extend(after.effects.clone());
                    decision = Decision { effects: Vec::new(), ..after };
                }
            }
        }
        if !self.lives() {
            return None;
        }
        // As it is stored: with whole seconds.
        let status: ScheduledSparkApplicationStatus =
            serde_json::from_value(serde_json::to_value(&decision.status).unwrap()).unwrap();
        self.object.status = Some(status);
        Some(decision)
    }

    fn note(&mut self, decision: &Decision) {
        self.missed += decision.missed;
        self.events.extend(decision.events.iter().map(|event| (event.reason.to_owned(), event.note.clone())));
    }

    fn start(&mut self, sight: &Sight<'_>, run: &NewRun) -> Started {
        if let Some(why) = &self.refuses {
            return Started::Refused(why.clone());
        }
        if let Some(found) = self.runs.iter().find(|other| other.name == run.name) {
            return Started::Exists { name: found.name.clone(), since: found.created.unwrap() };
        }
        let mut app = schedule::application(sight, run, &run.name);
        let uid = format!("uid-{}", self.started.len());
        app.metadata.uid = Some(uid);
        let created = Timestamp::from_second(self.now.as_second()).unwrap();
        app.metadata.creation_timestamp = Some(Time(created));
        assert!(schedule::is_run(sight, run, &app.metadata));
        self.runs.push(RunSeen::read(&app.metadata, None));
        self.started.push((run.name.clone(), self.now));
        Started::Exists { name: run.name.clone(), since: self.now }
    }

    /// Passes until nothing more is due.
    fn settle(&mut self) -> Decision {
        for _ in 0..10 {
            let decision = self.pass().unwrap();
            if decision.wake.is_none_or(|wake| wake > self.now) {
                return decision;
            }
        }
        panic!("it never settles: {:?}", self.status());
    }

    /// Moves the clock; the operator works at every wake-up in between.
    fn advance(&mut self, to: &str) {
        let to = at(to);
        loop {
            let wake = self.settle().wake;
            match wake.filter(|wake| *wake <= to) {
                Some(wake) => self.now = wake,
                None => break,
            }
        }
        self.now = to;
        self.settle();
    }

    fn status(&self) -> ScheduledSparkApplicationStatus {
        self.object.status.clone().unwrap_or_default()
    }

    fn next_run(&self) -> Option<String> {
        self.status().next_run.map(|time| time.0.to_string())
    }

    fn end(&mut self, name: &str, state: RunState) {
        self.runs.iter_mut().find(|run| run.name == name).unwrap().state = state;
    }

    fn last(&self) -> String {
        self.started.last().unwrap().0.clone()
    }

    fn said(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|(said, _)| said == reason).map(|(_, note)| note.as_str()).collect()
    }

    fn condition(&self) -> (String, String, String) {
        let status = self.status();
        let found = status.conditions.iter().find(|c| c.type_ == CONDITION_SCHEDULED).unwrap().clone();
        (found.status, found.reason, found.message)
    }
}

#[test]
fn runs_start_when_they_are_due_and_the_status_says_so() {
    let mut world = World::new("2026-11-18T09:30:00.5Z", json!({}));
    world.settle();
    let status = world.status();
    assert_eq!(status.schedule_state.as_deref(), Some("Scheduled"));
    assert_eq!(world.next_run().unwrap(), "2026-11-18T10:00:00Z");
    assert_eq!(world.said("Scheduled"), ["the next run is due at 2026-11-18 10:00:00 UTC"]);
    world.advance("2026-11-18T12:15:00Z");
    assert_eq!(world.started.len(), 3);
    let status = world.status();
    assert_eq!(status.last_run.unwrap().0, at("2026-11-18T12:00:00Z"));
    assert_eq!(status.last_run_name.unwrap(), world.last());
    assert_eq!(world.next_run().unwrap(), "2026-11-18T13:00:00Z");
    assert_eq!(world.condition(), ("True".to_owned(), "Scheduled".to_owned(), String::new()));
}

#[test]
fn a_run_is_owned_and_labelled_and_has_the_template() {
    let world = World::new("2026-11-18T09:30:00Z", json!({}));
    let object = &world.object;
    let sight = Sight { object, unreadable: None, runs: &[], zones: &world.zones, precision: Precision::Seconds };
    let due = at("2026-11-18T10:00:00Z");
    let run = NewRun { name: "pi-1".to_owned(), apart: None, cause: Cause::Due(due) };
    let app = schedule::application(&sight, &run, &run.name);
    let owner = &app.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("ScheduledSparkApplication", "u", Some(true))
    );
    let labels = app.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["sparkoperator.k8s.io/scheduled-app-name"], "pi");
    assert_eq!(labels["team"], "a");
    assert_eq!(app.spec, object.spec.template);
    assert_eq!(RunSeen::read(&app.metadata, None).due, Some(due));
    let status = |state: &str| -> SparkApplicationStatus {
        serde_json::from_value(json!({"applicationState": {"state": state}})).unwrap()
    };
    assert_eq!(RunSeen::read(&app.metadata, Some(&status("COMPLETED"))).state, RunState::Completed);
    assert_eq!(RunSeen::read(&app.metadata, Some(&status("FAILED"))).state, RunState::Failed);
    assert_eq!(RunSeen::read(&app.metadata, Some(&status("SUBMISSION_FAILED"))).state, RunState::Unfinished);
}

#[test]
fn missed_runs_collapse_into_one() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({}));
    world.settle();
    // Nobody is there for three of them.
    world.now = at("2026-11-18T12:20:00Z");
    world.settle();
    assert_eq!(world.started.len(), 1);
    assert!(world.said("RunStarted")[0].ends_with("due at 2026-11-18 10:00:00 UTC, and makes up for 3 runs"));
    assert_eq!(world.next_run().unwrap(), "2026-11-18T13:00:00Z");
}

#[test]
fn a_run_that_is_too_late_is_skipped() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"startingDeadlineSeconds": 60}));
    world.settle();
    world.now = at("2026-11-18T12:20:00Z");
    world.settle();
    assert_eq!((world.started.len(), world.missed), (0, 3));
    assert_eq!(
        world.said("RunsMissed"),
        [
            "3 runs were not started within 60 s (spec.startingDeadlineSeconds); the first was due at 2026-11-18 10:00:00 UTC"
        ]
    );
    assert_eq!(world.next_run().unwrap(), "2026-11-18T13:00:00Z");
    // The last of them is within the deadline.
    world.now = at("2026-11-18T15:00:59Z");
    world.settle();
    assert_eq!((world.started.len(), world.missed), (1, 5));
    assert_eq!(world.next_run().unwrap(), "2026-11-18T16:00:00Z");
    world.advance("2026-11-18T17:00:00Z");
    assert_eq!((world.started.len(), world.missed), (3, 5), "runs in time are not missed");
}

#[test]
fn allow_starts_beside_forbid_waits_replace_deletes() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"concurrencyPolicy": "Allow"}));
    world.advance("2026-11-18T11:00:00Z");
    assert_eq!(world.runs.len(), 2);

    let mut world = World::new("2026-11-18T09:30:00Z", json!({"concurrencyPolicy": "Forbid"}));
    world.advance("2026-11-18T12:30:00Z");
    assert_eq!(world.started.len(), 1);
    assert_eq!(world.next_run().unwrap(), "2026-11-18T11:00:00Z", "it is overdue");
    let first = world.last();
    let (status, reason, message) = world.condition();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "RunWaiting"));
    assert_eq!(
        message,
        format!("the run due at 2026-11-18 11:00:00 UTC waits for {first} to end (spec.concurrencyPolicy: Forbid)")
    );
    assert_eq!(world.said("RunWaiting").len(), 1, "once: {:?}", world.events);
    world.end(&first, RunState::Failed);
    world.settle();
    assert_eq!(world.started.len(), 2, "one run for both that were missed");
    assert_eq!(world.next_run().unwrap(), "2026-11-18T13:00:00Z");

    let mut world = World::new("2026-11-18T09:30:00Z", json!({"concurrencyPolicy": "Replace"}));
    world.advance("2026-11-18T10:30:00Z");
    let first = world.last();
    world.advance("2026-11-18T11:00:00Z");
    assert_eq!((world.runs.len(), world.started.len()), (1, 2));
    assert_eq!(world.said("RunReplaced"), [format!("run {first} is deleted: run {} replaces it", world.last())]);
}

#[test]
fn an_unset_policy_allows() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"concurrencyPolicy": ""}));
    world.advance("2026-11-18T12:00:00Z");
    assert_eq!(world.started.len(), 3);
}

#[test]
fn finished_runs_beyond_the_limits_are_deleted_at_once() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"successfulRunHistoryLimit": 2}));
    for hour in ["10", "11", "12", "13", "14"] {
        world.advance(&format!("2026-11-18T{hour}:00:00Z"));
        let state = if hour == "11" || hour == "13" { RunState::Failed } else { RunState::Completed };
        let last = world.last();
        world.end(&last, state);
        world.settle();
    }
    let names: Vec<String> = world.started.iter().map(|(name, _)| name.clone()).collect();
    let status = world.status();
    assert_eq!(status.past_successful_run_names, [names[4].clone(), names[2].clone()], "the newest first");
    assert_eq!(status.past_failed_run_names, [names[3].clone()], "one by default");
    assert_eq!(world.runs.len(), 3);
    world.edit(json!({"successfulRunHistoryLimit": 0, "failedRunHistoryLimit": 0}));
    world.settle();
    assert_eq!((world.runs.len(), world.status().past_failed_run_names.len()), (0, 0));
}

#[test]
fn an_edit_takes_effect_at_once() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"schedule": "@daily", "timeZone": "Europe/Berlin"}));
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T23:00:00Z");
    world.edit(json!({"schedule": "*/10 * * * *"}));
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T09:40:00Z");
    world.edit(json!({"schedule": "0 12 * * *", "timeZone": "Asia/Tokyo"}));
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-19T03:00:00Z");
    world.edit(json!({"schedule": "@every 1h"}));
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T10:30:00Z");
    world.edit(json!({"schedule": "@every 3h"}));
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T12:30:00Z");
    world.edit(json!({"failedRunHistoryLimit": 3}));
    world.now = at("2026-11-18T10:00:00Z");
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T12:30:00Z", "other edits move nothing");
    assert_eq!(world.started.len(), 0);
}

#[test]
fn edits_are_noticed_without_our_own_status_fields() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"schedule": "@daily"}));
    // As the existing operator left it.
    let status = json!({"scheduleState": "Scheduled", "nextRun": "2026-11-19T00:00:00Z"});
    world.object.status = Some(serde_json::from_value(status.clone()).unwrap());
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-19T00:00:00Z");
    for (schedule, next) in [
        ("@hourly", "2026-11-18T10:00:00Z"),
        ("15 10 * * *", "2026-11-18T10:15:00Z"),
        ("@every 1h", "2026-11-18T10:30:00Z"),
    ] {
        world.object.status = Some(serde_json::from_value(status.clone()).unwrap());
        world.edit(json!({"schedule": schedule}));
        world.settle();
        assert_eq!(world.next_run().unwrap(), next, "{schedule}");
    }
    // Overdue, and not an instant of the new schedule.
    let status = json!({"scheduleState": "Scheduled", "nextRun": "2026-11-18T08:00:00Z"});
    world.object.status = Some(serde_json::from_value(status.clone()).unwrap());
    world.edit(json!({"schedule": "15 10 * * *"}));
    world.settle();
    assert_eq!((world.next_run().unwrap().as_str(), world.started.len()), ("2026-11-18T10:15:00Z", 0));
    // Overdue, and one.
    world.object.status = Some(serde_json::from_value(status).unwrap());
    world.edit(json!({"schedule": "0 8 * * *"}));
    world.settle();
    assert_eq!((world.next_run().unwrap().as_str(), world.started.len()), ("2026-11-19T08:00:00Z", 1));
}

#[test]
fn bad_input_is_named_and_mending_it_is_enough() {
    for (edit, field, mended) in [
        (
            json!({"schedule": "61 * * * *"}),
            "spec.schedule: the minute \"61\" is not valid",
            json!({"schedule": "0 * * * *"}),
        ),
        (
            json!({"schedule": "0 0 30 2 *"}),
            "spec.schedule: \"0 0 30 2 *\" is never due",
            json!({"schedule": "0 * * * *"}),
        ),
        (
            json!({"timeZone": "Mars/Base"}),
            "spec.timeZone: \"Mars/Base\" is not a time zone",
            json!({"timeZone": "UTC"}),
        ),
        (
            json!({"concurrencyPolicy": "allow"}),
            "spec.concurrencyPolicy: \"allow\" is not one of",
            json!({"concurrencyPolicy": "Allow"}),
        ),
        (
            json!({"failedRunHistoryLimit": -1}),
            "spec.failedRunHistoryLimit: must not be negative",
            json!({"failedRunHistoryLimit": 1}),
        ),
        (
            json!({"startingDeadlineSeconds": -1}),
            "spec.startingDeadlineSeconds: must not",
            json!({"startingDeadlineSeconds": 9}),
        ),
        (
            json!({"template": {"type": "Scala", "sparkVersion": "4.1.4", "mainClass": "M", "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {}}}),
            "spec.template.driver.image: no image: set spec.template.image",
            json!({"template": {"type": "Scala", "sparkVersion": "4.1.4", "image": "i", "mainClass": "M", "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {}}}),
        ),
    ] {
        let mut world = World::new("2026-11-18T09:30:00Z", json!({}));
        world.settle();
        world.edit(edit.clone());
        world.settle();
        world.now = at("2026-11-18T10:30:00Z");
        world.settle();
        let status = world.status();
        assert_eq!(status.schedule_state.as_deref(), Some("FailedValidation"), "{edit}");
        assert!(status.reason.as_ref().unwrap().starts_with(field), "{:?} for {edit}", status.reason);
        assert_eq!(status.next_run, None);
        let (value, reason, message) = world.condition();
        assert_eq!(
            (value.as_str(), reason.as_str(), Some(&message)),
            ("False", "FailedValidation", status.reason.as_ref())
        );
        assert_eq!(world.said("FailedValidation").len(), 1, "{edit}: one event");
        assert_eq!(world.started.len(), 0);
        world.edit(mended);
        world.settle();
        let status = world.status();
        assert_eq!((status.schedule_state.as_deref(), status.reason), (Some("Scheduled"), None), "{edit}");
        assert_eq!(world.next_run().unwrap(), "2026-11-18T11:00:00Z", "{edit}");
        assert_eq!(world.condition().0, "True");
    }
}

#[test]
fn a_suspended_schedule_starts_nothing_and_resumes() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"suspend": true}));
    world.advance("2026-11-18T12:30:00Z");
    assert_eq!((world.started.len(), world.next_run()), (0, None));
    assert_eq!(world.condition().1, "Suspended");
    world.edit(json!({"suspend": false}));
    world.settle();
    assert_eq!((world.started.len(), world.next_run().unwrap().as_str()), (0, "2026-11-18T13:00:00Z"));
    // As with CronJobs, a run that was missed while suspended is made up for.
    world.edit(json!({"suspend": true}));
    world.advance("2026-11-18T15:30:00Z");
    assert_eq!(world.started.len(), 0);
    world.edit(json!({"suspend": false}));
    world.settle();
    assert_eq!((world.started.len(), world.next_run().unwrap().as_str()), (1, "2026-11-18T16:00:00Z"));
}

#[test]
fn a_run_starts_by_hand_and_the_schedule_goes_on() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({"concurrencyPolicy": "Forbid"}));
    world.settle();
    world.ask("now");
    world.settle();
    assert_eq!(world.started.len(), 1);
    assert!(world.last().starts_with("pi-by-hand-"));
    assert!(world.object.metadata.annotations.as_ref().unwrap().is_empty());
    assert_eq!(world.status().last_run_name.unwrap(), world.last());
    assert_eq!(world.next_run().unwrap(), "2026-11-18T10:00:00Z");
    // The same words again mean another run, once the first has ended.
    world.ask("now");
    world.settle();
    assert_eq!(world.started.len(), 1);
    assert!(world.condition().2.starts_with("the run that firesteel.dev/run-now asks for waits for pi-by-hand-"));
    let first = world.last();
    world.end(&first, RunState::Completed);
    world.settle();
    assert_eq!(world.started.len(), 2);
    let second = world.last();
    assert_ne!(first, second);
    world.end(&second, RunState::Completed);
    world.edit(json!({"suspend": true}));
    world.ask("even while suspended");
    world.settle();
    assert_eq!(world.started.len(), 3);
}

#[test]
fn a_refused_run_is_tried_again_and_a_mended_template_helps() {
    let mut world = World::new("2026-11-18T09:30:00Z", json!({}));
    world.settle();
    world.refuses = Some("quota exceeded".to_owned());
    world.now = at("2026-11-18T10:00:00Z");
    let wake = world.settle().wake.unwrap();
    assert_eq!(wake, at("2026-11-18T10:00:15Z"));
    assert!(world.status().reason.unwrap().ends_with(" cannot start: quota exceeded"));
    assert_eq!(world.condition().1, "RunRefused");
    world.refuses = None;
    world.now = wake;
    world.settle();
    assert_eq!((world.started.len(), world.status().reason), (1, None));
}

#[test]
fn every_keeps_its_beat() {
    let mut world = World::new("2026-11-18T09:30:00.2Z", json!({"schedule": "@every 10s"}));
    world.settle();
    for _ in 0..5 {
        // Each pass is late by a second and a half.
        world.now = world.status().next_run.unwrap().0 + SignedDuration::from_millis(1500);
        world.settle();
    }
    assert_eq!(world.started.len(), 5);
    assert_eq!(world.next_run().unwrap(), "2026-11-18T09:31:00Z");
    world.now = at("2026-11-18T09:40:05Z");
    world.settle();
    assert_eq!(world.next_run().unwrap(), "2026-11-18T09:40:15Z", "a new beat after a pause");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An operator that dies after any effect leaves nothing double: each instant has at most one run, and whenever an
    /// operator lives long enough, an overdue run has started.
    #[test]
    fn dying_doubles_nothing_and_loses_nothing(
        policy in proptest::sample::select(vec!["Allow", "Forbid", "Replace"]),
        every in 1_i64..40,
        pauses in proptest::collection::vec((0_i64..100, proptest::option::of(0_usize..4), any::<bool>(), any::<bool>()), 1..40),
    ) {
        let spec = json!({"schedule": format!("@every {every}s"), "concurrencyPolicy": policy});
        let mut world = World::new("2026-11-18T09:30:00Z", spec);
        world.settle();
        let mut asked = 0;
        for (pause, lives, ends, asks) in pauses {
            world.now += SignedDuration::from_secs(pause);
            if ends && let Some(run) = world.runs.last_mut() {
                run.state = RunState::Completed;
            }
            if asks && world.object.metadata.annotations.as_ref().is_none_or(std::collections::BTreeMap::is_empty) {
                world.ask("now");
                asked += 1;
            }
            world.lives = lives;
            while world.pass().is_some() && world.lives.is_some() {}
            world.lives = None;
            world.settle();
            let active = world.runs.iter().filter(|run| run.state == RunState::Unfinished).count();
            if policy != "Allow" {
                prop_assert!(active <= 1, "{} at once", active);
            }
            let next = world.status().next_run.unwrap().0;
            prop_assert!(next > world.now || (policy == "Forbid" && active == 1), "{} is overdue at {}", next, world.now);
        }
        let mut names: Vec<&String> = world.started.iter().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), count, "a run was started twice");
        let by_hand = names.iter().filter(|name| name.contains("by-hand")).count();
        let waits = usize::from(!world.object.metadata.annotations.clone().unwrap_or_default().is_empty());
        prop_assert_eq!(by_hand, asked - waits);
    }
}
