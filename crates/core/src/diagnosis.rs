//! Explains failures. Each message begins with the text that tools look for, then says what it means.
//!
//! This is the only place that explains why a driver died: [`cause()`] finds it in the end of the driver's log
//! ([`log`]), and [`driver_failure`] (for a status) and [`driver_end`] (for a person) phrase it the same way.

mod cause;
mod exceptions;
mod log;

pub use cause::{Cause, CauseKind, Facts, MOST_BYTES, cause};
pub use log::{Log, MOST_BYTES as LOG_BYTES};

use crate::pod::{DriverEnd, DriverPod, EXECUTORS_FAILED, Ended, Role, Words};

/// How much of an API server's response a status holds.
const REFUSAL_BYTES: usize = 4096;

/// Why a driver failed, for a status.
pub fn driver_failure(pod: &DriverPod, cause: Option<&Cause>) -> String {
    match &pod.ended {
        Some(ended) => {
            let begin = format!(
                "driver container failed with ExitCode: {}, Reason: {}",
                ended.exit_code,
                or_unknown(&ended.reason)
            );
            begin + &why(ended, pod.failure.as_ref(), cause)
        }
        None => match &pod.failure {
            Some(failure) => format!("driver container status missing: the pod failed: {}", failure.explain()),
            None => "driver container status missing".to_owned(),
        },
    }
}

/// How a driver ended, for a person waiting for it: a sentence without a full stop.
pub fn driver_end(end: &DriverEnd, cause: Option<&Cause>) -> String {
    match end {
        DriverEnd::Succeeded => "the driver succeeded".to_owned(),
        DriverEnd::Failed { ended: Some(ended), failure } => {
            let begin = format!("the driver ended with exit code {}", ended.exit_code);
            begin + &why(ended, failure.as_ref(), cause)
        }
        DriverEnd::Failed { ended: None, failure: Some(failure) } => {
            format!("the driver's pod failed: {}", failure.explain())
        }
        DriverEnd::Failed { ended: None, failure: None } => "the driver's pod failed without starting it".to_owned(),
        DriverEnd::Deleted { phase, .. } => {
            format!("its pod was deleted while it was {}", phase.word().to_lowercase())
        }
    }
}

/// What follows the exit code: what ended the pod, else the cause, else the meaning of the code.
fn why(ended: &Ended, failure: Option<&Words>, cause: Option<&Cause>) -> String {
    let message = cut(ended.message.trim(), REFUSAL_BYTES);
    // The log does not explain a driver that was ended from outside, or because of its executors.
    let cause = cause.filter(|_| failure.is_none() && (message.is_empty() || ended.exit_code != EXECUTORS_FAILED));
    if let Some(cause) = cause.filter(|_| message.is_empty()) {
        return format!(": {cause}");
    }
    let mut text = ended.meaning(Role::Driver).map_or_else(String::new, |meaning| format!(" ({meaning})"));
    if !message.is_empty() {
        text += &format!(": {message}");
    }
    if let Some(failure) = failure {
        text += &format!("; the pod failed: {}", failure.explain());
    }
    if let Some(cause) = cause {
        text += &format!("\n{cause}");
    }
    text
}

/// What happened to a driver pod that no longer exists.
pub fn driver_missing(pod_name: &str, last: Option<&DriverPod>) -> String {
    let hint = match last {
        Some(last) if last.deleting => {
            "someone or something deleted it while it ran (kubectl delete, a node drain, preemption or eviction)"
        }
        Some(_) => "it disappeared without a recorded end, as when its node is removed",
        None => "it was deleted or its node was removed before its end was seen",
    };
    format!("driver pod not found: {pod_name} no longer exists; {hint}")
}

/// What happened to a driver pod whose node cannot report how it ended.
pub(crate) fn driver_lost(why: &str) -> String {
    format!("driver pod lost by the platform: {why}; the pod was force-deleted")
}

/// Why the cluster rejected a submission: its message, and what that means.
pub fn submission_failure(why: &str) -> String {
    format!("failed to run spark-submit: {}", refusal(why))
}

/// A rejection by the API server, and what it means.
pub(crate) fn refusal(why: &str) -> String {
    let why = cut(why.trim(), REFUSAL_BYTES);
    match refusal_meaning(why) {
        Some(meaning) => format!("{why} ({meaning})"),
        None => why.to_owned(),
    }
}

/// What a rejection by the API server means, if a person can act on it.
fn refusal_meaning(why: &str) -> Option<&'static str> {
    let has = |words: &str| why.contains(words);
    Some(if has("exceeded quota") {
        "the namespace's ResourceQuota is exhausted: raise it, or set onSubmissionFailureRetries to wait for room"
    } else if has("service account") && has("not found") {
        "the service account does not exist in this namespace: create it, or set spec.driver.serviceAccount"
    } else if has("violates PodSecurity") {
        "the namespace's Pod Security level forbids it: set podSecurityContext and securityContext"
    } else if has("failed calling webhook") {
        "an admission webhook of the cluster is failing: fix or remove it"
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
        "the operator lacks this permission: see its ClusterRole"
    } else {
        return None;
    })
}

/// Why a driver that stayed pending was given up.
pub fn pending_too_long(pod: &DriverPod, seconds: i64) -> String {
    let why = pod.waiting.as_ref().map_or_else(|| "reason unknown".to_owned(), Words::explain);
    format!("driver pod {} was still pending after {seconds} s: {why}", pod.name)
}

fn or_unknown(reason: &str) -> &str {
    if reason.is_empty() { "Error" } else { reason }
}

/// The beginning of a text, at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use firesteel_spark::redaction::Redaction;

    use super::*;
    use crate::pod::{Owner, PodPhase};

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
            gated: false,
            unschedulable: None,
            address: None,
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
    fn every_cause_is_explained() {
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
            let sentence = Words { reason: reason.into(), message: message.into() }.explain();
            assert!(sentence.contains(words), "{sentence}");
        }
    }

    #[test]
    fn d18_the_log_in_a_status_is_bounded() {
        let log = "ä line ".repeat(100) + "\n";
        let log = Log::new(log.repeat(1000).as_bytes(), &Redaction::default());
        let pod = pod(exit(4, "Error"), None);
        let cause = cause(pod.ended.as_ref().unwrap(), &log, Facts { namespace: "n", service_account: "s" }).unwrap();
        let text = driver_failure(&pod, Some(&cause));
        assert!(text.len() < MOST_BYTES + 100, "{}", text.len());
        assert!(text.contains("last lines of the driver's log:\n  ä line"), "{text}");
    }

    #[test]
    fn a_status_and_a_person_are_given_the_same_cause() {
        let trace = "Traceback (most recent call last):\n  File \"/w/boom.py\", line 3, in rate\n    return total / count\nZeroDivisionError: division by zero\n";
        let log = Log::new(trace.as_bytes(), &Redaction::default());
        let pod = pod(exit(1, "Error"), None);
        let cause = cause(pod.ended.as_ref().unwrap(), &log, Facts { namespace: "n", service_account: "s" }).unwrap();
        let why = "ZeroDivisionError: division by zero, at boom.py:3\n  File \"/w/boom.py\", line 3, in rate\n    return total / count";
        let status = driver_failure(&pod, Some(&cause));
        assert_eq!(status, format!("driver container failed with ExitCode: 1, Reason: Error: {why}"));
        let told = driver_end(&DriverEnd::Failed { ended: pod.ended, failure: None }, Some(&cause));
        assert_eq!(told, format!("the driver ended with exit code 1: {why}"));
    }

    #[test]
    fn the_log_does_not_explain_a_pod_ended_from_outside() {
        let log = Log::new(b"Exception in thread \"main\" java.lang.RuntimeException: stop\n", &Redaction::default());
        let facts = Facts { namespace: "n", service_account: "s" };
        for (code, reason) in [(137, "OOMKilled"), (137, "Error"), (143, "Error")] {
            assert_eq!(cause(&exit(code, reason).unwrap(), &log, facts), None);
        }
        let evicted = Words { reason: "Evicted".into(), message: "low on disk".into() };
        let cause = cause(&exit(1, "Error").unwrap(), &log, facts);
        let text = driver_end(&DriverEnd::Failed { ended: exit(1, "Error"), failure: Some(evicted) }, cause.as_ref());
        assert!(
            !text.contains("RuntimeException") && text.ends_with("the node evicted it (Evicted): low on disk"),
            "{text}"
        );
    }
}
