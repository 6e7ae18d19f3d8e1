//! Volumes of every kind, as a container sees them.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{Cluster, World, phase};
use crate::sh;

pub(crate) async fn volumes_and_variables_are_as_declared(world: World) {
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

pub(crate) async fn a_claim_is_mounted_from_its_volume(world: World) {
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

/// Projected volumes, hostPath types, subPathExpr, read-only mounts and a read-only root.
pub(crate) async fn other_volumes_are_as_declared(world: World) {
    let host = tempfile::tempdir().expect("dir");
    std::fs::set_permissions(host.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("mode");
    std::fs::write(host.path().join("file"), "of the host\n").expect("file");
    world
        .create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "A"}, "binaryData": {"bin": "AAE="}}))
        .await;
    world.create::<Secret>(json!({"metadata": {"name": "s"}, "data": {"k": "aGlkZGVu"}})).await;
    let script = "set -e; cat /p/a; cat /p/sub/k; cat /p/name; echo; od -An -tx1 /p/bin; stat -c %a /p/sub/k | tail -1; \
                  cat /h/file; echo made > /h/made; cat /f; echo expr > /e/x; ls /all; ! touch /ro/x 2>/dev/null; ! touch /x 2>/dev/null; ! touch /tmp/x 2>/dev/null; touch /e/y; echo end";
    let spec = json!({
        "containers": [{"name": "c", "command": ["sh", "-c", script], "securityContext": {"readOnlyRootFilesystem": true},
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "volumeMounts": [
                {"name": "p", "mountPath": "/p"}, {"name": "h", "mountPath": "/h"}, {"name": "f", "mountPath": "/f"},
                {"name": "scratch", "mountPath": "/e", "subPathExpr": "of-$(POD)"}, {"name": "scratch", "mountPath": "/all"},
                {"name": "scratch", "mountPath": "/ro", "readOnly": true}]}],
        "volumes": [
            {"name": "p", "projected": {"defaultMode": 0o440, "sources": [
                {"configMap": {"name": "m"}},
                {"secret": {"name": "s", "items": [{"key": "k", "path": "sub/k", "mode": 0o400}]}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
            {"name": "h", "hostPath": {"path": host.path(), "type": "Directory"}},
            {"name": "f", "hostPath": {"path": host.path().join("file"), "type": "File"}},
            {"name": "scratch", "emptyDir": {}}]
    });
    world.run("others", spec).await;
    let pod = world.ended("others").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert_eq!(log, "Ahiddenothers\n 00 01\n400\nof the host\nof the host\nof-others\nend\n");
    assert_eq!(std::fs::read_to_string(host.path().join("made")).expect("a file"), "made\n");
    world.finish().await;
}

/// Changes of ConfigMaps, Secrets and labels reach a running container atomically.
pub(crate) async fn changes_reach_running_containers(world: World) {
    world.create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "old", "b": "old"}})).await;
    world.create::<Secret>(json!({"metadata": {"name": "s"}, "data": {"k": "b2xk"}})).await;
    // Both values are read through one directory and must never differ.
    let script = "while true; do d=$(readlink -f /m/..data); a=$(cat $d/a 2>/dev/null); b=$(cat $d/b 2>/dev/null); \
                  [ -n \"$a\" ] && [ -n \"$b\" ] && [ \"$a\" != \"$b\" ] && echo torn && exit 1; \
                  [ \"$(cat /m/a)$(cat /s/k)$(cat /p/a)\" = newnewnew ] && grep -q fresh /d/labels && [ -e /late/x ] && break; sleep 0.05; done; \
                  cat /sub; ls /m; [ ! -e /m/c ] || exit 2";
    let spec = json!({
        "containers": [{"name": "c", "command": ["sh", "-c", script], "volumeMounts": [
            {"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s"}, {"name": "p", "mountPath": "/p"},
            {"name": "d", "mountPath": "/d"}, {"name": "late", "mountPath": "/late"}, {"name": "m", "mountPath": "/sub", "subPath": "a"}]}],
        "volumes": [
            {"name": "m", "configMap": {"name": "m"}}, {"name": "s", "secret": {"secretName": "s"}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "m"}}]}},
            {"name": "late", "configMap": {"name": "late", "optional": true}},
            {"name": "d", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]
    });
    world.run_labelled("watcher", json!({"l": "stale"}), spec).await;
    world.running("watcher").await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let plain = PatchParams::default();
    maps.patch("m", &plain, &Patch::Merge(json!({"data": {"a": "new", "b": "new"}}))).await.expect("a change");
    secrets.patch("s", &plain, &Patch::Merge(json!({"data": {"k": "bmV3"}}))).await.expect("a change");
    world.create::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"x": "here"}})).await;
    let relabel = json!({"metadata": {"labels": {"l": "fresh"}}});
    world.pods().patch("watcher", &plain, &Patch::Merge(relabel)).await.expect("a label");
    let pod = world.ended("watcher").await;
    let log = world.log(&pod, "c").await;
    assert_eq!((phase(&pod), log.as_str()), ("Succeeded", "olda\nb\n"), "a file mounted by subPath stays as it was");
    world.finish().await;
}

/// A volume that exceeds its size limit gets its pod evicted.
pub(crate) async fn a_pod_that_writes_too_much_is_evicted(world: World) {
    let mut spec = sh("head -c 4000000 /dev/zero > /v/big; sleep 300");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]);
    world.run("greedy", spec).await;
    let pod: Pod = world.ended("greedy").await;
    let status = pod.status.clone().unwrap_or_default();
    assert_eq!((phase(&pod), status.reason.as_deref()), ("Failed", Some("Evicted")));
    assert_eq!(status.message.as_deref(), Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "));
    world.event("greedy", "Evicted Usage of EmptyDir volume").await;
    world.finish().await;
}

/// A pod's data on this machine, in memory and on disk, is closed to other users and open to the pod's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_users_of_the_machine_cannot_reach_a_pods_volumes() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new(Cluster::Ours).await.expect("our own cluster");
    // Check only what the agent does itself.
    let above = world.data_dir.parent().expect("a parent");
    std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let root = nix::unistd::Uid::effective().is_root();
    let mut spec = sh("umask 0; for v in memory disk sub; do stat -c %a /$v; echo hidden > /$v/file; done; sleep 300");
    if root {
        spec["containers"][0]["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 1234});
    }
    spec["containers"][0]["volumeMounts"] = json!([
        {"name": "memory", "mountPath": "/memory"}, {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/sub", "subPath": "deep/sub"}]);
    spec["volumes"] = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}, {"name": "disk", "emptyDir": {}}]);
    world.run("keeper", spec).await;
    let pod = world.running("keeper").await;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let memory = std::path::PathBuf::from(format!("/dev/shm/firesteel-{uid}"));
    let disk = world.data_dir.join("pods").join(&uid).join("volumes/disk");
    let files = [memory.join("memory/file"), disk.join("file"), disk.join("deep/sub/file")];
    for _ in 0..100 {
        if files.iter().all(|f| f.exists()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(world.log(&pod, "c").await, "777\n777\n777\n", "a container sees the modes a kubelet gives");
    for (path, file) in [&memory, &world.data_dir, &world.data_dir].into_iter().zip(&files) {
        assert_eq!(std::fs::read_to_string(file).expect("written by the pod"), "hidden\n");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o700, "{}", path.display());
        if root {
            let mut reader = std::process::Command::new("cat");
            std::os::unix::process::CommandExt::uid(&mut reader, 65534);
            let read = std::os::unix::process::CommandExt::gid(&mut reader, 65534).arg(file).output().expect("cat");
            let said = String::from_utf8_lossy(&read.stderr);
            assert!(!read.status.success() && said.contains("Permission denied"), "{}: {read:?}", file.display());
        }
    }
    world.finish().await;
}

/// Swaps a subPath for a symlink out of the volume and back, while containers that mount it start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sub_path_swapped_for_a_link_never_leads_out_of_its_volume() {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::sync::atomic::{AtomicBool, Ordering};
    const CONTAINERS: usize = 16;
    let world = World::new(Cluster::Ours).await.expect("our own cluster");
    let place = tempfile::tempdir().expect("dir");
    let (volume, outside) = (place.path().join("volume"), place.path().join("outside"));
    for (dir, file) in [(volume.join("part"), "inside"), (outside.clone(), "secret")] {
        std::fs::create_dir_all(&dir).expect("dir");
        std::fs::write(dir.join(file), "").expect("file");
    }
    std::os::unix::fs::symlink(&outside, volume.join("link")).expect("link");
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (over, one, other) = (over.clone(), volume.join("part"), volume.join("link"));
        move || {
            while !over.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).expect("swapped");
            }
            if one.is_symlink() {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).expect("swapped");
            }
        }
    });
    let container = |number: usize| {
        json!({"name": format!("c{number}"), "image": "busybox", "command": ["ls", "/part"],
               "volumeMounts": [{"name": "v", "mountPath": "/part", "subPath": "part"}]})
    };
    let containers: Vec<_> = (0..CONTAINERS).map(container).collect();
    world
        .run("swapped", json!({"containers": containers, "volumes": [{"name": "v", "hostPath": {"path": volume}}]}))
        .await;
    // Long enough for every container to have been tried.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    over.store(true, Ordering::Relaxed);
    swapping.join().expect("the swapping ends");
    let pod = world.ended("swapped").await;
    let mut inside = 0;
    for number in 0..CONTAINERS {
        let parameters =
            kube::api::LogParams { container: Some(format!("c{number}")), ..kube::api::LogParams::default() };
        let log = world.pods().logs("swapped", &parameters).await.unwrap_or_default();
        assert!(!log.contains("secret"), "a container saw what is outside: {:?}", pod.status);
        inside += usize::from(log == "inside\n");
    }
    assert!(inside > 0, "at least those that start last see the volume: {:?}", pod.status);
    world.finish().await;
}
