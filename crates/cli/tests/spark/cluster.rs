//! The cluster that the cases of a round share: ours or an ordinary user's, started once and removed without a trace.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::connect_client::own_cache;

/// A user id that need not exist.
pub(crate) const USER: u32 = 1917;

/// Whose cluster it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The user who runs the tests.
    Us,
    OrdinaryUser,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Us if is_root() => "root",
            Who::Us | Who::OrdinaryUser => "user",
        })
    }
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct Cluster {
    pub(crate) who: Who,
    scratch: tempfile::TempDir,
    pub(crate) program: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: kube::Client,
    pub(crate) server: String,
}

/// From this many applications on, a class archive saves more time than it costs.
const MANY: usize = 8;

impl Cluster {
    /// Starts a cluster with the runtimes of these versions, each for the given number of applications. `None` if Spark is not
    /// available.
    pub(crate) fn up(who: Who, versions: &BTreeMap<&str, usize>) -> Result<Option<Self>, String> {
        let scratch = tempfile::Builder::new().prefix("firesteel-spark-").tempdir().map_err(|e| e.to_string())?;
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for (version, applications) in versions {
            let image = format!("apache/spark:{version}");
            let slow = (*applications < MANY && *version != crate::MAIN).then_some("--no-quick-starts");
            let mut pull = Command::new(env!("CARGO_BIN_EXE_firesteel"));
            let pulled = pull.args(["local", "image", "pull", &image]).args(slow).output().unwrap();
            if !pulled.status.success() {
                eprintln!("SKIPPED, no Spark runtime: {}", String::from_utf8_lossy(&pulled.stderr));
                return Ok(None);
            }
        }
        let mut program = PathBuf::from(env!("CARGO_BIN_EXE_firesteel"));
        if who == Who::OrdinaryUser {
            // The build and the cache of the user who runs the tests may not be readable by others.
            let copy = scratch.path().join("firesteel");
            copy_tree(&program, &copy);
            program = copy;
            let cache = scratch.path().join("home/.cache/firesteel/runtimes");
            std::fs::create_dir_all(&cache).unwrap();
            for version in versions.keys() {
                copy_release(version, &cache);
            }
            let mut dir = cache.as_path();
            while dir.starts_with(scratch.path()) {
                chown(dir, Some(USER), Some(USER)).unwrap();
                dir = dir.parent().unwrap();
            }
        }
        let data = scratch.path().join("data");
        let base = Base { who, program: &program, scratch: scratch.path() };
        let up = base.run(&["local", "up", "--data-dir", &data.to_string_lossy()]);
        if up.code != 0 {
            return Err(format!("the cluster did not come up: {}", up.err));
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let kubeconfig = base.run(&["local", "kubeconfig", "--data-dir", &data.to_string_lossy()]).out;
        let config: Kubeconfig = Kubeconfig::from_yaml(&kubeconfig).map_err(|e| e.to_string())?;
        let config = runtime
            .block_on(kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()))
            .map_err(|e| e.to_string())?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = runtime.block_on(async { kube::Client::try_from(config) }).map_err(|e| e.to_string())?;
        Ok(Some(Self { who, program, runtime, client, server, scratch }))
    }

    pub(crate) fn base(&self) -> Base<'_> {
        Base { who: self.who, program: &self.program, scratch: self.scratch.path() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// A path that all processes of this cluster have in their command lines.
    pub(crate) fn place(&self) -> &Path {
        self.scratch.path()
    }

    /// Creates a namespace with a driver account, as the default namespace has, and a directory of the same name for files.
    pub(crate) fn namespace(&self, name: &str) -> PathBuf {
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.runtime.block_on(async {
            Api::all(self.client.clone()).create(&PostParams::default(), &object).await.unwrap();
            firesteel_local::driver_account(&self.client, name, "spark").await.unwrap();
        });
        let directory = self.scratch.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        self.give(&directory);
        directory
    }

    /// Gives a file to the user of the cluster.
    pub(crate) fn give(&self, path: &Path) {
        if self.who == Who::OrdinaryUser {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    /// Takes the cluster down; an error says what is left.
    pub(crate) fn down(self) -> Result<(), String> {
        let down = self.base().run(&["local", "down", "--data-dir", &self.data().to_string_lossy()]);
        if down.code != 0 {
            return Err(format!("local down: {}", down.err));
        }
        let left = processes(&self.scratch.path().to_string_lossy());
        if left.is_empty() { Ok(()) } else { Err(format!("processes are left: {left:?}")) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.base().run(&["local", "down", "--data-dir", &self.data().to_string_lossy()]);
    }
}

/// What a user's command needs.
pub(crate) struct Base<'a> {
    who: Who,
    program: &'a Path,
    scratch: &'a Path,
}

impl Base<'_> {
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(words).current_dir(self.scratch).stdin(Stdio::null());
        if self.who == Who::OrdinaryUser {
            command.uid(USER).gid(USER).env("HOME", self.scratch.join("home"));
            command.env_remove("XDG_CACHE_HOME").env_remove("XDG_DATA_HOME").env_remove("XDG_RUNTIME_DIR");
        }
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        said(self.command(words))
    }
}

pub(crate) fn said(mut command: Command) -> Said {
    let output = command.output().expect("firesteel runs");
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Copies a release and its class archives.
fn copy_release(version: &str, into: &Path) {
    let archives = format!("quick-spark-{version}-");
    for entry in std::fs::read_dir(own_cache().join("runtimes")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == format!("spark-{version}") || name.starts_with(&archives) {
            copy_tree(&entry.path(), &into.join(name));
        }
    }
}

/// With hard links if possible: a runtime is half a gigabyte.
fn copy_tree(from: &Path, to: &Path) {
    let linked = Command::new("cp").arg("-al").arg(from).arg(to).stderr(Stdio::null()).status().unwrap();
    if !linked.success() {
        let _ = std::fs::remove_dir_all(to);
        assert!(
            Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success(),
            "a copy of {}",
            from.display()
        );
    }
}

/// Processes whose command line contains `words`.
pub(crate) fn processes(words: &str) -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries.filter_map(|e| Some((e.file_name().to_str()?.parse::<i32>().ok()?, e.path())));
    let own = i32::try_from(std::process::id()).unwrap();
    numbered
        .filter(|(pid, _)| *pid != own)
        .filter_map(|(pid, path)| {
            let line = String::from_utf8_lossy(&std::fs::read(path.join("cmdline")).ok()?).replace('\0', " ");
            line.contains(words).then_some((pid, line))
        })
        .collect()
}
