//! The garbage collector: deletes objects whose owners are gone, with Kubernetes' three propagation policies.
//!
//! Background: dependents are deleted after their owner. Foreground: an owner with the `foregroundDeletion` finalizer waits for its
//! blocking dependents. Orphan: dependents of an owner with the `orphan` finalizer lose the reference instead.

mod verdict;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::task::JoinSet;

use self::verdict::{FOREGROUND, ORPHAN, Owner, Verdict, judge};
use crate::controllers::graph_builder::{Event, GraphBuilder, Item, Meta};
use crate::controllers::ignore;
use crate::informers::Informers;
use crate::work_queue::{Action, WorkQueue};

const WORKERS: usize = 16;
/// How often objects with unknown owners are rechecked, in case an owner came and went between two lists.
const RECHECK: Duration = Duration::from_secs(30);

pub(crate) fn start(informers: &Arc<Informers>, graph_builder: &Arc<GraphBuilder>, tasks: &mut JoinSet<()>) {
    let queue: Arc<WorkQueue<String>> = WorkQueue::new();
    let (to, of) = (Arc::clone(&queue), Arc::downgrade(graph_builder));
    graph_builder.on_change(move |event| {
        let Some(graph_builder) = of.upgrade() else { return };
        for uid in touched(event, &graph_builder) {
            to.add(uid);
        }
    });
    let garbage_collector = Arc::new(GarbageCollector {
        client: informers.client.clone(),
        graph_builder: Arc::clone(graph_builder),
        queue: Arc::clone(&queue),
    });
    let (again, of) = (Arc::clone(&queue), Arc::clone(graph_builder));
    tasks.spawn(async move {
        of.ready().await;
        queue.serve("garbage collector", WORKERS, move |uid| Arc::clone(&garbage_collector).collect(uid)).await;
    });
    let of = Arc::clone(graph_builder);
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(RECHECK).await;
            let uids = of.graph().with_unknown_owners();
            uids.into_iter().for_each(|uid| again.add(uid));
        }
    });
}

/// The objects to check after an event.
fn touched(event: &Event, graph_builder: &GraphBuilder) -> Vec<String> {
    match event {
        Event::Changed { old, new } => {
            let same = old.as_ref().is_some_and(|old| {
                old.owners == new.owners && old.deleting == new.deleting && old.finalizers == new.finalizers
            });
            if same {
                return Vec::new();
            }
            let mut uids = Vec::new();
            if !new.owners.is_empty() || (new.deleting && !new.finalizers.is_empty()) {
                uids.push(new.uid.clone());
            }
            // An owner waiting for its dependents may have lost one.
            uids.extend(old.iter().flat_map(|old| &old.owners).map(|o| o.uid.clone()));
            uids
        }
        Event::Gone(item) => {
            let dependents = graph_builder.graph().dependents(&item.uid);
            dependents.iter().map(|d| d.uid.clone()).chain(item.owners.iter().map(|o| o.uid.clone())).collect()
        }
    }
}

struct GarbageCollector {
    client: Client,
    graph_builder: Arc<GraphBuilder>,
    queue: Arc<WorkQueue<String>>,
}

impl GarbageCollector {
    async fn collect(self: Arc<Self>, uid: String) -> anyhow::Result<Action> {
        let Some(item) = self.graph_builder.graph().get(&uid) else { return Ok(Action::AwaitChange) };
        let dependents = self.graph_builder.graph().dependents(&uid);
        if item.deleting {
            return self.finish(&item, &dependents).await;
        }
        if item.owners.is_empty() {
            return Ok(Action::AwaitChange);
        }
        let mut owners = Vec::with_capacity(item.owners.len());
        for reference in &item.owners {
            owners.push((reference.clone(), self.look_up(&item, reference).await?));
        }
        match judge(&item, &owners, !dependents.is_empty()) {
            Verdict::Keep => {}
            Verdict::DropOwners(gone) => self.drop_owners(&item, &gone).await?,
            Verdict::Delete(policy) => {
                let mut how = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
                how.preconditions =
                    Some(Preconditions { uid: Some(item.uid.clone()), resource_version: Some(item.version.clone()) });
                let api = item.kind.api::<DynamicObject>(&self.client, &item.key.namespace);
                ignore::not_found(api.delete(&item.key.name, &how).await).context("delete")?;
            }
        }
        Ok(Action::AwaitChange)
    }

    /// Processes the garbage collector's finalizers of an object being deleted.
    async fn finish(&self, item: &Item, dependents: &[Arc<Item>]) -> anyhow::Result<Action> {
        if item.has_finalizer(ORPHAN) {
            for dependent in dependents {
                self.drop_owners(dependent, std::slice::from_ref(&item.uid)).await?;
            }
            self.drop_finalizer(item, ORPHAN).await?;
        } else if item.has_finalizer(FOREGROUND) {
            if dependents.iter().any(|d| verdict::blocks(d, &item.uid)) {
                dependents.iter().filter(|d| !d.deleting).for_each(|d| self.queue.add(d.uid.clone()));
            } else {
                self.drop_finalizer(item, FOREGROUND).await?;
            }
        }
        Ok(Action::AwaitChange)
    }

    /// The state of an owner. Asks the API server only if the graph does not know it.
    async fn look_up(&self, item: &Item, reference: &OwnerReference) -> anyhow::Result<Owner> {
        if let Some(owner) = self.graph_builder.graph().get(&reference.uid) {
            let reachable = owner.key.namespace.is_empty() || owner.key.namespace == item.key.namespace;
            return Ok(match () {
                () if !reachable || owner.key.name != reference.name => Owner::Absent,
                () if owner.deleting && owner.has_finalizer(FOREGROUND) => Owner::WaitsForDependents,
                () => Owner::Present,
            });
        }
        let kind = self.graph_builder.kind_of(reference).with_context(|| {
            format!("owner {} {} of {}: no such kind", reference.kind, reference.name, item.key.name)
        })?;
        if kind.namespaced && item.key.namespace.is_empty() {
            return Ok(Owner::Absent);
        }
        let api = kind.api::<Meta>(&self.client, &item.key.namespace);
        match api.get_opt(&reference.name).await.context("get owner")? {
            Some(owner) if owner.uid().as_ref() == Some(&reference.uid) => Ok(Owner::Present),
            Some(_) | None => Ok(Owner::Absent),
        }
    }

    async fn drop_owners(&self, item: &Item, gone: &[String]) -> anyhow::Result<()> {
        let left: Vec<&OwnerReference> = item.owners.iter().filter(|o| !gone.contains(&o.uid)).collect();
        let patch = json!({"metadata": {"uid": item.uid, "resourceVersion": item.version, "ownerReferences": left}});
        self.patch(item, &patch).await.context("drop owners")
    }

    async fn drop_finalizer(&self, item: &Item, name: &str) -> anyhow::Result<()> {
        let left: Vec<&String> = item.finalizers.iter().filter(|f| *f != name).collect();
        let patch = json!({"metadata": {"uid": item.uid, "resourceVersion": item.version, "finalizers": left}});
        self.patch(item, &patch).await.context("drop finalizer")
    }

    async fn patch(&self, item: &Item, patch: &serde_json::Value) -> kube::Result<()> {
        let api = item.kind.api::<DynamicObject>(&self.client, &item.key.namespace);
        let patched = api.patch_metadata(&item.key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        ignore::not_found(patched).map(drop)
    }
}
