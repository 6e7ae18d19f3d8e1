//! An image's base system from Debian or Ubuntu packages: shell, core programs, Python, Java, certificates.
//!
//! This machine's `apt-get` resolves and downloads the packages with the machine's sources, proxies and keys, but with separate
//! state, so that it neither needs root nor touches installed packages. Packages are unpacked directly into the layer. Maintainer
//! scripts do not run; what Spark needs of their results is created here: users, the certificate bundle and Java's copy of it,
//! and the package list that image scanners read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::layer::{Layer, Owner};
use super::truststore;
use crate::names::{JAVA_HOME, SPARK_HOME, SPARK_UID};
use crate::runtime::java::run;
use crate::runtime::{OnProgress, Progress, RuntimeError};

/// What an image needs besides Java; apt adds the dependencies.
const PACKAGES: [&str; 19] = [
    "usr-is-merged",
    "base-files",
    "base-passwd",
    "libc-bin",
    "dash",
    "bash",
    "coreutils",
    "debianutils",
    "findutils",
    "grep",
    "gzip",
    "mawk",
    "procps",
    "sed",
    "tar",
    "tini",
    "tzdata",
    "ca-certificates",
    "python3",
];
/// The oldest version that Spark supports comes first, as for Java on this machine.
const JAVA: [&str; 3] = ["openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless"];
/// Useless in a container. Copyright notices are kept.
const LEFT_OUT: [&str; 6] = [
    "usr/share/man/",
    "usr/share/info/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "usr/share/doc-base/",
];
const CERTIFICATES: &str = "usr/share/ca-certificates/";
/// How long package lists are considered current.
const LISTS_AGE: Duration = Duration::from_secs(24 * 3600);
const ROOT: Owner = Owner::Of(0, 0);

/// Downloaded packages.
#[derive(Debug)]
pub(super) struct Packages {
    files: Vec<PathBuf>,
}

/// The OCI name of this machine's architecture.
pub(super) fn oci_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// Resolves and downloads the packages; earlier downloads are reused.
pub(super) fn fetch(dir: &Path, progress: &OnProgress) -> Result<Packages, RuntimeError> {
    let tell = |what: &str| progress(&Progress { what: what.to_owned(), done: 0, total: None });
    let missing = |program: &str| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    };
    if missing("apt-get") || missing("dpkg-deb") {
        return Err(RuntimeError::Provision(
            "the base system of an image is made of Debian packages, and this machine has no apt-get and dpkg-deb; \
             name a root file system with Java instead: --base DIR"
                .to_owned(),
        ));
    }
    for part in ["lists/partial", "archives/partial"] {
        let path = dir.join(part);
        fs::create_dir_all(&path).map_err(|e| RuntimeError::file(&path, e))?;
    }
    // Nothing counts as installed.
    let status = dir.join("status");
    fs::write(&status, "").map_err(|e| RuntimeError::file(&status, e))?;
    let stamp = dir.join("updated");
    if !is_recent(&stamp) {
        tell("fetching the lists of Debian packages");
        run(apt(dir).arg("update"))?;
        fs::write(&stamp, "").map_err(|e| RuntimeError::file(&stamp, e))?;
    }
    tell("fetching Debian packages");
    let names = install_lines(dir)?;
    run(apt(dir).args(["--download-only", "install"]).args(PACKAGES).arg(names.java))?;
    let mut files = Vec::new();
    for name in names.files {
        let path = dir.join("archives").join(&name);
        if !path.is_file() {
            return Err(RuntimeError::Provision(format!("apt-get did not fetch {name}")));
        }
        files.push(path);
    }
    files.sort();
    Ok(Packages { files })
}

struct Wanted {
    java: &'static str,
    /// apt's file name for a package.
    files: Vec<String>,
}

/// Asks apt which packages it would install, with the first Java available.
fn install_lines(dir: &Path) -> Result<Wanted, RuntimeError> {
    let mut last = None;
    for java in JAVA {
        // With an empty archive directory, or apt would omit downloaded packages.
        let none = dir.join("none");
        fs::create_dir_all(none.join("partial")).map_err(|e| RuntimeError::file(&none, e))?;
        let mut command = apt(dir);
        command.arg("-o").arg(format!("Dir::Cache::archives={}", none.display()));
        match run(command.args(["--print-uris", "install"]).args(PACKAGES).arg(java)) {
            Ok(said) => {
                let file =
                    |line: &str| line.starts_with('\'').then(|| line.split_whitespace().nth(1).map(str::to_owned))?;
                return Ok(Wanted { java, files: said.lines().filter_map(file).collect() });
            }
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.unwrap_or_else(|| RuntimeError::Provision("there is no Java package".to_owned())))
}

/// `apt-get` with separate state below `dir` and this machine's sources.
fn apt(dir: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-y"]).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let at = |part: &str| dir.join(part).display().to_string();
    let options = [
        ("Dir::State", at("")),
        ("Dir::State::lists", at("lists")),
        ("Dir::State::status", at("status")),
        ("Dir::Cache", at("")),
        ("Dir::Cache::archives", at("archives")),
        ("Debug::NoLocking", "1".to_owned()),
        ("APT::Sandbox::User", "root".to_owned()),
        ("APT::Install-Recommends", "0".to_owned()),
        ("APT::Install-Suggests", "0".to_owned()),
        ("APT::Keep-Downloaded-Packages", "1".to_owned()),
    ];
    for (key, value) in options {
        command.arg("-o").arg(format!("{key}={value}"));
    }
    command
}

fn is_recent(stamp: &Path) -> bool {
    let age = fs::metadata(stamp).and_then(|m| m.modified()).map(|at| SystemTime::now().duration_since(at));
    matches!(age, Ok(Ok(age)) if age < LISTS_AGE)
}

/// What is collected from the packages while unpacking.
#[derive(Default)]
struct Noted {
    /// By path.
    certificates: BTreeMap<String, String>,
    users: Option<String>,
    groups: Option<String>,
    java: Option<String>,
    records: Vec<String>,
}

impl Packages {
    /// Adds all packages to a layer, and what their installation would have created.
    pub(super) fn pack(&self, out: &mut Layer<'_>, progress: &OnProgress) -> Result<(), RuntimeError> {
        let total: u64 = self.files.iter().filter_map(|f| fs::metadata(f).ok()).map(|m| m.len()).sum();
        let mut done = 0;
        let mut noted = Noted::default();
        out.merged_usr()?;
        out.directory("run", 0o755, ROOT)?;
        out.directory("run/lock", 0o1777, ROOT)?;
        out.directory("var", 0o755, ROOT)?;
        out.link("var/run", "/run")?;
        out.link("var/lock", "/run/lock")?;
        for file in &self.files {
            progress(&Progress { what: "packing the base system".to_owned(), done, total: Some(total) });
            unpack(file, out, &mut noted)?;
            done += fs::metadata(file).map_or(0, |m| m.len());
        }
        finish(out, noted)
    }
}

fn unpack(package: &Path, out: &mut Layer<'_>, noted: &mut Noted) -> Result<(), RuntimeError> {
    let damaged = |e: &dyn std::fmt::Display| RuntimeError::Provision(format!("unpacking {}: {e}", package.display()));
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| damaged(&e))?;
    let stream = child.stdout.take().ok_or_else(|| damaged(&"no output"))?;
    let mut archive = tar::Archive::new(std::io::BufReader::with_capacity(1 << 18, stream));
    for entry in archive.entries().map_err(|e| damaged(&e))? {
        let mut entry = entry.map_err(|e| damaged(&e))?;
        let path = entry.path().map_err(|e| damaged(&e))?.to_string_lossy().trim_start_matches("./").to_owned();
        if is_left_out(&path) {
            continue;
        }
        let link = entry.link_name().map_err(|e| damaged(&e))?.map(|l| l.to_string_lossy().into_owned());
        let header = entry.header().clone();
        let text = |entry: &mut dyn std::io::Read| {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map(|_| bytes)
        };
        if header.entry_type().is_file() && is_noted(&path) {
            let bytes = text(&mut entry).map_err(|e| damaged(&e))?;
            let words = String::from_utf8_lossy(&bytes).into_owned();
            match path.as_str() {
                "usr/share/base-passwd/passwd.master" => noted.users = Some(words),
                "usr/share/base-passwd/group.master" => noted.groups = Some(words),
                _ => {
                    noted.certificates.insert(path.clone(), words);
                }
            }
            out.entry(&path, &header, None, &mut &bytes[..])?;
            continue;
        }
        if path.starts_with("usr/lib/jvm/") && path.ends_with("/bin/java") {
            noted.java = path.strip_suffix("/bin/java").map(str::to_owned);
        }
        out.entry(&path, &header, link.as_deref(), &mut entry)?;
    }
    // Read the stream to its end, or the writer gets SIGPIPE.
    let mut rest = archive.into_inner();
    let _ = std::io::copy(&mut rest.by_ref(), &mut std::io::sink());
    drop(rest);
    let status = child.wait().map_err(|e| damaged(&e))?;
    if !status.success() {
        return Err(damaged(&format_args!("dpkg-deb ended with {status}")));
    }
    let control = run(Command::new("dpkg-deb").arg("--field").arg(package))?;
    noted.records.push(record(&control));
    Ok(())
}

fn is_left_out(path: &str) -> bool {
    let documentation = path.starts_with("usr/share/doc/") && !path.ends_with('/') && !path.ends_with("/copyright");
    documentation || LEFT_OUT.iter().any(|prefix| path.starts_with(prefix))
}

fn is_noted(path: &str) -> bool {
    path.starts_with("usr/share/base-passwd/") || (path.starts_with(CERTIFICATES) && path.ends_with(".crt"))
}

/// A package's control file as an entry in the list of installed packages.
fn record(control: &str) -> String {
    let mut lines = control.trim_end().lines();
    let first = lines.next().unwrap_or_default();
    let rest: Vec<&str> = lines.collect();
    format!("{first}\nStatus: install ok installed\n{}\n\n", rest.join("\n"))
}

fn finish(out: &mut Layer<'_>, noted: Noted) -> Result<(), RuntimeError> {
    let with =
        |given: Option<String>, otherwise: &str, line: String| given.unwrap_or_else(|| otherwise.to_owned()) + &line;
    let users = with(
        noted.users,
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        format!("spark:x:{SPARK_UID}:{SPARK_UID}:spark:{SPARK_HOME}:/bin/bash\n"),
    );
    // The templates have `*` as the password; nobody logs in to a container.
    let users = users.replace(":*:", ":x:");
    let groups =
        with(noted.groups, "root:x:0:\nnogroup:x:65534:\n", format!("spark:x:{SPARK_UID}:\n")).replace(":*:", ":x:");
    out.file("etc/passwd", 0o644, ROOT, users.as_bytes())?;
    out.file("etc/group", 0o644, ROOT, groups.as_bytes())?;
    out.file("etc/nsswitch.conf", 0o644, ROOT, b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n")?;
    out.file("var/lib/dpkg/status", 0o644, ROOT, noted.records.concat().as_bytes())?;
    let certificates: Vec<(String, String)> = noted.certificates.into_iter().collect();
    let bundle: String = certificates.iter().map(|(_, pem)| format!("{}\n", pem.trim_end())).collect();
    out.file("etc/ssl/certs/ca-certificates.crt", 0o644, ROOT, bundle.as_bytes())?;
    out.file("etc/ssl/certs/java/cacerts", 0o644, ROOT, &truststore::from_pem(&certificates))?;
    // Where OpenSSL looks for the bundle.
    out.link("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")?;
    for (name, program) in [("awk", "mawk"), ("which", "which.debianutils")] {
        if out.has(&format!("usr/bin/{program}")) {
            out.link(&format!("usr/bin/{name}"), program)?;
        }
    }
    let java = noted.java.ok_or_else(|| RuntimeError::Provision("the Debian packages hold no Java".to_owned()))?;
    out.link(JAVA_HOME, &format!("/{java}"))?;
    out.link("usr/bin/java", &format!("{JAVA_HOME}/bin/java"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_becomes_an_entry_of_the_list_of_packages() {
        let record = record("Package: bash\nVersion: 5.2\nDescription: a shell\n that is long\n");
        assert_eq!(
            record,
            "Package: bash\nStatus: install ok installed\nVersion: 5.2\nDescription: a shell\n that is long\n\n"
        );
    }

    #[test]
    fn documentation_stays_out_and_copyright_stays_in() {
        assert!(is_left_out("usr/share/man/man1/bash.1.gz"));
        assert!(is_left_out("usr/share/doc/bash/README"));
        assert!(!is_left_out("usr/share/doc/bash/copyright"));
        assert!(!is_left_out("usr/bin/bash"));
    }
}
