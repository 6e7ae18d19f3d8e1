//! Deployments: one ReplicaSet per pod template, and rollouts between them.

mod plan;

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::ignore;
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 4;
/// Status fields that are omitted when zero.
const COUNTS: [&str; 5] = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let events = EventRecorder::new(informers.client.clone(), "deployment-controller");
    Controller::new("deployments", informers)
        .reconciles(&informers.deployments)
        .owns::<Deployment, _>(&informers.replica_sets)
        .run(tasks, WORKERS, move |informers, key| reconcile(informers, events.clone(), key));
}

async fn reconcile(informers: Arc<Informers>, events: EventRecorder, key: Key) -> anyhow::Result<Action> {
    let Some(deployment) = informers.deployments.get(&key) else { return Ok(Action::AwaitChange) };
    let sets = informers.replica_sets.controlled_by(&deployment.uid().unwrap_or_default());
    let plan = plan::plan(&deployment, &sets, Timestamp::now());
    let api = informers.api::<ReplicaSet>(&key.namespace);
    if let Some(set) = &plan.create {
        let written = api.create(&PostParams::default(), set).await;
        if let Some(written) = ignore::already_exists(written).context("create replica set")? {
            let size = written.spec.replicas.unwrap_or(0);
            let note = format!("Scaled up replica set {} from 0 to {size}", written.name_any());
            events.normal(&*deployment, "ScalingReplicaSet", "ScalingReplicaSet", note);
            informers.replica_sets.wait_for_write(&written).await;
        }
    }
    for (set, size) in &plan.scale {
        let before = set.spec.replicas.unwrap_or(0);
        let patch = json!({"metadata": {"resourceVersion": set.resource_version()}, "spec": {"replicas": size}});
        let written =
            api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.context("scale")?;
        let way = if *size > before { "up" } else { "down" };
        let note = format!("Scaled {way} replica set {} from {before} to {size}", set.name_any());
        events.normal(&*deployment, "ScalingReplicaSet", "ScalingReplicaSet", note);
        informers.replica_sets.wait_for_write(&written).await;
    }
    for set in &plan.delete {
        let deleted = api.delete(&set.name_any(), &DeleteParams::background()).await;
        if ignore::not_found(deleted).context("delete old replica set")?.is_some() {
            informers.replica_sets.wait_for_delete(&Key::of(&**set), &set.uid().unwrap_or_default()).await;
        }
    }
    number(&informers, &deployment, &sets, plan.revision).await.context("write the revision")?;
    if deployment.status.as_ref() != Some(&plan.status) {
        controller::write_status(&informers, &informers.deployments, &key, &plan.status, &COUNTS)
            .await
            .context("write status")?;
    }
    Ok(Action::AwaitChange)
}

/// Writes the revision annotation on the Deployment and on its current ReplicaSet.
async fn number(
    informers: &Informers,
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    number: i64,
) -> kube::Result<()> {
    let namespace = deployment.namespace().unwrap_or_default();
    let note = json!({"metadata": {"annotations": {plan::REVISION: number.to_string()}}});
    let has = |annotations: &std::collections::BTreeMap<String, String>| {
        annotations.get(plan::REVISION).is_some_and(|r| *r == number.to_string())
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let template = |t: &k8s_openapi::api::core::v1::PodTemplateSpec| plan::bare(t);
    let wanted = Some(template(&deployment.spec.template));
    let current = sets.iter().find(|s| s.spec.template.as_ref().map(template) == wanted);
    if let Some(set) = current.filter(|s| !has(s.annotations())) {
        let api = informers.api::<ReplicaSet>(&namespace);
        let written = api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&note)).await?;
        informers.replica_sets.wait_for_write(&written).await;
    }
    if !has(deployment.annotations()) {
        let api = informers.api::<Deployment>(&namespace);
        let written = api.patch(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&note)).await?;
        informers.deployments.wait_for_write(&written).await;
    }
    Ok(())
}
