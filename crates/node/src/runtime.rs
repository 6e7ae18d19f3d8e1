//! Runtimes: the files behind an image reference, created on first use and cached.
//!
//! A runtime appears under its final name only when complete; a lock file serializes concurrent creation.

mod java;
mod mapping;
mod quick;
mod save;
mod spark;

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};

use crate::image::{self, ImageError, Source};
use crate::names::{DEFAULT_PATH, JAVA_HOME, QUICK_ENV, SPARK_HOME, SPARK_UID};
use crate::shim_protocol::{Mount, Overlay, Root, User};

pub use mapping::Mappings;
pub use save::{Compression, Save, Saved};

/// Progress of creating a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The current step, for people: `downloading Spark 4.1.4`.
    pub what: String,
    /// Bytes done, and the total if known.
    pub done: u64,
    pub total: Option<u64>,
}

/// Called with progress updates.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Why an image is not available.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("{0}")]
    Provision(String),
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error("{0}")]
    Mapping(String),
    #[error("writing the image: {0}")]
    Archive(#[from] io::Error),
}

impl RuntimeError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.display().to_string(), source }
    }
}

/// An image ready to run: its files and defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) root: Root,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) working_dir: String,
    pub(crate) user: User,
    pub(crate) home: String,
    /// Contains Spark, which must be given its address.
    pub(crate) spark: bool,
}

/// The runtimes of this machine.
#[derive(Clone)]
pub struct Runtimes {
    cache: PathBuf,
    progress: OnProgress,
}

const ENTRYPOINT: &str = include_str!("../runtime/entrypoint.sh");
const DECOMMISSION: &str = include_str!("../runtime/decom.sh");

impl Runtimes {
    /// Runtimes cached below `cache` (usually `~/.cache/firesteel`).
    pub fn new(cache: impl Into<PathBuf>, progress: OnProgress) -> Self {
        Self { cache: cache.into(), progress }
    }

    /// Provisions an image, so that the first pod does not have to wait. Blocks.
    pub fn prepare(&self, reference: &str) -> Result<(), RuntimeError> {
        self.resolve(reference).map(|_| ())
    }

    /// Makes an image's Spark start faster with a class data archive, unless it has one. Blocks for about a minute.
    pub fn quicken(&self, reference: &str) -> Result<(), RuntimeError> {
        let Source::Spark { version } = image::resolve(reference, &self.mappings().read()?)? else { return Ok(()) };
        let runtimes = self.dir()?;
        let home = spark::find_or_provision(&runtimes, &version, &self.progress)?;
        let java = java::find_or_install(&runtimes, &self.progress)?;
        quick::find_or_make(&runtimes, &format!("spark-{version}"), &home, &java, &self.progress)
    }

    /// Whether [`Self::quicken`] has nothing to do for an available image.
    pub fn is_quick(&self, reference: &str) -> Result<bool, RuntimeError> {
        let Source::Spark { version } = image::resolve(reference, &self.mappings().read()?)? else { return Ok(true) };
        let runtimes = self.dir()?;
        let java = java::find_or_install(&runtimes, &self.progress)?;
        Ok(quick::find(&runtimes, &format!("spark-{version}"), &java).is_some())
    }

    /// The `SPARK_HOME` of an image, created on first use; `None` without Spark. Blocks.
    pub fn spark_home(&self, reference: &str) -> Result<Option<PathBuf>, RuntimeError> {
        Ok(match self.resolve(reference)?.root {
            Root::Host { overlays } => overlays.into_iter().find(|o| o.target == SPARK_HOME).map(|o| o.lower),
            Root::Directory(_) => None,
        })
    }

    /// The `JAVA_HOME` of Spark runtimes, installed next to them if the machine has no Java. Blocks.
    pub fn java_home(&self) -> Result<PathBuf, RuntimeError> {
        java::find_or_install(&self.dir()?, &self.progress)
    }

    /// The user's image mappings.
    pub fn mappings(&self) -> Mappings {
        Mappings::new(self.cache.join("images.json"))
    }

    /// Finds or creates an image's files. Blocks, for minutes on first use.
    pub(crate) fn resolve(&self, reference: &str) -> Result<Image, RuntimeError> {
        match image::resolve(reference, &self.mappings().read()?)? {
            Source::Host => Ok(host_image()),
            Source::Spark { version } => {
                let runtimes = self.dir()?;
                let home = spark::find_or_provision(&runtimes, &version, &self.progress)?;
                let java = java::find_or_install(&runtimes, &self.progress)?;
                let id = format!("spark-{version}");
                let quick = quick::find(&runtimes, &id, &java);
                Ok(spark_image(id, home, java, quick))
            }
            Source::Mapped(dir) => self.mapped_image(reference, &dir),
        }
    }

    /// The same without downloading: an image that is not present is an error.
    pub(crate) fn resolve_present(&self, reference: &str) -> Result<Image, RuntimeError> {
        if let Source::Spark { version } = image::resolve(reference, &self.mappings().read()?)?
            && !spark::is_here(&self.dir()?, &version)
        {
            return Err(RuntimeError::Provision(format!("Spark {version} is not on this machine")));
        }
        self.resolve(reference)
    }

    fn mapped_image(&self, reference: &str, dir: &Path) -> Result<Image, RuntimeError> {
        if !dir.is_dir() {
            return Err(RuntimeError::Mapping(format!(
                "image \"{reference}\" is mapped to {}, which is not a directory",
                dir.display()
            )));
        }
        if dir.join("jars").is_dir() && dir.join("bin").join("spark-submit").exists() {
            let java = java::find_or_install(&self.dir()?, &self.progress)?;
            return Ok(spark_image(dir.display().to_string(), dir.to_owned(), java, None));
        }
        if !dir.join("usr").is_dir() && !dir.join("bin").is_dir() {
            return Err(RuntimeError::Mapping(format!(
                "image \"{reference}\" is mapped to {}, which is neither a Spark directory (jars, bin/spark-submit) nor a root file system (usr, bin)",
                dir.display()
            )));
        }
        let stock = dir.join("opt/entrypoint.sh").exists();
        let base = host_image();
        Ok(Image {
            id: dir.display().to_string(),
            root: Root::Directory(dir.to_owned()),
            entrypoint: if stock { vec!["/opt/entrypoint.sh".to_owned()] } else { Vec::new() },
            working_dir: if stock { format!("{SPARK_HOME}/work-dir") } else { "/".to_owned() },
            user: if stock { User { uid: SPARK_UID, gid: SPARK_UID, groups: Vec::new() } } else { base.user.clone() },
            env: if stock {
                vec![("PATH".to_owned(), DEFAULT_PATH.to_owned()), ("SPARK_HOME".to_owned(), SPARK_HOME.to_owned())]
            } else {
                base.env.clone()
            },
            spark: stock,
            ..base
        })
    }

    fn dir(&self) -> Result<PathBuf, RuntimeError> {
        let dir = self.cache.join("runtimes");
        fs::create_dir_all(&dir).map_err(|e| RuntimeError::file(&dir, e))?;
        Ok(dir)
    }
}

fn host_image() -> Image {
    Image {
        id: "firesteel/host".to_owned(),
        root: Root::Host { overlays: Vec::new() },
        files: Vec::new(),
        mounts: Vec::new(),
        env: vec![("PATH".to_owned(), DEFAULT_PATH.to_owned())],
        entrypoint: Vec::new(),
        arguments: vec!["sh".to_owned()],
        working_dir: "/".to_owned(),
        user: User { uid: 0, gid: 0, groups: Vec::new() },
        home: "/root".to_owned(),
        spark: false,
    }
}

fn spark_image(id: String, home: PathBuf, java: PathBuf, quick: Option<Mount>) -> Image {
    let mut env = vec![
        ("PATH".to_owned(), format!("{JAVA_HOME}/bin:{DEFAULT_PATH}:{SPARK_HOME}/bin")),
        ("JAVA_HOME".to_owned(), JAVA_HOME.to_owned()),
        ("SPARK_HOME".to_owned(), SPARK_HOME.to_owned()),
        // As in the stock images: without it Java cannot open files with non-ASCII names.
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    if quick.is_some() {
        env.push((QUICK_ENV.to_owned(), quick::PLACE.to_owned()));
    }
    let mut mounts = vec![Mount { source: java, volume: None, target: JAVA_HOME.to_owned(), read_only: true }];
    mounts.extend(quick);
    let make = vec![format!("{SPARK_HOME}/conf"), format!("{SPARK_HOME}/work-dir")];
    Image {
        id,
        root: Root::Host { overlays: vec![Overlay { lower: home, target: SPARK_HOME.to_owned(), make }] },
        files: vec![
            ("/opt/entrypoint.sh".to_owned(), ENTRYPOINT.to_owned()),
            ("/opt/decom.sh".to_owned(), DECOMMISSION.to_owned()),
        ],
        mounts,
        env,
        entrypoint: vec!["/opt/entrypoint.sh".to_owned()],
        arguments: Vec::new(),
        working_dir: format!("{SPARK_HOME}/work-dir"),
        user: User { uid: SPARK_UID, gid: SPARK_UID, groups: Vec::new() },
        home: SPARK_HOME.to_owned(),
        spark: true,
    }
}

/// Runs `make` under a lock, unless `target` exists, in a new directory that becomes `target`.
fn make_once(target: &Path, make: impl FnOnce(&Path) -> Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    if target.is_dir() {
        return Ok(());
    }
    let beside = |suffix: &str| {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.with_file_name(format!(".{name}.{suffix}"))
    };
    let lock_path = beside("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|e| RuntimeError::file(&lock_path, e))?;
    let _lock =
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| RuntimeError::file(&lock_path, e.into()))?;
    if target.is_dir() {
        return Ok(());
    }
    let partial = beside("partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|e| RuntimeError::file(&partial, e))?;
    make(&partial)?;
    fs::rename(&partial, target).map_err(|e| RuntimeError::file(target, e))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_runtime_is_made_once_however_many_want_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let target = dir.path().join("java-17");
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = |partial: &Path| {
                        made.fetch_add(1, Ordering::SeqCst);
                        fs::write(partial.join("first"), "").expect("a file");
                        std::thread::sleep(Duration::from_millis(50));
                        fs::write(partial.join("last"), "").expect("a file");
                        Ok(())
                    };
                    make_once(&target, make).expect("a runtime");
                    assert!(target.join("last").exists(), "whoever has it has all of it");
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_fails_leaves_nothing_under_its_name_and_can_be_tried_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let target = dir.path().join("java-17");
        let failed = make_once(&target, |partial| {
            fs::write(partial.join("half"), "").expect("a file");
            Err(RuntimeError::Provision("the network is away".to_owned()))
        });
        assert_eq!(failed.expect_err("a failure").to_string(), "the network is away");
        assert!(!target.exists());
        make_once(&target, |partial| fs::write(partial.join("whole"), "").map_err(|e| RuntimeError::file(partial, e)))
            .expect("a runtime");
        assert!(target.join("whole").exists() && !target.join("half").exists());
    }
}
