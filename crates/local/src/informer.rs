//! An informer: caches all objects of one kind through one watch, shared by all controllers.
//!
//! Handlers are called in event order, after the cache has been updated: when a handler queues a key, the worker sees at least
//! that state. After a write, a controller calls [`Informer::wait_for_write`], so that it never acts on a cache without its own
//! write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// How long to wait for a write to appear in the cache.
const PATIENCE: Duration = Duration::from_secs(5);

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of<K: ResourceExt>(object: &K) -> Self {
        Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

/// A change of one object.
#[derive(Debug)]
pub(crate) enum Change<K> {
    Applied { old: Option<Arc<K>>, new: Arc<K> },
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The latest known state.
    pub(crate) fn object(&self) -> &Arc<K> {
        match self {
            Change::Applied { new, .. } => new,
            Change::Deleted(object) => object,
        }
    }

    /// The old state, if there is one, and the new state.
    pub(crate) fn states(&self) -> impl Iterator<Item = &K> {
        let old = match self {
            Change::Applied { old, .. } => old.as_deref(),
            Change::Deleted(_) => None,
        };
        old.into_iter().chain([&**self.object()])
    }
}

type EventHandler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

pub(crate) struct Informer<K> {
    objects: RwLock<Objects<K>>,
    listeners: Mutex<Vec<EventHandler<K>>>,
    /// The highest resource version seen; changes with every event.
    seen: watch::Sender<u64>,
    ready: watch::Sender<bool>,
}

struct Objects<K> {
    by_key: BTreeMap<Key, Arc<K>>,
    by_controller: HashMap<String, BTreeSet<Key>>,
}

impl<K> Default for Informer<K> {
    fn default() -> Self {
        Informer {
            objects: RwLock::new(Objects { by_key: BTreeMap::new(), by_controller: HashMap::new() }),
            listeners: Mutex::new(Vec::new()),
            seen: watch::Sender::new(0),
            ready: watch::Sender::new(false),
        }
    }
}

/// The uid of an object's controller.
pub(crate) fn controller_uid<K: ResourceExt>(object: &K) -> Option<String> {
    object.owner_references().iter().find(|o| o.controller == Some(true)).map(|o| o.uid.clone())
}

fn version<K: ResourceExt>(object: &K) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl<K> Objects<K>
where
    K: Resource,
{
    fn insert(&mut self, key: Key, object: &Arc<K>) -> Option<Arc<K>> {
        let old = self.by_key.insert(key.clone(), Arc::clone(object));
        if let Some(uid) = old.as_deref().and_then(controller_uid) {
            self.forget(&uid, &key);
        }
        if let Some(uid) = controller_uid(&**object) {
            self.by_controller.entry(uid).or_default().insert(key);
        }
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.by_key.remove(key)?;
        if let Some(uid) = controller_uid(&*old) {
            self.forget(&uid, key);
        }
        Some(old)
    }

    fn forget(&mut self, uid: &str, key: &Key) {
        if let Some(keys) = self.by_controller.get_mut(uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_controller.remove(uid);
            }
        }
    }
}

impl<K> Informer<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    fn objects(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `listener` for every object of the first list and every later change.
    pub(crate) fn on_change(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects().by_key.get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects().by_key.values().cloned().collect()
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = Key::new(namespace, "");
        let objects = self.objects();
        objects.by_key.range(from..).take_while(|(k, _)| k.namespace == namespace).map(|(_, v)| Arc::clone(v)).collect()
    }

    /// The objects whose controller has this uid.
    pub(crate) fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let objects = self.objects();
        let keys = objects.by_controller.get(uid);
        keys.into_iter().flatten().filter_map(|key| objects.by_key.get(key).cloned()).collect()
    }

    /// Waits until the first list has been loaded.
    pub(crate) async fn ready(&self) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Waits until the cache has an object just written, or a newer one.
    pub(crate) async fn wait_for_write(&self, written: &K) {
        let version = version(written);
        let mut seen = self.seen.subscribe();
        let _ = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| *seen >= version)).await;
    }

    /// Waits until the cache no longer has an object just deleted, or has it as terminating.
    pub(crate) async fn wait_for_delete(&self, key: &Key, uid: &str) {
        let mut seen = self.seen.subscribe();
        let vanished = || match self.get(key) {
            Some(object) => object.meta().deletion_timestamp.is_some() || object.uid().as_deref() != Some(uid),
            None => true,
        };
        let _ = tokio::time::timeout(PATIENCE, seen.wait_for(|_| vanished())).await;
    }

    /// Watches forever.
    pub(crate) async fn run(&self, api: Api<K>, config: watcher::Config) {
        let mut listing: BTreeMap<Key, Arc<K>> = BTreeMap::new();
        let events = watcher(api, config).default_backoff().modify(|object| {
            object.meta_mut().managed_fields = None;
        });
        let mut events = std::pin::pin!(events.into_stream());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listing.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    listing.insert(Key::of(&object), Arc::new(object));
                }
                Ok(watcher::Event::InitDone) => self.replace(std::mem::take(&mut listing)),
                Ok(watcher::Event::Apply(object)) => self.apply(Arc::new(object)),
                Ok(watcher::Event::Delete(object)) => self.delete(Arc::new(object)),
                Err(error) => tracing::debug!(kind = std::any::type_name::<K>(), "watch: {error}"),
            }
        }
    }

    fn notify(&self, change: &Change<K>) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
        let version = version(&**change.object());
        self.seen.send_modify(|seen| *seen = (*seen).max(version));
    }

    fn apply(&self, new: Arc<K>) {
        let key = Key::of(&*new);
        let old = self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key, &new);
        self.notify(&Change::Applied { old, new });
    }

    fn delete(&self, object: Arc<K>) {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(&Key::of(&*object));
        self.notify(&Change::Deleted(object));
    }

    /// Applies a new list as changes relative to the cache.
    fn replace(&self, listing: BTreeMap<Key, Arc<K>>) {
        let vanished: Vec<Arc<K>> = {
            let objects = self.objects();
            let gone = |(key, old): &(&Key, &Arc<K>)| listing.get(*key).is_none_or(|new| new.uid() != old.uid());
            objects.by_key.iter().filter(gone).map(|(_, old)| Arc::clone(old)).collect()
        };
        vanished.into_iter().for_each(|object| self.delete(object));
        for (key, new) in listing {
            if self.get(&key).is_none_or(|old| old.resource_version() != new.resource_version()) {
                self.apply(new);
            }
        }
        self.ready.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, version: &str, controller: Option<&str>) -> Arc<Pod> {
        let owners = controller.map(
            |uid| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": uid, "controller": true}]),
        );
        let meta = json!({"name": name, "namespace": "n", "uid": uid, "resourceVersion": version,
            "ownerReferences": owners.unwrap_or(json!([]))});
        Arc::new(serde_json::from_value(json!({"metadata": meta})).unwrap())
    }

    fn listing(pods: &[Arc<Pod>]) -> BTreeMap<Key, Arc<Pod>> {
        pods.iter().map(|p| (Key::of(&**p), Arc::clone(p))).collect()
    }

    #[test]
    fn a_new_list_is_told_as_the_difference() {
        let watched = Informer::<Pod>::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        watched.on_change(move |change| {
            let word = match change {
                Change::Applied { old: None, .. } => "new",
                Change::Applied { old: Some(_), .. } => "changed",
                Change::Deleted(_) => "deleted",
            };
            log.lock().unwrap().push(format!("{word} {}", change.object().name_any()));
        });
        watched.replace(listing(&[pod("a", "1", "1", None), pod("b", "2", "2", None), pod("c", "3", "3", None)]));
        told.lock().unwrap().clear();
        watched.replace(listing(&[pod("a", "1", "1", None), pod("b", "2", "9", None), pod("c", "4", "8", None)]));
        assert_eq!(*told.lock().unwrap(), ["deleted c", "changed b", "new c"]);
    }

    #[test]
    fn the_index_of_controllers_follows_changes() {
        let watched = Informer::<Pod>::default();
        watched.apply(pod("a", "1", "1", Some("x")));
        watched.apply(pod("b", "2", "2", Some("x")));
        assert_eq!(watched.controlled_by("x").len(), 2);
        watched.apply(pod("a", "1", "3", Some("y")));
        watched.delete(pod("b", "2", "4", Some("x")));
        assert_eq!(watched.controlled_by("x").len(), 0);
        assert_eq!(watched.controlled_by("y").len(), 1);
        assert!(watched.objects().by_controller.len() == 1, "no empty entries are kept");
    }

    #[tokio::test]
    async fn a_writer_waits_until_its_write_is_in_memory() {
        let watched = Arc::new(Informer::<Pod>::default());
        let written = pod("a", "1", "7", None);
        let waiter = tokio::spawn({
            let (watched, written) = (Arc::clone(&watched), Arc::clone(&written));
            async move { watched.wait_for_write(&written).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        watched.apply(written);
        waiter.await.unwrap();
    }
}
