//! What became of a driver, and what keeps it from starting: pure readings of its pod.

use firesteel_core::diagnosis::{self, Cause, Facts, Log};
use firesteel_core::driver_pod::{self, Ended, Words};
use firesteel_spark::redaction::Redaction;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodCondition};

use crate::exit::ExitStatus;
use crate::submit::state::phase;

/// The end of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) exit: ExitStatus,
    /// Why it failed, if it did.
    pub(crate) failure: Option<Failure>,
}

/// Why a driver failed, as far as its pod tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    Ended {
        ended: Option<Ended>,
        /// What happened to the pod as a whole.
        pod: Option<Words>,
    },
    /// Anything else, in words.
    Other(String),
}

impl Failure {
    /// One sentence without a full stop, and what the end of the driver's log adds to it.
    pub(crate) fn words(&self, cause: Option<&Cause>) -> String {
        match self {
            Failure::Ended { ended, pod } => diagnosis::driver_end(ended.as_ref(), pod.as_ref(), cause),
            Failure::Other(words) => words.clone(),
        }
    }

    /// Whether its container began, so that there is a log to read.
    pub(crate) fn has_log(&self) -> bool {
        matches!(self, Failure::Ended { ended: Some(_), .. })
    }

    /// The cause, by the end of the driver's log.
    pub(crate) fn cause(&self, pod: &Pod, log: &[u8], redaction: &Redaction) -> Option<Cause> {
        match self {
            Failure::Ended { ended: Some(ended), .. } => {
                diagnosis::cause(ended, &Log::new(log, redaction), Facts::of(pod))
            }
            Failure::Ended { ended: None, .. } | Failure::Other(_) => None,
        }
    }
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
                    failure: Some(Failure::Other(format!(
                        "its pod was deleted while it was {}",
                        phase(pod).to_lowercase()
                    ))),
                }
            }
        }),
        _ => None,
    }
}

fn failed(pod: &Pod, ended: Option<&ContainerStateTerminated>) -> Verdict {
    let exit = match ended {
        None => ExitStatus::NeverStarted,
        Some(ended) if ended.exit_code == 0 => ExitStatus::Failure,
        Some(ended) => ExitStatus::Driver(u8::try_from(ended.exit_code).unwrap_or(1)),
    };
    let pod = pod.status.as_ref().and_then(driver_pod::failure);
    Verdict { exit, failure: Some(Failure::Ended { ended: ended.map(Ended::from), pod }) }
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

    fn words(verdict: &Verdict) -> String {
        verdict.failure.as_ref().expect("failed").words(None)
    }

    #[test]
    fn running_driver_has_no_verdict() {
        assert_eq!(judge(json!({ "phase": "Running" }), false), None);
        assert_eq!(judge(json!({}), false), None);
    }

    #[test]
    fn exit_code_of_the_driver_is_ours() {
        let ended = |code: i32, reason: &str| json!({ "phase": "Failed", "containerStatuses": driver(json!({ "terminated": { "exitCode": code, "reason": reason } })) });
        let one = judge(ended(42, "Error"), false).expect("over");
        assert_eq!((one.exit, words(&one)), (ExitStatus::Driver(42), "the driver ended with exit code 42".to_owned()));
        let oom = judge(ended(137, "OOMKilled"), false).expect("over");
        assert_eq!(oom.exit, ExitStatus::Driver(137));
        assert!(words(&oom).contains("spark.driver.memory"), "{oom:?}");
    }

    #[test]
    fn eviction_and_deletion_say_so() {
        let evicted =
            judge(json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." }), false)
                .expect("over");
        let said = "the driver's pod failed: the node evicted it (Evicted): The node was low on memory.";
        assert_eq!(words(&evicted), said);
        assert_eq!(evicted.exit, ExitStatus::NeverStarted);
        let deleted = judge(json!({ "phase": "Running" }), true).expect("over");
        let said = "its pod was deleted while it was running".to_owned();
        assert_eq!((deleted.exit, words(&deleted)), (ExitStatus::Failure, said));
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
