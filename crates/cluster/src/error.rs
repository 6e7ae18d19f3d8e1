//! Classifies errors of the Kubernetes API.

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The object does not exist.
    Missing,
    /// The object already exists.
    Exists,
    /// Another client changed the object first.
    Conflict,
    /// The cluster rejected the request, and will again until something changes.
    Refused,
    /// Not caused by the request: retry.
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

/// Whether retrying with the same credentials is pointless: they are invalid or lack a permission.
pub fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// Whether we lack a permission, or the cluster forbids it for another reason.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Whether the request was invalid: a patch that does not apply, or an invalid object.
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Whether a failed write may have taken effect: it was sent but not answered.
pub fn is_unsure(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(_) => false,
        kube::Error::Service(cause) => !cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect),
        _ => true,
    }
}

/// The API server's own message, without the client's wrapping.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
