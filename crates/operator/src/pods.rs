//! The pod cache: metadata and status of drivers, and a short record of each executor. [`allocated`] caches the pods of
//! applications whose executors the operator allocates; one watch feeds both.
//!
//! A deleted driver stays as a tombstone until its application goes or a newer driver is deleted: its last state may be the
//! only evidence of how it ended. A deleted executor is kept, with its last phase, until a pass has recorded it.

pub(crate) mod allocated;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, RwLock};

use firesteel_api::names;
use firesteel_core::executors::ExecutorSeen;
use firesteel_core::pod;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;

use crate::relist::{Change, Relist};

/// Containers with this policy have the end of their log as termination message.
pub(crate) const FALLBACK_TO_LOGS: &str = "FallbackToLogsOnError";

/// Namespace and name of an application.
pub(crate) type AppKey = (String, String);

/// Pods of one application.
#[derive(Debug, Clone, Default)]
pub(crate) struct AppPods {
    /// By name; of the spec, only the node, the service account and the termination message policy are kept.
    pub drivers: BTreeMap<String, Arc<Pod>>,
    pub executors: BTreeMap<String, Executor>,
    /// Executors whose pods were deleted since the last pass, as last seen.
    pub departed: BTreeMap<String, Executor>,
    /// The most recently deleted driver.
    pub tombstone: Option<Arc<Pod>>,
}

impl AppPods {
    /// Removes pods that no longer exist: a driver becomes a tombstone, an executor departs.
    fn keep_only(&mut self, there: impl Fn(&str) -> bool) {
        let missing = self.drivers.extract_if(.., |name, _| !there(name)).last();
        self.tombstone = missing.map(|(_, pod)| pod).or(self.tombstone.take());
        let vanished: Vec<_> = self.executors.extract_if(.., |name, _| !there(name)).collect();
        vanished.into_iter().for_each(|(name, executor)| self.depart(name, executor));
    }

    /// Remembers an executor whose pod is gone, if there is a run to count it for.
    fn depart(&mut self, name: String, last: Executor) {
        if !self.drivers.is_empty() || self.tombstone.is_some() {
            self.departed.insert(name, last);
        }
    }
}

/// One executor pod.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    pub submission_id: String,
    /// Its deletion was requested.
    pub deleting: bool,
    pub seen: ExecutorSeen,
}

/// Pods by application, kept up to date by [`PodIndex::apply`].
#[derive(Debug)]
pub(crate) struct PodIndex {
    apps: RwLock<HashMap<AppKey, AppPods>>,
    relist: RwLock<Relist>,
    ready: watch::Sender<bool>,
}

impl Default for PodIndex {
    fn default() -> Self {
        PodIndex { apps: RwLock::default(), relist: RwLock::default(), ready: watch::Sender::new(false) }
    }
}

impl PodIndex {
    /// Waits until all pods have been listed once.
    pub(crate) async fn synced(&self) {
        // The sender lives as long as `self`, so this cannot fail before it is true.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Applies a watch event; returns the applications to reconcile.
    pub(crate) fn apply(&self, event: &Event<Pod>) -> Vec<AppKey> {
        let change = write(&self.relist).fold(event);
        let mut apps = write(&self.apps);
        match change {
            Change::Lists => Vec::new(),
            Change::InList(pod) => {
                put(&mut apps, pod);
                Vec::new()
            }
            Change::Seen(pod) => put(&mut apps, pod).into_iter().collect(),
            Change::Gone(pod) => {
                let Some(key) = key(pod) else { return Vec::new() };
                let entry = apps.entry(key.clone()).or_default();
                let name = pod.metadata.name.clone().unwrap_or_default();
                if let Some(known) = entry.executors.remove(&name) {
                    let last = if is_driver(pod) { known } else { executor(pod, &name) };
                    entry.depart(name.clone(), last);
                }
                let current = entry.drivers.get(&name).is_none_or(|known| known.metadata.uid == pod.metadata.uid);
                if is_driver(pod) && current {
                    entry.drivers.remove(&name);
                    entry.tombstone = Some(Arc::new(trim(pod)));
                }
                vec![key]
            }
            Change::Listed(there) => {
                for ((namespace, _), pods) in apps.iter_mut() {
                    pods.keep_only(|name| there.contains_key(&(namespace.clone(), name.to_owned())));
                }
                self.ready.send_replace(true);
                apps.keys().cloned().collect()
            }
        }
    }

    /// All cached pods of one application.
    pub(crate) fn of(&self, namespace: &str, app: &str) -> AppPods {
        let key = (namespace.to_owned(), app.to_owned());
        self.apps.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key).cloned().unwrap_or_default()
    }

    /// Forgets departed executors of an application: they have been recorded, or are not needed.
    pub(crate) fn settle(&self, namespace: &str, app: &str, departed: &[ExecutorSeen]) {
        let key = (namespace.to_owned(), app.to_owned());
        if departed.is_empty() {
            return;
        }
        if let Some(entry) = write(&self.apps).get_mut(&key) {
            let settled: HashSet<&str> = departed.iter().map(|e| e.name.as_str()).collect();
            entry.departed.retain(|name, _| !settled.contains(name.as_str()));
        }
    }

    /// Forgets the tombstones of all applications except these.
    pub(crate) fn keep_only(&self, names: &HashSet<AppKey>) {
        write(&self.apps).retain(|key, pods| {
            if !names.contains(key) {
                pods.tombstone = None;
                pods.departed.clear();
            }
            names.contains(key) || !pods.drivers.is_empty() || !pods.executors.is_empty()
        });
    }

    /// Forgets the tombstone of a deleted application.
    pub(crate) fn forget(&self, namespace: &str, app: &str) {
        let key = (namespace.to_owned(), app.to_owned());
        let mut apps = write(&self.apps);
        if let Some(entry) = apps.get_mut(&key) {
            entry.tombstone = None;
            entry.departed.clear();
            if entry.drivers.is_empty() && entry.executors.is_empty() {
                apps.remove(&key);
            }
        }
    }
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn key(pod: &Pod) -> Option<AppKey> {
    label(pod, names::LABEL_LAUNCHED_BY).filter(|launched| *launched == "true")?;
    Some((pod.metadata.namespace.clone()?, label(pod, names::LABEL_APP_NAME)?.to_owned()))
}

fn is_driver(pod: &Pod) -> bool {
    matches!(label(pod, names::LABEL_ROLE), Some("driver" | names::ROLE_CONNECT_SERVER))
}

/// Caches a pod, if it belongs to an application.
fn put(apps: &mut HashMap<AppKey, AppPods>, pod: &Pod) -> Option<AppKey> {
    let (key, name) = (key(pod)?, pod.metadata.name.clone()?);
    let entry = apps.entry(key.clone()).or_default();
    if is_driver(pod) {
        entry.drivers.insert(name, Arc::new(trim(pod)));
    } else {
        entry.departed.remove(&name);
        let executor = executor(pod, &name);
        entry.executors.insert(name, executor);
    }
    Some(key)
}

/// The record of an executor pod.
fn executor(pod: &Pod, name: &str) -> Executor {
    let phase = pod::phase(pod);
    let id = label(pod, names::LABEL_EXECUTOR_ID).and_then(|id| id.parse().ok()).unwrap_or(0);
    let submission_id = label(pod, names::LABEL_SUBMISSION_ID).unwrap_or_default().to_owned();
    let deleting = pod.metadata.deletion_timestamp.is_some();
    Executor { submission_id, deleting, seen: ExecutorSeen { name: name.to_owned(), id, phase } }
}

/// The parts of a driver pod that decisions need.
pub(crate) fn trim(pod: &Pod) -> Pod {
    let spec = pod.spec.as_ref().map(|spec| PodSpec {
        node_name: spec.node_name.clone(),
        service_account_name: spec.service_account_name.clone(),
        // Those whose termination message is the end of their log.
        containers: spec
            .containers
            .iter()
            .filter(|container| container.termination_message_policy.as_deref() == Some(FALLBACK_TO_LOGS))
            .map(|container| Container {
                name: container.name.clone(),
                termination_message_policy: container.termination_message_policy.clone(),
                ..Container::default()
            })
            .collect(),
        ..PodSpec::default()
    });
    let metadata = ObjectMeta { managed_fields: None, ..pod.metadata.clone() };
    Pod { metadata, spec, status: pod.status.clone() }
}

/// Watches the pods of one namespace, or all, for both caches. Pods of applications that the operator submitted have one
/// label, those whose executors it allocates another, and most pods have both. A selector cannot express "one or the other",
/// and two watches would deliver most pods twice, so this one delivers all Spark pods; those with neither label are ignored.
pub(crate) async fn follow(api: Api<Pod>, take_in: impl Fn(&Event<Pod>)) {
    let roles = format!("{} in (driver,executor,{})", names::LABEL_ROLE, names::ROLE_CONNECT_SERVER);
    let config = watcher::Config::default().labels(&roles);
    let mut events = watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => take_in(&event),
            Err(error) => tracing::warn!(%error, "the pod watch was interrupted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firesteel_core::pod::PodPhase;
    use serde_json::json;

    fn pod(name: &str, role: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {
                names::LABEL_APP_NAME: "pi", names::LABEL_LAUNCHED_BY: "true", names::LABEL_ROLE: role, names::LABEL_SUBMISSION_ID: "s",
                names::LABEL_EXECUTOR_ID: "3"}},
            "spec": {"containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn d5_a_deleted_driver_leaves_its_last_state_behind() {
        let index = PodIndex::default();
        index.apply(&Event::Apply(pod("pi-driver", "driver", "Running")));
        assert_eq!(index.apply(&Event::Delete(pod("pi-driver", "driver", "Succeeded"))), [("n".into(), "pi".into())]);
        let pods = index.of("n", "pi");
        assert!(pods.drivers.is_empty());
        assert_eq!(pods.tombstone.unwrap().status.clone().unwrap().phase.as_deref(), Some("Succeeded"));
        index.forget("n", "pi");
        assert!(index.of("n", "pi").tombstone.is_none());
    }

    #[test]
    fn an_executor_that_went_keeps_its_last_phase_until_it_is_written_down() {
        let index = PodIndex::default();
        index.apply(&Event::Apply(pod("pi-driver", "driver", "Running")));
        index.apply(&Event::Apply(pod("pi-exec-3", "executor", "Running")));
        index.apply(&Event::Delete(pod("pi-exec-3", "executor", "Succeeded")));
        let pods = index.of("n", "pi");
        assert!(pods.executors.is_empty());
        assert_eq!(pods.departed["pi-exec-3"].seen.phase, PodPhase::Succeeded);
        // A new list does not lose it, and a pod missing from the list keeps its last phase.
        index.apply(&Event::Apply(pod("pi-exec-4", "executor", "Failed")));
        index.apply(&Event::Init);
        index.apply(&Event::InitApply(pod("pi-driver", "driver", "Running")));
        index.apply(&Event::InitDone);
        let pods = index.of("n", "pi");
        assert_eq!(pods.departed["pi-exec-4"].seen.phase, PodPhase::Failed);
        assert_eq!(pods.departed.len(), 2);
        index.settle("n", "pi", &pods.departed.into_values().map(|e| e.seen).collect::<Vec<_>>());
        assert!(index.of("n", "pi").departed.is_empty());
    }

    #[test]
    fn a_new_list_replaces_what_was_known() {
        let index = PodIndex::default();
        index.apply(&Event::Apply(pod("pi-driver", "driver", "Running")));
        index.apply(&Event::Apply(pod("pi-exec-3", "executor", "Running")));
        index.apply(&Event::Init);
        index.apply(&Event::InitApply(pod("pi-exec-3", "executor", "Failed")));
        index.apply(&Event::InitDone);
        let pods = index.of("n", "pi");
        assert!(pods.drivers.is_empty() && pods.tombstone.is_some());
        assert_eq!(pods.executors["pi-exec-3"].seen.id, 3);
        index.keep_only(&HashSet::new());
        assert!(index.of("n", "pi").tombstone.is_none(), "a deleted application is forgotten");
        assert_eq!(index.of("n", "pi").executors.len(), 1);
    }
}
