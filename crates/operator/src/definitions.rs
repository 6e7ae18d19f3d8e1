//! Whether the custom resource definitions of the cluster keep what this operator writes.
//!
//! Definitions of the existing operator stay in place when people switch, and Helm or Argo may put them back at any time. The API
//! server then drops the fields they do not have, without a word. [`Definitions`] knows which: from the definitions, where
//! the operator may read them, and from every answer to a status that was written. The operator works either way; this
//! says once what is lost, and how to get it back.

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

/// How often the definitions are looked at. As long as nothing changed only their metadata is read.
const PERIOD: Duration = Duration::from_secs(20);

/// How often a definition that did not change is believed more than answers that say otherwise.
const TRUST: u8 = 3;

const APPLICATIONS: &str = "sparkapplications.sparkoperator.k8s.io";
const NEEDED: [&str; 3] = [APPLICATIONS, "executorgrants.firesteel.dev", "executorledgers.firesteel.dev"];

/// What follows while statuses are kept without Firesteel's own fields.
const CONSEQUENCES: &str = "applications run all the same, but `kubectl wait --for=condition` waits for ever, runs that were suspended \
    count as failed ones after a restart of the operator, and an edit of an ended application without a driver pod is missed if no operator runs";

/// What the definitions keep of a status.
#[derive(Debug)]
pub struct Definitions {
    /// Fields at the top of a status that the API server drops.
    dropped: Mutex<BTreeSet<String>>,
    /// Fields that people were told of.
    told: Mutex<BTreeSet<String>>,
    /// Counts changes of the definitions.
    changes: watch::Sender<u64>,
}

impl Default for Definitions {
    fn default() -> Self {
        Definitions { dropped: Mutex::default(), told: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Definitions {
    /// Whether a change of a status, as a merge patch, would leave a trace.
    pub(crate) fn keep(&self, patch: &Map<String, Value>) -> bool {
        let dropped = lock(&self.dropped);
        patch.keys().any(|field| !dropped.contains(field))
    }

    /// A sentence about what gets lost, if anything does.
    pub(crate) fn complaint(&self) -> Option<String> {
        let dropped = lock(&self.dropped);
        (!dropped.is_empty()).then(|| complaint(dropped.iter().map(|field| format!("status.{field}"))))
    }

    /// Learns from the status that a patch led to.
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
        self.tell();
    }

    /// Says what is lost, once for each field.
    fn tell(&self) {
        let dropped = lock(&self.dropped).clone();
        let mut told = lock(&self.told);
        if dropped.is_subset(&told) {
            return;
        }
        tracing::warn!("{}; until then {CONSEQUENCES}", complaint(dropped.iter().map(|f| format!("status.{f}"))));
        *told = dropped;
    }

    /// Notified after each change of the definitions.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Follows the definitions of the cluster, as far as the operator may read them.
    pub(crate) async fn follow(self: Arc<Self>, client: Client, until: CancellationToken) {
        let mut known: BTreeMap<&str, Option<String>> = BTreeMap::new();
        // What the definition of applications does not have, and how often that may still be trusted over answers.
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
                            "the operator may not read custom resource definitions ({}); which fields they keep shows with the first application",
                            words(&error)
                        );
                        return;
                    }
                    Err(error) => tracing::debug!(name, %error, "cannot read a custom resource definition"),
                }
            }
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(PERIOD) => {}
            }
            // API servers take a moment to follow a changed definition: answers from then taught the wrong thing.
            if trust > 0 && self.correct(lacking.as_ref()) {
                trust -= 1;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Believes the definition. True if answers had taught something else.
    fn correct(&self, lacking: Option<&BTreeSet<String>>) -> bool {
        let Some(lacking) = lacking else { return false };
        let mut dropped = lock(&self.dropped);
        // Fields that no status had so far cannot be missed.
        let differs = !dropped.is_subset(lacking) || (dropped.is_empty() && !lacking.is_empty());
        dropped.clone_from(lacking);
        lock(&self.told).clone_from(lacking);
        differs
    }
}

/// What was found of a definition.
enum Look {
    Unchanged,
    Changed { version: Option<String>, lacks: Vec<String> },
}

/// Reads a definition if it changed, and says what is wrong with it.
async fn look(client: &Client, name: &str, known: Option<&Option<String>>) -> Result<Look, kube::Error> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let version = api.get_metadata_opt(name).await?.and_then(|meta| meta.metadata.resource_version);
    if known == Some(&version) {
        return Ok(Look::Unchanged);
    }
    let Some(found) = api.get_opt(name).await? else {
        let loss =
            if name == APPLICATIONS { "there are no applications" } else { "Firesteel cannot allocate executors" };
        tracing::warn!("the custom resource definition {name} is missing: {loss}; install it: {UPDATE_COMMAND}");
        return Ok(Look::Changed { version: None, lacks: Vec::new() });
    };
    let lacks = crds::lacks(name, &found.data);
    match (lacks.is_empty(), name == APPLICATIONS) {
        (true, _) => tracing::debug!("the custom resource definition {name} has every field"),
        (false, true) => tracing::warn!("{}; until then {CONSEQUENCES}", complaint(lacks.iter().cloned())),
        (false, false) => tracing::warn!(
            "the custom resource definition {name} is older than this operator and does not keep {}; update it: {UPDATE_COMMAND}",
            lacks.join(", ")
        ),
    }
    Ok(Look::Changed { version: found.metadata.resource_version, lacks })
}

/// The fields at the top of a status among paths.
fn status_fields(paths: &[String]) -> BTreeSet<String> {
    let inside = paths.iter().filter_map(|path| path.strip_prefix("status."));
    inside.filter(|field| !field.contains(['.', '['])).map(str::to_owned).collect()
}

fn complaint(lacks: impl Iterator<Item = String>) -> String {
    let lacks: Vec<String> = lacks.collect();
    format!(
        "the custom resource definition {APPLICATIONS} is another operator's or older than this one and does not keep {}; update it: {UPDATE_COMMAND}",
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
