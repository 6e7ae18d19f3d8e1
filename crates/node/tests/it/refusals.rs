//! Pods that cannot run: reasons and events as a kubelet reports them.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use crate::harness::{World, exit, phase, waiting};
use crate::sh;

pub(crate) async fn a_pod_waits_for_its_config_map(world: World) {
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

pub(crate) async fn a_missing_secret_key_is_a_configuration_error(world: World) {
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

pub(crate) async fn an_unknown_image_is_said_with_the_way_out(world: World) {
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

pub(crate) async fn a_command_that_does_not_exist_is_a_start_error(world: World) {
    world.run("nocommand", json!({"containers": [{"name": "c", "command": ["no-such-program"]}]})).await;
    let pod = world.ended("nocommand").await;
    assert_eq!((phase(&pod), exit(&pod)), ("Failed", (128, "StartError".to_owned())));
    world.event("nocommand", "executable file not found in $PATH").await;
    world.finish().await;
}

/// Everything a pod can refer to that is missing: each waits or fails with a kubelet's message, and is deleted cleanly.
pub(crate) async fn what_is_missing_is_named(world: World) {
    world.create::<ConfigMap>(json!({"metadata": {"name": "m"}, "data": {"a": "A"}})).await;
    world.create::<Secret>(json!({"metadata": {"name": "s"}, "data": {"k": "eA=="}})).await;
    let with_volume = |source: Value| {
        let mut spec = sh("true");
        spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        let mut volume = source;
        volume["name"] = json!("v");
        spec["volumes"] = json!([volume]);
        spec
    };
    let with = |key: &str, value: Value| {
        let mut spec = sh("true");
        spec["containers"][0][key] = value;
        spec
    };
    let mount = |why: &str| format!("FailedMount MountVolume.SetUp failed for volume \"v\" : {why}");
    let failed = |why: &str| format!("Failed Error: {why}");
    let namespace = world.namespace.clone();
    let missing = std::env::temp_dir().join(format!("none-{}", world.node));
    let cases: Vec<(&str, Value, &str, String)> = vec![
        (
            "no-secret",
            with_volume(json!({"secret": {"secretName": "none"}})),
            "ContainerCreating",
            mount("secret \"none\" not found"),
        ),
        (
            "no-map-key",
            with_volume(json!({"configMap": {"name": "m", "items": [{"key": "z", "path": "z"}]}})),
            "ContainerCreating",
            mount("configmap references non-existent config key: z"),
        ),
        (
            "no-secret-key",
            with_volume(json!({"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}})),
            "ContainerCreating",
            mount("references non-existent secret key: z"),
        ),
        (
            "no-projected",
            with_volume(json!({"projected": {"sources": [{"configMap": {"name": "none"}}]}})),
            "ContainerCreating",
            mount("configmap \"none\" not found"),
        ),
        (
            "no-claim",
            with_volume(json!({"persistentVolumeClaim": {"claimName": "none"}})),
            "ContainerCreating",
            mount("failed to fetch PVC from API server: persistentvolumeclaims \"none\" not found"),
        ),
        (
            "no-host-dir",
            with_volume(json!({"hostPath": {"path": missing, "type": "Directory"}})),
            "ContainerCreating",
            mount(&format!("hostPath type check failed: {} is not a directory", missing.display())),
        ),
        (
            "no-env-map",
            with("envFrom", json!([{"configMapRef": {"name": "none"}}])),
            "CreateContainerConfigError",
            failed("configmap \"none\" not found"),
        ),
        (
            "no-env-key",
            with("env", json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "z"}}}])),
            "CreateContainerConfigError",
            failed(&format!("couldn't find key z in ConfigMap {namespace}/m")),
        ),
        (
            "no-image-name",
            with("image", json!("No Such/Name")),
            "InvalidImageName",
            "InspectFailed Failed to apply default image tag \"No Such/Name\": couldn't parse image name".to_owned(),
        ),
        (
            "no-image-here",
            {
                let mut spec = with("image", json!("apache/spark:0.0.1"));
                spec["containers"][0]["imagePullPolicy"] = json!("Never");
                spec
            },
            "ErrImageNeverPull",
            "ErrImageNeverPull Container image \"apache/spark:0.0.1\" is not present with pull policy of Never"
                .to_owned(),
        ),
        (
            "root",
            with("securityContext", json!({"runAsNonRoot": true, "runAsUser": 0})),
            "CreateContainerConfigError",
            failed("container has runAsNonRoot and image will run as root"),
        ),
        (
            "foreign-ns",
            {
                let mut spec = sh("true");
                spec["hostPID"] = json!(true);
                spec
            },
            "CreateContainerConfigError",
            failed("hostPID is not supported by this node"),
        ),
    ];
    for (name, spec, _, _) in &cases {
        world.run(name, spec.clone()).await;
    }
    for (name, _, reason, event) in &cases {
        let pod = world.until(name, reason, |p| waiting(p).0 == *reason).await;
        assert_eq!(phase(&pod), "Pending", "{name}");
        world.event(name, event).await;
        world.delete(name).await;
    }
    for (name, ..) in &cases {
        world.deleted(name).await;
    }
    world.finish().await;
}

/// What an ordinary user's agent does not support is rejected with an event.
pub(crate) async fn what_needs_root_is_refused(world: World) {
    let mut spec = sh("true");
    spec["containers"][0]["securityContext"] = json!({"privileged": true});
    world.run("mighty", spec).await;
    world.event("mighty", "Error: a privileged container needs a node agent that runs as root").await;
    let mut spec = sh("id -u");
    spec["securityContext"] = json!({"runAsUser": 1234, "fsGroup": 99});
    world.run("other-user", spec).await;
    let pod = world.ended("other-user").await;
    assert_eq!(world.log(&pod, "c").await, "1234\n");
    world.event("other-user", "SecurityContextNotApplied fsGroup and supplementalGroups are not applied").await;
    world.finish().await;
}

/// As root, user ids, groups and capabilities are those of the pod.
pub(crate) async fn the_security_context_is_applied(world: World) {
    let mut spec = sh("id -u; id -g; id -G; stat -c '%g %a' /v; grep CapBnd /proc/self/status");
    spec["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 77, "fsGroup": 99, "supplementalGroups": [88]});
    spec["containers"][0]["securityContext"] = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    world.run("guarded", spec).await;
    let pod = world.ended("guarded").await;
    assert_eq!(world.log(&pod, "c").await, "1234\n77\n77 88 99\n99 2777\nCapBnd:\t0000000000000400\n");
    world.finish().await;
}
