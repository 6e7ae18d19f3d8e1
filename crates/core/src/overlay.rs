//! Typed fields of a role, applied to a pod.
//!
//! The same function serves both roles. For the driver the pod is the finished plan; for executors it is the template
//! that the driver's Spark starts from, so what Spark writes later wins there: [`ineffective_fields`](crate::ineffective_fields) names those fields.

use firesteel_api::names;
use firesteel_api::pod_spec::{NamePath, Port, SparkPodSpec};
use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_api::validate::{LOCAL_DIR_PREFIX, memory_quantity};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EnvVar, Lifecycle, Pod, PodSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::identity::bounded_name;
use crate::monitoring::Monitoring;

pub use firesteel_api::names::{DRIVER_CONTAINERS, EXECUTOR_CONTAINERS};

pub(crate) const SPARK_CONF_DIR: &str = "/etc/spark/conf";
const HADOOP_CONF_DIR: &str = "/etc/hadoop/conf";

/// One role of an application.
#[derive(Debug, Clone, Copy)]
pub struct RoleSpec<'a> {
    pub spec: &'a SparkApplicationSpec,
    pub pod: &'a SparkPodSpec,
    pub lifecycle: Option<&'a Lifecycle>,
    pub ports: &'a [Port],
    pub priority_class: Option<&'a str>,
    pub monitoring: Option<&'a Monitoring>,
}

impl<'a> RoleSpec<'a> {
    pub fn driver(spec: &'a SparkApplicationSpec, monitoring: Option<&'a Monitoring>) -> Self {
        let driver = &spec.driver;
        RoleSpec {
            spec,
            pod: &driver.pod,
            lifecycle: driver.lifecycle.as_ref(),
            ports: &driver.ports,
            priority_class: driver.priority_class_name.as_deref(),
            monitoring: monitoring.filter(|m| m.driver),
        }
    }

    pub fn executor(spec: &'a SparkApplicationSpec, monitoring: Option<&'a Monitoring>) -> Self {
        let executor = &spec.executor;
        RoleSpec {
            spec,
            pod: &executor.pod,
            lifecycle: executor.lifecycle.as_ref(),
            ports: &executor.ports,
            priority_class: executor.priority_class_name.as_deref(),
            monitoring: monitoring.filter(|m| m.executor),
        }
    }
}

/// Applies every typed field to a pod whose Spark container is named `main`.
pub fn apply(pod: &mut Pod, main: &str, role: &RoleSpec<'_>) {
    pod.metadata
        .annotations
        .get_or_insert_default()
        .insert(names::ANNOTATION_DEFAULT_CONTAINER.to_owned(), main.to_owned());
    let spec = pod.spec.get_or_insert_default();
    // Thousands of Services in a namespace would otherwise become environment variables of every container, more than a
    // process can start with.
    spec.enable_service_links = Some(false);
    placement(spec, role);
    identity(spec, role);
    network(spec, role);
    volumes(spec, main, role);
    environment(spec, main, role);
    limits(spec, main, role);
    if let Some(container) = find(spec, main) {
        if let Some(context) = &role.pod.security_context {
            container.security_context = Some(context.clone());
        }
        if let Some(lifecycle) = role.lifecycle {
            container.lifecycle = Some(lifecycle.clone());
        }
        ports(container, role);
    }
    others(spec, role);
}

fn find<'a>(spec: &'a mut PodSpec, main: &str) -> Option<&'a mut Container> {
    spec.containers.iter_mut().find(|c| c.name == main)
}

/// Where the pod may run.
fn placement(spec: &mut PodSpec, role: &RoleSpec<'_>) {
    let pod = role.pod;
    if let Some(affinity) = &pod.affinity {
        spec.affinity = Some(affinity.clone());
    }
    append(&mut spec.tolerations, &pod.tolerations);
    if !pod.node_selector.is_empty() {
        spec.node_selector.get_or_insert_default().extend(pod.node_selector.clone());
    }
    if let Some(scheduler) = &pod.scheduler_name {
        spec.scheduler_name = Some(scheduler.clone());
    }
    if let Some(class) = role.priority_class {
        spec.priority_class_name = Some(class.to_owned());
        // Admission derives both from the class and refuses other values.
        spec.priority = None;
        spec.preemption_policy = None;
    }
}

fn identity(spec: &mut PodSpec, role: &RoleSpec<'_>) {
    let pod = role.pod;
    if let Some(context) = &pod.pod_security_context {
        spec.security_context = Some(context.clone());
    }
    if let Some(seconds) = pod.termination_grace_period_seconds {
        spec.termination_grace_period_seconds = Some(seconds);
    }
    if pod.share_process_namespace == Some(true) {
        spec.share_process_namespace = Some(true);
    }
}

fn network(spec: &mut PodSpec, role: &RoleSpec<'_>) {
    let pod = role.pod;
    if pod.host_network == Some(true) {
        spec.host_network = Some(true);
        // Without it a pod on the host's network could not resolve the driver's service.
        spec.dns_policy = Some("ClusterFirstWithHostNet".to_owned());
    }
    if let Some(dns) = &pod.dns_config {
        spec.dns_config = Some(dns.clone());
    }
    append(&mut spec.host_aliases, &pod.host_aliases);
}

fn volumes(spec: &mut PodSpec, main: &str, role: &RoleSpec<'_>) {
    let mut mounts: Vec<VolumeMount> = Vec::new();
    for mount in role.pod.volume_mounts.iter().filter(|m| !m.name.starts_with(LOCAL_DIR_PREFIX)) {
        if let Some(volume) = role.spec.volumes.iter().find(|v| v.name == mount.name) {
            add_volume(spec, volume.clone());
        }
        mounts.push(mount.clone());
    }
    // Sidecars and init containers may mount volumes that Spark's container does not.
    for container in role.pod.sidecars.iter().chain(&role.pod.init_containers) {
        for mount in container.volume_mounts.iter().flatten() {
            if let Some(volume) = role.spec.volumes.iter().find(|v| v.name == mount.name) {
                add_volume(spec, volume.clone());
            }
        }
    }
    for map in &role.pod.config_maps {
        let name = volume_name(map);
        add_volume(spec, config_map(&name, &map.name));
        mounts.push(read_only(&name, &map.path));
    }
    if let Some(map) = &role.spec.spark_config_map {
        add_volume(spec, config_map("spark-configmap-volume", map));
        mounts.push(read_only("spark-configmap-volume", SPARK_CONF_DIR));
    }
    if let Some(map) = &role.spec.hadoop_config_map {
        add_volume(spec, config_map("hadoop-configmap-volume", map));
        mounts.push(read_only("hadoop-configmap-volume", HADOOP_CONF_DIR));
    }
    if let Some(map) = role.monitoring.and_then(|m| m.config_map.as_ref()) {
        let name = map.metadata.name.as_deref().unwrap_or_default();
        add_volume(spec, config_map("prometheus-config-volume", name));
        mounts.push(read_only("prometheus-config-volume", crate::monitoring::MOUNT_PATH));
    }
    if let Some(container) = find(spec, main) {
        let present = container.volume_mounts.get_or_insert_default();
        for mount in mounts {
            present.retain(|m| m.mount_path != mount.mount_path);
            present.push(mount);
        }
        if present.is_empty() {
            container.volume_mounts = None;
        }
    }
}

/// The name of the volume for an entry of `configMaps`.
pub(crate) fn volume_name(map: &NamePath) -> String {
    bounded_name(&format!("{}-vol", map.name.replace('.', "-")), 63)
}

fn environment(spec: &mut PodSpec, main: &str, role: &RoleSpec<'_>) {
    let Some(container) = find(spec, main) else { return };
    let literal =
        |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), ..EnvVar::default() };
    let mut variables = Vec::new();
    if role.spec.spark_config_map.is_some() {
        variables.push(literal("SPARK_CONF_DIR", SPARK_CONF_DIR));
    }
    if role.spec.hadoop_config_map.is_some() {
        variables.push(literal("HADOOP_CONF_DIR", HADOOP_CONF_DIR));
    }
    variables.extend(role.pod.env.iter().cloned());
    if !variables.is_empty() {
        let present = container.env.get_or_insert_default();
        for variable in variables {
            present.retain(|v| v.name != variable.name);
            present.push(variable);
        }
    }
    append(&mut container.env_from, &role.pod.env_from);
}

fn limits(spec: &mut PodSpec, main: &str, role: &RoleSpec<'_>) {
    let Some(container) = find(spec, main) else { return };
    let memory = role.pod.memory_limit.as_deref().and_then(memory_quantity);
    if memory.is_none() && role.pod.gpu.is_none() {
        return;
    }
    let limits = container.resources.get_or_insert_default().limits.get_or_insert_default();
    if let Some(memory) = memory {
        limits.insert("memory".to_owned(), Quantity(memory));
    }
    if let Some(gpu) = &role.pod.gpu {
        limits.insert(gpu.name.clone(), Quantity(gpu.quantity.to_string()));
    }
}

fn ports(container: &mut Container, role: &RoleSpec<'_>) {
    let typed = role.ports.iter().map(|p| (p.name.as_str(), p.protocol.as_str(), p.container_port));
    let metrics = role.monitoring.and_then(|m| m.port.as_ref()).map(|(name, port)| (name.as_str(), "TCP", *port));
    let mut ports = typed.chain(metrics).peekable();
    if ports.peek().is_none() {
        return;
    }
    let present = container.ports.get_or_insert_default();
    for (name, protocol, port) in ports {
        present.retain(|p| p.name.as_deref() != Some(name));
        present.push(ContainerPort {
            name: Some(name.to_owned()).filter(|n| !n.is_empty()),
            protocol: Some(protocol.to_owned()).filter(|p| !p.is_empty()),
            container_port: port,
            ..ContainerPort::default()
        });
    }
}

/// Appends sidecars and init containers. Existing ones of the same name are replaced.
fn others(spec: &mut PodSpec, role: &RoleSpec<'_>) {
    for sidecar in &role.pod.sidecars {
        spec.containers.retain(|c| c.name != sidecar.name);
        spec.containers.push(sidecar.clone());
    }
    if !role.pod.init_containers.is_empty() {
        let present = spec.init_containers.get_or_insert_default();
        for container in &role.pod.init_containers {
            present.retain(|c| c.name != container.name);
            present.push(container.clone());
        }
    }
}

fn append<T: Clone + PartialEq>(list: &mut Option<Vec<T>>, more: &[T]) {
    if more.is_empty() {
        return;
    }
    let list = list.get_or_insert_default();
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn add_volume(spec: &mut PodSpec, volume: Volume) {
    let volumes = spec.volumes.get_or_insert_default();
    volumes.retain(|v| v.name != volume.name);
    volumes.push(volume);
}

fn config_map(volume: &str, name: &str) -> Volume {
    Volume {
        name: volume.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    }
}

fn read_only(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}
