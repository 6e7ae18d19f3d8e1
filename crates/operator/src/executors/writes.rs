//! Every change that the allocation of executors makes to a cluster, events aside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firesteel_api::executors::{ExecutorGrantSpec, ExecutorLedgerStatus, ProfileDemand};
use firesteel_api::{ExecutorGrant, ExecutorLedger, names};
use firesteel_core::allocation::{Decision, Removal, nodes};
use firesteel_core::pod::DriverPod;
use firesteel_spark::executor::{self, Profile};
use firesteel_spark::value::Quantity;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

use super::pass::selector;
use crate::error::{Class, During, Error, class, words};
use crate::writes::{delete, merge_patch};

/// Requests of one pass that go on at the same time.
const PARALLEL: usize = 16;
/// So few pods are deleted one by one even at the end of an application.
const FEW: usize = 3;
/// How often a creation is sent that is not answered.
const ATTEMPTS: u32 = 3;

/// The ledger of a grant and its version, if there is one.
pub(super) async fn read_ledger(
    client: &Client,
    grant: &ExecutorGrant,
) -> Result<Option<(ExecutorLedgerStatus, String)>, Error> {
    let api = ledgers(client, grant);
    let found = api.get_opt(&grant.name_any()).await.during(|| "read the ledger".to_owned())?;
    let Some(found) = found else { return Ok(None) };
    if found.owner_references().iter().any(|owner| Some(&owner.uid) == grant.metadata.uid.as_ref()) {
        let version = found.resource_version().unwrap_or_default();
        return Ok(Some((found.status.unwrap_or_default(), version)));
    }
    // Of an earlier driver of the same name.
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

/// Makes a ledger; gives its version.
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
    match ledgers(client, grant).create(&PostParams::default(), &ledger).await {
        Ok(made) => Ok(made.resource_version().unwrap_or_default()),
        Err(error) if matches!(class(&error), Class::Exists) => Err(Error::Changed),
        Err(error) => Err(error).during(|| "create the ledger".to_owned()),
    }
}

/// Writes what changed in a ledger; gives its new version.
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

/// Marks what is kept, and deletes what was decided: at the end of an application all of it with one request.
pub(super) async fn remove(client: &Client, grant: &ExecutorGrant, decision: &Decision) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default());
    let mut outcome = Ok(());
    for name in &decision.retire {
        let patch = json!({"metadata": {"labels": {names::LABEL_EXECUTOR_INACTIVE: "true"}}});
        match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            Err(error) if class(&error) == Class::Missing => {}
            Err(error) => outcome = outcome.and(Err(error).during(|| format!("mark pod {name}"))),
        }
    }
    if decision.over && decision.remove.len() > FEW {
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
    let deletions = decision.remove.iter().cloned().map(|removal| remove_pod(api.clone(), removal));
    let outcomes: Vec<Result<(), Error>> = futures::stream::iter(deletions).buffer_unordered(PARALLEL).collect().await;
    outcomes.into_iter().fold(outcome, Result::and)
}

async fn remove_pod(api: Api<Pod>, Removal { name, uid, at_once }: Removal) -> Result<(), Error> {
    delete(&api, &name, Some(uid), at_once).await.during(|| format!("delete pod {name}"))
}

/// The claims of an application that exist and are not about to go.
pub(super) async fn list_claims(client: &Client, grant: &ExecutorGrant) -> Result<BTreeSet<String>, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default());
    let list = ListParams::default().labels(&selector(&grant.spec.app_id));
    let found = api.list_metadata(&list).await.during(|| "list volume claims".to_owned())?;
    let lasting = found.items.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(lasting.map(ResourceExt::name_any).collect())
}

/// Deletes the claims of an application that ended.
pub(super) async fn remove_claims(client: &Client, namespace: &str, grant: &ExecutorGrantSpec) -> Result<(), Error> {
    if grant.claims.is_empty() {
        return Ok(());
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(&selector(&grant.app_id));
    api.delete_collection(&DeleteParams::background(), &list)
        .await
        .map(|_| ())
        .during(|| "delete volume claims".to_owned())
}

/// Why the cluster did not take an executor.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Not the request's fault.
    Later { why: String, retry_after: Option<Duration> },
    /// There is no room.
    Quota(String),
    /// It will be refused again.
    Final(String),
}

/// One executor to be made.
#[derive(Debug)]
pub(super) struct Creation {
    pod: Pod,
    claims: Vec<PersistentVolumeClaim>,
    /// Of its volumes, new and taken over.
    pub(super) claim_names: Vec<String>,
}

impl Creation {
    /// Builds the pod. Claims that it can take over leave `free`.
    pub(super) fn plan(
        grant: &ExecutorGrant,
        driver: &DriverPod,
        id: u64,
        profile: &str,
        demand: &ProfileDemand,
        avoided: &[String],
        free: &mut BTreeSet<String>,
    ) -> Self {
        let spec = &grant.spec;
        let mut pod =
            executor::executor(&template(spec), &spec.container, id, &profile_of(profile, demand), &spec.name_prefix);
        let owner = owner(driver);
        pod.metadata.owner_references.get_or_insert_default().push(owner.clone());
        mark(&mut pod.metadata, spec);
        nodes::keep_away(&mut pod, avoided);
        let (claims, claim_names) = claims(spec, id, &owner, &mut pod, free);
        Creation { pod, claims, claim_names }
    }

    /// Makes the claims, then the pod. What exists already was made by an earlier try whose answer got lost.
    pub(super) async fn make(&self, client: &Client, namespace: &str) -> Result<(), Refusal> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        for claim in &self.claims {
            post(&claims, claim).await?;
        }
        post(&Api::<Pod>::namespaced(client.clone(), namespace), &self.pod).await
    }
}

/// What the driver says about a profile.
pub(super) fn profile_of(profile: &str, demand: &ProfileDemand) -> Profile {
    Profile {
        id: profile.parse().unwrap_or_default(),
        cores: demand.cores,
        // One that is no quantity would leave the template's.
        cpu: demand.cpu.clone().filter(|cpu| is_amount(cpu)).unwrap_or_else(|| demand.cores.max(1).to_string()),
        cpu_limit: demand.cpu_limit.clone(),
        memory: demand.memory.clone(),
        resources: demand.resources.clone(),
        env: demand.env.clone(),
    }
}

fn is_amount(text: &str) -> bool {
    text.parse::<Quantity>().is_ok_and(|amount| amount > Quantity::ZERO)
}

/// The driver as the owner of what is made for it.
pub(super) fn owner(driver: &DriverPod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: driver.name.clone(),
        uid: driver.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Labels by which executor pods are found, and the name of Spark's container if it is not the usual one.
pub(super) fn mark(meta: &mut ObjectMeta, spec: &ExecutorGrantSpec) {
    let labels = meta.labels.get_or_insert_default();
    labels.insert(names::LABEL_ALLOCATOR.to_owned(), "firesteel".to_owned());
    labels.insert(names::LABEL_APP_SELECTOR.to_owned(), spec.app_id.clone());
    labels.insert(names::LABEL_ROLE.to_owned(), "executor".to_owned());
    if spec.container != names::EXECUTOR_CONTAINER {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_DEFAULT_CONTAINER.to_owned(), spec.container.clone());
    }
}

/// The template of a grant as a pod.
pub(super) fn template(spec: &ExecutorGrantSpec) -> Pod {
    Pod {
        metadata: spec.template.metadata.clone().unwrap_or_default(),
        spec: spec.template.spec.clone(),
        ..Pod::default()
    }
}

async fn post<K>(api: &Api<K>, object: &K) -> Result<(), Refusal>
where
    K: Resource<DynamicType = ()> + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut attempt = 1;
    loop {
        match api.create(&PostParams::default(), object).await {
            Ok(_) => return Ok(()),
            Err(error) if class(&error) == Class::Exists => return Ok(()),
            // No answer: it may have been made. Under another id there would be two.
            Err(error) if attempt < ATTEMPTS && !matches!(error, kube::Error::Api(_)) => {
                tracing::debug!(%error, attempt, "a creation has an unknown fate and is tried again");
                tokio::time::sleep(Duration::from_millis(200) * attempt).await;
                attempt += 1;
            }
            Err(error) => return Err(Refusal::of(&error, &format!("{} {}", K::kind(&()), object.name_any()))),
        }
    }
}

impl Refusal {
    /// What an error means for `what`.
    pub(super) fn of(error: &kube::Error, what: &str) -> Self {
        let why = format!("{what}: {}", words(error));
        match class(error) {
            Class::Refused if why.contains("exceeded quota") || why.contains("status unknown for quota") => {
                Refusal::Quota(why)
            }
            Class::Refused | Class::Missing | Class::Exists => Refusal::Final(why),
            // Of a creation: two that count against the same quota met.
            Class::Conflict | Class::Transient => {
                let retry_after = match error {
                    kube::Error::Api(status) => {
                        status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0)
                    }
                    _ => None,
                };
                Refusal::Later { why, retry_after: retry_after.map(|s| Duration::from_secs(u64::from(s))) }
            }
        }
    }
}

/// The claims of one executor: those to be made, and the names of all. A free claim of the same template is taken over.
fn claims(
    spec: &ExecutorGrantSpec,
    id: u64,
    owner: &OwnerReference,
    pod: &mut Pod,
    free: &mut BTreeSet<String>,
) -> (Vec<PersistentVolumeClaim>, Vec<String>) {
    let mut made = Vec::new();
    let mut all = Vec::new();
    for template in &spec.claims {
        let name = template.name.replace("EXECID", &id.to_string());
        let (before, after) = template.name.split_once("EXECID").unwrap_or((&template.name, ""));
        let fits = |claim: &&String| {
            let number = claim.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        if let Some(taken) = free.iter().find(fits).cloned() {
            free.remove(&taken);
            let volumes = pod.spec.iter_mut().flat_map(|s| s.volumes.iter_mut().flatten());
            for claim in volumes.filter_map(|v| v.persistent_volume_claim.as_mut()).filter(|c| c.claim_name == name) {
                claim.claim_name.clone_from(&taken);
            }
            all.push(taken);
            continue;
        }
        let mut labels: BTreeMap<String, String> = template.labels.clone();
        labels.insert(names::LABEL_APP_SELECTOR.to_owned(), spec.app_id.clone());
        made.push(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels),
                annotations: Some(template.annotations.clone()).filter(|a| !a.is_empty()),
                owner_references: Some(vec![OwnerReference { controller: None, ..owner.clone() }]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            ..PersistentVolumeClaim::default()
        });
        all.push(name);
    }
    (made, all)
}
