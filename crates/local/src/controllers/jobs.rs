//! Jobs: pods that run until enough of them have succeeded.

mod plan;

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::affairs::Speaker;
use crate::controllers::controller::Controller;
use crate::controllers::{ignore, members};
use crate::queue::Next;
use crate::watched::Key;
use crate::world::World;

const WORKERS: usize = 4;

pub(crate) fn start(world: &Arc<World>, tasks: &mut JoinSet<()>) {
    let speaker = Speaker::new(world.client.clone(), "job-controller");
    Controller::new("jobs", world).reconciles(&world.jobs).owns::<Job, _>(&world.pods).run(
        tasks,
        WORKERS,
        move |world, key| reconcile(world, speaker.clone(), key),
    );
    let world = Arc::clone(world);
    tasks.spawn(async move {
        world.ready().await;
        release_orphans(&world).await;
    });
}

async fn reconcile(world: Arc<World>, speaker: Speaker, key: Key) -> anyhow::Result<Next> {
    let Some(job) = world.jobs.get(&key) else {
        release_orphans(&world).await;
        return Ok(Next::Wait);
    };
    if job.spec.as_ref().and_then(|s| s.managed_by.as_deref()).is_some_and(|m| m != "kubernetes.io/job-controller") {
        return Ok(Next::Wait);
    }
    let pods = world.pods.controlled_by(&job.uid().unwrap_or_default());
    let plan = plan::plan(&job, &pods, Timestamp::now());
    let api = world.api::<Job>(&key.namespace);
    if job.status.as_ref() != Some(&plan.status) {
        let mut wanted = (*job).clone();
        wanted.status = Some(plan.status);
        let written = api.replace_status(&key.name, &PostParams::default(), &wanted).await;
        let Some(written) = ignore::not_found(written).context("write status")? else { return Ok(Next::Wait) };
        world.jobs.caught_up(&written).await;
    }
    for pod in &plan.release {
        release(&world, pod).await.context("release a pod")?;
    }
    members::delete_pods(&world, &speaker, &*job, &plan.delete).await.context("delete pods")?;
    let fresh = plan.create.iter().map(|at| plan::pod(&job, *at)).collect();
    members::create_pods(&world, &speaker, &*job, fresh).await.context("create pods")?;
    if plan.remove {
        let deleted = api.delete(&key.name, &DeleteParams::background()).await;
        ignore::not_found(deleted).context("delete the finished job")?;
    }
    Ok(plan.wake.map_or(Next::Wait, Next::After))
}

/// Takes the finalizer off a pod whose end is in the books.
async fn release(world: &World, pod: &Pod) -> kube::Result<()> {
    let left: Vec<&String> = pod.finalizers().iter().filter(|f| *f != plan::TRACKING).collect();
    let patch = json!({"metadata": {"uid": pod.uid(), "finalizers": left}});
    let api = world.api::<Pod>(&pod.namespace().unwrap_or_default());
    let written = api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    if let Some(written) = ignore::gone_or_replaced(written)? {
        world.pods.caught_up(&written).await;
    }
    Ok(())
}

/// Pods whose job is gone must not wait for it for ever.
async fn release_orphans(world: &World) {
    for pod in world.pods.all() {
        let tracked = pod.finalizers().iter().any(|f| f == plan::TRACKING);
        let owner = pod.owner_references().iter().find(|o| o.kind == "Job" && o.controller == Some(true));
        let alive = owner.is_some_and(|o| {
            let key = Key::new(&pod.namespace().unwrap_or_default(), &o.name);
            world.jobs.get(&key).is_some_and(|j| j.uid().as_deref() == Some(&o.uid))
        });
        if tracked
            && !alive
            && let Err(error) = release(world, &pod).await
        {
            tracing::debug!("release {}: {error}", pod.name_any());
        }
    }
}
