//! Exit codes, and how errors are printed.

use std::any::Any;
use std::io::{self, Write};
use std::process::ExitCode;

use firesteel_cluster::BadAccess;

use crate::output::ReaderGone;

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
    /// A bug in this program (EX_SOFTWARE in sysexits.h).
    Internal,
    /// Ended by Ctrl-C.
    Interrupted,
    /// The driver's own exit code.
    Driver(u8),
}

impl ExitStatus {
    fn code(self) -> u8 {
        match self {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::BadInput => 2,
            ExitStatus::NeverStarted => 3,
            ExitStatus::Internal => 70,
            ExitStatus::Interrupted => 130,
            ExitStatus::Driver(code) => code,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(status.code())
    }
}

/// Prints an error as one line on stderr and returns its exit status.
pub(crate) fn report(outcome: anyhow::Result<ExitStatus>) -> ExitStatus {
    match outcome {
        Ok(status) => status,
        Err(error) if error.downcast_ref::<ReaderGone>().is_some() => ExitStatus::Success,
        Err(error) => {
            say(&error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "));
            if error.is::<BadInput>() || error.is::<BadAccess>() {
                ExitStatus::BadInput
            } else if error.downcast_ref::<Interrupted>().is_some() {
                ExitStatus::Interrupted
            } else {
                ExitStatus::Failure
            }
        }
    }
}

/// Prints a panic as one sentence. It runs before unwinding; [`after_panic`] gives the exit code.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let cause = payload(info.payload());
        let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
        say(&format!("internal error: {cause}{place}; this is a bug in Firesteel, please report it"));
    }));
}

/// The status of a verb that panicked; the hook has already printed the message.
pub(crate) fn after_panic(_cause: Box<dyn Any + Send>) -> ExitStatus {
    ExitStatus::Internal
}

fn payload(cause: &(dyn Any + Send)) -> &str {
    cause
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown cause")
}

/// Prints one line on stderr, whatever whitespace the text contains. A closed stderr is ignored.
fn say(sentence: &str) {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = io::stderr().lock().write_all(format!("firesteel: {line}\n").as_bytes());
}

/// Marks an error as wrong user input.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);

/// Marks an error as caused by Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// The documentation of exit codes.
#[cfg(test)]
pub(crate) mod reference {
    use super::ExitStatus;

    /// Code and meaning of every status.
    pub(crate) fn rows() -> Vec<(String, &'static str)> {
        let fixed = [
            ExitStatus::Success,
            ExitStatus::Driver(0),
            ExitStatus::Failure,
            ExitStatus::BadInput,
            ExitStatus::NeverStarted,
            ExitStatus::Internal,
            ExitStatus::Interrupted,
        ];
        let code = |status: ExitStatus| match status {
            ExitStatus::Driver(_) => "the driver's".to_owned(),
            fixed => fixed.code().to_string(),
        };
        fixed.into_iter().map(|status| (code(status), meaning(status))).collect()
    }

    fn meaning(status: ExitStatus) -> &'static str {
        match status {
            ExitStatus::Success => {
                "The request was carried out. With `submit` and `run`: the driver succeeded, or was submitted without waiting for it."
            }
            ExitStatus::Driver(_) => {
                "The driver failed with this code (`submit`, `run`). `submit --exit-zero` turns it into 0, as `spark-submit` does."
            }
            ExitStatus::Failure => "The request failed, or the driver was deleted while it ran.",
            ExitStatus::BadInput => "Arguments, configuration or manifests are wrong. Nothing was created.",
            ExitStatus::NeverStarted => {
                "The driver never started: it was evicted or deleted, or failed before its container ran."
            }
            ExitStatus::Internal => "A bug in Firesteel. Please report it.",
            ExitStatus::Interrupted => {
                "Ctrl-C. `submit` before the driver started: everything it created is removed. Later: the driver keeps running. `run`: everything it started is stopped."
            }
        }
    }
}
