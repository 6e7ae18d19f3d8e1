//! A shim's command line: what the agent starts for a pod, for `exec` and for checks.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::shim::sandbox::Privilege;
use crate::shim::{process, run};
use crate::shim_protocol::{ContainerConfig, ContainerState, PodDir, PodRecord, Root, User};

/// Runs a command in a running container, with this process's standard streams. With a terminal, standard input takes frames and
/// all output goes to standard output.
fn enter(dir: &Path, container: &str, argv: &[String], tty: bool) -> Result<i32, String> {
    let dir = PodDir::at(dir);
    let not_running = || format!("container not found ({container:?})");
    let state: PodRecord = read_json(&dir.state()).map_err(|_| not_running())?;
    let Some(ContainerState::Running { pid, .. }) = state.containers.get(container).map(|c| &c.state) else {
        return Err(not_running());
    };
    let mut launch: ContainerConfig = read_json(&dir.launch(container))?;
    if tty && !launch.env.iter().any(|(name, _)| name == "TERM") {
        launch.env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    process::run_inside(&launch, Pid::from_raw(*pid), argv, Privilege::of_this_process(), tty)
}

/// Checks that this process can create containers here.
fn check(dir: &Path) -> Result<(), String> {
    let said = |e: io::Error| e.to_string();
    fs::create_dir_all(dir).map_err(said)?;
    let launch = ContainerConfig {
        container: "check".to_owned(),
        attempt: 0,
        root: Root::Host { overlays: Vec::new() },
        files: Vec::new(),
        mounts: Vec::new(),
        hostname: "check".to_owned(),
        argv: vec!["true".to_owned()],
        env: Vec::new(),
        working_dir: "/".to_owned(),
        user: User { uid: 185, gid: 185, groups: Vec::new() },
        read_only_root: false,
        privileged: false,
        capabilities: Vec::new(),
        memory_limit: None,
        cpu_limit: None,
        termination_message_path: "/dev/termination-log".to_owned(),
        message_from_log: false,
        stdin: false,
        stdin_once: false,
        tty: false,
        scratch: dir.join("scratch"),
        log: dir.join("log"),
    };
    fs::create_dir_all(&launch.scratch).map_err(said)?;
    let started = process::start(&launch, Privilege::of_this_process()).map_err(said)?;
    drop(started.go);
    let mut complaint = String::new();
    File::from(started.errors).read_to_string(&mut complaint).map_err(said)?;
    let _ = waitpid(started.pid, None);
    if complaint.is_empty() { Ok(()) } else { Err(complaint) }
}

/// A shim's command line: `run DIR`, `enter DIR CONTAINER -- COMMAND…`, `check DIR`. Returns the exit code.
pub fn main(args: &[&str]) -> u8 {
    match args {
        ["run", dir] => match run(Path::new(dir)) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("the shim of {dir} failed: {error}");
                1
            }
        },
        [verb @ ("enter" | "enter-tty"), dir, container, "--", argv @ ..] => {
            let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
            match enter(Path::new(dir), container, &argv, *verb == "enter-tty") {
                Ok(code) => u8::try_from(code).unwrap_or(1),
                Err(why) => {
                    eprintln!("{why}");
                    126
                }
            }
        }
        ["check", dir] => match check(Path::new(dir)) {
            Ok(()) => 0,
            Err(why) => {
                eprintln!("{why}");
                1
            }
        },
        _ => {
            eprintln!("usage: shim run DIR | shim enter[-tty] DIR CONTAINER -- COMMAND… | shim check DIR");
            2
        }
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))
}
