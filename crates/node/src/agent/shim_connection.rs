//! The agent's end of the socket to a shim.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;

use crate::lifecycle::without_shim;
use crate::shim::short_path;
use crate::shim_protocol::{Command, PodDir, PodRecord};

/// A connection to a shim. The record mirrors the shim's; the channel closes when the shim exits.
#[derive(Debug)]
pub(crate) struct ShimConnection {
    write: OwnedWriteHalf,
    pub(crate) record: watch::Receiver<PodRecord>,
}

const START_TIMEOUT: Duration = Duration::from_secs(10);

impl ShimConnection {
    /// Connects to the shim of a pod, if one is running.
    pub(crate) async fn connect(dir: &PodDir) -> io::Result<Self> {
        let socket = short_path(dir.path())?;
        let stream = UnixStream::connect(socket.path.join(PodDir::socket_name())).await?;
        let (read, write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let first = lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (sender, record) = watch::channel(serde_json::from_str::<PodRecord>(&first)?);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(record) => {
                        sender.send_replace(record);
                    }
                    Err(error) => tracing::warn!(%error, "invalid message from a shim"),
                }
            }
        });
        Ok(Self { write, record })
    }

    /// Starts a shim and connects to it. It gets its own session, so that it outlives this process.
    pub(crate) async fn start(dir: &PodDir, command: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let log = OpenOptions::new().create(true).append(true).open(dir.shim_log())?;
        let mut process = tokio::process::Command::new(program);
        process
            .args(arguments)
            .arg("run")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .current_dir("/");
        let mut child = process.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
                let why = "the machine or this user has no room for another process (see ulimit -u and pids.max)";
                io::Error::new(error.kind(), format!("starting a process: {error}: {why}"))
            }
            _ => error,
        })?;
        let deadline = tokio::time::Instant::now() + START_TIMEOUT;
        let link = loop {
            match Self::connect(dir).await {
                Ok(link) => break link,
                Err(_) if tokio::time::Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(3)).await,
                Err(error) => {
                    let _ = child.kill().await;
                    let said = fs::read_to_string(dir.shim_log()).unwrap_or_default();
                    let last = said.lines().last().map(|l| format!(": {l}")).unwrap_or_default();
                    return Err(io::Error::new(error.kind(), format!("the shim did not start{last}")));
                }
            }
        };
        // Reap it when it exits; nothing else waits for it.
        tokio::spawn(async move { child.wait().await });
        Ok(link)
    }

    pub(crate) async fn send(&mut self, command: &Command) -> io::Result<()> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        self.write.write_all(&line).await
    }
}

/// The record that the pod's last shim wrote.
pub(crate) fn recorded(dir: &PodDir) -> PodRecord {
    fs::read(dir.state()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// The record of a pod whose shim is not running.
pub(crate) fn record_without_shim(dir: &PodDir) -> PodRecord {
    without_shim(&recorded(dir), Timestamp::now())
}

/// Removes a pod's directory. Overlays leave directories that even their owner cannot read.
pub(crate) fn remove_tree(dir: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fn open_up(dir: &std::path::Path) {
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                open_up(&entry.path());
            }
        }
    }
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            open_up(dir);
            fs::remove_dir_all(dir)
        }
    }
}
