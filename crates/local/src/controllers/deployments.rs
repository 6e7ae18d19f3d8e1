//! Deployments: one ReplicaSet for each pod template, and rollouts between them.

mod plan;

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::affairs::Speaker;
use crate::controllers::controller::{self, Controller};
use crate::controllers::ignore;
use crate::queue::Next;
use crate::watched::Key;
use crate::world::World;

const WORKERS: usize = 4;
/// Fields of the status that are left out when they are zero.
const COUNTS: [&str; 5] = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];

pub(crate) fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let speaker = Speaker::new(world.client.clone(), "deployment-controller");
    Controller::new("deployments", world)
        .reconciles(&world.deployments)
        .owns::<Deployment, _>(&world.replica_sets)
        .run(tasks, WORKERS, move |world, key| reconcile(world, speaker.clone(), key));
}

async fn reconcile(world: Arc<World>, speaker: Speaker, key: Key) -> anyhow::Result<Next> {
    let Some(deployment) = world.deployments.get(&key) else { return Ok(Next::Wait) };
    let sets = world.replica_sets.controlled_by(&deployment.uid().unwrap_or_default());
    let plan = plan::plan(&deployment, &sets, Timestamp::now());
    let api = world.api::<ReplicaSet>(&key.namespace);
    if let Some(set) = &plan.create {
        let written = api.create(&PostParams::default(), set).await;
        if let Some(written) = ignore::already_exists(written).context("create replica set")? {
            let size = written.spec.replicas.unwrap_or(0);
            let note = format!("Scaled up replica set {} from 0 to {size}", written.name_any());
            speaker.normal(&*deployment, "ScalingReplicaSet", "ScalingReplicaSet", note);
            world.replica_sets.caught_up(&written).await;
        }
    }
    for (set, size) in &plan.scale {
        let before = set.spec.replicas.unwrap_or(0);
        let patch = json!({"metadata": {"resourceVersion": set.resource_version()}, "spec": {"replicas": size}});
        let written =
            api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.context("scale")?;
        let way = if *size > before { "up" } else { "down" };
        let note = format!("Scaled {way} replica set {} from {before} to {size}", set.name_any());
        speaker.normal(&*deployment, "ScalingReplicaSet", "ScalingReplicaSet", note);
        world.replica_sets.caught_up(&written).await;
    }
    for set in &plan.delete {
        let deleted = api.delete(&set.name_any(), &DeleteParams::background()).await;
        if ignore::not_found(deleted).context("delete old replica set")?.is_some() {
            world.replica_sets.gone(&Key::of(&**set), &set.uid().unwrap_or_default()).await;
        }
    }
    number(&world, &deployment, &sets, plan.revision).await.context("number the rollout")?;
    if deployment.status.as_ref() != Some(&plan.status) {
        controller::write_status(&world, &world.deployments, &key, &plan.status, &COUNTS)
            .await
            .context("write status")?;
    }
    Ok(Next::Wait)
}

/// Writes the number of the rollout on the Deployment and on the ReplicaSet that a return to it uses again.
async fn number(world: &World, deployment: &Deployment, sets: &[Arc<ReplicaSet>], number: i64) -> kube::Result<()> {
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
        let api = world.api::<ReplicaSet>(&namespace);
        let written = api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&note)).await?;
        world.replica_sets.caught_up(&written).await;
    }
    if !has(deployment.annotations()) {
        let api = world.api::<Deployment>(&namespace);
        let written = api.patch(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&note)).await?;
        world.deployments.caught_up(&written).await;
    }
    Ok(())
}
