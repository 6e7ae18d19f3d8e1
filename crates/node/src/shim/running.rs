//! A running container, as its shim sees it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::log::{LogWriter, Stream};
use super::memory::Limit;
use super::terminal;
use crate::frames;
use crate::shim_protocol::ContainerConfig;

/// Input that the container does not read is not accepted from clients.
const MOST_INPUT: usize = 1 << 20;

/// A container with a process.
pub(super) struct RunningContainer {
    pub(super) pid: Pid,
    pub(super) launch: ContainerConfig,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// Standard input or terminal; data waiting to be written; and whether to close it afterwards.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) input: Vec<u8>,
    pub(super) input_ended: bool,
    pub(super) errors: Option<OwnedFd>,
    pub(super) complaint: Vec<u8>,
    pub(super) log: LogWriter,
    /// Output that could not be logged, and why.
    pub(super) lost: Option<(u64, String)>,
    pub(super) limit: Limit,
    pub(super) kill_at: Option<Instant>,
    pub(super) out_of_memory: bool,
    pub(super) started: Option<Timestamp>,
}

impl RunningContainer {
    pub(super) fn stop(&mut self, grace: Duration) {
        let at = Instant::now() + grace;
        if self.kill_at.is_none() && !grace.is_zero() {
            let _ = kill(self.pid, Signal::SIGTERM);
        }
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Logs output. A full disk must not stop the container: lost output is counted and reported later.
    pub(super) fn keep(&mut self, stream: Stream, data: &[u8], now: Timestamp) {
        if let Some((bytes, why)) = &self.lost
            && self.log.lost(*bytes, why, now).is_ok()
        {
            self.lost = None;
        }
        if let Err(error) = self.log.write(stream, data, now) {
            let before = self.lost.take().map_or(0, |(bytes, _)| bytes);
            self.lost = Some((before + data.len() as u64, error.to_string()));
        }
    }

    /// Whether its input accepts more data.
    pub(super) fn is_hungry(&self) -> bool {
        self.input.len() < MOST_INPUT
    }

    pub(super) fn wants_to_write(&self) -> bool {
        self.stdin.is_some() && !self.input.is_empty()
    }

    /// Handles a frame from an attached client.
    pub(super) fn take_frame(&mut self, kind: u8, data: &[u8]) {
        match kind {
            frames::STDIN if self.stdin.is_some() => self.input.extend_from_slice(data),
            frames::RESIZE if self.launch.tty => {
                if let (Some(terminal), Some((width, height))) = (&self.stdout, frames::decode_size(data)) {
                    terminal::resize(terminal.as_fd(), width, height);
                }
            }
            frames::END => self.end_input(),
            _ => {}
        }
        self.feed();
    }

    /// The attached client has disconnected. A terminal's program has to notice end of input itself.
    pub(super) fn end_input(&mut self) {
        self.input_ended |= self.launch.stdin_once && !self.launch.tty;
        self.feed();
    }

    /// Writes without blocking.
    pub(super) fn feed(&mut self) {
        while let Some(fd) = self.stdin.as_ref().filter(|_| !self.input.is_empty()) {
            match nix::unistd::write(fd, &self.input) {
                Ok(count) => {
                    self.input.drain(..count);
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => return,
                Err(_) => self.stdin = None,
            }
        }
        if self.input_ended {
            self.stdin = None;
        }
    }
}

/// Reads without blocking, at most this many times. At end of file closes the source and returns `false`.
pub(super) fn read_some(
    source: &mut Option<OwnedFd>,
    mut rounds: usize,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let Some(fd) = source else { return Ok(false) };
    let mut buffer = [0_u8; 64 << 10];
    loop {
        match nix::unistd::read(&*fd, &mut buffer) {
            // A terminal whose other end is closed reports an error.
            Ok(0) | Err(nix::errno::Errno::EIO) => {
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
