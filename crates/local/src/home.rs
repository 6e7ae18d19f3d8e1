//! The data directory of a local cluster: its layout, its lock, and the status its daemon reports.
//!
//! A running daemon holds a lock on the file `lock`, which is released however the daemon ends. `status.json` is valid only while
//! that lock is held.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The layout version. A directory with a newer one is left alone.
const LAYOUT: u32 = 1;
/// The contents of a data directory, apart from its status and locks. Nothing else in it is ever removed.
const PARTS: [&str; 5] = ["apiserver", "node", "volumes", "logs", "kubeconfig"];

/// One data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// What the daemon reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub layout: u32,
    pub pid: i32,
    pub phase: Phase,
    /// What it is doing, or why it failed, in one sentence.
    pub says: String,
    pub url: Option<String>,
    pub port: Option<u16>,
    pub components: Vec<Component>,
}

/// The state of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Starting,
    Ready,
    Stopping,
    Failed,
}

/// One process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    pub name: String,
    pub pid: Option<i32>,
    pub ready: bool,
    pub restarts: u32,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("{doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is in use by another cluster process (pid {pid}): choose another with --data-dir", path.display())]
    InUse { path: PathBuf, pid: i32 },
    #[error("{} was created by a newer firesteel: use that version, or choose another --data-dir", path.display())]
    Newer { path: PathBuf },
    #[error("{} is not a firesteel data directory: it is not empty and has no status.json", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{} belongs to user {owner}, who could read and replace the cluster's keys: choose another with --data-dir, or change its owner",
        path.display()
    )]
    OfAnother { path: PathBuf, owner: u32 },
}

/// Holds the directory's lock until dropped.
#[derive(Debug)]
pub(crate) struct HomeLock {
    _lock: File,
}

impl Home {
    pub fn at(root: PathBuf) -> Self {
        Home { root }
    }

    /// The default directory: `FIRESTEEL_DATA_DIR`, else `$XDG_DATA_HOME/firesteel`, else `~/.local/share/firesteel`.
    pub fn usual(env: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let root = set("FIRESTEEL_DATA_DIR")
            .or_else(|| set("XDG_DATA_HOME").map(|d| d.join("firesteel")))
            .or_else(|| set("HOME").map(|d| d.join(".local/share/firesteel")))?;
        Some(Home { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub(crate) fn apiserver(&self) -> PathBuf {
        self.root.join("apiserver")
    }

    pub fn node(&self) -> PathBuf {
        self.root.join("node")
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub fn log(&self, component: &str) -> PathBuf {
        self.root.join("logs").join(format!("{component}.log"))
    }

    fn status_file(&self) -> PathBuf {
        self.root.join("status.json")
    }

    /// Creates the directory, or opens an existing one that is ours.
    pub fn prepare(&mut self) -> Result<(), HomeError> {
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| HomeError::Io { doing, path, source }
        };
        if !self.root.exists() {
            let parent = self.root.parent().map_or(Ok(()), fs::create_dir_all);
            let made = parent.and_then(|()| fs::DirBuilder::new().mode(0o700).create(&self.root));
            match made {
                // A concurrent `up` was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(io("make", &self.root))?,
            }
        }
        // Paths are passed to processes with other working directories.
        self.root = self.root.canonicalize().map_err(io("resolve", &self.root))?;
        let ours = ["status.json", "lock", "turn"].iter().any(|name| self.root.join(name).exists());
        let mut entries = fs::read_dir(&self.root).map_err(io("read", &self.root))?;
        // Runtimes and images may share the parent directory, but not the directory itself.
        if !ours && entries.any(|e| e.is_ok_and(|e| !PARTS.contains(&&*e.file_name().to_string_lossy()))) {
            return Err(HomeError::Foreign { path: self.root.clone() });
        }
        if self.written().is_some_and(|s| s.layout > LAYOUT) {
            return Err(HomeError::Newer { path: self.root.clone() });
        }
        let logs = self.root.join("logs");
        fs::create_dir_all(&logs).map_err(io("make", &logs))
    }

    /// Restricts the directory to its owner: it holds keys and pod data. A directory of another user is refused, even for root.
    pub(crate) fn protect(&self) -> Result<(), HomeError> {
        let io = |doing| move |source| HomeError::Io { doing, path: self.root.clone(), source };
        let found = fs::metadata(&self.root).map_err(io("read"))?;
        if found.uid() != nix::unistd::Uid::effective().as_raw() {
            return Err(HomeError::OfAnother { path: self.root.clone(), owner: found.uid() });
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)).map_err(io("protect"))?;
        }
        Ok(())
    }

    fn open_lock(&self, name: &str) -> Result<File, HomeError> {
        let path = self.root.join(name);
        let open = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        open.map_err(|source| HomeError::Io { doing: "open", path, source })
    }

    /// Locks the directory for this process.
    pub(crate) fn hold(&self) -> Result<HomeLock, HomeError> {
        let lock = self.open_lock("lock")?;
        match lock.try_lock() {
            Ok(()) => Ok(HomeLock { _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let pid = self.written().map_or(0, |s| s.pid);
                Err(HomeError::InUse { path: self.root.clone(), pid })
            }
            Err(TryLockError::Error(source)) => {
                Err(HomeError::Io { doing: "lock", path: self.root.join("lock"), source })
            }
        }
    }

    /// Waits until no other `up` or `down` is running.
    pub(crate) fn take_turn(&self) -> Result<HomeLock, HomeError> {
        let lock = self.open_lock("turn")?;
        lock.lock().map_err(|source| HomeError::Io { doing: "lock", path: self.root.join("turn"), source })?;
        Ok(HomeLock { _lock: lock })
    }

    /// Whether a daemon holds the directory.
    pub(crate) fn is_held(&self) -> bool {
        match File::options().write(true).open(self.root.join("lock")) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    /// The status of the running daemon.
    pub fn status(&self) -> Option<Status> {
        if self.is_held() { self.written() } else { None }
    }

    /// The last status written, by any daemon.
    pub(crate) fn written(&self) -> Option<Status> {
        serde_json::from_slice(&fs::read(self.status_file()).ok()?).ok()
    }

    /// Writes the status atomically.
    pub(crate) fn write_status(&self, status: &Status) -> io::Result<()> {
        self.write_private("status.json", &serde_json::to_vec_pretty(status)?)
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn write_private(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let draft = self.root.join(format!(".{name}.{}", std::process::id()));
        let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        fs::rename(&draft, self.root.join(name))
    }

    /// Waits until the daemon has released the directory; returns whether it did in time.
    pub(crate) fn wait_until_free(&self, patience: Duration) -> bool {
        let deadline = std::time::Instant::now() + patience;
        while self.is_held() {
            if std::time::Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Deletes all cluster data. No daemon may be running.
    pub(crate) fn wipe(&self) -> Result<(), HomeError> {
        for part in PARTS.iter().chain(&["status.json", "lock", "turn"]) {
            let path = self.root.join(part);
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match gone {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(HomeError::Io { doing: "remove", path, source }),
            }
        }
        // Fails if anything else is in it, which is fine.
        let _ = fs::remove_dir(&self.root);
        Ok(())
    }
}

impl Status {
    pub(crate) fn starting(says: &str) -> Self {
        Status {
            layout: LAYOUT,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            phase: Phase::Starting,
            says: says.to_owned(),
            url: None,
            port: None,
            components: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let mut home = Home::at(directory.path().join("data"));
        home.prepare().unwrap();
        (directory, home)
    }

    #[test]
    fn the_usual_directory_follows_the_environment() {
        let usual = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let find = |name: &str| set.iter().find(|(k, _)| k == name).map(|(_, v)| OsString::from(v));
            Home::usual(find).map(|h| h.root().to_string_lossy().into_owned())
        };
        assert_eq!(usual(&[("HOME", "/h")]).as_deref(), Some("/h/.local/share/firesteel"));
        assert_eq!(usual(&[("HOME", "/h"), ("XDG_DATA_HOME", "/x")]).as_deref(), Some("/x/firesteel"));
        assert_eq!(usual(&[("FIRESTEEL_DATA_DIR", "/f"), ("XDG_DATA_HOME", "/x")]).as_deref(), Some("/f"));
        assert_eq!(usual(&[]), None);
    }

    #[test]
    fn a_directory_is_held_by_one_only() {
        let (_directory, home) = home();
        assert!(!home.is_held());
        let held = home.hold().unwrap();
        assert!(home.is_held());
        assert!(matches!(home.hold(), Err(HomeError::InUse { .. })));
        drop(held);
        assert!(!home.is_held());
        assert!(home.wait_until_free(Duration::ZERO));
    }

    #[test]
    fn a_status_counts_only_while_the_directory_is_held() {
        let (_directory, home) = home();
        home.write_status(&Status::starting("hello")).unwrap();
        assert_eq!(home.status(), None);
        let _held = home.hold().unwrap();
        assert_eq!(home.status().unwrap().says, "hello");
    }

    #[test]
    fn foreign_and_newer_directories_are_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("thesis.tex"), "x").unwrap();
        assert!(matches!(Home::at(directory.path().to_owned()).prepare(), Err(HomeError::Foreign { .. })));
        let (_directory, mut home) = home();
        home.write_status(&Status { layout: LAYOUT + 1, ..Status::starting("") }).unwrap();
        assert!(matches!(home.prepare(), Err(HomeError::Newer { .. })));
    }

    #[test]
    fn a_directory_is_closed_to_others_and_one_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("deep/data");
        let mode = || fs::metadata(&data).unwrap().mode() & 0o777;
        Home::at(data.clone()).prepare().unwrap();
        assert_eq!(mode(), 0o700);
        // Created by hand, or by an earlier version.
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        let mut home = Home::at(data.clone());
        home.prepare().unwrap();
        home.protect().unwrap();
        assert_eq!(mode(), 0o700);
        home.write_private("kubeconfig", b"x").unwrap();
        assert_eq!(fs::metadata(home.kubeconfig()).unwrap().mode() & 0o777, 0o600);
        if nix::unistd::Uid::effective().is_root() {
            std::os::unix::fs::chown(&data, Some(65534), None).unwrap();
            let refused = home.protect().unwrap_err();
            assert!(matches!(refused, HomeError::OfAnother { owner: 65534, .. }), "{refused}");
        }
    }

    #[test]
    fn wiping_leaves_what_is_not_ours() {
        let (_directory, home) = home();
        home.write_status(&Status::starting("")).unwrap();
        fs::create_dir_all(home.volumes().join("a/b")).unwrap();
        fs::write(home.root().join("notes"), "x").unwrap();
        home.wipe().unwrap();
        assert!(home.root().join("notes").exists());
        assert!(!home.volumes().exists());
    }
}
