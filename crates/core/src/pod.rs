//! The one reading of driver and executor pods: everything that submits, runs, watches or explains asks here.
//!
//! - [`SparkContainer`] finds the container that Spark runs in, and says whether it waits, runs or has ended;
//! - [`Ended`] knows what exit codes mean, [`Words`] Kubernetes' reasons mean: there is one table of each;
//! - [`failure`] says why a pod failed as a whole, [`waiting`] why it does not run, [`hold_up()`] what to tell who waits for it;
//! - [`DriverPod`] is what decisions see of a driver. [`crate::allocation::pod::ExecutorPod`] is the same for executors.
//!
//! Pure, and it decides nothing: what follows from a reading is up to whoever asked.

mod container;
mod driver;
mod exit;
mod hold_up;
mod phase;
mod reason;

pub use container::SparkContainer;
pub use driver::{DriverEnd, DriverPod, Outcome, Owner, driver_owner};
pub use exit::{EXECUTORS_FAILED, Ended};
pub use hold_up::{HoldUp, hold_up};
pub use phase::{PodPhase, phase};
pub use reason::{Words, disruption, failure, waiting};

pub(crate) use exit::{OUT_OF_MEMORY, Role, exit_meaning, is_start_failure};
pub(crate) use reason::{own_words, reason_kind};
