//! How containers and pods terminate and restart.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, LogParams};
use serde_json::json;

use crate::harness::{World, exit, phase, processes_of};
use crate::sh;

pub(crate) async fn a_failing_container_fails_its_pod_with_its_exit_code(world: World) {
    world.run("fails", sh("echo out; echo err >&2; echo why > /dev/termination-log; exit 3")).await;
    let pod = world.ended("fails").await;
    assert_eq!((phase(&pod), exit(&pod)), ("Failed", (3, "Error".to_owned())));
    let status = pod.status.clone().expect("status");
    let state = status.container_statuses.as_ref().and_then(|c| c[0].state.clone()?.terminated).expect("terminated");
    assert_eq!(state.message.as_deref(), Some("why\n"));
    assert!(status.pod_ip.expect("an address").starts_with("127."));
    let log = world.log(&pod, "c").await;
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    world.event("fails", "Started container c").await;
    world.finish().await;
}

pub(crate) async fn a_container_is_restarted_on_failure(world: World) {
    let mut spec = sh("if [ -e /s/again ]; then exit 0; fi; touch /s/again; exit 1");
    spec["restartPolicy"] = json!("OnFailure");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
    spec["volumes"] = json!([{"name": "s", "emptyDir": {}}]);
    world.run("again", spec).await;
    let pod = world.ended("again").await;
    assert_eq!(phase(&pod), "Succeeded");
    let container = pod.status.and_then(|s| s.container_statuses).expect("statuses").remove(0);
    assert_eq!(container.restart_count, 1);
    assert_eq!(container.last_state.and_then(|s| s.terminated).map(|t| t.exit_code), Some(1));
    world.finish().await;
}

pub(crate) async fn a_deleted_pod_ends_gracefully(world: World) {
    let mut spec = sh("trap 'echo bye; exit 0' TERM; echo ready; while true; do sleep 0.1; done");
    spec["restartPolicy"] = json!("Always");
    world.run("graceful", spec).await;
    let stubborn = json!({"containers": [{"name": "c", "command": ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]}], "terminationGracePeriodSeconds": 1});
    world.run("stubborn", stubborn).await;
    let pod = world.running("graceful").await;
    world.running("stubborn").await;
    let begun = Instant::now();
    world.delete("graceful").await;
    world.delete("stubborn").await;
    world.deleted("graceful").await;
    world.deleted("stubborn").await;
    assert!(begun.elapsed() < Duration::from_secs(20), "took {:?}", begun.elapsed());
    world.event("graceful", "Killing Stopping container c").await;
    let dir = world.data_dir.join("pods").join(pod.metadata.uid.unwrap_or_default());
    for _ in 0..50 {
        if !dir.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!dir.exists(), "the directory of a deleted pod is removed");
    assert_eq!(processes_of(&dir), Vec::<String>::new());
    world.finish().await;
}

pub(crate) async fn memory_beyond_the_limit_kills(world: World) {
    let hog =
        "x = bytearray(300 * 1024 * 1024)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time\ntime.sleep(60)\n";
    world.run("hog", json!({"containers": [{"name": "c", "command": ["python3", "-c", hog], "resources": {"limits": {"memory": "100Mi"}}}]})).await;
    let pod = world.ended("hog").await;
    assert_eq!((phase(&pod), exit(&pod)), ("Failed", (137, "OOMKilled".to_owned())));
    world.finish().await;
}

pub(crate) async fn a_deadline_ends_a_pod(world: World) {
    let mut spec = sh("sleep 100");
    spec["activeDeadlineSeconds"] = json!(2);
    world.run("late", spec).await;
    let pod = world.ended("late").await;
    assert_eq!(phase(&pod), "Failed");
    assert_eq!(pod.status.and_then(|s| s.reason).as_deref(), Some("DeadlineExceeded"));
    world.finish().await;
}

pub(crate) async fn many_short_pods_end_right(world: World) {
    const MANY: usize = 200;
    let names: Vec<(String, serde_json::Value)> = (0..MANY)
        .map(|n| (format!("short-{n}"), sh(&format!("for i in 1 2 3 4 5; do echo {n}-$i; done; exit {}", n % 3))))
        .collect();
    let created = futures::stream::iter(names).map(|(name, spec)| {
        let world = &world;
        async move { world.run(&name, spec).await }
    });
    assert_eq!(created.buffer_unordered(20).count().await, MANY);
    let mut addresses = std::collections::BTreeSet::new();
    for n in 0..MANY {
        let pod = world.ended(&format!("short-{n}")).await;
        assert_eq!(exit(&pod).0, i32::try_from(n % 3).unwrap_or(-1));
        let wanted: String = (1..=5).map(|i| format!("{n}-{i}\n")).collect();
        assert_eq!(world.log(&pod, "c").await, wanted);
        addresses.insert(pod.status.and_then(|s| s.pod_ip));
    }
    assert_eq!(addresses.len(), MANY, "every pod has an address of its own");
    world.finish().await;
}

pub(crate) async fn sidecars_live_as_long_as_the_rest(world: World) {
    let spec = json!({
        "initContainers": [{"name": "side", "image": "busybox", "restartPolicy": "Always", "command": ["sh", "-c", "trap 'exit 0' TERM; touch /s/up; while true; do sleep 0.1; done"], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}],
        "containers": [{"name": "c", "command": ["sh", "-c", "while [ ! -e /s/up ]; do sleep 0.1; done; echo together"], "volumeMounts": [{"name": "s", "mountPath": "/s"}]}],
        "volumes": [{"name": "s", "emptyDir": {}}]
    });
    world.run("pair", spec).await;
    let pod = world.ended("pair").await;
    assert_eq!(phase(&pod), "Succeeded");
    let side = pod.status.and_then(|s| s.init_container_statuses).expect("statuses").remove(0);
    assert!(side.state.and_then(|s| s.terminated).is_some(), "the sidecar has ended");
    world.finish().await;
}

/// A failed container without a termination message falls back to the end of its log.
pub(crate) async fn the_end_of_the_log_can_be_the_message(world: World) {
    let mut spec = sh("echo first; echo the last word >&2; exit 1");
    spec["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    let mut fine = spec["containers"][0].clone();
    fine["name"] = json!("fine");
    fine["command"] = json!(["sh", "-c", "echo all well"]);
    let mut own = spec["containers"][0].clone();
    own["name"] = json!("own");
    own["terminationMessagePath"] = json!("/tmp/why");
    own["command"] = json!(["sh", "-c", "echo because > /tmp/why; exit 1"]);
    spec["containers"].as_array_mut().expect("containers").extend([fine, own]);
    world.run("speaks", spec).await;
    let pod = world.ended("speaks").await;
    let message = |name: &str| {
        let all = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()).expect("statuses");
        let own = all.iter().find(|c| c.name == name).expect("a container");
        own.state.as_ref().and_then(|s| s.terminated.as_ref()?.message.clone())
    };
    assert_eq!(message("c").as_deref(), Some("first\nthe last word\n"));
    assert_eq!(message("fine"), None);
    assert_eq!(message("own").as_deref(), Some("because\n"));
    world.finish().await;
}

/// restartPolicy Always: a container that succeeds restarts too, with back-off; its previous log is kept.
pub(crate) async fn a_container_that_always_restarts_backs_off(world: World) {
    let mut spec = sh("n=$(cat /s/n 2>/dev/null || echo 0); echo run $n; echo $((n + 1)) > /s/n; exit 0");
    spec["restartPolicy"] = json!("Always");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
    spec["volumes"] = json!([{"name": "s", "emptyDir": {}}]);
    world.run("loops", spec).await;
    let pod = world.until("loops", "backing off", |p| crate::harness::waiting(p).0 == "CrashLoopBackOff").await;
    let container = pod.status.clone().and_then(|s| s.container_statuses).expect("statuses").remove(0);
    assert_eq!((phase(&pod), container.restart_count), ("Running", 1));
    assert!(crate::harness::waiting(&pod).1.starts_with("back-off 10s restarting failed container=c pod=loops_"));
    world.event("loops", "BackOff Back-off restarting failed container c in pod loops_").await;
    let previous = LogParams { previous: true, ..LogParams::default() };
    assert_eq!(world.pods().logs("loops", &previous).await.expect("a log"), "run 0\n");
    assert_eq!(world.log(&pod, "c").await, "run 1\n");
    world.until("loops", "started a third time", |p| restarts(p) >= 2).await;
    world.delete("loops").await;
    world.deleted("loops").await;
    world.finish().await;
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()?.first()).map_or(0, |c| c.restart_count)
}

/// A node that shuts down terminates its pods in time and reports why.
pub(crate) async fn a_node_that_is_shut_down_ends_its_pods(mut world: World) {
    world.kill_agent();
    world.end_pods = true;
    world.start_agent().await;
    let mut spec = sh("trap 'echo bye > /dev/termination-log; exit 0' TERM; while true; do sleep 0.1; done");
    spec["terminationGracePeriodSeconds"] = json!(30);
    world.run("polite", spec).await;
    world.running("polite").await;
    world.stop_agent();
    let pod = world.ended("polite").await;
    let status = pod.status.clone().unwrap_or_default();
    assert_eq!((phase(&pod), status.reason.as_deref()), ("Failed", Some("Terminated")));
    assert_eq!(status.message.as_deref(), Some("Pod was terminated in response to imminent node shutdown."));
    assert!(status.conditions.iter().flatten().any(|c| c.type_ == "DisruptionTarget" && c.status == "True"));
    let state = status.container_statuses.and_then(|c| c[0].state.clone()?.terminated).expect("terminated");
    assert_eq!((state.exit_code, state.message.as_deref()), (0, Some("bye\n")), "it had its time");
    assert_eq!(processes_of(&world.data_dir), Vec::<String>::new());
    let node = Api::<Node>::all(world.client.clone()).get(&world.node).await.expect("the node");
    let ready = node.status.and_then(|s| s.conditions).and_then(|c| c.into_iter().find(|c| c.type_ == "Ready"));
    assert_eq!(ready.map(|c| c.status).as_deref(), Some("False"));
    world.finish().await;
}

/// A log larger than one file is complete, both when read later and when followed.
pub(crate) async fn a_long_log_is_whole(world: World) {
    const LINES: usize = 150_000;
    let script =
        format!("seq -f 'line %08g and so on until it is somewhat longer than that, really' 1 {LINES}; sleep 1");
    world.run("talks", sh(&script)).await;
    world.running("talks").await;
    let mut followed = String::new();
    let mut stream = Box::pin(
        world.pods().log_stream("talks", &LogParams { follow: true, ..LogParams::default() }).await.expect("a stream"),
    );
    futures::AsyncReadExt::read_to_string(&mut stream, &mut followed).await.expect("a log");
    let pod = world.ended("talks").await;
    let whole = world.log(&pod, "c").await;
    for (how, text) in [("followed", &followed), ("read", &whole)] {
        assert_eq!(text.lines().count(), LINES, "{how}");
        assert!(text.lines().enumerate().all(|(n, l)| l.starts_with(&format!("line {:08} ", n + 1))), "{how}");
    }
    world.finish().await;
}
