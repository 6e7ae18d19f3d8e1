//! The cache of pods of applications whose executors Firesteel allocates.
//!
//! A creation counts as in flight from before the request until the watch shows its pod, even if the pod is gone by then. So
//! no executor is created twice, and none is awaited that has already come and gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use firesteel_api::names;
use firesteel_core::allocation::creation::Creation;
use firesteel_core::allocation::pod::{ExecutorPod, Flight, Stage, State};
use firesteel_core::allocation::size::Amount;
use firesteel_core::grant::admission::LiveDriver;
use firesteel_core::pod::{DriverPod, PodPhase, SparkContainer};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::relist::{Change, Relist};

/// Namespace and `spark.app.id`.
pub(crate) type AppIdKey = (String, String);

/// Pods of one application.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllocatedPods {
    pub(crate) driver: Option<DriverPod>,
    /// The driver's service account.
    pub(crate) account: String,
    /// By name.
    pub(crate) executors: BTreeMap<String, ExecutorPod>,
    /// Deleted pods whose end has a known reason: members of sets, whose controllers quickly delete failed ones, and single pods
    /// removed by the platform. By uid, until a pass has seen them.
    pub(crate) departed: BTreeMap<String, ExecutorPod>,
    /// Executors being created.
    pub(crate) in_flight: BTreeMap<u64, Flight>,
}

impl AllocatedPods {
    /// Removes pods that are gone, by name and uid, and keeps those whose end has a known reason as departed.
    fn lose(&mut self, gone: impl Fn(&str, &str) -> bool) {
        for (_, pod) in self.executors.extract_if(.., |name, pod| gone(name, &pod.uid)) {
            if let Some(pod) = pod.departed() {
                self.departed.insert(pod.uid.clone(), pod);
            }
        }
        self.driver = self.driver.take().filter(|driver| !gone(&driver.name, &driver.uid));
    }

    fn is_empty(&self) -> bool {
        self.driver.is_none() && self.executors.is_empty() && self.in_flight.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    apps: Mutex<HashMap<AppIdKey, AllocatedPods>>,
    relist: Mutex<Relist>,
    ready: watch::Sender<bool>,
}

impl Default for Index {
    fn default() -> Self {
        Index { apps: Mutex::default(), relist: Mutex::default(), ready: watch::Sender::new(false) }
    }
}

impl Index {
    /// Waits until all pods have been listed once.
    pub(crate) async fn synced(&self) {
        // The sender lives as long as `self`, so this cannot fail before it is true.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Applies a watch event; returns the applications it affects.
    pub(crate) fn apply(&self, event: &Event<Pod>) -> Vec<AppIdKey> {
        let change = lock(&self.relist).fold(event);
        let mut apps = lock(&self.apps);
        match change {
            Change::Lists => {
                let flights = apps.values_mut().flat_map(|app| app.in_flight.values_mut());
                flights.filter(|f| f.stage == Stage::Made).for_each(|f| f.stage = Stage::MadeBeforeList);
                Vec::new()
            }
            Change::InList(pod) => {
                put(&mut apps, pod);
                Vec::new()
            }
            Change::Seen(pod) => put(&mut apps, pod).into_iter().collect(),
            Change::Gone(pod) => {
                // Events may have been merged: this may be the first event for the pod.
                let Some(key) = put(&mut apps, pod) else { return Vec::new() };
                let gone = |name: &str, uid: &str| {
                    pod.metadata.name.as_deref() == Some(name) || pod.metadata.uid.as_deref() == Some(uid)
                };
                if let Some(app) = apps.get_mut(&key) {
                    app.lose(gone);
                    if app.is_empty() {
                        apps.remove(&key);
                    }
                }
                vec![key]
            }
            Change::Listed(there) => {
                for ((namespace, _), app) in apps.iter_mut() {
                    app.lose(|name, _| !there.contains_key(&(namespace.clone(), name.to_owned())));
                    // Created before the list: listed or already gone, it is no longer in flight.
                    app.in_flight.retain(|_, flight| flight.stage != Stage::MadeBeforeList);
                }
                let touched = apps.keys().cloned().collect();
                apps.retain(|_, app| !app.is_empty());
                self.ready.send_replace(true);
                touched
            }
        }
    }

    /// All cached pods of one application.
    pub(crate) fn of(&self, key: &AppIdKey) -> AllocatedPods {
        lock(&self.apps).get(key).cloned().unwrap_or_default()
    }

    /// The driver of one application, without its executors.
    pub(crate) fn driver(&self, key: &AppIdKey) -> AllocatedPods {
        let apps = lock(&self.apps);
        let Some(app) = apps.get(key) else { return AllocatedPods::default() };
        AllocatedPods { driver: app.driver.clone(), account: app.account.clone(), ..AllocatedPods::default() }
    }

    /// Forgets departed pods that have been recorded.
    pub(crate) fn forget(&self, key: &AppIdKey, seen: &BTreeMap<String, ExecutorPod>) {
        if let Some(entry) = lock(&self.apps).get_mut(key) {
            entry.departed.retain(|uid, _| !seen.contains_key(uid));
        }
    }

    /// Records queued creations.
    pub(crate) fn launch(&self, key: &AppIdKey, creations: &[Creation]) {
        let flights = creations.iter().map(|creation| (creation.id, creation.flight.clone()));
        lock(&self.apps).entry(key.clone()).or_default().in_flight.extend(flights);
    }

    /// Cancels those creations that are still queued; returns how many.
    pub(crate) fn cancel(&self, key: &AppIdKey, executors: &[u64]) -> usize {
        let mut apps = lock(&self.apps);
        let Some(entry) = apps.get_mut(key) else { return 0 };
        let queued = |id: &&u64| entry.in_flight.get(id).is_some_and(|flight| flight.stage == Stage::Queued);
        let queued: Vec<u64> = executors.iter().filter(queued).copied().collect();
        queued.iter().for_each(|id| drop(entry.in_flight.remove(id)));
        queued.len()
    }

    /// Records that an executor is about to be requested from the API server. False if it was cancelled.
    pub(crate) fn ask(&self, key: &AppIdKey, id: u64) -> bool {
        self.move_on(key, id, Stage::Asked)
    }

    /// Records that an executor was created.
    pub(crate) fn answered(&self, key: &AppIdKey, id: u64) {
        // The watch may have been faster.
        self.move_on(key, id, Stage::Made);
    }

    fn move_on(&self, key: &AppIdKey, id: u64, stage: Stage) -> bool {
        let mut apps = lock(&self.apps);
        let flight = apps.get_mut(key).and_then(|entry| entry.in_flight.get_mut(&id));
        flight.map(|flight| flight.stage = stage).is_some()
    }

    /// Records that a creation failed.
    pub(crate) fn abandon(&self, key: &AppIdKey, id: u64) {
        if let Some(entry) = lock(&self.apps).get_mut(key) {
            entry.in_flight.remove(&id);
        }
    }

    /// The number of requested executors that do not run yet, by application.
    pub(crate) fn pending(&self) -> HashMap<AppIdKey, usize> {
        let waits = |pod: &&ExecutorPod| pod.is_live() && matches!(pod.state, State::Pending { .. });
        let count = |app: &AllocatedPods| app.in_flight.len() + app.executors.values().filter(waits).count();
        lock(&self.apps).iter().map(|(key, app)| (key.clone(), count(app))).collect()
    }

    /// What the executors of a namespace use by application, including those in flight.
    pub(crate) fn used(&self, namespace: &str) -> HashMap<AppIdKey, Amount> {
        let apps = lock(&self.apps);
        let of_namespace = apps.iter().filter(|(key, _)| key.0 == namespace);
        let amount = |app: &AllocatedPods| {
            let mut amount = Amount::default();
            app.executors.values().filter(|pod| pod.is_live()).for_each(|pod| amount.add(&pod.size, 1));
            app.in_flight.values().for_each(|flight| amount.add(&flight.size, 1));
            amount
        };
        of_namespace.map(|(key, app)| (key.clone(), amount(app))).collect()
    }

    /// Other applications' live drivers in the same namespace with the same service account.
    pub(crate) fn neighbours(&self, own: &AppIdKey, account: &str) -> Vec<(AppIdKey, LiveDriver)> {
        let apps = lock(&self.apps);
        let beside = apps.iter().filter(|(key, app)| key.0 == own.0 && *key != own && app.account == account);
        let live =
            |app: &AllocatedPods| app.driver.as_ref().filter(|driver| driver.outcome().is_none()).map(live_driver);
        beside.filter_map(|(key, app)| Some((key.clone(), live(app)?))).collect()
    }

    /// How many live members each set has, by the set's uid.
    pub(crate) fn members(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        let apps = lock(&self.apps);
        let live = apps.values().flat_map(|app| app.executors.values()).filter(|pod| pod.is_live());
        for member in live.filter_map(|pod| pod.member.as_ref()) {
            *counts.entry(member.set.clone()).or_default() += 1;
        }
        counts
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(pod: &Pod) -> Option<AppIdKey> {
    let labels = pod.metadata.labels.as_ref().filter(|labels| labels.contains_key(names::LABEL_ALLOCATOR))?;
    Some((pod.metadata.namespace.clone()?, labels.get(names::LABEL_APP_SELECTOR)?.clone()))
}

/// Caches a pod, if it belongs to such an application.
fn put(apps: &mut HashMap<AppIdKey, AllocatedPods>, pod: &Pod) -> Option<AppIdKey> {
    let key = key(pod)?;
    let app = apps.entry(key.clone()).or_default();
    if super::is_driver(pod) {
        let seen = DriverPod::read(pod, "", "");
        // A newer driver replaces an older one, not the other way round.
        let newer = app.driver.as_ref().is_none_or(|known| known.uid == seen.uid || known.created <= seen.created);
        if newer {
            let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
            app.account = account.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned());
            app.driver = Some(seen);
        }
    } else if let Some(executor) = ExecutorPod::read(pod, SparkContainer::of(pod).name()) {
        if let Some(id) = executor.id {
            app.in_flight.remove(&id);
        }
        app.executors.insert(executor.name.clone(), executor);
    }
    Some(key)
}

/// What admission depends on.
pub(crate) fn live_driver(driver: &DriverPod) -> LiveDriver {
    LiveDriver { created: driver.created, uid: driver.uid.clone(), name: driver.name.clone() }
}

/// Whether a driver runs and is not being deleted.
pub(crate) fn is_running(driver: &DriverPod) -> bool {
    driver.phase == PodPhase::Running && driver.outcome().is_none() && !driver.deleting
}

#[cfg(test)]
mod tests {
    use super::*;
    use firesteel_core::allocation::size::Size;
    use serde_json::json;

    fn pod(id: u64, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": format!("pi-exec-{id}"), "namespace": "n", "uid": format!("u{id}"), "labels": {
                names::LABEL_APP_SELECTOR: "spark-1", names::LABEL_ROLE: "executor", names::LABEL_ALLOCATOR: "firesteel",
                names::LABEL_EXECUTOR_ID: id.to_string()}},
            "spec": {"containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    /// This many queued creations.
    fn creations(count: u64) -> Vec<Creation> {
        let (profile, stage) = ("0".to_owned(), Stage::Queued);
        let flight = Flight { profile, size: Size::default(), early: false, claims: Vec::new(), stage };
        (1..=count).map(|id| Creation { id, flight: flight.clone(), pod: Pod::default(), claims: Vec::new() }).collect()
    }

    #[test]
    fn a_single_pod_that_the_platform_took_is_remembered_and_one_that_we_deleted_is_not() {
        let index = Index::default();
        let key = ("n".to_owned(), "spark-1".to_owned());
        index.apply(&Event::Apply(pod(1, "Running")));
        index.apply(&Event::Apply(pod(2, "Running")));
        index.apply(&Event::Apply(pod(3, "Running")));
        index.apply(&Event::Delete(pod(1, "Succeeded")));
        let mut evicted = pod(2, "Running");
        evicted.status.as_mut().unwrap().conditions = serde_json::from_value(json!([{"type": "DisruptionTarget",
            "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]))
        .unwrap();
        index.apply(&Event::Delete(evicted));
        let departed = index.of(&key).departed;
        assert_eq!(departed.keys().collect::<Vec<_>>(), ["u2"]);
        assert!(matches!(departed["u2"].state, State::Ended(_)), "{departed:?}");
    }

    #[test]
    fn drivers_of_one_account_in_one_namespace_are_neighbours_while_they_live() {
        let index = Index::default();
        let driver = |app: &str, namespace: &str, account: Option<&str>, phase: &str| {
            let labels = json!({names::LABEL_APP_SELECTOR: app, names::LABEL_ROLE: "driver",
                names::LABEL_ALLOCATOR: "firesteel"});
            let meta = json!({"name": format!("{app}-driver"), "namespace": namespace, "uid": app, "labels": labels});
            let pod = json!({"metadata": meta, "spec": {"containers": [], "serviceAccountName": account},
                "status": {"phase": phase}});
            index.apply(&Event::Apply(serde_json::from_value(pod).unwrap()));
        };
        driver("a", "n", Some("spark"), "Running");
        driver("b", "n", Some("spark"), "Pending");
        driver("c", "n", Some("spark"), "Succeeded");
        driver("d", "n", Some("etl"), "Running");
        driver("e", "m", Some("spark"), "Running");
        driver("f", "n", None, "Running");
        let of = |app: &str| {
            let key = ("n".to_owned(), app.to_owned());
            let found = index.neighbours(&key, &index.of(&key).account);
            found.into_iter().map(|(_, driver)| driver.name).collect::<Vec<_>>()
        };
        assert_eq!((of("a"), of("b")), (vec!["b-driver".to_owned()], vec!["a-driver".to_owned()]));
        assert!(of("d").is_empty() && of("f").is_empty());
    }

    #[test]
    fn a_member_that_is_gone_is_remembered_with_its_reason_until_it_was_seen() {
        let mut member = pod(1, "Running");
        member.metadata.owner_references =
            serde_json::from_value(json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s1",
                "controller": true}]))
            .unwrap();
        let index = Index::default();
        let key = ("n".to_owned(), "spark-1".to_owned());
        index.apply(&Event::Apply(member.clone()));
        index.apply(&Event::Delete(member.clone()));
        assert!(index.of(&key).departed.is_empty(), "its end has no known reason");
        index.apply(&Event::Apply(pod(2, "Running")));
        index.apply(&Event::Apply(member.clone()));
        let status = member.status.as_mut().unwrap();
        (status.phase, status.reason) = (Some("Failed".to_owned()), Some("Evicted".to_owned()));
        index.apply(&Event::Delete(member));
        let departed = index.of(&key).departed;
        assert!(matches!(&departed["u1"].state, State::Ended(end) if end.pod.is_some()), "{departed:?}");
        index.forget(&key, &departed);
        assert!(index.of(&key).departed.is_empty());
    }

    #[test]
    fn a_creation_counts_until_its_pod_is_seen_even_if_it_is_gone_by_then() {
        let index = Index::default();
        let key = ("n".to_owned(), "spark-1".to_owned());
        index.launch(&key, &creations(3));
        index.apply(&Event::Apply(pod(1, "Pending")));
        index.apply(&Event::Delete(pod(2, "Pending")));
        assert_eq!(index.of(&key).in_flight.into_keys().collect::<Vec<_>>(), [3]);
        assert_eq!(index.pending()[&key], 2);
        // A new list does not include what was requested a moment ago.
        index.apply(&Event::Init);
        index.apply(&Event::InitDone);
        assert_eq!(index.of(&key).in_flight.len(), 1);
        assert!(index.of(&key).executors.is_empty());
        index.abandon(&key, 3);
        assert_eq!(index.pending()[&key], 0);
    }

    #[test]
    fn a_creation_that_was_answered_before_a_list_that_does_not_have_it_is_gone() {
        let index = Index::default();
        let key = ("n".to_owned(), "spark-1".to_owned());
        index.launch(&key, &creations(3));
        index.apply(&Event::Apply(pod(9, "Running")));
        for id in 1..=3 {
            assert!(index.ask(&key, id));
        }
        index.answered(&key, 1);
        index.apply(&Event::Init);
        // Created after the list started: it may have missed the list.
        index.answered(&key, 2);
        index.apply(&Event::InitApply(pod(9, "Running")));
        index.apply(&Event::InitDone);
        assert_eq!(index.of(&key).in_flight.into_keys().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn only_a_creation_that_waits_for_its_turn_can_be_taken_back() {
        let index = Index::default();
        let key = ("n".to_owned(), "spark-1".to_owned());
        index.launch(&key, &creations(2));
        assert!(index.ask(&key, 1));
        assert_eq!(index.cancel(&key, &[1, 2, 3]), 1);
        assert!(!index.ask(&key, 2), "it was cancelled");
        assert_eq!(index.cancel(&key, &[1, 2]), 0);
        assert_eq!(index.of(&key).in_flight.into_keys().collect::<Vec<_>>(), [1]);
    }
}
