//! What a refused request means. Whoever asked reads that, and nothing else of the answer.

/// What follows from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The object is not there.
    Missing,
    /// It exists already.
    Exists,
    /// Someone else was faster.
    Conflict,
    /// The cluster said no, and will say no again until something changes.
    Refused,
    /// Not the request's fault: try again.
    Transient,
}

pub fn class(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match (status.code, status.reason.as_str()) {
            (404, _) => Class::Missing,
            (409, "AlreadyExists") => Class::Exists,
            (409, _) => Class::Conflict,
            (408 | 429, _) => Class::Transient,
            (400..=499, _) => Class::Refused,
            _ => Class::Transient,
        },
        _ => Class::Transient,
    }
}

/// Whether asking again with the same credentials is pointless: they do not count, or lack a right.
pub fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Whether we lack a right, or the cluster forbids it for another reason.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Whether what was sent cannot be: a patch that does not fit, an object that is not valid.
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Whether a write may have been carried out although it failed here: it was sent, and no answer came.
pub fn is_unsure(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(_) => false,
        kube::Error::Service(cause) => !cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect),
        _ => true,
    }
}

/// The words of the API server, without what clients put around them.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
