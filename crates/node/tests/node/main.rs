//! Pods as real processes, on our API server and on a real one.

mod harness;
mod spark;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service, ServiceAccount};
use kube::api::{Api, AttachParams, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use harness::{Cluster, World, exit, phase, processes_of, waiting};

/// Each case runs on both clusters.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        mod on_our_api_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let world = super::World::new(super::Cluster::Ours).await.expect("our own cluster");
                super::$name(world).await;
            })*
        }
        mod on_a_real_api_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let Some(world) = super::World::new(super::Cluster::Real).await else { return };
                super::$name(world).await;
            })*
        }
    };
}

cases!(
    a_failing_container_fails_its_pod_with_its_exit_code,
    volumes_and_variables_are_as_declared,
    a_pod_waits_for_its_config_map,
    a_missing_secret_key_is_a_configuration_error,
    a_container_is_restarted_on_failure,
    a_deleted_pod_ends_gracefully,
    a_pre_stop_hook_runs_before_the_end,
    an_agent_that_dies_loses_nothing,
    an_unknown_image_is_said_with_the_way_out,
    a_command_that_does_not_exist_is_a_start_error,
    a_service_name_leads_to_its_pods,
    memory_beyond_the_limit_kills,
    a_deadline_ends_a_pod,
    nothing_of_the_host_is_visible,
    many_short_pods_end_right,
    sidecars_live_as_long_as_the_rest,
    probes_decide_about_readiness_and_restarts,
    an_image_can_be_a_root_file_system,
    a_service_account_reaches_the_api_server,
    a_claim_is_mounted_from_its_volume,
);

/// The same cases with an agent that is an ordinary user: user namespaces, no control groups, no port 443.
mod for_an_ordinary_user {
    const USER: u32 = 54321;

    macro_rules! cases {
        ($($name:ident),* $(,)?) => {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if !nix::unistd::Uid::effective().is_root() {
                    return;
                }
                let world = super::World::with_agent_of(super::Cluster::Ours, USER).await.expect("our own cluster");
                super::$name(world).await;
            })*
        };
    }

    cases!(
        a_failing_container_fails_its_pod_with_its_exit_code,
        volumes_and_variables_are_as_declared,
        a_deleted_pod_ends_gracefully,
        an_agent_that_dies_loses_nothing,
        a_service_name_leads_to_its_pods,
        memory_beyond_the_limit_kills,
        nothing_of_the_host_is_visible,
        probes_decide_about_readiness_and_restarts,
        an_image_can_be_a_root_file_system,
        a_service_account_reaches_the_api_server,
    );
}

fn sh(script: &str) -> serde_json::Value {
    json!({"containers": [{"name": "c", "command": ["sh", "-c", script]}]})
}

async fn a_failing_container_fails_its_pod_with_its_exit_code(world: World) {
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

async fn volumes_and_variables_are_as_declared(world: World) {
    world.create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "A", "b": "B"}})).await;
    world
        .create::<Secret>(json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}, "data": {"k": "aGlkZGVu"}}))
        .await;
    let script = "set -e; cat /m/deep/a; echo; stat -c %a /m/deep/a; cat /s; echo; cat /made/by-init; cat /labels; echo; \
                  echo $A $K $IP $SUM; ! touch /m/x; touch /data/y; ls /data; df /mem | tail -1 | cut -d' ' -f1; hostname; cat /etc/hostalias || grep alias /etc/hosts; pwd";
    let spec = json!({
        "hostAliases": [{"ip": "127.0.0.9", "hostnames": ["alias"]}],
        "initContainers": [{"name": "i", "image": "busybox", "command": ["sh", "-c", "echo made > /work/by-init"], "volumeMounts": [{"name": "scratch", "mountPath": "/work"}]}],
        "containers": [{"name": "c", "workingDir": "/data", "command": ["sh", "-c", script],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "a"}}},
                {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "SUM", "value": "$(A)-$(K)"}],
            "volumeMounts": [
                {"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s", "subPath": "k"}, {"name": "scratch", "mountPath": "/made"},
                {"name": "d", "mountPath": "/labels", "subPath": "labels"}, {"name": "scratch", "mountPath": "/data", "subPath": "deeper/still"}, {"name": "mem", "mountPath": "/mem"}]}],
        "volumes": [
            {"name": "m", "configMap": {"name": "m", "items": [{"key": "a", "path": "deep/a", "mode": 0o600}]}},
            {"name": "s", "secret": {"secretName": "s"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "mem", "emptyDir": {"medium": "Memory"}},
            {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]
    });
    world.run_labelled("volumes", json!({"l": "v"}), spec).await;
    let pod = world.ended("volumes").await;
    let log = world.log(&pod, "c").await;
    let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).unwrap_or_default();
    for wanted in [
        "A\n600\nhidden\nmade\n",
        "l=\"v\"",
        &format!("A hidden {address} A-hidden\n"),
        "\ny\n",
        "tmpfs\n",
        "\nvolumes\n",
        "127.0.0.9\talias\n",
        "\n/data\n",
    ] {
        assert!(log.contains(wanted), "{wanted:?} is not in:\n{log}");
    }
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    let memory =
        std::path::PathBuf::from(format!("/dev/shm/firesteel-{}", pod.metadata.uid.clone().unwrap_or_default()));
    world.finish().await;
    assert!(!memory.exists(), "volumes in memory are given back");
}

async fn a_pod_waits_for_its_config_map(world: World) {
    let mut spec = sh("cat /m/a");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    spec["volumes"] = json!([{"name": "m", "configMap": {"name": "late"}}]);
    world.run("waits", spec).await;
    world.event("waits", "FailedMount MountVolume.SetUp failed for volume \"m\" : configmap \"late\" not found").await;
    let pod = world.until("waits", "creating", |p| waiting(p).0 == "ContainerCreating").await;
    assert_eq!(phase(&pod), "Pending");
    world.create::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"a": "here"}})).await;
    assert_eq!(phase(&world.ended("waits").await), "Succeeded");
    world.finish().await;
}

async fn a_missing_secret_key_is_a_configuration_error(world: World) {
    let mut spec = sh("echo $K");
    spec["containers"][0]["env"] = json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    world.run("unconfigured", spec).await;
    let pod = world.until("unconfigured", "refused", |p| waiting(p).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&pod).1, "secret \"s\" not found");
    world.event("unconfigured", "Error: secret \"s\" not found").await;
    world.create::<Secret>(json!({"metadata": {"name": "s"}, "data": {"k": "eA=="}})).await;
    assert_eq!(phase(&world.ended("unconfigured").await), "Succeeded");
    world.finish().await;
}

async fn a_container_is_restarted_on_failure(world: World) {
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

async fn a_deleted_pod_ends_gracefully(world: World) {
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

async fn a_pre_stop_hook_runs_before_the_end(world: World) {
    let shared = tempfile::tempdir().expect("dir");
    let mut spec = sh("trap 'echo term >> /shared/order; exit 0' TERM; while true; do sleep 0.1; done");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "h", "mountPath": "/shared"}]);
    spec["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /shared/order"]}}});
    spec["volumes"] = json!([{"name": "h", "hostPath": {"path": shared.path(), "type": "Directory"}}]);
    world.run("hooked", spec).await;
    world.running("hooked").await;
    world.delete("hooked").await;
    world.deleted("hooked").await;
    assert_eq!(std::fs::read_to_string(shared.path().join("order")).expect("order"), "hook\nterm\n");
    world.finish().await;
}

async fn an_agent_that_dies_loses_nothing(mut world: World) {
    world.run("survivor", sh("for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.3; done; exit 7")).await;
    world.run("quick", sh("sleep 1; exit 5")).await;
    let before = world.running("survivor").await;
    world.kill_agent();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.start_agent().await;
    let pod = world.ended("survivor").await;
    assert_eq!(exit(&pod), (7, "Error".to_owned()));
    let address = |p: &k8s_openapi::api::core::v1::Pod| p.status.as_ref().and_then(|s| s.pod_ip.clone());
    assert_eq!(address(&pod), address(&before));
    assert_eq!(pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()).map(|c| c[0].restart_count), Some(0));
    let log = world.log(&pod, "c").await;
    assert_eq!(log.lines().count(), 10, "{log}");
    assert_eq!(exit(&world.ended("quick").await), (5, "Error".to_owned()), "ended while no agent was there");
    world.finish().await;
}

async fn an_unknown_image_is_said_with_the_way_out(world: World) {
    world.run("unknown", json!({"containers": [{"name": "c", "image": "example.com/team/app:1"}]})).await;
    let pod = world
        .until("unknown", "refused", |p| matches!(waiting(p).0.as_str(), "ErrImagePull" | "ImagePullBackOff"))
        .await;
    assert!(waiting(&pod).1.contains("firesteel local image add example.com/team/app:1 DIR"), "{:?}", waiting(&pod));
    assert_eq!(phase(&pod), "Pending");
    world.event("unknown", "Error: ErrImagePull").await;
    world.delete("unknown").await;
    world.deleted("unknown").await;
    world.finish().await;
}

async fn a_command_that_does_not_exist_is_a_start_error(world: World) {
    world.run("nocommand", json!({"containers": [{"name": "c", "command": ["no-such-program"]}]})).await;
    let pod = world.ended("nocommand").await;
    assert_eq!((phase(&pod), exit(&pod)), ("Failed", (128, "StartError".to_owned())));
    world.event("nocommand", "executable file not found in $PATH").await;
    world.finish().await;
}

async fn a_service_name_leads_to_its_pods(world: World) {
    let serve = "mkdir -p /w && cd /w && echo found > x && exec python3 -m http.server --bind $IP 8000";
    let mut spec = sh(serve);
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    world.run_labelled("server", json!({"app": "x"}), spec).await;
    world.running("server").await;
    let namespace = world.namespace.clone();
    let fetch = "import sys, time, urllib.request\nfor _ in range(100):\n    try:\n        print(urllib.request.urlopen(sys.argv[1]).read().decode()); break\n    except OSError as e:\n        time.sleep(0.1)\nelse:\n    sys.exit(1)\n";
    world.run("asker", json!({"containers": [{"name": "c", "command": ["python3", "-c", fetch, format!("http://front.{namespace}.svc:8000/x")]}]})).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The Service comes after both pods: their hosts files have to follow.
    world.create::<Service>(json!({"metadata": {"name": "front"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 8000}]}})).await;
    let pod = world.ended("asker").await;
    assert_eq!(phase(&pod), "Succeeded");
    assert!(world.log(&pod, "c").await.contains("found"));
    world.finish().await;
}

async fn memory_beyond_the_limit_kills(world: World) {
    let hog =
        "x = bytearray(300 * 1024 * 1024)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time\ntime.sleep(60)\n";
    world.run("hog", json!({"containers": [{"name": "c", "command": ["python3", "-c", hog], "resources": {"limits": {"memory": "100Mi"}}}]})).await;
    let pod = world.ended("hog").await;
    assert_eq!((phase(&pod), exit(&pod)), ("Failed", (137, "OOMKilled".to_owned())));
    world.finish().await;
}

async fn a_deadline_ends_a_pod(world: World) {
    let mut spec = sh("sleep 100");
    spec["activeDeadlineSeconds"] = json!(2);
    world.run("late", spec).await;
    let pod = world.ended("late").await;
    assert_eq!(phase(&pod), "Failed");
    assert_eq!(pod.status.and_then(|s| s.reason).as_deref(), Some("DeadlineExceeded"));
    world.finish().await;
}

async fn nothing_of_the_host_is_visible(world: World) {
    let data = world.data_dir.display().to_string();
    let script = format!(
        "ls -A /root /home; [ ! -e {data} ] && [ ! -e /etc/shadow ] && [ ! -e /etc/kubernetes ] && ! touch /usr/x 2>/dev/null && [ $(ps ax | wc -l) -lt 8 ]"
    );
    world.run("blind", sh(&script)).await;
    let pod = world.ended("blind").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert_eq!(log, "/home:\n\n/root:\n", "homes are empty");
    world.finish().await;
}

async fn many_short_pods_end_right(world: World) {
    const MANY: usize = 40;
    for n in 0..MANY {
        world
            .run(&format!("short-{n}"), sh(&format!("for i in 1 2 3 4 5; do echo {n}-$i; done; exit {}", n % 3)))
            .await;
    }
    let mut addresses = std::collections::BTreeSet::new();
    for n in 0..MANY {
        let pod = world.ended(&format!("short-{n}")).await;
        assert_eq!(exit(&pod).0, i32::try_from(n % 3).unwrap_or(-1));
        assert_eq!(world.log(&pod, "c").await.lines().count(), 5);
        addresses.insert(pod.status.and_then(|s| s.pod_ip));
    }
    assert_eq!(addresses.len(), MANY, "every pod has an address of its own");
    world.finish().await;
}

async fn sidecars_live_as_long_as_the_rest(world: World) {
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

async fn probes_decide_about_readiness_and_restarts(world: World) {
    let mut spec = sh("sleep 1; touch /tmp/ready; sleep 2; touch /tmp/sick; sleep 60");
    spec["restartPolicy"] = json!("Always");
    spec["terminationGracePeriodSeconds"] = json!(1);
    let probe = |command: &str, failures: u32| json!({"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, "failureThreshold": failures});
    spec["containers"][0]["readinessProbe"] = probe("test -e /tmp/ready", 1);
    spec["containers"][0]["livenessProbe"] = probe("test ! -e /tmp/sick", 2);
    world.run("probed", spec).await;
    let ready = |p: &k8s_openapi::api::core::v1::Pod| {
        p.status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref()?.first().map(|c| (c.ready, c.restart_count)))
            .unwrap_or_default()
    };
    world.until("probed", "running and not ready", |p| phase(p) == "Running" && !ready(p).0).await;
    world.until("probed", "ready", |p| ready(p) == (true, 0)).await;
    world.until("probed", "restarted", |p| ready(p).1 >= 1).await;
    world.event("probed", "Unhealthy Liveness probe failed").await;
    world.delete("probed").await;
    world.deleted("probed").await;
    world.finish().await;
}

async fn an_image_can_be_a_root_file_system(world: World) {
    let root = tempfile::tempdir().expect("dir");
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    small_root(root.path());
    std::fs::write(root.path().join("mark"), "only here\n").expect("a file");
    world.map_image("example.com/small:1", root.path());
    let script = "read line < /mark; echo \"$line\"; (echo changed > /mark) 2> /dev/null; [ ! -e /usr/bin/python3 ] && [ -e /etc/hosts ]";
    let mut spec = sh(script);
    spec["containers"][0]["image"] = json!("example.com/small:1");
    world.run("small", spec).await;
    let pod = world.ended("small").await;
    let log = world.log(&pod, "c").await;
    assert_eq!((phase(&pod), log.as_str()), ("Succeeded", "only here\n"));
    assert_eq!(
        std::fs::read_to_string(root.path().join("mark")).expect("the file"),
        "only here\n",
        "the image stays as it is"
    );
    world.finish().await;
}

/// A root file system with nothing but a shell.
fn small_root(root: &std::path::Path) {
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    let listed = std::process::Command::new("ldd").arg(&shell).output().expect("ldd");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|w| w.starts_with('/')).map(std::path::PathBuf::from);
    let put = |from: &std::path::Path, to: &std::path::Path| {
        let place = root.join(to.strip_prefix("/").expect("an absolute path"));
        std::fs::create_dir_all(place.parent().expect("a parent")).expect("dir");
        std::fs::copy(from, place).expect("a copy");
    };
    put(&shell, std::path::Path::new("/bin/sh"));
    for library in libraries {
        put(&library, &library);
    }
}

async fn a_service_account_reaches_the_api_server(world: World) {
    if !world.real {
        world.create::<ServiceAccount>(json!({"metadata": {"name": "spark"}})).await;
    }
    let ask = r#"
import json, os, ssl, urllib.request
base = "/var/run/secrets/kubernetes.io/serviceaccount/"
token = open(base + "token").read()
context = ssl.create_default_context(cafile=base + "ca.crt")
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
def ask(url):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(url + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, headers)
    return json.load(urllib.request.urlopen(request, context=context))["status"]["userInfo"]["username"]
print(ask("https://%s:%s" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])))
print(open(base + "namespace").read())
if os.getuid() == 0 and open("/proc/self/uid_map").read().split()[1] == "0":
    print(ask("https://kubernetes.default.svc"))
"#;
    let spec = json!({"serviceAccountName": "spark", "automountServiceAccountToken": true, "containers": [{"name": "c", "command": ["python3", "-c", ask]}]});
    world.run("asks", spec).await;
    let pod = world.ended("asks").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    let user = format!("system:serviceaccount:{}:spark", world.namespace);
    assert!(log.starts_with(&format!("{user}\n{}\n", world.namespace)), "{log}");
    world.finish().await;
}

async fn a_claim_is_mounted_from_its_volume(world: World) {
    let disk = tempfile::tempdir().expect("dir");
    let name = format!("disk-{}", world.node);
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let volume = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "", "hostPath": {"path": disk.path()},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": world.namespace, "name": "data"}}});
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).expect("a volume")).await.expect("a volume");
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}});
    let mut spec = sh("echo kept > /data/file");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.create::<PersistentVolumeClaim>(claim).await;
    world.run("claims", spec).await;
    if !world.real {
        // No controller binds it here.
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), &world.namespace);
        world.event("claims", "persistentvolumeclaim \"data\" is not bound").await;
        claims
            .patch_status("data", &PatchParams::default(), &Patch::Merge(json!({"status": {"phase": "Bound"}})))
            .await
            .expect("bound");
    }
    assert_eq!(phase(&world.ended("claims").await), "Succeeded");
    assert_eq!(std::fs::read_to_string(disk.path().join("file")).expect("the file"), "kept\n");
    let _ = volumes.delete(&name, &DeleteParams::default()).await;
    world.finish().await;
}

/// Real API servers ask nodes in SPDY, which ours does not speak yet.
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
        // The server in the pod may not listen yet.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(String::from_utf8_lossy(&answer).ends_with("served\n"), "{}", String::from_utf8_lossy(&answer));
    world.finish().await;
}
