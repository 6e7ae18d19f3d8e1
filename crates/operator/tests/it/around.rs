//! Everything around an application: executors, Services, Ingresses, PodDisruptionBudgets, events, and tools that watch
//! it.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firesteel_testenv::TestEnv;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE, block_on, condition, install};
use crate::witness::{self, Witness};

#[test]
fn the_page_of_a_driver_has_a_service_and_an_ingress_while_it_runs() {
    block_on(async {
        let tune = |options: &mut firesteel_operator::Options| {
            options.runs.ui.url_format = "spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
            options.runs.ui.class_name = Some("nginx".to_owned());
        };
        let Some(f) = Fixture::tuned("ui", tune).await else { return };
        let more = json!([{"servicePort": 8888, "servicePortName": "more", "ingressURLFormat": "more.example"}]);
        let ui = json!({"servicePort": 80, "serviceAnnotations": {"a": "b"}, "ingressTLS": [{"hosts": ["spark.example"], "secretName": "t"}]});
        f.create("pi", &json!({"sparkUIOptions": ui, "driverIngressOptions": more, "driverPodDisruptionBudget": true}))
            .await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait("pi", "exposed", |a| condition(a, "Exposed", "True").is_some()).await;
        let info = app.status.unwrap().driver_info;
        assert_eq!(info.web_ui_service_name.as_deref(), Some("pi-ui-svc"));
        assert_eq!(info.web_ui_port, Some(80));
        assert!(info.web_ui_address.as_ref().unwrap().ends_with(":80"), "{info:?}");
        assert_eq!(info.web_ui_ingress_name.as_deref(), Some("pi-ui-ingress"));
        let address = format!("spark.example/{}/pi", f.namespace.name());
        assert_eq!(info.web_ui_ingress_address, Some(address));
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let ingresses: Api<Ingress> = Api::namespaced(f.client.clone(), f.namespace.name());
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(f.client.clone(), f.namespace.name());
        let page = services.get("pi-ui-svc").await.unwrap();
        assert_eq!(page.annotations()["a"], "b");
        assert_eq!(page.spec.unwrap().selector.unwrap()["spark-role"], "driver");
        services.get("pi-driver-8888").await.unwrap();
        let ingress = ingresses.get("pi-ui-ingress").await.unwrap();
        assert_eq!(ingress.owner_references()[0].kind, "SparkApplication");
        assert_eq!(ingress.spec.unwrap().ingress_class_name.as_deref(), Some("nginx"));
        ingresses.get("pi-ing-8888").await.unwrap();
        budgets.get("pi-driver").await.unwrap();
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
        // d23: all of them are deleted when the run ends.
        let left = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi,firesteel.dev/exposes=driver");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while services.list(&left).await.unwrap().items.len()
            + ingresses.list(&left).await.unwrap().items.len()
            + budgets.list(&left).await.unwrap().items.len()
            > 0
        {
            assert!(tokio::time::Instant::now() < deadline, "something is left over");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn foreign_objects_with_the_same_names_are_left_alone_and_reported() {
    block_on(async {
        let tune = |options: &mut firesteel_operator::Options| {
            options.runs.ui.url_format = "spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
        };
        let Some(f) = Fixture::tuned("theirs", tune).await else { return };
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let ingresses: Api<Ingress> = Api::namespaced(f.client.clone(), f.namespace.name());
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(f.client.clone(), f.namespace.name());
        // One even has the operator's labels: its owner decides whose it is.
        let labels = json!({"sparkoperator.k8s.io/app-name": "pi", "firesteel.dev/exposes": "driver"});
        let service = json!({"metadata": {"name": "pi-ui-svc", "labels": labels},
            "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80}]}});
        let ingress = json!({"metadata": {"name": "pi-ui-ingress"},
            "spec": {"defaultBackend": {"service": {"name": "shop", "port": {"number": 80}}}}});
        let budget = json!({"metadata": {"name": "pi-driver"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}});
        let params = PostParams::default();
        let service = services.create(&params, &serde_json::from_value(service).unwrap()).await.unwrap();
        let ingress = ingresses.create(&params, &serde_json::from_value(ingress).unwrap()).await.unwrap();
        let budget = budgets.create(&params, &serde_json::from_value(budget).unwrap()).await.unwrap();
        f.create("pi", &json!({"driverPodDisruptionBudget": true})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait("pi", "not exposed", |a| condition(a, "Exposed", "False").is_some()).await;
        let (reason, message) = condition(&app, "Exposed", "False").unwrap();
        assert_eq!(reason, "Refused");
        for kind in ["Service named pi-ui-svc", "Ingress named pi-ui-ingress", "PodDisruptionBudget named pi-driver"] {
            let sentence = format!("a {kind} already exists and does not belong to this application");
            assert!(message.contains(&sentence), "{message}");
        }
        assert!(f.event("SparkDriverNotExposed").await.contains("does not belong to this application"));
        f.wait_state("pi", "RUNNING").await;
        // Neither the end of a run nor an edit deletes them.
        f.edit("pi", &json!({"arguments": ["x"]})).await;
        f.driver("pi", 2).await;
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = services.get("pi-ui-svc").await.unwrap();
        assert_eq!((now.uid(), now.spec.clone()), (service.uid(), service.spec.clone()));
        assert_eq!(now.resource_version(), service.resource_version(), "nobody wrote to it");
        assert_eq!(ingresses.get("pi-ui-ingress").await.unwrap().resource_version(), ingress.resource_version());
        let kept = budgets.get("pi-driver").await.unwrap();
        assert_eq!((kept.uid(), kept.spec), (budget.uid(), budget.spec));
        assert!(kept.metadata.owner_references.is_none());
    });
}

/// Counts deletecollection requests.
#[derive(Clone, Default)]
struct Deletes(Arc<Mutex<Vec<String>>>);

impl Witness for Deletes {
    type Note = ();

    fn asked(&self, request: &Request<Body>) -> Option<()> {
        if request.method() == Method::DELETE {
            self.0.lock().unwrap().push(request.uri().path().to_owned());
        }
        Some(())
    }

    fn answered(&self, (): (), _: StatusCode) -> bool {
        true
    }
}

#[test]
fn deletes_are_sent_once_while_pods_terminate() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        install(&env.client().await).await;
        let deletes = Deletes::default();
        let operator = witness::client(crate::crash::config(env).await, &deletes);
        let f = Fixture::with("once", operator).await;
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait_state("pi", "RUNNING").await;
        for id in 1..=3 {
            f.executor(&app, id, "Running").await;
        }
        f.wait("pi", "with 3 executors", |a| a.status.clone().unwrap().executor_state.len() == 3).await;
        // Pods that terminate slowly.
        let hold = Patch::Merge(json!({"metadata": {"finalizers": ["firesteel.dev/test"]}}));
        let names = ["pi-driver", "pi-exec-1", "pi-exec-2", "pi-exec-3"];
        for name in names {
            f.pods.patch(name, &PatchParams::default(), &hold).await.unwrap();
        }
        f.edit("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDING").await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        let sent = deletes.0.lock().unwrap().clone();
        assert!(sent.iter().any(|path| path.ends_with("/pods")), "executors are deleted: {sent:?}");
        // One for the driver, one for its UI, one for executors, five kinds of objects.
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for path in &sent {
            *counts.entry(path).or_default() += 1;
        }
        let twice: Vec<_> = counts.iter().filter(|(_, n)| **n > 1).collect();
        // A cache may lag behind the first response.
        assert!(twice.iter().all(|(_, n)| **n == 2) && sent.len() <= 10, "{counts:?}");
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        for name in names {
            f.pods.patch(name, &PatchParams::default(), &free).await.unwrap();
        }
        f.wait_state("pi", "SUSPENDED").await;
    });
}

#[test]
fn a_field_without_effect_is_reported_by_a_condition_and_an_event() {
    block_on(async {
        let Some(f) = Fixture::new("lost").await else { return };
        f.create("pi", &json!({"executor": {"memoryLimit": "3g"}})).await;
        f.driver("pi", 1).await;
        let app = f.apps.get("pi").await.unwrap();
        let (reason, message) = condition(&app, "FieldsHonoured", "False").unwrap();
        assert_eq!(reason, "NoEffect");
        assert!(message.starts_with("spec.executor.memoryLimit has no effect: "), "{message}");
        assert!(f.event("SparkApplicationFieldNotHonoured").await.starts_with("spec.executor.memoryLimit "));
    });
}

#[test]
fn an_application_that_needs_a_batch_scheduler_fails_with_what_to_use_instead() {
    block_on(async {
        let Some(f) = Fixture::new("batch").await else { return };
        f.create(
            "pi",
            &json!({"batchScheduler": "volcano", "restartPolicy": {"type": "OnFailure", "onFailureRetries": 3}}),
        )
        .await;
        let app = f.wait_state("pi", "FAILED").await;
        let said = "spec.batchScheduler: \"volcano\": Firesteel does not create pod groups and queues for it yet; remove \
                    spec.batchScheduler and set spec.driver.schedulerName and spec.executor.schedulerName to volcano, which \
                    then places each pod on its own";
        assert!(app.status.as_ref().unwrap().application_state.error_message.contains(said), "{:?}", app.status);
        assert!(condition(&app, "Succeeded", "False").unwrap().1.contains(said), "{:?}", app.status);
        assert!(f.event("SparkApplicationFailed").await.contains(said));
        assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none(), "no driver waits for ever");
        // What the sentence says works.
        f.edit("pi", &json!({"batchScheduler": null, "driver": {"schedulerName": "volcano"}})).await;
        let pod = f.driver("pi", 1).await;
        assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("volcano"));
        // While it runs, such an edit ends nothing.
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.edit("pi", &json!({"batchScheduler": "yunikorn"})).await;
        let app = f.wait("pi", "refused", |app| condition(app, "SpecAccepted", "False").is_some()).await;
        assert!(condition(&app, "SpecAccepted", "False").unwrap().1.contains("spec.batchScheduler: \"yunikorn\""));
        assert_eq!(app.status.unwrap().application_state.state, "RUNNING");
    });
}

#[test]
fn the_default_batch_scheduler_of_an_operator_is_named_as_the_cause() {
    block_on(async {
        let tune = |options: &mut firesteel_operator::Options| {
            options.runs.batch_schedulers.default = Some("yunikorn".to_owned());
        };
        let Some(f) = Fixture::tuned("batches", tune).await else { return };
        f.create("pi", &json!({})).await;
        let app = f.wait_state("pi", "FAILED").await;
        let message = app.status.unwrap().application_state.error_message;
        assert!(message.contains("--default-batch-scheduler=yunikorn"), "{message}");
    });
}

#[test]
fn an_operator_whose_caches_stay_empty_ends_with_what_to_check() {
    block_on(async {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let mut options = crate::fixture::options("nowhere");
        options.cache_sync_timeout = Some(Duration::from_secs(1));
        let until = tokio_util::sync::CancellationToken::new();
        let ended = tokio::time::timeout(PATIENCE, firesteel_operator::run(client, options, until)).await;
        let said = ended.expect("it ends").unwrap_err().to_string();
        assert!(said.starts_with("the caches were not filled within 1 s (--cache-sync-timeout); check"), "{said}");
    });
}

#[test]
fn suspicious_settings_are_reported_in_one_event() {
    block_on(async {
        let Some(f) = Fixture::new("remarks").await else { return };
        let volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data";
        let conf = json!({
            format!("{volume}.mount.path"): "/data", format!("{volume}.options.claimName"): "OnDemand",
            "spark.kubernetes.namspace": "x",
        });
        f.create("pi", &json!({"sparkConf": conf})).await;
        f.driver("pi", 1).await;
        let note = f.event("SparkApplicationRemark").await;
        assert!(note.contains("claimName asks for an on-demand claim, which Spark creates only if"), "{note}");
        assert!(note.contains("did you mean spark.kubernetes.namespace?"), "{note}");
    });
}

#[test]
fn executors_are_counted_and_reported() {
    block_on(async {
        let Some(f) = Fixture::new("executors").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait_state("pi", "RUNNING").await;
        for id in 1..=4 {
            f.executor(&app, id, "Pending").await;
        }
        let counts = |app: &firesteel_api::SparkApplication| {
            let c = app.status.clone().unwrap().executor_counts.unwrap_or_default();
            (c.pending, c.running, c.completed, c.failed, c.unknown)
        };
        f.wait("pi", "with 4 pending", |a| counts(a) == (4, 0, 0, 0, 0)).await;
        for id in 1..=4 {
            f.executor(&app, id, "Running").await;
        }
        f.wait("pi", "with 4 running", |a| counts(a) == (0, 4, 0, 0, 0)).await;
        f.executor(&app, 1, "Failed").await;
        f.executor(&app, 2, "Succeeded").await;
        f.wait("pi", "with 2 ended", |a| counts(a) == (0, 2, 1, 1, 0)).await;
        f.pods.delete("pi-exec-1", &DeleteParams::default().grace_period(0)).await.unwrap();
        f.pods.delete("pi-exec-3", &DeleteParams::default().grace_period(0)).await.unwrap();
        f.wait("pi", "with one lost", |a| counts(a) == (0, 1, 1, 1, 1)).await;
        for reason in ["Pending", "Running", "Completed", "Failed", "Unknown"] {
            f.event(&format!("SparkExecutor{reason}")).await;
        }
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        assert_eq!(counts(&app).3, 1);
        let states = app.status.unwrap().executor_state;
        assert_eq!((states["pi-exec-1"].as_str(), states["pi-exec-2"].as_str()), ("FAILED", "COMPLETED"));
        assert_eq!(states["pi-exec-3"], "COMPLETED", "it ended as its application did");
    });
}

#[test]
fn d15_the_same_news_is_one_event_with_a_count() {
    block_on(async {
        let Some(f) = Fixture::new("news").await else { return };
        let policy =
            json!({"type": "OnFailure", "onSubmissionFailureRetries": 2, "onSubmissionFailureRetryInterval": 1});
        f.create("pi", &json!({"restartPolicy": policy, "driver": {"serviceAccount": "nobody"}})).await;
        f.wait_state("pi", "FAILED").await;
        f.event("SparkApplicationFailed").await;
        let events: Api<Event> = Api::namespaced(f.client.clone(), f.namespace.name());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut failed = events.list(&ListParams::default()).await.unwrap().items;
            failed.retain(|e| e.reason.as_deref() == Some("SparkApplicationSubmissionFailed"));
            assert_eq!(failed.len(), 1, "{failed:?}");
            assert!(failed[0].note.as_ref().unwrap().contains("nobody"));
            assert_eq!(failed[0].action.as_deref(), Some("Reconcile"));
            // Counts are published together.
            let count = failed[0].series.as_ref().map(|s| s.count);
            if count == Some(3) {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "three failures are counted as {count:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn kubectl_can_wait_for_an_application() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let Some(f) = Fixture::new("wait").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let namespace = f.namespace.name().to_owned();
        let wait = move |condition: &str| {
            let mut kubectl = Command::new(env.kubectl());
            kubectl.arg("--kubeconfig").arg(env.kubeconfig()).args([
                "-n",
                &namespace,
                "wait",
                "sparkapp/pi",
                "--timeout=60s",
            ]);
            kubectl.arg(format!("--for={condition}")).spawn().unwrap()
        };
        let mut running = wait("condition=Running");
        tokio::task::spawn_blocking(move || assert!(running.wait().unwrap().success())).await.unwrap();
        let (mut finished, mut state) =
            (wait("condition=Finished"), wait("jsonpath={.status.applicationState.state}=COMPLETED"));
        let mut succeeded = wait("condition=Succeeded");
        f.end_driver("pi", 0).await;
        tokio::task::spawn_blocking(move || {
            assert!(finished.wait().unwrap().success());
            assert!(state.wait().unwrap().success());
            assert!(succeeded.wait().unwrap().success());
        })
        .await
        .unwrap();
    });
}

/// What Kueue does to an application: creates it suspended, starts it with the node selectors, tolerations, labels and
/// scheduling gates of its flavor, and removes them again when it stops it, in one update with `suspend`.
#[test]
fn kueue_starts_and_stops_an_application() {
    block_on(async {
        let Some(f) = Fixture::new("kueue").await else { return };
        f.create("pi", &json!({"suspend": true})).await;
        let app = f.wait_state("pi", "SUSPENDED").await;
        assert_eq!(app.status.unwrap().execution_attempts, 0);
        let gate = json!([{"name": "kueue.x-k8s.io/topology"}]);
        let flavour = json!({
            "suspend": false,
            "driver": {"nodeSelector": {"flavour": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}],
                "labels": {"kueue.x-k8s.io/podset": "driver"},
                "template": {"spec": {"schedulingGates": gate, "containers": [{"name": "spark-kubernetes-driver"}]}}},
            "executor": {"nodeSelector": {"flavour": "spot"}},
        });
        f.edit("pi", &flavour).await;
        let pod = f.driver("pi", 1).await;
        assert_eq!(pod.labels()["kueue.x-k8s.io/podset"], "driver");
        assert_eq!(pod.owner_references()[0].controller, Some(true));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_selector.unwrap()["flavour"], "spot");
        assert_eq!(spec.scheduling_gates.unwrap()[0].name, "kueue.x-k8s.io/topology");
        let stop = json!({
            "suspend": true,
            "driver": {"nodeSelector": {"flavour": null}, "tolerations": null, "labels": null, "template": null},
            "executor": {"nodeSelector": null},
        });
        f.edit("pi", &stop).await;
        let app = f.wait_state("pi", "SUSPENDED").await;
        let times = app.status.unwrap().state_times;
        assert!(!times.contains_key("INVALIDATING"), "stopping is not an edit: {times:?}");
        assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
        f.edit("pi", &flavour).await;
        f.driver("pi", 2).await;
        for reason in ["SparkApplicationSuspending", "SparkApplicationSuspended", "SparkApplicationResuming"] {
            f.event(reason).await;
        }
    });
}

#[test]
fn deleting_an_application_deletes_its_objects() {
    block_on(async {
        let Some(f) = Fixture::new("delete").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.apps.delete("pi", &DeleteParams::background()).await.unwrap();
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = f.pods.get_opt("pi-driver").await.unwrap();
            let left = services.list(&ListParams::default()).await.unwrap().items;
            if pod.is_none() && left.is_empty() {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "left: {pod:?} {left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}
