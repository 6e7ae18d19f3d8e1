//! A connection to the shim: an agent that sends commands, or a client attached to a container.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::frames;
use crate::shim_protocol::{ATTACHED, Command};

/// A client that falls this far behind is dropped. An agent reconnects and gets the latest state.
const MOST: usize = 16 << 20;

pub(super) struct Client {
    stream: UnixStream,
    heard: Vec<u8>,
    queue: Vec<u8>,
    /// The container it is attached to.
    pub(super) attached: Option<String>,
    closing: bool,
    gone: bool,
}

/// What a client sends.
pub(super) enum ClientRequest {
    Command(Command),
    /// A frame for the attached container.
    Frame(u8, Vec<u8>),
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, heard: Vec::new(), queue: Vec::new(), attached: None, closing: false, gone: false })
    }

    pub(super) fn is_over(&self) -> bool {
        self.gone || (self.closing && self.queue.is_empty())
    }

    pub(super) fn has_more(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Disconnects once everything has been sent.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    pub(super) fn attach(&mut self, container: &str) {
        self.send(format!("{ATTACHED}\n").as_bytes());
        self.attached = Some(container.to_owned());
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.queue.extend_from_slice(bytes);
        self.flush();
        self.gone |= self.queue.len() > MOST;
    }

    /// Sends without blocking.
    pub(super) fn flush(&mut self) {
        while !self.queue.is_empty() {
            match self.stream.write(&self.queue) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.queue.drain(..count);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    /// Reads without blocking.
    pub(super) fn listen(&mut self) {
        let mut buffer = [0_u8; 64 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.gone = true;
                    return;
                }
                Ok(count) => {
                    self.heard.extend_from_slice(&buffer[..count]);
                    // A client that sends endlessly must not starve the others.
                    if self.heard.len() > 1 << 20 {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// The next complete message. One at a time, because an attach changes how the rest is parsed.
    pub(super) fn next(&mut self) -> Option<ClientRequest> {
        if self.attached.is_some() {
            return frames::take(&mut self.heard).map(|(kind, data)| ClientRequest::Frame(kind, data));
        }
        loop {
            let end = self.heard.iter().position(|b| *b == b'\n')?;
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(command) => return Some(ClientRequest::Command(command)),
                Err(error) => eprintln!("a command was not understood: {error}"),
            }
        }
    }
}
