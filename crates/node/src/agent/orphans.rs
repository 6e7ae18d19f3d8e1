//! Finds the pods of this node by their directories, and stops them with or without an agent.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;

use super::apart;
use super::shim_connection::{self, ShimConnection, remove_tree};
use crate::shim_protocol::{Command, PodDir};

pub(super) fn pod_dirs(data_dir: &Path) -> Vec<PodDir> {
    let entries = fs::read_dir(data_dir.join("pods")).into_iter().flatten().flatten();
    entries.filter(|e| e.path().is_dir()).map(|e| PodDir::at(&e.path())).collect()
}

/// Stops a pod's processes and removes its directory.
pub(crate) async fn clean_up(dir: &PodDir, grace: Duration) {
    end_pod(dir, grace).await;
    let (path, memory) = (dir.path().to_owned(), dir.memory());
    let _ = apart(move || {
        let _ = remove_tree(&memory);
        if let Err(error) = remove_tree(&path) {
            tracing::warn!(%error, path = %path.display(), "could not remove a pod's directory");
        }
    })
    .await;
}

/// Stops the containers of a pod's shim and then the shim itself.
async fn end_pod(dir: &PodDir, grace: Duration) {
    let mut patience = Duration::from_secs(2);
    if let Ok(mut link) = ShimConnection::connect(dir).await {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        if link.send(&Command::End { grace_ms }).await.is_ok() {
            patience += grace + Duration::from_secs(3);
        }
    }
    // An unreachable shim has just exited, or hangs. Its containers die with it.
    let pid = shim_connection::recorded(dir).shim_pid;
    let gone = async {
        while is_shim_of(pid, dir) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(patience, gone).await.is_err() && is_shim_of(pid, dir) {
        tracing::warn!(pid, "a shim did not exit and is killed");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Whether a process is the shim of a pod. A zombie has no command line.
fn is_shim_of(pid: i32, dir: &PodDir) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let path = dir.path().as_os_str().as_bytes();
    pid > 0
        && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split(|b| *b == 0).any(|word| word == path))
}

/// Stops all pods of a data directory, with or without an agent. None of their processes survive.
pub async fn end_all_pods(data_dir: &Path, grace: Duration) {
    let mut all = JoinSet::new();
    for dir in pod_dirs(data_dir) {
        all.spawn(async move { end_pod(&dir, grace).await });
    }
    while all.join_next().await.is_some() {}
}
