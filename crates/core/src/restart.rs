//! Whether and when an application runs again.
//!
//! Each kind of failure has its own retry budget. The n-th retry waits n times the interval, counted from the failure.

use firesteel_api::spark_application::RestartPolicy;
use firesteel_api::{SparkApplicationSpec, defaults};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The driver ran and failed.
    Run,
    /// The cluster rejected the driver.
    Submission,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// No retry.
    Never,
    /// Retry, but not before this time.
    At(Timestamp),
}

/// What follows the `count`-th failure of its kind, which happened at `at`.
pub(crate) fn after(spec: &SparkApplicationSpec, failure: Failure, count: i32, at: Timestamp) -> Retry {
    let none = RestartPolicy::default();
    let policy = spec.restart_policy.as_ref().unwrap_or(&none);
    let (budget, interval) = match failure {
        Failure::Run => (policy.on_failure_retries, policy.on_failure_retry_interval),
        Failure::Submission => (policy.on_submission_failure_retries, policy.on_submission_failure_retry_interval),
    };
    let again = match policy.type_.as_deref() {
        Some("Always") => true,
        Some("OnFailure") => count <= budget.unwrap_or(0),
        Some(_) | None => false,
    };
    if !again {
        return Retry::Never;
    }
    let interval = interval.unwrap_or(defaults::RETRY_INTERVAL_SECONDS).max(1);
    let wait = SignedDuration::from_secs(interval.saturating_mul(i64::from(count.max(1))));
    Retry::At(at.checked_add(wait).unwrap_or(Timestamp::MAX))
}

/// Whether a successful application runs again.
pub(crate) fn after_success(spec: &SparkApplicationSpec) -> bool {
    spec.restart_policy.as_ref().and_then(|p| p.type_.as_deref()) == Some("Always")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(policy: &serde_json::Value) -> SparkApplicationSpec {
        serde_json::from_value(serde_json::json!({"restartPolicy": policy})).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn d6_n_retries_give_n_plus_one_runs_each_delayed_from_its_failure() {
        let spec = spec(&serde_json::json!({"type": "OnFailure", "onFailureRetries": 2, "onFailureRetryInterval": 10}));
        assert_eq!(after(&spec, Failure::Run, 1, at(100)), Retry::At(at(110)));
        assert_eq!(after(&spec, Failure::Run, 2, at(100)), Retry::At(at(120)));
        assert_eq!(after(&spec, Failure::Run, 3, at(100)), Retry::Never);
        assert_eq!(after(&spec, Failure::Submission, 1, at(100)), Retry::Never);
    }

    #[test]
    fn d9_an_interval_nobody_filled_in_is_five_seconds() {
        let spec = spec(&serde_json::json!({"type": "Always"}));
        assert_eq!(after(&spec, Failure::Submission, 1, at(0)), Retry::At(at(5)));
        assert_eq!(after(&spec, Failure::Run, i32::MAX, at(0)), Retry::At(at(5 * i64::from(i32::MAX))));
    }

    #[test]
    fn an_immense_interval_does_not_overflow() {
        let spec = spec(&serde_json::json!({"type": "Always", "onFailureRetryInterval": i64::MAX}));
        assert_eq!(after(&spec, Failure::Run, 9, at(0)), Retry::At(Timestamp::MAX));
    }
}
