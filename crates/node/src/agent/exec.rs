//! Running commands in containers, for hooks, probes and `exec`.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

/// A process that runs `words` in a container, with pipes for its standard streams.
pub(crate) fn spawn(
    shim: &[OsString],
    dir: &Path,
    container: &str,
    words: &[String],
    stdin: Stdio,
) -> std::io::Result<Child> {
    let (program, arguments) = shim.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .arg("enter")
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

/// Runs a command to its end; what it said is the error if it failed.
pub(crate) async fn run(
    shim: &[OsString],
    dir: &Path,
    container: &str,
    words: &[String],
    limit: Duration,
) -> Result<(), String> {
    let child = spawn(shim, dir, container, words, Stdio::null()).map_err(|e| e.to_string())?;
    match tokio::time::timeout(limit, child.wait_with_output()).await {
        Err(_) => Err(format!("command {words:?} timed out after {}s", limit.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = [output.stdout, output.stderr].concat();
            let code = output.status.code().unwrap_or(-1);
            Err(format!("command {words:?} exited with {code}: {}", String::from_utf8_lossy(&said).trim()))
        }
    }
}
