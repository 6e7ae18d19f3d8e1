//! What can go wrong with a cluster, and what follows from it.

/// A step that failed. Everything here is tried again later.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Cluster {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the API server took longer than {0} s")]
    Slow(u64),
    #[error("the application changed meanwhile")]
    Changed,
    #[error("{0}")]
    Serialize(#[from] serde_json::Error),
}

/// What a refused request means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
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

pub(crate) fn class(error: &kube::Error) -> Class {
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

/// The words of the API server, without what clients put around them.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

pub(crate) trait During<T> {
    /// Names the step that failed.
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Cluster { what: what(), source: Box::new(source) })
    }
}
