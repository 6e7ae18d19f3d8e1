//! An API server that rejects, loses responses, cuts watches short and goes down: the operator keeps working and
//! catches up.

use std::time::Duration;

use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::fixture::{Fixture, block_on, condition, install, options, start_with};
use crate::kubelet::{Drivers, first_fails, play};
use crate::proxy::{Fault, Proxy};

const APPLICATIONS: usize = 6;

#[test]
fn an_operator_keeps_working_whatever_its_api_server_does() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let proxy = Proxy::start(client, 20_261_115).await;
        let f = Fixture::with("faults", proxy.client()).await;
        let seen = Drivers::default();
        let kubelet = tokio::spawn(play(f.pods.clone(), first_fails, seen.clone()));
        let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1,
            "onSubmissionFailureRetries": 3, "onSubmissionFailureRetryInterval": 1});
        for i in 0..APPLICATIONS {
            f.create(&format!("app-{i}"), &json!({"restartPolicy": policy})).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        proxy.down_for(Duration::from_secs(4)).await;
        // Created while the API server was down, or while a watch was cut.
        f.create("late", &json!({"restartPolicy": policy})).await;
        proxy.down_for(Duration::from_secs(2)).await;
        let names: Vec<String> = (0..APPLICATIONS).map(|i| format!("app-{i}")).chain(["late".to_owned()]).collect();
        for name in &names {
            let app = f.wait_patiently(name, "COMPLETED", Duration::from_secs(180)).await;
            let status = app.status.unwrap();
            assert_eq!((status.execution_attempts, status.attempt), (2, Some(2)), "{name}");
        }
        kubelet.abort();
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len(), 2 * names.len(), "{seen:?}");
        assert!(seen.values().all(|uids: &Vec<String>| uids.len() == 1), "one driver for each attempt: {seen:?}");
        let (refused, cut) = proxy.counts();
        assert!(refused > 20 && cut > 3, "too few faults: {refused} refused, {cut} cut");
    });
}

/// Drivers start although the API server fails for all Services, Ingresses and PodDisruptionBudgets.
async fn drivers_start(fault: Fault) {
    let Some(env) = TestEnv::get() else { return };
    let client = env.client().await;
    let proxy = Proxy::broken(client.clone(), fault).await;
    let namespace = env.namespace("broken").await;
    let mut options = options(namespace.name());
    options.runs.ui.url_format = "spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
    let operator = start_with(proxy.client(), options);
    let f = Fixture::around(namespace, client, operator);
    let names: Vec<String> = (0..APPLICATIONS).map(|i| format!("app-{i}")).collect();
    for name in &names {
        f.create(name, &json!({"driverPodDisruptionBudget": true})).await;
    }
    // A driver needs its own Service, and its status says so while there is none.
    for name in &names {
        let app = f.wait_settled(name, |a| condition(a, "DriverPresent", "False").is_some()).await;
        let (reason, message) = condition(&app, "DriverPresent", "False").unwrap();
        assert_eq!(reason, "NotCreated", "{fault:?}");
        assert!(message.starts_with("Service "), "{fault:?}: {message}");
    }
    f.event("SparkApplicationSubmissionRetried").await;
    // It needs nothing else.
    proxy.spare_drivers();
    for name in &names {
        f.driver(name, 1).await;
        f.run_driver(name).await;
        f.wait_state(name, "RUNNING").await;
    }
    for name in &names {
        let app = f.wait(name, "not exposed", |a| condition(a, "Exposed", "False").is_some()).await;
        assert_eq!(condition(&app, "Exposed", "False").unwrap().0, "Retrying", "{fault:?}");
    }
    f.event("SparkDriverNotExposed").await;
    for name in &names {
        f.end_driver(name, 0).await;
    }
    for name in &names {
        f.wait_state(name, "COMPLETED").await;
    }
    proxy.mend();
    let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
    let ingresses: Api<Ingress> = Api::namespaced(f.client.clone(), f.namespace.name());
    let theirs = ListParams::default().labels("firesteel.dev/exposes=driver");
    for name in &names {
        let settled = |a: &firesteel_api::SparkApplication| condition(a, "Exposed", "False").is_none();
        f.wait_settled(name, settled).await;
    }
    assert_eq!(services.list(&theirs).await.unwrap().items.len(), 0, "{fault:?}");
    assert_eq!(ingresses.list(&theirs).await.unwrap().items.len(), 0, "{fault:?}");
}

#[test]
fn every_driver_starts_while_the_api_server_is_broken_for_services_and_ingresses() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        install(&env.client().await).await;
        futures::future::join_all([Fault::Fails, Fault::Busy, Fault::Silent].map(drivers_start)).await;
    });
}
