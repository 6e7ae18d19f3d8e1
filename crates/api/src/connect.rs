//! SparkConnect v1alpha1: a Spark Connect server and its executors.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodTemplateSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::spark_application::DynamicAllocation;

/// A server and its executors.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sparkoperator.k8s.io",
    version = "v1alpha1",
    kind = "SparkConnect",
    plural = "sparkconnects",
    singular = "sparkconnect",
    shortname = "sparkconn",
    namespaced,
    status = "SparkConnectStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Spark Connect server with its executors.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Status", "type": "string", "jsonPath": ".status.state"}"#,
    printcolumn = r#"{"name": "PodName", "type": "string", "jsonPath": ".status.server.podName"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SparkConnectSpec {
    /// Spark version of the image.
    pub spark_version: String,
    /// Image of server and executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Hadoop configuration, without the prefix `spark.hadoop.`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hadoop_conf: BTreeMap<String, String>,
    /// Spark configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spark_conf: BTreeMap<String, String>,
    /// The server pod.
    #[serde(default)]
    #[schemars(required)]
    pub server: ServerSpec,
    /// The executor pods.
    #[serde(default)]
    #[schemars(required)]
    pub executor: ConnectExecutorSpec,
    /// Scaling of executors with the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_allocation: Option<DynamicAllocation>,
}

/// The server pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerSpec {
    /// Cores that Spark uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cores: Option<i32>,
    /// Heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub template: Option<PodTemplateSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub service: Option<Service>,
}

/// The executor pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectExecutorSpec {
    /// Cores that Spark uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cores: Option<i32>,
    /// Heap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub template: Option<PodTemplateSpec>,
    /// Number of executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub instances: Option<i32>,
}

/// Address and state of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparkConnectStatus {
    /// `ServerPodReady`: whether the server accepts connections, and if not, why. `SpecAccepted`: false if the
    /// specification cannot work; a running server then keeps its previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// `Provisioning`, `Ready`, `NotReady` or `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The server pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ConnectServerStatus>,
    /// Number of executor pods by phase, in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub executors: BTreeMap<String, i32>,
    /// When the first server was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of the current server pod: 1, 2, … over the life of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// How many servers in a row ended, or were refused by the cluster, before one became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<i32>,
    /// When the next server is started after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_time: Option<Time>,
}

/// The server's pod and service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectServerStatus {
    /// Name of the server pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// Address of the server pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// Name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}
