//! Client deploy mode: the driver runs in a JVM here, which only the real `spark-submit` can start.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::exit::BadInput;

/// Replaces this process with the real `spark-submit`, with the same arguments. Returns only on failure.
pub(crate) fn to_spark_submit(arguments: &[String]) -> anyhow::Result<std::convert::Infallible> {
    let found = find(std::env::var_os("SPARK_HOME").map(PathBuf::from), std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        BadInput(
            "client deploy mode needs the real spark-submit, and there is none in SPARK_HOME/bin or PATH: install Spark, or use --deploy-mode cluster"
                .to_owned(),
        )
    })?;
    let error = Command::new(&found).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", found.display()))
}

/// Finds the real `spark-submit`, skipping links to this program.
fn find(home: Option<PathBuf>, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let ourselves = std::env::current_exe().ok().and_then(|exe| exe.canonicalize().ok());
    let usable = |candidate: &Path| {
        candidate.is_file()
            && nix::unistd::access(candidate, nix::unistd::AccessFlags::X_OK).is_ok()
            && candidate.canonicalize().ok() != ourselves
    };
    let homes = home.map(|home| home.join("bin")).into_iter();
    homes
        .chain(path.map(std::env::split_paths).into_iter().flatten())
        .map(|dir| dir.join("spark-submit"))
        .find(|found| usable(found))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn spark_home_comes_before_the_path_and_we_are_never_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let bin = dir.path().join(name).join("bin");
            std::fs::create_dir_all(&bin).expect("made");
            let file = bin.join("spark-submit");
            std::fs::write(&file, "#!/bin/sh\n").expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("allowed");
            file
        };
        let (home, other) = (make("home"), make("other"));
        let path = std::env::join_paths([dir.path().join("none"), dir.path().join("other/bin")]).expect("a path");
        assert_eq!(find(Some(dir.path().join("home")), Some(&path)), Some(home));
        assert_eq!(find(None, Some(&path)), Some(other.clone()));
        std::fs::remove_file(&other).expect("removed");
        std::os::unix::fs::symlink(std::env::current_exe().expect("us"), &other).expect("linked");
        assert_eq!(find(None, Some(&path)), None);
    }
}
