//! Exit codes, and the one place where an error becomes a line for a person.

use std::process::ExitCode;

/// How a verb ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    Success,
    /// The request could not be carried out.
    Failure,
    /// The input is wrong: arguments, configuration, manifests.
    BadInput,
    /// The application never started.
    NeverStarted,
    /// Ended by Ctrl-C.
    Interrupted,
    /// The driver's own exit code.
    Driver(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::BadInput => 2,
            ExitStatus::NeverStarted => 3,
            ExitStatus::Interrupted => 130,
            ExitStatus::Driver(code) => code,
        })
    }
}

/// Prints an error as one line on stderr and gives the exit status that goes with it.
pub(crate) fn report(outcome: anyhow::Result<ExitStatus>) -> ExitStatus {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            let sentence = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
            eprintln!("firesteel: {}", sentence.split_whitespace().collect::<Vec<_>>().join(" "));
            error.downcast_ref::<BadInput>().map_or(ExitStatus::Failure, |_| ExitStatus::BadInput)
        }
    }
}

/// Marks an error as the user's input being wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);
