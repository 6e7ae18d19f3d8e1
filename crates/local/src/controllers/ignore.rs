//! API errors that a controller treats as success, because somebody else already did the work.

/// `None` if the object does not exist.
pub(crate) fn not_found<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    unless(outcome, kube::core::Status::is_not_found)
}

/// `None` if an object of that name already exists.
pub(crate) fn already_exists<T>(outcome: kube::Result<T>) -> kube::Result<Option<T>> {
    unless(outcome, kube::core::Status::is_already_exists)
}

/// `None` if the object is gone or, for a write with a uid precondition, has been replaced.
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
