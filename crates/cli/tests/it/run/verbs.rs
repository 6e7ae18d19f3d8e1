//! The verbs of `firesteel local`, as a user would try them, with the real kubectl.

use firesteel_testenv::TestEnv;
use serde_json::Value;

use super::*;

/// kubectl on the cluster in `data`, with exactly what `local kubeconfig` prints.
fn kubectl(bed: &Bed, data: &Path, words: &[&str]) -> Option<Said> {
    let program = TestEnv::get()?.kubectl();
    let printed = local(data, "kubeconfig", &[]);
    assert_eq!(printed.code, 0, "{printed:?}");
    let config = bed.write("kubeconfig-as-printed", &printed.out);
    let began = Instant::now();
    let output = Command::new(program).args(["--kubeconfig", &config]).args(words).env_remove("KUBECONFIG").output();
    Some(Said::from(&output.expect("kubectl runs"), began))
}

fn local(data: &Path, verb: &str, more: &[&str]) -> Said {
    let began = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_firesteel"));
    let output = command.args(["local", verb, "--data-dir"]).arg(data).args(more).stdin(Stdio::null()).output();
    Said::from(&output.expect("firesteel runs"), began)
}

fn status(data: &Path) -> Value {
    serde_json::from_str(&local(data, "status", &["-o", "json"]).out).expect("JSON")
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// Always takes a second cluster down.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        local(self.0, "down", &[]);
    }
}

#[test]
fn two_data_directories_are_two_clusters_and_reset_empties_one() {
    let bed = Bed::new();
    let (one, two) = (bed.data(), bed.directory.path().join("second"));
    let _down = Down(&two);
    assert_eq!(local(&one, "up", &[]).code, 0);
    assert_eq!(local(&two, "up", &[]).code, 0);
    let (first, second) = (status(&one), status(&two));
    assert_eq!((&first["phase"], &second["phase"]), (&Value::from("ready"), &Value::from("ready")));
    assert_ne!(first["port"], second["port"]);
    let Some(made) = kubectl(&bed, &one, &["create", "configmap", "mark"]) else { return };
    assert_eq!(made.code, 0, "{made:?}");
    let has_mark = |data: &Path| kubectl(&bed, data, &["get", "configmap", "mark"]).expect("kubectl").code == 0;
    assert!(has_mark(&one) && !has_mark(&two), "what one holds the other does not");
    // A fresh cluster gives drivers their permissions.
    let account = "--as=system:serviceaccount:default:spark";
    for words in [["create", "pods"], ["delete", "services"], ["watch", "configmaps"]] {
        let may = kubectl(&bed, &two, &["auth", "can-i", words[0], words[1], account]).expect("kubectl");
        assert_eq!((may.code, may.out.trim()), (0, "yes"), "{words:?}: {may:?}");
    }
    let may = kubectl(&bed, &two, &["auth", "can-i", "create", "pods", "-n", "kube-system", account]).expect("kubectl");
    assert_eq!(may.out.trim(), "no", "{may:?}");

    // Objects survive down and up, at the same address.
    assert_eq!(local(&one, "down", &[]).code, 0);
    assert_eq!(status(&two)["phase"], "ready", "the other one goes on");
    assert_eq!(local(&one, "up", &[]).code, 0);
    assert_eq!(status(&one)["port"], first["port"], "the last port is taken again");
    assert!(has_mark(&one));

    // Reset stops a running cluster and leaves nothing.
    let reset = local(&one, "reset", &[]);
    assert_eq!(reset.code, 0, "{reset:?}");
    assert!(!one.exists(), "nothing is left of it");
    assert_eq!(status(&one)["running"], false);
    assert_eq!(local(&one, "up", &[]).code, 0);
    assert!(!has_mark(&one), "it begins anew");
    assert_eq!(status(&two)["phase"], "ready", "the other one goes on");
}

#[test]
fn the_port_asked_for_is_taken_and_another_one_is_refused_while_it_runs() {
    let bed = Bed::new();
    let (data, port) = (bed.data(), free_port());
    let up = local(&data, "up", &["--port", &port.to_string()]);
    assert_eq!(up.code, 0, "{up:?}");
    assert_eq!(status(&data)["port"], port);
    assert!(local(&data, "kubeconfig", &[]).out.contains(&format!("127.0.0.1:{port}")));
    assert_eq!(local(&data, "up", &["--port", &port.to_string()]).code, 0, "the same port is no other wish");
    let other = local(&data, "up", &["--port", &free_port().to_string()]);
    assert_ne!(other.code, 0);
    assert!(other.err.contains(&format!("runs on port {port}, not")), "{other:?}");
    assert_eq!(status(&data)["phase"], "ready", "a refused wish changes nothing");
    let wrong = local(&data, "up", &["--port", "70000"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
}

#[test]
fn logs_are_those_of_each_part_and_can_be_followed() {
    let bed = Bed::new();
    let data = bed.data();
    let none = local(&data, "logs", &[]);
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.err.contains("there is no log for `daemon`"), "{none:?}");
    assert_eq!(local(&data, "up", &[]).code, 0);
    for part in ["daemon", "node", "operator"] {
        let said = local(&data, "logs", &[part]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(!said.out.is_empty(), "{part} says something: {said:?}");
        assert!(!said.out.contains('\x1b'), "no colours in a file");
    }
    let unknown = local(&data, "logs", &["../status"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.err.contains("available: daemon, node, operator"), "{unknown:?}");
    let mut follow = bed.command(&["local", "logs"]).arg("-f").stdout(Stdio::piped()).spawn().expect("firesteel runs");
    std::fs::OpenOptions::new()
        .append(true)
        .open(data.join("logs/daemon.log"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"a line that came later\n"))
        .expect("the log");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follow.stdout.take().expect("piped")));
    assert!(lines.any(|line| line.expect("text") == "a line that came later"));
    follow.kill().expect("kill");
    follow.wait().expect("wait");
}

#[test]
fn in_the_foreground_it_runs_until_it_is_told_to_end() {
    let bed = Bed::new();
    let data = bed.data();
    for signal in ["INT", "TERM"] {
        let mut foreground =
            bed.command(&["local", "up"]).arg("--foreground").stderr(Stdio::null()).spawn().expect("firesteel runs");
        let deadline = Instant::now() + Duration::from_secs(60);
        while status(&data)["phase"] != "ready" {
            assert!(Instant::now() < deadline, "never ready");
            assert!(foreground.try_wait().expect("wait").is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(50));
        }
        let again = local(&data, "up", &[]);
        assert!(again.err.contains("was already running"), "{again:?}");
        let pid = foreground.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().expect("kill").success());
        assert!(foreground.wait().expect("wait").success(), "told to end, it ends well");
        bed.assert_nothing_left();
    }
}

#[test]
fn a_data_directory_of_a_newer_version_or_of_something_else_is_left_alone() {
    let bed = Bed::new();
    let data = bed.data();
    assert_eq!(local(&data, "up", &[]).code, 0);
    assert_eq!(local(&data, "down", &[]).code, 0);
    let written = std::fs::read_to_string(data.join("status.json")).expect("what the last daemon said");
    let mut written: Value = serde_json::from_str(&written).expect("JSON");
    written["layout"] = 999.into();
    std::fs::write(data.join("status.json"), written.to_string()).expect("write");
    let newer = local(&data, "up", &[]);
    assert_ne!(newer.code, 0);
    assert!(newer.err.contains("newer"), "{newer:?}");
    assert_eq!(newer.err.lines().filter(|l| l.starts_with("firesteel:")).count(), 1, "{newer:?}");
    // A directory with other files is not emptied.
    let theirs = bed.directory.path().join("theirs");
    std::fs::create_dir(&theirs).expect("a directory");
    std::fs::write(theirs.join("thesis.tex"), "years of work").expect("write");
    let reset = local(&theirs, "reset", &[]);
    assert_ne!(reset.code, 0, "{reset:?}");
    assert!(theirs.join("thesis.tex").exists(), "{reset:?}");
}
