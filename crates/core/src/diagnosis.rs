//! Failures in words. Each message begins with the words that tools look for, then says what they mean.

use crate::driver_pod::{DriverPod, Ended, Words};

/// The most of a driver's log that a status holds.
pub const LOG_BYTES: usize = 2048;
/// The most of an API server's answer that a status holds.
const REFUSAL_BYTES: usize = 4096;

/// Why a driver failed.
pub fn driver_failure(pod: &DriverPod, log: Option<&str>) -> String {
    let mut text = match (&pod.ended, &pod.failure) {
        (Some(ended), failure) => {
            let mut text = format!(
                "driver container failed with ExitCode: {}, Reason: {}",
                ended.exit_code,
                or_unknown(&ended.reason)
            );
            if let Some(meaning) = exit_meaning(ended) {
                text += &format!(" ({meaning})");
            }
            if !ended.message.trim().is_empty() {
                text += &format!(": {}", cut(ended.message.trim(), REFUSAL_BYTES));
            }
            if let Some(failure) = failure {
                text += &format!("; the pod failed: {}", words(failure));
            }
            text
        }
        (None, Some(failure)) => format!("driver container status missing: the pod failed: {}", words(failure)),
        (None, None) => "driver container status missing".to_owned(),
    };
    if let Some(tail) = log.map(str::trim).filter(|l| !l.is_empty()) {
        text += &format!("\nlast lines of the driver's log:\n{}", log_tail(tail));
    }
    text
}

/// What became of a driver pod that is not there any more.
pub fn driver_missing(pod_name: &str, last: Option<&DriverPod>) -> String {
    let hint = match last {
        Some(last) if last.deleting => {
            "someone or something deleted it while it ran (kubectl delete, a node drain, preemption or eviction)"
        }
        Some(_) => "it was removed without a trace of its end, as when its node is removed",
        None => "it was deleted, or its node was removed, and its end was not seen",
    };
    format!("driver pod not found: {pod_name} does not exist any more; {hint}")
}

/// What became of a driver pod whose node will not say how it ended.
pub(crate) fn driver_lost(why: &str) -> String {
    format!("driver pod lost by the platform: {why}; the pod was deleted by force")
}

/// Why the cluster would not take a submission: its words, and what they mean.
pub fn submission_failure(why: &str) -> String {
    let why = cut(why.trim(), REFUSAL_BYTES);
    match refusal_meaning(why) {
        Some(meaning) => format!("failed to run spark-submit: {why} ({meaning})"),
        None => format!("failed to run spark-submit: {why}"),
    }
}

/// What a refusal of the API server means, for those a person can do something about.
fn refusal_meaning(why: &str) -> Option<&'static str> {
    let has = |words: &str| why.contains(words);
    Some(if has("exceeded quota") {
        "the ResourceQuota of the namespace has no room for it: raise it, or let onSubmissionFailureRetries wait for room"
    } else if has("service account") && has("not found") {
        "the service account does not exist in this namespace: create it, or set spec.driver.serviceAccount"
    } else if has("violates PodSecurity") {
        "the Pod Security level of the namespace forbids it: set podSecurityContext and securityContext"
    } else if has("failed calling webhook") {
        "an admission webhook of the cluster does not work: mend or remove it"
    } else if has("admission webhook") {
        "an admission webhook of the cluster refused it"
    } else if has("ValidatingAdmissionPolicy") {
        "an admission policy of the cluster refused it"
    } else if has("usage per Container") || has("usage per Pod") || has("usage per PersistentVolumeClaim") {
        "a LimitRange of the namespace forbids it"
    } else if has("no PriorityClass with name") {
        "the priority class does not exist: create it, or change priorityClassName"
    } else if has("because it is being terminated") {
        "the namespace is being deleted"
    } else if has("cannot create resource") {
        "the operator lacks this right: see its ClusterRole"
    } else {
        return None;
    })
}

/// Why a driver that stayed pending was given up.
pub fn pending_too_long(pod: &DriverPod, seconds: i64) -> String {
    let why = pod.waiting.as_ref().map_or_else(|| "no reason is known".to_owned(), words);
    format!("driver pod {} was still pending after {seconds} s: {why}", pod.name)
}

/// The reason itself, except that those which take turns while one thing is wrong count as one.
pub(crate) fn kind(reason: &str) -> &str {
    match reason {
        "ErrImagePull" | "ImagePullBackOff" => "ErrImagePull",
        other => other,
    }
}

/// What a driver waits for, in one sentence.
pub fn words(words: &Words) -> String {
    let what = match words.reason.as_str() {
        "Unschedulable" => "no node takes it",
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => "its image cannot be pulled",
        "CreateContainerConfigError" => "a ConfigMap, Secret or other setting it refers to is missing",
        "FailedMount" | "FailedAttachVolume" if words.message.contains("not found") => {
            "a ConfigMap, Secret or claim that it mounts is missing"
        }
        "FailedMount" | "FailedAttachVolume" => "a volume cannot be mounted",
        "SchedulingGated" => "a scheduling gate holds it",
        "Evicted" => "the node evicted it",
        "Preempting" | "Preempted" | "PreemptionByScheduler" => "a pod of higher priority took its place",
        "DeadlineExceeded" => "it ran longer than its deadline",
        "EvictionByEvictionAPI" => "it was evicted, as when a node is drained",
        "DeletionByTaintManager" => "its node got a taint that it does not tolerate",
        "DeletionByPodGC" => "its node is gone",
        "TerminationByKubelet" => "its node ended it",
        "InitContainerFailed" => "it never began",
        "NodeLost" => "its node was lost",
        "UnexpectedAdmissionError" | "OutOfcpu" | "OutOfmemory" | "OutOfpods" => "its node refused it",
        _ => "",
    };
    let message = words.message.trim();
    match (what.is_empty(), message.is_empty()) {
        (true, true) => words.reason.clone(),
        (true, false) => format!("{}: {message}", words.reason),
        (false, true) => format!("{what} ({})", words.reason),
        (false, false) => format!("{what} ({}): {message}", words.reason),
    }
}

fn or_unknown(reason: &str) -> &str {
    if reason.is_empty() { "Error" } else { reason }
}

/// What an exit code means, for those that say more than "it failed".
fn exit_meaning(ended: &Ended) -> Option<String> {
    if ended.reason == "OOMKilled" {
        return Some(
            "out of memory: the container reached its memory limit; raise memoryOverhead or memory".to_owned(),
        );
    }
    let meaning = match ended.exit_code {
        1 => "the application ended with an error",
        11 => "executors kept failing, or none could start; the log and the ExecutorLedger of this driver say why",
        50 | 51 => "uncaught exception in the JVM",
        52 => "out of memory inside the JVM; raise memory",
        53 => "no scratch directory could be made; check local volumes and their permissions",
        101 => "spark-submit ended with an error: often a missing class or jar",
        126 => "the command cannot be executed",
        127 => "the command was not found in the image",
        134 => "aborted (SIGABRT)",
        137 => "killed (SIGKILL): by the node, for memory, or because it did not stop in time",
        139 => "segmentation fault (SIGSEGV)",
        143 => "terminated (SIGTERM): the pod was stopped from outside",
        code if code > 128 && code < 160 => return Some(format!("ended by signal {}", code - 128)),
        _ => return ended.signal.map(|signal| format!("ended by signal {signal}")),
    };
    Some(meaning.to_owned())
}

/// The beginning of a text, not longer than `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a log, cut at a line.
pub fn log_tail(log: &str) -> &str {
    if log.len() <= LOG_BYTES {
        return log;
    }
    let mut at = log.len() - LOG_BYTES;
    while !log.is_char_boundary(at) {
        at += 1;
    }
    let tail = &log[at..];
    tail.split_once('\n').map_or(tail, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver_pod::{Owner, PodPhase};

    fn pod(ended: Option<Ended>, failure: Option<Words>) -> DriverPod {
        DriverPod {
            name: "pi-driver".into(),
            uid: "u".into(),
            submission_id: None,
            spec_hash: None,
            generation: None,
            app_id: None,
            owner: Owner::Application,
            phase: PodPhase::Failed,
            deleting: false,
            gone_by: None,
            forced: false,
            node: None,
            unready: false,
            ended,
            failure,
            waiting: None,
            created: None,
        }
    }

    fn exit(exit_code: i32, reason: &str) -> Option<Ended> {
        Some(Ended { exit_code, signal: None, reason: reason.into(), message: String::new(), at: None })
    }

    #[test]
    fn messages_begin_with_the_words_tools_look_for() {
        let text = driver_failure(&pod(exit(137, "OOMKilled"), None), None);
        assert!(
            text.starts_with("driver container failed with ExitCode: 137, Reason: OOMKilled (out of memory"),
            "{text}"
        );
        let evicted = Words { reason: "Evicted".into(), message: "The node was low on resource: memory.".into() };
        let text = driver_failure(&pod(None, Some(evicted)), None);
        assert_eq!(
            text,
            "driver container status missing: the pod failed: the node evicted it (Evicted): The node was low on resource: memory."
        );
    }

    #[test]
    fn every_cause_is_said_in_words() {
        let sentences = [
            (driver_failure(&pod(exit(1, "Error"), None), None), "(the application ended with an error)"),
            (driver_failure(&pod(exit(143, "Error"), None), None), "terminated (SIGTERM)"),
            (driver_failure(&pod(exit(150, "Error"), None), None), "ended by signal 22"),
            (
                driver_failure(
                    &pod(
                        exit(137, "Error"),
                        Some(Words { reason: "PreemptionByScheduler".into(), message: "x".into() }),
                    ),
                    None,
                ),
                "a pod of higher priority took its place (PreemptionByScheduler): x",
            ),
            (submission_failure("pods \"d\" is forbidden: exceeded quota: q, requested: pods=1"), "ResourceQuota"),
            (submission_failure("admission webhook \"w\" denied the request: no"), "an admission webhook"),
            (submission_failure("error looking up service account n/s: serviceaccount \"s\" not found"), "create it"),
        ];
        for (sentence, words) in sentences {
            assert!(sentence.contains(words), "{sentence}");
        }
        let waits = [
            ("Unschedulable", "0/3 nodes are available", "no node takes it (Unschedulable): 0/3 nodes are available"),
            ("ErrImagePull", "no such tag", "its image cannot be pulled (ErrImagePull): no such tag"),
            ("FailedMount", "configmap \"c\" not found", "a ConfigMap, Secret or claim that it mounts is missing"),
            ("CreateContainerConfigError", "secret \"s\" not found", "a ConfigMap, Secret or other setting"),
        ];
        for (reason, message, words) in waits {
            let sentence = super::words(&Words { reason: reason.into(), message: message.into() });
            assert!(sentence.contains(words), "{sentence}");
        }
    }

    #[test]
    fn d18_the_log_in_a_status_is_bounded() {
        let log = "ä line\n".repeat(10_000);
        let text = driver_failure(&pod(exit(1, "Error"), None), Some(&log));
        assert!(text.len() < LOG_BYTES + 300, "{}", text.len());
        assert!(text.ends_with("ä line"));
    }
}
