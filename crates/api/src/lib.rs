//! Custom resources of Firesteel: types, defaults, validation, and their definitions for a cluster.
//!
//! - [`spark_application`], [`scheduled`], [`connect`] hold the types, field by field what the existing
//!   `sparkoperator.k8s.io` resources have, plus what Firesteel adds to the status;
//! - [`executors`] holds the two objects through which a driver gets executors;
//! - [`defaults`] and [`validate`] are the one place that fills in and refuses: admission and controllers use the same
//!   functions, so the outcome does not depend on whether a webhook is installed;
//! - [`crds`] gives the definitions.
//!
//! Types read tolerantly: closed sets of words are strings here and checked in [`validate`], so that an object someone
//! else wrote never stops a watch.

pub mod connect;
pub mod crds;
pub mod defaults;
pub mod executors;
pub mod names;
pub mod pod_spec;
pub mod policy;
pub mod scheduled;
mod schema;
pub mod spark_application;
pub mod validate;

pub use connect::{SparkConnect, SparkConnectSpec, SparkConnectStatus};
pub use executors::{ExecutorGrant, ExecutorGrantSpec, ExecutorGrantStatus, ExecutorLedger, ExecutorLedgerStatus};
pub use pod_spec::{DriverSpec, ExecutorSpec, SparkPodSpec};
pub use scheduled::{ScheduledSparkApplication, ScheduledSparkApplicationSpec, ScheduledSparkApplicationStatus};
pub use spark_application::{SparkApplication, SparkApplicationSpec, SparkApplicationStatus};
