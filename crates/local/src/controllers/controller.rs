//! The shell of every controller: what it watches, its work queue, and how it writes a status. Each controller decides for itself
//! what to do.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::ignore;
use crate::informer::{Change, Informer, Key};
use crate::informers::Informers;
use crate::work_queue::{Action, WorkQueue};

/// What an informer can cache.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static {}

/// A controller under construction; [`Controller::run`] starts it.
pub(crate) struct Controller<T> {
    /// For logs.
    name: &'static str,
    informers: Arc<Informers>,
    queue: Arc<WorkQueue<T>>,
}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Controller<T> {
    pub(crate) fn new(name: &'static str, informers: &Arc<Informers>) -> Self {
        Controller { name, informers: Arc::clone(informers), queue: WorkQueue::new() }
    }

    /// Queues the keys that `keys` returns for a change.
    pub(crate) fn watches<K, I>(
        self,
        kind: &Informer<K>,
        keys: impl Fn(&Informers, &Change<K>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        K: Kind,
        I: IntoIterator<Item = T>,
    {
        // The informers own this handler, so it must not own them.
        let (queue, informers) = (Arc::clone(&self.queue), Arc::downgrade(&self.informers));
        kind.on_change(move |change| {
            let Some(informers) = informers.upgrade() else { return };
            keys(&informers, change).into_iter().for_each(|key| queue.add(key));
        });
        self
    }

    /// Reconciles up to `workers` keys concurrently, once all informers have synced.
    pub(crate) fn run<F, Fut>(self, tasks: &mut JoinSet<()>, workers: usize, reconcile: F)
    where
        F: Fn(Arc<Informers>, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Action>> + Send + 'static,
    {
        let Controller { name, informers, queue } = self;
        tasks.spawn(async move {
            informers.ready().await;
            queue.serve(name, workers, move |key| reconcile(Arc::clone(&informers), key)).await;
        });
    }
}

impl Controller<Key> {
    /// Queues every object of a kind when it changes.
    pub(crate) fn reconciles<K: Kind>(self, kind: &Informer<K>) -> Self {
        self.watches(kind, |_, change| [Key::of(&**change.object())])
    }

    /// Queues the owners of kind `O` of an object that changes, both the old and the new ones.
    pub(crate) fn owns<O: Kind, M: Kind>(self, members: &Informer<M>) -> Self {
        let kind = O::kind(&());
        self.watches(members, move |_, change| {
            let owners = |member: &M| -> Vec<Key> {
                let namespace = member.namespace().unwrap_or_default();
                let owners = member.owner_references().iter().filter(|o| o.kind == kind);
                owners.map(|owner| Key::new(&namespace, &owner.name)).collect()
            };
            change.states().flat_map(owners).collect::<Vec<_>>()
        })
    }
}

/// Writes the status of a controller's object and waits until the informer has seen it.
///
/// `counts` are fields that serde omits when they are zero; a merge patch must remove them explicitly.
pub(crate) async fn write_status<K>(
    informers: &Informers,
    kept: &Informer<K>,
    key: &Key,
    status: &impl Serialize,
    counts: &[&str],
) -> kube::Result<()>
where
    K: Kind + Resource<Scope = NamespaceResourceScope>,
{
    let mut patch = json!({"status": status});
    for field in counts {
        if patch["status"].get(field).is_none() {
            patch["status"][field] = Value::Null;
        }
    }
    patch_status(&informers.api(&key.namespace), kept, &key.name, &patch).await
}

/// Merge-patches a status and waits until the informer has seen it. Does nothing if the object is gone.
pub(crate) async fn patch_status<K: Kind>(
    api: &Api<K>,
    kept: &Informer<K>,
    name: &str,
    patch: &Value,
) -> kube::Result<()> {
    let written = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    if let Some(written) = ignore::not_found(written)? {
        kept.wait_for_write(&written).await;
    }
    Ok(())
}
