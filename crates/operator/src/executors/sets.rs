//! A cache of the ReplicaSets and StatefulSets of executors.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use firesteel_api::executors::Strategy;
use firesteel_api::names;
use firesteel_core::allocation::sets::ExecutorSet;
use firesteel_core::allocation::size::Amount;
use firesteel_core::identity::digest;
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::pods::allocated::{AppIdKey, Index};
use crate::relist::{Change, Relist};

/// A kind of set.
pub(super) trait Set:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    const STRATEGY: Strategy;
    fn read(&self) -> ExecutorSet;
    fn template(&self) -> Result<Value, serde_json::Error>;
}

impl Set for ReplicaSet {
    const STRATEGY: Strategy = Strategy::ReplicaSet;

    fn read(&self) -> ExecutorSet {
        ExecutorSet::of_replica_set(self)
    }

    fn template(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.spec.template)
    }
}

impl Set for StatefulSet {
    const STRATEGY: Strategy = Strategy::StatefulSet;

    fn read(&self) -> ExecutorSet {
        ExecutorSet::of_stateful_set(self)
    }

    fn template(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.spec.template)
    }
}

/// One set.
#[derive(Debug, Clone)]
struct KnownSet {
    set: ExecutorSet,
    strategy: Strategy,
    /// The driver pod it belongs to.
    owner: Option<String>,
    /// Grows with every change to its specification.
    generation: i64,
}

type Apps = HashMap<AppIdKey, BTreeMap<String, KnownSet>>;

/// All sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    apps: Mutex<Apps>,
    replica_sets: Mutex<Listing>,
    stateful_sets: Mutex<Listing>,
}

/// The progress of listing a kind.
#[derive(Debug, Default)]
struct Listing {
    done: bool,
    /// This operator has no permission to list them.
    forbidden: bool,
    relist: Relist,
}

/// Watches one kind of set.
pub(super) async fn follow<K: Set>(sets: &Sets, api: Api<K>, touched: &impl Fn(Vec<AppIdKey>)) {
    let config = watcher::Config::default().labels(names::LABEL_ALLOCATOR);
    let mut events = watch(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => touched(sets.apply(&event)),
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 403 => {
                // An operator without permission to list them creates none.
                sets.listing::<K>().forbidden = true;
                tracing::debug!("no permission to list {}", K::plural(&()));
            }
            Err(error) => tracing::warn!(%error, "the watch of {} was interrupted", K::plural(&())),
        }
    }
}

impl Sets {
    fn listing<K: Set>(&self) -> MutexGuard<'_, Listing> {
        lock(match K::STRATEGY {
            Strategy::StatefulSet => &self.stateful_sets,
            Strategy::ReplicaSet | Strategy::Pods => &self.replica_sets,
        })
    }

    /// Applies a watch event; returns the applications it affects.
    fn apply<K: Set>(&self, event: &Event<K>) -> Vec<AppIdKey> {
        let mut listing = self.listing::<K>();
        let change = listing.relist.fold(event);
        let mut apps = lock(&self.apps);
        match change {
            Change::Lists => Vec::new(),
            Change::InList(set) | Change::Seen(set) => put(&mut apps, set).into_iter().collect(),
            Change::Gone(set) => {
                let Some(key) = key(set.meta()) else { return Vec::new() };
                if let Some(sets) = apps.get_mut(&key) {
                    sets.retain(|_, each| Some(&each.set.uid) != set.meta().uid.as_ref());
                }
                apps.retain(|_, sets| !sets.is_empty());
                vec![key]
            }
            Change::Listed(there) => {
                listing.done = true;
                let touched = apps.keys().cloned().collect();
                for ((namespace, _), sets) in apps.iter_mut() {
                    let there = |name: &String| there.contains_key(&(namespace.clone(), name.clone()));
                    sets.retain(|name, each| each.strategy != K::STRATEGY || there(name));
                }
                apps.retain(|_, sets| !sets.is_empty());
                touched
            }
        }
    }

    /// The sets of one driver; `None` until they have been listed.
    pub(super) fn of(&self, strategy: Strategy, key: &AppIdKey, driver: Option<&str>) -> Option<Vec<ExecutorSet>> {
        let listed = match strategy {
            Strategy::Pods => return Some(Vec::new()),
            Strategy::ReplicaSet => lock(&self.replica_sets).done,
            Strategy::StatefulSet => lock(&self.stateful_sets).done,
        };
        if !listed {
            return None;
        }
        let ours = |each: &&KnownSet| each.strategy == strategy && driver.is_some() && each.owner.as_deref() == driver;
        let apps = lock(&self.apps);
        let known = apps.get(key).into_iter().flat_map(BTreeMap::values).filter(ours);
        Some(known.map(|each| each.set.clone()).collect())
    }

    /// Whether all sets that this operator may list have been listed.
    pub(super) fn listed(&self) -> bool {
        [&self.replica_sets, &self.stateful_sets].into_iter().all(|kind| {
            let listing = lock(kind);
            listing.done || listing.forbidden
        })
    }

    /// Adds the resources of pods that sets in a namespace have yet to create.
    pub(super) fn add_unmade(&self, index: &Index, namespace: &str, used: &mut HashMap<AppIdKey, Amount>) {
        self.each_unmade(
            index,
            |key| key.0 == namespace,
            |key, set, unmade| {
                if !set.leaving {
                    let size = set.size.clone().unwrap_or_default();
                    used.entry(key.clone()).or_default().add(&size, u64::try_from(unmade).unwrap_or(u64::MAX));
                }
            },
        );
    }

    /// Adds the number of pods that sets have yet to create.
    pub(super) fn add_pending(&self, index: &Index, pending: &mut HashMap<AppIdKey, usize>) {
        self.each_unmade(index, |_| true, |key, _, unmade| *pending.entry(key.clone()).or_default() += unmade);
    }

    fn each_unmade(
        &self,
        index: &Index,
        counts: impl Fn(&AppIdKey) -> bool,
        mut each: impl FnMut(&AppIdKey, &ExecutorSet, usize),
    ) {
        let apps = lock(&self.apps);
        if apps.is_empty() {
            return;
        }
        let made = index.members();
        for (key, sets) in apps.iter().filter(|(key, _)| counts(key)) {
            for KnownSet { set, .. } in sets.values() {
                let made = made.get(&set.uid).copied().unwrap_or_default();
                each(key, set, (set.replicas as usize).saturating_sub(made));
            }
        }
    }

    /// Caches the response to a write; returns the hash of the template as the cluster stored it.
    pub(super) fn remember(&self, strategy: Strategy, made: DynamicObject) -> Option<String> {
        let name = made.name_any();
        let mut apps = lock(&self.apps);
        let key = match strategy {
            Strategy::StatefulSet => put(&mut apps, &made.try_parse::<StatefulSet>().ok()?),
            Strategy::ReplicaSet | Strategy::Pods => put(&mut apps, &made.try_parse::<ReplicaSet>().ok()?),
        }?;
        Some(apps.get(&key)?.get(&name)?.set.template.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(meta: &ObjectMeta) -> Option<AppIdKey> {
    let app = meta.labels.as_ref()?.get(names::LABEL_APP_SELECTOR)?;
    Some((meta.namespace.clone()?, app.clone()))
}

/// Caches a set, unless a newer generation is known.
fn put<K: Set>(apps: &mut Apps, set: &K) -> Option<AppIdKey> {
    let meta = set.meta();
    let key = key(meta)?;
    let mut read = set.read();
    let sets = apps.entry(key.clone()).or_default();
    let generation = meta.generation.unwrap_or_default();
    let before = sets.get(&read.name).filter(|before| before.set.uid == read.uid);
    if before.is_some_and(|before| before.generation > generation) {
        return Some(key);
    }
    read.template = match before.filter(|before| before.generation == generation) {
        Some(before) => before.set.template.clone(),
        None => set.template().map(|template| digest(&template)).unwrap_or_default(),
    };
    let mut owners = meta.owner_references.iter().flatten();
    let known = KnownSet {
        strategy: K::STRATEGY,
        owner: owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()),
        generation,
        set: read,
    };
    sets.insert(known.set.name.clone(), known);
    Some(key)
}
