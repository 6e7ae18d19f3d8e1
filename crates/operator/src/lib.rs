//! Controllers for Spark applications: they observe, ask `firesteel_core`, and act.
//!
//! - [`operator`] starts and stops everything;
//! - [`reconcile`] is the main loop: it gathers what [`observe`] sees, asks for a decision, and has [`writes`] carry it
//!   out;
//! - [`executors`] allocates executors for drivers without pod permissions;
//! - [`definitions`] knows which status fields the cluster keeps;
//! - [`exposures`] manages each driver's Services, Ingresses and PodDisruptionBudget; [`scope`] selects the namespaces;
//!   [`pods`] caches what is needed of pods; [`leader`] elects the one operator that acts; [`serve`] serves probes and
//!   [`metrics`]; [`turns`] shares the workers fairly.
//!
//! No decision is made here, and nothing but `writes` changes the cluster (the leader's lease and events aside).

pub mod context;
pub mod definitions;
pub mod error;
pub mod executors;
pub mod exposures;
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
pub mod turns;
pub mod writes;

pub use operator::run;
pub use options::{LeaderOptions, Options};
pub use serve::Listen;
