//! The size of an application's object with many executors.

use std::collections::BTreeMap;

use firesteel_api::{SparkApplication, SparkApplicationStatus};
use firesteel_core::conf::Subject;
use firesteel_core::executors::ExecutorSeen;
use firesteel_core::lifecycle::{App, Limits, Observation, Seen, step};
use firesteel_core::pod::{DriverPod, PodPhase};
use firesteel_operator::writes;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use crate::fixture::{Fixture, block_on};

/// The status of a running application with many executors.
fn crowded(app: &SparkApplication, driver: DriverPod, count: i64) -> SparkApplicationStatus {
    let (name, namespace, uid) = (app.name_any(), app.namespace().unwrap(), app.uid().unwrap());
    let labels = BTreeMap::new();
    let wanted = App {
        subject: Subject { name: &name, namespace: &namespace, uid: &uid, labels: &labels, spec: &app.spec },
        spec_hash: app.status.as_ref().unwrap().spec_hash.as_deref().unwrap(),
        generation: app.metadata.generation.unwrap(),
        deleting: false,
        status: app.status.as_ref().unwrap(),
        problem: None,
    };
    let executors = (1..=count).map(|id| ExecutorSeen {
        name: format!("{name}-0123456789abcdef-exec-{id}"),
        id,
        phase: PodPhase::Running,
    });
    let seen =
        Observation { executors: executors.collect(), ..Observation::of(Seen::Present(driver), Timestamp::now()) };
    step(&wanted, &seen, &Limits::default()).status
}

#[test]
fn an_application_with_two_thousand_executors_stays_below_200_kib() {
    block_on(async {
        let Some(mut f) = Fixture::new("size").await else { return };
        let name = "a".repeat(55);
        f.create(&name, &json!({})).await;
        let pod = f.driver(&name, 1).await;
        f.stop_operator();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let app = f.apps.get(&name).await.unwrap();
        let driver = DriverPod::read(&pod, &name, &app.uid().unwrap());
        let status = crowded(&app, driver, 2000);
        assert_eq!(status.executor_counts.as_ref().unwrap().running, 2000);
        let patch = writes::status_patch(app.status.as_ref(), &status).unwrap().unwrap();
        writes::patch_status::<firesteel_api::SparkApplication>(&f.client, f.namespace.name(), &name, None, &patch)
            .await
            .unwrap();
        // As stored and sent, including managedFields.
        let path =
            format!("/apis/sparkoperator.k8s.io/v1beta2/namespaces/{}/sparkapplications/{name}", f.namespace.name());
        let stored = f.client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        assert!(stored.contains("managedFields"));
        assert!(stored.len() < 200 * 1024, "{} bytes", stored.len());
        assert!(stored.len() > 60 * 1024, "the executor table is missing");
    });
}
