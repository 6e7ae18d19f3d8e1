//! How containers end, and what their exit codes mean.

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use k8s_openapi::jiff::Timestamp;

/// The exit code of a driver that was ended because its executors do not work.
pub const EXECUTORS_FAILED: i32 = 11;
/// Kubernetes' reason for a container that exceeded its memory limit.
pub(crate) const OUT_OF_MEMORY: &str = "OOMKilled";

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: String,
    pub at: Option<Timestamp>,
}

impl From<&ContainerStateTerminated> for Ended {
    fn from(state: &ContainerStateTerminated) -> Self {
        Ended {
            exit_code: state.exit_code,
            signal: state.signal,
            reason: state.reason.clone().unwrap_or_default(),
            message: state.message.clone().unwrap_or_default(),
            at: state.finished_at.as_ref().map(|t| t.0),
        }
    }
}

impl Ended {
    /// What its exit code or signal means, if that says more than "it failed".
    pub(crate) fn meaning(&self, role: Role) -> Option<String> {
        let meaning = exit_meaning(role, self.exit_code, &self.reason);
        meaning.or_else(|| self.signal.map(|signal| format!("ended by signal {signal}")))
    }
}

/// What Spark runs in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Driver,
    Executor,
}

/// Reasons of a container whose command never ran.
pub(crate) fn is_start_failure(reason: &str) -> bool {
    matches!(reason, "StartError" | "ContainerCannotRun" | "CreateContainerError")
}

/// What an exit code means, if that says more than "it failed". `reason` is Kubernetes' reason.
pub(crate) fn exit_meaning(role: Role, exit_code: i32, reason: &str) -> Option<String> {
    use Role::{Driver, Executor};
    let meaning = match (exit_code, role) {
        _ if reason == OUT_OF_MEMORY => match role {
            Driver => {
                "out of memory: the container reached its memory limit; raise spec.driver.memoryOverhead \
                 (spark.driver.memoryOverhead) or spec.driver.memory"
            }
            Executor => {
                "the container exceeded its memory limit; raise spark.executor.memoryOverhead or spark.executor.memory"
            }
        },
        _ if is_start_failure(reason) => "the container could not be started",
        (1, Driver) => "the application ended with an error",
        (1, Executor) => "the executor failed; see its log",
        (EXECUTORS_FAILED, Driver) => {
            "executors kept failing, or none could start; the log and the ExecutorLedger of this driver say why"
        }
        (50 | 51, Driver) => "uncaught exception in the JVM",
        (50 | 51, Executor) => "uncaught exception in the executor",
        (52, Driver) => "out of memory inside the JVM; raise memory",
        (52, Executor) => "out of memory inside the JVM (OOM); raise spark.executor.memory",
        (53, _) => "no scratch directory could be created; check local volumes and their permissions",
        (56, Executor) => "the driver did not answer heartbeats",
        (57, Executor) => "a task could not be killed",
        (58, Executor) => "the block manager could not register again",
        (101, Driver) => "spark-submit ended with an error: often a missing class or jar",
        (126, _) => "the command cannot be executed",
        (127, _) => "the command was not found in the image",
        (134, _) => "aborted (SIGABRT)",
        (137, Driver) => "killed (SIGKILL): by the node, for memory, or because it did not stop in time",
        (137, Executor) => "killed (SIGKILL), possibly for memory (OOM)",
        (139, _) => "segmentation fault (SIGSEGV)",
        (143, Driver) => "terminated (SIGTERM): the pod was stopped from outside",
        (143, Executor) => "terminated (SIGTERM)",
        (129..160, _) => return Some(format!("ended by signal {}", exit_code - 128)),
        _ => return None,
    };
    Some(meaning.to_owned())
}
