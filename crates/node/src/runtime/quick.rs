//! Faster Spark starts: a class data sharing archive, created once per runtime and Java.
//!
//! A Spark driver loads 14000 classes before it does anything, which takes most of its startup time. The JVM can map them from an
//! archive if its class path starts with exactly the archive's jars at the same paths. So the archive is created in a pod's layout
//! (`/opt/spark`, `/opt/java/openjdk`), and the entry point puts Spark's jars first, one by one in the archive's order, unless that
//! could hide a configuration file. The JVM itself ignores an archive that does not match. All of this is optional: if anything
//! fails, Spark starts as usual, only slower. Creating an archive takes a minute of CPU, more than a few starts save, so it never
//! happens while somebody waits for a pod: `firesteel local image pull` does it, and `firesteel run` in the background of a
//! person's first run.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ring::digest::{Context, SHA256};

use crate::names::{JAVA_HOME, SPARK_HOME};
use crate::runtime::java::run;
use crate::runtime::{OnProgress, Progress, RuntimeError, make_once};
use crate::shim_protocol::Mount;

/// Where containers find the archive.
pub(crate) const PLACE: &str = "/opt/firesteel/quick";
/// Recorded by `runtime/classes/record`.
const CLASSES: &[u8] = include_bytes!("../../runtime/classes/classes.gz");
/// A pod's layout, as far as the archive needs it. The sources may be below /opt themselves, so they are opened first.
const LAYOUT: &str = r#"set -e
mount --bind "$SPARK" "$HELD/spark"
mount --bind "$JAVA" "$HELD/java"
mount -t tmpfs tmpfs /opt
mkdir -p /opt/spark /opt/java/openjdk
mount --bind "$HELD/spark" /opt/spark
mount --bind "$HELD/java" /opt/java/openjdk
exec /opt/java/openjdk/bin/java "$@""#;
/// Top-level names in the jars: a file of the same name in a configuration directory must come first.
const TOP_NAMES: &str = "import sys, zipfile\n\
    print('\\n'.join(sorted({n.split('/')[0] for j in sys.argv[1:] for n in zipfile.ZipFile(j).namelist()})))";

/// The mount of a runtime's archive, if there is one.
pub(super) fn find(runtimes: &Path, id: &str, java: &Path) -> Option<Mount> {
    let target = place(runtimes, id, java)?;
    target.join("classes.jsa").is_file().then(|| Mount {
        source: target,
        volume: None,
        target: PLACE.to_owned(),
        read_only: true,
    })
}

/// Creates a runtime's archive unless it exists: a minute of CPU, 200 MB.
pub(super) fn find_or_make(
    runtimes: &Path,
    id: &str,
    spark: &Path,
    java: &Path,
    progress: &OnProgress,
) -> Result<(), RuntimeError> {
    let none = || RuntimeError::Provision(format!("{} does not support class data sharing", java.display()));
    make_once(&place(runtimes, id, java).ok_or_else(none)?, |partial| {
        progress(&Progress { what: format!("preparing quick starts of {id}"), done: 0, total: None });
        make(partial, spark, java)
    })
}

fn place(runtimes: &Path, id: &str, java: &Path) -> Option<PathBuf> {
    Some(runtimes.join(format!("quick-{id}-{}", fingerprint(java)?)))
}

/// Archives are specific to a Java build.
fn fingerprint(java: &Path) -> Option<String> {
    let home = fs::canonicalize(java).ok()?;
    let library = fs::metadata(home.join("lib/server/libjvm.so")).ok()?;
    let mut digest = Context::new(&SHA256);
    digest.update(home.as_os_str().as_encoded_bytes());
    digest.update(format!("{} {}", library.size(), library.mtime()).as_bytes());
    digest.update(&fs::read(home.join("release")).unwrap_or_default());
    Some(digest.finish().as_ref()[..5].iter().map(|b| format!("{b:02x}")).collect())
}

fn make(dir: &Path, spark: &Path, java: &Path) -> Result<(), RuntimeError> {
    let file = |name: &str| dir.join(name);
    let write = |name: &str, text: &[u8]| fs::write(file(name), text).map_err(|e| RuntimeError::file(&file(name), e));
    let jars = jars(spark)?;
    let inside: Vec<String> = jars.iter().map(|name| format!("{SPARK_HOME}/jars/{name}")).collect();
    let class_path = inside.join(":");
    let mut names = String::new();
    let read = flate2::read::GzDecoder::new(CLASSES).read_to_string(&mut names);
    read.map_err(|e| RuntimeError::Provision(format!("the list of classes: {e}")))?;
    write("names", names.as_bytes())?;
    let outside: Vec<PathBuf> = jars.iter().map(|name| spark.join("jars").join(name)).collect();
    let top = run(Command::new(super::spark::find_pip()?).arg("-c").arg(TOP_NAMES).args(outside))?;
    write("top-names", top.as_bytes())?;
    let held = file("held");
    for part in ["spark", "java"] {
        fs::create_dir_all(held.join(part)).map_err(|e| RuntimeError::file(&held, e))?;
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["sh", "-c", LAYOUT, "sh", "-Xshare:dump", "-Xlog:all=off", "-Xlog:disable"]);
    command.arg(format!("-XX:SharedClassListFile={}", file("names").display()));
    command.arg(format!("-XX:SharedArchiveFile={}", file("classes.jsa").display()));
    command.args(["-cp", &class_path]);
    command.env("SPARK", spark).env("JAVA", java).env("HELD", &held).stdin(Stdio::null());
    // Do not inherit the caller's JVM options.
    command.env_remove("JAVA_TOOL_OPTIONS").env_remove("JDK_JAVA_OPTIONS").env_remove("_JAVA_OPTIONS");
    debug_assert_eq!(JAVA_HOME, "/opt/java/openjdk");
    run(&mut command)?;
    write("class-path", class_path.as_bytes())?;
    fs::remove_dir_all(&held).map_err(|e| RuntimeError::file(&held, e))?;
    fs::remove_file(file("names")).map_err(|e| RuntimeError::file(&file("names"), e))?;
    if !file("classes.jsa").is_file() {
        return Err(RuntimeError::Provision("java made no archive".to_owned()));
    }
    Ok(())
}

/// Spark's jars in the archive's order: the logging API first, where newer Spark releases put it.
fn jars(spark: &Path) -> Result<Vec<String>, RuntimeError> {
    let dir = spark.join("jars");
    let entries = fs::read_dir(&dir).map_err(|e| RuntimeError::file(&dir, e))?.flatten();
    let mut names: Vec<String> =
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.ends_with(".jar")).collect();
    names.sort_by_key(|name| (!name.starts_with("slf4j-api-"), name.clone()));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_list_holds_the_classes_of_drivers_and_executors() {
        let mut names = String::new();
        flate2::read::GzDecoder::new(CLASSES).read_to_string(&mut names).expect("gzip");
        for class in [
            "org/apache/spark/SparkContext",
            "org/apache/spark/scheduler/cluster/k8s/KubernetesClusterSchedulerBackend",
            "org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend",
            "org/apache/spark/sql/SparkSession",
            "java/lang/Object",
        ] {
            assert!(names.lines().any(|l| l == class), "{class}");
        }
        assert!(names.lines().count() > 10_000);
    }

    #[test]
    fn jars_are_in_one_order_with_the_logging_interface_first() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join("jars")).expect("jars");
        for name in ["b.jar", "a.jar", "slf4j-api-2.0.17.jar", "notes.txt"] {
            fs::write(dir.path().join("jars").join(name), "").expect("a jar");
        }
        assert_eq!(jars(dir.path()).expect("jars"), ["slf4j-api-2.0.17.jar", "a.jar", "b.jar"]);
    }
}
