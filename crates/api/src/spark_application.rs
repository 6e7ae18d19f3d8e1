//! SparkApplication v1beta2.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pod_spec::{DriverSpec, ExecutorSpec};
use crate::schema;

/// What to run and how.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sparkoperator.k8s.io",
    version = "v1beta2",
    kind = "SparkApplication",
    plural = "sparkapplications",
    singular = "sparkapplication",
    shortname = "sparkapp",
    namespaced,
    status = "SparkApplicationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Spark application: one run of a program, with retries.",
    printcolumn = r#"{"name": "Suspend", "type": "boolean", "jsonPath": ".spec.suspend"}"#,
    printcolumn = r#"{"name": "Status", "type": "string", "jsonPath": ".status.applicationState.state"}"#,
    printcolumn = r#"{"name": "Attempts", "type": "string", "jsonPath": ".status.executionAttempts"}"#,
    printcolumn = r#"{"name": "Start", "type": "string", "jsonPath": ".status.lastSubmissionAttemptTime"}"#,
    printcolumn = r#"{"name": "Finish", "type": "string", "jsonPath": ".status.terminationTime"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct SparkApplicationSpec {
    /// Hold the application, or end its current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Language of the application.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    #[schemars(required, schema_with = "schema::application_type")]
    pub type_: String,
    /// Spark version of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(required)]
    pub spark_version: String,
    /// Deploy mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::deploy_mode")]
    pub mode: Option<String>,
    /// User to impersonate towards Hadoop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_user: Option<String>,
    /// Image for driver and executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `Always`, `Never` or `IfNotPresent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// Class whose `main` runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_class: Option<String>,
    /// Jar, Python or R file, by URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub main_application_file: Option<String>,
    /// Arguments of the application.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Spark configuration; typed fields win over it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spark_conf: BTreeMap<String, String>,
    /// Hadoop configuration, without the prefix `spark.hadoop.`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hadoop_conf: BTreeMap<String, String>,
    /// ConfigMap with Spark's configuration files, mounted at /etc/spark/conf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spark_config_map: Option<String>,
    /// ConfigMap with Hadoop's configuration files, mounted at /etc/hadoop/conf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hadoop_config_map: Option<String>,
    /// Volumes that `volumeMounts` of driver and executor refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub volumes: Vec<Volume>,
    #[serde(default)]
    #[schemars(required)]
    pub driver: DriverSpec,
    #[serde(default)]
    #[schemars(required)]
    pub executor: ExecutorSpec,
    /// Files the application needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deps: Option<Dependencies>,
    /// When to run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// Node labels that driver and executors require.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Has no effect; see `restartPolicy.onFailureRetries`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_retries: Option<i32>,
    /// Has no effect; see `restartPolicy.onFailureRetryInterval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_interval: Option<i64>,
    /// Major version of Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::python_version")]
    pub python_version: Option<String>,
    /// Fraction of the heap added as memory overhead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_overhead_factor: Option<String>,
    /// Metrics of driver and executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<MonitoringSpec>,
    /// Batch scheduler for the pods. Pod groups and queues are not created yet, so an application with one ends in FAILED; use `schedulerName` of driver and executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_scheduler: Option<String>,
    /// Delete the application this many seconds after it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_live_seconds: Option<i64>,
    /// Queue and resources for the gang scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_scheduler_options: Option<BatchSchedulerConfiguration>,
    /// The Service and Ingress of the driver's web UI.
    #[serde(rename = "sparkUIOptions", default, skip_serializing_if = "Option::is_none")]
    pub spark_ui_options: Option<SparkUiConfiguration>,
    /// Services and Ingresses for additional driver ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver_ingress_options: Vec<DriverIngressConfiguration>,
    /// Scaling of executors with the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_allocation: Option<DynamicAllocation>,
    /// Protect the driver pod from voluntary disruptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_pod_disruption_budget: Option<bool>,
}

/// When an application runs again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartPolicy {
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::restart_policy")]
    pub type_: Option<String>,
    /// How often a refused submission is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub on_submission_failure_retries: Option<i32>,
    /// How often a failed run is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub on_failure_retries: Option<i32>,
    /// Seconds; the n-th retry waits n times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub on_submission_failure_retry_interval: Option<i64>,
    /// Seconds; the n-th retry waits n times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub on_failure_retry_interval: Option<i64>,
}

/// Files and packages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependencies {
    /// Jars for driver and executors, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jars: Vec<String>,
    /// Files for driver and executors, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Python files for driver and executors, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub py_files: Vec<String>,
    /// Maven coordinates that the driver resolves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// `groupId:artifactId` pairs to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_packages: Vec<String>,
    /// Maven repositories to search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<String>,
    /// Archives to unpack, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archives: Vec<String>,
}

/// Scaling of executors with the load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamicAllocation {
    /// Whether dynamic allocation is on.
    #[serde(default)]
    pub enabled: bool,
    /// Initial number of executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_executors: Option<i32>,
    /// Minimum number of executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_executors: Option<i32>,
    /// Maximum number of executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_executors: Option<i32>,
    /// Whether executors with shuffle data are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_tracking_enabled: Option<bool>,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_tracking_timeout: Option<i64>,
}

/// Options for the gang scheduler.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchSchedulerConfiguration {
    /// Queue of the gang scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Priority class of the pod group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Resources of the pod group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,
}

/// The Service and Ingress of the driver's web UI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparkUiConfiguration {
    /// Port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_port: Option<i32>,
    /// Name of that port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_port_name: Option<String>,
    /// Type of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
    /// Annotations of the Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// Labels of the Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_labels: BTreeMap<String, String>,
    /// Annotations of the Ingress.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ingress_annotations: BTreeMap<String, String>,
    /// TLS of the Ingress.
    #[serde(rename = "ingressTLS", default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_tls: Vec<IngressTls>,
}

/// A Service and Ingress for an additional driver port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverIngressConfiguration {
    /// Port of the Service.
    pub service_port: i32,
    /// Name of that port.
    pub service_port_name: String,
    /// Type of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
    /// Annotations of the Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,
    /// Labels of the Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_labels: BTreeMap<String, String>,
    /// URL of the Ingress.
    #[serde(rename = "ingressURLFormat", default, skip_serializing_if = "String::is_empty")]
    pub ingress_url_format: String,
    /// Annotations of the Ingress.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ingress_annotations: BTreeMap<String, String>,
    /// TLS of the Ingress.
    #[serde(rename = "ingressTLS", default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_tls: Vec<IngressTls>,
}

/// TLS of an ingress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    /// Host names of the certificate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Secret with the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
}

/// Metrics of the application itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonitoringSpec {
    pub expose_driver_metrics: bool,
    pub expose_executor_metrics: bool,
    /// Content of `metrics.properties`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_properties: Option<String>,
    /// Path of a `metrics.properties` in the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_properties_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusSpec>,
}

/// The JMX exporter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusSpec {
    pub jmx_exporter_jar: String,
    /// Port of the exporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 49151))]
    pub port: Option<i32>,
    /// Name of that port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_name: Option<String>,
    /// Path of the exporter's configuration in the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_file: Option<String>,
    /// Configuration of the exporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

/// State of the application. Existing tools poll the first block of fields; the second is Firesteel's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparkApplicationStatus {
    /// `spark.app.id` of the current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spark_application_id: Option<String>,
    /// Id of the current submission, also a label of its pods.
    #[serde(rename = "submissionID", default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_submission_attempt_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_time: Option<Time>,
    #[serde(default)]
    pub driver_info: DriverInfo,
    #[serde(default)]
    pub application_state: ApplicationState,
    /// Executor pods and their states: all live ones first, then the most recent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub executor_state: BTreeMap<String, String>,
    /// Runs that were started.
    #[serde(default)]
    pub execution_attempts: i32,
    /// Submissions tried for the current run.
    #[serde(default)]
    pub submission_attempts: i32,

    /// The generation of the specification that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Number of the current submission over the life of this object; never reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// Runs that failed since the specification last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_failures: Option<i32>,
    /// Consecutive submissions that the cluster refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_failures: Option<i32>,
    /// Hash of the specification that the current run was created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// When each state was last entered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state_times: BTreeMap<String, Time>,
    /// Executors of the current run by state, including those that `executorState` has no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_counts: Option<ExecutorCounts>,
}

/// Where the driver is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverInfo {
    /// Name of its Service.
    #[serde(rename = "webUIServiceName", default, skip_serializing_if = "Option::is_none")]
    pub web_ui_service_name: Option<String>,
    /// Cluster address and port of the UI service.
    #[serde(rename = "webUIAddress", default, skip_serializing_if = "Option::is_none")]
    pub web_ui_address: Option<String>,
    /// Port of its Service.
    #[serde(rename = "webUIPort", default, skip_serializing_if = "Option::is_none")]
    pub web_ui_port: Option<i32>,
    /// Name of its Ingress.
    #[serde(rename = "webUIIngressName", default, skip_serializing_if = "Option::is_none")]
    pub web_ui_ingress_name: Option<String>,
    /// URL of the web UI.
    #[serde(rename = "webUIIngressAddress", default, skip_serializing_if = "Option::is_none")]
    pub web_ui_ingress_address: Option<String>,
    /// Name of the driver pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
}

/// The state, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationState {
    pub state: String,
    /// What went wrong, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error_message: String,
}

/// Executors of a run by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorCounts {
    /// Pending executors.
    #[serde(default)]
    pub pending: i32,
    /// Running executors.
    #[serde(default)]
    pub running: i32,
    /// Executors that exited with code 0.
    #[serde(default)]
    pub completed: i32,
    /// Executors that failed.
    #[serde(default)]
    pub failed: i32,
    /// Gone before they were seen to end.
    #[serde(default)]
    pub unknown: i32,
    /// Executors that `executorState` has no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untracked: Option<UntrackedExecutors>,
}

/// Ids of executors that `executorState` does not list, as ranges such as `1-900,902`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UntrackedExecutors {
    /// Live executors among them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub live: String,
    /// Ended and counted; their pods still exist.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ended: String,
    /// Gone before they were seen to end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lost: String,
}
