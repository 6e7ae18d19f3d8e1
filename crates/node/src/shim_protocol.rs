//! The protocol between agent and shim.
//!
//! A [`ContainerConfig`] has everything needed to start a container once. It contains no Kubernetes types and nothing to look up,
//! so that a shim never talks to the API server. A [`PodRecord`] is everything a shim knows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One start of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerConfig {
    pub(crate) container: String,
    /// Counts the starts of this container in this pod, from 0.
    pub(crate) attempt: u32,
    pub(crate) root: Root,
    /// Files to create in the root first: path inside the container, content.
    pub(crate) files: Vec<(String, String)>,
    /// Applied in this order; parents come first.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) hostname: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: String,
    pub(crate) user: User,
    pub(crate) read_only_root: bool,
    pub(crate) privileged: bool,
    /// The capabilities of the container's root, by number.
    #[serde(default)]
    pub(crate) capabilities: Vec<i32>,
    /// The memory limit in bytes.
    pub(crate) memory_limit: Option<u64>,
    /// Milli-cores.
    pub(crate) cpu_limit: Option<u64>,
    /// The termination message path inside the container.
    pub(crate) termination_message_path: String,
    /// Fall back to the end of the log if a failed container left no message.
    pub(crate) message_from_log: bool,
    /// Standard input stays open for attached clients; with `stdin_once`, only for the first.
    #[serde(default)]
    pub(crate) stdin: bool,
    #[serde(default)]
    pub(crate) stdin_once: bool,
    /// The container has a terminal.
    #[serde(default)]
    pub(crate) tty: bool,
    /// A scratch directory on the host for this start.
    pub(crate) scratch: PathBuf,
    pub(crate) log: PathBuf,
}

impl ContainerConfig {
    pub(crate) fn termination_message(&self) -> PathBuf {
        self.scratch.join("termination-log")
    }
}

/// The root file system below the mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Root {
    /// This machine's programs and libraries (`/usr`) and nothing else. The overlays come from a runtime.
    Host { overlays: Vec<Overlay> },
    /// A directory with a complete root file system.
    Directory(PathBuf),
}

/// A host directory mounted so that writes do not change the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overlay {
    pub(crate) lower: PathBuf,
    pub(crate) target: String,
    /// Directories that must exist in it.
    pub(crate) make: Vec<String>,
}

/// A host file or directory bound into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    /// The volume it belongs to.
    #[serde(default)]
    pub(crate) volume: Option<PathBuf>,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

impl Mount {
    /// The volume and the subpath, if only part of it is mounted.
    pub(crate) fn sub_path(&self) -> Option<(&Path, &Path)> {
        let volume = self.volume.as_deref()?;
        let part = self.source.strip_prefix(volume).ok()?;
        (!part.as_os_str().is_empty()).then_some((volume, part))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// A command to a shim, as one line of JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Command {
    Start(Box<ContainerConfig>),
    /// SIGTERM now, SIGKILL after the grace period. A second stop can only shorten it.
    Stop {
        container: String,
        grace_ms: u64,
    },
    /// Attach to a container's standard streams. After the line [`ATTACHED`] the connection carries frames (see [`crate::frames`])
    /// until the container exits.
    Attach {
        container: String,
    },
    /// Stop everything, then exit.
    End {
        grace_ms: u64,
    },
}

/// A shim's answer to an attach.
pub(crate) const ATTACHED: &str = "attached";

/// Everything a shim knows about its pod; also stored as `state.json` in the pod's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    pub(crate) shim_pid: i32,
    pub(crate) containers: BTreeMap<String, ContainerRecord>,
    /// The shim exited on request; nothing is running.
    pub(crate) ended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) attempt: u32,
    pub(crate) state: ContainerState,
    /// How the previous start ended.
    pub(crate) previous: Option<Exit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ContainerState {
    Starting,
    Running { pid: i32, started: Timestamp },
    Exited(Exit),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) attempt: u32,
    pub(crate) code: i32,
    pub(crate) cause: ExitCause,
    pub(crate) message: Option<String>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ExitCause {
    /// The process exited or was killed by a signal.
    Ended,
    OutOfMemory,
    /// It never ran: the sandbox or the program failed to start.
    NotStarted,
    /// The shim died, and the exit code with it.
    Lost,
}

impl Exit {
    /// The reason a kubelet would report.
    pub(crate) fn reason(&self) -> &'static str {
        match self.cause {
            ExitCause::Ended if self.code == 0 => "Completed",
            ExitCause::Ended => "Error",
            ExitCause::OutOfMemory => "OOMKilled",
            ExitCause::NotStarted => "StartError",
            ExitCause::Lost => crate::names::reason::UNKNOWN,
        }
    }
}

/// A pod's directory on the host. Directories are named by uid: a re-created pod of the same name is a different pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodDir(PathBuf);

impl PodDir {
    pub(crate) fn new(data_dir: &Path, uid: &str) -> Self {
        Self(data_dir.join("pods").join(uid))
    }
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
    pub(crate) fn pod(&self) -> PathBuf {
        self.0.join("pod.json")
    }
    pub(crate) fn address(&self) -> PathBuf {
        self.0.join("address")
    }
    pub(crate) fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }
    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }
    /// The node's decision to terminate the pod.
    pub(crate) fn order(&self) -> PathBuf {
        self.0.join("order.json")
    }
    pub(crate) fn socket_name() -> &'static str {
        "shim.sock"
    }
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("shim.lock")
    }
    pub(crate) fn shim_log(&self) -> PathBuf {
        self.0.join("shim.log")
    }
    pub(crate) fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }
    /// The directory for memory-backed volumes. They do not outlive the shim.
    pub(crate) fn memory(&self) -> PathBuf {
        let uid = self.0.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Path::new("/dev/shm").join(format!("firesteel-{uid}"))
    }
    pub(crate) fn container(&self, name: &str) -> PathBuf {
        self.0.join("containers").join(name)
    }
    pub(crate) fn scratch(&self, container: &str, attempt: u32) -> PathBuf {
        self.container(container).join(attempt.to_string())
    }
    pub(crate) fn log(&self, container: &str, attempt: u32) -> PathBuf {
        self.container(container).join(format!("{attempt}.log"))
    }
    pub(crate) fn launch(&self, container: &str) -> PathBuf {
        self.container(container).join("launch.json")
    }
}

/// Replaces a file atomically.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let written = std::fs::write(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // Remove the partial file: it takes up the space that is missing.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
