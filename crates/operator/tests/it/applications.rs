//! Applications on a real API server. Pods that must not finish by themselves request a node that does not exist; the
//! test then writes their status, as a kubelet would.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use firesteel_api::SparkApplication;
use firesteel_testenv::TestEnv;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE, block_on, condition, container, install, message, now, state};
use crate::witness::{self, Witness};

#[test]
fn an_application_runs_to_its_end() {
    block_on(async {
        let Some(f) = Fixture::new("complete").await else { return };
        f.create("pi", &json!({})).await;
        let app = f.wait_state("pi", "SUBMITTED").await;
        let status = app.status.clone().unwrap();
        assert_eq!(status.driver_info.pod_name.as_deref(), Some("pi-driver"));
        assert_eq!((status.submission_attempts, status.execution_attempts), (1, 1));
        let pod = f.driver("pi", 1).await;
        assert_eq!(pod.owner_references()[0].uid, app.uid().unwrap());
        assert_eq!(pod.labels()["spark-app-selector"], status.spark_application_id.unwrap());
        let maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
        let labelled = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi");
        assert_eq!(maps.list(&labelled).await.unwrap().items.len(), 1);

        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        let app = f.wait("pi", "exposed", |a| condition(a, "Exposed", "True").is_some()).await;
        let info = app.status.unwrap().driver_info;
        assert_eq!(info.web_ui_service_name.as_deref(), Some("pi-ui-svc"));
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        let status = app.status.unwrap();
        assert!(status.termination_time.is_some());
        assert!(status.conditions.iter().any(|c| c.type_ == "Succeeded" && c.status == "True"));
        assert_eq!(status.observed_generation, app.metadata.generation);
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        assert!(services.get_opt("pi-ui-svc").await.unwrap().is_none(), "the UI Service outlives its driver");
        f.event("SparkApplicationCompleted").await;
    });
}

#[test]
fn a_failed_driver_says_why_and_runs_again() {
    block_on(async {
        let Some(f) = Fixture::new("retry").await else { return };
        let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
        f.create("pi", &json!({"restartPolicy": policy})).await;
        let first = f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.end_driver("pi", 137).await;
        let second = f.driver("pi", 2).await;
        assert_ne!(first.uid(), second.uid());
        f.end_driver("pi", 1).await;
        let app = f.wait_state("pi", "FAILED").await;
        assert!(
            message(&app).starts_with("driver container failed with ExitCode: 1, Reason: Error"),
            "{}",
            message(&app)
        );
        assert_eq!(app.status.unwrap().execution_attempts, 2);
        let maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
        let labelled = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi");
        assert_eq!(maps.list(&labelled).await.unwrap().items.len(), 1, "objects of the first attempt are left over");
        f.event("SparkApplicationPendingRerun").await;
    });
}

#[test]
fn a_rejected_submission_is_retried_as_often_as_allowed() {
    block_on(async {
        let Some(f) = Fixture::new("refused").await else { return };
        let policy =
            json!({"type": "OnFailure", "onSubmissionFailureRetries": 2, "onSubmissionFailureRetryInterval": 1});
        f.create("pi", &json!({"restartPolicy": policy, "driver": {"serviceAccount": "nobody"}})).await;
        let app = f.wait_state("pi", "FAILED").await;
        assert!(message(&app).starts_with("failed to run spark-submit: "), "{}", message(&app));
        assert!(message(&app).contains("nobody"), "{}", message(&app));
        assert_eq!(app.status.unwrap().submission_attempts, 3);
        assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
    });
}

#[test]
fn an_invalid_specification_fails_once_and_names_the_field() {
    block_on(async {
        let Some(f) = Fixture::new("bad").await else { return };
        let policy = json!({"type": "Always"});
        f.create("limit", &json!({"driver": {"coreLimit": "lots"}, "restartPolicy": policy})).await;
        f.create("volume", &json!({"driver": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}})).await;
        f.create("template", &json!({"driver": {"template": {"spec": {"containers": "none"}}}})).await;
        let cases = [
            ("limit", "spec.driver.coreLimit: "),
            ("volume", "spec.driver.volumeMounts[0].name: "),
            ("template", "spec.driver.template.spec.containers: "),
        ];
        for (name, path) in cases {
            let app = wait_raw(&f, name).await;
            let text = app["status"]["applicationState"]["errorMessage"].as_str().unwrap().to_owned();
            assert!(text.starts_with(&format!("failed to run spark-submit: {path}")), "{text}");
        }
        // Correcting the field is enough.
        f.edit("limit", &json!({"driver": {"coreLimit": "1"}})).await;
        f.wait_state("limit", "SUBMITTED").await;
        f.edit("template", &json!({"driver": {"template": null}})).await;
        f.wait_state("template", "SUBMITTED").await;
    });
}

async fn wait_raw(f: &Fixture, name: &str) -> Value {
    let resource = kube::api::ApiResource::erase::<SparkApplication>(&());
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(f.client.clone(), f.namespace.name(), &resource);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let app = api.get(name).await.unwrap().data;
        if app["status"]["applicationState"]["state"] == "FAILED" {
            return app;
        }
        assert!(tokio::time::Instant::now() < deadline, "{name} never failed: {app}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn suspending_ends_the_run_and_resuming_starts_another() {
    block_on(async {
        let Some(f) = Fixture::new("suspend").await else { return };
        f.create("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDED").await;
        assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
        f.edit("pi", &json!({"suspend": false})).await;
        f.driver("pi", 1).await;
        f.edit("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDED").await;
        assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
        f.edit("pi", &json!({"suspend": false})).await;
        f.driver("pi", 2).await;
    });
}

#[test]
fn d2_an_edit_runs_again_and_an_equal_manifest_does_not() {
    block_on(async {
        let Some(f) = Fixture::new("edit").await else { return };
        f.create("pi", &json!({})).await;
        let first = f.driver("pi", 1).await;
        f.edit("pi", &json!({"mode": "cluster", "driver": {"cores": 1}, "timeToLiveSeconds": 1000})).await;
        let app = f
            .wait("pi", "observed", |a| a.status.as_ref().and_then(|s| s.observed_generation) == a.metadata.generation)
            .await;
        assert_eq!(app.status.unwrap().attempt, Some(1));
        f.edit("pi", &json!({"arguments": ["1"]})).await;
        let second = f.driver("pi", 2).await;
        assert_ne!(first.uid(), second.uid());
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
        f.edit("pi", &json!({"arguments": ["2"]})).await;
        f.driver("pi", 3).await;
        f.event("SparkApplicationSpecUpdated").await;
    });
}

#[test]
fn d2_an_edit_made_while_no_operator_ran_is_noticed() {
    block_on(async {
        let Some(mut f) = Fixture::new("down").await else { return };
        f.create("pi", &json!({})).await;
        let first = f.driver("pi", 1).await;
        f.stop_operator();
        tokio::time::sleep(Duration::from_secs(1)).await;
        f.edit("pi", &json!({"arguments": ["1"]})).await;
        f.start_operator();
        let second = f.driver("pi", 2).await;
        assert_ne!(first.uid(), second.uid());
        assert_eq!(
            f.apps.get("pi").await.unwrap().status.unwrap().execution_attempts,
            1,
            "a new specification gets a new retry budget"
        );
    });
}

#[test]
fn a_driver_deleted_by_hand_is_a_failure_that_says_so() {
    block_on(async {
        let Some(f) = Fixture::new("gone").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.pods.delete("pi-driver", &DeleteParams::default().grace_period(0)).await.unwrap();
        let app = f.wait_state("pi", "FAILED").await;
        assert!(message(&app).starts_with("driver pod not found"), "{}", message(&app));
        f.event("SparkDriverNotFound").await;
    });
}

#[test]
fn d4_a_sidecar_does_not_hide_the_end_of_the_driver() {
    block_on(async {
        let Some(f) = Fixture::new("sidecar").await else { return };
        f.create("pi", &json!({"driver": {"sidecars": [{"name": "side", "image": "s"}]}})).await;
        f.driver("pi", 1).await;
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}});
        let mut side = container(&json!({"running": {}}));
        side["name"] = json!("side");
        f.pod_status("pi", &json!({"phase": "Running", "containerStatuses": [side, container(&ended)]})).await;
        f.wait_state("pi", "COMPLETED").await;
    });
}

#[test]
fn d5_a_driver_that_succeeded_and_vanished_has_succeeded() {
    block_on(async {
        let Some(f) = Fixture::new("vanish").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.end_driver("pi", 0).await;
        f.pods.delete("pi-driver", &DeleteParams::default().grace_period(0)).await.unwrap();
        f.wait_state("pi", "COMPLETED").await;
    });
}

#[test]
fn an_application_is_deleted_when_its_time_to_live_ends() {
    block_on(async {
        let Some(f) = Fixture::new("ttl").await else { return };
        f.create("pi", &json!({"timeToLiveSeconds": 1})).await;
        f.driver("pi", 1).await;
        f.end_driver("pi", 0).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while f.apps.get_opt("pi").await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "it still exists");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
}

/// Edits an application at the moment its deletion is requested.
#[derive(Clone)]
struct EditsAtDeletion {
    config: kube::Config,
    edited: Arc<AtomicBool>,
}

impl Witness for EditsAtDeletion {
    type Note = ();

    fn asked(&self, request: &Request<Body>) -> Option<()> {
        let path = request.uri().path();
        let is_ours = request.method() == Method::DELETE && path.ends_with("/sparkapplications/pi");
        if is_ours && !self.edited.swap(true, Ordering::SeqCst) {
            let namespace = path.split('/').nth(5).unwrap().to_owned();
            let config = self.config.clone();
            let edit = std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let client = kube::Client::try_from(config).unwrap();
                    let apps: Api<SparkApplication> = Api::namespaced(client, &namespace);
                    let patch = Patch::Merge(json!({"spec": {"arguments": ["once more"]}}));
                    apps.patch("pi", &PatchParams::default(), &patch).await.map(|_| ()).unwrap();
                });
            });
            edit.join().unwrap();
        }
        Some(())
    }

    fn answered(&self, (): (), _: StatusCode) -> bool {
        true
    }
}

#[test]
fn an_edit_at_the_moment_the_time_to_live_ends_is_not_lost() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        install(&env.client().await).await;
        let config = crate::crash::config(env).await;
        let edits = EditsAtDeletion { config: config.clone(), edited: Arc::default() };
        let f = Fixture::with("ttl-edit", witness::client(config, &edits)).await;
        f.create("pi", &json!({"timeToLiveSeconds": 1})).await;
        let uid = f.apps.get("pi").await.unwrap().uid();
        f.driver("pi", 1).await;
        f.end_driver("pi", 0).await;
        f.driver("pi", 2).await;
        assert!(edits.edited.load(Ordering::SeqCst));
        assert_eq!(f.apps.get("pi").await.unwrap().uid(), uid);
    });
}

#[test]
fn someone_elses_pod_is_left_alone() {
    block_on(async {
        let Some(f) = Fixture::new("foreign").await else { return };
        let pod = json!({"metadata": {"name": "pi-driver"}, "spec": {"nodeSelector": {"no": "where"},
            "containers": [{"name": "c", "image": "i"}]}});
        let theirs = f.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        f.create("pi", &json!({})).await;
        let app = f.wait_state("pi", "FAILED").await;
        assert!(message(&app).contains("does not belong to this application"), "{}", message(&app));
        assert_eq!(f.pods.get("pi-driver").await.unwrap().uid(), theirs.uid());
    });
}

#[test]
fn a_running_driver_whose_name_is_edited_is_gone_before_the_next_one_starts() {
    block_on(async {
        let Some(f) = Fixture::new("renamed").await else { return };
        f.create("pi", &json!({"driver": {"podName": "first-driver"}})).await;
        f.wait_state("pi", "SUBMITTED").await;
        // The finalizer delays its termination.
        let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
        f.pods.patch("first-driver", &PatchParams::default(), &hold).await.unwrap();
        let running =
            json!({"status": {"phase": "Running", "containerStatuses": [container(&json!({"running": {}}))]}});
        f.pods.patch_status("first-driver", &PatchParams::default(), &Patch::Merge(&running)).await.unwrap();
        f.wait_state("pi", "RUNNING").await;

        f.edit("pi", &json!({"driver": {"podName": "second-driver"}})).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while f.pods.get("first-driver").await.unwrap().metadata.deletion_timestamp.is_none() {
            assert!(tokio::time::Instant::now() < deadline, "the driver from before the edit keeps running");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(f.pods.get_opt("second-driver").await.unwrap().is_none(), "two drivers");
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        f.pods.patch("first-driver", &PatchParams::default(), &release).await.unwrap();
        let second = |app: &SparkApplication| {
            app.status.as_ref().is_some_and(|s| s.driver_info.pod_name.as_deref() == Some("second-driver"))
        };
        let app = f.wait("pi", "submitted under its new name", second).await;
        assert_eq!(app.status.unwrap().attempt, Some(2));
        let drivers = f.pods.list(&ListParams::default().labels("spark-role=driver")).await.unwrap().items;
        assert_eq!(drivers.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["second-driver"]);
    });
}

#[test]
fn an_edit_that_does_not_parse_leaves_the_run_alone_until_it_is_fixed() {
    block_on(async {
        let Some(mut f) = Fixture::new("unreadable").await else { return };
        f.create("pi", &json!({})).await;
        let first = f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        let bad = Patch::Merge(json!({"spec": {"driver": {"env": [{"name": "A", "value": 3}]}}}));
        let resource = ApiResource::erase::<SparkApplication>(&());
        let untyped: Api<DynamicObject> = Api::namespaced_with(f.client.clone(), f.namespace.name(), &resource);
        let edited = untyped.patch("pi", &PatchParams::default(), &bad).await.unwrap();
        let wait = async |what: &str, holds: fn(&Value) -> bool| {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            loop {
                let status = untyped.get("pi").await.unwrap().data["status"].clone();
                if holds(&status) {
                    return status;
                }
                assert!(tokio::time::Instant::now() < deadline, "never {what}: {status:#}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let refused = |status: &Value| {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| {
                c["type"] == "SpecAccepted"
                    && c["status"] == "False"
                    && c["message"].as_str().unwrap().starts_with("spec.driver.env[0].value: ")
            })
        };
        let status = wait("refused", refused).await;
        assert_eq!(status["applicationState"]["state"], "RUNNING", "{status:#}");
        assert_eq!(status["observedGeneration"].as_i64(), edited.metadata.generation);
        let note = f.event("SparkApplicationSpecUpdateFailed").await;
        assert!(note.contains("spec.driver.env[0].value: "), "{note}");
        // The run is still followed, also by the next operator.
        f.stop_operator();
        f.start_operator();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(f.pods.get("pi-driver").await.unwrap().uid(), first.uid());
        assert_eq!(untyped.get("pi").await.unwrap().data["status"]["applicationState"]["state"], "RUNNING");

        // Once fixed, it is an edit like any other.
        let good = Patch::Merge(json!({"spec": {"driver": {"env": [{"name": "A", "value": "3"}]}}}));
        untyped.patch("pi", &PatchParams::default(), &good).await.unwrap();
        let second = f.driver("pi", 2).await;
        assert_ne!(second.uid(), first.uid());
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;

        // The end of a run is reported whatever the specification says by then.
        untyped.patch("pi", &PatchParams::default(), &bad).await.unwrap();
        wait("refused", refused).await;
        f.end_driver("pi", 0).await;
        wait("completed", |status| status["applicationState"]["state"] == "COMPLETED").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let status = untyped.get("pi").await.unwrap().data["status"].clone();
        assert!(status["applicationState"]["state"] == "COMPLETED" && refused(&status), "{status:#}");
    });
}

#[test]
fn an_edit_that_cannot_be_planned_leaves_the_run_alone() {
    block_on(async {
        let Some(f) = Fixture::new("unplannable").await else { return };
        f.create("pi", &json!({})).await;
        let first = f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.edit("pi", &json!({"mainApplicationFile": "/opt/on-this-machine.jar"})).await;
        let app = f.wait("pi", "refused", |app| condition(app, "SpecAccepted", "False").is_some()).await;
        assert_eq!(state(&app), "RUNNING");
        assert_eq!(f.pods.get("pi-driver").await.unwrap().uid(), first.uid());
        f.edit("pi", &json!({"mainApplicationFile": "local:///opt/other.jar"})).await;
        f.driver("pi", 2).await;
    });
}
