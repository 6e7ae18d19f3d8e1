//! The state shared by all requests.

use std::sync::Arc;

use serde_json::Value;

use crate::kinds::{Kind, Served};
use crate::status::{ApiResult, StatusError};
use crate::store::{Action, Key, Store, StoreError, Stored, Write};

pub(crate) struct State {
    pub(crate) store: Arc<Store>,
    pub(crate) kinds: Served,
    pub(crate) pki: crate::pki::Pki,
    pub(crate) tokens: crate::authentication::Tokens,
    pub(crate) addresses: std::sync::Mutex<crate::service_allocators::ServiceAllocators>,
    pub(crate) documents: crate::openapi::Documents,
    /// TLS configuration for kubelets.
    pub(crate) kubelet_tls: Arc<rustls::ClientConfig>,
    /// Held while a pod is created in a namespace with quotas, so that two pods cannot take the last slot.
    pub(crate) quota_turn: tokio::sync::Mutex<()>,
    /// Whether RBAC is enforced; off only at the library caller's request.
    pub(crate) enforce: bool,
    /// Cancelled on shutdown: watches end.
    pub(crate) stopping: tokio_util::sync::CancellationToken,
}

impl State {
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&kind.table, namespace, name)
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Stored>> {
        self.store.get("namespaces", "", name)
    }

    /// Stores a new object.
    pub(crate) async fn create(&self, kind: &Kind, object: Value) -> ApiResult<Arc<Stored>> {
        let name = crate::meta::name(&object).to_owned();
        let write = Write {
            table: kind.table.clone(),
            key: key_of(&object),
            expected: None,
            action: Action::Put(crate::conversion::write(kind, object)),
        };
        self.store.commit(write).await.map_err(|refused| match refused {
            StoreError::Exists | StoreError::Changed => StatusError::already_exists(&kind.group, &kind.resource, &name),
            StoreError::Disk(why) => disk_failure(&why),
        })
    }

    /// Replaces an object that is still at `seen`; `Ok(None)` if it is not.
    pub(crate) async fn replace(&self, kind: &Kind, seen: &Stored, object: Value) -> ApiResult<Option<Arc<Stored>>> {
        let write = Write {
            table: kind.table.clone(),
            key: key_of(&object),
            expected: Some(seen.revision),
            action: Action::Put(crate::conversion::write(kind, object)),
        };
        settle(self.store.commit(write).await)
    }

    /// Removes an object that is still at `seen`.
    pub(crate) async fn remove(&self, kind: &Kind, seen: &Stored) -> ApiResult<Option<Arc<Stored>>> {
        self.remove_as(kind, seen, Value::clone(&seen.value())).await
    }

    /// As [`State::remove`], with the last state that watchers get.
    pub(crate) async fn remove_as(&self, kind: &Kind, seen: &Stored, last: Value) -> ApiResult<Option<Arc<Stored>>> {
        let write = Write {
            table: kind.table.clone(),
            key: key_of(&seen.value()),
            expected: Some(seen.revision),
            action: Action::Remove(Some(last)),
        };
        settle(self.store.commit(write).await)
    }
}

fn settle(result: Result<Arc<Stored>, StoreError>) -> ApiResult<Option<Arc<Stored>>> {
    match result {
        Ok(stored) => Ok(Some(stored)),
        Err(StoreError::Exists | StoreError::Changed) => Ok(None),
        Err(StoreError::Disk(why)) => Err(disk_failure(&why)),
    }
}

fn disk_failure(why: &str) -> Box<StatusError> {
    StatusError::internal(format!("the change could not be written to the data directory: {why}"))
}

pub(crate) fn key_of(object: &Value) -> Key {
    (crate::meta::namespace(object).into(), crate::meta::name(object).into())
}
