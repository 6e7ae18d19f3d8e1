//! The driver plan: from a [`Submission`] to the driver pod and the objects beside it.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::submission::{SparkConf, Submission};
use crate::surroundings::Surroundings;

/// Everything that one submission creates, before anything is created.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverPlan {
    pub app_id: String,
    pub namespace: String,
    /// The driver pod, without namespace and owner.
    pub pod: Pod,
    /// Everything beside the pod; to be owned by it (`submit`) or by the SparkApplication (operator).
    pub objects: Vec<Object>,
    /// Local files that must be shipped before the driver starts.
    pub uploads: Vec<Upload>,
    /// What the driver will read as `spark.properties`.
    pub properties: SparkConf,
    /// Remarks for the submitter; nothing that stops the plan.
    pub warnings: Vec<String>,
}

/// One object beside the driver pod. Its namespace is set, its owner is not.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    ConfigMap(ConfigMap),
    Service(Service),
    Secret(Secret),
    PersistentVolumeClaim(PersistentVolumeClaim),
    NetworkPolicy(NetworkPolicy),
}

/// A local file and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// An absolute path on the submitting side.
    pub from: String,
    /// The full target URI, below `spark.kubernetes.file.upload.path`.
    pub to: String,
}

/// Why no plan could be made. Each variant's message names the key or file, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{key}={value}: {problem}; {remedy}")]
    Value { key: String, value: String, problem: String, remedy: String },
    #[error("{key} is missing: {remedy}")]
    Missing { key: String, remedy: String },
    #[error("{0}")]
    Conflict(String),
}

/// Plans a driver. Pure: the same arguments give the same plan.
pub fn plan(submission: &Submission, around: &Surroundings<'_>) -> Result<DriverPlan, PlanError> {
    let _ = (submission, around);
    Err(PlanError::Conflict("planning is not built yet".to_owned()))
}
