//! Controllers for Spark applications: they observe, ask `firesteel_core`, and act.
//!
//! - [`operator`] starts everything and ends it;
//! - [`reconcile`] is the one loop: it gathers what [`observe`] sees, asks for a decision, and has [`writes`] carry it out;
//! - [`executors`] allocates executors for drivers that have no right on pods;
//! - [`definitions`] knows what the cluster keeps of a status;
//! - [`exposures`] makes what stands around drivers, [`scope`] says in which namespaces to work, [`pods`] keeps what is
//!   needed of pods, [`leader`] makes sure only one operator acts, [`serve`]
//!   answers probes and [`metrics`], [`fair_queue`] says who comes first.
//!
//! No decision is made here, and nothing but `writes` and `executors::writes` changes the cluster (the leader's lease and events aside).

mod admission_policy;
pub mod context;
mod creation_limit;
mod debounce;
pub mod definitions;
pub mod error;
pub mod executors;
pub mod exposures;
pub mod fair_queue;
pub mod leader;
pub mod malformed;
pub mod metrics;
pub mod observe;
pub mod operator;
pub mod options;
pub mod pods;
pub mod reconcile;
mod relist;
pub mod scope;
pub mod serve;
pub mod tell;
pub mod writes;

pub use operator::run;
pub use options::{LeaderOptions, Options};
pub use serve::Listen;
