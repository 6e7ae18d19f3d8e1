//! How a driver ended: the exit status of the program that waited for it, and the reason for a failure.

use firesteel_core::diagnosis::{self, Cause, Facts, Log};
use firesteel_core::pod::DriverEnd;
use firesteel_spark::redaction::Redaction;
use k8s_openapi::api::core::v1::Pod;

use crate::exit::ExitStatus;

/// The end of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) exit: ExitStatus,
    /// Why it failed, if it did.
    pub(crate) failure: Option<Failure>,
}

/// Why a driver failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// According to its pod.
    Driver(DriverEnd),
    /// Any other reason.
    Other(String),
}

impl Verdict {
    /// The verdict for a pod; `None` until its driver has ended.
    pub(crate) fn of(pod: &Pod) -> Option<Self> {
        DriverEnd::of(pod).map(Verdict::from)
    }

    /// The verdict for a deleted pod, as it was last seen.
    pub(crate) fn of_deleted(pod: &Pod) -> Self {
        DriverEnd::of_deleted(pod).into()
    }

    /// A verdict for a reason other than the end of the driver.
    pub(crate) fn other(exit: ExitStatus, why: &str) -> Self {
        Verdict { exit, failure: Some(Failure::Other(why.to_owned())) }
    }
}

impl From<DriverEnd> for Verdict {
    fn from(end: DriverEnd) -> Self {
        let exit = match &end {
            DriverEnd::Succeeded => return Verdict { exit: ExitStatus::Success, failure: None },
            DriverEnd::Failed { ended: Some(ended), .. } => {
                ExitStatus::Driver(u8::try_from(ended.exit_code).unwrap_or(1))
            }
            DriverEnd::Deleted { started: true, .. } => ExitStatus::Failure,
            DriverEnd::Failed { ended: None, .. } | DriverEnd::Deleted { started: false, .. } => {
                ExitStatus::NeverStarted
            }
        };
        Verdict { exit, failure: Some(Failure::Driver(end)) }
    }
}

impl Failure {
    /// One sentence without a full stop, with the cause found at the end of the driver's log.
    pub(crate) fn words(&self, cause: Option<&Cause>) -> String {
        match self {
            Failure::Driver(end) => diagnosis::driver_end(end, cause),
            Failure::Other(words) => words.clone(),
        }
    }

    /// Whether its container ran, so that there is a log to read.
    pub(crate) fn has_log(&self) -> bool {
        matches!(self, Failure::Driver(DriverEnd::Failed { ended: Some(_), .. }))
    }

    /// The cause, from the end of the driver's log.
    pub(crate) fn cause(&self, pod: &Pod, log: &[u8], redaction: &Redaction) -> Option<Cause> {
        match self {
            Failure::Driver(DriverEnd::Failed { ended: Some(ended), .. }) => {
                diagnosis::cause(ended, &Log::new(log, redaction), Facts::of(pod))
            }
            Failure::Driver(_) | Failure::Other(_) => None,
        }
    }
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

    fn words(verdict: &Verdict) -> String {
        verdict.failure.as_ref().expect("failed").words(None)
    }

    #[test]
    fn running_driver_has_no_verdict() {
        assert_eq!(Verdict::of(&pod(json!({ "phase": "Running" }))), None);
        assert_eq!(Verdict::of(&pod(json!({}))), None);
    }

    #[test]
    fn exit_code_of_the_driver_is_ours() {
        let ended = |code: i32, reason: &str| json!({ "phase": "Failed", "containerStatuses": driver(json!({ "terminated": { "exitCode": code, "reason": reason } })) });
        let one = Verdict::of(&pod(ended(42, "Error"))).expect("over");
        assert_eq!((one.exit, words(&one)), (ExitStatus::Driver(42), "the driver ended with exit code 42".to_owned()));
        let oom = Verdict::of(&pod(ended(137, "OOMKilled"))).expect("over");
        assert_eq!(oom.exit, ExitStatus::Driver(137));
        assert!(words(&oom).contains("spark.driver.memory"), "{oom:?}");
    }

    #[test]
    fn eviction_and_deletion_say_so() {
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." });
        let evicted = Verdict::of(&pod(evicted)).expect("over");
        let said = "the driver's pod failed: the node evicted it (Evicted): The node was low on memory.";
        assert_eq!(words(&evicted), said);
        assert_eq!(evicted.exit, ExitStatus::NeverStarted);
        let deleted = Verdict::of_deleted(&pod(json!({ "phase": "Running" })));
        let said = "its pod was deleted while it was running".to_owned();
        assert_eq!((deleted.exit, words(&deleted)), (ExitStatus::Failure, said));
        let pending = Verdict::of_deleted(&pod(json!({ "phase": "Pending" })));
        assert_eq!(pending.exit, ExitStatus::NeverStarted);
    }
}
