//! What a status says beyond what the existing operator's definitions hold, read back from what they do hold.
//!
//! Their API server drops `attempt`, `specHash` and `observedGeneration`, among others, from every status that is written.
//! The submission id says which attempt it was, and the annotations of the driver pod from which specification it was made. What
//! cannot be read back stays unset; budgets are then counted from `executionAttempts` and `submissionAttempts`.

use firesteel_api::SparkApplicationStatus;

use crate::identity;
use crate::lifecycle::Seen;
use crate::pod::{DriverPod, Owner};

/// A stored status with what is known of its current submission filled in. What it says itself is not changed.
pub fn recall(stored: &SparkApplicationStatus, uid: &str, driver: &Seen) -> SparkApplicationStatus {
    let mut status = stored.clone();
    let Some(id) = &stored.submission_id else { return status };
    if status.attempt.is_none() {
        status.attempt = identity::attempt_of(uid, id, i64::from(status.execution_attempts));
    }
    let pod = match driver {
        Seen::Present(pod) => Some(pod),
        Seen::Absent { last } => last.as_ref(),
    };
    let is_current =
        |pod: &&DriverPod| pod.owner == Owner::Application && pod.submission_id.as_deref() == Some(id.as_str());
    if status.spec_hash.is_none()
        && let Some(pod) = pod.filter(is_current)
    {
        status.spec_hash.clone_from(&pod.spec_hash);
        status.observed_generation = status.observed_generation.or(pod.generation);
    }
    status
}
