//! Volumes of every kind, as a container sees them.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{World, phase};
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

/// projected, hostPath of several types, subPathExpr, read-only mounts and a read-only root.
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

/// ConfigMaps, Secrets, labels: what changes is seen in a running container, all at once.
pub(crate) async fn changes_reach_running_containers(world: World) {
    world.create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "old", "b": "old"}})).await;
    world.create::<Secret>(json!({"metadata": {"name": "s"}, "data": {"k": "b2xk"}})).await;
    // Both values of the ConfigMap are read through one directory: they must never differ.
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

/// A volume that uses more than it may ends its pod.
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
