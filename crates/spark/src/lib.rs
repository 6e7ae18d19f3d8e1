//! What Apache Spark knows about Kubernetes, without Spark and without a cluster.
//!
//! The modules, in the order from a command line to objects:
//!
//! 1. [`args`] parses `spark-submit` arguments without interpreting them;
//! 2. [`submission`] merges them with properties files, defaults and the environment into one [`Submission`];
//! 3. [`driver`] turns a submission into a [`driver::DriverPlan`]: the driver pod and the objects that go with it;
//! 4. [`executor`] plans the executor pods, for when the driver does not create them.
//!
//! Everything here is pure: files, clocks and randomness are passed in ([`context`]). There is no client and no
//! async code.

pub mod args;
pub mod bridge;
pub mod context;
pub mod driver;
pub mod executor;
mod input;
pub mod names;
pub mod object_name;
mod pod;
pub mod properties;
pub mod redaction;
pub mod registry;
mod resource_name;
pub mod submission;
pub mod value;
pub mod version;

pub use context::{Files, Ids, PlanContext, Templates};
pub use input::{Input, TemplatePart};
pub use submission::{MainResource, SparkConf, Submission};
pub use version::SparkVersion;
