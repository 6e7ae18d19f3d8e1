//! Processes of a cluster that outlived their daemon, identified by their arguments, never by name alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The subcommands that a cluster runs as processes.
const VERBS: [&str; 3] = ["node", "operator", "shim"];
const GRACE: Duration = Duration::from_secs(3);

/// Whether a command line belongs to a process started for the data directory `root`.
fn belongs(root: &str, arguments: &[String]) -> bool {
    let verb = arguments.get(1).is_some_and(|a| VERBS.contains(&a.as_str()));
    let inside = |a: &String| {
        let path = a.split_once('=').map_or(a.as_str(), |(_, value)| value);
        path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
    };
    verb && arguments.iter().skip(2).any(inside)
}

fn arguments(pid: i32) -> Vec<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    raw.split(|b| *b == 0).filter(|a| !a.is_empty()).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}

/// The executable of a process, even if the file has been replaced since.
fn executable(pid: i32) -> Option<PathBuf> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let text = link.to_string_lossy();
    Some(text.strip_suffix(" (deleted)").map_or_else(|| link.clone(), PathBuf::from))
}

/// Whether a process is a cluster daemon.
pub(crate) fn is_daemon(pid: i32) -> bool {
    let line = arguments(pid);
    let verb = |at: usize| line.get(at).map(String::as_str).unwrap_or_default();
    verb(1) == "local" && line.iter().skip(2).any(|a| a == "daemon" || a == "up")
}

/// Processes of this program that were started for a data directory.
pub(crate) fn find(root: &Path) -> Vec<i32> {
    let own = std::env::current_exe().ok().and_then(|p| p.file_name().map(ToOwned::to_owned));
    let root = root.to_string_lossy();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != std::process::id().cast_signed())
        .filter(|pid| belongs(&root, &arguments(*pid)))
        .filter(|pid| executable(*pid).is_some_and(|e| e.file_name() == own.as_deref()))
        .collect()
}

/// Terminates them and waits; returns those still running.
pub(crate) fn end(root: &Path) -> Vec<i32> {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for pid in find(root) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if find(root).is_empty() {
                return Vec::new();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    find(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_started_for_the_directory_belong_to_it() {
        let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(belongs("/data/a", &line("firesteel node --data-dir /data/a/node --name n")));
        assert!(belongs("/data/a", &line("firesteel shim --dir=/data/a/node/pods/u")));
        assert!(!belongs("/data/a", &line("firesteel node --data-dir /data/ab/node")), "another directory");
        assert!(!belongs("/data/a", &line("firesteel local down --data-dir /data/a")), "not started by a cluster");
        assert!(!belongs("/data/a", &line("tail -f /data/a/logs/node.log")));
        assert!(!belongs("/data/a", &line("firesteel")));
    }
}
