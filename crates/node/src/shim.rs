//! The shim: one process per pod that owns its processes, log files and exit codes.
//!
//! It outlives the agent. Its state is in `state.json` in the pod's directory, and is sent to clients of its socket. It is
//! single-threaded (see the module `process`) and acts only on an agent's commands, with one exception: a requested stop is completed
//! with or without an agent.

mod client;
mod command;
pub(crate) mod log;
pub(crate) mod memory;
#[allow(unsafe_code, reason = "clone, and descriptors that cross it")]
pub(crate) mod process;
mod running;
pub(crate) mod sandbox;
#[allow(unsafe_code, reason = "requests to the terminal driver, and descriptors from other processes")]
mod terminal;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use crate::frames;
use crate::shim::client::{Client, ClientRequest};
use crate::shim::log::{LogWriter, Stream};
use crate::shim::memory::Limit;
use crate::shim::running::{RunningContainer, read_some};
use crate::shim::sandbox::Privilege;
use crate::shim_protocol::{
    Command, ContainerConfig, ContainerRecord, ContainerState, Exit, ExitCause, PodDir, PodRecord, write_atomically,
};

pub use command::main;

const WATCH_EVERY: Duration = Duration::from_millis(500);
/// The maximum length of a termination message, as in a kubelet.
const MAX_MESSAGE: u64 = 4096;
/// Reads of one container's output before the others are served.
const FAIR_ROUNDS: usize = 16;
const GRACE_WHEN_TERMINATED: Duration = Duration::from_secs(10);

/// Runs a shim for a pod directory until it is told to exit. The process must be single-threaded.
pub fn run(dir: &Path) -> io::Result<()> {
    let dir = PodDir::at(dir);
    // Detach from the agent's terminal and process group: what kills the agent must not kill the pod.
    let _ = nix::unistd::setsid();
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.lock())?;
    // A pod has one shim. A second one exits quietly, and the agent connects to the first.
    let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    let address = fs::read_to_string(dir.address()).ok().and_then(|text| text.trim().parse().ok());
    // While the agent is down, this keeps other agents out of its block of addresses.
    let _held = address.and_then(crate::address::hold);
    let socket = short_path(dir.path())?;
    let _ = fs::remove_file(dir.path().join(PodDir::socket_name()));
    let listener = UnixListener::bind(socket.path.join(PodDir::socket_name()))?;
    listener.set_nonblocking(true)?;
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    // After a crash a new shim reads the old state; whatever was running died with the old shim.
    let before: PodRecord =
        fs::read(dir.state()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let before = crate::lifecycle::without_shim(&before, Timestamp::now());
    let mut shim = Shim {
        record: PodRecord { shim_pid: std::process::id().cast_signed(), ended: false, ..before },
        privilege: Privilege::of_this_process(),
        dir,
        listener,
        signals,
        clients: Vec::new(),
        live: BTreeMap::new(),
        ending: false,
        next_watch: Instant::now(),
        unwritten: false,
    };
    shim.publish()?;
    shim.serve()?;
    drop(lock);
    Ok(())
}

/// Socket addresses are limited to 107 bytes, and data directories can be deeper. A path through a file descriptor is short.
pub(crate) struct ShortPath {
    pub(crate) path: PathBuf,
    _dir: File,
}

pub(crate) fn short_path(dir: &Path) -> io::Result<ShortPath> {
    use std::os::fd::AsRawFd as _;
    let handle = File::open(dir)?;
    Ok(ShortPath { path: PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())), _dir: handle })
}

struct Shim {
    dir: PodDir,
    privilege: Privilege,
    record: PodRecord,
    listener: UnixListener,
    signals: SignalFd,
    clients: Vec<Client>,
    live: BTreeMap<String, RunningContainer>,
    ending: bool,
    next_watch: Instant,
    /// `state.json` is out of date.
    unwritten: bool,
}

/// The owner of a polled file descriptor.
enum PollSource {
    Signals,
    Listener,
    Client(usize),
    Container(String),
    /// A container's input has become writable.
    Input(String),
}

impl Shim {
    fn serve(&mut self) -> io::Result<()> {
        loop {
            if self.ending && self.live.is_empty() {
                let _ = fs::remove_dir_all(self.dir.memory());
                self.record.ended = true;
                self.publish()?;
                return Ok(());
            }
            let ready = self.wait()?;
            for source in ready {
                match source {
                    PollSource::Signals => self.take_signals()?,
                    PollSource::Listener => self.accept()?,
                    PollSource::Client(index) => self.receive(index)?,
                    PollSource::Container(name) => self.drain(&name, FAIR_ROUNDS)?,
                    PollSource::Input(name) => {
                        if let Some(live) = self.live.get_mut(&name) {
                            live.feed();
                        }
                    }
                }
            }
            self.drop_closed();
            self.enforce()?;
        }
    }

    fn wait(&self) -> io::Result<Vec<PollSource>> {
        let mut sources = vec![PollSource::Signals, PollSource::Listener];
        let mut fds: Vec<(BorrowedFd<'_>, PollFlags)> =
            vec![(self.signals.as_fd(), PollFlags::POLLIN), (self.listener.as_fd(), PollFlags::POLLIN)];
        for (index, client) in self.clients.iter().enumerate() {
            let container = client.attached.as_ref().and_then(|name| self.live.get(name));
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::POLLIN, container.is_none_or(RunningContainer::is_hungry));
            wanted.set(PollFlags::POLLOUT, client.has_more());
            sources.push(PollSource::Client(index));
            fds.push((client.as_fd(), wanted));
        }
        for (name, live) in &self.live {
            for fd in [&live.stdout, &live.stderr, &live.errors].into_iter().flatten() {
                sources.push(PollSource::Container(name.clone()));
                fds.push((fd.as_fd(), PollFlags::POLLIN));
            }
            if let Some(fd) = live.stdin.as_ref().filter(|_| live.wants_to_write()) {
                sources.push(PollSource::Input(name.clone()));
                fds.push((fd.as_fd(), PollFlags::POLLOUT));
            }
        }
        let mut polled: Vec<PollFd<'_>> = fds.into_iter().map(|(fd, wanted)| PollFd::new(fd, wanted)).collect();
        match poll(&mut polled, self.patience()) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|p| p.revents().is_some_and(|r| !r.is_empty())).collect();
        Ok(sources.into_iter().zip(ready).filter(|(_, ready)| *ready).map(|(source, _)| source).collect())
    }

    fn patience(&self) -> PollTimeout {
        let now = Instant::now();
        let kills = self.live.values().filter_map(|l| l.kill_at);
        let watch = (self.unwritten || self.live.values().any(|l| l.limit.is_watched())).then_some(self.next_watch);
        match kills.chain(watch).min() {
            None => PollTimeout::NONE,
            Some(at) => PollTimeout::try_from(at.saturating_duration_since(now) + Duration::from_millis(1))
                .unwrap_or(PollTimeout::MAX),
        }
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(info) = self.signals.read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            if matches!(signal, Some(Signal::SIGTERM | Signal::SIGINT)) {
                self.end(GRACE_WHEN_TERMINATED);
            }
        }
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let (pid, code) = match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(pid, code) => (pid, code),
                WaitStatus::Signaled(pid, signal, _) => (pid, 128 + signal as i32),
                _ => continue,
            };
            let name = self.live.iter().find(|(_, live)| live.pid == pid).map(|(name, _)| name.clone());
            if let Some(name) = name {
                self.reap(&name, code)?;
            }
        }
        Ok(())
    }

    /// Records a container's exit, after reading all of its output.
    fn reap(&mut self, name: &str, code: i32) -> io::Result<()> {
        self.drain(name, usize::MAX)?;
        let Some(mut live) = self.live.remove(name) else { return Ok(()) };
        let now = Timestamp::now();
        // With a full disk, the last partial line is lost.
        let _ = live.log.finish(now);
        let complaint = String::from_utf8_lossy(&live.complaint).into_owned();
        let cause = if !complaint.is_empty() {
            ExitCause::NotStarted
        } else if live.out_of_memory || (code == 137 && live.limit.kernel_killed()) {
            ExitCause::OutOfMemory
        } else {
            ExitCause::Ended
        };
        live.limit.release();
        let left = fs::File::open(live.launch.termination_message()).ok().and_then(|file| {
            let mut text = Vec::new();
            file.take(MAX_MESSAGE).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned()).filter(|t| !t.is_empty())
        });
        let from_log = || if live.launch.message_from_log && code != 0 { log::tail(&live.launch.log) } else { None };
        let message = if cause == ExitCause::NotStarted { Some(complaint) } else { left.or_else(from_log) };
        let exit = Exit { attempt: live.launch.attempt, code, cause, message, started: live.started, finished: now };
        if let Some(record) = self.record.containers.get_mut(name) {
            record.state = ContainerState::Exited(exit);
        }
        for client in self.clients.iter_mut().filter(|c| c.attached.as_deref() == Some(name)) {
            client.close();
        }
        self.publish()
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            let mut client = Client::new(stream)?;
            client.send(&encode(&self.record)?);
            self.clients.push(client);
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        client.flush();
        client.listen();
        while let Some(said) = self.clients.get_mut(index).and_then(Client::next) {
            match said {
                ClientRequest::Command(Command::Attach { container }) => self.attach(index, &container),
                ClientRequest::Command(command) => self.execute(command)?,
                ClientRequest::Frame(kind, data) => {
                    let name = self.clients.get(index).and_then(|c| c.attached.clone()).unwrap_or_default();
                    if let Some(live) = self.live.get_mut(&name) {
                        live.take_frame(kind, &data);
                    }
                }
            }
        }
        Ok(())
    }

    fn attach(&mut self, index: usize, container: &str) {
        let runs = self.live.contains_key(container);
        let Some(client) = self.clients.get_mut(index) else { return };
        if runs {
            client.attach(container);
        } else {
            client.close();
        }
    }

    /// Drops closed connections; a container may have been waiting for the end of its input.
    fn drop_closed(&mut self) {
        for client in self.clients.iter().filter(|c| c.is_over()) {
            if let Some(live) = client.attached.as_ref().and_then(|name| self.live.get_mut(name)) {
                live.end_input();
            }
        }
        self.clients.retain(|c| !c.is_over());
    }

    fn execute(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Start(launch) => self.start(&launch),
            Command::Stop { container, grace_ms } => {
                if let Some(live) = self.live.get_mut(&container) {
                    live.stop(Duration::from_millis(grace_ms));
                }
                Ok(())
            }
            // Handled separately, because it belongs to a connection.
            Command::Attach { .. } => Ok(()),
            Command::End { grace_ms } => {
                self.end(Duration::from_millis(grace_ms));
                Ok(())
            }
        }
    }

    fn end(&mut self, grace: Duration) {
        self.ending = true;
        for live in self.live.values_mut() {
            live.stop(grace);
        }
    }

    fn start(&mut self, launch: &ContainerConfig) -> io::Result<()> {
        // The agent may have died after the request and repeat it: start only once.
        let known = self.record.containers.get(&launch.container);
        if self.ending
            || self.live.contains_key(&launch.container)
            || known.is_some_and(|k| k.attempt >= launch.attempt)
        {
            return Ok(());
        }
        let previous = known.and_then(|k| match &k.state {
            ContainerState::Exited(exit) => Some(exit.clone()),
            ContainerState::Starting | ContainerState::Running { .. } => None,
        });
        let name = launch.container.clone();
        self.record.containers.insert(
            name.clone(),
            ContainerRecord { attempt: launch.attempt, state: ContainerState::Starting, previous },
        );
        match self.launch(launch.clone()) {
            Ok(live) => {
                self.live.insert(name, live);
            }
            Err(error) => {
                let exit = Exit {
                    attempt: launch.attempt,
                    code: process::NOT_STARTED,
                    cause: ExitCause::NotStarted,
                    message: Some(error.to_string()),
                    started: None,
                    finished: Timestamp::now(),
                };
                if let Some(record) = self.record.containers.get_mut(&name) {
                    record.state = ContainerState::Exited(exit);
                }
            }
        }
        self.publish()
    }

    fn launch(&self, launch: ContainerConfig) -> io::Result<RunningContainer> {
        fs::create_dir_all(&launch.scratch)?;
        write_atomically(&self.dir.launch(&launch.container), &serde_json::to_vec(&launch)?)?;
        let log = LogWriter::create(&launch.log)?;
        let started = process::start(&launch, self.privilege)?;
        let uid = self.dir.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let group = format!("{uid}-{}-{}", launch.container, launch.attempt);
        let limit = Limit::apply(started.pid, launch.memory_limit, launch.cpu_limit, &group);
        drop(started.go);
        let (mut stdin, mut stdout, mut stderr) = (started.stdin, Some(started.stdout), Some(started.stderr));
        if let Some(console) = started.console {
            // The container creates its terminal and passes it on; if it cannot, it reports why elsewhere.
            let terminal = terminal::receive(console.as_fd())?;
            stdin = terminal.as_ref().map(OwnedFd::try_clone).transpose()?.filter(|_| launch.stdin);
            (stdout, stderr) = (terminal, None);
        }
        for fd in [&stdin, &stdout, &stderr].into_iter().flatten().chain([&started.errors]) {
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        }
        Ok(RunningContainer {
            pid: started.pid,
            launch,
            stdin,
            input: Vec::new(),
            input_ended: false,
            stdout,
            stderr,
            errors: Some(started.errors),
            complaint: Vec::new(),
            log,
            lost: None,
            limit,
            kill_at: None,
            out_of_memory: false,
            started: None,
        })
    }

    /// Reads a container's output, and notices when its program has started.
    fn drain(&mut self, name: &str, rounds: usize) -> io::Result<()> {
        let Some(live) = self.live.get_mut(name) else { return Ok(()) };
        let now = Timestamp::now();
        if live.errors.is_some() {
            let complaint = &mut live.complaint;
            let open = read_some(&mut live.errors, rounds, |data| {
                complaint.extend_from_slice(data);
                Ok(())
            })?;
            if !open && live.complaint.is_empty() {
                live.started = Some(now);
                let pid = live.pid.as_raw();
                if let Some(record) = self.record.containers.get_mut(name) {
                    record.state = ContainerState::Running { pid, started: now };
                }
                self.publish()?;
            }
        }
        let Some(live) = self.live.get_mut(name) else { return Ok(()) };
        let mut listeners: Vec<&mut Client> =
            self.clients.iter_mut().filter(|c| c.attached.as_deref() == Some(name)).collect();
        for (stream, kind) in [(Stream::Stdout, frames::STDOUT), (Stream::Stderr, frames::STDERR)] {
            let mut source = if stream == Stream::Stdout { live.stdout.take() } else { live.stderr.take() };
            read_some(&mut source, rounds, |data| {
                for client in &mut listeners {
                    client.send(&frames::encode(kind, data));
                }
                live.keep(stream, data, now);
                Ok(())
            })?;
            *(if stream == Stream::Stdout { &mut live.stdout } else { &mut live.stderr }) = source;
        }
        Ok(())
    }

    /// Kills containers that exceed their grace period or memory limit.
    fn enforce(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let watch = now >= self.next_watch;
        if watch {
            self.next_watch = now + WATCH_EVERY;
            if self.unwritten {
                self.publish()?;
            }
        }
        for live in self.live.values_mut() {
            if watch && live.limit.passed(live.pid) {
                live.out_of_memory = true;
                let _ = kill(live.pid, Signal::SIGKILL);
            }
            if live.kill_at.is_some_and(|at| now >= at) {
                // Retry later if it did not work: a process inside a system call cannot die immediately.
                live.kill_at = Some(now + Duration::from_secs(1));
                let _ = kill(live.pid, Signal::SIGKILL);
            }
        }
        Ok(())
    }

    /// Saves the state and sends it to clients. If saving fails (full disk) it is retried; clients are up to date anyway.
    fn publish(&mut self) -> io::Result<()> {
        let line = encode(&self.record)?;
        self.unwritten = match write_atomically(&self.dir.state(), &line) {
            Ok(()) => false,
            Err(error) => {
                if !self.unwritten {
                    eprintln!("could not save the state of the pod, will retry: {error}");
                }
                true
            }
        };
        for client in self.clients.iter_mut().filter(|c| c.attached.is_none()) {
            client.send(&line);
        }
        Ok(())
    }
}

fn encode(record: &PodRecord) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}
