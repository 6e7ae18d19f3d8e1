//! `firesteel local` and `firesteel run` from outside: real processes, real Spark, nothing left behind.
//!
//! The cases with Spark need its runtime, which is downloaded once into the cache. If that is impossible, they are skipped with
//! a message.

mod deaths;
mod here;
mod schedules;
mod verbs;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const SPARK: &str = "apache/spark:4.1.4";

/// A cluster with its own data directory, always taken down at the end.
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

/// Whether Spark is available on this machine.
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
fn a_cluster_comes_up_once_and_goes_down_whole() {
    let bed = Bed::new();
    let first = bed.run(&["local", "up"], &[]);
    assert_eq!(first.code, 0, "{first:?}");
    eprintln!("up in {:?}", first.took);
    let again = bed.run(&["local", "up"], &[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.contains("was already running"), "{again:?}");
    let status = bed.run(&["local", "status", "-o", "json"], &[]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!(status["phase"], "ready", "{status}");
    let kubeconfig = bed.run(&["local", "kubeconfig"], &[]);
    assert!(kubeconfig.out.contains("certificate-authority-data"), "complete in itself");
    // Its port is taken while it runs.
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

/// Counts processes with this command line on this machine, including those in containers.
fn running(line: &[u8]) -> usize {
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    entries.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok()).filter(|l| l == line).count()
}

#[test]
fn a_killed_daemon_leaves_nothing_that_down_does_not_end() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    // A running pod that ignores SIGTERM and has a child process.
    let script = "trap : TERM; sleep 1003 & while true; do sleep 1003; done";
    let file = bed.write("deaf.yaml", &(pod("deaf", "jobs", script) + WORDS));
    let mut run = bed.command(&["run"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
    let deadline = Instant::now() + Duration::from_secs(60);
    while running(b"sleep\x001003\0") < 2 {
        assert!(Instant::now() < deadline, "the pod runs");
        std::thread::sleep(Duration::from_millis(50));
    }
    run.kill().expect("kill");
    run.wait().expect("wait");
    let status = bed.run(&["local", "status", "-o", "json"], &[]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    let pid = status["pid"].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill").success());
    let down = bed.run(&["local", "down"], &[]);
    assert_eq!(down.code, 0, "{down:?}");
    assert_eq!(running(b"sleep\x001003\0"), 0, "nothing of the pod is left");
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
fn examples_that_documents_name_run_with_their_arguments() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    let run = "/opt/spark/bin/spark-submit --master local[2] --class org.apache.spark.examples";
    let jar = "/opt/spark/examples/jars/spark-examples.jar";
    let script = format!(
        "cd /tmp; printf 'a b\\na c\\nb c\\nc a\\n' > links; \
         {run}.JavaSparkPi {jar} 4; {run}.JavaWordCount {jar} links; {run}.SparkPageRank {jar} links 5; \
         {run}.GroupByTest {jar} 3 50 10 2; {run}.DFSReadWriteTest {jar} links /tmp/shared; \
         {run}.DFSReadWriteTest {jar} missing /tmp/shared; echo ended with $?"
    );
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "examples"}, "spec": {
        "restartPolicy": "Never",
        "containers": [{
            "name": "spark", "image": SPARK, "command": ["sh", "-c", script],
            // Six JVMs that run for seconds.
            "env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}],
        }],
    }});
    let file = bed.write("examples.yaml", &manifest.to_string());
    let said = bed.run(&["run"], &[&file]);
    assert_eq!(said.code, 0, "{said:?}");
    for line in [
        "Pi is roughly 3.1",
        "a: 3",
        "c: 3",
        "c has rank:  1.",
        "150",
        "Success! Local Word Count 8 and DFS Word Count 8 agree.",
        "Given path (missing) does not exist.",
        "ended with 1",
    ] {
        assert!(said.out.lines().any(|said| said.starts_with(line)), "{line}: {said:?}");
    }
}

fn pod(name: &str, namespace: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: '{namespace}'}}\nspec:\n  restartPolicy: Never\n  \
         containers: [{{name: c, image: 'busybox:1', command: [sh, -c, '{script}'], \
         env: [{{name: WORD, valueFrom: {{configMapKeyRef: {{name: words, key: word}}}}}}]}}]\n---\n"
    )
}

const WORDS: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words, namespace: 'jobs'}\ndata: {word: flint}\n---\n";

#[test]
fn several_documents_run_in_a_namespace_that_was_missing_and_stdout_is_their_log_alone() {
    let bed = Bed::new();
    // The ConfigMap comes last in the file but is created first.
    // A pod's /tmp is private, as in a container.
    let mark = format!("/tmp/firesteel-mark-{}", std::process::id());
    let text = pod("one", "jobs", &format!("touch {mark} && echo one says $WORD; echo to stderr >&2"))
        + &pod("two", "jobs", "echo two; exit 5")
        + WORDS;
    let file = bed.write("several.yaml", &text);
    let said = bed.run(&["run"], &[&file]);
    assert_eq!(said.code, 5, "the exit code is that of the one that failed: {said:?}");
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one says flint", "to stderr", "two"], "stdout is what the pods wrote: {said:?}");
    assert!(!Path::new(&mark).exists(), "the machine's /tmp is not the pod's");
    assert!(said.err.contains("Created namespace jobs"), "{said:?}");
    assert!(said.err.contains("Finished: driver after"), "a summary of the first: {said:?}");
    assert!(said.err.contains("exit code 5"), "why the second failed: {said:?}");
    bed.assert_nothing_left();
}

#[test]
fn ctrl_c_ends_all_that_was_started_and_leaves_a_cluster_that_was_there() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let file = bed.write(
        "long.yaml",
        &(pod("one", "jobs", "echo started; sleep 1000") + &pod("two", "jobs", "sleep 1001") + WORDS),
    );
    let mut run =
        bed.command(&["run"]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("firesteel runs");
    let mut first = String::new();
    let mut out = std::io::BufReader::new(run.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut out, &mut first).expect("a line");
    assert_eq!(first, "started\n");
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill").success());
    let output = run.wait_with_output().expect("its end");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{words}");
    assert_eq!(
        running(b"sleep\x001000\0") + running(b"sleep\x001001\0"),
        0,
        "both pods are gone when it returns: {words}"
    );
    let status = bed.run(&["local", "status"], &[]);
    assert_eq!(status.code, 0, "the cluster was there before and still is: {status:?}");
}

#[test]
fn keep_leaves_the_cluster_and_an_object_that_is_refused_leaves_nothing_running() {
    let bed = Bed::new();
    let file = bed.write("kept.yaml", &(pod("kept", "jobs", "echo done") + WORDS));
    let said = bed.run(&["run"], &[&file, "--keep"]);
    assert_eq!((said.code, said.out.as_str()), (0, "done\n"), "{said:?}");
    let status = bed.run(&["local", "status"], &[]);
    assert_eq!(status.code, 0, "{status:?}");
    // The first pod would run for long; the second is invalid. That is bad input, and the first is stopped.
    let bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: 'jobs'}\nspec: {containers: []}\n";
    let file = bed.write("half.yaml", &(pod("long", "jobs", "sleep 1002") + bad));
    let said = bed.run(&["run"], &[&file]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("half.yaml, document 2: "), "it says where: {said:?}");
    assert_eq!(running(b"sleep\x001002\0"), 0, "nothing goes on: {said:?}");
    // The same name again: the finished one is replaced.
    let file = bed.write("again.yaml", &pod("kept", "jobs", "echo again"));
    let said = bed.run(&["run"], &[&file]);
    assert_eq!((said.code, said.out.as_str()), (0, "again\n"), "{said:?}");
    assert!(said.err.contains("Replacing the finished Pod kept"), "{said:?}");
}

#[test]
fn on_a_terminal_there_is_one_line_that_changes_and_elsewhere_plain_lines() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let file = bed.write("pod.yaml", &(pod("seen", "jobs", "sleep 2; echo done") + WORDS));
    let plain = bed.run(&["run"], &[&file]);
    assert!(plain.err.contains("seen: running"), "{plain:?}");
    assert!(!plain.err.contains('\x1b'), "no control characters: {plain:?}");
    // A pseudo-terminal from util-linux.
    let program = format!("{} run --data-dir {} {file}", env!("CARGO_BIN_EXE_firesteel"), bed.data().display());
    let script = Command::new("script").args(["-qefc", &program, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = script else {
        eprintln!("SKIPPED, no terminal: there is no `script`");
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("\x1b["), "a line that is drawn again and again: {shown:?}");
    assert!(shown.contains("done"), "{shown:?}");
    assert!(shown.contains("Finished: driver after"), "{shown:?}");
}

/// As a user who may not create user namespaces: inside one in which the kernel allows no more.
#[test]
fn where_namespaces_are_forbidden_one_sentence_says_what_to_allow() {
    let alone = "echo 1 > /proc/sys/user/max_user_namespaces || exit 77\n\
                 exec unshare --user --map-user=1000 --map-group=1000 \"$@\"";
    let bed = Bed::new();
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        alone,
        "sh",
        env!("CARGO_BIN_EXE_firesteel"),
        "local",
        "up",
    ]);
    let output = command.arg("--data-dir").arg(bed.data()).env("HOME", bed.directory.path()).output().expect("unshare");
    let said = Said::from(&output, Instant::now());
    if said.code == 77 || said.err.contains("unshare: ") {
        eprintln!("SKIPPED, namespaces cannot be forbidden here: {}", said.err);
        return;
    }
    assert_eq!(said.code, 1, "{said:?}");
    let words = "this user may not create user namespaces: run the agent as root, or allow them (sysctl user.max_user_namespaces=";
    assert!(said.err.lines().last().is_some_and(|l| l.contains(words)), "{said:?}");
    bed.assert_nothing_left();
}

/// On a machine without Python and Java, simulated by hiding them.
#[test]
fn what_a_runtime_needs_and_is_not_there_is_said_and_nothing_is_half_done() {
    let bare = "for place in /usr/local/bin /usr/lib/jvm /opt /usr/bin; do\n\
                if [ -d $place ]; then mount -t tmpfs none $place || exit 77; fi\ndone\nexec \"$@\"";
    let bed = Bed::new();
    let cache = bed.directory.path().join("cache");
    let pull = || {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            bare,
            "sh",
            env!("CARGO_BIN_EXE_firesteel"),
            "local",
            "image",
            "--runtime-dir",
        ]);
        command.arg(&cache).args(["pull", SPARK]).env("PATH", "/usr/bin:/usr/sbin:/bin:/sbin").env_remove("JAVA_HOME");
        command.output().expect("unshare")
    };
    let said = pull();
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.code() == Some(77) || words.contains("unshare") {
        eprintln!("SKIPPED, nothing can be hidden here: {words}");
        return;
    }
    assert!(!said.status.success());
    assert!(words.contains("neither python3 nor pip was found; install them"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    // Now Spark exists, but neither Java nor anything to install it with.
    let spark = cache.join("runtimes/spark-4.1.4");
    assert!(!spark.exists(), "nothing half done");
    std::fs::create_dir(&spark).expect("a directory");
    let said = pull();
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success());
    assert!(words.contains("Java") && words.contains("install"), "{words}");
    let left = std::fs::read_dir(cache.join("runtimes")).expect("runtimes").flatten();
    let left: Vec<String> = left.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    assert!(left.iter().all(|n| n.starts_with('.') || n == "spark-4.1.4"), "{left:?}");
}

/// With a separate cache that has Spark but no archive.
#[test]
#[ignore = "tests/real: takes minutes"]
fn a_first_run_on_a_terminal_makes_later_starts_quicker_and_a_script_does_not() {
    if !spark() {
        return;
    }
    let bed = Bed::new();
    let home = PathBuf::from(std::env::var_os("HOME").expect("HOME"));
    let own = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let cache = bed.directory.path().join("cache");
    let runtimes = cache.join("firesteel/runtimes");
    std::fs::create_dir_all(&runtimes).expect("a directory");
    let copied = Command::new("cp").arg("-a").arg(own.join("firesteel/runtimes/spark-4.1.4")).arg(&runtimes).status();
    assert!(copied.expect("cp").success());
    let archive = || {
        let entries = std::fs::read_dir(&runtimes).expect("runtimes").flatten();
        entries.into_iter().any(|e| e.path().join("classes.jsa").is_file())
    };
    let script = bed.write("hello.py", "print('hello')\n");
    assert_eq!(bed.run(&["local", "up"], &[]).code, 0);
    let plain = bed.command(&["run"]).arg(&script).env("XDG_CACHE_HOME", &cache).output().expect("firesteel runs");
    assert!(plain.status.success() && !archive(), "{}", String::from_utf8_lossy(&plain.stderr));
    let on_a_terminal = || {
        let line = format!("{} run --data-dir {} {script}", env!("CARGO_BIN_EXE_firesteel"), bed.data().display());
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).env("XDG_CACHE_HOME", &cache).stdin(Stdio::null()).output()
    };
    let Ok(first) = on_a_terminal() else {
        eprintln!("SKIPPED, no terminal: there is no `script`");
        return;
    };
    let shown = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(first.status.success() && shown.contains("hello"), "{shown}");
    assert!(shown.contains("Later starts will be faster"), "{shown}");
    assert!(archive(), "{shown}");
    let second = on_a_terminal().expect("script");
    let shown = String::from_utf8_lossy(&second.stdout).into_owned();
    assert!(second.status.success() && shown.contains("hello") && !shown.contains("later starts"), "{shown}");
    assert_eq!(bed.run(&["local", "down"], &[]).code, 0);
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
