//! Deletes the contents of terminating namespaces, then finalizes them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::task::JoinSet;

use crate::controllers::graph_builder::{Event, GraphBuilder, Meta, ResourceKind};
use crate::controllers::ignore;
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::{Action, WorkQueue};

/// The entry in `spec.finalizers` that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Deletions wake the controller; this delay covers kinds that are not watched.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const REQUESTS_AT_ONCE: usize = 8;

pub(crate) fn start(informers: &Arc<Informers>, graph_builder: &Arc<GraphBuilder>, tasks: &mut JoinSet<()>) {
    let queue: Arc<WorkQueue<String>> = WorkQueue::new();
    let to = Arc::clone(&queue);
    informers.namespaces.on_change(move |change| {
        if change.object().metadata.deletion_timestamp.is_some() {
            to.add(change.object().name_any());
        }
    });
    let (to, of) = (Arc::clone(&queue), Arc::downgrade(informers));
    graph_builder.on_change(move |event| {
        let Event::Gone(item) = event else { return };
        let Some(informers) = of.upgrade() else { return };
        let namespace = &item.key.namespace;
        let going = |n: &Arc<Namespace>| n.metadata.deletion_timestamp.is_some();
        if !namespace.is_empty() && informers.namespaces.get(&Key::new("", namespace)).as_ref().is_some_and(going) {
            to.add(namespace.clone());
        }
    });
    let (informers, graph_builder) = (Arc::clone(informers), Arc::clone(graph_builder));
    tasks.spawn(async move {
        informers.namespaces.ready().await;
        graph_builder.ready().await;
        let work = move |name| empty(Arc::clone(&informers), Arc::clone(&graph_builder), name);
        queue.serve("namespaces", 4, work).await;
    });
}

async fn empty(informers: Arc<Informers>, graph_builder: Arc<GraphBuilder>, name: String) -> anyhow::Result<Action> {
    let api: Api<Namespace> = informers.cluster_api();
    let Some(mut namespace) = api.get_opt(&name).await? else { return Ok(Action::AwaitChange) };
    if namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Action::AwaitChange);
    }
    let kinds = graph_builder.kinds();
    let namespaced: Vec<Arc<ResourceKind>> = kinds.iter().filter(|k| k.namespaced).cloned().collect();
    let left: Vec<bool> = stream::iter(namespaced)
        .map(|kind| {
            let (client, name) = (informers.client.clone(), name.clone());
            async move { clear(&client, &kind, &name).await.with_context(|| kind.resource.plural.clone()) }
        })
        .buffer_unordered(REQUESTS_AT_ONCE)
        .try_collect()
        .await?;
    if left.contains(&true) {
        return Ok(Action::RequeueAfter(LOOK_AGAIN));
    }
    let finalizers = namespace.spec.get_or_insert_default().finalizers.get_or_insert_default();
    finalizers.retain(|f| f != FINALIZER);
    let written = api.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await;
    ignore::not_found(written).context("finalize")?;
    Ok(Action::AwaitChange)
}

/// Deletes all objects of a kind in a namespace; returns whether there were any.
async fn clear(client: &Client, kind: &ResourceKind, namespace: &str) -> kube::Result<bool> {
    let api = kind.api::<Meta>(client, namespace);
    let found = match api.list_metadata(&ListParams::default().limit(500)).await {
        Ok(list) => list.items,
        // The kind is gone, or cannot be listed and so has no objects.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => return Ok(false),
        Err(error) => return Err(error),
    };
    if found.is_empty() {
        return Ok(false);
    }
    let api = kind.api::<DynamicObject>(client, namespace);
    let how = DeleteParams::background();
    if kind.deletes_collections {
        api.delete_collection(&how, &ListParams::default()).await?;
    } else {
        for object in found.iter().filter(|o| o.metadata.deletion_timestamp.is_none()) {
            ignore::not_found(api.delete(&object.name_any(), &how).await)?;
        }
    }
    Ok(true)
}
