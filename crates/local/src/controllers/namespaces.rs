//! Namespaces under deletion: everything in them goes first, then they do.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::task::JoinSet;

use crate::controllers::ignore;
use crate::controllers::inventory::{Event, Inventory, Kind, Meta};
use crate::queue::{Next, Queue};
use crate::watched::Key;
use crate::world::World;

/// The finalizer in `spec.finalizers` that this controller answers for.
const FINALIZER: &str = "kubernetes";
/// Content that goes wakes the controller; this is only for what is not watched.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const REQUESTS_AT_ONCE: usize = 8;

pub(crate) fn start(world: &Arc<World>, inventory: &Arc<Inventory>, tasks: &mut JoinSet<()>) {
    let queue: Arc<Queue<String>> = Queue::new();
    let to = Arc::clone(&queue);
    world.namespaces.on_change(move |change| {
        if change.object().metadata.deletion_timestamp.is_some() {
            to.add(change.object().name_any());
        }
    });
    let (to, of) = (Arc::clone(&queue), Arc::downgrade(world));
    inventory.on_change(move |event| {
        let Event::Gone(item) = event else { return };
        let Some(world) = of.upgrade() else { return };
        let namespace = &item.key.namespace;
        let going = |n: &Arc<Namespace>| n.metadata.deletion_timestamp.is_some();
        if !namespace.is_empty() && world.namespaces.get(&Key::new("", namespace)).as_ref().is_some_and(going) {
            to.add(namespace.clone());
        }
    });
    let (world, inventory) = (Arc::clone(world), Arc::clone(inventory));
    tasks.spawn(async move {
        world.namespaces.ready().await;
        inventory.ready().await;
        let work = move |name| empty(Arc::clone(&world), Arc::clone(&inventory), name);
        queue.serve("namespaces", 4, work).await;
    });
}

async fn empty(world: Arc<World>, inventory: Arc<Inventory>, name: String) -> anyhow::Result<Next> {
    let api: Api<Namespace> = world.cluster_api();
    let Some(mut namespace) = api.get_opt(&name).await? else { return Ok(Next::Wait) };
    if namespace.metadata.deletion_timestamp.is_none() {
        return Ok(Next::Wait);
    }
    let kinds = inventory.kinds();
    let namespaced: Vec<Arc<Kind>> = kinds.iter().filter(|k| k.namespaced).cloned().collect();
    let left: Vec<bool> = stream::iter(namespaced)
        .map(|kind| {
            let (client, name) = (world.client.clone(), name.clone());
            async move { clear(&client, &kind, &name).await.with_context(|| kind.resource.plural.clone()) }
        })
        .buffer_unordered(REQUESTS_AT_ONCE)
        .try_collect()
        .await?;
    if left.contains(&true) {
        return Ok(Next::After(LOOK_AGAIN));
    }
    let finalizers = namespace.spec.get_or_insert_default().finalizers.get_or_insert_default();
    finalizers.retain(|f| f != FINALIZER);
    let written = api.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await;
    ignore::not_found(written).context("finalize")?;
    Ok(Next::Wait)
}

/// Deletes the objects of one kind in a namespace; whether there were any.
async fn clear(client: &Client, kind: &Kind, namespace: &str) -> kube::Result<bool> {
    let api = kind.api::<Meta>(client, namespace);
    let found = match api.list_metadata(&ListParams::default().limit(500)).await {
        Ok(list) => list.items,
        // The kind went away, or cannot be listed (it has nothing then).
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
