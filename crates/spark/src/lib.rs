//! What Apache Spark knows about Kubernetes, without Spark and without a cluster.
//!
//! The way through this crate, from a command line to objects:
//!
//! 1. [`args`] reads `spark-submit` arguments into what was written, nothing more;
//! 2. [`submission`] merges them with properties files, defaults and the environment into one [`Submission`];
//! 3. [`driver`] turns a submission into a [`driver::DriverPlan`]: the driver pod and every object beside it.
//! 4. [`executor`] plans the pods of its executors, for when something else than the driver creates them.
//!
//! Everything here is a pure function of its arguments: files, clocks and randomness come in from outside
//! ([`surroundings`]). There is no client and no async code.

pub mod args;
pub mod bridge;
pub mod driver;
pub mod executor;
mod input;
pub mod names;
mod pod;
pub mod properties;
pub mod redaction;
pub mod registry;
pub mod resource_name;
pub mod submission;
pub mod surroundings;
pub mod value;
pub mod version;

pub use input::{Input, TemplatePart};
pub use submission::{MainResource, SparkConf, Submission};
pub use surroundings::{Files, Ids, Surroundings, Templates};
pub use version::SparkVersion;
