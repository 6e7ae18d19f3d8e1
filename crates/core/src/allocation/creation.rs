//! Single executors to create: the pod of each, and its volume claims.

use std::collections::{BTreeMap, BTreeSet};

use firesteel_api::executors::{ClaimTemplate, ExecutorGrantSpec, ProfileDemand};
use firesteel_api::names;
use firesteel_spark::bridge;
use firesteel_spark::executor::{self, Profile};
use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::effects_builder::{EffectsBuilder, LARGEST_ID};
use super::pod::{Flight, Stage, State};
use super::{Slots, nodes};

/// One executor to create: the claims first, then the pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Creation {
    pub id: u64,
    /// What is known of it until its pod is seen.
    pub flight: Flight,
    pub pod: Pod,
    pub claims: Vec<PersistentVolumeClaim>,
}

impl EffectsBuilder<'_> {
    /// Assigns ids to the executors that got slots, and plans their pods. New executors take over free claims.
    pub(super) fn create(&mut self, slots: &Slots) {
        let known = slots.claims.clone().or_else(|| self.known_claims().cloned());
        let mut free = self.free(known.as_ref());
        let avoided = nodes::avoided(&self.effects.ledger.avoided_nodes, self.sight.now);
        let grant = self.sight.grant;
        let Some(owner) = self.owner() else { return };
        for asked in &self.asked {
            let Some((demand, agent)) = self.plan_for(&asked.profile, None) else { continue };
            let ledger = &mut self.effects.ledger;
            if agent.is_some() {
                ledger.early.get_or_insert_default();
            }
            for _ in 0..asked.count {
                if ledger.reserved_through >= LARGEST_ID {
                    break;
                }
                ledger.reserved_through += 1;
                let id = ledger.reserved_through;
                let profile = profile(&asked.profile, demand);
                let mut pod = executor::executor(&template(grant), &grant.container, id, &profile, &grant.name_prefix);
                pod.metadata.owner_references.get_or_insert_default().push(owner.clone());
                mark(&mut pod.metadata, grant);
                if let Some(agent) = agent {
                    hold(&mut pod, &grant.container, agent);
                }
                nodes::keep_away(&mut pod, &avoided);
                let (claims, names) = claims(grant, id, &owner, &mut pod, &mut free);
                let (profile, size) = (asked.profile.clone(), asked.size.clone());
                let flight = Flight { profile, size, early: agent.is_some(), claims: names, stage: Stage::Queued };
                self.effects.create.push(Creation { id, flight, pod, claims });
            }
        }
        // A list does not contain those being created yet.
        let flights = self.sight.in_flight.values().chain(self.effects.create.iter().map(|creation| &creation.flight));
        let made = flights.flat_map(|flight| flight.claims.iter().cloned());
        self.effects.claims = known.map(|known| known.into_iter().chain(made).collect());
    }

    /// Claims that exist; `None` if they have to be listed.
    pub(super) fn known_claims(&self) -> Option<&BTreeSet<String>> {
        // One of them may be why an executor failed, and those of cancelled creations may not exist.
        let failed = self.effects.ledger.failures.row > self.sight.ledger.failures.row;
        self.sight.memory.claims.as_ref().filter(|_| !failed && self.effects.cancel.is_empty())
    }

    /// Claims that new executors may take over: those that exist and are unused.
    fn free(&self, known: Option<&BTreeSet<String>>) -> BTreeSet<String> {
        if !self.sight.grant.reuse_claims {
            return BTreeSet::new();
        }
        // An ended executor releases its claims at once: its pod, unless kept, is deleted before the next one is created.
        let pods = self.sight.pods.iter().filter(|pod| !matches!(pod.state, State::Ended(_)));
        let flights = self.sight.in_flight.values().flat_map(|flight| &flight.claims);
        let used: BTreeSet<&String> = pods.flat_map(|pod| &pod.claims).chain(flights).collect();
        known.into_iter().flatten().filter(|claim| !used.contains(claim)).cloned().collect()
    }

    /// The driver as the owner of its objects, once it was seen.
    pub(super) fn owner(&self) -> Option<OwnerReference> {
        Some(OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: self.sight.grant.driver.pod_name.clone(),
            uid: self.effects.ledger.driver_uid.clone()?,
            controller: Some(true),
            block_owner_deletion: None,
        })
    }
}

/// A profile as the driver reports it.
pub(super) fn profile(profile: &str, demand: &ProfileDemand) -> Profile {
    let is_amount = |text: &String| text.parse::<Quantity>().is_ok_and(|amount| amount > Quantity::ZERO);
    Profile {
        id: profile.parse().unwrap_or_default(),
        cores: demand.cores,
        // An invalid quantity would leave the template's value.
        cpu: demand.cpu.clone().filter(is_amount).unwrap_or_else(|| demand.cores.max(1).to_string()),
        cpu_limit: demand.cpu_limit.clone(),
        memory: demand.memory.clone(),
        resources: demand.resources.clone(),
        env: demand.env.clone(),
    }
}

/// Adds the labels by which executor pods are found, and the name of Spark's container if it is not the usual one.
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

/// Makes an executor wait for its driver.
pub(super) fn hold(pod: &mut Pod, container: &str, agent: &str) {
    bridge::hold(pod, container, agent);
    pod.metadata.annotations.get_or_insert_default().insert(names::ANNOTATION_EARLY.to_owned(), "true".to_owned());
}

/// The template of a grant as a pod.
pub(super) fn template(spec: &ExecutorGrantSpec) -> Pod {
    Pod {
        metadata: spec.template.metadata.clone().unwrap_or_default(),
        spec: spec.template.spec.clone(),
        ..Pod::default()
    }
}

/// A claim of an application, with the label by which it is found.
pub(super) fn claim(spec: &ExecutorGrantSpec, template: &ClaimTemplate, name: &str) -> PersistentVolumeClaim {
    let mut labels: BTreeMap<String, String> = template.labels.clone();
    labels.insert(names::LABEL_APP_SELECTOR.to_owned(), spec.app_id.clone());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(template.annotations.clone()).filter(|a| !a.is_empty()),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        ..PersistentVolumeClaim::default()
    }
}

/// The claims of one executor: those to create, and the names of all. A free claim of the same template is taken over.
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
        let mut claim = claim(spec, template, &name);
        claim.metadata.owner_references = Some(vec![OwnerReference { controller: None, ..owner.clone() }]);
        made.push(claim);
        all.push(name);
    }
    (made, all)
}
