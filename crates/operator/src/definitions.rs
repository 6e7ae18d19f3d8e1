//! Checks whether the cluster's CustomResourceDefinitions keep the fields this operator writes.
//!
//! The CRDs of an existing operator stay in place when people switch, and Helm or Argo CD may reinstall them at any
//! time. The API server then silently drops fields those CRDs lack. [`Definitions`] learns which ones from the CRDs, if
//! the operator may read them, and from the response to every status write. The operator works either way; it logs once
//! what is lost and how to fix it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firesteel_api::crds::{self, UPDATE_COMMAND};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, class, words};

/// How often to check the CRDs. Unless one has changed, only its metadata is read.
const PERIOD: Duration = Duration::from_secs(20);

/// How many times an unchanged CRD overrules responses that contradict it.
const TRUST: u8 = 3;

const APPLICATIONS: &str = "sparkapplications.sparkoperator.k8s.io";
const NEEDED: [&str; 3] = [APPLICATIONS, "executorgrants.firesteel.dev", "executorledgers.firesteel.dev"];

/// What happens while the API server drops Firesteel's own status fields.
const CONSEQUENCES: &str = "applications still run, but `kubectl wait --for=condition` never returns, suspended runs \
    count as failures after an operator restart, and edits to an ended application without a driver pod are missed while no operator runs";

/// Which status fields the CRDs keep.
#[derive(Debug)]
pub(crate) struct Definitions {
    /// Top-level status fields that the API server drops.
    dropped: Mutex<BTreeSet<String>>,
    /// Fields already reported in the log.
    told: Mutex<BTreeSet<String>>,
    /// Incremented when the CRDs change.
    changes: watch::Sender<u64>,
}

impl Default for Definitions {
    fn default() -> Self {
        Definitions { dropped: Mutex::default(), told: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Definitions {
    /// Whether a status merge patch would change anything that is kept.
    pub(crate) fn keep(&self, patch: &Map<String, Value>) -> bool {
        let dropped = lock(&self.dropped);
        patch.keys().any(|field| !dropped.contains(field))
    }

    /// A message naming the dropped fields, if there are any.
    pub(crate) fn complaint(&self) -> Option<String> {
        let dropped = lock(&self.dropped);
        (!dropped.is_empty()).then(|| complaint(dropped.iter().map(|field| format!("status.{field}"))))
    }

    /// Learns from the response to a status patch.
    pub(crate) fn learn(&self, patch: &Map<String, Value>, answer: &Map<String, Value>) {
        {
            let mut dropped = lock(&self.dropped);
            for (field, _) in patch.iter().filter(|(_, value)| !value.is_null()) {
                if answer.contains_key(field) {
                    dropped.remove(field);
                } else {
                    dropped.insert(field.clone());
                }
            }
        }
        self.notify();
    }

    /// Logs what is lost, once per field.
    fn notify(&self) {
        let dropped = lock(&self.dropped).clone();
        let mut told = lock(&self.told);
        if dropped.is_subset(&told) {
            return;
        }
        tracing::warn!("{}; until then {CONSEQUENCES}", complaint(dropped.iter().map(|f| format!("status.{f}"))));
        *told = dropped;
    }

    /// Notified after each CRD change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Watches the cluster's CRDs, as far as the operator may read them.
    pub(crate) async fn follow(self: Arc<Self>, client: Client, until: CancellationToken) {
        let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
        // Fields the SparkApplication CRD lacks, and how many more times it overrules responses.
        let (mut lacking, mut trust) = (None, 0_u8);
        loop {
            for name in NEEDED {
                match look(&client, name, known.get(name)).await {
                    Ok(Look::Unchanged) => {}
                    Ok(Look::Changed { version, lacks }) => {
                        let is_first = known.insert(name, version).is_none();
                        if name == APPLICATIONS {
                            (lacking, trust) = (Some(status_fields(&lacks)), TRUST);
                            self.correct(lacking.as_ref());
                            if !is_first {
                                self.changes.send_modify(|count| *count += 1);
                            }
                        }
                    }
                    Err(error) if class(&error) == Class::Refused => {
                        tracing::info!(
                            "no permission to read CustomResourceDefinitions ({}); the first application will show which fields they keep",
                            words(&error)
                        );
                        return;
                    }
                    Err(error) => tracing::debug!(name, %error, "cannot read a CustomResourceDefinition"),
                }
            }
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => {}
            }
            // API servers need a moment to pick up a changed CRD; responses until then were misleading.
            if trust > 0 && self.correct(lacking.as_ref()) {
                trust -= 1;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Trusts the CRD. True if responses had suggested something else.
    fn correct(&self, lacking: Option<&BTreeSet<String>>) -> bool {
        let Some(lacking) = lacking else { return false };
        let mut dropped = lock(&self.dropped);
        // Fields that no status has had yet cannot have been dropped.
        let differs = !dropped.is_subset(lacking) || (dropped.is_empty() && !lacking.is_empty());
        dropped.clone_from(lacking);
        lock(&self.told).clone_from(lacking);
        differs
    }
}

/// The result of reading a CRD.
enum Look {
    Unchanged,
    Changed { version: Option<String>, lacks: Vec<String> },
}

/// Reads a CRD if it changed, and logs what is wrong with it.
async fn look(client: &Client, name: &str, known: Option<&Option<String>>) -> Result<Look, kube::Error> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let version = api.get_metadata_opt(name).await?.and_then(|meta| meta.metadata.resource_version);
    if known == Some(&version) {
        return Ok(Look::Unchanged);
    }
    let Some(found) = api.get_opt(name).await? else {
        let loss =
            if name == APPLICATIONS { "no applications can exist" } else { "Firesteel cannot allocate executors" };
        tracing::warn!("CustomResourceDefinition {name} is missing: {loss}; install it: {UPDATE_COMMAND}");
        return Ok(Look::Changed { version: None, lacks: Vec::new() });
    };
    let lacks = crds::lacks(name, &found.data);
    match (lacks.is_empty(), name == APPLICATIONS) {
        (true, _) => tracing::debug!("CustomResourceDefinition {name} has every field"),
        (false, true) => tracing::warn!("{}; until then {CONSEQUENCES}", complaint(lacks.iter().cloned())),
        (false, false) => tracing::warn!(
            "CustomResourceDefinition {name} is older than this operator and drops {}; update it: {UPDATE_COMMAND}",
            lacks.join(", ")
        ),
    }
    Ok(Look::Changed { version: found.metadata.resource_version, lacks })
}

/// The top-level status fields among `paths`.
fn status_fields(paths: &[String]) -> BTreeSet<String> {
    let inside = paths.iter().filter_map(|path| path.strip_prefix("status."));
    inside.filter(|field| !field.contains(['.', '['])).map(str::to_owned).collect()
}

fn complaint(lacks: impl Iterator<Item = String>) -> String {
    let lacks: Vec<String> = lacks.collect();
    format!(
        "CustomResourceDefinition {APPLICATIONS} is older than this operator or belongs to another one, and drops {}; update it: {UPDATE_COMMAND}",
        lacks.join(", ")
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_did_not_come_back_is_not_written_for_its_own_sake() {
        let definitions = Definitions::default();
        let news = map(&json!({"conditions": [], "attempt": 2}));
        assert!(definitions.keep(&news), "nothing is known yet");
        let sent = map(&json!({"conditions": [], "attempt": 1, "executionAttempts": 1, "terminationTime": null}));
        definitions.learn(&sent, &map(&json!({"executionAttempts": 1})));
        assert!(!definitions.keep(&news));
        assert!(definitions.keep(&map(&json!({"attempt": 2, "executionAttempts": 2}))));
        assert!(definitions.complaint().unwrap().contains("status.attempt, status.conditions; update it: "));
        // Someone updated the definition.
        definitions.learn(&sent, &map(&json!({"executionAttempts": 1, "conditions": [], "attempt": 1})));
        assert!(definitions.keep(&news));
        assert_eq!(definitions.complaint(), None);
    }
}
