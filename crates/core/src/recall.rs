//! Reconstructs status fields that the existing operator's CRD does not keep.
//!
//! With that CRD the API server drops `attempt`, `specHash`, `observedGeneration` and others from every status write.
//! The submission id yields the attempt, and the driver pod's annotations the specification it was created from. The rest
//! stays unset; retry budgets are then counted from `executionAttempts` and `submissionAttempts`.

use firesteel_api::SparkApplicationStatus;

use crate::identity;
use crate::lifecycle::Seen;
use crate::pod::{DriverPod, Owner};

/// Fills in what is known of the current submission. Fields that are set do not change.
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
