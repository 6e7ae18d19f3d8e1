//! Every write that executor allocation makes to a cluster, except events.

use std::collections::BTreeSet;
use std::time::Duration;

use firesteel_api::executors::{ExecutorLedgerStatus, Strategy};
use firesteel_api::{ExecutorGrant, ExecutorLedger, names};
use firesteel_cluster::writes::{self, is_owned_by};
use firesteel_core::allocation::creation::Creation;
use firesteel_core::allocation::memory::Refusal;
use firesteel_core::allocation::set_plan::{SetPlan, SetWrite};
use firesteel_core::allocation::sets::MemberPatch;
use firesteel_core::allocation::{Effects, Removal};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::error::{Class, During, Error, class, words};
use crate::pods::allocated::AppIdKey;
use crate::writes::{delete, merge_patch};

/// Concurrent requests of one pass.
const PARALLEL: usize = 16;
/// The deletion cost of a pod to be deleted first; others have none.
const CHEAP: &str = "-1000";
/// Up to this many pods are deleted one by one even at the end of an application.
const FEW: usize = 3;
/// How often an unanswered creation is sent.
const ATTEMPTS: u32 = 3;

/// The ledger of a grant and its resource version, if it exists.
pub(super) async fn read_ledger(
    client: &Client,
    grant: &ExecutorGrant,
) -> Result<Option<(ExecutorLedgerStatus, String)>, Error> {
    let api = ledgers(client, grant);
    let found = api.get_opt(&grant.name_any()).await.during(|| "read the ledger".to_owned())?;
    let Some(found) = found else { return Ok(None) };
    if is_owned_by(&found, &grant.uid().unwrap_or_default()) {
        let version = found.resource_version().unwrap_or_default();
        return Ok(Some((found.status.unwrap_or_default(), version)));
    }
    // It belongs to an earlier driver of the same name.
    let uid = found.metadata.uid.clone();
    delete(&api, &grant.name_any(), uid, true).await.during(|| "remove an old ledger".to_owned())?;
    Ok(None)
}

/// Whether the grant of this name was accepted.
pub(super) async fn is_accepted(client: &Client, namespace: &str, grant: &str) -> Result<bool, Error> {
    let api: Api<ExecutorLedger> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(grant).await.during(|| format!("read the ledger {grant}"))?;
    Ok(found.and_then(|ledger| ledger.status).is_some_and(|status| status.accepted))
}

/// Creates a ledger; returns its resource version.
pub(super) async fn create_ledger(
    client: &Client,
    grant: &ExecutorGrant,
    status: &ExecutorLedgerStatus,
) -> Result<String, Error> {
    let labels = grant.metadata.labels.clone().unwrap_or_default();
    let ledger = ExecutorLedger {
        metadata: ObjectMeta {
            name: Some(grant.name_any()),
            namespace: grant.namespace(),
            labels: Some(labels).filter(|l| !l.is_empty()),
            owner_references: grant.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        status: Some(status.clone()),
        ..ExecutorLedger::default()
    };
    let created = writes::create(&ledgers(client, grant), &PostParams::default(), &ledger).await;
    let created = created.during(|| "create the ledger".to_owned())?;
    created.map(|ledger| ledger.resource_version().unwrap_or_default()).ok_or(Error::Changed)
}

/// Writes what changed in a ledger; returns its new resource version.
pub(super) async fn update_ledger(
    client: &Client,
    grant: &ExecutorGrant,
    old: &ExecutorLedgerStatus,
    new: &ExecutorLedgerStatus,
    version: &str,
) -> Result<String, Error> {
    let Some(difference) = merge_patch(&serde_json::to_value(old)?, &serde_json::to_value(new)?) else {
        return Ok(version.to_owned());
    };
    let patch = json!({"metadata": {"resourceVersion": version}, "status": difference});
    let written = ledgers(client, grant).patch(&grant.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    match written {
        Ok(written) => Ok(written.resource_version().unwrap_or_default()),
        Err(error) if matches!(class(&error), Class::Conflict | Class::Missing) => Err(Error::Changed),
        Err(error) => Err(error).during(|| "write the ledger".to_owned()),
    }
}

fn ledgers(client: &Client, grant: &ExecutorGrant) -> Api<ExecutorLedger> {
    Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default())
}

/// Labels pods that are kept and deletes the others; at the end of an application, all of them with one request.
pub(super) async fn remove(client: &Client, grant: &ExecutorGrant, effects: &Effects) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default());
    let mut outcome = Ok(());
    for name in &effects.retire {
        let patch = json!({"metadata": {"labels": {names::LABEL_EXECUTOR_INACTIVE: "true"}}});
        match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            Err(error) if class(&error) == Class::Missing => {}
            Err(error) => outcome = outcome.and(Err(error).during(|| format!("mark pod {name}"))),
        }
    }
    if effects.over && effects.remove.len() > FEW {
        outcome?;
        let all = format!(
            "{},{}=executor,{},{}!=true",
            selector(&grant.spec.app_id),
            names::LABEL_ROLE,
            names::LABEL_ALLOCATOR,
            names::LABEL_EXECUTOR_INACTIVE
        );
        let deleted = api.delete_collection(&DeleteParams::background(), &ListParams::default().labels(&all)).await;
        return deleted.map(|_| ()).during(|| "delete executors".to_owned());
    }
    let deletions = effects.remove.iter().cloned().map(|removal| remove_pod(api.clone(), removal));
    let outcomes: Vec<Result<(), Error>> = futures::stream::iter(deletions).buffer_unordered(PARALLEL).collect().await;
    outcomes.into_iter().fold(outcome, Result::and)
}

async fn remove_pod(api: Api<Pod>, Removal { name, uid, at_once }: Removal) -> Result<(), Error> {
    delete(&api, &name, Some(uid), at_once).await.during(|| format!("delete pod {name}"))
}

/// The claims of an application that are not being deleted.
pub(super) async fn list_claims(client: &Client, grant: &ExecutorGrant) -> Result<BTreeSet<String>, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default());
    let list = ListParams::default().labels(&selector(&grant.spec.app_id));
    let found = api.list_metadata(&list).await.during(|| "list volume claims".to_owned())?;
    let lasting = found.items.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(lasting.map(ResourceExt::name_any).collect())
}

/// Deletes the claims of an application that ended.
pub(super) async fn remove_claims(client: &Client, (namespace, app_id): &AppIdKey) -> Result<(), Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(&selector(app_id));
    api.delete_collection(&DeleteParams::background(), &list)
        .await
        .map(|_| ())
        .during(|| "delete volume claims".to_owned())
}

/// Creates an executor: its claims, then its pod. Existing ones stem from an earlier attempt whose response was lost.
pub(super) async fn create(client: &Client, namespace: &str, creation: &Creation) -> Result<(), Refusal> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    for claim in &creation.claims {
        post(&claims, claim).await?;
    }
    post(&Api::<Pod>::namespaced(client.clone(), namespace), &creation.pod).await
}

async fn post<K>(api: &Api<K>, object: &K) -> Result<(), Refusal>
where
    K: Resource<DynamicType = ()> + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut attempt = 1;
    loop {
        match writes::create(api, &PostParams::default(), object).await {
            Ok(_) => return Ok(()),
            // No response: it may have been created. Retrying under another id could create two.
            Err(error) if attempt < ATTEMPTS && !matches!(error, kube::Error::Api(_)) => {
                tracing::debug!(%error, attempt, "no response to a creation; retrying");
                tokio::time::sleep(Duration::from_millis(200) * attempt).await;
                attempt += 1;
            }
            Err(error) => return Err(refusal(&error, &format!("{} {}", K::kind(&()), object.name_any()))),
        }
    }
}

/// What an error means for `what`.
fn refusal(error: &kube::Error, what: &str) -> Refusal {
    let why = format!("{what}: {}", words(error));
    match class(error) {
        Class::Refused if why.contains("exceeded quota") || why.contains("status unknown for quota") => {
            Refusal::Quota(why)
        }
        Class::Refused | Class::Missing | Class::Exists => Refusal::Final(why),
        // For a creation, a conflict means that two requests updated the same quota.
        Class::Conflict | Class::Transient => {
            let seconds = match error {
                kube::Error::Api(status) => status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0),
                _ => None,
            };
            Refusal::Later { why, retry_after: seconds.map(|s| Duration::from_secs(u64::from(s))) }
        }
    }
}

/// Writes one set; returns it as the cluster stored it, if it exists.
pub(super) async fn write_set(
    client: &Client,
    namespace: &str,
    strategy: Strategy,
    write: &SetWrite,
) -> Result<Option<DynamicObject>, Refusal> {
    let kind = match strategy {
        Strategy::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        Strategy::ReplicaSet | Strategy::Pods => ApiResource::erase::<ReplicaSet>(&()),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let what = |name: &str| format!("{} {name}", kind.kind);
    match write {
        SetWrite::Delete { name, uid } => {
            let deleted = delete(&api, name, Some(uid.clone()), false).await;
            deleted.map(|()| None).map_err(|error| refusal(&error, &what(name)))
        }
        SetWrite::Create(plan) => create_set(&api, plan, &what(&plan.name)).await,
        SetWrite::Resize { name, replicas } => {
            change_set(&api, name, &Patch::Merge(json!({"spec": {"replicas": replicas}})), &what(name)).await
        }
        SetWrite::Replace { name, operations, .. } => {
            let operations = serde_json::from_value(operations.clone())
                .map_err(|error| Refusal::Final(format!("{} cannot be written: {error}", what(name))))?;
            change_set(&api, name, &Patch::<Value>::Json(operations), &what(name)).await
        }
    }
}

/// Creates a set, or finds the one that an earlier attempt created.
async fn create_set(api: &Api<DynamicObject>, plan: &SetPlan, what: &str) -> Result<Option<DynamicObject>, Refusal> {
    let object: DynamicObject = serde_json::from_value(plan.object.clone())
        .map_err(|error| Refusal::Final(format!("{what} cannot be written: {error}")))?;
    match writes::create(api, &PostParams::default(), &object).await {
        Ok(Some(created)) => Ok(Some(created)),
        Ok(None) => {
            let found = api.get_opt(&plan.name).await.map_err(|error| refusal(&error, what))?;
            if found.is_none_or(|found| is_owned_by(&found, &plan.owner)) {
                // The watch reports it, and the next pass handles it.
                return Ok(None);
            }
            Err(Refusal::Final(format!("{what} already exists and does not belong to this driver")))
        }
        Err(error) => Err(refusal(&error, what)),
    }
}

/// Patches a set; `None` if it no longer exists.
async fn change_set(
    api: &Api<DynamicObject>,
    name: &str,
    patch: &Patch<Value>,
    what: &str,
) -> Result<Option<DynamicObject>, Refusal> {
    match api.patch(name, &PatchParams::default(), patch).await {
        Ok(made) => Ok(Some(made)),
        // Deleted or changed concurrently; the watch will report it.
        Err(error) if matches!(class(&error), Class::Missing | Class::Conflict) => Ok(None),
        Err(error) => Err(refusal(&error, what)),
    }
}

/// Labels set members with their executor ids, and marks those to delete first. Returns those that are done.
pub(super) async fn mark_members(
    client: &Client,
    namespace: &str,
    marks: &[MemberPatch],
) -> (Vec<MemberPatch>, Result<(), Error>) {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let writes = marks.iter().cloned().map(|mark| {
        let api = api.clone();
        async move {
            let patch = Patch::Merge(patch_of(&mark));
            match api.patch_metadata(&mark.name, &PatchParams::default(), &patch).await {
                Ok(_) => Ok(mark),
                // Gone, or replaced by another pod of that name.
                Err(error) if matches!(class(&error), Class::Missing | Class::Conflict) => Ok(mark),
                Err(error) => Err(error).during(|| format!("label pod {}", mark.name)),
            }
        }
    });
    let outcomes: Vec<Result<MemberPatch, Error>> =
        futures::stream::iter(writes).buffer_unordered(PARALLEL).collect().await;
    let (mut marked, mut outcome) = (Vec::new(), Ok(()));
    for each in outcomes {
        match each {
            Ok(mark) => marked.push(mark),
            Err(error) => outcome = Err(error),
        }
    }
    (marked, outcome)
}

fn patch_of(mark: &MemberPatch) -> Value {
    let mut patch = json!({"metadata": {"uid": mark.uid}});
    if let Some((id, ended)) = mark.executor {
        // Without an executor, the label is back to the template's value.
        let label = id.map_or_else(|| "EXECID".to_owned(), |id| id.to_string());
        patch["metadata"]["labels"][names::LABEL_EXECUTOR_ID] = json!(label);
        patch["metadata"]["annotations"][names::ANNOTATION_ACCOUNTED] = json!(ended.to_string());
    }
    if let Some(cheap) = mark.cheap {
        patch["metadata"]["annotations"][names::ANNOTATION_DELETION_COST] = json!(cheap.then_some(CHEAP));
    }
    patch
}

/// The label selector for all objects of an application.
fn selector(app_id: &str) -> String {
    format!("{}={app_id}", names::LABEL_APP_SELECTOR)
}
