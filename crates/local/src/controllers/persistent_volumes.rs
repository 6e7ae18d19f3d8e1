//! Persistent volumes: binds a claim to a matching volume or provisions a directory for it, and reclaims a volume after its claim
//! is deleted, as its reclaim policy says.

mod binding;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use self::binding::Binding;
use crate::controllers::controller::{self, Controller};
use crate::controllers::event_recorder::EventRecorder;
use crate::controllers::ignore;
use crate::controllers::scheduler::is_terminal;
use crate::informer::{Change, Key};
use crate::informers::Informers;
use crate::work_queue::Action;

/// The storage class of every cluster, and its provisioner.
const CLASS: &str = "local";
const PROVISIONER: &str = "firesteel.dev/local";
const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

pub(crate) fn start(informers: &Arc<Informers>, directory: PathBuf, tasks: &mut JoinSet<()>) {
    let events = EventRecorder::new(informers.client.clone(), "persistentvolume-controller");
    let volumes = Arc::new(VolumeController { informers: Arc::clone(informers), events, directory });
    let of = Arc::clone(&volumes);
    Controller::new("ephemeral volumes", informers)
        .watches(&informers.pods, |_, change| match change {
            Change::Applied { old: None, new } if !binding::own_claims(new).is_empty() => Some(Key::of(&**new)),
            _ => None,
        })
        .run(tasks, 4, move |_, key| Arc::clone(&of).own_claims(key));
    let of = Arc::clone(&volumes);
    Controller::new("claims", informers)
        .reconciles(&informers.claims)
        // A new volume may satisfy a pending claim.
        .watches(&informers.volumes, |informers, _| unbound_claims(informers))
        .watches(&informers.storage_classes, |informers, _| unbound_claims(informers))
        .watches(&informers.pods, |_, change| claims_of_terminated(change))
        .run(tasks, 4, move |_, key| Arc::clone(&of).claim(key));
    let of = Arc::clone(&volumes);
    Controller::new("volumes", informers)
        .reconciles(&informers.volumes)
        .watches(&informers.claims, |_, change| {
            let volume = change.object().spec.as_ref().and_then(|s| s.volume_name.as_deref());
            volume.map(|name| Key::new("", name))
        })
        .run(tasks, 4, move |_, key| Arc::clone(&of).volume(key));
    tasks.spawn(async move {
        volumes.informers.ready().await;
        if let Err(error) = volumes.provide_class().await {
            tracing::warn!("storage class {CLASS}: {error:#}");
        }
    });
}

fn unbound_claims(informers: &Informers) -> Vec<Key> {
    informers.claims.all().iter().filter(|c| !binding::is_bound(c)).map(|c| Key::of(&**c)).collect()
}

/// The claims of a pod that has terminated or was deleted.
fn claims_of_terminated(change: &Change<Pod>) -> Vec<Key> {
    let over = match change {
        Change::Applied { new, .. } => is_terminal(new),
        Change::Deleted(_) => true,
    };
    if !over {
        return Vec::new();
    }
    let pod = change.object();
    binding::claims_of(pod).iter().map(|claim| Key::new(&pod.namespace().unwrap_or_default(), claim)).collect()
}

struct VolumeController {
    informers: Arc<Informers>,
    events: EventRecorder,
    directory: PathBuf,
}

impl VolumeController {
    /// Creates the storage class `local`; it is the default unless another class is.
    async fn provide_class(&self) -> kube::Result<()> {
        let classes = self.informers.storage_classes.all();
        if classes.iter().any(|c| c.name_any() == CLASS) {
            return Ok(());
        }
        let default = if classes.iter().any(|c| binding::is_default(c)) { "false" } else { "true" };
        let class = StorageClass {
            metadata: ObjectMeta {
                name: Some(CLASS.to_owned()),
                annotations: Some([(binding::DEFAULT_CLASS.to_owned(), default.to_owned())].into()),
                ..ObjectMeta::default()
            },
            provisioner: PROVISIONER.to_owned(),
            reclaim_policy: Some("Delete".to_owned()),
            volume_binding_mode: Some("Immediate".to_owned()),
            ..StorageClass::default()
        };
        let api = self.informers.cluster_api::<StorageClass>();
        ignore::already_exists(api.create(&PostParams::default(), &class).await).map(drop)
    }

    /// Creates the claims for a pod's `ephemeral` volumes. The pod owns them.
    async fn own_claims(self: Arc<Self>, key: Key) -> anyhow::Result<Action> {
        let pod = self.informers.pods.get(&key).filter(|p| !is_terminal(p) && p.metadata.deletion_timestamp.is_none());
        let Some(pod) = pod else { return Ok(Action::AwaitChange) };
        let api = self.informers.api::<PersistentVolumeClaim>(&key.namespace);
        for claim in binding::own_claims(&pod) {
            let created = api.create(&PostParams::default(), &claim).await;
            ignore::already_exists(created).context("create the claim of an ephemeral volume")?;
        }
        Ok(Action::AwaitChange)
    }

    async fn claim(self: Arc<Self>, key: Key) -> anyhow::Result<Action> {
        let Some(claim) = self.informers.claims.get(&key) else { return Ok(Action::AwaitChange) };
        if claim.metadata.deletion_timestamp.is_some() {
            self.release(&claim).await?;
            return Ok(Action::AwaitChange);
        }
        let classes = self.informers.storage_classes.all();
        let volumes = self.informers.volumes.all();
        match binding::bind(&claim, &volumes, &classes, PROVISIONER) {
            Binding::Settled => {}
            Binding::Wait { reason, message } => {
                if claim.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Pending") {
                    self.claim_status(&claim, &json!({"phase": "Pending"})).await?;
                }
                self.events.normal(&*claim, reason, "Binding", message);
            }
            Binding::Provision { class } => {
                let volume = self.provision(&claim, &class).await?;
                self.join(&claim, &volume).await?;
            }
            Binding::Join(volume) => self.join(&claim, &volume).await?,
        }
        Ok(Action::AwaitChange)
    }

    async fn provision(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> anyhow::Result<PersistentVolume> {
        let name = format!("pvc-{}", claim.uid().unwrap_or_default());
        let path = self.directory.join(&name);
        make_directory(&path).with_context(|| format!("create {}", path.display()))?;
        let volume = binding::volume(claim, class, &name, &path.to_string_lossy(), PROVISIONER);
        let api = self.informers.cluster_api::<PersistentVolume>();
        let created = api.create(&PostParams::default(), &volume).await;
        let Some(made) = ignore::already_exists(created).context("create volume")? else {
            return Ok(api.get(&name).await?);
        };
        let note = format!("Successfully provisioned volume {name}");
        self.events.normal(claim, "ProvisioningSucceeded", "Provisioning", note);
        Ok(made)
    }

    /// Updates the volume first: a claim whose volume does not reference it back is not bound.
    async fn join(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> anyhow::Result<()> {
        let name = volume.name_any();
        let volumes = self.informers.cluster_api::<PersistentVolume>();
        if !binding::belongs_to(volume, claim) {
            let reference = binding::reference(claim);
            let patch =
                json!({"metadata": {"resourceVersion": volume.resource_version()}, "spec": {"claimRef": reference}});
            volumes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.context("set the claimRef")?;
        }
        let bound = json!({"status": {"phase": "Bound"}});
        let written = volumes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&bound)).await?;
        self.informers.volumes.wait_for_write(&written).await;
        let api = self.informers.api::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
        let class = volume.spec.as_ref().and_then(|s| s.storage_class_name.clone());
        let mut patch = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": name},
        });
        if claim.spec.as_ref().is_some_and(|s| s.storage_class_name.is_none()) {
            patch["spec"]["storageClassName"] = json!(class);
        }
        api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .context("set the volume name")?;
        let spec = volume.spec.clone().unwrap_or_default();
        let status = json!({"phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity});
        self.claim_status(claim, &status).await
    }

    async fn claim_status(&self, claim: &PersistentVolumeClaim, status: &serde_json::Value) -> anyhow::Result<()> {
        let api = self.informers.api::<PersistentVolumeClaim>(&claim.namespace().unwrap_or_default());
        let patch = json!({"status": status});
        let written = controller::patch_status(&api, &self.informers.claims, &claim.name_any(), &patch).await;
        written.context("write the claim's status")
    }

    /// Removes the protection finalizer from a claim once no pod uses it.
    async fn release(&self, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
        let name = claim.name_any();
        let namespace = claim.namespace().unwrap_or_default();
        let uses = |p: &Arc<Pod>| !is_terminal(p) && binding::claims_of(p).contains(&name);
        if !claim.finalizers().iter().any(|f| f == CLAIM_IN_USE)
            || self.informers.pods.in_namespace(&namespace).iter().any(uses)
        {
            return Ok(());
        }
        let left: Vec<&String> = claim.finalizers().iter().filter(|f| *f != CLAIM_IN_USE).collect();
        let patch = json!({"metadata": {"resourceVersion": claim.resource_version(), "finalizers": left}});
        let api = self.informers.api::<PersistentVolumeClaim>(&namespace);
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        ignore::not_found(patched).map(drop).context("remove the claim's finalizer")
    }

    async fn volume(self: Arc<Self>, key: Key) -> anyhow::Result<Action> {
        let Some(volume) = self.informers.volumes.get(&key) else { return Ok(Action::AwaitChange) };
        let spec = volume.spec.clone().unwrap_or_default();
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        let api = self.informers.cluster_api::<PersistentVolume>();
        let claimed = spec.claim_ref.as_ref().filter(|r| r.uid.is_some());
        let Some(reference) = claimed else {
            if volume.metadata.deletion_timestamp.is_none() && phase != "Available" {
                let patch = json!({"status": {"phase": "Available"}});
                ignore::not_found(api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
            }
            return self.remove_finalizer(&volume).await;
        };
        let claim_key =
            Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default());
        let alive = match self.informers.claims.get(&claim_key) {
            Some(claim) => claim.uid() == reference.uid,
            None => {
                let api = self.informers.api::<PersistentVolumeClaim>(&claim_key.namespace);
                api.get_opt(&claim_key.name).await?.is_some_and(|c| c.uid() == reference.uid)
            }
        };
        if alive {
            return Ok(Action::AwaitChange);
        }
        if phase != "Released" {
            let patch = json!({"status": {"phase": "Released"}});
            ignore::not_found(api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        }
        let ours = volume.annotations().get(binding::PROVISIONED_BY).is_some_and(|p| p == PROVISIONER);
        if ours && spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete") {
            // Deletes only below our own directory, whatever path the volume names.
            let path = self.directory.join(&key.name);
            match std::fs::remove_dir_all(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("delete {}", path.display())),
            }
            if volume.metadata.deletion_timestamp.is_none() {
                ignore::not_found(api.delete(&key.name, &DeleteParams::default()).await)?;
            }
        }
        self.remove_finalizer(&volume).await
    }

    /// Removes the protection finalizer from a deleted volume once no claim is bound to it.
    async fn remove_finalizer(&self, volume: &PersistentVolume) -> anyhow::Result<Action> {
        if volume.metadata.deletion_timestamp.is_some() && volume.finalizers().iter().any(|f| f == VOLUME_IN_USE) {
            let left: Vec<&String> = volume.finalizers().iter().filter(|f| *f != VOLUME_IN_USE).collect();
            let patch = json!({"metadata": {"resourceVersion": volume.resource_version(), "finalizers": left}});
            let api = self.informers.cluster_api::<PersistentVolume>();
            ignore::not_found(api.patch(&volume.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

/// Pods run as different users, and each must be able to write to its volume.
fn make_directory(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
}
