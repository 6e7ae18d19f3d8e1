//! Spark from its Python package, which includes Spark's jars and the Kubernetes module.
//!
//! The package comes from the index `pip` is configured for, its hash is verified, and interrupted downloads resume. Indexes or
//! settings that our script does not support are left to `pip`. A downloaded package is kept until the runtime is complete, so
//! that interrupted provisioning resumes, too. If `testenv/pyspark` has installed a release in the cache, its files are linked and
//! nothing is downloaded.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::runtime::{OnProgress, Progress, RuntimeError, make_once};

/// Where images have the examples, whatever their version.
const EXAMPLES: &str = "examples/jars/spark-examples.jar";
const EXAMPLES_JAR: &[u8] = include_bytes!("../../runtime/examples/spark-examples.jar");
const PI: &str = include_str!("../../runtime/examples/pi.py");
const FETCH: &str = include_str!("../../runtime/fetch.py");
/// The script's exit code for leaving the work to pip.
const FOR_PIP: i32 = 3;
const TICK: Duration = Duration::from_millis(300);

/// The directory of a Spark version, laid out like a distribution.
pub(crate) fn find_or_provision(
    runtimes: &Path,
    version: &str,
    progress: &OnProgress,
) -> Result<PathBuf, RuntimeError> {
    let target = runtimes.join(format!("spark-{version}"));
    make_once(&target, |partial| {
        if let Some(installed) = installed(runtimes, version) {
            progress(&Progress { what: format!("linking Spark {version}"), done: 0, total: None });
            link(&installed, &installed, partial)?;
            complete(partial, version)?;
            return add_examples(partial, version);
        }
        let downloads = runtimes.join(format!(".spark-{version}.download"));
        let package = download(&downloads, version, progress)?;
        if let Err(error) = unpack(&package, partial, version, progress) {
            // A package that cannot be unpacked is downloaded again next time, unless the disk is full.
            if matches!(error, RuntimeError::Provision(_)) {
                let _ = fs::remove_dir_all(&downloads);
            }
            return Err(error);
        }
        add_examples(partial, version)?;
        fs::remove_dir_all(&downloads).map_err(|e| RuntimeError::file(&downloads, e))
    })?;
    // A runtime made by an earlier release has that release's examples.
    if fs::read(target.join(EXAMPLES)).is_ok_and(|jar| jar != EXAMPLES_JAR)
        && let Err(error) = add_examples(&target, version)
    {
        tracing::warn!(%error, "could not update the examples of Spark {version}");
    }
    Ok(target)
}

/// Whether a version is available without downloading.
pub(crate) fn is_here(runtimes: &Path, version: &str) -> bool {
    runtimes.join(format!("spark-{version}")).is_dir() || installed(runtimes, version).is_some()
}

/// The package as installed by `testenv/pyspark` next to the runtimes: it has this name only once complete.
fn installed(runtimes: &Path, version: &str) -> Option<PathBuf> {
    let home = runtimes.parent()?.join("pyspark").join(version).join("pyspark");
    home.join("bin/spark-submit").is_file().then_some(home)
}

/// Lays out an installed package like a Spark distribution, with hard links or copies.
fn link(package: &Path, dir: &Path, target: &Path) -> Result<(), RuntimeError> {
    for entry in fs::read_dir(dir).map_err(|e| RuntimeError::file(dir, e))? {
        let from = entry.map_err(|e| RuntimeError::file(dir, e))?.path();
        if from.is_dir() {
            link(package, &from, target)?;
            continue;
        }
        let Some(place) = from.strip_prefix(package).ok().and_then(place_of_installed) else { continue };
        let place = target.join(place);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(|e| RuntimeError::file(parent, e))?;
        }
        // Another file system, or files of another user.
        if fs::hard_link(&from, &place).is_err() {
            fs::copy(&from, &place).map_err(|e| RuntimeError::file(&place, e))?;
        }
    }
    Ok(())
}

fn download(dir: &Path, version: &str, progress: &OnProgress) -> Result<PathBuf, RuntimeError> {
    download_from(None, dir, version, progress)
}

/// The same, from a given index.
fn download_from(
    index: Option<&str>,
    dir: &Path,
    version: &str,
    progress: &OnProgress,
) -> Result<PathBuf, RuntimeError> {
    if let Some(package) = package_in(dir) {
        return Ok(package);
    }
    let python = find_pip()?;
    fs::create_dir_all(dir).map_err(|e| RuntimeError::file(dir, e))?;
    let mut fetch = Command::new(python);
    fetch.args(["-c", FETCH, version]).arg(dir).envs(index.map(|url| ("PIP_INDEX_URL", url)));
    let (status, said) = follow(&mut fetch, dir, version, progress)?;
    let (status, said) = if status.code() == Some(FOR_PIP) {
        tracing::debug!("leaving the download of pyspark {version} to pip: {}", said.trim());
        let _ = fs::remove_dir_all(dir);
        let temporary = dir.join("tmp");
        fs::create_dir_all(&temporary).map_err(|e| RuntimeError::file(&temporary, e))?;
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]);
        pip.args(["--progress-bar", "off", "--dest"]).arg(dir).arg(format!("pyspark=={version}"));
        pip.env("TMPDIR", &temporary).envs(index.map(|url| ("PIP_INDEX_URL", url)));
        follow(&mut pip, dir, version, progress)?
    } else {
        (status, said)
    };
    if !status.success() {
        return Err(RuntimeError::Provision(explain(version, &said)));
    }
    package_in(dir).ok_or_else(|| RuntimeError::Provision(format!("no package of pyspark {version} was downloaded")))
}

/// Runs a downloader and reports its progress. Returns its exit status and output.
fn follow(
    command: &mut Command,
    dir: &Path,
    version: &str,
    progress: &OnProgress,
) -> Result<(ExitStatus, String), RuntimeError> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| RuntimeError::Provision(format!("starting Python: {e}")))?;
    let said = Arc::new(Mutex::new(String::new()));
    let total = Arc::new(AtomicU64::new(0));
    let readers =
        [child.stdout.take().map(|s| listen(s, &said, &total)), child.stderr.take().map(|s| listen(s, &said, &total))];
    let status = loop {
        let ended = child.try_wait().map_err(|e| RuntimeError::Provision(format!("waiting for Python: {e}")))?;
        if let Some(status) = ended {
            break status;
        }
        let total = Some(total.load(Ordering::Relaxed)).filter(|t| *t > 0);
        let done = size_below(dir);
        progress(&Progress {
            what: format!("downloading Spark {version}"),
            done: total.map_or(done, |t| done.min(t)),
            total,
        });
        std::thread::sleep(TICK);
    };
    for reader in readers.into_iter().flatten() {
        let _ = reader.join();
    }
    let said = said.lock().map(|s| s.clone()).unwrap_or_default();
    Ok((status, said))
}

fn explain(version: &str, said: &str) -> String {
    if said.contains("No matching distribution found") {
        return format!("there is no Spark {version}: the Python package index has no pyspark=={version}");
    }
    let reason = said
        .lines()
        .rev()
        .find(|l| l.trim_start().starts_with("ERROR"))
        .or_else(|| said.lines().last())
        .unwrap_or("no message");
    let reason = reason.trim();
    format!("downloading pyspark=={version} failed: {}", reason.strip_prefix("ERROR: ").unwrap_or(reason))
}

/// A package under its final name is complete and verified.
fn package_in(dir: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(dir).ok()?.flatten().map(|e| e.path());
    files.into_iter().find(|p| p.is_file() && p.file_name().is_some_and(|n| n.to_string_lossy().ends_with(".tar.gz")))
}

pub(super) fn find_pip() -> Result<&'static str, RuntimeError> {
    let works = |python: &&str| {
        Command::new(python)
            .args(["-m", "pip", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    ["python3", "/usr/bin/python3", "python"].into_iter().find(works).ok_or_else(|| {
        RuntimeError::Provision("Spark comes from its Python package and neither python3 nor pip was found; install them, for example with: apt-get install python3-pip".to_owned())
    })
}

fn listen(
    source: impl Read + Send + 'static,
    said: &Arc<Mutex<String>>,
    total: &Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    let (said, total) = (Arc::clone(said), Arc::clone(total));
    std::thread::spawn(move || {
        for line in io::BufRead::lines(io::BufReader::new(source)).map_while(Result::ok) {
            if let Some(bytes) = announced_size(&line) {
                total.store(bytes, Ordering::Relaxed);
            }
            if let Ok(mut said) = said.lock() {
                said.push_str(&line);
                said.push('\n');
            }
        }
    })
}

/// `Downloading pyspark-4.1.4.tar.gz (455.6 MB)` → bytes.
fn announced_size(line: &str) -> Option<u64> {
    let rest = line.trim().strip_prefix("Downloading ")?.rsplit_once('(')?.1.strip_suffix(')')?;
    let (number, unit) = rest.split_once(' ')?;
    let factor = match unit {
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((number * factor) as u64)
}

fn size_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { size_below(&e.path()) } else { e.metadata().map_or(0, |m| m.len()) }).sum()
}

struct Counted<R> {
    inner: R,
    seen: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.seen.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

fn unpack(package: &Path, target: &Path, version: &str, progress: &OnProgress) -> Result<(), RuntimeError> {
    let damaged = |e: io::Error| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RuntimeError::file(target, e),
        _ => RuntimeError::Provision(format!("unpacking {}: {e}; it will be fetched again", package.display())),
    };
    let file = File::open(package).map_err(|e| RuntimeError::file(package, e))?;
    let total = file.metadata().ok().map(|m| m.len());
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Counted { inner: file, seen: Arc::clone(&seen) };
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(io::BufReader::with_capacity(1 << 20, counted)));
    let mut told = 0;
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some(place) = place_of(&path) else { continue };
        let place = target.join(place);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(|e| RuntimeError::file(parent, e))?;
        }
        entry.unpack(&place).map_err(damaged)?;
        let done = seen.load(Ordering::Relaxed);
        if done - told > 4 << 20 {
            told = done;
            progress(&Progress { what: format!("unpacking Spark {version}"), done, total });
        }
    }
    complete(target, version)
}

/// Checks that a directory is a Spark, and makes its programs executable.
fn complete(target: &Path, version: &str) -> Result<(), RuntimeError> {
    for needed in ["bin/spark-submit", "jars", "python/pyspark/__init__.py"] {
        if !target.join(needed).exists() {
            return Err(RuntimeError::Provision(format!("the package of Spark {version} contains no {needed}")));
        }
    }
    // Programs must be executable, whatever the archive says.
    for dir in ["bin", "sbin"] {
        for entry in fs::read_dir(target.join(dir)).into_iter().flatten().flatten() {
            use std::os::unix::fs::PermissionsExt as _;
            let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755));
        }
    }
    Ok(())
}

/// Where a file of the package belongs in a Spark directory; `None` if it is not needed.
fn place_of(path: &Path) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    let place = |prefix: &str, rest: &[&str]| Some(Path::new(prefix).join(rest.join("/")));
    match parts.get(1..)? {
        ["deps", "examples", rest @ ..] => place("examples/src/main/python", rest),
        ["deps", "jars", "spark-connect-client" | "connect-repl", ..] => None,
        ["deps", rest @ ..] if rest.last().is_some_and(|n| n.ends_with(".cmd")) => None,
        ["deps", rest @ ..] => place("", rest),
        ["pyspark", rest @ ..] => place("python/pyspark", rest),
        ["lib", rest @ ..] => place("python/lib", rest),
        [name @ ("LICENSE" | "NOTICE" | "README.md")] => place("", &[name]),
        _ => None,
    }
}

/// The same for an installed package, where the distribution is mixed with Python modules.
fn place_of_installed(path: &Path) -> Option<PathBuf> {
    let parts: Option<Vec<&str>> = path.components().map(|c| c.as_os_str().to_str()).collect();
    let parts = parts?;
    if parts.contains(&"__pycache__") || parts.last()?.ends_with(".cmd") {
        return None;
    }
    match parts.as_slice() {
        ["jars", "spark-connect-client" | "connect-repl", ..] => None,
        ["bin" | "sbin" | "jars" | "data" | "examples" | "licenses", ..] | ["python", "lib", ..] => {
            Some(path.to_owned())
        }
        ["python", ..] => None,
        _ => Some(Path::new("python/pyspark").join(path)),
    }
}

/// The common examples: our own where the package has none.
fn add_examples(home: &Path, version: &str) -> Result<(), RuntimeError> {
    // Rename into place: a pod may be reading the old file.
    let put = |path: PathBuf, content: &[u8]| {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| RuntimeError::file(parent, e))?;
        }
        let partial = path.with_extension(format!("partial-{}", std::process::id()));
        fs::write(&partial, content).map_err(|e| RuntimeError::file(&partial, e))?;
        fs::rename(&partial, &path).map_err(|e| RuntimeError::file(&path, e))
    };
    let scala = scala_version(home);
    put(home.join(format!("examples/jars/spark-examples_{scala}-{version}.jar")), EXAMPLES_JAR)?;
    let pi = home.join("examples/src/main/python/pi.py");
    if !pi.exists() {
        put(pi, PI.as_bytes())?;
    }
    put(home.join("RELEASE"), format!("Spark {version} (from the Python package)\n").as_bytes())?;
    // Last, because its content marks the set as complete.
    put(home.join(EXAMPLES), EXAMPLES_JAR)
}

/// The Scala version from the name of Spark's core jar: `spark-core_2.13-4.1.4.jar` → `2.13`.
fn scala_version(home: &Path) -> String {
    let jars = fs::read_dir(home.join("jars")).into_iter().flatten().flatten();
    let names = jars.filter_map(|e| e.file_name().into_string().ok());
    names
        .into_iter()
        .find_map(|n| Some(n.strip_prefix("spark-core_")?.split('-').next()?.to_owned()))
        .unwrap_or_else(|| "2.13".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "9.9.9";

    /// A package with a minimal Spark, where pip would have put it.
    fn arrived(runtimes: &Path) -> PathBuf {
        let dir = runtimes.join(format!(".spark-{VERSION}.download"));
        fs::create_dir_all(&dir).expect("a directory");
        let package = dir.join(format!("pyspark-{VERSION}.tar.gz"));
        let out = flate2::write::GzEncoder::new(File::create(&package).expect("a file"), flate2::Compression::fast());
        let mut tar = tar::Builder::new(out);
        for name in ["deps/bin/spark-submit", "deps/jars/spark-core_2.13-9.9.9.jar", "pyspark/__init__.py", "setup.py"]
        {
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("pyspark-{VERSION}/{name}"), &b"x"[..]).expect("an entry");
        }
        tar.into_inner().expect("tar").finish().expect("gzip");
        package
    }

    fn silent() -> OnProgress {
        Arc::new(|_| {})
    }

    #[test]
    fn what_was_fetched_before_an_interruption_is_used_and_two_that_start_at_once_share_the_work() {
        let dir = tempfile::tempdir().expect("temporary directory");
        arrived(dir.path());
        // What the interrupted run had unpacked.
        let partial = dir.path().join(format!(".spark-{VERSION}.partial"));
        fs::create_dir_all(&partial).expect("a directory");
        fs::write(partial.join("half"), "").expect("a file");
        let both = std::thread::scope(|scope| {
            let provision = || find_or_provision(dir.path(), VERSION, &silent()).expect("a runtime");
            let two = [scope.spawn(provision), scope.spawn(provision)];
            two.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(both[0], both[1]);
        assert!(both[0].join("bin/spark-submit").exists() && !both[0].join("half").exists());
        assert!(both[0].join("examples/jars/spark-examples_2.13-9.9.9.jar").exists(), "with our example");
        for jar in [EXAMPLES, "examples/jars/spark-examples_2.13-9.9.9.jar"] {
            fs::write(both[0].join(jar), "of an earlier release").unwrap();
        }
        find_or_provision(both[0].parent().unwrap(), "9.9.9", &silent()).unwrap();
        for jar in [EXAMPLES, "examples/jars/spark-examples_2.13-9.9.9.jar"] {
            assert_eq!(fs::read(both[0].join(jar)).unwrap(), EXAMPLES_JAR, "{jar} is brought up to date");
        }
        let left =
            fs::read_dir(dir.path()).expect("runtimes").flatten().map(|e| e.file_name().into_string().expect("text"));
        let left: Vec<String> = left.filter(|n| !n.ends_with(".lock")).collect();
        assert_eq!(left, [format!("spark-{VERSION}")], "neither the package nor a part is left");
    }

    /// A package index with one file that drops every connection after this many bytes. Returns its address and the requests it got.
    fn index(file: Vec<u8>, digest: String, cut: usize) -> (String, Arc<Mutex<Vec<String>>>) {
        use std::io::Write as _;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = Vec::new();
                for line in io::BufRead::lines(io::BufReader::new(&stream)).map_while(Result::ok) {
                    if line.is_empty() {
                        break;
                    }
                    lines.push(line);
                }
                let mut out = &stream;
                if lines.first().is_some_and(|l| l.starts_with("GET /simple/pyspark/ ")) {
                    let name = format!("pyspark-{VERSION}.tar.gz");
                    let body = format!("<!DOCTYPE html><a href=\"../../files/{name}#sha256={digest}\">{name}</a>");
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", body.len());
                    let _ = out.write_all((head + &body).as_bytes());
                    continue;
                }
                let range = lines.iter().find_map(|l| l.strip_prefix("Range: bytes=")?.strip_suffix('-')?.parse().ok());
                heard.lock().expect("a list").push(format!("from {}", range.unwrap_or(0)));
                let rest = &file[range.unwrap_or(0)..];
                let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
                let _ = write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len());
                let _ = out.write_all(&rest[..rest.len().min(cut)]);
            }
        });
        (address + "/simple", asked)
    }

    fn sha256(bytes: &[u8]) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn a_fetch_that_was_interrupted_goes_on_where_it_ended() {
        let file: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let (index, asked) = index(file.clone(), sha256(&file), 150_000);
        let dir = tempfile::tempdir().expect("temporary directory");
        // A partial download from a killed process.
        fs::write(dir.path().join(format!("pyspark-{VERSION}.tar.gz.part")), &file[..40_000]).expect("a part");
        let package = download_from(Some(&index), dir.path(), VERSION, &silent()).expect("a package");
        assert!(fs::read(package).expect("bytes") == file, "it is whole");
        assert_eq!(*asked.lock().expect("a list"), ["from 40000", "from 190000", "from 340000"]);
        let left = fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(left, 1, "no part is left");
    }

    #[test]
    fn a_package_with_another_hash_is_said_and_thrown_away() {
        let file = b"something else".to_vec();
        let (index, _) = index(file.clone(), sha256(b"what it should be"), file.len());
        let dir = tempfile::tempdir().expect("temporary directory");
        let error = download_from(Some(&index), dir.path(), VERSION, &silent()).expect_err("another hash").to_string();
        let wanted = "downloading pyspark==9.9.9 failed: pyspark-9.9.9.tar.gz is not what the index says it is";
        assert!(error.starts_with(wanted), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 0, "nothing is left");
    }

    #[test]
    fn a_damaged_package_is_said_and_not_used_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let package = arrived(dir.path());
        let bytes = fs::read(&package).expect("bytes");
        fs::write(&package, &bytes[..bytes.len() / 2]).expect("a part of it");
        let error = find_or_provision(dir.path(), VERSION, &silent()).expect_err("damaged").to_string();
        assert!(error.contains("pyspark-9.9.9.tar.gz") && error.contains("it will be fetched again"), "{error}");
        assert!(!package.exists(), "it is gone");
        assert!(!dir.path().join(format!("spark-{VERSION}")).exists(), "nothing half done");
        // The next attempt starts fresh.
        arrived(dir.path());
        find_or_provision(dir.path(), VERSION, &silent()).expect("a runtime");
    }

    /// A release as `testenv/pyspark` leaves it in the cache.
    fn installed_package(cache: &Path) -> PathBuf {
        let home = cache.join("pyspark").join(VERSION).join("pyspark");
        for name in [
            "__init__.py",
            "sql/functions.py",
            "bin/spark-submit",
            "bin/spark-submit.cmd",
            "jars/spark-core_2.12-9.9.9.jar",
            "python/lib/py4j.zip",
            "sql/__pycache__/functions.pyc",
        ] {
            let path = home.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, name).expect("a file");
        }
        home
    }

    #[test]
    fn a_release_that_testenv_has_installed_is_linked_and_nothing_is_fetched() {
        use std::os::unix::fs::MetadataExt as _;
        let cache = tempfile::tempdir().expect("temporary directory");
        let runtimes = cache.path().join("runtimes");
        fs::create_dir(&runtimes).expect("a directory");
        assert!(!is_here(&runtimes, VERSION));
        let package = installed_package(cache.path());
        assert!(is_here(&runtimes, VERSION), "also for a pod that must not pull");
        // No such version exists, so asking an index for it would fail.
        let home = find_or_provision(&runtimes, VERSION, &silent()).expect("a runtime");
        let inode = |path: PathBuf| fs::metadata(path).expect("a file").ino();
        let jar = "jars/spark-core_2.12-9.9.9.jar";
        assert_eq!(inode(home.join(jar)), inode(package.join(jar)), "the same file, not a copy");
        for there in ["python/pyspark/sql/functions.py", "python/lib/py4j.zip", "RELEASE"] {
            assert!(home.join(there).is_file(), "{there}");
        }
        assert!(home.join("examples/jars/spark-examples_2.12-9.9.9.jar").is_file(), "with our example");
        assert!(!home.join("bin/spark-submit.cmd").exists() && !home.join("python/pyspark/sql/__pycache__").exists());
    }

    fn testenv_pyspark(cache: &Path) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv/pyspark"));
        command.arg(VERSION).env("FIRESTEEL_CACHE", cache).stdout(Stdio::piped());
        command
    }

    #[test]
    fn testenv_takes_the_release_of_run_and_waits_for_one_that_is_being_made() {
        let cache = tempfile::tempdir().expect("temporary directory");
        let runtimes = cache.path().join("runtimes");
        fs::create_dir(&runtimes).expect("a directory");
        let mut waiting = None;
        make_once(&runtimes.join(format!("spark-{VERSION}")), |partial| {
            waiting = Some(testenv_pyspark(cache.path()).spawn().expect("it starts"));
            std::thread::sleep(Duration::from_millis(300));
            fs::create_dir(partial.join("bin")).expect("a directory");
            let program = partial.join("bin/spark-submit");
            fs::write(&program, "").expect("a file");
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(|e| RuntimeError::file(partial, e))
        })
        .expect("a runtime");
        let wanted = format!("{}\n", runtimes.join(format!("spark-{VERSION}")).display());
        for child in [waiting.expect("a child"), testenv_pyspark(cache.path()).spawn().expect("it starts")] {
            let said = child.wait_with_output().expect("its end");
            assert!(said.status.success(), "{said:?}");
            assert_eq!(String::from_utf8_lossy(&said.stdout), wanted);
        }
        assert!(!cache.path().join("pyspark").join(VERSION).exists(), "nothing was installed a second time");
    }

    #[test]
    fn files_of_the_package_land_where_a_distribution_has_them() {
        let place = |p: &str| place_of(Path::new(p)).map(|p| p.display().to_string());
        assert_eq!(place("pyspark-4.1.4/deps/jars/a.jar").as_deref(), Some("jars/a.jar"));
        assert_eq!(place("pyspark-4.1.4/deps/examples/pi.py").as_deref(), Some("examples/src/main/python/pi.py"));
        assert_eq!(place("pyspark-4.1.4/pyspark/sql/x.py").as_deref(), Some("python/pyspark/sql/x.py"));
        assert_eq!(place("pyspark-4.1.4/lib/pyspark.zip").as_deref(), Some("python/lib/pyspark.zip"));
        assert_eq!(place("pyspark-4.1.4/deps/bin/pyspark.cmd"), None);
        assert_eq!(place("pyspark-4.1.4/../../etc/passwd"), None);
        assert_eq!(place("pyspark-4.1.4/setup.py"), None);
    }

    #[test]
    fn the_size_pip_announces_is_understood() {
        assert_eq!(announced_size("  Downloading pyspark-4.1.4.tar.gz (455.6 MB)"), Some(455_600_000));
        assert_eq!(announced_size("Collecting pyspark==4.1.4"), None);
    }

    #[test]
    fn a_version_that_does_not_exist_is_said_so() {
        let said = "ERROR: Could not find a version\nERROR: No matching distribution found for pyspark==9.9.9\n";
        assert_eq!(explain("9.9.9", said), "there is no Spark 9.9.9: the Python package index has no pyspark==9.9.9");
    }
}
