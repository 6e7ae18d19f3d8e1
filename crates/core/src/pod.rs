//! The only place that interprets driver and executor pods, for everything that submits, runs, watches or explains.
//!
//! - [`SparkContainer`] finds Spark's container, and says whether it waits, runs or has ended;
//! - [`Ended`] explains exit codes and [`Words`] Kubernetes' reasons, from one table each;
//! - [`failure`] says why a pod failed as a whole, [`waiting`] why it does not run, [`hold_up()`] what to tell a waiting user;
//! - [`Requests`] is what it requests of its node, and [`lifetime`] for how long;
//! - [`DriverPod`] is a driver as decisions see it, [`crate::allocation::pod::ExecutorPod`] an executor.
//!
//! Pure, and without decisions: those are up to the caller.

mod container;
mod driver;
mod exit;
mod hold_up;
mod phase;
mod reason;
mod requests;

pub use container::SparkContainer;
pub use driver::{DriverEnd, DriverPod, Outcome, Owner, driver_owner};
pub use exit::{EXECUTORS_FAILED, Ended};
pub use hold_up::{HoldUp, hold_up};
pub use phase::{PodPhase, phase};
pub use reason::{Words, disruption, failure, waiting};
pub use requests::{Requests, lifetime};

pub(crate) use exit::{OUT_OF_MEMORY, Role, exit_meaning, is_start_failure};
pub(crate) use reason::{own_words, reason_kind};
