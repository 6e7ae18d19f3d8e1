//! What the agent tells a shim, and what a shim tells back.
//!
//! A [`ContainerConfig`] holds everything needed to start one container once; it contains no Kubernetes type and nothing that
//! would have to be looked up later, so that a shim never speaks to the API server. A [`PodRecord`] is all a shim knows.

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
    /// Files of the root made before anything else: path inside the container, content.
    pub(crate) files: Vec<(String, String)>,
    /// Applied in this order; the agent sorts them so that parents come first.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) hostname: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: String,
    pub(crate) user: User,
    pub(crate) read_only_root: bool,
    pub(crate) privileged: bool,
    /// Numbers of the capabilities that the container's root may have.
    #[serde(default)]
    pub(crate) capabilities: Vec<i32>,
    /// Bytes of memory after which the container is killed.
    pub(crate) memory_limit: Option<u64>,
    /// Milli-cores.
    pub(crate) cpu_limit: Option<u64>,
    /// Where the container may leave a message about its end, as a path inside it.
    pub(crate) termination_message_path: String,
    /// Without such a message, the end of the log is one if the container failed.
    pub(crate) message_from_log: bool,
    /// Standard input stays open for who attaches, for the first only if `stdin_once`.
    #[serde(default)]
    pub(crate) stdin: bool,
    #[serde(default)]
    pub(crate) stdin_once: bool,
    /// The container has a terminal.
    #[serde(default)]
    pub(crate) tty: bool,
    /// Scratch directory of this start, on the host.
    pub(crate) scratch: PathBuf,
    pub(crate) log: PathBuf,
}

impl ContainerConfig {
    pub(crate) fn termination_message(&self) -> PathBuf {
        self.scratch.join("termination-log")
    }
}

/// The files a container sees below its mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Root {
    /// The programs and libraries of this machine (`/usr`), nothing else of it. The overlays come from a runtime.
    Host { overlays: Vec<Overlay> },
    /// A directory that holds a whole root file system.
    Directory(PathBuf),
}

/// A directory of the host that appears in a container, where it may be written to without changing the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overlay {
    pub(crate) lower: PathBuf,
    pub(crate) target: String,
    /// Directories that must exist in it.
    pub(crate) make: Vec<String>,
}

/// A file or directory of the host bound into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    /// The volume it is a part of.
    #[serde(default)]
    pub(crate) volume: Option<PathBuf>,
    pub(crate) target: String,
    pub(crate) read_only: bool,
}

impl Mount {
    /// The volume and the path beneath it, if only a part of the volume is mounted.
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

/// What an agent may ask of a shim. One JSON line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Command {
    Start(Box<ContainerConfig>),
    /// SIGTERM now, SIGKILL after the grace time. A second stop can only shorten the time.
    Stop {
        container: String,
        grace_ms: u64,
    },
    /// The standard streams of a container from now on: after the line [`ATTACHED`] this connection carries frames
    /// (see [`crate::frames`]) until the container ends.
    Attach {
        container: String,
    },
    /// Stop whatever runs, then leave.
    End {
        grace_ms: u64,
    },
}

/// What a shim answers to an attachment.
pub(crate) const ATTACHED: &str = "attached";

/// All a shim knows about its pod; also kept as `state.json` in the pod's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRecord {
    pub(crate) shim_pid: i32,
    pub(crate) containers: BTreeMap<String, ContainerRecord>,
    /// The shim has left on request; nothing runs any more.
    pub(crate) ended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) attempt: u32,
    pub(crate) state: ContainerState,
    /// How the start before this one ended.
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
    /// The process ended, by itself or by a signal.
    Ended,
    OutOfMemory,
    /// It never ran: the sandbox or the program could not be started.
    NotStarted,
    /// The shim is gone and took the exit code with it.
    Lost,
}

impl Exit {
    /// The reason a kubelet would give.
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

/// Where things of one pod lie on the host. One directory per uid: a re-created pod of the same name is another pod.
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
    /// What the node has decided about the pod.
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
    /// Where memory-backed volumes lie. They live no longer than the shim.
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

/// Replaces a file so that a reader sees the old content or the new, never a part.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let written = std::fs::write(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of it takes up the room that is missing.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
