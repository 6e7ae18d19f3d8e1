//! The runs of every schedule: applications that a ScheduledSparkApplication owns, as the application watch shows them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use firesteel_api::SparkApplication;
use firesteel_core::schedule::{KIND, RunSeen};
use kube::core::DeserializeGuard;
use kube::{Resource, ResourceExt};
use tokio::sync::watch;

use crate::relist::Change;

/// Namespace and name of a schedule.
pub(crate) type ScheduleKey = (String, String);
/// Namespace and name of a run.
type RunKey = (String, String);

/// Runs by schedule.
#[derive(Debug)]
pub(crate) struct RunIndex {
    runs: Mutex<Runs>,
    /// Whether the applications have been listed.
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Runs {
    /// Uid of the schedule → its runs by name.
    by_owner: HashMap<String, BTreeMap<String, RunSeen>>,
    owners: HashMap<RunKey, Owner>,
}

/// The schedule that owns a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    uid: String,
    name: String,
}

impl Default for RunIndex {
    fn default() -> Self {
        RunIndex { runs: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl RunIndex {
    /// Takes in a change; returns the schedules that it concerns.
    pub(crate) fn apply(&self, change: &Change<'_, DeserializeGuard<SparkApplication>>) -> Vec<ScheduleKey> {
        let mut runs = self.lock();
        match change {
            Change::InList(app) | Change::Seen(app) => runs.put(app).into_iter().collect(),
            Change::Gone(app) => runs.remove(&key(app)).into_iter().collect(),
            Change::Listed(there) => {
                let gone: Vec<RunKey> = runs.owners.keys().filter(|run| !there.contains_key(*run)).cloned().collect();
                let touched = gone.iter().filter_map(|run| runs.remove(run)).collect();
                drop(runs);
                self.synced.send_replace(true);
                touched
            }
            Change::Lists => Vec::new(),
        }
    }

    /// The runs of a schedule.
    pub(crate) fn of(&self, uid: &str) -> Vec<RunSeen> {
        self.lock().by_owner.get(uid).map(|runs| runs.values().cloned().collect()).unwrap_or_default()
    }

    /// Waits until all runs are known.
    pub(crate) async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    fn put(&mut self, app: &DeserializeGuard<SparkApplication>) -> Option<ScheduleKey> {
        let run = key(app);
        let Some(owner) = owner(app) else { return self.remove(&run) };
        let status = app.0.as_ref().ok().and_then(|app| app.status.as_ref());
        let seen = RunSeen::read(app.meta(), status);
        if self.owners.get(&run).is_some_and(|known| *known != owner) {
            self.remove(&run);
        }
        self.owners.insert(run.clone(), owner.clone());
        let old = self.by_owner.entry(owner.uid).or_default().insert(run.1, seen.clone());
        // Most updates of an application do not concern its schedule.
        let is_news = old.is_none_or(|old| RunSeen { version: seen.version.clone(), ..old } != seen);
        is_news.then_some((run.0, owner.name))
    }

    fn remove(&mut self, run: &RunKey) -> Option<ScheduleKey> {
        let owner = self.owners.remove(run)?;
        if let Some(runs) = self.by_owner.get_mut(&owner.uid) {
            runs.remove(&run.1);
            if runs.is_empty() {
                self.by_owner.remove(&owner.uid);
            }
        }
        Some((run.0.clone(), owner.name))
    }
}

fn key(app: &DeserializeGuard<SparkApplication>) -> RunKey {
    (app.namespace().unwrap_or_default(), app.name_any())
}

fn owner(app: &DeserializeGuard<SparkApplication>) -> Option<Owner> {
    let owner = app.owner_references().iter().find(|owner| owner.kind == KIND)?;
    Some(Owner { uid: owner.uid.clone(), name: owner.name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relist::Relist;
    use firesteel_core::schedule::RunState;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn app(name: &str, owner: &str, state: &str, version: u32) -> DeserializeGuard<SparkApplication> {
        let app = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(), "ownerReferences": [
                {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "ScheduledSparkApplication", "name": owner, "uid": owner}]},
            "spec": {}, "status": {"applicationState": {"state": state}},
        });
        DeserializeGuard(Ok(serde_json::from_value(app).unwrap()))
    }

    #[test]
    fn a_schedule_is_told_what_concerns_it_and_no_more() {
        let (index, mut relist) = (RunIndex::default(), Relist::default());
        let mut hear = |event: Event<_>| index.apply(&relist.fold(&event));
        let of_a = vec![("n".to_owned(), "a".to_owned())];
        hear(Event::Init);
        assert_eq!(hear(Event::InitApply(app("a-1", "a", "RUNNING", 1))), of_a);
        hear(Event::InitApply(app("b-1", "b", "", 1)));
        assert!(!*index.synced.borrow());
        hear(Event::InitDone);
        assert!(*index.synced.borrow());
        assert!(hear(Event::Apply(app("a-1", "a", "RUNNING", 2))).is_empty(), "nothing new for the schedule");
        assert_eq!(index.of("a")[0].version, "2");
        assert_eq!(hear(Event::Apply(app("a-1", "a", "COMPLETED", 3))), of_a);
        assert_eq!(index.of("a")[0].state, RunState::Completed);
        // The watch was interrupted, and a run deleted meanwhile.
        hear(Event::Init);
        hear(Event::InitApply(app("b-1", "b", "", 1)));
        assert_eq!(hear(Event::InitDone), of_a);
        assert_eq!((index.of("a").len(), index.of("b").len()), (0, 1));
        assert_eq!(hear(Event::Delete(app("b-1", "b", "", 1))), [("n".to_owned(), "b".to_owned())]);
        assert!(index.lock().by_owner.is_empty() && index.lock().owners.is_empty());
    }
}
