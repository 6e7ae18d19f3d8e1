//! exec, attach, logs, port-forward, cp and drain with kubectl; exec and port-forward with kube-rs, too.

use std::io::{BufRead as _, Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, AttachParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Cluster, World};
use crate::sh;

/// kube-rs uses WebSockets with one channel per stream, which a real API server translates to SPDY.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_in_containers_and_ports_are_forwarded() {
    let world = World::new(Cluster::Ours).await.expect("our own cluster");
    let mut spec = sh("mkdir -p /w && cd /w && echo served > x && exec python3 -m http.server --bind $IP 8000");
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    world.run("host", spec).await;
    world.running("host").await;
    let wanted = AttachParams::default().stdin(true).stdout(true).stderr(true);
    let mut process = world
        .pods()
        .exec("host", ["sh", "-c", "read line; echo got $line; hostname >&2; exit 4"], &wanted)
        .await
        .expect("exec");
    let status = process.take_status().expect("a status");
    let mut stdin = process.stdin().expect("stdin");
    let (mut stdout, mut stderr) = (process.stdout().expect("stdout"), process.stderr().expect("stderr"));
    stdin.write_all(b"hello\n").await.expect("input");
    let (mut out, mut err) = (String::new(), String::new());
    stdout.read_to_string(&mut out).await.expect("output");
    stderr.read_to_string(&mut err).await.expect("errors");
    assert_eq!((out.as_str(), err.as_str()), ("got hello\n", "host\n"));
    let causes = status.await.and_then(|s| s.details?.causes).expect("an exit code");
    assert_eq!(causes[0].message.as_deref(), Some("4"));

    let mut answer = Vec::new();
    for _ in 0..50 {
        let mut forwarder = world.pods().portforward("host", &[8000]).await.expect("a forwarder");
        let mut stream = forwarder.take_stream(8000).expect("a stream");
        stream.write_all(b"GET /x HTTP/1.0\r\n\r\n").await.expect("a request");
        if stream.read_to_end(&mut answer).await.is_ok() && !answer.is_empty() {
            break;
        }
        // The server in the pod may not be listening yet.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(String::from_utf8_lossy(&answer).ends_with("served\n"), "{}", String::from_utf8_lossy(&answer));
    world.finish().await;
}

fn kubectl(world: &World, words: &[&str], input: &str) -> Output {
    let mut child = Command::new(world.kubectl())
        .args(["--namespace", &world.namespace])
        .args(words)
        .env("KUBECONFIG", &world.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    // It may exit without reading.
    let _ = child.stdin.take().expect("stdin").write_all(input.as_bytes());
    child.wait_with_output().expect("kubectl ends")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("done")
}

/// exec and attach fail for a container that waits for an init container, and for one that has exited.
pub(crate) async fn exec_before_the_start_is_refused_as_a_kubelet_does(world: World) {
    let mut spec = sh("true");
    spec["initContainers"] = json!([{"name": "first", "image": "busybox", "command": ["sh", "-c", "sleep 300"]}]);
    world.run("late", spec).await;
    let initialising = |pod: &k8s_openapi::api::core::v1::Pod| {
        let first = pod.status.as_ref().and_then(|s| s.init_container_statuses.as_ref()?.first()?.state.clone());
        first.is_some_and(|state| state.running.is_some())
    };
    world.until("late", "initialising", initialising).await;
    let mut spec = sh("true");
    let other = json!({"name": "other", "image": "busybox", "command": ["sleep", "300"]});
    spec["containers"].as_array_mut().expect("containers").push(other);
    world.run("half", spec).await;
    let half_over = |pod: &k8s_openapi::api::core::v1::Pod| {
        let all = pod.status.as_ref().and_then(|s| s.container_statuses.clone()).unwrap_or_default();
        all.iter().any(|c| c.name == "c" && c.state.as_ref().is_some_and(|s| s.terminated.is_some()))
    };
    world.until("half", "half over", half_over).await;
    let world = blocking(move || {
        for words in [&["exec", "late", "-c", "c", "--", "true"][..], &["exec", "half", "-c", "c", "--", "true"]] {
            let (code, out, err) = said(&kubectl(&world, words, ""));
            assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
            assert!(err.contains("container not found (\"c\")"), "{err}");
            assert!(!err.contains(&*world.data_dir.to_string_lossy()), "no path of the node: {err}");
        }
        let run = kubectl(&world, &["exec", "late", "-c", "first", "--", "echo", "here"], "");
        assert_eq!(said(&run).1, "here\n", "{}", said(&run).2);
        world
    })
    .await;
    world.finish().await;
}

/// Everything people do with a running pod.
pub(crate) async fn kubectl_reaches_into_pods(world: World) {
    let mut spec = sh(
        "mkdir -p /w && cd /w && echo served > x && python3 -m http.server --bind $IP 8000 & while read line; do echo got $line; done; echo over; sleep 300",
    );
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    spec["containers"][0]["stdin"] = json!(true);
    spec["containers"][0]["stdinOnce"] = json!(true);
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 8000}, "periodSeconds": 1});
    world.run("host", spec).await;
    world.running("host").await;
    let world = blocking(move || {
        let run = kubectl(
            &world,
            &["exec", "-i", "host", "--", "sh", "-c", "read line; echo $line; hostname >&2; exit 4"],
            "hello\n",
        );
        let (code, out, err) = said(&run);
        assert_eq!((code, out.as_str()), (Some(4), "hello\n"), "{err}");
        assert!(err.starts_with("host\n"), "{err}");
        let run = kubectl(&world, &["exec", "-i", "host", "--", "sh", "-c", "cat | wc -c"], &"x".repeat(300_000));
        assert_eq!(said(&run).1.trim(), "300000", "standard input ends: {}", said(&run).2);
        let run = kubectl(&world, &["exec", "host", "--", "no-such-program"], "");
        assert!(said(&run).2.contains("executable file not found in $PATH"), "{:?}", said(&run));
        assert_ne!(said(&run).0, Some(0));

        // A real terminal: `script` gives kubectl one.
        let line = format!(
            "stty cols 97 rows 31; {} exec -it host -n {} -- sh -c 'tty; sleep 1; stty size; read a; echo got $a; exit 3'",
            world.kubectl().display(),
            world.namespace
        );
        let mut child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("KUBECONFIG", &world.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script");
        std::thread::sleep(Duration::from_secs(3));
        child.stdin.as_mut().expect("stdin").write_all(b"words\n").expect("input");
        let output = child.wait_with_output().expect("script ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for wanted in ["/dev/pts/", "31 97", "got words"] {
            assert!(text.contains(wanted), "{wanted:?} is not in {text:?}");
        }
        assert_eq!(output.status.code(), Some(3), "{text}");

        // It stays as long as the container, whose input ends after what it is given.
        let mut attached = Command::new(world.kubectl())
            .args(["attach", "-i", "host", "-n", &world.namespace])
            .env("KUBECONFIG", &world.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("kubectl starts");
        attached.stdin.take().expect("stdin").write_all(b"first\nsecond\n").expect("input");
        let mut log = String::new();
        for _ in 0..100 {
            log = said(&kubectl(&world, &["logs", "host"], "")).1;
            if log.contains("over") {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(log.contains("got first\ngot second\nover\n"), "{log}");
        attached.kill().expect("kill");
        let seen = attached.wait_with_output().expect("kubectl ends");
        assert!(String::from_utf8_lossy(&seen.stdout).contains("got first\ngot second\n"), "{seen:?}");

        let dir = tempfile::tempdir().expect("dir");
        let (there, back) = (dir.path().join("there"), dir.path().join("back"));
        let bytes: Vec<u8> = (0..400_000_u32).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
        std::fs::write(&there, &bytes).expect("a file");
        let run = kubectl(&world, &["cp", there.to_str().expect("a path"), "host:/w/copy"], "");
        assert_eq!(said(&run).0, Some(0), "{}", said(&run).2);
        let run = kubectl(&world, &["cp", "host:/w/copy", back.to_str().expect("a path")], "");
        assert_eq!(said(&run).0, Some(0), "{}", said(&run).2);
        assert!(std::fs::read(&back).expect("the file") == bytes, "the copy is the same");

        let mut forward = Command::new(world.kubectl())
            .args(["port-forward", "pod/host", ":8000", "-n", &world.namespace])
            .env("KUBECONFIG", &world.kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("kubectl starts");
        let mut first = String::new();
        // Kept until the end: it prints every connection.
        let mut talk = std::io::BufReader::new(forward.stdout.take().expect("stdout"));
        talk.read_line(&mut first).expect("a line");
        let port = first.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port").to_owned();
        for _ in 0..3 {
            let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).expect("a connection");
            stream.write_all(b"GET /x HTTP/1.0\r\n\r\n").expect("a request");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            assert!(answer.ends_with("served\n"), "{answer}");
        }
        forward.kill().expect("kill");
        forward.wait().expect("wait");
        drop(talk);
        world
    })
    .await;
    world.finish().await;
}

/// A terminal, and clients that attach to it.
pub(crate) async fn a_container_can_have_a_terminal(world: World) {
    let mut spec = sh("tty; read line; echo got $line; exit 5");
    spec["containers"][0]["stdin"] = json!(true);
    spec["containers"][0]["tty"] = json!(true);
    world.run("screen", spec).await;
    world.running("screen").await;
    let attach = AttachParams::default().stdin(true).stdout(true).stderr(false).tty(true);
    if !world.real {
        let mut process = world.pods().attach("screen", &attach).await.expect("attach");
        process.stdin().expect("stdin").write_all(b"by hand\n").await.expect("input");
        let mut out = String::new();
        process.stdout().expect("stdout").read_to_string(&mut out).await.expect("output");
        assert!(out.contains("got by hand"), "{out}");
    } else {
        let line = format!("{} attach -it screen -n {}", world.kubectl().display(), world.namespace);
        let kubeconfig = world.kubeconfig.clone();
        let text = blocking(move || {
            let mut child = Command::new("script")
                .args(["-qec", &line, "/dev/null"])
                .env("KUBECONFIG", kubeconfig)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("script");
            std::thread::sleep(Duration::from_secs(3));
            child.stdin.as_mut().expect("stdin").write_all(b"by hand\n").expect("input");
            String::from_utf8_lossy(&child.wait_with_output().expect("script ends").stdout).into_owned()
        })
        .await;
        assert!(text.contains("got by hand"), "{text}");
    }
    let pod = world.ended("screen").await;
    assert_eq!(crate::harness::exit(&pod).0, 5);
    assert!(world.log(&pod, "c").await.contains("/dev/pts/0"));
    world.finish().await;
}

/// Cordon and drain with kubectl: pods terminate within their grace period, and the node takes no new ones.
pub(crate) async fn a_node_is_drained(world: World) {
    let mut spec = sh("trap 'sleep 1; exit 0' TERM; while true; do sleep 0.1; done");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    world.run("guest", spec.clone()).await;
    world.run("other", spec).await;
    world.running("guest").await;
    world.running("other").await;
    let world = blocking(move || {
        if !world.real {
            assert_eq!(said(&kubectl(&world, &["uncordon", &world.node], "")).0, Some(0));
        }
        let run = kubectl(
            &world,
            &["drain", &world.node, "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s"],
            "",
        );
        let (code, out, err) = said(&run);
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(out.contains("pod/guest evicted") && out.contains("drained"), "{out}");
        world
    })
    .await;
    world.deleted("guest").await;
    world.deleted("other").await;
    let node = Api::<Node>::all(world.client.clone()).get(&world.node).await.expect("the node");
    assert_eq!(node.spec.and_then(|s| s.unschedulable), Some(true));
    world.event("guest", "Killing Stopping container c").await;
    world.finish().await;
}
