//! The shell around controllers that keep members for an owner (pods for a set, sets for a Deployment): when they are woken, and
//! how they write a status. What is to be done they decide themselves.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::affairs::Speaker;
use crate::queue::{Next, Queue};
use crate::watched::{Change, Key, Watched};
use crate::world::World;

/// What the memory can hold.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}

/// One controller of this kind.
pub(crate) struct Shell<'a, O, M> {
    /// For the log.
    pub(crate) name: &'static str,
    /// Whom its events come from.
    pub(crate) speaks_as: &'static str,
    pub(crate) owners: &'a Watched<O>,
    pub(crate) members: &'a Watched<M>,
    /// How many owners are looked after at the same time.
    pub(crate) at_once: usize,
}

impl<O: Kind, M: Kind> Shell<'_, O, M> {
    /// Calls `reconcile` for every owner that changed, or one of whose members did; a member that went over to another owner
    /// counts for both.
    pub(crate) fn start<F, Fut>(self, world: &Arc<World>, tasks: &mut JoinSet<()>, reconcile: F)
    where
        F: Fn(Arc<World>, Speaker, Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Next>> + Send + 'static,
    {
        let queue: Arc<Queue<Key>> = Queue::new();
        let to = Arc::clone(&queue);
        self.owners.on_change(move |change| to.add(Key::of(&**change.object())));
        let to = Arc::clone(&queue);
        let kind = O::kind(&());
        self.members.on_change(move |change| {
            let old = match change {
                Change::Applied { old, .. } => old.as_deref(),
                Change::Deleted(_) => None,
            };
            for member in old.into_iter().chain([&**change.object()]) {
                for owner in member.owner_references().iter().filter(|o| o.kind == kind) {
                    to.add(Key::new(&member.namespace().unwrap_or_default(), &owner.name));
                }
            }
        });
        let world = Arc::clone(world);
        let speaker = Speaker::new(world.client.clone(), self.speaks_as);
        let (name, at_once) = (self.name, self.at_once);
        tasks.spawn(async move {
            world.ready().await;
            queue.serve(name, at_once, move |key| reconcile(Arc::clone(&world), speaker.clone(), key)).await;
        });
    }
}

/// Writes a status and waits until the memory has it. An object that is gone needs none.
///
/// `counts` are fields that serde leaves out when they are zero; a merge patch has to take them away by name.
pub(crate) async fn write_status<K>(
    world: &World,
    kept: &Watched<K>,
    key: &Key,
    status: &impl Serialize,
    counts: &[&str],
) -> anyhow::Result<()>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
{
    let mut patch = json!({"status": status});
    for field in counts {
        if patch["status"].get(field).is_none() {
            patch["status"][field] = Value::Null;
        }
    }
    match world.api::<K>(&key.namespace).patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(written) => kept.caught_up(&written).await,
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error).context("write status"),
    }
    Ok(())
}
