//! The shim: one process per pod that owns the pod's processes, log files and exit codes.
//!
//! It outlives the agent. What it knows is in `state.json` of the pod's directory and is told to whoever connects to the
//! socket beside it. It has one thread (see [`process`]) and does only what a connected agent tells it, with one
//! exception: a stop that was asked for is carried through, agent or not.

mod command;
pub(crate) mod log;
mod memory;
pub(crate) mod process;
pub(crate) mod sandbox;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::launch::{
    Command, ContainerRecord, ContainerState, Exit, ExitCause, Launch, PodDir, PodRecord, write_atomically,
};
use crate::shim::log::{LogWriter, Stream};
use crate::shim::memory::Limit;
use crate::shim::sandbox::Privilege;

pub use command::main;

const WATCH_EVERY: Duration = Duration::from_millis(500);
/// Longest message about an end that is kept, as in a kubelet.
const MAX_MESSAGE: u64 = 4096;
/// Reads of one container's output before the others get their turn.
const FAIR_ROUNDS: usize = 16;
const GRACE_WHEN_TERMINATED: Duration = Duration::from_secs(10);

/// Runs a shim for the pod directory until it is told to end. The process must have one thread.
pub fn run(dir: &Path) -> io::Result<()> {
    let dir = PodDir::at(dir);
    // Away from the agent's terminal and process group: what ends the agent must not end the pod.
    let _ = nix::unistd::setsid();
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(dir.lock())?;
    // A pod has one shim. A second one leaves quietly: the agent then finds the first.
    let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
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
    // A shim that comes after one that died knows what was before; whatever ran died with its shim.
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
    };
    shim.publish()?;
    shim.serve()?;
    drop(lock);
    Ok(())
}

/// A socket address holds 107 bytes; a data directory may be deeper. Going through a file descriptor makes it short.
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
    live: BTreeMap<String, Live>,
    ending: bool,
    next_watch: Instant,
}

struct Client {
    stream: UnixStream,
    heard: Vec<u8>,
    gone: bool,
}

/// A container with a process.
struct Live {
    pid: Pid,
    launch: Launch,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    complaint: Vec<u8>,
    log: LogWriter,
    limit: Limit,
    kill_at: Option<Instant>,
    out_of_memory: bool,
    started: Option<Timestamp>,
}

/// What a file descriptor of the loop belongs to.
enum Source {
    Signals,
    Listener,
    Client(usize),
    Container(String),
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
                    Source::Signals => self.take_signals()?,
                    Source::Listener => self.accept()?,
                    Source::Client(index) => self.hear(index)?,
                    Source::Container(name) => self.drain(&name, FAIR_ROUNDS)?,
                }
            }
            self.clients.retain(|c| !c.gone);
            self.enforce()?;
        }
    }

    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd(), self.listener.as_fd()];
        for (index, client) in self.clients.iter().enumerate() {
            sources.push(Source::Client(index));
            fds.push(client.stream.as_fd());
        }
        for (name, live) in &self.live {
            for fd in [&live.stdout, &live.stderr, &live.errors].into_iter().flatten() {
                sources.push(Source::Container(name.clone()));
                fds.push(fd.as_fd());
            }
        }
        let mut polled: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
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
        let watch = self.live.values().any(|l| l.limit.is_watched()).then_some(self.next_watch);
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
                self.bury(&name, code)?;
            }
        }
        Ok(())
    }

    /// Records the end of a container; everything it wrote is read first.
    fn bury(&mut self, name: &str, code: i32) -> io::Result<()> {
        self.drain(name, usize::MAX)?;
        let Some(mut live) = self.live.remove(name) else { return Ok(()) };
        let now = Timestamp::now();
        live.log.finish(now)?;
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
        self.publish()
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            let mut client = Client { stream, heard: Vec::new(), gone: false };
            client.tell(&encode(&self.record)?);
            self.clients.push(client);
        }
        Ok(())
    }

    fn hear(&mut self, index: usize) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(index) else { return Ok(()) };
        let commands = client.listen();
        for command in commands {
            self.obey(command)?;
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Start(launch) => self.start(&launch),
            Command::Stop { container, grace_ms } => {
                if let Some(live) = self.live.get_mut(&container) {
                    live.stop(Duration::from_millis(grace_ms));
                }
                Ok(())
            }
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

    fn start(&mut self, launch: &Launch) -> io::Result<()> {
        // The agent may have died after asking and ask again: a start is done once.
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

    fn launch(&self, launch: Launch) -> io::Result<Live> {
        fs::create_dir_all(&launch.scratch)?;
        write_atomically(&self.dir.launch(&launch.container), &serde_json::to_vec(&launch)?)?;
        let log = LogWriter::create(&launch.log)?;
        let started = process::start(&launch, self.privilege)?;
        let uid = self.dir.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let group = format!("{uid}-{}-{}", launch.container, launch.attempt);
        let limit = Limit::apply(started.pid, launch.memory_limit, launch.cpu_limit, &group);
        drop(started.go);
        for fd in [&started.stdout, &started.stderr, &started.errors] {
            nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        }
        Ok(Live {
            pid: started.pid,
            launch,
            stdout: Some(started.stdout),
            stderr: Some(started.stderr),
            errors: Some(started.errors),
            complaint: Vec::new(),
            log,
            limit,
            kill_at: None,
            out_of_memory: false,
            started: None,
        })
    }

    /// Reads what a container has written and notes when its program has started.
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
        let log = &mut live.log;
        read_some(&mut live.stdout, rounds, |data| log.write(Stream::Stdout, data, now))?;
        read_some(&mut live.stderr, rounds, |data| log.write(Stream::Stderr, data, now))?;
        Ok(())
    }

    /// Kills what has outlived its grace time or passed its memory.
    fn enforce(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let watch = now >= self.next_watch;
        if watch {
            self.next_watch = now + WATCH_EVERY;
        }
        for live in self.live.values_mut() {
            if watch && live.limit.passed(live.pid) {
                live.out_of_memory = true;
                let _ = kill(live.pid, Signal::SIGKILL);
            }
            if live.kill_at.is_some_and(|at| now >= at) {
                // Again in a while, should it not have worked: a process in the kernel cannot die at once.
                live.kill_at = Some(now + Duration::from_secs(1));
                let _ = kill(live.pid, Signal::SIGKILL);
            }
        }
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        let line = encode(&self.record)?;
        write_atomically(&self.dir.state(), &line)?;
        for client in &mut self.clients {
            client.tell(&line);
        }
        Ok(())
    }
}

impl Live {
    fn stop(&mut self, grace: Duration) {
        let at = Instant::now() + grace;
        if self.kill_at.is_none() && !grace.is_zero() {
            let _ = kill(self.pid, Signal::SIGTERM);
        }
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }
}

impl Client {
    fn tell(&mut self, line: &[u8]) {
        // A reader that does not keep up is dropped; it connects again and gets the newest state.
        if self.stream.write_all(line).is_err() {
            self.gone = true;
        }
    }

    fn listen(&mut self) -> VecDeque<Command> {
        let mut buffer = [0_u8; 64 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.gone = true;
                    break;
                }
                Ok(n) => self.heard.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
        let mut commands = VecDeque::new();
        while let Some(end) = self.heard.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(command) => commands.push_back(command),
                Err(error) => eprintln!("a command was not understood: {error}"),
            }
        }
        commands
    }
}

fn encode(record: &PodRecord) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads what is there without waiting, in so many rounds at most. Closes the source at its end and then gives `false`.
fn read_some(
    source: &mut Option<OwnedFd>,
    mut rounds: usize,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let Some(fd) = source else { return Ok(false) };
    let mut buffer = [0_u8; 64 << 10];
    loop {
        match nix::unistd::read(&*fd, &mut buffer) {
            Ok(0) => {
                *source = None;
                return Ok(false);
            }
            Ok(n) => {
                take(&buffer[..n])?;
                rounds -= 1;
                if rounds == 0 {
                    return Ok(true);
                }
            }
            Err(nix::errno::Errno::EAGAIN) => return Ok(true),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
