//! Processes of a cluster that outlived their daemon, identified by their arguments, never by name alone, and the processes
//! of their pods.

use std::collections::BTreeSet;
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

/// One process: its id may be reused, but not at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: i32,
    started: u64,
}

impl Process {
    /// A process and its parent, from `/proc/PID/stat`; `None` if it has exited.
    fn read(stat: &str) -> Option<(Process, i32)> {
        // The command's name is in parentheses and may contain any character.
        let (pid, fields) = (stat.split_once(' ')?.0, stat.rsplit_once(')')?.1);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let exited = matches!(*fields.first()?, "Z" | "X");
        let process = Process { pid: pid.parse().ok()?, started: fields.get(19)?.parse().ok()? };
        (!exited).then_some((process, fields.get(1)?.parse().ok()?))
    }

    fn is_running(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        Process::read(&stat).is_some_and(|(process, _)| process == self)
    }
}

/// The processes started by these, and by those in turn.
fn descendants(pids: &[i32]) -> BTreeSet<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let stats = entries.filter_map(|e| fs::read_to_string(e.ok()?.path().join("stat")).ok());
    let all: Vec<(Process, i32)> = stats.filter_map(|stat| Process::read(&stat)).collect();
    let (mut found, mut parents) = (BTreeSet::new(), pids.to_vec());
    while let Some(parent) = parents.pop() {
        for (process, _) in all.iter().filter(|(_, of)| *of == parent) {
            if found.insert(*process) {
                parents.push(process.pid);
            }
        }
    }
    found
}

/// Terminates them and what their pods run, and waits; returns those still running.
pub(crate) fn end(root: &Path) -> Vec<i32> {
    let mut pods = BTreeSet::new();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let found = find(root);
        pods.extend(descendants(&found));
        for pid in found {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        // Until then they are left to whoever started them, who knows their grace period.
        if signal == Signal::SIGKILL {
            for process in pods.iter().filter(|process| process.is_running()) {
                let _ = kill(Pid::from_raw(process.pid), signal);
            }
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            pods.retain(|process| process.is_running());
            if pods.is_empty() && find(root).is_empty() {
                return Vec::new();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    find(root).into_iter().chain(pods.iter().map(|process| process.pid)).collect()
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

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let fields = "S 7 4 4 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 8899 1 2";
        let read = Process::read(&format!("42 (a) b ( c) {fields}"));
        assert_eq!(read, Some((Process { pid: 42, started: 8899 }, 7)));
        assert_eq!(Process::read(&format!("42 (sh) {}", fields.replacen('S', "Z", 1))), None, "it has exited");
        assert_eq!(Process::read(""), None);
    }

    #[test]
    fn descendants_are_found_and_gone_once_they_exit() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("sh");
        let own = std::process::id().cast_signed();
        let deadline = Instant::now() + Duration::from_secs(20);
        let children = loop {
            let children = descendants(&[shell.id().cast_signed()]);
            if !children.is_empty() || Instant::now() > deadline {
                break children;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(children.len(), 1, "{children:?}");
        assert!(descendants(&[own]).is_superset(&children), "children of children");
        for process in &children {
            kill(Pid::from_raw(process.pid), Signal::SIGKILL).expect("kill");
        }
        shell.wait().expect("wait");
        assert!(children.iter().all(|process| !process.is_running()));
    }
}
