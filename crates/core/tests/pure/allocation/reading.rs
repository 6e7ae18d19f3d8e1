//! What is read from an executor pod.

use firesteel_core::allocation::pod::ExecutorPod;
use serde_json::{Value, json};

fn ends(restarts: u32, state: &Value, last: &Value) -> u32 {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "s", "controller": true});
    let pod = json!({
        "metadata": {"name": "p", "ownerReferences": [owner]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "spark", "image": "", "imageID": "", "ready": true,
            "restartCount": restarts, "state": state, "lastState": last}]},
    });
    ExecutorPod::read(&serde_json::from_value(pod).unwrap(), "spark").unwrap().member.unwrap().ends
}

#[test]
fn ends_of_containers_are_counted_alike_in_every_state_that_nodes_write() {
    let (running, ended) = (json!({"running": {}}), json!({"terminated": {"exitCode": 1}}));
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let none = json!({});
    assert_eq!(ends(0, &waiting("ContainerCreating"), &none), 0);
    assert_eq!(ends(0, &running, &none), 0);
    assert_eq!(ends(0, &ended, &none), 1);
    // Restarting: some nodes already count it, some do not.
    assert_eq!(ends(0, &waiting("ContainerCreating"), &ended), 1);
    assert_eq!(ends(1, &waiting("ContainerCreating"), &ended), 1);
    assert_eq!(ends(1, &running, &ended), 1);
    assert_eq!(ends(1, &ended, &ended), 2);
    assert_eq!(ends(1, &waiting("CrashLoopBackOff"), &ended), 2);
    assert_eq!(ends(2, &running, &ended), 2);
}
