//! The cache of server pods and of their executors' phases, fed by the one pod watch (`crate::pods::follow`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firesteel_api::names;
use firesteel_core::pod::{self, PodPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::pods::trim;
use crate::relist::{Change, Relist};

/// Namespace and name of a SparkConnect.
pub(crate) type ConnectKey = (String, String);

/// Pods of one SparkConnect, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfConnect {
    /// Of the spec, only what `crate::pods::trim` leaves.
    pub(crate) servers: BTreeMap<String, Arc<Pod>>,
    executors: BTreeMap<String, PodPhase>,
}

impl OfConnect {
    /// Executor pods by phase, in lower case.
    pub(crate) fn counts(&self) -> BTreeMap<String, i32> {
        let mut counts = BTreeMap::new();
        for phase in self.executors.values() {
            *counts.entry(phase.word().to_lowercase()).or_default() += 1;
        }
        counts
    }
}

#[derive(Debug)]
pub(crate) struct ServerPods {
    connects: Mutex<HashMap<ConnectKey, OfConnect>>,
    relist: Mutex<Relist>,
    ready: watch::Sender<bool>,
}

impl Default for ServerPods {
    fn default() -> Self {
        ServerPods { connects: Mutex::default(), relist: Mutex::default(), ready: watch::Sender::new(false) }
    }
}

impl ServerPods {
    /// Waits until all pods have been listed once.
    pub(crate) async fn synced(&self) {
        // The sender lives as long as `self`, so this cannot fail before it is true.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Applies a watch event; returns the objects to reconcile.
    pub(crate) fn apply(&self, event: &Event<Pod>) -> Vec<ConnectKey> {
        let change = lock(&self.relist).fold(event);
        let mut connects = lock(&self.connects);
        match change {
            Change::Lists => Vec::new(),
            Change::InList(pod) => {
                put(&mut connects, pod);
                Vec::new()
            }
            Change::Seen(pod) => put(&mut connects, pod).into_iter().collect(),
            Change::Gone(pod) => {
                let Some(key) = key(pod) else { return Vec::new() };
                let (name, uid) = (pod.metadata.name.as_deref().unwrap_or_default(), &pod.metadata.uid);
                if let Some(of) = connects.get_mut(&key) {
                    of.executors.remove(name);
                    if of.servers.get(name).is_some_and(|known| known.metadata.uid == *uid) {
                        of.servers.remove(name);
                    }
                    if of.servers.is_empty() && of.executors.is_empty() {
                        connects.remove(&key);
                    }
                }
                vec![key]
            }
            Change::Listed(there) => {
                let touched = connects.keys().cloned().collect();
                connects.retain(|(namespace, _), of| {
                    let is_there = |name: &String| there.contains_key(&(namespace.clone(), name.clone()));
                    of.servers.retain(|name, _| is_there(name));
                    of.executors.retain(|name, _| is_there(name));
                    !of.servers.is_empty() || !of.executors.is_empty()
                });
                self.ready.send_replace(true);
                touched
            }
        }
    }

    pub(crate) fn of(&self, key: &ConnectKey) -> OfConnect {
        lock(&self.connects).get(key).cloned().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn key(pod: &Pod) -> Option<ConnectKey> {
    Some((pod.metadata.namespace.clone()?, label(pod, names::LABEL_CONNECT_NAME)?.to_owned()))
}

/// Caches a pod, if it belongs to a SparkConnect.
fn put(connects: &mut HashMap<ConnectKey, OfConnect>, pod: &Pod) -> Option<ConnectKey> {
    let (key, name) = (key(pod)?, pod.metadata.name.clone()?);
    let of = connects.entry(key.clone()).or_default();
    if label(pod, names::LABEL_ROLE) == Some(names::ROLE_CONNECT_SERVER) {
        of.servers.insert(name, Arc::new(trim(pod)));
    } else {
        of.executors.insert(name, pod::phase(pod));
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, role: &str, uid: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": uid, "labels": {
                names::LABEL_CONNECT_NAME: "c", names::LABEL_ROLE: role}},
            "spec": {"containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn executors_are_counted_by_phase_and_a_new_server_outlives_the_news_of_the_old_ones_end() {
        let pods = ServerPods::default();
        let key = ("n".to_owned(), "c".to_owned());
        assert_eq!(
            pods.apply(&Event::Apply(pod("c-server", "connect-server", "1", "Running"))),
            std::slice::from_ref(&key)
        );
        for (name, phase) in [("e-1", "Running"), ("e-2", "Running"), ("e-3", "Pending")] {
            pods.apply(&Event::Apply(pod(name, "executor", name, phase)));
        }
        assert_eq!(pods.of(&key).counts(), [("pending".to_owned(), 1), ("running".to_owned(), 2)].into());
        pods.apply(&Event::Apply(pod("c-server", "connect-server", "2", "Pending")));
        pods.apply(&Event::Delete(pod("c-server", "connect-server", "1", "Running")));
        assert_eq!(pods.of(&key).servers["c-server"].metadata.uid.as_deref(), Some("2"));
        // What is missing from a new list is gone.
        pods.apply(&Event::Init);
        pods.apply(&Event::InitApply(pod("e-1", "executor", "e-1", "Running")));
        assert_eq!(pods.apply(&Event::InitDone), std::slice::from_ref(&key));
        assert!(pods.of(&key).servers.is_empty());
        assert_eq!(pods.of(&key).counts(), [("running".to_owned(), 1)].into());
        pods.apply(&Event::Delete(pod("e-1", "executor", "e-1", "Running")));
        assert!(lock(&pods.connects).is_empty());
    }
}
