//! Drivers on dying nodes.

use std::time::Duration;

use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, block_on, condition, message};

/// A node without a kubelet. Nothing is scheduled to it: drivers are bound by the test.
struct DeadNode {
    api: Api<Node>,
    name: String,
}

impl DeadNode {
    async fn make(client: &Client, name: &str) -> DeadNode {
        let api: Api<Node> = Api::all(client.clone());
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
        api.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let now = crate::fixture::now();
        let silent = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastHeartbeatTime": now, "lastTransitionTime": now});
        let patch = Patch::Merge(json!({"status": {"conditions": [silent]}}));
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        DeadNode { api, name: name.to_owned() }
    }

    /// Puts the driver of an application on it, starts it, and requests its deletion.
    async fn keeps(&self, f: &Fixture, app: &str) -> Pod {
        let pod = f.driver(app, 1).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name}});
        let bound: serde_json::Value =
            f.pods.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await.unwrap();
        assert_eq!(bound["status"], "Success", "{bound}");
        f.run_driver(app).await;
        f.wait_state(app, "RUNNING").await;
        f.pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(3)).await.unwrap();
        pod
    }

    /// The same, and waits until the application reports the problem.
    async fn silences(&self, f: &Fixture, app: &str) -> Pod {
        let pod = self.keeps(f, app).await;
        let told = f.wait(app, "unreachable", |a| condition(a, "DriverPresent", "Unknown").is_some()).await;
        let (reason, message) = condition(&told, "DriverPresent", "Unknown").unwrap();
        assert_eq!(reason, "NodeNotReady");
        assert!(message.contains(&format!("its node {} does not report", self.name)), "{message}");
        assert!(f.event("SparkDriverUnreachable").await.contains(&self.name));
        pod
    }

    async fn remove(&self) {
        self.api.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

const AGAIN: &str = r#"{"restartPolicy": {"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1}}"#;

/// The second attempt has its own pod, and the status says what happened to the first.
async fn runs_again(f: &Fixture, first: &Pod, why: &str) {
    let why = why.to_owned();
    let began = tokio::time::Instant::now();
    let lost = f.wait("pi", "lost", |a| message(a).starts_with("driver pod lost by the platform: ")).await;
    assert!(message(&lost).contains(&why), "{}", message(&lost));
    let second = f.driver("pi", 2).await;
    assert_ne!(second.uid(), first.uid());
    assert!(began.elapsed() < Duration::from_secs(30), "not sooner than Kubernetes itself cleans up");
    f.run_driver("pi").await;
    f.end_driver("pi", 0).await;
    f.wait_state("pi", "COMPLETED").await;
    assert!(f.event("SparkDriverLost").await.contains(&why));
}

#[test]
fn a_driver_whose_node_object_is_deleted_is_lost_and_the_application_runs_again() {
    block_on(async {
        let Some(f) = Fixture::new("node-gone").await else { return };
        let node = DeadNode::make(&f.client, f.namespace.name()).await;
        f.create("pi", &serde_json::from_str(AGAIN).unwrap()).await;
        let pod = node.silences(&f, "pi").await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(f.pods.get("pi-driver").await.unwrap().uid(), pod.uid(), "a silent node alone decides nothing");
        node.remove().await;
        runs_again(&f, &pod, "no longer exists").await;
    });
}

#[test]
fn a_driver_whose_node_is_marked_out_of_service_is_lost_and_the_application_runs_again() {
    block_on(async {
        let Some(f) = Fixture::new("node-out").await else { return };
        let node = DeadNode::make(&f.client, f.namespace.name()).await;
        f.create("pi", &serde_json::from_str(AGAIN).unwrap()).await;
        let pod = node.silences(&f, "pi").await;
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
        let patch = Patch::Strategic(json!({"spec": {"taints": [taint]}}));
        node.api.patch(&node.name, &PatchParams::default(), &patch).await.unwrap();
        runs_again(&f, &pod, "is out of service").await;
        node.remove().await;
    });
}

#[test]
fn a_driver_on_a_silent_node_is_given_up_after_the_configured_timeout() {
    block_on(async {
        let tune = |options: &mut firesteel_operator::Options| {
            options.limits.unreachable_timeout = Some(SignedDuration::from_secs(2));
        };
        let Some(f) = Fixture::tuned("node-silent", tune).await else { return };
        let node = DeadNode::make(&f.client, f.namespace.name()).await;
        f.create("pi", &serde_json::from_str(AGAIN).unwrap()).await;
        let pod = node.silences(&f, "pi").await;
        runs_again(&f, &pod, "did not report for 2 s").await;
        node.remove().await;
    });
}

#[test]
fn an_operator_that_may_not_read_nodes_says_so() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let (f, _) = crate::rights::restricted(env).await;
        let node = DeadNode::make(&f.client, f.namespace.name()).await;
        f.create("pi", &json!({})).await;
        node.keeps(&f, "pi").await;
        let app = f.wait("pi", "unreachable", |a| condition(a, "DriverPresent", "Unknown").is_some()).await;
        let (reason, message) = condition(&app, "DriverPresent", "Unknown").unwrap();
        assert_eq!(reason, "NodeUnreadable");
        assert!(message.contains("forbidden") && message.contains("allow the operator to get nodes"), "{message}");
        node.remove().await;
    });
}
