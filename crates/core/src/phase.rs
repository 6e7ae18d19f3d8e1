//! The states of an application. The state strings that tools poll appear only here.

use firesteel_api::SparkApplicationStatus;
use k8s_openapi::jiff::Timestamp;

/// An application's state, with the data the next decision needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has been done yet.
    New,
    /// The driver pod was created at `since` and is not running yet.
    Submitted {
        since: Timestamp,
    },
    Running,
    /// The driver succeeded; what follows is being decided.
    Succeeding,
    /// The driver failed at `since` and may be retried.
    Failing {
        since: Timestamp,
    },
    Completed {
        since: Timestamp,
    },
    Failed {
        since: Timestamp,
    },
    /// The cluster rejected the driver at `since`; the submission may be retried.
    SubmissionFailed {
        since: Timestamp,
    },
    /// Objects of the last run are being deleted, then the next run starts.
    PendingRerun,
    /// The specification changed: the current run is being ended, then a new one starts.
    Invalidating,
    Suspending,
    Suspended,
    Resuming,
    /// The driver's state is unknown, or the status holds a state Firesteel does not know.
    Unknown,
}

/// Every state string, for tests and documentation.
pub const WORDS: [&str; 14] = [
    "",
    "SUBMITTED",
    "RUNNING",
    "SUCCEEDING",
    "FAILING",
    "COMPLETED",
    "FAILED",
    "SUBMISSION_FAILED",
    "PENDING_RERUN",
    "INVALIDATING",
    "SUSPENDING",
    "SUSPENDED",
    "RESUMING",
    "UNKNOWN",
];

impl Phase {
    /// Reads the phase from a status, including one written by another operator.
    pub fn read(status: &SparkApplicationStatus, now: Timestamp) -> Self {
        let word = status.application_state.state.as_str();
        let entered = status.state_times.get(word).map(|t| t.0);
        let submitted = status.last_submission_attempt_time.as_ref().map(|t| t.0);
        let ended = status.termination_time.as_ref().map(|t| t.0);
        match word {
            "" => Phase::New,
            "SUBMITTED" => Phase::Submitted { since: submitted.or(entered).unwrap_or(now) },
            "RUNNING" => Phase::Running,
            "SUCCEEDING" => Phase::Succeeding,
            "FAILING" => Phase::Failing { since: ended.or(entered).or(submitted).unwrap_or(now) },
            "COMPLETED" => Phase::Completed { since: ended.or(entered).unwrap_or(now) },
            "FAILED" => Phase::Failed { since: ended.or(entered).unwrap_or(now) },
            "SUBMISSION_FAILED" => Phase::SubmissionFailed { since: entered.or(submitted).unwrap_or(now) },
            "PENDING_RERUN" => Phase::PendingRerun,
            "INVALIDATING" => Phase::Invalidating,
            "SUSPENDING" => Phase::Suspending,
            "SUSPENDED" => Phase::Suspended,
            "RESUMING" => Phase::Resuming,
            _ => Phase::Unknown,
        }
    }

    /// The string in `status.applicationState.state`.
    pub fn word(self) -> &'static str {
        match self {
            Phase::New => "",
            Phase::Submitted { .. } => "SUBMITTED",
            Phase::Running => "RUNNING",
            Phase::Succeeding => "SUCCEEDING",
            Phase::Failing { .. } => "FAILING",
            Phase::Completed { .. } => "COMPLETED",
            Phase::Failed { .. } => "FAILED",
            Phase::SubmissionFailed { .. } => "SUBMISSION_FAILED",
            Phase::PendingRerun => "PENDING_RERUN",
            Phase::Invalidating => "INVALIDATING",
            Phase::Suspending => "SUSPENDING",
            Phase::Suspended => "SUSPENDED",
            Phase::Resuming => "RESUMING",
            Phase::Unknown => "UNKNOWN",
        }
    }

    /// Whether the application ended for good.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Completed { .. } | Phase::Failed { .. })
    }

    /// Whether a run has begun and has not ended for good.
    pub fn has_run(self) -> bool {
        self.has_driver() || matches!(self, Phase::Succeeding | Phase::Failing { .. } | Phase::SubmissionFailed { .. })
    }

    /// Whether a driver is expected to exist.
    pub fn has_driver(self) -> bool {
        matches!(self, Phase::Submitted { .. } | Phase::Running | Phase::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_as_itself() {
        let mut status = SparkApplicationStatus::default();
        for word in WORDS {
            word.clone_into(&mut status.application_state.state);
            assert_eq!(Phase::read(&status, Timestamp::UNIX_EPOCH).word(), word);
        }
        "SOMETHING_NEW".clone_into(&mut status.application_state.state);
        assert_eq!(Phase::read(&status, Timestamp::UNIX_EPOCH), Phase::Unknown);
    }
}
