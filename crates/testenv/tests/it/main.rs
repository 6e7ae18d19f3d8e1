//! What tests can rely on when they use the control plane.

use std::process::Command;
use std::time::{Duration, Instant};

use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

fn pod(name: &str, labels: &serde_json::Value, annotations: &serde_json::Value) -> Pod {
    let pod = json!({
        "metadata": { "name": name, "labels": labels, "annotations": annotations },
        "spec": { "serviceAccountName": "spark", "restartPolicy": "Never", "containers": [{ "name": "main", "image": "none" }] },
    });
    serde_json::from_value(pod).expect("a pod")
}

async fn phase_after_end(pods: &Api<Pod>, name: &str) -> String {
    let began = Instant::now();
    loop {
        let phase = pods.get(name).await.expect("the pod").status.and_then(|status| status.phase).unwrap_or_default();
        if phase == "Succeeded" || phase == "Failed" {
            return phase;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{name} is still {phase}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn drivers_are_scheduled_run_and_end() {
    let Some(env) = TestEnv::get() else { return };
    if env.is_outside() {
        return; // A real cluster would have to pull an image.
    }
    let namespace = env.namespace("ends").await;
    let pods: Api<Pod> = Api::namespaced(env.client().await, namespace.name());
    let driver = json!({ "spark-role": "driver" });
    pods.create(&PostParams::default(), &pod("good", &driver, &json!({}))).await.expect("create");
    let failing = json!({ "testenv.firesteel.dev/run-for": "100ms", "testenv.firesteel.dev/exit-code": "3" });
    pods.create(&PostParams::default(), &pod("bad", &driver, &failing)).await.expect("create");
    assert_eq!(phase_after_end(&pods, "good").await, "Succeeded");
    assert_eq!(phase_after_end(&pods, "bad").await, "Failed");
    let status = pods
        .get("bad")
        .await
        .expect("the pod")
        .status
        .and_then(|status| status.container_statuses)
        .expect("container statuses");
    let code =
        status[0].state.as_ref().and_then(|state| state.terminated.as_ref()).map(|terminated| terminated.exit_code);
    assert_eq!(code, Some(3));
}

#[tokio::test]
async fn limited_kubeconfig_is_refused_what_it_may_not() {
    let Some(env) = TestEnv::get() else { return };
    let namespace = env.namespace("limits").await;
    let powerless = namespace.powerless("noperm").await;
    let reader = namespace.limited("reader", &["pods"], &["get", "list"]).await;
    let get = |kubeconfig: &std::path::Path, what: &str| {
        let output = Command::new(env.kubectl())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["get", what])
            .output()
            .expect("kubectl runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (allowed, words) = get(powerless.path(), "pods");
    let user = format!("system:serviceaccount:{}:noperm", namespace.name());
    assert!(!allowed && words.contains("Forbidden") && words.contains(&user), "{words}");
    assert!(get(reader.path(), "pods").0);
    assert!(!get(reader.path(), "configmaps").0);
    assert!(get(namespace.kubeconfig_for("spark").await.path(), "configmaps").0);
}

#[tokio::test]
async fn two_namespaces_are_two() {
    let Some(env) = TestEnv::get() else { return };
    let (one, two) = (env.namespace("same").await, env.namespace("same").await);
    assert_ne!(one.name(), two.name());
}
