//! The fields of a SparkApplication for its driver and executor pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvFromSource, EnvVar, HostAlias, Lifecycle, PodDNSConfig, PodSecurityContext,
    PodTemplateSpec, SecurityContext, Toleration, VolumeMount,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Fields that driver and executors share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparkPodSpec {
    /// A pod template; the typed fields below are merged over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub template: Option<PodTemplateSpec>,
    /// Cores that Spark uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cores: Option<i32>,
    /// CPU limit of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_limit: Option<String>,
    /// Heap, in Java notation (`512m`, `2g`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Memory limit of the container, if it differs from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<String>,
    /// Memory in addition to the heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_overhead: Option<String>,
    /// GPUs of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSpec>,
    /// Image, in place of `spec.image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// ConfigMaps to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<NamePath>,
    /// Secrets to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretInfo>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub env: Vec<EnvVar>,
    /// Environment variables by name; superseded by `env`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    /// Sources of environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub env_from: Vec<EnvFromSource>,
    /// Environment variables from secrets; superseded by `env`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env_secret_key_refs: BTreeMap<String, NameKey>,
    /// Labels of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Mounts of `spec.volumes`. Names that start with `spark-local-dir-` become Spark's scratch space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Affinity of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub affinity: Option<Affinity>,
    /// Tolerations of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub tolerations: Vec<Toleration>,
    /// Security context of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub pod_security_context: Option<PodSecurityContext>,
    /// Security context of the Spark container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub security_context: Option<SecurityContext>,
    /// Scheduler of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// Containers in addition to Spark's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub sidecars: Vec<Container>,
    /// Containers that run before Spark's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub init_containers: Vec<Container>,
    /// Whether the pod uses its node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Node labels the pod requires; cannot be combined with `spec.nodeSelector`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// DNS settings of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub dns_config: Option<PodDNSConfig>,
    /// Grace period of the pod, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Service account of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Entries for `/etc/hosts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub host_aliases: Vec<HostAlias>,
    /// Whether containers of the pod see each other's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_process_namespace: Option<bool>,
}

/// The driver pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverSpec {
    #[serde(flatten)]
    pub pod: SparkPodSpec,
    /// Name of the driver pod, `<application>-driver` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"))]
    pub pod_name: Option<String>,
    /// CPU request of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_request: Option<String>,
    /// Options for the driver's JVM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub java_options: Option<String>,
    /// Hooks of the Spark container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub lifecycle: Option<Lifecycle>,
    /// API server the driver talks to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_master: Option<String>,
    /// Annotations of the driver's service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// Labels of the driver's service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_labels: BTreeMap<String, String>,
    /// Ports of the container in addition to Spark's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Priority class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// The executor pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorSpec {
    #[serde(flatten)]
    pub pod: SparkPodSpec,
    /// Number of executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub instances: Option<i32>,
    /// CPU request of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_request: Option<String>,
    /// Options for the executors' JVM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub java_options: Option<String>,
    /// Hooks of the Spark container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub lifecycle: Option<Lifecycle>,
    /// Whether Spark deletes executor pods that have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Ports of the container in addition to Spark's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Priority class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

/// GPUs, by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSpec {
    /// The resource, such as `nvidia.com/gpu`.
    pub name: String,
    /// How many.
    pub quantity: i64,
}

/// A ConfigMap and where it is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamePath {
    /// Name of the object.
    pub name: String,
    /// Where it is mounted.
    pub path: String,
}

/// A secret, where it is mounted, and what it is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Name of the object.
    pub name: String,
    /// Where it is mounted.
    pub path: String,
    /// `GCPServiceAccount`, `HadoopDelegationToken` or `Generic`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret_type: String,
}

/// One key of a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameKey {
    /// Name of the object.
    pub name: String,
    /// Key in the object.
    pub key: String,
}

/// A port of the Spark container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name of the object.
    pub name: String,
    pub protocol: String,
    pub container_port: i32,
}
