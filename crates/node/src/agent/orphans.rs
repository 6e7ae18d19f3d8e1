//! Pods that run or ran here, found by their directories, and their end with or without an agent.

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

/// Ends the processes of a pod and removes its directory.
pub(crate) async fn clean_up(dir: &PodDir, grace: Duration) {
    end_pod(dir, grace).await;
    let (path, memory) = (dir.path().to_owned(), dir.memory());
    let _ = apart(move || {
        let _ = remove_tree(&memory);
        if let Err(error) = remove_tree(&path) {
            tracing::warn!(%error, path = %path.display(), "a pod's directory was not removed");
        }
    })
    .await;
}

/// Ends whatever a pod's shim holds, and the shim. It is gone afterwards, one way or the other.
async fn end_pod(dir: &PodDir, grace: Duration) {
    let mut patience = Duration::from_secs(2);
    if let Ok(mut link) = ShimConnection::connect(dir).await {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        if link.send(&Command::End { grace_ms }).await.is_ok() {
            patience += grace + Duration::from_secs(3);
        }
    }
    // One that cannot be reached has just said its last word, or hangs; what it holds dies with it.
    let pid = shim_connection::recorded(dir).shim_pid;
    let gone = async {
        while is_shim_of(pid, dir) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(patience, gone).await.is_err() && is_shim_of(pid, dir) {
        tracing::warn!(pid, "a shim did not end and is killed");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// Whether a process is the shim of a pod. One that has ended and waits for its parent has no command line.
fn is_shim_of(pid: i32, dir: &PodDir) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let path = dir.path().as_os_str().as_bytes();
    pid > 0
        && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.split(|b| *b == 0).any(|word| word == path))
}

/// Ends all pods of a data directory, with or without an agent: no process of theirs is left afterwards.
pub async fn end_all_pods(data_dir: &Path, grace: Duration) {
    let mut all = JoinSet::new();
    for dir in pod_dirs(data_dir) {
        all.spawn(async move { end_pod(&dir, grace).await });
    }
    while all.join_next().await.is_some() {}
}
