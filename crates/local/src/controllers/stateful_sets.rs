//! StatefulSets: numbered pods, each with a stable name and its own volumes.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::{ignore, pod_control, revision};
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

const WORKERS: usize = 8;
/// Status fields that are omitted when zero.
const COUNTS: [&str; 3] = ["readyReplicas", "currentReplicas", "updatedReplicas"];

pub(crate) fn start(informers: &Arc<Informers>, tasks: &mut JoinSet<()>) {
    let events = EventRecorder::new(informers.client.clone(), "statefulset-controller");
    Controller::new("stateful sets", informers)
        .reconciles(&informers.stateful_sets)
        .owns::<StatefulSet, _>(&informers.pods)
        .run(tasks, WORKERS, move |informers, key| reconcile(informers, events.clone(), key));
}

async fn reconcile(informers: Arc<Informers>, events: EventRecorder, key: Key) -> anyhow::Result<Action> {
    let Some(set) = informers.stateful_sets.get(&key) else { return Ok(Action::AwaitChange) };
    let template = set.spec.template.clone();
    let wanted = format!("{}-{}", key.name, revision::of(&template));
    if set.metadata.deletion_timestamp.is_none() {
        record_revision(&informers, &set, &wanted).await.context("record revision")?;
    }
    let pods = informers.pods.controlled_by(&set.uid().unwrap_or_default());
    let plan = plan::plan(&set, &pods, &wanted, Timestamp::now());
    let acted = async {
        for claim in plan.create.iter().flat_map(|i| plan::claims(&set, *i)) {
            make_claim(&informers, &claim).await.context("create claim")?;
        }
        let pods = plan.create.iter().map(|i| plan::pod(&set, *i, &wanted)).collect();
        pod_control::create_pods(&informers, &events, &*set, pods).await.context("create pods")?;
        pod_control::delete_pods(&informers, &events, &*set, &plan.delete).await.context("delete pods")
    }
    .await;
    if set.status.as_ref() != Some(&plan.status) {
        controller::write_status(&informers, &informers.stateful_sets, &key, &plan.status, &COUNTS)
            .await
            .context("write status")?;
    }
    acted?;
    Ok(if plan.wake { Action::RequeueAfter(Duration::from_secs(1)) } else { Action::AwaitChange })
}

async fn make_claim(informers: &Informers, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let key = Key::of(claim);
    if informers.claims.get(&key).is_some() {
        return Ok(());
    }
    let api = informers.api::<PersistentVolumeClaim>(&key.namespace);
    ignore::already_exists(api.create(&PostParams::default(), claim).await).map(drop)
}

/// Records the template of each revision, for `kubectl rollout history` and `undo`.
async fn record_revision(informers: &Informers, set: &StatefulSet, name: &str) -> kube::Result<()> {
    let namespace = set.namespace().unwrap_or_default();
    if informers.revisions.get(&Key::new(&namespace, name)).is_some() {
        return Ok(());
    }
    let before = informers.revisions.controlled_by(&set.uid().unwrap_or_default());
    let spec = set.spec.clone();
    let mut template = serde_json::to_value(&spec.template).unwrap_or_default();
    template["$patch"] = json!("replace");
    let hash = name.rsplit('-').next().unwrap_or_default().to_owned();
    let mut labels = spec.selector.match_labels.unwrap_or_default();
    labels.insert("controller.kubernetes.io/hash".to_owned(), hash);
    let record = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            owner_references: Some(vec![pod_control::controlled_by(set)]),
            ..ObjectMeta::default()
        },
        data: RawExtension(json!({"spec": {"template": template}})),
        revision: Some(before.iter().filter_map(|r| r.revision).max().unwrap_or(0) + 1),
    };
    let api = informers.api::<ControllerRevision>(&namespace);
    if let Some(written) = ignore::already_exists(api.create(&PostParams::default(), &record).await)? {
        informers.revisions.wait_for_write(&written).await;
    }
    Ok(())
}
