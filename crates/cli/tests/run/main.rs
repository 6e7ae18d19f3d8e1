//! `firesteel local` and `firesteel run` from outside: real processes, real Spark, nothing left behind.
//!
//! The cases with Spark need its runtime, which is downloaded once into the cache. Where that is impossible they say that
//! they are skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const SPARK: &str = "apache/spark:4.1.4";

/// One data directory of its own, taken down at the end whatever happens.
struct Bed {
    directory: tempfile::TempDir,
    /// One cluster at a time: Spark is heavy.
    _turn: MutexGuard<'static, ()>,
}

impl Bed {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Bed { directory: tempfile::tempdir().expect("a directory"), _turn: turn }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel"));
        command.args(verb).arg("--data-dir").arg(self.data()).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, verb: &[&str], more: &[&str]) -> Said {
        let began = Instant::now();
        let output = self.command(verb).args(more).output().expect("firesteel runs");
        Said::from(&output, began)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.to_string_lossy().into_owned()
    }

    /// Processes that were started with a path in the data directory.
    fn processes(&self) -> Vec<String> {
        let root = self.data().to_string_lossy().into_owned();
        let own = std::process::id().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("proc").flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if pid != own && pid.chars().all(|c| c.is_ascii_digit()) && line.contains(&root) {
                found.push(format!("{pid}: {line}"));
            }
        }
        found
    }

    fn assert_nothing_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new(), "no process of the cluster is left");
        let status = self.run(&["local", "status"], &[]);
        assert_eq!(status.code, 1, "{status:?}");
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.command(&["local", "down"]).output();
    }
}

#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Said {
    fn from(output: &Output, began: Instant) -> Self {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: began.elapsed(),
        }
    }
}

/// Whether Spark can be had on this machine.
fn spark() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let pull = Command::new(env!("CARGO_BIN_EXE_firesteel")).args(["local", "image", "pull", SPARK]).output();
        let output = pull.expect("firesteel runs");
        if !output.status.success() {
            eprintln!("skipped: no Spark runtime: {}", String::from_utf8_lossy(&output.stderr));
        }
        output.status.success()
    })
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).to_string_lossy().into_owned()
}

#[test]
fn bad_input_is_said_before_anything_is_started() {
    let bed = Bed::new();
    let empty = bed.write("empty.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    let broken = bed.write("broken.yaml", "a: [");
    for (arguments, words) in [
        (vec!["nowhere.yaml"], "cannot read nowhere.yaml"),
        (vec![empty.as_str()], "nothing to run"),
        (vec![broken.as_str()], "is not YAML"),
        (vec!["--class"], "--class"),
        (vec!["nowhere.py"], "there is no file"),
    ] {
        let said = bed.run(&["run"], &arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        assert!(said.err.contains(words), "{arguments:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "one sentence: {said:?}");
    }
    assert!(!bed.data().exists(), "nothing was started");
}

#[test]
fn a_cluster_comes_up_once_and_goes_down_whole() {
    let bed = Bed::new();
    let first = bed.run(&["local", "up"], &[]);
    assert_eq!(first.code, 0, "{first:?}");
    eprintln!("up in {:?}", first.took);
    let again = bed.run(&["local", "up"], &[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.contains("was running already"), "{again:?}");
    let status = bed.run(&["local", "status", "-o", "json"], &[]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!(status["phase"], "ready", "{status}");
    let kubeconfig = bed.run(&["local", "kubeconfig"], &[]);
    assert!(kubeconfig.out.contains("certificate-authority-data"), "complete in itself");
    // A second cluster beside it.
    let other = tempfile::tempdir().expect("a directory");
    let beside = |verb: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel"));
        command.args(["local", verb, "--data-dir"]).arg(other.path().join("other")).output().expect("firesteel runs")
    };
    assert!(beside("up").status.success());
    assert!(beside("down").status.success());
    // Its port is taken as long as it runs.
    let port = status["port"].to_string();
    let third = tempfile::tempdir().expect("a directory");
    let clash = Command::new(env!("CARGO_BIN_EXE_firesteel"))
        .args(["local", "up", "--port", &port, "--data-dir"])
        .arg(third.path().join("third"))
        .output()
        .expect("firesteel runs");
    let words = String::from_utf8_lossy(&clash.stderr).into_owned();
    assert!(!clash.status.success() && words.contains(&format!("port {port} of 127.0.0.1 is taken")), "{words}");
    assert!(!bed.processes().is_empty());
    let down = bed.run(&["local", "down"], &[]);
    assert_eq!(down.code, 0, "{down:?}");
    bed.assert_nothing_left();
    let reset = bed.run(&["local", "reset"], &[]);
    assert_eq!(reset.code, 0, "{reset:?}");
    assert!(!bed.data().exists(), "nothing is left of it");
}

#[test]
fn a_killed_daemon_leaves_nothing_that_down_does_not_end() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let status = bed.run(&["local", "status", "-o", "json"], &[]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    let pid = status["pid"].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill").success());
    let down = bed.run(&["local", "down"], &[]);
    assert_eq!(down.code, 0, "{down:?}");
    bed.assert_nothing_left();
    let up = bed.run(&["local", "up"], &[]);
    assert_eq!(up.code, 0, "it comes up again after that: {up:?}");
}

#[test]
fn pods_outlive_a_killed_daemon() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let shared = bed.directory.path().join("shared");
    std::fs::create_dir(&shared).expect("a directory");
    let script = "for i in $(seq 1 40); do echo $i >> /shared/marks; sleep 0.3; done; echo end >> /shared/marks";
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: steady, namespace: default}}\nspec:\n  restartPolicy: Never\n  containers:\n  \
         - {{name: c, image: busybox, command: [sh, -c, '{script}'], volumeMounts: [{{name: h, mountPath: /shared}}]}}\n  \
         volumes:\n  - {{name: h, hostPath: {{path: '{}', type: Directory}}}}\n",
        shared.display()
    );
    let pod = bed.write("pod.yaml", &pod);
    let marks = || std::fs::read_to_string(shared.join("marks")).unwrap_or_default();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !holds() {
            assert!(Instant::now() < deadline, "not in time: {what}: {:?}", bed.processes());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut run = bed.command(&["run"]).arg(&pod).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
    until("the pod runs", &|| marks().contains("2\n"));
    run.kill().expect("kill");
    run.wait().expect("wait");
    let status = bed.run(&["local", "status", "-o", "json"], &[]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert!(Command::new("kill").args(["-KILL", &status["pid"].to_string()]).status().expect("kill").success());
    until("the daemon's other processes are gone", &|| bed.processes().iter().all(|p| p.contains(" shim ")));
    let before = marks().lines().count();
    until("the pod goes on alone", &|| marks().lines().count() > before + 2);
    let up = bed.run(&["local", "up"], &[]);
    assert_eq!(up.code, 0, "{up:?}");
    until("the pod ends", &|| marks().ends_with("end\n"));
    let wanted: String = (1..=40).map(|n| format!("{n}\n")).chain(["end\n".to_owned()]).collect();
    assert_eq!(marks(), wanted, "it ran once, from its beginning to its end");
    assert_eq!(bed.run(&["local", "down"], &[]).code, 0);
    bed.assert_nothing_left();
}

#[test]
fn pi_from_its_manifest() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    let said = bed.run(&["run"], &[&example("pi.yaml")]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("Pi is roughly 3.14"), "the driver's log is on stdout: {said:?}");
    assert!(said.err.contains("Finished: driver after"), "{said:?}");
    assert!(!said.err.contains("Pi is roughly"), "and nowhere else");
    eprintln!("{}", said.err);
    bed.assert_nothing_left();
}

#[test]
fn a_script_of_this_machine_runs_and_its_exit_code_is_ours() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    let script = bed.write(
        "fail.py",
        "import sys\nprint('about to fail with', sys.argv[1], flush=True)\nsys.exit(int(sys.argv[1]))\n",
    );
    let said = bed.run(&["run"], &[&script, "7"]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.out.contains("about to fail with 7"), "{said:?}");
    bed.assert_nothing_left();
}

#[test]
fn an_image_nobody_knows_never_starts() {
    let bed = Bed::new();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: strange, namespace: elsewhere}\n\
               spec: {restartPolicy: Never, containers: [{name: c, image: 'registry.invalid/none:1'}]}\n";
    let pod = bed.write("pod.yaml", pod);
    let said = bed.run(&["run"], &[&pod]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("Created namespace elsewhere"), "{said:?}");
    assert!(said.err.contains("firesteel local image add"), "it says what to do: {said:?}");
    bed.assert_nothing_left();
}
