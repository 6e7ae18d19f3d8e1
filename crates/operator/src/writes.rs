//! Every change the operator makes to a cluster, except its lease and events.
//!
//! Pods and the objects of a run are created or found again, never overwritten: their names derive from (uid, attempt),
//! and an annotation tells which specification they were made from. What leads to a driver is applied. The status is
//! patched against the version it was decided on, so a decision on old facts changes nothing.

use firesteel_api::{ExecutorGrant, SparkApplication, names};
use firesteel_core::driver_pod::{DriverPod, Owner};
use firesteel_core::lifecycle::{Created, Exposed, Submission};
use firesteel_core::run::Run;
use firesteel_spark::driver::Object;
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::{Class, During, Error, class, words};

/// Who writes what is applied.
pub const FIELD_MANAGER: &str = "firesteel";

/// Creates everything of one attempt, the pod last, or finds it there.
pub async fn create_run(client: &Client, app_name: &str, app_uid: &str, run: &Run) -> Result<Submission, Error> {
    let namespace = run.pod.metadata.namespace.clone().unwrap_or_default();
    let mut created = Created {
        pod_name: run.pod.metadata.name.clone().unwrap_or_default(),
        app_id: run.app_id.clone(),
        web_service: run.exposure.web_service.clone(),
        web_port: run.exposure.web_port,
        web_ingress: run.exposure.web_ingress.clone(),
        web_url: run.exposure.web_url.clone(),
        lost: run.lost.clone(),
        remarks: run.warnings.clone(),
        web_address: None,
    };
    // None of these needs another; the pod needs all of them.
    let objects = join_all(run.objects.iter().map(|object| create_object(client, &namespace, app_uid, object)));
    let grant = async {
        match &run.grant {
            Some(grant) => create_grant(client, &namespace, app_uid, grant).await,
            None => Ok(Made::Done),
        }
    };
    let (objects, grant, exposed) = futures::join!(objects, grant, expose(client, &namespace, run, &mut created));
    for made in objects.into_iter().chain([grant]) {
        match made? {
            Made::Done => {}
            Made::InTheWay => return Ok(Submission::InTheWay),
            Made::Refused(why) => return Ok(Submission::Refused(why)),
        }
    }
    exposed?;
    match create_driver(client, &namespace, app_name, app_uid, run).await? {
        Made::Done => Ok(Submission::Created(Box::new(created))),
        Made::InTheWay => Ok(Submission::InTheWay),
        Made::Refused(why) => Ok(Submission::Refused(why)),
    }
}

enum Made {
    Done,
    InTheWay,
    Refused(String),
}

async fn create_object(client: &Client, namespace: &str, app_uid: &str, object: &Object) -> Result<Made, Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource(object));
    let wanted: DynamicObject = serde_json::from_value(object.to_value()?)?;
    // One of a fixed name may be of an earlier attempt; it says the same.
    create_or_find(&api, app_uid, object.kind(), &wanted, &[names::ANNOTATION_SPEC]).await
}

async fn create_grant(client: &Client, namespace: &str, app_uid: &str, grant: &ExecutorGrant) -> Result<Made, Error> {
    let resource = ApiResource::erase::<ExecutorGrant>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let wanted: DynamicObject = serde_json::from_value(serde_json::to_value(grant)?)?;
    let marks = [names::ANNOTATION_SPEC, names::ANNOTATION_ATTEMPT];
    create_or_find(&api, app_uid, "ExecutorGrant", &wanted, &marks).await
}

/// Creates an object, or finds it there: the application's own, with the same annotations `marks`.
async fn create_or_find(
    api: &Api<DynamicObject>,
    app_uid: &str,
    kind: &str,
    wanted: &DynamicObject,
    marks: &[&str],
) -> Result<Made, Error> {
    let name = wanted.name_any();
    let what = || format!("create {kind} {name}");
    let error = match api.create(&PostParams::default(), wanted).await {
        Ok(_) => return Ok(Made::Done),
        Err(error) => error,
    };
    match class(&error) {
        Class::Refused | Class::Missing => {
            return Ok(Made::Refused(format!("{kind} {name}: {}", words(&error))));
        }
        Class::Exists => {}
        Class::Conflict | Class::Transient => return Err(error).during(what),
    }
    let Some(found) = api.get_opt(&name).await.during(what)? else { return Ok(Made::InTheWay) };
    if !found.owner_references().iter().any(|o| o.uid == app_uid) {
        let why = format!("a {kind} named {name} exists already and does not belong to this application");
        return Ok(Made::Refused(why));
    }
    let same = marks.iter().all(|mark| found.annotations().get(*mark) == wanted.annotations().get(*mark));
    if same && found.metadata.deletion_timestamp.is_none() {
        return Ok(Made::Done);
    }
    delete(api, &name, found.metadata.uid.clone(), false).await.during(what)?;
    Ok(Made::InTheWay)
}

async fn create_driver(
    client: &Client,
    namespace: &str,
    app_name: &str,
    app_uid: &str,
    run: &Run,
) -> Result<Made, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let name = run.pod.name_any();
    let what = || format!("create pod {name}");
    let error = match api.create(&PostParams::default(), &run.pod).await {
        Ok(_) => return Ok(Made::Done),
        Err(error) => error,
    };
    match class(&error) {
        Class::Refused | Class::Missing => return Ok(Made::Refused(format!("pod {name}: {}", words(&error)))),
        Class::Exists => {}
        Class::Conflict | Class::Transient => return Err(error).during(what),
    }
    let Some(found) = api.get_opt(&name).await.during(what)? else { return Ok(Made::InTheWay) };
    let found = DriverPod::read(&found, app_name, app_uid);
    let is_expected = found.owner == Owner::Application
        && found.submission_id.as_deref() == Some(run.submission_id.as_str())
        && found.spec_hash.as_deref() == Some(run.spec_hash.as_str());
    if is_expected && !found.deleting {
        return Ok(Made::Done);
    }
    if found.owner == Owner::Other {
        let why = format!(
            "driver pod already exist: a pod named {name} exists and does not belong to this application; set spec.driver.podName"
        );
        return Ok(Made::Refused(why));
    }
    delete(&api, &name, Some(found.uid), false).await.during(what)?;
    Ok(Made::InTheWay)
}

/// Applies what stands around the driver. An application runs also without it, and says so.
async fn expose(client: &Client, namespace: &str, run: &Run, created: &mut Created) -> Result<(), Error> {
    for service in &run.exposure.services {
        let name = service.name_any();
        let is_web = created.web_service.as_deref() == Some(name.as_str());
        match apply(client, namespace, service).await {
            Ok(applied) if is_web => {
                let ip = applied.spec.and_then(|s| s.cluster_ip).filter(|ip| ip != "None");
                created.web_address = ip
                    .zip(created.web_port)
                    .map(|(ip, port)| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") });
            }
            Ok(_) => {}
            Err(error) => {
                let field = if is_web { "spec.sparkUIOptions" } else { "spec.driverIngressOptions" };
                created.lost.push(missed(field, "service", &name, error)?);
                created.web_service.take_if(|_| is_web);
            }
        }
    }
    for ingress in &run.exposure.ingresses {
        let name = ingress.name_any();
        if let Err(error) = apply(client, namespace, ingress).await {
            let is_web = created.web_ingress.as_deref() == Some(name.as_str());
            let field = if is_web { "spec.sparkUIOptions" } else { "spec.driverIngressOptions" };
            created.lost.push(missed(field, "ingress", &name, error)?);
            created.web_ingress.take_if(|_| is_web);
        }
    }
    if let Some(budget) = &run.exposure.budget
        && let Err(error) = apply(client, namespace, budget).await
    {
        let field = "spec.driverPodDisruptionBudget";
        created.lost.push(missed(field, "PodDisruptionBudget", &budget.name_any(), error)?);
    }
    Ok(())
}

/// The field that has no effect because an object was refused, and why.
fn missed(field: &str, kind: &str, name: &str, error: kube::Error) -> Result<(String, String), Error> {
    match class(&error) {
        Class::Refused | Class::Missing | Class::Exists => {
            tracing::warn!(%error, "the driver runs without {kind} {name}");
            Ok((field.to_owned(), format!("{kind} {name} was refused: {}", words(&error))))
        }
        Class::Conflict | Class::Transient => Err(error).during(|| format!("apply {kind} {name}")),
    }
}

async fn apply<K>(client: &Client, namespace: &str, object: &K) -> Result<K, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.patch(&object.name_any(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await
}

fn resource(object: &Object) -> ApiResource {
    match object {
        Object::ConfigMap(_) => ApiResource::erase::<ConfigMap>(&()),
        Object::Service(_) => ApiResource::erase::<Service>(&()),
        Object::Secret(_) => ApiResource::erase::<Secret>(&()),
        Object::PersistentVolumeClaim(_) => ApiResource::erase::<PersistentVolumeClaim>(&()),
        Object::NetworkPolicy(_) => ApiResource::erase::<NetworkPolicy>(&()),
    }
}

/// Deletes an object if it still is the one with this uid. Gone already is fine. `at_once` leaves a pod no time to end.
pub(crate) async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>, at_once: bool) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        grace_period_seconds: at_once.then_some(0),
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::background()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(class(&error), Class::Missing | Class::Conflict | Class::Exists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes a driver pod by name and uid; with `force` without waiting for its node.
pub async fn delete_driver(client: &Client, namespace: &str, name: &str, uid: &str, force: bool) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    delete(&api, name, Some(uid.to_owned()), force).await.during(|| format!("delete pod {name}"))
}

/// Deletes executors and objects of every submission of an application but one.
pub async fn delete_strays(client: &Client, namespace: &str, app: &str, keep: Option<&str>) -> Result<(), Error> {
    let mut selector = format!("{}={app}", names::LABEL_APP_NAME);
    if let Some(keep) = keep {
        selector += &format!(",{}!={keep}", names::LABEL_SUBMISSION_ID);
    }
    let pods = format!("{selector},{}=true,{}=executor", names::LABEL_LAUNCHED_BY, names::LABEL_ROLE);
    delete_all::<Pod>(client, namespace, &pods).await?;
    let objects = format!("{selector},{}=true", names::LABEL_CREATED_BY);
    delete_all::<ConfigMap>(client, namespace, &objects).await?;
    delete_all::<Service>(client, namespace, &objects).await?;
    delete_all::<Secret>(client, namespace, &objects).await?;
    delete_all::<PersistentVolumeClaim>(client, namespace, &objects).await?;
    delete_all::<NetworkPolicy>(client, namespace, &objects).await
}

/// Deletes what stands around an application's driver while it runs.
pub async fn delete_exposure(client: &Client, namespace: &str, app: &str, kinds: &Exposed) -> Result<(), Error> {
    let selector = format!("{}={app},{}=driver", names::LABEL_APP_NAME, names::LABEL_EXPOSES);
    if let Some(name) = &kinds.web_service {
        let api: Api<Service> = Api::namespaced(client.clone(), namespace);
        delete(&api, name, None, false).await.during(|| format!("delete service {name}"))?;
    }
    if let Some(name) = &kinds.web_ingress {
        let api: Api<Ingress> = Api::namespaced(client.clone(), namespace);
        delete(&api, name, None, false).await.during(|| format!("delete ingress {name}"))?;
    }
    if kinds.services {
        delete_all::<Service>(client, namespace, &selector).await?;
    }
    if kinds.ingresses {
        delete_all::<Ingress>(client, namespace, &selector).await?;
    }
    if kinds.budget {
        delete_all::<PodDisruptionBudget>(client, namespace, &selector).await?;
    }
    Ok(())
}

async fn delete_all<K>(client: &Client, namespace: &str, selector: &str) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(selector);
    match api.delete_collection(&DeleteParams::background(), &list).await {
        Ok(_) => Ok(()),
        // Without the right to delete a kind there is none of it that the operator made.
        Err(error) if matches!(class(&error), Class::Missing | Class::Refused) => {
            tracing::debug!(kind = %K::kind(&()), %error, "nothing deleted");
            Ok(())
        }
        Err(error) => Err(error).during(|| format!("delete {} of earlier attempts", K::plural(&()))),
    }
}

/// Deletes an application whose time to live is over, if it is unchanged: an edit may have given it a new life.
pub async fn delete_application(client: &Client, app: &SparkApplication) -> Result<(), Error> {
    let api: Api<SparkApplication> = Api::namespaced(client.clone(), &app.namespace().unwrap_or_default());
    let unchanged = Preconditions { uid: app.uid(), resource_version: app.resource_version() };
    let params = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::background() };
    match api.delete(&app.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(error) => match class(&error) {
            Class::Missing => Ok(()),
            Class::Conflict | Class::Exists => Err(Error::Changed),
            Class::Refused | Class::Transient => Err(error).during(|| "delete the application".to_owned()),
        },
    }
}

/// Writes a status over the one it was decided on. `false` if there was nothing to write.
pub async fn write_status<S: Serialize>(
    client: &Client,
    namespace: &str,
    name: &str,
    version: Option<&str>,
    old: &S,
    new: &S,
) -> Result<bool, Error> {
    let (old, new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    let Some(difference) = merge_patch(&old, &new) else { return Ok(false) };
    let mut patch = json!({"status": difference});
    if let Some(version) = version {
        patch["metadata"] = json!({"resourceVersion": version});
    }
    patch_status(client, namespace, name, &patch).await?;
    Ok(true)
}

/// Patches the status of an application, whatever it looks like.
pub async fn patch_status(client: &Client, namespace: &str, name: &str, patch: &Value) -> Result<(), Error> {
    let resource = ApiResource::erase::<SparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if class(&error) == Class::Conflict => Err(Error::Changed),
        // The application is gone: so is its status.
        Err(error) if class(&error) == Class::Missing => Ok(()),
        Err(error) => Err(error).during(|| "write the status".to_owned()),
    }
}

/// The JSON merge patch that turns `old` into `new`; `None` if they are equal.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(other) => patch.extend(merge_patch(other, value).map(|p| (name.clone(), p))),
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patches_remove_what_is_gone_and_keep_what_is_equal() {
        let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]});
        let new = json!({"b": {"c": 1, "d": 3}, "e": [1, 2], "f": {}});
        assert_eq!(merge_patch(&old, &new), Some(json!({"a": null, "b": {"d": 3}, "e": [1, 2], "f": {}})));
        assert_eq!(merge_patch(&old, &old), None);
    }
}
