//! Runs commands in containers, for hooks, probes and `exec`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExecError {
    NotStarted(String),
    TimedOut {
        words: Vec<String>,
        limit: Duration,
    },
    /// It exited with a non-zero code and this output.
    Failed {
        code: i32,
        said: String,
    },
}

impl ExecError {
    /// The wording of a kubelet's probe events.
    pub(crate) fn of_probe(self) -> String {
        match self {
            Self::NotStarted(why) => why,
            Self::TimedOut { words, limit } => {
                format!("command timed out: \"{}\" timed out after {}s", words.join(" "), limit.as_secs())
            }
            Self::Failed { said, .. } => said,
        }
    }

    /// The wording of a kubelet's hook events.
    pub(crate) fn of_hook(self) -> String {
        match self {
            Self::Failed { code, said } => format!("command exited with {code}: {said}"),
            other => other.of_probe(),
        }
    }
}

/// Starts `words` in a container, with pipes for its standard streams. With a terminal, standard input takes frames (see
/// [`crate::frames`]) and there is no standard error.
pub(crate) fn spawn(
    shim: &[OsString],
    dir: &Path,
    container: &str,
    words: &[String],
    stdin: Stdio,
    tty: bool,
) -> std::io::Result<Child> {
    let (program, arguments) = shim.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .arg(if tty { "enter-tty" } else { "enter" })
        .arg(dir)
        .arg(container)
        .arg("--")
        .args(words)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Runs a command to completion.
pub(crate) async fn run(
    shim: &[OsString],
    dir: &Path,
    container: &str,
    words: &[String],
    limit: Duration,
) -> Result<(), ExecError> {
    let child = spawn(shim, dir, container, words, Stdio::null(), false);
    let child = child.map_err(|e| ExecError::NotStarted(e.to_string()))?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Err(_) => Err(ExecError::TimedOut { words: words.to_vec(), limit }),
        Ok(Err(error)) => Err(ExecError::NotStarted(error.to_string())),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = [output.stdout, output.stderr].concat();
            let code = output.status.code().unwrap_or(-1);
            Err(ExecError::Failed { code, said: String::from_utf8_lossy(&said).trim().to_owned() })
        }
    }
}
