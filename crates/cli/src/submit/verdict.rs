//! What became of a driver, and what keeps it from starting: pure readings of its pod.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition};

use crate::exit::ExitStatus;
use crate::submit::state::phase;

/// The end of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) exit: ExitStatus,
    /// Why it failed, if it did: one sentence without a full stop.
    pub(crate) failure: Option<String>,
}

/// Something that holds a driver back and may pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The same for the same trouble, so that it is told once.
    pub(crate) key: String,
    pub(crate) sentence: String,
    /// Usual for a moment: worth telling only if it lasts.
    pub(crate) patience: bool,
}

/// The verdict on a pod, or `None` while it is not over. `gone` means that the pod was deleted and this is how it was last
/// seen.
pub(crate) fn verdict(pod: &Pod, container: &str, gone: bool) -> Option<Verdict> {
    let driver = status_of(pod, container);
    let ended = driver.and_then(|status| status.state.as_ref()).and_then(|state| state.terminated.as_ref());
    match phase(pod) {
        "Succeeded" => Some(Verdict { exit: ExitStatus::Success, failure: None }),
        "Failed" => Some(failed(pod, ended)),
        _ if gone => Some(match ended {
            Some(ended) if ended.exit_code == 0 => Verdict { exit: ExitStatus::Success, failure: None },
            Some(ended) => failed(pod, Some(ended)),
            None => {
                let started = driver.is_some_and(|status| status.started == Some(true)) || phase(pod) == "Running";
                Verdict {
                    exit: if started { ExitStatus::Failure } else { ExitStatus::NeverStarted },
                    failure: Some(format!("its pod was deleted while it was {}", phase(pod).to_lowercase())),
                }
            }
        }),
        _ => None,
    }
}

fn failed(pod: &Pod, ended: Option<&ContainerStateTerminated>) -> Verdict {
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or_default();
    let message = status.and_then(|status| status.message.as_deref()).map(one_line).unwrap_or_default();
    let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
    let pod_failure = match reason {
        "" => None,
        "Evicted" => Some(format!("its pod was evicted{detail}")),
        "Preempting" | "Preempted" => Some(format!("its pod had to make room for another{detail}")),
        "NodeLost" | "NodeShutdown" | "Terminated" | "Shutdown" => Some(format!("its node went away{detail}")),
        "DeadlineExceeded" => Some(format!("its pod ran longer than activeDeadlineSeconds allows{detail}")),
        other => Some(format!("its pod failed with {other}{detail}")),
    };
    let Some(ended) = ended else {
        let failure = pod_failure
            .or_else(|| init_failure(pod))
            .unwrap_or_else(|| format!("its pod failed without starting it{detail}"));
        return Verdict { exit: ExitStatus::NeverStarted, failure: Some(failure) };
    };
    if ended.exit_code == 0 {
        let failure = pod_failure
            .unwrap_or_else(|| "the driver ended with 0, but another container of its pod failed".to_owned());
        return Verdict { exit: ExitStatus::Failure, failure: Some(failure) };
    }
    let code = u8::try_from(ended.exit_code).unwrap_or(1);
    let meaning = meaning(ended);
    let failure = match pod_failure {
        Some(pod_failure) => format!("{pod_failure} (exit code {code})"),
        None if meaning.is_empty() => format!("the driver ended with exit code {code}"),
        None => format!("the driver ended with exit code {code}: {meaning}"),
    };
    Verdict { exit: ExitStatus::Driver(code), failure: Some(failure) }
}

/// What an exit code says, as far as anything does.
fn meaning(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().unwrap_or_default();
    let message = ended.message.as_deref().map(one_line).unwrap_or_default();
    match (reason, ended.exit_code) {
        ("OOMKilled", _) => {
            "it used more memory than its limit (OOMKilled); raise spark.driver.memory or spark.driver.memoryOverhead"
                .to_owned()
        }
        ("StartError" | "ContainerCannotRun", _) => format!("the container could not be started: {message}"),
        (_, 52) => "it ran out of Java heap; raise spark.driver.memory".to_owned(),
        (_, 50 | 51) => "an exception was not caught".to_owned(),
        (_, 101) => "the main class could not be started; check --class and the application's jar".to_owned(),
        (_, 126) => "the image's entry point cannot be executed".to_owned(),
        (_, 127) => "the image has no such command; is it a Spark image?".to_owned(),
        (_, 134) => "it aborted (SIGABRT)".to_owned(),
        (_, 137) => "it was killed (SIGKILL), often for lack of memory on its node".to_owned(),
        (_, 139) => "it crashed (SIGSEGV)".to_owned(),
        (_, 143) => "it was asked to end (SIGTERM)".to_owned(),
        ("" | "Error" | "Completed", _) => message,
        (other, _) => format!("{other} {message}").trim().to_owned(),
    }
}

fn init_failure(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    statuses.iter().find_map(|status| {
        let ended = status.state.as_ref()?.terminated.as_ref()?;
        (ended.exit_code != 0)
            .then(|| format!("its init container {} ended with exit code {}", status.name, ended.exit_code))
    })
}

/// Waiting reasons that mean more than "in a moment".
const HELD_UP: [&str; 9] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// What holds a pod back right now.
pub(crate) fn trouble(pod: &Pod) -> Option<Trouble> {
    let status = pod.status.as_ref()?;
    let all = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    for container in all {
        let Some(waiting) = container.state.as_ref().and_then(|state| state.waiting.as_ref()) else { continue };
        let reason = waiting.reason.as_deref().unwrap_or_default();
        if HELD_UP.contains(&reason) {
            let message = waiting.message.as_deref().map(one_line).unwrap_or_default();
            let about = if reason.contains("Image") || reason == "RegistryUnavailable" {
                format!("the image {} cannot be pulled ({reason})", container.image)
            } else {
                format!("container {} cannot be started ({reason})", container.name)
            };
            let sentence = if message.is_empty() { about } else { format!("{about}: {message}") };
            // Pulling alternates between trying and backing off: that is one trouble, not many.
            let key = reason.replace("ImagePullBackOff", "ErrImagePull") + &container.name;
            return Some(Trouble { key, sentence, patience: false });
        }
    }
    let scheduled = |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
    let condition = status.conditions.iter().flatten().find(scheduled)?;
    let message = condition.message.as_deref().map(one_line).unwrap_or_default();
    match condition.reason.as_deref() {
        Some("SchedulingGated") => {
            let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).into_iter().flatten();
            let gates = gates.map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ");
            let sentence = format!("the driver is held back by scheduling gates: {gates}");
            (!gates.is_empty()).then(|| Trouble { key: sentence.clone(), sentence, patience: true })
        }
        Some("Unschedulable") => Some(Trouble {
            key: "Unschedulable".to_owned(),
            sentence: format!("the driver cannot be placed on a node: {message}"),
            patience: true,
        }),
        _ => None,
    }
}

/// The status of the named container; with another name in the pod, of the last one, where Spark puts its own.
pub(crate) fn status_of<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses
        .iter()
        .find(|status| status.name == container)
        .or_else(|| if statuses.len() == 1 { statuses.first() } else { None })
}

fn one_line(text: impl AsRef<str>) -> String {
    text.as_ref().split_whitespace().collect::<Vec<_>>().join(" ")
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

    fn driver(state: Value) -> Value {
        json!([{ "name": "spark-kubernetes-driver", "image": "apache/spark:4.1.4", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
    }

    fn judge(status: Value, gone: bool) -> Option<Verdict> {
        verdict(&pod(status), "spark-kubernetes-driver", gone)
    }

    #[test]
    fn running_driver_has_no_verdict() {
        assert_eq!(judge(json!({ "phase": "Running" }), false), None);
        assert_eq!(judge(json!({}), false), None);
    }

    #[test]
    fn exit_code_of_the_driver_is_ours() {
        let ended = |code: i32, reason: &str| json!({ "phase": "Failed", "containerStatuses": driver(json!({ "terminated": { "exitCode": code, "reason": reason } })) });
        let one = judge(ended(1, "Error"), false).expect("over");
        assert_eq!(
            (one.exit, one.failure.as_deref()),
            (ExitStatus::Driver(1), Some("the driver ended with exit code 1"))
        );
        let oom = judge(ended(137, "OOMKilled"), false).expect("over");
        assert_eq!(oom.exit, ExitStatus::Driver(137));
        assert!(oom.failure.expect("failed").contains("spark.driver.memory"));
    }

    #[test]
    fn eviction_and_deletion_say_so() {
        let evicted =
            judge(json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." }), false)
                .expect("over");
        assert_eq!(evicted.failure.as_deref(), Some("its pod was evicted: The node was low on memory."));
        assert_eq!(evicted.exit, ExitStatus::NeverStarted);
        let deleted = judge(json!({ "phase": "Running" }), true).expect("over");
        assert_eq!(
            (deleted.exit, deleted.failure.as_deref()),
            (ExitStatus::Failure, Some("its pod was deleted while it was running"))
        );
        let pending = judge(json!({ "phase": "Pending" }), true).expect("over");
        assert_eq!(pending.exit, ExitStatus::NeverStarted);
    }

    #[test]
    fn image_trouble_is_told_at_once_and_scheduling_only_if_it_lasts() {
        let pull = |reason: &str| json!({ "phase": "Pending", "containerStatuses": driver(json!({ "waiting": { "reason": reason, "message": "not found" } })) });
        let first = trouble(&pod(pull("ErrImagePull"))).expect("trouble");
        assert_eq!(first.sentence, "the image apache/spark:4.1.4 cannot be pulled (ErrImagePull): not found");
        assert!(!first.patience);
        assert_eq!(trouble(&pod(pull("ImagePullBackOff"))).expect("trouble").key, first.key);
        assert_eq!(trouble(&pod(pull("ContainerCreating"))), None);
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" });
        let held = trouble(&pod(json!({ "phase": "Pending", "conditions": [condition] }))).expect("trouble");
        assert_eq!(held.sentence, "the driver cannot be placed on a node: 0/3 nodes are available");
        assert!(held.patience);
    }
}
