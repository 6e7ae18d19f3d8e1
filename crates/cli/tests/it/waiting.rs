//! Waiting for drivers; the test plays the kubelet.

use std::io::Read as _;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::place::{NOWHERE, Place};
use crate::program::{Ran, Run as _, finish};
use crate::proxy::Tunnel;

const SLOW_REPORTS: (&str, &str) = ("spark.kubernetes.report.interval", "1h");

#[allow(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn container(state: Value) -> Value {
    json!([{
        "name": "spark-kubernetes-driver", "image": "apache/spark:4.1.4", "imageID": "", "ready": false,
        "restartCount": 0, "state": state,
    }])
}

fn ended(code: i32, reason: &str) -> Value {
    let state = json!({ "terminated": { "exitCode": code, "reason": reason } });
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    json!({ "phase": phase, "containerStatuses": container(state) })
}

/// Submits, sets each status in turn once the gate is lifted, and returns the program's output.
async fn watched(place: &Place, extra: &[&str], statuses: &[Value]) -> Ran {
    let mut command = place.submission_with(extra, &[NOWHERE, SLOW_REPORTS]);
    let child = command.start();
    let pod = place.the_pod_without_gate().await.name_any();
    for status in statuses {
        tokio::time::sleep(Duration::from_millis(200)).await;
        place.set_status(&pod, status.clone()).await;
    }
    tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends")
}

#[tokio::test]
async fn success_is_reported_with_every_state_on_the_way() {
    let Some(place) = Place::new("success").await else { return };
    let running = json!({ "phase": "Running", "containerStatuses": container(json!({ "running": {} })) });
    let ran = watched(&place, &[], &[running, ended(0, "Completed")]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    let phases: Vec<_> = ran.stderr.lines().filter_map(|line| line.trim().strip_prefix("phase: ")).collect();
    let mut in_order = phases.clone();
    in_order.dedup();
    assert_eq!(in_order, ["Pending", "Running", "Succeeded"], "{ran:?}");
    assert!(ran.stderr.contains("State changed, new state:\n"), "{ran:?}");
    assert!(ran.last_words().starts_with(&format!("Next: kubectl logs -n {} pi-", place.name())), "{ran:?}");
}

#[tokio::test]
async fn exit_code_is_the_drivers() {
    let Some(place) = Place::new("failure").await else { return };
    let ran = watched(&place, &[], &[ended(42, "Error")]).await;
    assert_eq!(ran.code, Some(42), "{ran:?}");
    assert!(ran.stderr.contains(" failed: the driver ended with exit code 42\n"), "{ran:?}");
    assert!(ran.last_words().starts_with("Next: "), "{ran:?}");
}

#[tokio::test]
async fn a_sidecar_that_lives_on_does_not_hide_the_end_of_the_driver() {
    let Some(place) = Place::new("sidecar").await else { return };
    let template = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    // The usual name of Spark's container, and one from the template.
    for (main, code) in [("spark-kubernetes-driver", 42), ("main", 0)] {
        let containers = json!([{ "name": "proxy", "image": "proxy" }, { "name": main }]);
        let pod = json!({ "spec": { "containers": containers } });
        std::fs::write(template.path(), pod.to_string()).expect("written");
        let path = template.path().display().to_string();
        let conf = [
            NOWHERE,
            SLOW_REPORTS,
            ("spark.kubernetes.driver.podTemplateFile", path.as_str()),
            ("spark.kubernetes.driver.podTemplateContainerName", main),
        ];
        let mut child = place.submission(&conf).start();
        let pod = place.the_pod_without_gate().await.name_any();
        let status = |name: &str, state: Value| json!({ "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state });
        let ended = json!({ "terminated": { "exitCode": code, "reason": "Error" } });
        let statuses = [status("proxy", json!({ "running": {} })), status(main, ended)];
        place.set_status(&pod, json!({ "phase": "Running", "containerStatuses": statuses })).await;
        for _ in 0..200 {
            if child.try_wait().expect("a child").is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let _ = child.kill();
        let ran = finish(child);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        place.pods().delete(&pod, &DeleteParams::default().grace_period(0)).await.expect("deleted");
        place.empties().await;
    }
}

#[tokio::test]
async fn exit_zero_brings_back_the_old_exit_code() {
    let Some(place) = Place::new("exitzero").await else { return };
    let ran = watched(&place, &["--exit-zero"], &[ended(42, "Error")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the driver ended with exit code 42"), "{ran:?}");
}

#[tokio::test]
async fn lack_of_memory_is_called_by_its_name() {
    let Some(place) = Place::new("oom").await else { return };
    let ran = watched(&place, &[], &[ended(137, "OOMKilled")]).await;
    assert_eq!(ran.code, Some(137), "{ran:?}");
    assert!(ran.stderr.contains("the container reached its memory limit; raise spec.driver.memoryOverhead"), "{ran:?}");
}

#[tokio::test]
async fn eviction_before_the_start_has_its_own_exit_code() {
    let Some(place) = Place::new("evicted").await else { return };
    let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on disk." });
    let ran = watched(&place, &[], &[evicted]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("the node evicted it (Evicted): The node was low on disk."), "{ran:?}");
}

#[tokio::test]
async fn image_that_cannot_be_pulled_is_told_while_waiting() {
    let Some(place) = Place::new("pull").await else { return };
    let pull = json!({ "waiting": { "reason": "ErrImagePull", "message": "manifest unknown" } });
    let pull = json!({ "phase": "Pending", "containerStatuses": container(pull) });
    let ran = watched(&place, &[], &[pull, ended(1, "Error")]).await;
    let told = "Warning: the image apache/spark:4.1.4 cannot be pulled (ErrImagePull): manifest unknown\n";
    assert!(ran.stderr.contains(told), "{ran:?}");
}

#[tokio::test]
async fn driver_that_finds_no_node_is_told_in_the_schedulers_words_after_a_while() {
    let Some(place) = Place::new("unplaced").await else { return };
    let child = place.submission(&[NOWHERE, SLOW_REPORTS]).start();
    let pod = place.the_pod_without_gate().await.name_any();
    tokio::time::sleep(Duration::from_secs(14)).await;
    place.set_status(&pod, ended(0, "Completed")).await;
    let ran = tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends");
    let told: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("Warning: ")).collect();
    assert_eq!(told.len(), 1, "{ran:?}");
    assert!(told[0].starts_with("Warning: the driver cannot be placed on a node: "), "{ran:?}");
}

#[tokio::test]
async fn broken_connection_does_not_end_the_waiting() {
    let Some(place) = Place::new("broken").await else { return };
    let tunnel = Tunnel::open();
    let child = place.submission(&[NOWHERE, SLOW_REPORTS]).env("HTTPS_PROXY", tunnel.address()).start();
    let pod = place.the_pod_without_gate().await.name_any();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = tunnel.used();
    tunnel.cut();
    tokio::time::sleep(Duration::from_millis(700)).await;
    place.set_status(&pod, ended(5, "Error")).await;
    let ran = tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends");
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(tunnel.used() > before);
}

#[tokio::test]
async fn deleted_driver_is_an_end() {
    let Some(place) = Place::new("deleted").await else { return };
    let child = place.submission(&[NOWHERE, SLOW_REPORTS]).start();
    let pod = place.the_pod_without_gate().await.name_any();
    place.pods().delete(&pod, &DeleteParams::default()).await.expect("deleted");
    let ran = tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("its pod was deleted while it was pending"), "{ran:?}");
}

#[tokio::test]
async fn phase_is_told_at_every_interval() {
    let Some(place) = Place::new("interval").await else { return };
    let mut child = place.submission(&[NOWHERE, ("spark.kubernetes.report.interval", "100ms")]).start();
    let pod = place.the_pod_without_gate().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    place.set_status(&pod.name_any(), ended(0, "Completed")).await;
    let mut said = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let line = format!("Application status for {} (phase: Pending)", pod.labels()["spark-app-selector"]);
    let times = said.lines().filter(|told| *told == line).count();
    assert!((3..=30).contains(&times), "told {times} times: {said}");
}

#[tokio::test]
async fn interrupted_while_waiting_leaves_the_driver_alone() {
    let Some(place) = Place::new("leave").await else { return };
    let child = place.submission(&[NOWHERE, SLOW_REPORTS]).start();
    let pod = place.the_pod_without_gate().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), Signal::SIGINT).expect("signalled");
    let ran = tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends");
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let next = format!("Next: firesteel submit --kill {}:{} --master {}", place.name(), pod.name_any(), place.master());
    assert_eq!(ran.last_words(), next);
    assert_eq!(place.the_pod().await.uid(), pod.uid());
}

#[tokio::test]
async fn without_the_right_to_watch_it_looks_again_and_again() {
    let Some(place) = Place::new("nowatch").await else { return };
    let limited = place.limited(&["pods", "services", "configmaps"], &["create", "get", "delete", "patch"]).await;
    let child = place.submission(&[NOWHERE]).kubeconfig(limited.path()).start();
    let pod = place.the_pod_without_gate().await.name_any();
    place.set_status(&pod, ended(7, "Error")).await;
    let ran = tokio::task::spawn_blocking(move || finish(child)).await.expect("it ends");
    assert_eq!(ran.code, Some(7), "{ran:?}");
}
