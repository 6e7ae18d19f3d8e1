//! What keeps a driver from starting, for a user waiting for it.

use k8s_openapi::api::core::v1::Pod;

use super::reason::{Class, unscheduled, waiting_containers};

/// Something that holds a driver back and may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldUp {
    /// The same for the same problem, so that it is reported once.
    pub key: String,
    pub sentence: String,
    /// Normal for a moment: worth reporting only if it lasts.
    pub is_usual: bool,
}

/// What holds a pod back right now.
pub fn hold_up(pod: &Pod) -> Option<HoldUp> {
    let status = pod.status.as_ref()?;
    for (container, words) in waiting_containers(status) {
        let about = match words.class() {
            Some(Class::Image) => format!("the image {} cannot be pulled ({})", container.image, words.reason),
            Some(Class::Creation) => format!("container {} cannot be started ({})", container.name, words.reason),
            Some(Class::Waits | Class::Crashes | Class::Refused | Class::Taken | Class::Ended) | None => continue,
        };
        let message = one_line(&words.message);
        let sentence = if message.is_empty() { about } else { format!("{about}: {message}") };
        return Some(HoldUp { key: words.kind().to_owned() + &container.name, sentence, is_usual: false });
    }
    let words = unscheduled(status)?;
    match words.reason.as_str() {
        "SchedulingGated" => {
            let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).into_iter().flatten();
            let gates = gates.map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ");
            let sentence = format!("the driver is held back by scheduling gates: {gates}");
            (!gates.is_empty()).then(|| HoldUp { key: sentence.clone(), sentence, is_usual: true })
        }
        "Unschedulable" => Some(HoldUp {
            sentence: format!("the driver cannot be placed on a node: {}", one_line(&words.message)),
            key: words.reason,
            is_usual: true,
        }),
        _ => None,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "reads better where it is called")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "d" }, "spec": { "containers": [] }, "status": status }))
            .expect("a pod")
    }

    #[test]
    fn image_trouble_is_told_at_once_and_scheduling_only_if_it_lasts() {
        let pull = |reason: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": "not found" } });
            json!({ "phase": "Pending", "containerStatuses": [{ "name": "spark-kubernetes-driver",
                "image": "apache/spark:4.1.4", "imageID": "", "ready": false, "restartCount": 0, "state": state }] })
        };
        let first = hold_up(&pod(pull("ErrImagePull"))).expect("trouble");
        assert_eq!(first.sentence, "the image apache/spark:4.1.4 cannot be pulled (ErrImagePull): not found");
        assert!(!first.is_usual);
        assert_eq!(hold_up(&pod(pull("ImagePullBackOff"))).expect("trouble").key, first.key);
        assert_eq!(hold_up(&pod(pull("ContainerCreating"))), None);
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" });
        let held = hold_up(&pod(json!({ "phase": "Pending", "conditions": [condition] }))).expect("trouble");
        assert_eq!(held.sentence, "the driver cannot be placed on a node: 0/3 nodes are available");
        assert!(held.is_usual);
    }
}
