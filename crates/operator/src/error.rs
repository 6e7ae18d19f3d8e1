//! What can go wrong with a cluster, and what follows from it.

pub(crate) use firesteel_cluster::error::{Class, class, words};

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

pub(crate) trait During<T> {
    /// Names the step that failed.
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, kube::Error> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Cluster { what: what(), source: Box::new(source) })
    }
}
