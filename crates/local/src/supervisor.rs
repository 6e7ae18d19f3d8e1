//! Supervises child processes: restarts them when they exit, and stops them when they are no longer needed.
//!
//! Each child has its own thread, which starts it and waits for it. The thread has to stay: the kernel delivers a child's
//! parent-death signal when the thread that started it exits.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// A child that has run for this long is healthy: its next exit counts as the first failure.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// How long a child may take to exit after SIGTERM.
const GRACE: Duration = Duration::from_secs(15);

/// How to start a child.
#[derive(Debug, Clone)]
pub struct Program {
    pub name: String,
    pub executable: PathBuf,
    pub arguments: Vec<OsString>,
    pub log: PathBuf,
}

#[derive(Debug, Default)]
struct ProcessState {
    pid: Option<i32>,
    restarts: u32,
    ended: Option<String>,
    anti_affinity_terms: bool,
}

/// A supervised child.
pub(crate) struct Supervised {
    pub name: String,
    state: Arc<Mutex<ProcessState>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(state: &Mutex<ProcessState>) -> MutexGuard<'_, ProcessState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The delay before the n-th restart in a row.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
}

impl Supervised {
    /// Starts a child and keeps it running.
    pub(crate) fn start(program: Program) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(ProcessState::default()));
        let name = program.name.clone();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name(format!("keep-{name}")).spawn(move || keep(&program, &shared))?;
        Ok(Supervised { name, state, thread: Some(thread) })
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        lock(&self.state).pid
    }

    pub(crate) fn restarts(&self) -> u32 {
        lock(&self.state).restarts
    }

    /// How it last exited, if it ever did.
    pub(crate) fn last_end(&self) -> Option<String> {
        lock(&self.state).ended.clone()
    }

    /// Stops the child: SIGTERM first, then SIGKILL. Returns once it has exited.
    pub(crate) fn stop(mut self) {
        let pid = {
            let mut state = lock(&self.state);
            state.anti_affinity_terms = true;
            state.pid
        };
        if let Some(pid) = pid {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let deadline = Instant::now() + GRACE;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Signal the whole process group: its own children may ignore their parent.
            if let Some(pid) = lock(&self.state).pid {
                tracing::warn!(component = self.name, "did not exit on SIGTERM, killed");
                let _ = kill(Pid::from_raw(-pid), Signal::SIGKILL);
            }
            let _ = thread.join();
        }
    }
}

fn keep(program: &Program, state: &Mutex<ProcessState>) {
    let mut failures = 0;
    while !lock(state).anti_affinity_terms {
        let began = Instant::now();
        let ended = run_once(program, state);
        let mut now = lock(state);
        now.pid = None;
        if now.anti_affinity_terms {
            return;
        }
        failures = if began.elapsed() >= WELL_AFTER { 1 } else { failures + 1 };
        now.restarts += 1;
        now.ended = Some(ended.clone());
        drop(now);
        tracing::warn!(component = program.name, pause = ?pause(failures), "{ended}; restarting");
        std::thread::park_timeout(pause(failures));
    }
}

/// Starts the child, waits for it to exit, and returns how it exited.
#[allow(unsafe_code)]
fn run_once(program: &Program, state: &Mutex<ProcessState>) -> String {
    let output = File::options().create(true).append(true).open(&program.log).and_then(|f| Ok((f.try_clone()?, f)));
    let (out, err) = match output {
        Ok(files) => files,
        Err(error) => return format!("no log file {}: {error}", program.log.display()),
    };
    let mut command = Command::new(&program.executable);
    command.args(&program.arguments).stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    // If the daemon is killed, its children get SIGKILL immediately. SIGTERM would make the node stop all pods, which must
    // survive until the next daemon adopts them.
    // SAFETY: prctl is a plain system call and safe between fork and exec.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("cannot start {}: {error}", program.executable.display()),
    };
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let anti_affinity_terms = {
        let mut now = lock(state);
        now.pid = Some(pid);
        now.anti_affinity_terms
    };
    if anti_affinity_terms {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    match child.wait() {
        Ok(status) => format!("ended with {status}"),
        Err(error) => format!("lost: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(directory: &std::path::Path, script: &str) -> Program {
        Program {
            name: "child".to_owned(),
            executable: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            log: directory.join("log"),
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn alive(pid: i32) -> bool {
        kill(Pid::from_raw(pid), None).is_ok()
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        assert_eq!(pause(1), FIRST_PAUSE);
        assert_eq!(pause(2), FIRST_PAUSE * 2);
        assert_eq!(pause(100), LONGEST_PAUSE);
    }

    #[test]
    fn a_child_that_ends_is_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let child = Supervised::start(program(directory.path(), "echo up; exit 3")).unwrap();
        until("two restarts", || child.restarts() >= 2);
        assert!(child.last_end().unwrap().contains("exit status: 3"));
        child.stop();
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(log.lines().count() >= 2, "the log keeps what all of them said");
    }

    #[test]
    fn a_child_that_is_not_wanted_ends_and_stays_ended() {
        let directory = tempfile::tempdir().unwrap();
        let child = Supervised::start(program(directory.path(), "exec sleep 1000")).unwrap();
        until("started", || child.pid().is_some());
        let pid = child.pid().unwrap();
        child.stop();
        assert!(!alive(pid));
    }

    #[test]
    fn a_child_that_cannot_start_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let mut missing = program(directory.path(), "");
        missing.executable = "/nonexistent".into();
        let child = Supervised::start(missing).unwrap();
        until("tried", || child.last_end().is_some());
        assert!(child.last_end().unwrap().starts_with("cannot start /nonexistent"));
        child.stop();
    }
}
