//! Starts containers: a process in new namespaces that builds its root, starts the program, forwards signals and reaps zombies. Also
//! enters running containers, for `exec`, probes and hooks.
//!
//! The shim is single-threaded, so memory is consistent after `clone` and `fork`, and ordinary code may run. A container's first
//! process never changes its credentials: that would clear its parent-death signal, and with it the guarantee that no process
//! outlives its shim.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sched::{CloneFlags, clone, setns};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork, pipe2, setgroups, setresgid,
    setresuid, setsid,
};

use crate::shim::sandbox::{self, Privilege};
use crate::shim::terminal;
use crate::shim_protocol::ContainerConfig;

/// A container whose first process exists. It waits until [`Started::go`] is dropped or written to.
pub(crate) struct Started {
    pub(crate) pid: Pid,
    /// Set if the container has standard input and no terminal.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The socket on which the container passes on its terminal, if it has one.
    pub(crate) console: Option<OwnedFd>,
    /// Closed without data once the program runs; otherwise says why it failed.
    pub(crate) errors: OwnedFd,
    pub(crate) go: OwnedFd,
}

/// The exit code of a container whose program could not be started, as in container runtimes.
pub(crate) const NOT_STARTED: i32 = 128;

const STACK: usize = 4 << 20;

/// Starts the first process of a container.
pub(crate) fn start(launch: &ContainerConfig, privilege: Privilege) -> io::Result<Started> {
    let (stdout, stdout_in) = pipe2(OFlag::O_CLOEXEC)?;
    let (stderr, stderr_in) = pipe2(OFlag::O_CLOEXEC)?;
    let (errors, errors_in) = pipe2(OFlag::O_CLOEXEC)?;
    let (go_out, go) = pipe2(OFlag::O_CLOEXEC)?;
    let (stdin_out, stdin) = if launch.stdin && !launch.tty {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        (Some(read), Some(write))
    } else {
        (None, None)
    };
    let (console, console_in) = if launch.tty {
        let (here, there) = terminal::pass()?;
        (Some(here), Some(there))
    } else {
        (None, None)
    };
    let mut keep = vec![stdout_in.as_raw_fd(), stderr_in.as_raw_fd(), errors_in.as_raw_fd(), go_out.as_raw_fd()];
    keep.extend([&stdin_out, &console_in].into_iter().flatten().map(AsRawFd::as_raw_fd));
    let mut flags =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    if privilege != Privilege::Root {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    let mut stack = vec![0_u8; STACK];
    let mut go_out = Some(go_out);
    let mut fds = Some((
        ContainerEnds { stdin: stdin_out, stdout: stdout_in, stderr: stderr_in, console: console_in },
        errors_in,
    ));
    let child = Box::new(|| -> isize {
        close_all_but(&keep);
        // Wait until the shim has set up cgroups. End of file means go, too.
        if let Some(fd) = go_out.take() {
            let _ = File::from(fd).read(&mut [0_u8; 1]);
        }
        let Some((wires, errors)) = fds.take() else { return NOT_STARTED as isize };
        let code = first_process(launch, privilege, &wires, errors);
        std::mem::forget(wires);
        // SAFETY: exits this process. Nothing may be dropped here: descriptors have been closed behind their owners' backs.
        unsafe { libc::_exit(code) }
    });
    // SAFETY: no CLONE_VM, so this is a fork on another stack; the shim has one thread, so no lock can be held by a
    // thread that does not exist in the child; the stack outlives the call and the child has its own copy of it.
    let pid = unsafe { clone(child, &mut stack, flags, Some(libc::SIGCHLD)) };
    let pid = pid.map_err(|errno| explain_clone(errno, privilege))?;
    Ok(Started { pid, stdin, stdout, stderr, console, errors, go })
}

fn explain_clone(errno: Errno, privilege: Privilege) -> io::Error {
    match (errno, privilege) {
        (Errno::EPERM | Errno::ENOSPC | Errno::EUSERS, Privilege::User { .. }) => io::Error::other(
            "this user may not create user namespaces: run the agent as root, or allow them (sysctl user.max_user_namespaces=65536, \
             kernel.unprivileged_userns_clone=1 on Debian, kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu)",
        ),
        (Errno::EAGAIN | Errno::ENOMEM, _) => io::Error::other(format!(
            "starting a process: {}: the machine or this user has no room for another process (see ulimit -u and pids.max)",
            errno.desc()
        )),
        (errno, _) => errno.into(),
    }
}

/// Runs as process 1 of a container; returns its exit code.
fn first_process(launch: &ContainerConfig, privilege: Privilege, wires: &ContainerEnds, errors: OwnedFd) -> i32 {
    let mut errors = File::from(errors);
    let mut refuse = |text: String| -> i32 {
        let _ = errors.write_all(text.as_bytes());
        NOT_STARTED
    };
    if let Err(errno) = prctl::set_pdeathsig(Signal::SIGKILL) {
        return refuse(format!("tying the container to its shim: {errno}"));
    }
    let _ = setsid();
    let everything = SigSet::all();
    if let Err(errno) = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&everything), None) {
        return refuse(format!("blocking signals: {errno}"));
    }
    if let Err(error) = sandbox::enter(launch, privilege) {
        return refuse(error.to_string());
    }
    let streams = match &wires.console {
        None => Stdio::Pipes(wires),
        Some(console) => {
            let made = terminal::open(&launch.user).and_then(|(master, slave)| {
                terminal::send(console.as_fd(), master.as_fd())?;
                Ok(slave)
            });
            match made {
                Ok(slave) => Stdio::Terminal(slave),
                Err(error) => return refuse(format!("making a terminal: {error}")),
            }
        }
    };
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Err(errno) => refuse(format!("starting a process: {errno}")),
        Ok(ForkResult::Child) => {
            let error = become_program(launch, &launch.argv, privilege, &streams);
            refuse(error)
        }
        Ok(ForkResult::Parent { child }) => {
            drop(errors);
            std::mem::forget(streams);
            close_all_but(&[]);
            look_after(child)
        }
    }
}

/// Forwards signals to the program and reaps; exits with the program, which ends all other processes of the namespace.
fn look_after(program: Pid) -> i32 {
    let signals = SigSet::all();
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                    match status {
                        WaitStatus::StillAlive => break,
                        WaitStatus::Exited(pid, code) if pid == program => return code,
                        WaitStatus::Signaled(pid, signal, _) if pid == program => return 128 + signal as i32,
                        _ => {}
                    }
                }
            }
            Ok(signal) => {
                let _ = kill(program, signal);
            }
            Err(_) => {}
        }
    }
}

/// The container's ends of its streams.
struct ContainerEnds {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    console: Option<OwnedFd>,
}

/// The program's standard streams.
enum Stdio<'a> {
    /// Those of this process.
    Own,
    Pipes(&'a ContainerEnds),
    Terminal(OwnedFd),
}

impl Stdio<'_> {
    fn connect(&self) -> io::Result<()> {
        match self {
            Self::Own => {}
            Self::Pipes(wires) => {
                match &wires.stdin {
                    Some(stdin) => dup2_stdin(stdin)?,
                    None => dup2_stdin(File::open("/dev/null")?)?,
                }
                dup2_stdout(&wires.stdout)?;
                dup2_stderr(&wires.stderr)?;
            }
            Self::Terminal(slave) => {
                terminal::control(slave.as_fd())?;
                dup2_stdin(slave)?;
                dup2_stdout(slave)?;
                dup2_stderr(slave)?;
            }
        }
        Ok(())
    }
}

/// Executes the container's program. Returns only on failure, with the reason.
fn become_program(launch: &ContainerConfig, argv: &[String], privilege: Privilege, streams: &Stdio<'_>) -> String {
    let _ = setsid();
    if let Err(error) = streams.connect() {
        return format!("connecting standard streams: {error}");
    }
    if let Err(why) = take_identity(launch, privilege) {
        return why;
    }
    // Changing the user clears it; an exec'd command must not outlive its requester.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if let Err(error) = std::env::set_current_dir(&launch.working_dir) {
        return format!("entering working directory {}: {error}", launch.working_dir);
    }
    // SAFETY: only resets the disposition that the Rust runtime set; no handler is installed.
    let _ = unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    let Some(program) = argv.first() else { return "no command specified".to_owned() };
    let c_string = |s: &str| CString::new(s.replace('\0', "")).unwrap_or_default();
    let args: Vec<CString> = argv.iter().map(|a| c_string(a)).collect();
    let env: Vec<CString> = launch.env.iter().map(|(k, v)| c_string(&format!("{k}={v}"))).collect();
    let path =
        launch.env.iter().rev().find(|(k, _)| k == "PATH").map_or(crate::names::DEFAULT_PATH, |(_, v)| v.as_str());
    let candidates: Vec<String> = if program.contains('/') {
        vec![program.clone()]
    } else {
        path.split(':').map(|dir| format!("{}/{program}", dir.trim_end_matches('/'))).collect()
    };
    let mut last = Errno::ENOENT;
    for candidate in candidates {
        match execve(&c_string(&candidate), &args, &env) {
            Ok(never) => match never {},
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => last = errno,
        }
    }
    match last {
        Errno::ENOENT if program.contains('/') => {
            format!("exec: \"{program}\": stat {program}: no such file or directory")
        }
        Errno::ENOENT => format!("exec: \"{program}\": executable file not found in $PATH"),
        errno => format!("exec: \"{program}\": {}", errno.desc().to_lowercase()),
    }
}

const LAST_CAPABILITY: i32 = 63;

fn take_identity(launch: &ContainerConfig, privilege: Privilege) -> Result<(), String> {
    let user = &launch.user;
    let said = |what: &str| {
        let what = what.to_owned();
        move |errno: Errno| format!("{what}: {errno}")
    };
    if privilege == Privilege::Root {
        if !launch.privileged {
            for capability in (0..=LAST_CAPABILITY).filter(|c| !launch.capabilities.contains(c)) {
                // SAFETY: a prctl that takes and returns integers. Unknown capabilities give EINVAL, which is ignored.
                let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
        }
        let gid = Gid::from_raw(user.gid);
        let uid = Uid::from_raw(user.uid);
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups).map_err(said("setting supplementary groups"))?;
        setresgid(gid, gid, gid).map_err(said("setting the group id"))?;
        setresuid(uid, uid, uid).map_err(said("setting the user id"))?;
    }
    prctl::set_no_new_privs().map_err(said("giving up new privileges"))
}

fn close_all_but(keep: &[RawFd]) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && !keep.contains(fd)) {
        let _ = nix::unistd::close(fd);
    }
}

/// Runs a program in a running container, with this process's standard streams; returns its exit code.
///
/// Runs in a separate process (`shim enter`), never in a shim or agent: it changes namespaces for good.
pub(crate) fn run_inside(
    launch: &ContainerConfig,
    container: Pid,
    argv: &[String],
    privilege: Privilege,
    tty: bool,
) -> Result<i32, String> {
    let open = |name: &str| {
        File::open(format!("/proc/{container}/ns/{name}")).map_err(|e| format!("the container is not running: {e}"))
    };
    let mut spaces = Vec::new();
    if privilege != Privilege::Root {
        spaces.push((open("user")?, CloneFlags::CLONE_NEWUSER));
    }
    for (name, flag) in [
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        spaces.push((open(name)?, flag));
    }
    for (space, flag) in &spaces {
        setns(space, *flag).map_err(|e| format!("entering the container: {e}"))?;
    }
    drop(spaces);
    let (master, streams) = if tty {
        let (master, slave) = terminal::open(&launch.user).map_err(|e| format!("making a terminal: {e}"))?;
        (Some(master), Stdio::Terminal(slave))
    } else {
        (None, Stdio::Own)
    };
    let (mut heard, errors) =
        pipe2(OFlag::O_CLOEXEC).map(|(r, w)| (File::from(r), File::from(w))).map_err(|e| e.to_string())?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|e| format!("starting a process: {e}"))? {
        ForkResult::Child => {
            let why = become_program(launch, argv, privilege, &streams);
            let mut errors = errors;
            let _ = errors.write_all(why.as_bytes());
            std::process::exit(NOT_STARTED)
        }
        ForkResult::Parent { child } => {
            drop(errors);
            drop(streams);
            let mut why = String::new();
            let _ = heard.read_to_string(&mut why);
            if let Some(master) = master.as_ref().filter(|_| why.is_empty()) {
                terminal::relay(master).map_err(|e| format!("the terminal: {e}"))?;
            }
            let code = loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => break code,
                    Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
                    Err(Errno::EINTR) | Ok(_) => {}
                    Err(errno) => return Err(format!("waiting for the program: {errno}")),
                }
            };
            if why.is_empty() { Ok(code) } else { Err(why) }
        }
    }
}

/// All processes of a container by host pid, including the first.
pub(crate) fn family(first: Pid) -> Vec<Pid> {
    let mut found = vec![first];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|c| c.parse().ok()).map(Pid::from_raw));
        }
    }
    found
}
