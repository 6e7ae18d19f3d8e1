//! `firesteel.dev/v1alpha1`: the two objects through which a driver gets executors without any right on pods.
//!
//! An [`ExecutorGrant`] holds what was accepted at submission (`spec`, immutable) and what the driver asks for (`status`,
//! written by the driver, which is not trusted: the schema bounds every part of it). An [`ExecutorLedger`] holds what
//! became of it and is written by the operator alone. See `docs/executors.md`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What was accepted at submission.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "firesteel.dev",
    version = "v1alpha1",
    kind = "ExecutorGrant",
    plural = "executorgrants",
    singular = "executorgrant",
    shortname = "grant",
    namespaced,
    status = "ExecutorGrantStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What a Spark driver may have as executors, and what it asks for.",
    printcolumn = r#"{"name": "Strategy", "type": "string", "jsonPath": ".spec.strategy"}"#,
    printcolumn = r#"{"name": "Wanted", "type": "string", "jsonPath": ".status.profiles.0.wanted"}"#,
    printcolumn = r#"{"name": "Maximum", "type": "integer", "jsonPath": ".spec.maximum.executors"}"#,
    printcolumn = r#"{"name": "Spark", "type": "string", "jsonPath": ".status.sparkVersion"}"#,
    printcolumn = r#"{"name": "Stopped", "type": "boolean", "jsonPath": ".status.stopped"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorGrantSpec {
    /// The driver that the grant is for.
    pub driver: GrantedDriver,
    /// `spark.app.id`; the label `spark-app-selector` of every executor.
    pub app_id: String,
    /// How executors are created.
    #[serde(default)]
    #[schemars(schema_with = "schema::strategy")]
    pub strategy: Strategy,
    /// Whether Spark's dynamic allocation is on.
    #[serde(default)]
    pub dynamic: bool,
    /// Executor pods are called `<namePrefix>-exec-<id>`.
    pub name_prefix: String,
    /// The container that Spark runs in.
    pub container: String,
    /// The executor pod of the default profile; `EXECID` stands for the executor's id.
    #[schemars(schema_with = "schema::object")]
    pub template: PodTemplateSpec,
    /// Volume claims made for each executor; the template's volumes name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimTemplate>,
    /// Whether the claims of a lost executor go to another one.
    #[serde(default)]
    pub reuse_claims: bool,
    /// What all executors of the application may have together.
    #[serde(default)]
    pub maximum: Maximum,
    /// How many executors may fail through the application's fault.
    #[serde(default)]
    pub failures: FailureBudget,
    /// Whether pods that failed by the application's fault stay for inspection.
    #[serde(default)]
    pub keep_failed: bool,
    /// How long a running executor may take to register with the driver.
    #[serde(default = "default_register_seconds")]
    pub register_seconds: u32,
    /// How long a pod may take to run before another one is tried.
    #[serde(default = "default_start_seconds")]
    pub start_seconds: u32,
}

pub fn default_register_seconds() -> u32 {
    300
}

pub fn default_start_seconds() -> u32 {
    600
}

/// The driver that a grant is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedDriver {
    /// Name of the driver pod.
    pub pod_name: String,
    /// Absent in grants of the operator, which come before their pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The submission the driver belongs to, by its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
}

/// How executors are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The operator makes each pod, with an id of its own.
    #[default]
    Pods,
    /// A ReplicaSet per profile; executors get their ids from the driver.
    ReplicaSet,
    /// A StatefulSet per profile; executors get their ids from the driver.
    StatefulSet,
}

impl Strategy {
    pub fn word(self) -> &'static str {
        match self {
            Strategy::Pods => "pods",
            Strategy::ReplicaSet => "replicaset",
            Strategy::StatefulSet => "statefulset",
        }
    }
}

/// A volume claim to be made for each executor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// `EXECID` stands for the executor's id.
    pub name: String,
    /// Labels of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Specification of the claim.
    #[schemars(schema_with = "schema::object")]
    pub spec: PersistentVolumeClaimSpec,
}

/// The most that all executors of an application may have together. Absent: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maximum {
    /// Executors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executors: Option<u32>,
    /// How many executors may ever be made, lost ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<u32>,
    /// Cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// Memory in MiB.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Named resources such as `nvidia.com/gpu`. Unlisted resources are denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<BTreeMap<String, u64>>,
}

/// How many executors may fail by the application's fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureBudget {
    /// Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u32>,
    /// Only failures this recent count. Absent: all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
}

/// What the driver asks for and knows. Written by its bridge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorGrantStatus {
    /// Version of the bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub bridge: Option<String>,
    /// Version of Spark in the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub spark_version: Option<String>,
    /// By resource profile id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::profiles")]
    pub profiles: BTreeMap<String, ProfileDemand>,
    /// Addresses of registered executors by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::registered")]
    pub registered: BTreeMap<String, String>,
    /// Registered executors whose connection is lost, while Spark waits for a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ids")]
    pub disconnected: Vec<String>,
    /// The last loss that Spark was told of.
    #[serde(default)]
    pub loss_seen: u64,
    /// The application ended by itself.
    #[serde(default)]
    pub stopped: bool,
}

/// What one resource profile wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileDemand {
    /// The total number of executors, those that run included.
    pub wanted: u32,
    /// Cores.
    pub cores: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<String>,
    /// Memory of the container, as a quantity.
    pub memory: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Nothing is asked of a ledger: it only tells.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "firesteel.dev",
    version = "v1alpha1",
    kind = "ExecutorLedger",
    plural = "executorledgers",
    singular = "executorledger",
    shortname = "ledger",
    namespaced,
    status = "ExecutorLedgerStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What became of the executors a Spark driver asked for.",
    printcolumn = r#"{"name": "Wanted", "type": "integer", "jsonPath": ".status.counts.wanted"}"#,
    printcolumn = r#"{"name": "Pending", "type": "integer", "jsonPath": ".status.counts.pending"}"#,
    printcolumn = r#"{"name": "Running", "type": "integer", "jsonPath": ".status.counts.running"}"#,
    printcolumn = r#"{"name": "Registered", "type": "integer", "jsonPath": ".status.counts.registered"}"#,
    printcolumn = r#"{"name": "Lost", "type": "integer", "jsonPath": ".status.counts.lost"}"#,
    printcolumn = r#"{"name": "Verdict", "type": "string", "jsonPath": ".status.verdict.reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct ExecutorLedgerSpec {}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorLedgerStatus {
    /// Whether the grant can be served; `message` says why not.
    pub accepted: bool,
    /// Why the grant is not accepted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The uid of the driver pod these executors belong to, once it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_uid: Option<String>,
    /// Ids up to this one may have been used; they never are again.
    pub reserved_through: u64,
    /// How many of them no executor was made with.
    pub unused: u64,
    /// Executors by state.
    pub counts: LedgerCounts,
    /// The number of the last loss.
    pub loss_seq: u64,
    /// Ended executors that the driver has not seen yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Failures of the recent past.
    pub failures: Failures,
    /// Demand that fell and rose again in the recent past.
    #[serde(skip_serializing_if = "Flapping::is_none")]
    pub flapping: Flapping,
    /// Nodes on which executors failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<AvoidedNode>,
    /// The application cannot go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// `Satisfied` and `WithinMaximum`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LedgerCounts {
    /// What the driver asks for, within the maxima.
    pub wanted: u32,
    /// Executors that do not run yet.
    pub pending: u32,
    /// Executors that run.
    pub running: u32,
    /// Executors registered with the driver.
    pub registered: u32,
    /// Executors ever lost, withdrawn ones aside.
    pub lost: u64,
}

/// One ended executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Number of the loss.
    pub seq: u64,
    /// The executor.
    pub id: String,
    /// The exit code; -1 if there is none.
    pub code: i32,
    /// Whose doing it is.
    #[schemars(schema_with = "schema::cause")]
    pub cause: Cause,
    /// Why, for people.
    pub text: String,
    /// The node it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it happened.
    pub at: Time,
}

/// Whose doing a loss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// It counts against tasks and against the application's failure budget.
    Application,
    /// Evicted, preempted, node gone: it counts against nobody.
    Platform,
    /// A pending pod that was no longer wanted.
    Withdrawn,
}

/// Failures of the recent past, by the application's fault or before an executor worked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failures {
    /// By the application's fault, within the window.
    pub count: u32,
    /// When they happened, if a window is set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<Time>,
    /// Failures in a row, without an executor that worked in between.
    pub row: u32,
    /// When the last one happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
    /// No executor is started before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// With sets: how many ends of containers are counted already, by the uid of the pod. One more than have ended: the
    /// pod is given up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, u32>,
}

/// Demand that fell and rose again in the recent past.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Flapping {
    /// How often executors were created again that had been withdrawn.
    pub count: u32,
    /// When that was last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
    /// By profile: how many were wanted when executors were last withdrawn, until some are created again.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub withdrawn: BTreeMap<String, u32>,
}

impl Flapping {
    fn is_none(&self) -> bool {
        *self == Flapping::default()
    }
}

/// A node on which executors failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AvoidedNode {
    /// Name of the node.
    pub node: String,
    /// Failures there.
    pub failures: u32,
    /// When the last one happened.
    pub last: Time,
    /// Executors stay away from it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// What happened there.
    pub why: String,
}

/// Why an application was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// One word for it.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When it happened.
    pub at: Time,
}
