//! Errors of a pass.

pub(crate) use firesteel_cluster::error::{Class, class, words};

/// A step that failed. All of these are retried.
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
    #[error("the application changed concurrently")]
    Changed,
    #[error("{0}")]
    Serialize(#[from] serde_json::Error),
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
