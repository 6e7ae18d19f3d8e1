//! Answers of the API server that a controller takes for success: somebody else has done what it was about to do.

/// Nothing if the object does not exist (any more).
pub(crate) fn not_found<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    unless(outcome, kube::core::Status::is_not_found)
}

/// Nothing if an object of that name exists already.
pub(crate) fn already_exists<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    unless(outcome, kube::core::Status::is_already_exists)
}

/// Nothing if the object does not exist any more or, for a write that names its uid, if another has taken its name.
pub(crate) fn gone_or_replaced<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    unless(outcome, |status| status.is_not_found() || status.is_conflict())
}

pub(crate) fn unless<T>(
    outcome: kube::Result<T>,
    ignored: impl Fn(&kube::core::Status) -> bool,
) -> kube::Result<Option<T>> {
    match outcome {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if ignored(&status) => Ok(None),
        Err(error) => Err(error),
    }
}
