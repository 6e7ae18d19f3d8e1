//! Jobs: run pods until enough of them have succeeded.

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

use crate::controllers::controller::Controller;
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::{ignore, pod_control};
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 4;

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let events = EventRecorder::new(informers.client.clone(), "job-controller");
    Controller::new("jobs", informers).reconciles(&informers.jobs).owns::<Job, _>(&informers.pods).run(
        tasks,
        WORKERS,
        move |informers, key| reconcile(informers, events.clone(), key),
    );
    let informers = Arc::clone(informers);
    tasks.spawn(async move {
        informers.ready().await;
        release_orphans(&informers).await;
    });
}

async fn reconcile(informers: Arc<Informers>, events: EventRecorder, key: Key) -> anyhow::Result<Action> {
    let Some(job) = informers.jobs.get(&key) else {
        release_orphans(&informers).await;
        return Ok(Action::AwaitChange);
    };
    if job.spec.as_ref().and_then(|s| s.managed_by.as_deref()).is_some_and(|m| m != "kubernetes.io/job-controller") {
        return Ok(Action::AwaitChange);
    }
    let pods = informers.pods.controlled_by(&job.uid().unwrap_or_default());
    let plan = plan::plan(&job, &pods, Timestamp::now());
    let api = informers.api::<Job>(&key.namespace);
    if job.status.as_ref() != Some(&plan.status) {
        let mut wanted = (*job).clone();
        wanted.status = Some(plan.status);
        let written = api.replace_status(&key.name, &PostParams::default(), &wanted).await;
        let Some(written) = ignore::not_found(written).context("write status")? else { return Ok(Action::AwaitChange) };
        informers.jobs.wait_for_write(&written).await;
    }
    for pod in &plan.release {
        release(&informers, pod).await.context("remove a pod's finalizer")?;
    }
    pod_control::delete_pods(&informers, &events, &*job, &plan.delete).await.context("delete pods")?;
    let fresh = plan.create.iter().map(|at| plan::pod(&job, *at)).collect();
    pod_control::create_pods(&informers, &events, &*job, fresh).await.context("create pods")?;
    if plan.remove {
        let deleted = api.delete(&key.name, &DeleteParams::background()).await;
        ignore::not_found(deleted).context("delete the finished job")?;
    }
    Ok(plan.wake.map_or(Action::AwaitChange, Action::RequeueAfter))
}

/// Removes the tracking finalizer from a pod that has been counted.
async fn release(informers: &Informers, pod: &Pod) -> kube::Result<()> {
    let left: Vec<&String> = pod.finalizers().iter().filter(|f| *f != plan::TRACKING).collect();
    let patch = json!({"metadata": {"uid": pod.uid(), "finalizers": left}});
    let api = informers.api::<Pod>(&pod.namespace().unwrap_or_default());
    let written = api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    if let Some(written) = ignore::gone_or_replaced(written)? {
        informers.pods.wait_for_write(&written).await;
    }
    Ok(())
}

/// Pods whose Job is gone must not keep its finalizer forever.
async fn release_orphans(informers: &Informers) {
    for pod in informers.pods.all() {
        let tracked = pod.finalizers().iter().any(|f| f == plan::TRACKING);
        let owner = pod.owner_references().iter().find(|o| o.kind == "Job" && o.controller == Some(true));
        let alive = owner.is_some_and(|o| {
            let key = Key::new(&pod.namespace().unwrap_or_default(), &o.name);
            informers.jobs.get(&key).is_some_and(|j| j.uid().as_deref() == Some(&o.uid))
        });
        if tracked
            && !alive
            && let Err(error) = release(informers, &pod).await
        {
            tracing::debug!("release {}: {error}", pod.name_any());
        }
    }
}
