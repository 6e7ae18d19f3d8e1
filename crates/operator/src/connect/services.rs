//! The cache of Services for clients: of each, only its metadata.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use firesteel_api::names;
use firesteel_core::connect::service;
use firesteel_core::connect::step::SeenService;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

use super::pods::ConnectKey;
use crate::relist::{Change, Relist};

type Metadata = PartialObjectMeta<Service>;

/// The Services of each SparkConnect, by name.
#[derive(Debug)]
pub(super) struct Services {
    known: Mutex<HashMap<ConnectKey, BTreeMap<String, SeenService>>>,
    ready: watch::Sender<bool>,
}

impl Default for Services {
    fn default() -> Self {
        Services { known: Mutex::default(), ready: watch::Sender::new(false) }
    }
}

impl Services {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectKey, BTreeMap<String, SeenService>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, key: &ConnectKey) -> BTreeMap<String, SeenService> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Waits until all Services have been listed once.
    pub(super) async fn synced(&self) {
        // The sender lives as long as `self`, so this cannot fail before it is true.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Keeps the cache up to date; never returns. `touch` is called with the objects whose Services changed.
    pub(super) async fn follow(&self, client: Client, namespace: Option<String>, touch: impl Fn(ConnectKey)) {
        let api: Api<Metadata> = match &namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let labels = format!("{}={}", names::LABEL_EXPOSES, names::ROLE_CONNECT_SERVER);
        let config = watcher::Config::default().labels(&labels);
        let mut events = watcher(api, config).default_backoff().boxed();
        let mut relist = Relist::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(&mut relist, &event).into_iter().for_each(&touch),
                Err(error) => tracing::debug!(%error, "the watch of Services was interrupted"),
            }
        }
    }

    fn apply(&self, relist: &mut Relist, event: &watcher::Event<Metadata>) -> Vec<ConnectKey> {
        let mut known = self.lock();
        match relist.fold(event) {
            Change::Lists => Vec::new(),
            Change::InList(service) | Change::Seen(service) => {
                let Some(key) = key(service) else { return Vec::new() };
                let hash = service::hash(&service.metadata).map(str::to_owned);
                // One that is being deleted does not count.
                let of = known.entry(key.clone()).or_default();
                if service.metadata.deletion_timestamp.is_some() {
                    of.remove(&service.name_any());
                } else {
                    of.insert(service.name_any(), SeenService { uid: service.uid().unwrap_or_default(), hash });
                }
                vec![key]
            }
            Change::Gone(service) => {
                let Some(key) = key(service) else { return Vec::new() };
                if let Some(of) = known.get_mut(&key) {
                    of.remove(&service.name_any());
                    if of.is_empty() {
                        known.remove(&key);
                    }
                }
                vec![key]
            }
            Change::Listed(there) => {
                let touched = known.keys().cloned().collect();
                known.retain(|(namespace, _), of| {
                    of.retain(|name, _| there.contains_key(&(namespace.clone(), name.clone())));
                    !of.is_empty()
                });
                self.ready.send_replace(true);
                touched
            }
        }
    }
}

fn key(service: &Metadata) -> Option<ConnectKey> {
    Some((service.namespace()?, service.labels().get(names::LABEL_CONNECT_NAME)?.clone()))
}
