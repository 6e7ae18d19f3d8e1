//! Plans ReplicaSets and StatefulSets of executors, and the writes that bring them about.
//!
//! A set's name derives from its application and profile, its owner is the driver pod, and an annotation holds the hash of
//! its plan: after a crash, the next operator finds the same set and continues with it.

use firesteel_api::executors::{ExecutorGrantSpec, ProfileDemand, Strategy};
use firesteel_api::names;
use firesteel_spark::executor;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::creation::{claim, hold, mark, profile, template};
use super::effects_builder::EffectsBuilder;
use super::nodes;
use super::sets::{ExecutorSet, name};
use super::size::Size;
use crate::identity::digest;

/// One write to a set.
#[derive(Debug, Clone, PartialEq)]
pub enum SetWrite {
    Delete {
        name: String,
        uid: String,
    },
    Create(SetPlan),
    /// Change the size only.
    Resize {
        name: String,
        replicas: u32,
    },
    /// Change the template, for pods created from now on, and the size: the operations of a JSON patch.
    Replace {
        name: String,
        profile: String,
        plan: String,
        operations: Value,
    },
}

/// A set to create.
#[derive(Debug, Clone, PartialEq)]
pub struct SetPlan {
    pub name: String,
    pub profile: String,
    /// The uid of the driver pod.
    pub owner: String,
    /// The hash of its template and claims.
    pub hash: String,
    pub object: Value,
    /// Of each executor.
    size: Size,
}

impl EffectsBuilder<'_> {
    /// Brings the sets to their planned state, and deletes all others.
    pub(super) fn write_sets(&mut self) {
        for asked in &self.asked {
            *self.sizes.entry(asked.profile.clone()).or_default() += asked.count;
        }
        // After a refusal nothing is sent until the wait is over.
        if let Some(hold) = self.sight.memory.held(self.sight.now).filter(|_| !self.effects.over) {
            return self.wake(hold.until);
        }
        let sets = self.sight.sets;
        for set in sets.iter().filter(|set| !set.leaving && !self.sizes.contains_key(&set.profile)) {
            self.effects.sets.push(SetWrite::Delete { name: set.name.clone(), uid: set.uid.clone() });
        }
        let Some(owner) = self.owner() else { return };
        let avoided = nodes::avoided(&self.effects.ledger.avoided_nodes, self.sight.now);
        for (profile, size) in &self.sizes {
            let found = sets.iter().find(|set| set.profile == *profile && !set.leaving);
            let write = match (self.plan_for(profile, found), found) {
                (Some((demand, agent)), found) => {
                    if agent.is_some() {
                        self.effects.ledger.early.get_or_insert_default();
                    }
                    let plan = SetPlan::new(self.sight.grant, &owner, profile, demand, agent, &avoided, *size);
                    match found {
                        None => Some(SetWrite::Create(plan)),
                        Some(found) => plan.change(found, *size, self.is_edited(found)),
                    }
                }
                // The profile is no longer wanted; its set shrinks as far as it can.
                (None, Some(found)) if found.replicas > *size => Some(resize(found, *size)),
                (None, _) => None,
            };
            self.effects.sets.extend(write);
        }
    }

    /// Whether someone else changed a set's template. Edits made before this operator started cannot be detected; writing
    /// the template again changes nothing if there were none.
    fn is_edited(&self, set: &ExecutorSet) -> bool {
        let known = self.sight.memory.templates.get(&set.profile);
        known.is_none_or(|(plan, as_made)| set.plan.as_ref() == Some(plan) && set.template != *as_made)
    }
}

impl SetPlan {
    fn new(
        spec: &ExecutorGrantSpec,
        owner: &OwnerReference,
        of: &str,
        demand: &ProfileDemand,
        agent: Option<&str>,
        avoided: &[String],
        replicas: u32,
    ) -> Self {
        let stateful = spec.strategy == Strategy::StatefulSet;
        let of_spark = if stateful { executor::Strategy::StatefulSet } else { executor::Strategy::ReplicaSet };
        let mut pod = template(spec);
        nodes::keep_away(&mut pod, avoided);
        let mut member = executor::member(&pod, &spec.container, &profile(of, demand), of_spark);
        let given = member.metadata.take().unwrap_or_default();
        let mut meta = ObjectMeta { labels: given.labels, annotations: given.annotations, ..ObjectMeta::default() };
        mark(&mut meta, spec);
        let mut pod = Pod { metadata: meta, spec: member.spec.take(), ..Pod::default() };
        if let Some(agent) = agent {
            hold(&mut pod, &spec.container, agent);
        }
        (member.metadata, member.spec) = (Some(pod.metadata), pod.spec);
        let granted: Vec<PersistentVolumeClaim> =
            spec.claims.iter().filter(|_| stateful).map(|each| claim(spec, each, &each.name)).collect();
        let claims = executor::claim_templates(&mut member, &granted);
        let labels = json!({
            names::LABEL_APP_SELECTOR: spec.app_id, names::LABEL_ROLE: "executor", names::LABEL_EXECUTOR_PROFILE: of,
        });
        let mut all = labels.clone();
        all[names::LABEL_ALLOCATOR] = json!("firesteel");
        let hash = digest(&json!([member, claims]));
        let name = name(spec.strategy, &spec.app_id, of);
        let size = Size::of(spec, of, demand);
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": if stateful { "StatefulSet" } else { "ReplicaSet" },
            "metadata": {
                "name": name, "labels": all,
                "annotations": {names::ANNOTATION_PLAN: hash, names::ANNOTATION_SIZE: json!(size).to_string()},
                "ownerReferences": [owner],
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": member},
        });
        if agent.is_some() {
            object["metadata"]["annotations"][names::ANNOTATION_EARLY] = json!("true");
        }
        if stateful {
            let spec = &mut object["spec"];
            spec["podManagementPolicy"] = json!("Parallel");
            // A new template applies to new pods; working ones are left alone.
            spec["updateStrategy"] = json!({"type": "OnDelete"});
            if !claims.is_empty() {
                spec["volumeClaimTemplates"] = json!(claims);
                spec["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
            }
        }
        SetPlan { name, profile: of.to_owned(), owner: owner.uid.clone(), hash, object, size }
    }

    /// What has to change in a set, if anything.
    fn change(&self, found: &ExecutorSet, replicas: u32, edited: bool) -> Option<SetWrite> {
        let same = found.plan.as_ref() == Some(&self.hash) && !edited;
        // New members would have another size than those that stay: the set has to be gone first.
        let another = found.replicas > 0 && found.size.as_ref().is_some_and(|size| *size != self.size);
        if same || another {
            return (found.replicas != replicas).then(|| resize(found, replicas));
        }
        let pointer = |name: &str| name.replace('~', "~0").replace('/', "~1");
        let annotations = &self.object["metadata"]["annotations"];
        let annotation = |name: &str| json!({"op": "add", "path": format!("/metadata/annotations/{}", pointer(name)), "value": annotations[name]});
        // As a whole: fields that only the old template had must go.
        let operations = json!([
            {"op": "add", "path": "/spec/replicas", "value": replicas},
            {"op": "replace", "path": "/spec/template", "value": self.object["spec"]["template"]},
            annotation(names::ANNOTATION_PLAN),
            annotation(names::ANNOTATION_SIZE),
        ]);
        let (name, profile, plan) = (found.name.clone(), self.profile.clone(), self.hash.clone());
        Some(SetWrite::Replace { name, profile, plan, operations })
    }
}

fn resize(set: &ExecutorSet, replicas: u32) -> SetWrite {
    SetWrite::Resize { name: set.name.clone(), replicas }
}
