//! `firesteel.dev/v1alpha1`: the two objects through which a driver gets executors without pod permissions.
//!
//! An [`ExecutorGrant`] holds what was accepted at submission (`spec`, immutable) and what the driver requests (`status`,
//! written by the driver, which is not trusted: the schema bounds every part of it). An [`ExecutorLedger`] holds the
//! resulting state and is written only by the operator. See `docs/executors.md`.

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
    doc = "The executors that a Spark driver may have, and those it requests.",
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
    /// Executor pods are named `<namePrefix>-exec-<id>`.
    pub name_prefix: String,
    /// The container that Spark runs in.
    pub container: String,
    /// The executor pod of the default profile; `EXECID` is replaced by the executor's id.
    #[schemars(schema_with = "schema::object")]
    pub template: PodTemplateSpec,
    /// Volume claims created for each executor; the template's volumes refer to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimTemplate>,
    /// Whether another executor reuses the claims of a lost one.
    #[serde(default)]
    pub reuse_claims: bool,
    /// Executors to create together with the driver. Absent: none before the driver asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<EarlyExecutors>,
    /// What all executors of the application may have together.
    #[serde(default)]
    pub maximum: Maximum,
    /// How many executors may fail because of the application.
    #[serde(default)]
    pub failures: FailureBudget,
    /// Whether pods that failed because of the application are kept for inspection.
    #[serde(default)]
    pub keep_failed: bool,
    /// How long a running executor may take to register with the driver.
    #[serde(default = "default_register_seconds")]
    pub register_seconds: u32,
    /// How long a pod may take to start running before another one is tried.
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
    /// Absent in the operator's grants, which are created before the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The submission the driver belongs to, by its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<String>,
}

/// How executors are created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// The operator creates each pod and assigns its executor id.
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

/// Executors to create together with the driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EarlyExecutors {
    /// What the driver is expected to request for its default profile.
    #[schemars(schema_with = "schema::profile")]
    pub profile: ProfileDemand,
    /// The ConfigMap with the agent in which executors wait for their driver.
    pub agent: String,
}

/// A volume claim to create for each executor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// `EXECID` is replaced by the executor's id.
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
    /// How many executors may ever be created, lost ones included.
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

/// How many executors may fail because of the application.
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

/// What the driver requests and knows. Written by its bridge.
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
    /// The last loss that was reported to Spark.
    #[serde(default)]
    pub loss_seen: u64,
    /// Whether the application ended on its own.
    #[serde(default)]
    pub stopped: bool,
}

/// What one resource profile wants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileDemand {
    /// The total number of executors, running ones included.
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

/// Empty: a ledger only has a status.
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
    doc = "State of the executors that a Spark driver requested.",
    printcolumn = r#"{"name": "Wanted", "type": "integer", "jsonPath": ".status.counts.wanted"}"#,
    printcolumn = r#"{"name": "Pending", "type": "integer", "jsonPath": ".status.counts.pending"}"#,
    printcolumn = r#"{"name": "Running", "type": "integer", "jsonPath": ".status.counts.running"}"#,
    printcolumn = r#"{"name": "Registered", "type": "integer", "jsonPath": ".status.counts.registered"}"#,
    printcolumn = r#"{"name": "Lost", "type": "integer", "jsonPath": ".status.counts.lost"}"#,
    printcolumn = r#"{"name": "Verdict", "type": "string", "jsonPath": ".status.verdict.reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct ExecutorLedgerSpec {}

/// State of the requested executors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorLedgerStatus {
    /// Whether the grant can be served; `message` says why not.
    pub accepted: bool,
    /// Why the grant is not accepted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The UID of the driver pod that these executors belong to, once it has been seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_uid: Option<String>,
    /// Ids up to this one may have been used and are never reused.
    pub reserved_through: u64,
    /// How many of these ids no executor was created with.
    pub unused: u64,
    /// Executors by state.
    pub counts: LedgerCounts,
    /// The number of the last loss.
    pub loss_seq: u64,
    /// Ended executors that the driver has not seen yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Executors created before the driver asked for them. Absent: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<EarlyStatus>,
    /// Recent failures.
    pub failures: Failures,
    /// Recent demand that fell and rose again.
    #[serde(skip_serializing_if = "Flapping::is_none")]
    pub flapping: Flapping,
    /// Nodes on which executors failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_nodes: Vec<AvoidedNode>,
    /// Why the application cannot continue.
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
    /// What the driver requests, within the maxima.
    pub wanted: u32,
    /// Executors that are not running yet.
    pub pending: u32,
    /// Running executors.
    pub running: u32,
    /// Executors registered with the driver.
    pub registered: u32,
    /// Executors ever lost, except withdrawn ones.
    pub lost: u64,
}

/// Executors created before the driver asked for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EarlyStatus {
    /// Since when they may register: all that are left are among those the driver wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Time>,
    /// Why no more are created before the driver asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// How many the driver had no use for.
    pub withdrawn: u32,
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
    /// What caused it.
    #[schemars(schema_with = "schema::cause")]
    pub cause: Cause,
    /// Human-readable reason.
    pub text: String,
    /// The node it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When it happened.
    pub at: Time,
}

/// What caused a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Counts as a failure of its tasks and against the application's failure budget.
    Application,
    /// Evicted, preempted, node gone: not counted as a failure.
    Platform,
    /// A pending pod that was no longer wanted.
    Withdrawn,
}

/// Recent failures that the application caused, or that came before an executor worked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failures {
    /// Failures caused by the application, within the window.
    pub count: u32,
    /// When they happened, if a window is set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<Time>,
    /// Failures in a row, with no working executor in between.
    pub row: u32,
    /// When the last one happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
    /// No executor is started before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// With sets: how many container terminations are already counted, by pod UID. One more than have occurred: the pod is
    /// given up.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, u32>,
}

/// Recent demand that fell and rose again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Flapping {
    /// How often withdrawn executors were created again.
    pub count: u32,
    /// When that last happened.
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
    /// Executors avoid it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// What happened there.
    pub why: String,
}

/// Why an application was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// One-word reason.
    pub reason: String,
    /// Human-readable reason.
    pub message: String,
    /// When it happened.
    pub at: Time,
}
