//! Watches the ConfigMaps and Secrets that pods mount as volumes.
//!
//! One metadata watch per namespace and kind in use. The pod worker fetches contents, and only if the version has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::broadcast;

use super::lock;
use super::pod::AbortOnDrop;
use crate::objects::ObjectKind;

/// Slow receivers are told that they missed changes.
const QUEUE: usize = 1024;

/// An object was created, changed or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectChange {
    pub(crate) holder: ObjectKind,
    pub(crate) name: String,
    /// `None` if it was deleted.
    pub(crate) version: Option<String>,
}

/// A watch that ends with the last pod that uses it.
pub(crate) struct ObjectWatch {
    changes: broadcast::Sender<ObjectChange>,
    _task: AbortOnDrop,
}

/// The running watches.
pub(crate) struct ObjectWatches {
    client: Client,
    running: Mutex<BTreeMap<(ObjectKind, String), Weak<ObjectWatch>>>,
}

/// The watches of one pod.
#[derive(Default)]
pub(crate) struct PodWatches {
    heard: Vec<(Arc<ObjectWatch>, broadcast::Receiver<ObjectChange>)>,
}

impl ObjectWatches {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, running: Mutex::default() }
    }

    /// Subscribes to everything that a pod of this namespace mounts.
    pub(crate) fn listen(&self, namespace: &str, needed: &BTreeSet<(ObjectKind, String)>) -> PodWatches {
        let holders: BTreeSet<ObjectKind> = needed.iter().map(|(holder, _)| *holder).collect();
        let watches = holders.into_iter().map(|holder| self.watch(holder, namespace));
        PodWatches { heard: watches.map(|w| (Arc::clone(&w), w.changes.subscribe())).collect() }
    }

    fn watch(&self, holder: ObjectKind, namespace: &str) -> Arc<ObjectWatch> {
        let mut running = lock(&self.running);
        running.retain(|_, w| w.strong_count() > 0);
        let key = (holder, namespace.to_owned());
        if let Some(watched) = running.get(&key).and_then(Weak::upgrade) {
            return watched;
        }
        let changes = broadcast::channel(QUEUE).0;
        let task = match holder {
            ObjectKind::ConfigMap => tokio::spawn(follow::<ConfigMap>(
                Api::namespaced(self.client.clone(), namespace),
                holder,
                changes.clone(),
            )),
            ObjectKind::Secret => {
                tokio::spawn(follow::<Secret>(Api::namespaced(self.client.clone(), namespace), holder, changes.clone()))
            }
        };
        let watched = Arc::new(ObjectWatch { changes, _task: AbortOnDrop(task) });
        running.insert(key, Arc::downgrade(&watched));
        watched
    }
}

impl PodWatches {
    /// The next change; `None` if some were missed. Waits forever if there are no watches.
    pub(crate) async fn next(&mut self) -> Option<ObjectChange> {
        if self.heard.is_empty() {
            return std::future::pending().await;
        }
        let waits = self.heard.iter_mut().map(|(_, receiver)| Box::pin(receiver.recv()));
        futures::future::select_all(waits).await.0.ok()
    }
}

async fn follow<K>(api: Api<PartialObjectMeta<K>>, holder: ObjectKind, changes: broadcast::Sender<ObjectChange>)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let (object, there) = match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => (object, true),
            Ok(Event::Delete(object)) => (object, false),
            Ok(Event::Init | Event::InitDone) => continue,
            Err(error) => {
                tracing::debug!(%error, kind = holder.proper(), "watching for changes of volumes");
                continue;
            }
        };
        let name = object.name_any();
        let version = object.metadata.resource_version.clone().filter(|_| there);
        // No receivers is fine: the watch is about to end.
        let _ = changes.send(ObjectChange { holder, name, version });
    }
}
