//! The operator with the existing operator's CRDs, which stay in place when people switch. They keep none of
//! Firesteel's own status fields. These tests have their own control plane: all others share one, and CRDs are
//! cluster-wide.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use firesteel_api::ScheduledSparkApplicationStatus;
use firesteel_api::crds::{self, UPDATE_COMMAND};
use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE, block_on, condition, message, start, state};
use crate::schedules::Schedules;

const APPLICATIONS: &str = "sparkapplications.sparkoperator.k8s.io";

/// Tests that change the CRDs need exclusive access to them.
static DEFINITIONS: RwLock<()> = RwLock::new(());

/// The control plane, with the CRDs as Helm installs them.
fn plane() -> Option<(&'static TestEnv, PathBuf)> {
    static PLANE: OnceLock<Option<(&'static TestEnv, PathBuf)>> = OnceLock::new();
    let plane = PLANE.get_or_init(|| {
        let definitions = TestEnv::kubeflow_crds()?;
        let env = TestEnv::own()?;
        kubectl(env, &["create", "--field-manager=helm", "-f", definitions.to_str()?], "");
        Some((env, definitions))
    });
    plane.clone()
}

fn kubectl(env: &TestEnv, args: &[&str], input: &str) {
    let mut kubectl = Command::new(env.kubectl());
    let child = kubectl.arg("--kubeconfig").arg(env.kubeconfig()).args(args);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "kubectl {args:?}");
}

/// Keeps other tests from changing the CRDs.
fn unchanged() -> impl Drop {
    DEFINITIONS.read().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace with its own operator.
async fn fixture(prefix: &str) -> Option<Fixture> {
    let (env, _) = tokio::task::spawn_blocking(plane).await.unwrap()?;
    let client = env.client().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(definitions, APPLICATIONS, is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
    let namespace = env.namespace(prefix).await;
    let operator = start(client.clone(), namespace.name());
    Some(Fixture::around(namespace, client, operator))
}

/// Another operator takes over, without any memory.
async fn restart(f: &mut Fixture) {
    f.stop_operator();
    tokio::time::sleep(Duration::from_millis(500)).await;
    f.start_operator();
}

/// Waits for the driver pod of an attempt, identified by its annotation, and for the application that reports it.
async fn driver(f: &Fixture, name: &str, attempt: u32) -> Pod {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let pod = loop {
        let pod = f.pods.get_opt(&format!("{name}-driver")).await.unwrap();
        let found = pod.filter(|pod| pod.annotations().get("firesteel.dev/attempt") == Some(&attempt.to_string()));
        if let Some(pod) = found {
            break pod;
        }
        let app = f.apps.get(name).await.unwrap();
        assert!(tokio::time::Instant::now() < deadline, "no driver of attempt {attempt}: {:?}", app.status);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let id = pod.labels()["sparkoperator.k8s.io/submission-id"].clone();
    f.wait(name, "submitted", |app| app.status.as_ref().is_some_and(|s| s.submission_id.as_ref() == Some(&id))).await;
    pod
}

#[test]
fn the_fields_that_get_lost_are_known() {
    let Some(definitions) = TestEnv::kubeflow_crds() else { return };
    let text = std::fs::read_to_string(definitions.join("sparkoperator.k8s.io_sparkapplications.yaml")).unwrap();
    let found: Value = serde_saphyr::from_str(&text).unwrap();
    let lost = [
        "spec.driverPodDisruptionBudget",
        "status.attempt",
        "status.conditions",
        "status.executorCounts",
        "status.observedGeneration",
        "status.runFailures",
        "status.specHash",
        "status.stateTimes",
        "status.submissionFailures",
    ];
    assert_eq!(crds::lacks(APPLICATIONS, &found), lost);
}

#[test]
fn an_application_on_kubeflow_definitions_runs_to_its_end() {
    let _definitions = unchanged();
    block_on(async {
        let Some(mut f) = fixture("complete").await else { return };
        f.create("pi", &json!({})).await;
        driver(&f, "pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait_state("pi", "RUNNING").await;
        let status = app.status.clone().unwrap();
        assert!(status.conditions.is_empty() && status.attempt.is_none(), "these definitions keep it: {status:?}");
        f.executor(&app, 1, "Running").await;
        f.wait("pi", "with an executor", |app| {
            app.status.as_ref().is_some_and(|s| s.executor_state.values().any(|word| word == "RUNNING"))
        })
        .await;
        restart(&mut f).await;
        f.end_driver("pi", 0).await;
        let status = f.wait_state("pi", "COMPLETED").await.status.unwrap();
        assert_eq!((status.submission_attempts, status.execution_attempts), (1, 1));
        let told = f.event("SparkApplicationDefinitionOutdated").await;
        assert!(told.contains("status.conditions") && told.ends_with(UPDATE_COMMAND), "{told}");
        // It settles: nothing is written any more.
        let before = f.apps.get("pi").await.unwrap().resource_version();
        restart(&mut f).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(f.apps.get("pi").await.unwrap().resource_version(), before);
    });
}

#[test]
fn failed_runs_on_kubeflow_definitions_keep_their_budget_whoever_restarts() {
    let _definitions = unchanged();
    block_on(async {
        let Some(mut f) = fixture("retry").await else { return };
        let policy = json!({"type": "OnFailure", "onFailureRetries": 2, "onFailureRetryInterval": 1});
        f.create("pi", &json!({"restartPolicy": policy})).await;
        for attempt in 1..=3 {
            driver(&f, "pi", attempt).await;
            f.run_driver("pi").await;
            f.wait_state("pi", "RUNNING").await;
            if attempt > 1 {
                restart(&mut f).await;
            }
            f.end_driver("pi", 1).await;
        }
        let app = f.wait_state("pi", "FAILED").await;
        assert_eq!(app.status.as_ref().unwrap().execution_attempts, 3);
        assert!(message(&app).starts_with("driver container failed with ExitCode: 1"), "{}", message(&app));
    });
}

#[test]
fn refused_submissions_on_kubeflow_definitions_keep_their_budget_whoever_restarts() {
    let _definitions = unchanged();
    block_on(async {
        let Some(mut f) = fixture("refused").await else { return };
        let policy =
            json!({"type": "OnFailure", "onSubmissionFailureRetries": 2, "onSubmissionFailureRetryInterval": 2});
        f.create("pi", &json!({"restartPolicy": policy, "driver": {"serviceAccount": "nobody"}})).await;
        f.wait_state("pi", "SUBMISSION_FAILED").await;
        restart(&mut f).await;
        let app = f.wait_state("pi", "FAILED").await;
        assert_eq!(app.status.as_ref().unwrap().submission_attempts, 3, "{:?}", app.status);
        assert!(message(&app).contains("nobody"), "{}", message(&app));
    });
}

#[test]
fn an_edit_on_kubeflow_definitions_runs_the_new_specification_once() {
    let _definitions = unchanged();
    block_on(async {
        let Some(mut f) = fixture("edit").await else { return };
        let args = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].args.clone().unwrap();
        f.create("pi", &json!({})).await;
        driver(&f, "pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.edit("pi", &json!({"arguments": ["second"]})).await;
        let pod = driver(&f, "pi", 2).await;
        assert!(args(&pod).contains(&"second".to_owned()));
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        // While no operator runs.
        f.stop_operator();
        tokio::time::sleep(Duration::from_millis(500)).await;
        f.edit("pi", &json!({"arguments": ["third"]})).await;
        f.start_operator();
        let pod = driver(&f, "pi", 3).await;
        assert!(args(&pod).contains(&"third".to_owned()));
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        assert_eq!(app.status.unwrap().execution_attempts, 1, "a new budget");
        // An ended application also runs again; a change that is not an edit does nothing.
        restart(&mut f).await;
        f.edit("pi", &json!({"timeToLiveSeconds": 3600})).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(state(&f.apps.get("pi").await.unwrap()), "COMPLETED");
        f.edit("pi", &json!({"arguments": ["fourth"]})).await;
        driver(&f, "pi", 4).await;
    });
}

#[test]
fn a_suspended_application_on_kubeflow_definitions_resumes_with_the_next_attempt() {
    let _definitions = unchanged();
    block_on(async {
        let Some(mut f) = fixture("pause").await else { return };
        // Suspended before it ever ran: a status without a driver.
        f.create("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDED").await;
        f.edit("pi", &json!({"suspend": false})).await;
        driver(&f, "pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.edit("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDED").await;
        restart(&mut f).await;
        f.edit("pi", &json!({"suspend": false})).await;
        driver(&f, "pi", 2).await;
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
    });
}

#[test]
fn an_invalid_specification_on_kubeflow_definitions_says_so_and_runs_once_it_is_fixed() {
    let _definitions = unchanged();
    block_on(async {
        let Some(f) = fixture("invalid").await else { return };
        f.create("pi", &json!({"mode": "client"})).await;
        let app = f.wait_state("pi", "FAILED").await;
        assert!(message(&app).contains("spec.mode"), "{}", message(&app));
        f.edit("pi", &json!({"mode": "cluster"})).await;
        driver(&f, "pi", 1).await;
    });
}

#[test]
fn a_driver_that_vanishes_on_kubeflow_definitions_is_missed() {
    let _definitions = unchanged();
    block_on(async {
        let Some(f) = fixture("vanish").await else { return };
        f.create("pi", &json!({})).await;
        driver(&f, "pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        let at_once = kube::api::DeleteParams::default().grace_period(0);
        f.pods.delete("pi-driver", &at_once).await.unwrap();
        let app = f.wait_state("pi", "FAILED").await;
        assert!(message(&app).starts_with("driver pod not found"), "{}", message(&app));
    });
}

/// Replaces the existing operator's CRDs with ours, using the command the operator prints, and restores them when
/// dropped.
struct Updated(&'static TestEnv, PathBuf);

impl Updated {
    fn new() -> Option<Updated> {
        let (env, definitions) = plane()?;
        let (ours, arguments) = UPDATE_COMMAND.split_once(" | kubectl ").unwrap();
        assert_eq!(ours, "firesteel crds");
        let manifests: Vec<String> = crds::manifests().iter().map(ToString::to_string).collect();
        let arguments: Vec<&str> = arguments.split(' ').collect();
        kubectl(env, &arguments, &manifests.join("\n---\n"));
        Some(Updated(env, definitions))
    }
}

impl Drop for Updated {
    fn drop(&mut self) {
        kubectl(self.0, &["replace", "-f", self.1.to_str().unwrap()], "");
    }
}

#[test]
fn definitions_that_are_updated_and_put_back_at_run_time_stop_nothing() {
    let _alone = DEFINITIONS.write().unwrap_or_else(PoisonError::into_inner);
    block_on(async {
        let Some(f) = fixture("update").await else { return };
        for name in ["ended", "running"] {
            f.create(name, &json!({})).await;
            driver(&f, name, 1).await;
            f.run_driver(name).await;
            f.wait_state(name, "RUNNING").await;
        }
        f.end_driver("ended", 0).await;
        f.wait_state("ended", "COMPLETED").await;

        let updated = tokio::task::spawn_blocking(Updated::new).await.unwrap().unwrap();
        // Both are reported in full, without being touched.
        f.wait("running", "reported in full", |app| condition(app, "Running", "True").is_some()).await;
        let app = f.wait("ended", "reported in full", |app| condition(app, "Finished", "True").is_some()).await;
        let status = app.status.unwrap();
        assert_eq!((status.attempt, status.observed_generation), (Some(1), Some(1)), "{status:?}");
        f.create("late", &json!({})).await;
        f.driver("late", 1).await;

        tokio::task::spawn_blocking(|| drop(updated)).await.unwrap();
        f.wait("running", "cut", |app| app.status.as_ref().is_some_and(|s| s.conditions.is_empty())).await;
        for name in ["running", "late"] {
            f.end_driver(name, 0).await;
            f.wait_state(name, "COMPLETED").await;
        }
        let drivers = f.pods.list(&ListParams::default().labels("spark-role=driver")).await.unwrap();
        assert_eq!(drivers.items.len(), 3);
    });
}

#[test]
fn an_operator_that_may_not_read_definitions_works_on_those_of_kubeflow() {
    let _definitions = unchanged();
    block_on(async {
        let Some((env, _)) = tokio::task::spawn_blocking(plane).await.unwrap() else { return };
        let client = env.client().await;
        let namespace = env.namespace("blind").await;
        let role = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/operator-role.yaml"));
        let role = role.unwrap();
        tokio::task::spawn_blocking(move || kubectl(env, &["apply", "--server-side", "-f", "-"], &role)).await.unwrap();
        let user = format!("operator-of-{}", namespace.name());
        let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(client.clone(), namespace.name());
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "firesteel-operator"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        bindings.patch("operator", &PatchParams::apply("test"), &Patch::Apply(&binding)).await.unwrap();
        let read = kube::config::Kubeconfig::read_from(env.kubeconfig()).unwrap();
        let mut config =
            kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap();
        config.auth_info.impersonate = Some(user);
        let operator = kube::Client::try_from(config).unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(operator.clone());
        assert!(definitions.get(APPLICATIONS).await.is_err(), "it may read them");
        let guard = start(operator, namespace.name());
        let f = Fixture::around(namespace, client, guard);
        for name in ["first", "second"] {
            f.create(name, &json!({})).await;
            driver(&f, name, 1).await;
            f.run_driver(name).await;
            f.wait_state(name, "RUNNING").await;
            f.end_driver(name, 0).await;
            f.wait_state(name, "COMPLETED").await;
        }
        let told = f.event("SparkApplicationDefinitionOutdated").await;
        assert!(told.ends_with(UPDATE_COMMAND), "{told}");
    });
}

#[test]
fn a_schedule_on_kubeflow_definitions_starts_runs_and_takes_edits() {
    let _unchanged = unchanged();
    block_on(async {
        let Some(mut f) = fixture("schedule").await else { return };
        let schedules = Schedules::of(&f);
        // As the existing operator leaves it: an edit was not noticed, and a mistake never forgiven.
        schedules.create("pi", &json!({"schedule": "0 0 1 1 *", "timeZone": "UTC", "suspend": true})).await;
        schedules.wait("pi", "seen", |s| s.schedule_state.is_some()).await;
        let old = json!({"scheduleState": "FailedValidation", "reason": "old", "nextRun": "2026-01-02T03:04:05Z"});
        schedules.set_status("pi", &old).await;
        schedules.edit("pi", &json!({"suspend": false})).await;
        // While it is suspended it has no next run.
        let scheduled = |s: &ScheduledSparkApplicationStatus| {
            s.schedule_state.as_deref() == Some("Scheduled") && s.next_run.is_some()
        };
        let status = schedules.wait("pi", "scheduled", scheduled).await;
        assert!(status.conditions.is_empty() && status.observed_schedule.is_none(), "the definition drops them");
        assert!(status.next_run.unwrap().0.to_string().ends_with("-01-01T00:00:00Z"));
        schedules.edit("pi", &json!({"schedule": "@every 2s"})).await;
        schedules.wait("pi", "started", |s| s.last_run_name.is_some()).await;
        restart(&mut f).await;
        let schedules = Schedules::of(&f);
        schedules.edit("pi", &json!({"schedule": "0 0 1 1 *"})).await;
        let is_new_year = |time: &Time| time.0.to_string().ends_with("-01-01T00:00:00Z");
        schedules.wait("pi", "edited", |s| s.next_run.as_ref().is_some_and(is_new_year)).await;
        let instants: Vec<String> = schedules
            .runs("pi")
            .await
            .into_values()
            .filter_map(|run| run.annotations().get("firesteel.dev/scheduled-for").cloned())
            .collect();
        let distinct: BTreeSet<&String> = instants.iter().collect();
        assert!(!instants.is_empty() && distinct.len() == instants.len(), "{instants:?}");
    });
}
