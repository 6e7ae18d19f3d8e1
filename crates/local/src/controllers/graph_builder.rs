//! The dependency graph: which kinds and objects exist, and who owns whom.
//!
//! Kinds come from discovery and follow custom resource definitions. The garbage collector and the namespace controller use the
//! graph; it decides nothing itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::informer::{Change, Informer, Key};
use crate::informers::Informers;

/// Definitions arrive in bursts; run discovery once per burst.
const SETTLE: Duration = Duration::from_millis(50);
/// The delay before retrying failed discovery.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) type Meta = PartialObjectMeta<DynamicObject>;

/// A kind whose objects can be listed and deleted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    pub(crate) deletes_collections: bool,
    /// Whether its objects are watched as owners and dependents.
    pub(crate) watched: bool,
}

impl ResourceKind {
    /// The API for this kind in a namespace, which is ignored for cluster-scoped kinds.
    pub(crate) fn api<K>(&self, client: &Client, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// The metadata of one object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub(crate) kind: Arc<ResourceKind>,
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deleting: bool,
}

impl Item {
    fn of(kind: &Arc<ResourceKind>, meta: &Meta) -> Self {
        Item {
            kind: Arc::clone(kind),
            key: Key::of(meta),
            uid: meta.uid().unwrap_or_default(),
            version: meta.resource_version().unwrap_or_default(),
            owners: meta.owner_references().to_vec(),
            finalizers: meta.finalizers().to_vec(),
            deleting: meta.metadata.deletion_timestamp.is_some(),
        }
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|f| f == name)
    }
}

/// A change to the graph.
#[derive(Debug)]
pub(crate) enum Event {
    Changed { old: Option<Arc<Item>>, new: Arc<Item> },
    Gone(Arc<Item>),
}

/// Objects by uid and their dependents. A dependent's owner need not be known.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    items: HashMap<String, Arc<Item>>,
    dependents: HashMap<String, HashSet<String>>,
}

impl Graph {
    pub(crate) fn insert(&mut self, item: &Arc<Item>) -> Option<Arc<Item>> {
        let old = self.items.insert(item.uid.clone(), Arc::clone(item));
        if let Some(old) = &old {
            self.unlink(old);
        }
        for owner in &item.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(item.uid.clone());
        }
        old
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<Item>> {
        let old = self.items.remove(uid)?;
        self.unlink(&old);
        Some(old)
    }

    fn unlink(&mut self, item: &Item) {
        for owner in &item.owners {
            if let Some(of_owner) = self.dependents.get_mut(&owner.uid) {
                of_owner.remove(&item.uid);
                if of_owner.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Item>> {
        self.items.get(uid).cloned()
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<Arc<Item>> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|d| self.get(d)).collect()
    }

    /// Objects that reference an unknown owner.
    pub(crate) fn with_unknown_owners(&self) -> Vec<String> {
        let unknown = self.dependents.iter().filter(|(owner, _)| !self.items.contains_key(*owner));
        unknown.flat_map(|(_, dependents)| dependents.iter().cloned()).collect()
    }
}

type Listener = Box<dyn Fn(&Event) + Send + Sync>;

pub(crate) struct GraphBuilder {
    client: Client,
    graph: RwLock<Graph>,
    kinds: RwLock<Arc<Vec<Arc<ResourceKind>>>>,
    listeners: Mutex<Vec<Listener>>,
    ready: watch::Sender<bool>,
    stale: Notify,
}

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) -> Arc<GraphBuilder> {
    let graph_builder = Arc::new(GraphBuilder {
        client: informers.client.clone(),
        graph: RwLock::default(),
        kinds: RwLock::default(),
        listeners: Mutex::default(),
        ready: watch::Sender::new(false),
        stale: Notify::new(),
    });
    let definitions = Informer::<CustomResourceDefinition>::default();
    let keeper = Arc::clone(&graph_builder);
    definitions.on_change(move |_| keeper.stale.notify_one());
    let client = informers.client.clone();
    tasks.spawn(async move { definitions.run(Api::all(client), watcher::Config::default()).await });
    let keeper = Arc::clone(&graph_builder);
    tasks.spawn(async move { keeper.follow_kinds().await });
    graph_builder
}

impl GraphBuilder {
    pub(crate) fn on_change(&self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    pub(crate) fn graph(&self) -> RwLockReadGuard<'_, Graph> {
        self.graph.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn kinds(&self) -> Arc<Vec<Arc<ResourceKind>>> {
        Arc::clone(&self.kinds.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kind that an owner reference names, in any version.
    pub(crate) fn kind_of(&self, owner: &OwnerReference) -> Option<Arc<ResourceKind>> {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.kinds().iter().find(|k| k.resource.group == group && k.resource.kind == owner.kind).cloned()
    }

    pub(crate) async fn ready(&self) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    fn notify(&self, event: &Event) {
        for listener in self.listeners.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(event);
        }
    }

    fn changed(&self, kind: &Arc<ResourceKind>, change: &Change<Meta>) {
        match change {
            Change::Applied { new, .. } => {
                let new = Arc::new(Item::of(kind, new));
                let old = self.graph.write().unwrap_or_else(PoisonError::into_inner).insert(&new);
                self.notify(&Event::Changed { old, new });
            }
            Change::Deleted(object) => {
                let uid = object.uid().unwrap_or_default();
                let old = self.graph.write().unwrap_or_else(PoisonError::into_inner).remove(&uid);
                if let Some(item) = old {
                    self.notify(&Event::Gone(item));
                }
            }
        }
    }

    /// Watches every kind that discovery lists.
    async fn follow_kinds(self: Arc<Self>) {
        let mut watches: BTreeMap<(String, String), (Arc<ResourceKind>, AbortHandle)> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            match discover(&self.client).await {
                Ok(kinds) => {
                    let fresh = self.take_over(kinds, &mut watches, &mut tasks);
                    for watched in fresh {
                        watched.ready().await;
                    }
                    self.ready.send_replace(true);
                    self.stale.notified().await;
                    tokio::time::sleep(SETTLE).await;
                }
                Err(error) => {
                    tracing::debug!("discovery: {error}");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    fn take_over(
        self: &Arc<Self>,
        kinds: Vec<Arc<ResourceKind>>,
        watches: &mut BTreeMap<(String, String), (Arc<ResourceKind>, AbortHandle)>,
        tasks: &mut JoinSet<()>,
    ) -> Vec<Arc<Informer<Meta>>> {
        let name = |k: &ResourceKind| (k.resource.group.clone(), k.resource.kind.clone());
        watches.retain(|key, (kind, task)| {
            let stays = kinds.iter().any(|k| name(k) == *key && k == kind);
            if !stays {
                task.abort();
                let gone: Vec<Arc<Item>> = {
                    let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
                    let uids: Vec<String> =
                        graph.items.values().filter(|i| i.kind == *kind).map(|i| i.uid.clone()).collect();
                    uids.iter().filter_map(|uid| graph.remove(uid)).collect()
                };
                gone.into_iter().for_each(|item| self.notify(&Event::Gone(item)));
            }
            stays
        });
        let mut fresh = Vec::new();
        for kind in kinds.iter().filter(|k| k.watched) {
            if watches.contains_key(&name(kind)) {
                continue;
            }
            let watched = Arc::new(Informer::<Meta>::default());
            let (keeper, of) = (Arc::clone(self), Arc::clone(kind));
            watched.on_change(move |change| keeper.changed(&of, change));
            let api: Api<Meta> = Api::all_with(self.client.clone(), &kind.resource);
            fresh.push(Arc::clone(&watched));
            let task = tasks.spawn(async move { watched.run(api, watcher::Config::default().any_semantic()).await });
            watches.insert(name(kind), (Arc::clone(kind), task));
        }
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
        fresh
    }
}

/// All kinds that can be listed and deleted, one version each.
async fn discover(client: &Client) -> kube::Result<Vec<Arc<ResourceKind>>> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(_) => Discovery::new(client.clone()).run().await?,
    };
    let mut kinds: Vec<Arc<ResourceKind>> = Vec::new();
    for group in discovery.groups_alphabetical() {
        // Not only those of the preferred version: a group may serve some of its kinds in another one.
        for (resource, can) in group.resources_by_stability() {
            if !can.supports_operation(verbs::LIST) || !can.supports_operation(verbs::DELETE) {
                continue;
            }
            // Events own nothing, and there are too many of them.
            let event = resource.kind == "Event" && matches!(resource.group.as_str(), "" | "events.k8s.io");
            kinds.push(Arc::new(ResourceKind {
                watched: can.supports_operation(verbs::WATCH) && !event,
                namespaced: can.scope == Scope::Namespaced,
                deletes_collections: can.supports_operation(verbs::DELETE_COLLECTION),
                resource,
            }));
        }
    }
    Ok(kinds)
}
