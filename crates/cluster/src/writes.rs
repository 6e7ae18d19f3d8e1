//! Changes to a cluster that every writer makes in the same way.
//!
//! Pods and what belongs to them are created, or found if an answer got lost, and never overwritten; what people declare is
//! applied; and nothing is deleted but the object that was meant, by its uid.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Class, class};
use crate::gate;

/// Creates an object; `None` if there is one of its name already. It may have been made by a request whose answer got lost.
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

/// Whether an object is owned by the one with this uid.
pub fn is_owned_by(object: &impl ResourceExt, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Deletes an object if it still is the one with this uid; `false` if that one was gone already.
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

/// The same, where gone already is fine. `at_once` leaves a pod no time to end.
pub async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>, at_once: bool) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams { grace_period_seconds: at_once.then_some(0), ..DeleteParams::background() };
    delete_if(api, name, uid, params).await.map(|_| ())
}

/// Makes an object what `wanted` says, whoever had a say in it before. With `strict`, fields that the server does not know are
/// refused.
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

/// Takes our scheduling gate off a pod that has it at this place.
pub async fn lift_gate(api: &Api<Pod>, name: &str, at: usize) -> kube::Result<Pod> {
    api.patch(name, &PatchParams::default(), &Patch::<()>::Json(gate::lifting(at))).await
}
