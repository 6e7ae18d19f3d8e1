//! Writes that every component makes in the same way.
//!
//! Pods and their objects are created, or found if a response was lost, and never overwritten; what people declare is applied;
//! deletions name the object's uid, so that no other object is deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Class, class};
use crate::gate;

/// Creates an object; `None` if one of its name already exists, possibly from a request whose response was lost.
pub async fn create<K>(api: &Api<K>, params: &PostParams, object: &K) -> kube::Result<Option<K>>
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    match api.create(params, object).await {
        Ok(created) => Ok(Some(created)),
        Err(error) if class(&error) == Class::Exists => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the object with this uid owns `object`.
pub fn is_owned_by(object: &impl ResourceExt, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Deletes an object if it still has this uid; `false` if it was already gone.
pub async fn delete_if<K>(api: &Api<K>, name: &str, uid: Option<String>, params: DeleteParams) -> kube::Result<bool>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Some(Preconditions { uid, resource_version: None });
    match api.delete(name, &DeleteParams { preconditions, ..params }).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(class(&error), Class::Missing | Class::Conflict | Class::Exists) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same, ignoring objects that are already gone. `at_once` deletes a pod without a grace period.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>, at_once: bool) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams { grace_period_seconds: at_once.then_some(0), ..DeleteParams::background() };
    delete_if(api, name, uid, params).await.map(|_| ())
}

/// Applies `wanted` server-side, overriding other field managers. With `strict`, the server rejects unknown fields.
pub async fn apply<K>(
    api: &Api<K>,
    manager: &str,
    name: &str,
    wanted: &(impl Serialize + std::fmt::Debug),
    strict: bool,
) -> kube::Result<K>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply(manager).force();
    let params = if strict { params.validation_strict() } else { params };
    api.patch(name, &params, &Patch::Apply(wanted)).await
}

/// Removes our scheduling gate, at this index, from a pod.
pub async fn lift_gate(api: &Api<Pod>, name: &str, at: usize) -> kube::Result<Pod> {
    api.patch(name, &PatchParams::default(), &Patch::<()>::Json(gate::lifting(at))).await
}
