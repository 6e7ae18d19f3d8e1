//! Drivers on silent nodes: how they are reported, and when they count as lost.

use firesteel_api::SparkApplicationStatus;
use firesteel_core::driver_node::DriverNode;
use firesteel_core::lifecycle::{Decision, Effect, ExposureJob, Limits, Observation, Seen, Work, step};
use firesteel_core::pod::DriverPod;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use crate::lifecycle::{UID, at, driver_metadata, submitted_once, with_app};

const SILENT: DriverNode = DriverNode::Present { ready: false, out_of_service: false };

/// A driver on a node; its deletion was requested, and it should be gone at 30 s.
fn terminating() -> Value {
    let mut metadata = driver_metadata();
    metadata["deletionTimestamp"] = json!(at(30));
    metadata["deletionGracePeriodSeconds"] = json!(30);
    json!({"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}})
}

fn read(pod: &Value) -> DriverPod {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    DriverPod::read(&pod, "pi", UID)
}

fn status(state: &str) -> SparkApplicationStatus {
    serde_json::from_value(submitted_once(state)).unwrap()
}

fn look(status: &SparkApplicationStatus, pod: &Value, node: DriverNode, now: i64, limits: &Limits) -> Decision {
    let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
    let suspend = status.application_state.state == "SUSPENDING";
    let spec = serde_json::from_value(json!({"restartPolicy": policy, "suspend": suspend})).unwrap();
    // It has no exposure.
    let work = Work::Make { submission_id: "s".to_owned() };
    let (first, last) = (at(0), at(0));
    let job = ExposureJob {
        work,
        objects: 0,
        under_way: false,
        failures: 0,
        first,
        last,
        outcome: None,
        kind_appeared: false,
    };
    let driver = Seen::Present(read(pod));
    let seen = Observation { node: Some(node), exposure_job: Some(job), ..Observation::of(driver, at(now)) };
    with_app(&spec, status, |app| step(app, &seen, limits))
}

fn forced(decision: &Decision) -> bool {
    decision.effects.contains(&Effect::DeleteDriver { name: "pi-driver".to_owned(), uid: "u".to_owned(), force: true })
}

fn present(decision: &Decision) -> (String, String, String) {
    let condition = decision.status.conditions.iter().find(|c| c.type_ == "DriverPresent").unwrap();
    (condition.status.clone(), condition.reason.clone(), condition.message.clone())
}

#[test]
fn a_driver_on_a_silent_node_is_reported_at_once_and_kept_until_the_node_is_known_dead() {
    let running = status("RUNNING");
    let told = look(&running, &terminating(), SILENT, 1, &Limits::default());
    assert_eq!(told.status.application_state.state, "RUNNING");
    let (value, reason, message) = present(&told);
    assert_eq!((value.as_str(), reason.as_str()), ("Unknown", "NodeNotReady"));
    assert!(message.contains("node n1 does not report") && message.contains("out-of-service"), "{message}");
    assert!(told.events.iter().any(|e| e.warning && e.reason == "SparkDriverUnreachable"), "{:?}", told.events);
    assert!(told.wake.unwrap() <= at(11), "nobody watches nodes: {:?}", told.wake);
    // Reported once, and the same a day later.
    let later = look(&told.status, &terminating(), SILENT, 86_400, &Limits::default());
    assert!(later.events.is_empty() && later.effects.is_empty(), "{later:?}");
    assert_eq!(later.status.conditions, told.status.conditions, "nothing to write");
    // The node comes back, and so does the driver.
    let ready = DriverNode::Present { ready: true, out_of_service: false };
    assert_eq!(present(&look(&told.status, &terminating(), ready, 20, &Limits::default())).0, "True");
}

#[test]
fn a_driver_whose_node_is_gone_or_out_of_service_is_lost_and_the_application_runs_again() {
    let out_of_service = DriverNode::Present { ready: false, out_of_service: true };
    for (node, now, word) in [(DriverNode::Gone, 30, "no longer exists"), (out_of_service, 1, "is out of service")] {
        let lost = look(&status("RUNNING"), &terminating(), node.clone(), now, &Limits::default());
        assert!(forced(&lost), "{lost:?}");
        assert_eq!(lost.status.application_state.state, "FAILING");
        let message = &lost.status.application_state.error_message;
        assert!(message.starts_with("driver pod lost by the platform: node n1") && message.contains(word), "{message}");
        assert_eq!(lost.status.run_failures, Some(1));
        let again = look(&lost.status, &terminating(), node.clone(), now + 1, &Limits::default());
        assert_eq!(again.status.application_state.state, "PENDING_RERUN");
        // The operator died between writing the status and deleting the pod: it is deleted now.
        assert!(forced(&look(&again.status, &terminating(), node.clone(), now + 1, &Limits::default())));
        let mut pod = terminating();
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        let held = look(&again.status, &pod, node, now + 1, &Limits::default());
        assert!(!forced(&held), "it was already force-deleted; a finalizer blocks it");
    }
}

#[test]
fn a_driver_on_a_deleted_node_keeps_its_grace_period() {
    let early = look(&status("RUNNING"), &terminating(), DriverNode::Gone, 29, &Limits::default());
    assert!(early.effects.is_empty(), "{early:?}");
    assert_eq!((present(&early).1.as_str(), early.wake), ("NodeGone", Some(at(30))));
    // A node that still reports although it is out of service ends its pods itself.
    let reports = DriverNode::Present { ready: true, out_of_service: true };
    assert!(look(&status("RUNNING"), &terminating(), reports.clone(), 29, &Limits::default()).effects.is_empty());
    assert!(forced(&look(&status("RUNNING"), &terminating(), reports, 30, &Limits::default())));
}

#[test]
fn a_silent_node_is_given_up_only_after_the_configured_timeout() {
    let bound = Limits { unreachable_timeout: Some(SignedDuration::from_secs(600)), ..Limits::default() };
    let unreadable = DriverNode::Unreadable("nodes \"n1\" is forbidden".to_owned());
    for node in [SILENT, unreadable.clone()] {
        let before = look(&status("RUNNING"), &terminating(), node.clone(), 629, &bound);
        assert!(before.effects.is_empty() && before.wake == Some(at(630)), "{before:?}");
        assert!(forced(&look(&status("RUNNING"), &terminating(), node.clone(), 630, &bound)));
        let never = look(&status("RUNNING"), &terminating(), node, 1_000_000, &Limits::default());
        assert!(never.effects.is_empty(), "{never:?}");
    }
    let (_, reason, message) = present(&look(&status("RUNNING"), &terminating(), unreadable, 31, &bound));
    assert_eq!(reason, "NodeUnreadable");
    assert!(message.contains("is forbidden") && message.contains("allow the operator to get nodes"), "{message}");
    // A reporting node is never given up: force does not help against whatever blocks the pod.
    let ready = DriverNode::Present { ready: true, out_of_service: false };
    let held = look(&status("RUNNING"), &terminating(), ready, 1_000_000, &bound);
    assert!(held.effects.is_empty());
    assert_eq!(present(&held).1, "Terminating");
}

#[test]
fn an_application_leaves_a_dead_node_in_any_state() {
    for state in
        ["SUSPENDING", "INVALIDATING", "PENDING_RERUN", "RESUMING", "FAILING", "FAILED", "UNKNOWN", "SUBMITTED"]
    {
        let decision = look(&status(state), &terminating(), DriverNode::Gone, 40, &Limits::default());
        assert!(forced(&decision), "{state}: {decision:?}");
    }
    let mut sidecar = terminating();
    let ended = json!({"name": "spark-kubernetes-driver", "state": {"terminated": {"exitCode": 1}},
        "image": "", "imageID": "", "ready": false, "restartCount": 0});
    sidecar["status"]["containerStatuses"] = json!([ended]);
    let next = look(&status("PENDING_RERUN"), &sidecar, DriverNode::Gone, 40, &Limits::default());
    assert!(forced(&next), "a sidecar on a dead node does not hold the next attempt up: {next:?}");
}

#[test]
fn nodes_are_read_only_when_it_matters() {
    let mut pod = terminating();
    assert!(read(&pod).may_be_unreachable());
    pod["metadata"]["deletionTimestamp"] = Value::Null;
    assert!(!read(&pod).may_be_unreachable(), "it runs");
    // What Kubernetes writes into pods of a node that stopped reporting.
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    assert!(read(&pod).may_be_unreachable());
    let told = look(&status("RUNNING"), &pod, SILENT, 1, &Limits::default());
    assert_eq!((present(&told).1.as_str(), told.effects.len()), ("NodeNotReady", 0));
    pod["spec"]["nodeName"] = Value::Null;
    assert!(!read(&pod).may_be_unreachable());
    let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let node: Node = serde_json::from_value(node).unwrap();
    assert_eq!(DriverNode::read(&node), DriverNode::Present { ready: false, out_of_service: true });
}
