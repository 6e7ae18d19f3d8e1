//! Custom resources of Firesteel: types, defaults, validation, and their definitions for a cluster.
//!
//! - [`spark_application`], [`scheduled`], [`connect`] hold the types, with the same fields as the existing
//!   `sparkoperator.k8s.io` resources, plus what Firesteel adds to the status;
//! - [`executors`] holds the two objects through which a driver gets executors;
//! - [`defaults`] and [`validate`] are the only place for defaults and validation: admission and controllers use the same
//!   functions, so the outcome does not depend on whether a webhook is installed;
//! - [`crds`] returns the definitions.
//!
//! Types are read leniently: enumerations are strings here and checked in [`validate`], so that an unexpected value
//! never breaks a watch.

pub mod connect;
pub mod crds;
pub mod defaults;
pub mod executors;
pub mod http_route;
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
