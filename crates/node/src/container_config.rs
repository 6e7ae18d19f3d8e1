//! Builds the [`ContainerConfig`] for a container from its pod and image. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::environment::{self, PodFacts};
use crate::hosts;
use crate::names::DRIVER_MASTER_ENV;
use crate::objects::Objects;
use crate::runtime::Image;
use crate::security;
use crate::shim_protocol::{ContainerConfig, Mount, PodDir, Root, User};
use crate::volumes;

/// What all containers of a node have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeEnvironment {
    pub(crate) facts: PodFacts,
    pub(crate) api_host: String,
    pub(crate) api_port: u16,
    pub(crate) driver_master: Option<String>,
    /// Environment variables for the Services in the namespace.
    pub(crate) links: Vec<(String, String)>,
    /// The agent is root, so containers can have their own users and capabilities.
    pub(crate) root: bool,
}

/// Why a container cannot be configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContainerConfigError {
    #[error(transparent)]
    Environment(#[from] environment::EnvError),
    #[error(transparent)]
    Volume(#[from] volumes::VolumeError),
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    RunsAsRoot { pod: String, container: String },
    #[error("no command specified")]
    NoCommand,
    #[error(transparent)]
    Refused(#[from] security::UnsupportedSecurityContext),
}

/// What the agent has prepared for a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub(crate) image: &'a Image,
    pub(crate) around: &'a NodeEnvironment,
    pub(crate) objects: &'a Objects,
    /// Volume paths on the host, by volume name.
    pub(crate) sources: &'a BTreeMap<String, PathBuf>,
    pub(crate) dir: &'a PodDir,
}

/// Builds the configuration for one start of a container.
pub(crate) fn launch(
    pod: &Pod,
    container: &Container,
    attempt: u32,
    prepared: Prepared<'_>,
) -> Result<ContainerConfig, ContainerConfigError> {
    let Prepared { image, around, objects, sources, dir } = prepared;
    let hostname = hosts::hostname(pod);
    security::check(pod, container, around.root)?;
    let user = user_of(pod, container, image)?;
    let mut base = base_environment(image, around, &hostname, &user);
    if container.tty == Some(true) {
        base.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    let env = environment::variables(pod, container, &base, &around.facts, objects)?;
    let argv = environment::command(container, &image.entrypoint, &image.arguments, &env);
    if argv.is_empty() {
        return Err(ContainerConfigError::NoCommand);
    }
    let mut mounts = image.mounts.clone();
    mounts.push(Mount { source: dir.hosts(), volume: None, target: "/etc/hosts".to_owned(), read_only: false });
    mounts.extend(volumes::mounts(pod, container, &env, sources)?);
    let mut files = image.files.clone();
    if matches!(image.root, Root::Host { .. }) {
        files.extend(identity_files(image, &user, &env));
    }
    let context = container.security_context.as_ref();
    let limit = |name: &str| container.resources.as_ref().and_then(|r| r.limits.as_ref()).and_then(|l| l.get(name));
    let working_dir =
        container.working_dir.clone().filter(|d| !d.is_empty()).unwrap_or_else(|| image.working_dir.clone());
    Ok(ContainerConfig {
        container: container.name.clone(),
        attempt,
        root: image.root.clone(),
        files,
        mounts,
        hostname,
        argv,
        env,
        working_dir: environment::expand(&working_dir, &[]),
        user,
        read_only_root: context.and_then(|s| s.read_only_root_filesystem) == Some(true),
        privileged: context.and_then(|s| s.privileged) == Some(true),
        capabilities: security::capabilities(container),
        memory_limit: limit("memory").and_then(firesteel_quantity::whole).filter(|b| *b > 0),
        cpu_limit: limit("cpu").and_then(firesteel_quantity::milli).filter(|m| *m > 0),
        termination_message_path: container
            .termination_message_path
            .clone()
            .filter(|p| !p.is_empty())
            .unwrap_or_else(|| "/dev/termination-log".to_owned()),
        message_from_log: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        scratch: dir.scratch(&container.name, attempt),
        log: dir.log(&container.name, attempt),
    })
}

fn user_of(pod: &Pod, container: &Container, image: &Image) -> Result<User, ContainerConfigError> {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let of_container = container.security_context.as_ref();
    let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX - 1);
    let uid =
        of_container.and_then(|s| s.run_as_user).or(of_pod.and_then(|s| s.run_as_user)).map_or(image.user.uid, number);
    let gid = of_container
        .and_then(|s| s.run_as_group)
        .or(of_pod.and_then(|s| s.run_as_group))
        .map_or(if uid == image.user.uid { image.user.gid } else { 0 }, number);
    let must_not =
        of_container.and_then(|s| s.run_as_non_root).or(of_pod.and_then(|s| s.run_as_non_root)) == Some(true);
    if must_not && uid == 0 {
        return Err(ContainerConfigError::RunsAsRoot {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            container: container.name.clone(),
        });
    }
    let extra =
        of_pod.into_iter().flat_map(|s| s.supplemental_groups.iter().flatten().copied().chain(s.fs_group)).map(number);
    Ok(User { uid, gid, groups: extra.collect() })
}

fn base_environment(image: &Image, around: &NodeEnvironment, hostname: &str, user: &User) -> Vec<(String, String)> {
    let mut all = image.env.clone();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add("HOSTNAME", hostname.to_owned());
    add("HOME", home_of(image, user));
    add("KUBERNETES_SERVICE_HOST", around.api_host.clone());
    add("KUBERNETES_SERVICE_PORT", around.api_port.to_string());
    add("KUBERNETES_SERVICE_PORT_HTTPS", around.api_port.to_string());
    let (host, port) = (&around.api_host, around.api_port);
    add("KUBERNETES_PORT", format!("tcp://{host}:{port}"));
    add(&format!("KUBERNETES_PORT_{port}_TCP"), format!("tcp://{host}:{port}"));
    add(&format!("KUBERNETES_PORT_{port}_TCP_PROTO"), "tcp".to_owned());
    add(&format!("KUBERNETES_PORT_{port}_TCP_PORT"), port.to_string());
    add(&format!("KUBERNETES_PORT_{port}_TCP_ADDR"), host.clone());
    for (name, value) in &around.links {
        add(name, value.clone());
    }
    if image.spark {
        // Otherwise the web UI binds all addresses, and a second driver's moves to another port.
        add("SPARK_LOCAL_IP", around.facts.pod_ip.clone());
        if let Some(master) = &around.driver_master {
            add(DRIVER_MASTER_ENV, master.clone());
        }
    }
    all
}

/// The home directory, read from the image's passwd file as container runtimes do. A Spark image belongs to the container's user.
fn home_of(image: &Image, user: &User) -> String {
    match user.uid {
        uid if uid == image.user.uid => image.home.clone(),
        0 => "/root".to_owned(),
        _ if image.spark && matches!(image.root, Root::Host { .. }) => image.home.clone(),
        _ => "/".to_owned(),
    }
}

/// passwd and group files for a container that uses the host's programs but not its users.
fn identity_files(image: &Image, user: &User, env: &[(String, String)]) -> Vec<(String, String)> {
    let mut passwd =
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n".to_owned();
    let mut group = "root:x:0:\nnogroup:x:65534:\n".to_owned();
    if user.uid != 0 && user.uid != 65534 {
        let named = env.iter().find(|(k, _)| k == "SPARK_USER_NAME").map(|(_, v)| v.clone()).filter(|v| !v.is_empty());
        let name = named.unwrap_or_else(|| if image.spark { "spark".to_owned() } else { format!("user{}", user.uid) });
        let name: String = name.chars().filter(|c| !c.is_control() && *c != ':').collect();
        passwd.push_str(&format!("{name}:x:{}:{}:{name}:{}:/bin/bash\n", user.uid, user.gid, image.home));
    }
    for gid in [user.gid].iter().chain(&user.groups).filter(|g| **g != 0 && **g != 65534) {
        group.push_str(&format!("group{gid}:x:{gid}:\n"));
    }
    let names = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n".to_owned();
    vec![("/etc/passwd".to_owned(), passwd), ("/etc/group".to_owned(), group), ("/etc/nsswitch.conf".to_owned(), names)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn image(spark: bool) -> Image {
        Image {
            id: "i".to_owned(),
            root: Root::Host { overlays: Vec::new() },
            files: Vec::new(),
            mounts: Vec::new(),
            env: vec![("PATH".to_owned(), "/bin".to_owned())],
            entrypoint: vec!["/opt/entrypoint.sh".to_owned()],
            arguments: Vec::new(),
            working_dir: "/w".to_owned(),
            user: User { uid: 185, gid: 185, groups: Vec::new() },
            home: "/opt/spark".to_owned(),
            spark,
        }
    }

    fn pod(container: serde_json::Value, spec: serde_json::Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = serde_json::Value::Array(vec![container]);
        serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}))
            .expect("a pod")
    }

    fn launched(pod: &Pod, spark: bool) -> Result<ContainerConfig, ContainerConfigError> {
        let around = NodeEnvironment {
            driver_master: Some("https://kubernetes.default.svc:6443".to_owned()),
            ..NodeEnvironment::default()
        };
        let dir = PodDir::new(Path::new("/data"), "u");
        let prepared = Prepared {
            image: &image(spark),
            around: &around,
            objects: &Objects::default(),
            sources: &BTreeMap::new(),
            dir: &dir,
        };
        launch(pod, &pod.spec.as_ref().expect("spec").containers[0], 0, prepared)
    }

    #[test]
    fn spark_is_told_its_address_and_the_way_to_the_api_server() {
        let pod = pod(serde_json::json!({"name": "c", "args": ["driver"]}), serde_json::json!({}));
        let with = launched(&pod, true).expect("a launch");
        assert!(with.env.iter().any(|(k, _)| k == "SPARK_LOCAL_IP"));
        assert!(
            with.env
                .contains(&("FIRESTEEL_DRIVER_MASTER".to_owned(), "https://kubernetes.default.svc:6443".to_owned()))
        );
        assert_eq!(with.argv, ["/opt/entrypoint.sh", "driver"]);
        let without = launched(&pod, false).expect("a launch");
        assert!(!without.env.iter().any(|(k, _)| k == "SPARK_LOCAL_IP"));
    }

    #[test]
    fn home_is_where_the_containers_user_can_write() {
        let home = |uid: u32, spark: bool| {
            let container = serde_json::json!({"name": "c", "securityContext": {"runAsUser": uid}});
            let launch = launched(&pod(container, serde_json::json!({})), spark).expect("a launch");
            launch.env.iter().find(|(name, _)| name == "HOME").map(|(_, value)| value.clone()).unwrap_or_default()
        };
        assert_eq!([home(185, true), home(0, true), home(1000, true)], ["/opt/spark", "/root", "/opt/spark"]);
        assert_eq!(home(1000, false), "/");
    }

    #[test]
    fn the_security_context_of_the_container_goes_before_the_pods() {
        let spec = serde_json::json!({"securityContext": {"runAsUser": 1000, "fsGroup": 7, "supplementalGroups": [8]}});
        let launch =
            launched(&pod(serde_json::json!({"name": "c", "securityContext": {"runAsGroup": 9}}), spec.clone()), false)
                .expect("a launch");
        assert_eq!(launch.user, User { uid: 1000, gid: 9, groups: vec![8, 7] });
        let refused = launched(
            &pod(serde_json::json!({"name": "c", "securityContext": {"runAsUser": 0, "runAsNonRoot": true}}), spec),
            false,
        );
        assert!(matches!(refused, Err(ContainerConfigError::RunsAsRoot { .. })));
    }
}
