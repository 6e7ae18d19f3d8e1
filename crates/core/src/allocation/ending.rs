//! Why an executor was lost, and whose doing it was.
//!
//! The application's: an exit code of its own, or more memory than its limit. The platform's: evicted, preempted, drained,
//! deleted, node gone, image not to be had, no node that takes it, and everything for which no reason is known.

use firesteel_api::executors::Cause;

use super::pod::{End, ExecutorPod};
use crate::driver_pod::Words;

/// The end of one executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub code: i32,
    pub cause: Cause,
    pub text: String,
    pub kind: Kind,
}

/// What an ending says about starting another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It ended because it was done.
    Done,
    /// It failed while it worked.
    Failed,
    /// It never worked; another node may do better.
    NeverStarted,
    /// The platform took it away.
    Taken,
}

impl Ending {
    /// The same for an executor that never came to the driver: it cannot have been done.
    pub(super) fn unless_done(mut self) -> Self {
        if self.kind == Kind::Done {
            self.kind = Kind::Failed;
            self.text += " before it registered with the driver; see its log, and what its image runs";
        }
        self
    }
}

/// The end of an executor whose container or pod ended.
pub fn of_end(pod: &ExecutorPod, end: &End) -> Ending {
    if let Some(words) = end.pod.as_ref().filter(|w| is_refusal(&w.reason)) {
        return Ending { code: end.code, cause: Cause::Platform, text: explain(words), kind: Kind::NeverStarted };
    }
    if let Some(words) = end.pod.as_ref().filter(|w| is_platform(&w.reason)) {
        return taken(end.code, &explain(words));
    }
    if let Some(words) = &pod.disruption {
        return taken(end.code, &explain(words));
    }
    if end.reason == "OOMKilled" {
        let text = format!(
            "OOMKilled (exit code {}): the container passed its memory limit; raise spark.executor.memoryOverhead or \
             spark.executor.memory",
            end.code
        );
        return Ending { code: end.code, cause: Cause::Application, text, kind: Kind::Failed };
    }
    if pod.leaving_by.is_some() && (end.code != 0 || end.reason.is_empty()) {
        return taken(end.code, "its pod was deleted by someone else (kubectl delete, a drain, or a controller)");
    }
    if end.code == 0 {
        let text = "the executor ended by itself (exit code 0)".to_owned();
        return Ending { code: 0, cause: Cause::Application, text, kind: Kind::Done };
    }
    if end.code == -1 {
        let words = end.pod.as_ref().map_or_else(|| "no container tells why".to_owned(), explain);
        return taken(-1, &format!("the pod failed: {words}"));
    }
    if let "ContainerCannotRun" | "StartError" | "CreateContainerError" = end.reason.as_str() {
        let text = format!("the container could not be started ({}): {}", end.reason, end.message.trim());
        return Ending { code: end.code, cause: Cause::Platform, text, kind: Kind::NeverStarted };
    }
    let mut text = format!("exit code {}: {}", end.code, exit_words(end.code));
    if !end.message.trim().is_empty() {
        text += &format!(" ({})", tail(end.message.trim()));
    }
    Ending { code: end.code, cause: Cause::Application, text, kind: Kind::Failed }
}

/// The end of an executor whose pod is not there any more.
pub fn of_missing() -> Ending {
    taken(-1, "its pod is gone: it was deleted, or its node was removed")
}

/// The end of an executor in whose pod another one is.
pub fn of_restarted() -> Ending {
    taken(-1, "its container was started again as another executor")
}

/// The end of an executor whose pod should have ended long ago.
pub fn of_overdue(pod: &ExecutorPod) -> Ending {
    let words = pod.disruption.as_ref().map_or_else(
        || "its pod was deleted and did not end in time; its node may be gone".to_owned(),
        |words| format!("{}; it did not end in time", explain(words)),
    );
    taken(-1, &words)
}

/// The end of an executor that lost its driver, or that its driver lost, for no known reason.
pub fn of_disconnected() -> Ending {
    taken(-1, "it lost its connection to the driver and no reason became known within 10 s")
}

/// The end of an executor that runs but never came to the driver.
pub fn of_unregistered(seconds: u32) -> Ending {
    let text = format!(
        "it ran for {seconds} s without registering with the driver; see its log, and whether it can reach the driver's \
         service"
    );
    Ending { code: -1, cause: Cause::Platform, text, kind: Kind::NeverStarted }
}

/// The end of an executor that goes on although Spark told it to stop.
pub fn of_hung() -> Ending {
    Ending {
        code: -1,
        cause: Cause::Platform,
        text: "Spark removed it, but its process went on; it was stopped".to_owned(),
        kind: Kind::Done,
    }
}

/// The end of a pod that never came to run.
pub fn of_waiting(words: Option<&Words>, seconds: u32) -> Ending {
    let why = words.map_or_else(|| "no reason is known".to_owned(), explain);
    let text = format!("it did not start within {seconds} s: {why}");
    Ending { code: -1, cause: Cause::Platform, text, kind: Kind::NeverStarted }
}

fn taken(code: i32, text: &str) -> Ending {
    Ending { code, cause: Cause::Platform, text: text.to_owned(), kind: Kind::Taken }
}

/// Reasons of a pod that are the platform's doing.
fn is_platform(reason: &str) -> bool {
    matches!(reason, "Evicted" | "Preempting" | "Preempted" | "NodeLost" | "NodeShutdown" | "Shutdown" | "Terminated")
}

/// Reasons of a node that did not let a pod in: the scheduler may choose it again at once.
fn is_refusal(reason: &str) -> bool {
    reason.starts_with("OutOf")
        || matches!(
            reason,
            "NodeAffinity"
                | "UnexpectedAdmissionError"
                | "TopologyAffinityError"
                | "SysctlForbidden"
                | "AppArmor"
                | "PodOSNotSupported"
        )
}

/// A reason in plain words, followed by the platform's own.
pub fn explain(words: &Words) -> String {
    let what = match words.reason.as_str() {
        "Evicted" => "the node evicted it",
        "EvictionByEvictionAPI" => "it was evicted through the API, as by a drain",
        "Preempting" | "Preempted" | "PreemptionByScheduler" => "a pod of higher priority took its place",
        "DeletionByTaintManager" => "its node was tainted",
        "DeletionByPodGC" | "NodeLost" => "its node was lost",
        "TerminationByKubelet" | "NodeShutdown" | "Shutdown" | "Terminated" => {
            "its node was shut down or out of resources"
        }
        refusal if is_refusal(refusal) => "its node refused it",
        other => return crate::diagnosis::words(&Words { reason: other.to_owned(), message: words.message.clone() }),
    };
    match words.message.trim() {
        "" => format!("{what} ({})", words.reason),
        message => format!("{what} ({}): {message}", words.reason),
    }
}

/// Waiting for one of these does not get better by waiting on the same node.
pub fn is_start_error(reason: &str) -> bool {
    matches!(
        reason,
        "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "CrashLoopBackOff"
    )
}

/// The registry answered that it has no such image, the node that it has none, or the name is none: the node need not try
/// again. Another node may have it.
pub fn is_certain(words: &Words) -> bool {
    match words.reason.as_str() {
        "InvalidImageName" | "ErrImageNeverPull" => true,
        "ErrImagePull" | "ImagePullBackOff" => {
            // containerd, CRI-O and Docker, Docker Hub, our own agent.
            let phrases =
                [": not found", "manifest unknown", "repository does not exist", "is not known on this machine"];
            phrases.iter().any(|phrase| words.message.contains(phrase))
        }
        _ => false,
    }
}

/// No node was refused for a reason that may pass: the pod keeps away from all of them. The scheduler's sentence is
/// `0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. …`.
pub fn keeps_away_from_all(words: &Words) -> bool {
    let reasons = words.message.split_once(" nodes are available: ").and_then(|(_, rest)| rest.split(". ").next());
    let affinity =
        |reason: &str| reason.trim_end_matches('.').ends_with("node(s) didn't match Pod's node affinity/selector");
    words.reason == "Unschedulable" && reasons.is_some_and(|reasons| reasons.split(", ").all(affinity))
}

fn exit_words(code: i32) -> &'static str {
    match code {
        1 => "the executor failed; see its log",
        50 | 51 => "uncaught exception in the executor",
        52 => "out of memory inside the JVM (OOM); raise spark.executor.memory",
        53 => "no scratch directory could be made; check local volumes and their permissions",
        56 => "the driver did not answer heartbeats",
        57 => "a task could not be killed",
        58 => "the block manager could not register again",
        126 => "the command cannot be executed",
        127 => "the command was not found in the image",
        134 => "aborted (SIGABRT)",
        137 => "killed (SIGKILL), possibly for memory (OOM)",
        139 => "segmentation fault (SIGSEGV)",
        143 => "terminated (SIGTERM)",
        _ => "unexpected",
    }
}

/// The last part of a long message.
fn tail(text: &str) -> &str {
    const MOST: usize = 300;
    let mut at = text.len().saturating_sub(MOST);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(reason: &str, message: &str) -> Words {
        Words { reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn what_a_registry_does_not_have_is_told_from_a_registry_that_does_not_answer() {
        let pull = "rpc error: code = NotFound desc = failed to pull and unpack image \"r.example/spark:1\": failed to resolve \
                    image: r.example/spark:1: not found";
        assert!(is_certain(&words("ErrImagePull", pull)));
        assert!(is_certain(&words("ImagePullBackOff", &format!("Back-off pulling image \"x\": ErrImagePull: {pull}"))));
        assert!(is_certain(&words("ErrImagePull", "reading manifest 1 in r.example/spark: manifest unknown")));
        assert!(is_certain(&words("InvalidImageName", "")));
        for message in ["dial tcp: lookup r.example: no such host", "503 Service Unavailable", "i/o timeout", ""] {
            assert!(!is_certain(&words("ErrImagePull", message)), "{message}");
        }
        assert!(!is_certain(&words("CreateContainerConfigError", "secret \"s\" not found: not found")));
    }

    #[test]
    fn a_pod_that_keeps_away_from_all_nodes_is_told_from_one_that_waits_for_room() {
        let away = "3 node(s) didn't match Pod's node affinity/selector";
        let end = "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful.";
        let said = |reasons: &str| words("Unschedulable", &format!("0/3 nodes are available: {reasons}. {end}"));
        assert!(keeps_away_from_all(&said(away)));
        assert!(keeps_away_from_all(&words("Unschedulable", &format!("0/3 nodes are available: {away}."))));
        assert!(!keeps_away_from_all(&said(&format!("1 Insufficient cpu, {away}"))));
        assert!(!keeps_away_from_all(&said(&format!("{away}, 1 node(s) had untolerated taint(s)"))));
        assert!(!keeps_away_from_all(&words("Unschedulable", "no nodes available to schedule pods")));
    }
}
