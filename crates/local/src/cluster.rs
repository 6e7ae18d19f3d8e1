//! Manages a local cluster: brings it up, takes it down, reports its state.
//!
//! All operations are idempotent and safe to run concurrently: they are serialized by a lock, and a later one finds the work done.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::home::{Home, HomeError, Phase, Status};
use crate::orphans;

/// How long `up` waits for the daemon, which gives up earlier.
const READY: Duration = Duration::from_secs(90);
/// How long `down` waits before it kills the daemon.
const GONE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// How to start the daemon.
#[derive(Debug, Clone)]
pub struct Launch {
    pub executable: PathBuf,
    pub arguments: Vec<OsString>,
    /// The requested port, if any.
    pub port: Option<u16>,
}

/// The result of `up`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Up {
    pub status: Status,
    /// Whether the cluster was already running.
    pub was_running: bool,
}

/// Why a cluster could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error("the cluster in {} runs on port {running}, not {wanted}: take it down first, or omit --port", root.display())]
    OtherPort { root: PathBuf, running: u16, wanted: u16 },
    #[error("cannot start the cluster's daemon: {0}")]
    Start(std::io::Error),
    #[error("the local cluster did not start: {0}")]
    Failed(String),
    #[error("the local cluster is not ready after {} s: {says} (see {})", READY.as_secs(), log.display())]
    Slow { says: String, log: PathBuf },
    #[error("these cluster processes did not exit: {0:?}")]
    Stuck(Vec<i32>),
}

/// Brings the cluster up and returns once it is ready. `tell` is called with what it waits for. If it does not become ready,
/// everything that was started is stopped again.
pub fn up(home: &mut Home, launch: &Launch, tell: impl FnMut(&str)) -> Result<Up, ClusterError> {
    home.prepare()?;
    home.protect()?;
    let _turn = home.take_turn()?;
    // Let a daemon that is shutting down finish first.
    if home.status().is_some_and(|s| matches!(s.phase, Phase::Stopping | Phase::Failed)) {
        home.wait_until_free(GONE);
    }
    let was_running = home.is_held();
    let mut child = None;
    if !was_running {
        // Do not mistake a stale status for that of the new daemon.
        let _ = std::fs::remove_file(home.root().join("status.json"));
        child = Some(spawn(home, launch)?);
    }
    let outcome = wait_until_ready(home, launch, child.as_mut(), tell);
    if let (Err(_), Some(mut child)) = (&outcome, child) {
        // Report why it failed to start, not what may be left behind.
        let _ = end(home);
        let deadline = Instant::now() + GONE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            std::thread::sleep(LOOK);
        }
    }
    outcome.map(|status| Up { status, was_running })
}

/// Waits for the daemon just started, or for the one already running.
fn wait_until_ready(
    home: &mut Home,
    launch: &Launch,
    mut child: Option<&mut Child>,
    mut tell: impl FnMut(&str),
) -> Result<Status, ClusterError> {
    let was_running = child.is_none();
    let mut said = String::new();
    let mut say = |status: &Status| {
        if said != status.says {
            said.clone_from(&status.says);
            tell(&said);
        }
    };
    let deadline = Instant::now() + READY;
    loop {
        let ended = child.as_mut().is_some_and(|c| !matches!(c.try_wait(), Ok(None)));
        if let Some(status) = home.written() {
            match status.phase {
                Phase::Ready if home.is_held() => {
                    let running = status.port.unwrap_or(0);
                    if let Some(wanted) = launch.port.filter(|p| *p != running) {
                        return Err(ClusterError::OtherPort { root: home.root().to_owned(), running, wanted });
                    }
                    return Ok(status);
                }
                Phase::Failed => return Err(ClusterError::Failed(status.says)),
                Phase::Ready | Phase::Starting | Phase::Stopping => say(&status),
            }
        }
        if ended || (was_running && !home.is_held()) {
            let log = home.log("daemon");
            let words = std::fs::read_to_string(&log).unwrap_or_default();
            let last = words.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it exited without a message");
            let last = last.strip_prefix("firesteel: ").unwrap_or(last).to_owned();
            return Err(ClusterError::Failed(last));
        }
        if Instant::now() > deadline {
            let says = home.written().map_or_else(|| "it said nothing".to_owned(), |s| s.says);
            return Err(ClusterError::Slow { says, log: home.log("daemon") });
        }
        std::thread::sleep(LOOK);
    }
}

/// Starts the daemon in its own session, so that it outlives the terminal.
#[allow(unsafe_code)]
fn spawn(home: &Home, launch: &Launch) -> Result<Child, ClusterError> {
    let log = File::options().create(true).append(true).open(home.log("daemon")).map_err(ClusterError::Start)?;
    let err = log.try_clone().map_err(ClusterError::Start)?;
    let mut command = Command::new(&launch.executable);
    command.args(&launch.arguments).stdin(Stdio::null()).stdout(log).stderr(err).current_dir("/");
    // SAFETY: setsid is a plain system call and safe between fork and exec.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(|_| ()).map_err(std::io::Error::from));
    }
    command.spawn().map_err(ClusterError::Start)
}

/// Takes the cluster down with everything it started; returns whether anything was running.
pub fn down(home: &mut Home) -> Result<bool, ClusterError> {
    if !home.root().exists() {
        return Ok(false);
    }
    home.prepare()?;
    let _turn = home.take_turn()?;
    end(home)
}

/// Stops the daemon and its orphans; returns whether anything was running.
fn end(home: &mut Home) -> Result<bool, ClusterError> {
    let mut ended = false;
    if let Some(pid) = daemon(home) {
        ended = true;
        let _ = kill(pid, Signal::SIGTERM);
        if !home.wait_until_free(GONE) {
            let _ = kill(pid, Signal::SIGKILL);
            home.wait_until_free(GONE);
        }
        // The daemon releases the directory shortly before it exits.
        let deadline = Instant::now() + GONE;
        while orphans::is_daemon(pid.as_raw()) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
    }
    ended |= !orphans::find(home.root()).is_empty();
    let left = orphans::end(home.root());
    if left.is_empty() { Ok(ended) } else { Err(ClusterError::Stuck(left)) }
}

/// The daemon that holds the directory. A new daemon may not have written its status yet; the file is then its predecessor's,
/// whose pid may have been reused.
fn daemon(home: &Home) -> Option<Pid> {
    let deadline = Instant::now() + GONE;
    while home.is_held() && Instant::now() < deadline {
        if let Some(status) = home.status().filter(|s| orphans::is_daemon(s.pid)) {
            return Some(Pid::from_raw(status.pid));
        }
        std::thread::sleep(LOOK);
    }
    None
}

/// Takes the cluster down and deletes its data.
pub fn reset(home: &mut Home) -> Result<bool, ClusterError> {
    let ended = down(home)?;
    home.wipe()?;
    Ok(ended)
}
