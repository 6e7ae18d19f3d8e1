//! Terminals: created inside a container, held by its shim.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown};

use crate::frames;
use crate::shim_protocol::User;

/// Opens a terminal in the current container: the master, and the program's end.
pub(super) fn open(user: &User) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname_r(&master)?;
    let slave = nix::fcntl::open(name.as_str(), OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, Mode::empty())?;
    // In a user namespace it already belongs to the only user.
    let _ = fchown(&slave, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
    // SAFETY: the descriptor is open and owned by nobody else: `into_raw_fd` gives it up.
    let master = unsafe { OwnedFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(master)) };
    Ok((master, slave))
}

/// Makes a terminal the controlling terminal of this session.
pub(super) fn control(slave: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes a descriptor and an integer.
    let result = unsafe { libc::ioctl(slave.as_raw_fd(), libc::TIOCSCTTY, 0) };
    Errno::result(result).map(|_| ()).map_err(io::Error::from)
}

pub(super) fn resize(master: BorrowedFd<'_>, width: u16, height: u16) {
    let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: takes a descriptor and reads a struct that lives as long as the call.
    let _ = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}

/// A socket pair for passing a descriptor to the parent process.
pub(super) fn pass() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

pub(super) fn send(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let (fds, data) = ([descriptor.as_raw_fd()], [IoSlice::new(b"t")]);
    let message = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(socket.as_raw_fd(), &data, &message, MsgFlags::empty(), None)?;
    Ok(())
}

/// Receives a descriptor; `None` if the other side closed without sending one.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8; 1];
    let mut data = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part
            && let Some(fd) = fds.first()
        {
            // SAFETY: the kernel has just made this descriptor for us.
            return Ok(Some(unsafe { OwnedFd::from_raw_fd(*fd) }));
        }
    }
    Ok(None)
}

/// Relays between this process's standard streams and a terminal until its program exits: frames in, plain bytes out.
pub(super) fn relay(master: &OwnedFd) -> io::Result<()> {
    let (stdin, mut stdout) = (io::stdin(), io::stdout());
    let mut heard = Vec::new();
    let mut buffer = [0_u8; 32 << 10];
    let mut listening = true;
    let mut terminal = File::from(master.try_clone()?);
    loop {
        let mut fds = vec![PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        if listening {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|f| f.revents().is_some_and(|r| !r.is_empty())).collect();
        if ready.first() == Some(&true) {
            match terminal.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    stdout.write_all(&buffer[..count])?;
                    stdout.flush()?;
                }
                // The other end is closed everywhere.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if ready.get(1) == Some(&true) {
            let count = nix::unistd::read(stdin.as_fd(), &mut buffer).unwrap_or(0);
            listening = count > 0;
            heard.extend_from_slice(&buffer[..count]);
            while let Some((kind, data)) = frames::take(&mut heard) {
                match kind {
                    frames::STDIN => terminal.write_all(&data)?,
                    frames::RESIZE => {
                        if let Some((width, height)) = frames::decode_size(&data) {
                            resize(master.as_fd(), width, height);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
