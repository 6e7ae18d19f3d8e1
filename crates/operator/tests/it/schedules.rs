//! ScheduledSparkApplications: runs every few seconds under each policy, edits, bad input, history, runs by hand, and an
//! operator that was away.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use firesteel_api::{ScheduledSparkApplication, ScheduledSparkApplicationStatus, SparkApplication};
use firesteel_core::schedule::Precision;
use firesteel_testenv::TestEnv;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, PATIENCE, block_on, json_patch, state};
use crate::kubelet::{Drivers, Fate, play};

/// Schedules in the namespace of a fixture.
pub(crate) struct Schedules<'a> {
    f: &'a Fixture,
    api: Api<ScheduledSparkApplication>,
}

impl<'a> Schedules<'a> {
    pub(crate) fn of(f: &'a Fixture) -> Self {
        Schedules { f, api: Api::namespaced(f.client.clone(), f.namespace.name()) }
    }

    /// Creates a schedule whose drivers stay pending until something plays the kubelet.
    pub(crate) async fn create(&self, name: &str, spec: &Value) {
        let mut full = json!({"schedule": "@every 2s", "template": {
            "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
            "mainApplicationFile": "local:///opt/app.jar",
            "driver": {"serviceAccount": "spark", "nodeSelector": {"no": "where"}}, "executor": {"instances": 1},
        }});
        json_patch(&mut full, spec);
        let schedule = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "ScheduledSparkApplication",
            "metadata": {"name": name, "labels": {"team": "data"}}, "spec": full,
        });
        // Untyped: some tests write what the types cannot represent.
        let resource = ApiResource::erase::<ScheduledSparkApplication>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.f.client.clone(), self.f.namespace.name(), &resource);
        api.create(&PostParams::default(), &serde_json::from_value(schedule).unwrap()).await.unwrap();
    }

    pub(crate) async fn edit(&self, name: &str, spec: &Value) {
        let patch = json!({"spec": spec});
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Pretends that an operator was here before.
    pub(crate) async fn set_status(&self, name: &str, status: &Value) {
        let patch = json!({"status": status});
        self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn ask(&self, name: &str, words: &str) {
        let patch = json!({"metadata": {"annotations": {"firesteel.dev/run-now": words}}});
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn status(&self, name: &str) -> ScheduledSparkApplicationStatus {
        self.api.get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until a status satisfies a condition.
    pub(crate) async fn wait(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&ScheduledSparkApplicationStatus) -> bool,
    ) -> ScheduledSparkApplicationStatus {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let status = self.status(name).await;
            if condition(&status) {
                return status;
            }
            let shown = serde_json::to_string_pretty(&status).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "{name} never was {what}: {shown}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs that exist, by name.
    pub(crate) async fn runs(&self, schedule: &str) -> BTreeMap<String, SparkApplication> {
        let label = format!("sparkoperator.k8s.io/scheduled-app-name={schedule}");
        let list = self.f.apps.list(&ListParams::default().labels(&label)).await.unwrap();
        list.items.into_iter().map(|run| (run.name_any(), run)).collect()
    }

    /// Waits until there are this many runs, or more.
    async fn wait_runs(&self, schedule: &str, count: usize) -> BTreeMap<String, SparkApplication> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let runs = self.runs(schedule).await;
            if runs.len() >= count {
                return runs;
            }
            assert!(tokio::time::Instant::now() < deadline, "only {:?}", runs.keys());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn kubelet(f: &Fixture, fate: fn(&str) -> Fate) -> (JoinHandle<()>, Drivers) {
    let seen = Drivers::default();
    (tokio::spawn(play(f.pods.clone(), fate, seen.clone())), seen)
}

/// When a run was due.
fn due(run: &SparkApplication) -> Option<Timestamp> {
    run.annotations().get("firesteel.dev/scheduled-for")?.parse().ok()
}

fn is_active(run: &SparkApplication) -> bool {
    run.metadata.deletion_timestamp.is_none() && !matches!(state(run).as_str(), "COMPLETED" | "FAILED")
}

fn condition(status: &ScheduledSparkApplicationStatus) -> (String, String, String) {
    let found = status.conditions.iter().find(|c| c.type_ == "Scheduled").cloned();
    found.map(|c| (c.status, c.reason, c.message)).unwrap_or_default()
}

async fn notes(f: &Fixture, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(f.client.clone(), f.namespace.name());
    let list = events.list(&ListParams::default()).await.unwrap().items;
    list.into_iter().filter(|e| e.reason.as_deref() == Some(reason)).filter_map(|e| e.note).collect()
}

#[test]
fn allow_starts_runs_beside_each_other_and_they_go_with_their_schedule() {
    block_on(async {
        let Some(f) = Fixture::new("allow").await else { return };
        let (kubelet, _) = kubelet(&f, |_| Fate::RunsOn);
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({})).await;
        let status = schedules.wait("pi", "scheduled", |s| s.schedule_state.as_deref() == Some("Scheduled")).await;
        assert!(status.next_run.unwrap().0 > Timestamp::now() - SignedDuration::from_secs(1));
        let runs = schedules.wait_runs("pi", 3).await;
        let uid = schedules.api.get("pi").await.unwrap().uid().unwrap();
        let mut instants = BTreeSet::new();
        for (name, run) in &runs {
            assert!(name.strip_prefix("pi-").is_some_and(|n| n.len() == 19 && n.bytes().all(|c| c.is_ascii_digit())));
            let owner = &run.owner_references()[0];
            assert_eq!((owner.uid.as_str(), owner.controller), (uid.as_str(), Some(true)));
            assert_eq!(run.labels()["team"], "data");
            let (due, created) = (due(run).unwrap(), run.creation_timestamp().unwrap().0);
            assert!(instants.insert(due));
            let late = created.duration_since(due).as_secs();
            assert!((0..=3).contains(&late), "{name} was due at {due} and created at {created}");
        }
        let steps: Vec<i64> =
            instants.iter().zip(instants.iter().skip(1)).map(|(a, b)| b.duration_since(*a).as_secs()).collect();
        assert!(steps.iter().all(|step| *step == 2), "{instants:?}");
        f.wait_state(runs.keys().next().unwrap(), "RUNNING").await;
        assert!(f.event("RunStarted").await.starts_with("run pi-"));
        let (last, next) = {
            let status = schedules.status("pi").await;
            (status.last_run.unwrap().0, status.next_run.unwrap().0)
        };
        assert!(next > last);
        // Everything goes with the schedule.
        schedules.api.delete("pi", &DeleteParams::background()).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !schedules.runs("pi").await.is_empty()
            || !f.pods.list(&ListParams::default()).await.unwrap().items.is_empty()
        {
            assert!(tokio::time::Instant::now() < deadline, "runs are left over");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        kubelet.abort();
    });
}

#[test]
fn forbid_waits_for_the_run_before() {
    block_on(async {
        let Some(f) = Fixture::new("forbid").await else { return };
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"concurrencyPolicy": "Forbid"})).await;
        let first = schedules.wait_runs("pi", 1).await.into_keys().next().unwrap();
        let status = schedules.wait("pi", "waiting", |s| condition(s).1 == "RunWaiting").await;
        let (value, _, message) = condition(&status);
        assert!(value == "True" && message.contains(&format!(" waits for {first} to end ")), "{message}");
        assert!(f.event("RunWaiting").await.contains(&first));
        let overdue = status.next_run.unwrap().0;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(schedules.runs("pi").await.len(), 1);
        f.driver(&first, 1).await;
        f.run_driver(&first).await;
        f.end_driver(&first, 0).await;
        let runs = schedules.wait_runs("pi", 2).await;
        let second = runs.values().find(|run| run.name_any() != first).unwrap();
        assert_eq!(due(second), Some(overdue), "one run for all that were due meanwhile");
        let status = schedules.wait("pi", "settled", |s| s.last_run_name == second.metadata.name).await;
        assert_eq!(status.past_successful_run_names, [first]);
        assert_eq!(schedules.runs("pi").await.values().filter(|run| is_active(run)).count(), 1);
    });
}

#[test]
fn replace_deletes_the_run_before() {
    block_on(async {
        let Some(f) = Fixture::new("replace").await else { return };
        let (kubelet, _) = kubelet(&f, |_| Fate::RunsOn);
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"concurrencyPolicy": "Replace"})).await;
        let mut seen = BTreeSet::new();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while seen.len() < 4 {
            let runs = schedules.runs("pi").await;
            let active: Vec<&String> = runs.iter().filter(|(_, run)| is_active(run)).map(|(name, _)| name).collect();
            assert!(active.len() <= 1, "{active:?}");
            seen.extend(active.into_iter().cloned());
            assert!(tokio::time::Instant::now() < deadline, "only {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(f.event("RunReplaced").await.contains(" is deleted: run pi-"));
        kubelet.abort();
    });
}

#[test]
fn an_operator_that_was_away_for_three_runs_starts_one() {
    block_on(async {
        let Some(mut f) = Fixture::new("away").await else { return };
        Schedules::of(&f).create("pi", &json!({})).await;
        Schedules::of(&f).wait_runs("pi", 1).await;
        f.stop_operator();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let schedules = Schedules::of(&f);
        let before = schedules.runs("pi").await;
        let overdue = schedules.status("pi").await.next_run.unwrap().0;
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(schedules.runs("pi").await.len(), before.len());
        let back = Timestamp::now();
        f.start_operator();
        let schedules = Schedules::of(&f);
        let after = schedules.wait_runs("pi", before.len() + 3).await;
        let mut instants: Vec<Timestamp> = after.values().filter_map(due).collect();
        instants.sort();
        let count = instants.len();
        instants.dedup();
        assert_eq!(instants.len(), count, "a run was doubled");
        let missed: Vec<&Timestamp> = instants.iter().filter(|at| **at >= overdue && **at <= back).collect();
        assert_eq!(missed, [&overdue], "one run for three");
        let notes = notes(&f, "RunStarted").await;
        assert!(notes.iter().any(|note| note.contains(", and makes up for ")), "{notes:?}");
    });
}

#[test]
fn a_schedule_that_is_late_beyond_its_deadline_skips_runs() {
    block_on(async {
        let Some(f) = Fixture::new("deadline").await else { return };
        let schedules = Schedules::of(&f);
        // Overdue since New Year.
        let spec = json!({"schedule": "0 0 1 1 *", "timeZone": "UTC", "suspend": true, "startingDeadlineSeconds": 60});
        schedules.create("pi", &spec).await;
        schedules.wait("pi", "suspended", |s| condition(s).1 == "Suspended").await;
        schedules.set_status("pi", &json!({"nextRun": "2026-01-01T00:00:00Z"})).await;
        schedules.edit("pi", &json!({"suspend": false})).await;
        let status = schedules.wait("pi", "scheduled anew", |s| condition(s).1 == "Scheduled").await;
        assert!(status.next_run.unwrap().0 > Timestamp::now());
        assert!(
            f.event("RunsMissed")
                .await
                .contains("(spec.startingDeadlineSeconds); the first was due at 2026-01-01 00:00:00 UTC")
        );
        assert!(schedules.runs("pi").await.is_empty());
    });
}

#[test]
fn d10_edits_take_effect_at_once_and_bad_input_recovers() {
    block_on(async {
        let Some(f) = Fixture::new("edits").await else { return };
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"schedule": "0 3 * * *", "timeZone": "Europe/Berlin"})).await;
        let status = schedules.wait("pi", "scheduled", |s| s.next_run.is_some()).await;
        assert_eq!(status.observed_schedule.as_deref(), Some("CRON_TZ=Europe/Berlin 0 3 * * *"));
        let shown = status.next_run.unwrap().0.in_tz("Europe/Berlin").unwrap();
        assert_eq!((shown.hour(), shown.minute()), (3, 0));
        for (bad, says) in [
            (json!({"schedule": "0 25 * * *"}), "spec.schedule: the hour \"25\" is not valid: 25 is above 23"),
            (
                json!({"schedule": "0 3 * * *", "timeZone": "Europe/Atlantis"}),
                "spec.timeZone: \"Europe/Atlantis\" is not a time zone; write",
            ),
            (json!({"timeZone": "UTC", "template": {"sparkVersion": "four"}}), "spec.template.sparkVersion: "),
        ] {
            schedules.edit("pi", &bad).await;
            let is_refused = |s: &ScheduledSparkApplicationStatus| {
                s.schedule_state.as_deref() == Some("FailedValidation") && s.reason.as_ref().unwrap().starts_with(says)
            };
            let status = schedules.wait("pi", says, is_refused).await;
            let (value, reason, message) = condition(&status);
            assert_eq!((value.as_str(), reason.as_str()), ("False", "FailedValidation"));
            assert!(message.starts_with(says) && status.next_run.is_none(), "{message}");
            assert!(notes(&f, "FailedValidation").await.len() <= 1, "repeated events are one series");
        }
        // What the API server can judge, it refuses.
        for (bad, says) in [
            (
                json!({"concurrencyPolicy": "Never"}),
                "spec.concurrencyPolicy: Invalid value: \"Never\" is not one of Allow, Forbid, Replace",
            ),
            (
                json!({"startingDeadlineSeconds": -1}),
                "spec.startingDeadlineSeconds: Invalid value: must not be negative",
            ),
        ] {
            let patch = json!({"spec": bad});
            let refused = schedules.api.patch("pi", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
            let said = refused.to_string();
            let parts = says.split(": Invalid value: ");
            assert!(parts.into_iter().all(|part| said.contains(part)), "{said}");
        }
        // Another schedule is not disturbed.
        schedules.create("other", &json!({"schedule": "@every 1s"})).await;
        schedules.wait_runs("other", 2).await;
        schedules.edit("pi", &json!({"schedule": "@every 1s", "template": {"sparkVersion": "4.1.4"}})).await;
        schedules.wait_runs("pi", 2).await;
        let status = schedules.status("pi").await;
        assert_eq!((status.schedule_state.as_deref(), status.reason), (Some("Scheduled"), None));
        // To yearly: nothing more is due.
        schedules.edit("pi", &json!({"schedule": "@yearly"})).await;
        schedules
            .wait("pi", "yearly", |s| s.observed_schedule.as_deref().is_some_and(|o| o.ends_with("@yearly")))
            .await;
        let count = schedules.runs("pi").await.len();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(schedules.runs("pi").await.len(), count);
    });
}

#[test]
fn a_suspended_schedule_starts_nothing() {
    block_on(async {
        let Some(f) = Fixture::new("suspend").await else { return };
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"schedule": "@every 1s", "suspend": true})).await;
        schedules.wait("pi", "suspended", |s| condition(s).1 == "Suspended").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(schedules.runs("pi").await.is_empty());
        schedules.edit("pi", &json!({"suspend": false})).await;
        schedules.wait_runs("pi", 2).await;
        schedules.edit("pi", &json!({"suspend": true})).await;
        schedules.wait("pi", "suspended again", |s| condition(s).1 == "Suspended").await;
        let count = schedules.runs("pi").await.len();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(schedules.runs("pi").await.len(), count);
    });
}

#[test]
fn d10_finished_runs_beyond_the_limits_are_deleted_at_once() {
    block_on(async {
        let Some(f) = Fixture::new("history").await else { return };
        let (kubelet, drivers) = kubelet(&f, |_| Fate::Succeeds);
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"schedule": "@every 1s", "successfulRunHistoryLimit": 2})).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while drivers.lock().unwrap().len() < 6 {
            assert!(tokio::time::Instant::now() < deadline, "only {drivers:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        schedules.edit("pi", &json!({"suspend": true})).await;
        let is_quiet = |runs: &BTreeMap<String, SparkApplication>| runs.len() == 2 && !runs.values().any(is_active);
        while !is_quiet(&schedules.runs("pi").await) {
            let runs = schedules.runs("pi").await;
            let states: Vec<_> = runs.values().map(|run| (run.name_any(), state(run))).collect();
            assert!(tokio::time::Instant::now() < deadline, "{states:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut kept: Vec<String> = schedules.runs("pi").await.into_keys().collect();
        kept.reverse();
        schedules.wait("pi", "done", |s| s.past_successful_run_names == kept).await;
        assert_eq!(schedules.status("pi").await.last_run_name.as_ref(), kept.first(), "the newest are kept");
        schedules.edit("pi", &json!({"successfulRunHistoryLimit": 0})).await;
        while !schedules.runs("pi").await.is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "runs are left over");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        kubelet.abort();
    });
}

#[test]
fn kubectl_starts_a_run_by_hand() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let Some(f) = Fixture::new("hand").await else { return };
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"schedule": "@yearly", "suspend": true})).await;
        for count in 1..=2 {
            let mut kubectl = Command::new(env.kubectl());
            kubectl.arg("--kubeconfig").arg(env.kubeconfig()).args(["-n", f.namespace.name()]);
            kubectl.args(["annotate", "scheduledsparkapp", "pi", "firesteel.dev/run-now=please"]);
            let done = tokio::task::spawn_blocking(move || kubectl.status().unwrap()).await.unwrap();
            assert!(done.success());
            let runs = schedules.wait_runs("pi", count).await;
            let last = |s: &ScheduledSparkApplicationStatus| s.last_run_name.clone().unwrap_or_default();
            schedules.wait("pi", "started", |s| last(s).starts_with("pi-by-hand-")).await;
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while schedules.api.get("pi").await.unwrap().annotations().contains_key("firesteel.dev/run-now") {
                assert!(tokio::time::Instant::now() < deadline, "the annotation stays");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            schedules.wait("pi", "started", |s| runs.contains_key(&last(s))).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(schedules.runs("pi").await.len(), 2);
    });
}

#[test]
fn names_of_runs_fit_and_step_aside() {
    block_on(async {
        let Some(f) = Fixture::tuned("names", |options| options.run_names = Precision::Minutes).await else { return };
        let (kubelet, _) = kubelet(&f, |_| Fate::RunsOn);
        let schedules = Schedules::of(&f);
        let long = format!("nightly.{}", "x".repeat(200));
        let spec = json!({"schedule": "0 0 1 1 *", "timeZone": "UTC", "suspend": true});
        // Something else has the name.
        let taken = Timestamp::from_second(1_767_225_600).unwrap();
        assert_eq!(taken.to_string(), "2026-01-01T00:00:00Z");
        f.create(&format!("pi-{}", taken.as_second() / 60), &json!({"suspend": true})).await;
        for name in ["pi", long.as_str()] {
            schedules.create(name, &spec).await;
            schedules.wait(name, "suspended", |s| condition(s).1 == "Suspended").await;
            schedules.set_status(name, &json!({"nextRun": "2026-01-01T00:00:00Z"})).await;
            schedules.edit(name, &json!({"suspend": false})).await;
            let status = schedules.wait(name, "started", |s| s.last_run_name.is_some()).await;
            let run = status.last_run_name.unwrap();
            assert!(run.len() <= 63, "{run}");
            f.wait_state(&run, "RUNNING").await;
            if name == "pi" {
                assert!(run.starts_with("pi-1767225600-"), "{run}");
            }
        }
        kubelet.abort();
    });
}

#[test]
fn a_refused_run_says_why_and_starts_once_the_cluster_allows_it() {
    block_on(async {
        let Some(f) = Fixture::new("refused").await else { return };
        let schedules = Schedules::of(&f);
        // A policy, because its rule holds for every kind from the start; a quota controller first has to discover it.
        let name = f.namespace.name();
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(f.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(f.client.clone());
        let rule = json!({"apiGroups": ["sparkoperator.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["sparkapplications"]});
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false", "message": "no runs this week"}]}});
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let binding = json!({"metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}}});
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let probe = PostParams { dry_run: true, ..PostParams::default() };
        let spec = json!({"type": "Python", "sparkVersion": "4.1.4", "image": "i", "mainApplicationFile": "local:///a.py",
            "driver": {}, "executor": {}});
        while f.try_create(&json!({"name": "probe"}), &spec, &probe).await.is_ok() {
            assert!(tokio::time::Instant::now() < deadline, "the policy never comes into force");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        schedules.create("pi", &json!({"schedule": "@every 1s"})).await;
        let status = schedules.wait("pi", "refused", |s| condition(s).1 == "RunRefused").await;
        assert!(status.reason.unwrap().contains("no runs this week"));
        assert!(f.event("RunRefused").await.contains("no runs this week"));
        bindings.delete(name, &DeleteParams::default()).await.unwrap();
        policies.delete(name, &DeleteParams::default()).await.unwrap();
        schedules.wait_runs("pi", 1).await;
        schedules.wait("pi", "recovered", |s| condition(s).1 == "Scheduled" && s.reason.is_none()).await;
    });
}

#[test]
fn a_run_that_needs_a_batch_scheduler_fails_with_what_to_use_instead() {
    block_on(async {
        let Some(f) = Fixture::new("batch-runs").await else { return };
        let schedules = Schedules::of(&f);
        schedules.create("pi", &json!({"schedule": "@every 1s", "template": {"batchScheduler": "volcano"}})).await;
        let runs = schedules.wait_runs("pi", 1).await;
        let name = runs.keys().next().unwrap();
        let app = f.wait_state(name, "FAILED").await;
        let message = app.status.unwrap().application_state.error_message;
        assert!(message.contains("spec.batchScheduler: \"volcano\"") && message.contains("schedulerName"), "{message}");
    });
}
