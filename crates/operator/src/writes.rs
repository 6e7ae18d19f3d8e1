//! Every change the operator makes to a cluster, except its lease and events.
//!
//! Objects are created or found again, never overwritten: the names of a run's objects derive from (uid, attempt), and
//! annotations and labels record the specification and attempt. Objects that do not belong to the application are never
//! touched, whatever their name. Status patches carry the resource version they were decided on, so a decision based on
//! stale data changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use firesteel_cluster::writes::delete;

use firesteel_api::http_route::HTTPRoute;
use firesteel_api::{ExecutorGrant, SparkApplication, names};
use firesteel_cluster::object::PlannedObject;
use firesteel_cluster::rate_limit::EXPOSURE_MANAGER;
use firesteel_cluster::writes::{apply, create, is_owned_by};
use firesteel_core::lifecycle::{Created, Exposed, ExposureOutcome, Submission};
use firesteel_core::pod::{DriverPod, Owner};
use firesteel_core::run::Run;
use firesteel_core::ui::Exposure;
use firesteel_spark::driver::Object;
use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::{Class, During, Error, class, words};

/// The field manager of what is applied.
const MANAGER: &str = "firesteel-operator";
/// How long the API server may take to create one object besides the driver, and the driver itself. A pass waits for both.
const OBJECT_PATIENCE: Duration = Duration::from_secs(22);
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
/// The same for exposure objects, which no pass waits for: longer than any webhook may take.
const EXPOSURE_PATIENCE: Duration = Duration::from_secs(35);

/// Applies the configuration of the webhook.
pub(crate) async fn apply_webhook(
    client: &Client,
    name: &str,
    wanted: &Value,
) -> Result<ValidatingWebhookConfiguration, kube::Error> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    in_time_or(apply(&api, MANAGER, name, wanted, true)).await
}

/// Writes the webhook's Secret: creates it, or replaces the data of the version that was seen. `None` if somebody else was faster.
pub(crate) async fn write_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    seen: Option<&Secret>,
    data: BTreeMap<String, ByteString>,
) -> Result<Option<Secret>, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let written = match seen {
        Some(seen) => {
            let secret = Secret { data: Some(data), ..seen.clone() };
            in_time_or(api.replace(name, &PostParams::default(), &secret)).await
        }
        None => {
            let mut secret = Secret { data: Some(data), ..Secret::default() };
            secret.metadata.name = Some(name.to_owned());
            in_time_or(api.create(&PostParams::default(), &secret)).await
        }
    };
    match written {
        Ok(written) => Ok(Some(written)),
        Err(error) if matches!(class(&error), Class::Conflict | Class::Exists) => Ok(None),
        // It was deleted in the meantime; one whose namespace is missing never existed.
        Err(error) if seen.is_some() && class(&error) == Class::Missing => Ok(None),
        Err(error) => Err(error),
    }
}

/// A write that takes too long counts as failed.
async fn in_time_or<T>(write: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(OBJECT_PATIENCE, write).await {
        Ok(written) => written,
        Err(late) => Err(kube::Error::Service(late.into())),
    }
}

/// Creates all objects of one attempt, the pod last, or finds them.
pub async fn create_run(client: &Client, app_name: &str, app_uid: &str, run: &Run) -> Result<Submission, Error> {
    let namespace = run.pod.metadata.namespace.clone().unwrap_or_default();
    let driver = create_driver(client, &namespace, app_name, app_uid, run);
    create_around(client, &namespace, app_uid, run, driver).await
}

/// Creates all objects of one Connect server, the pod last, or finds them.
pub async fn create_server(client: &Client, uid: &str, run: &Run) -> Result<Submission, Error> {
    let namespace = run.pod.metadata.namespace.clone().unwrap_or_default();
    let server = async {
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let wanted: DynamicObject = serde_json::from_value(serde_json::to_value(&run.pod)?)?;
        let same =
            |found: &DynamicObject| has_same(found, &wanted, &[names::ANNOTATION_SPEC, names::ANNOTATION_ATTEMPT]);
        Ok(create_or_find(&api, uid, "Pod", &wanted, &PostParams::default(), same).await?.done())
    };
    create_around(client, &namespace, uid, run, server).await
}

/// Creates everything that a pod needs, then the pod.
async fn create_around(
    client: &Client,
    namespace: &str,
    app_uid: &str,
    run: &Run,
    pod: impl Future<Output = Result<Made<()>, Error>>,
) -> Result<Submission, Error> {
    // These are independent of each other; the pod needs all of them.
    let objects = join_all(run.objects.iter().map(|object| create_object(client, namespace, app_uid, object)));
    let grant = async {
        match &run.grant {
            Some(grant) => create_grant(client, namespace, app_uid, grant).await,
            None => Ok(Made::Done(())),
        }
    };
    let (objects, grant) = futures::join!(objects, grant);
    let mut hindered = None;
    for made in objects.into_iter().chain([grant]) {
        match made? {
            Made::Done(()) => {}
            Made::InTheWay => return Ok(Submission::InTheWay),
            Made::Refused(why) => return Ok(Submission::Refused(why)),
            Made::Hindered(why) => hindered = hindered.or(Some(why)),
        }
    }
    let made = match hindered {
        Some(why) => Made::Hindered(why),
        None => in_time(DRIVER_PATIENCE, || format!("pod {}", run.pod.name_any()), pod).await?,
    };
    Ok(match made {
        Made::Done(()) => Submission::Created(Box::new(Created {
            pod_name: run.pod.name_any(),
            app_id: run.app_id.clone(),
            lost: run.lost.clone(),
            remarks: run.warnings.clone(),
        })),
        Made::InTheWay => Submission::InTheWay,
        Made::Refused(why) => Submission::Refused(why),
        Made::Hindered(why) => Submission::Hindered { why, since: Timestamp::now(), times: 1 },
    })
}

/// The outcome of creating an object.
enum Made<T> {
    Done(T),
    /// An outdated object of the same name exists; its deletion was requested.
    InTheWay,
    /// The cluster rejected it.
    Refused(String),
    /// The cluster failed or did not respond.
    Hindered(String),
}

impl<T> Made<T> {
    /// What an error means for the creation of an object.
    fn not(error: kube::Error, kind: &str, name: &str) -> Result<Self, Error> {
        let why = format!("{kind} {name}: {}", words(&error));
        match class(&error) {
            Class::Refused | Class::Missing => Ok(Made::Refused(why)),
            Class::Transient => Ok(Made::Hindered(why)),
            Class::Conflict | Class::Exists => Err(error).during(|| format!("create {kind} {name}")),
        }
    }

    fn done(self) -> Made<()> {
        match self {
            Made::Done(_) => Made::Done(()),
            Made::InTheWay => Made::InTheWay,
            Made::Refused(why) => Made::Refused(why),
            Made::Hindered(why) => Made::Hindered(why),
        }
    }
}

/// Gives up on a response that does not arrive in time.
async fn in_time<T>(
    patience: Duration,
    what: impl FnOnce() -> String,
    making: impl Future<Output = Result<Made<T>, Error>>,
) -> Result<Made<T>, Error> {
    let late = |_| Ok(Made::Hindered(format!("{}: no answer within {} s", what(), patience.as_secs())));
    tokio::time::timeout(patience, making).await.unwrap_or_else(late)
}

async fn create_object(client: &Client, namespace: &str, app_uid: &str, object: &Object) -> Result<Made<()>, Error> {
    let PlannedObject { resource, body: wanted, .. } = PlannedObject::new(object)?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    // An object with a fixed name may stem from an earlier attempt; its content is the same.
    let same = |found: &DynamicObject| has_same(found, &wanted, &[names::ANNOTATION_SPEC]);
    let params = PostParams::default();
    let making = create_or_find(&api, app_uid, object.kind(), &wanted, &params, same);
    Ok(in_time(OBJECT_PATIENCE, || format!("{} {}", object.kind(), wanted.name_any()), making).await?.done())
}

async fn create_grant(
    client: &Client,
    namespace: &str,
    app_uid: &str,
    grant: &ExecutorGrant,
) -> Result<Made<()>, Error> {
    let resource = ApiResource::erase::<ExecutorGrant>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let wanted: DynamicObject = serde_json::from_value(serde_json::to_value(grant)?)?;
    let same = |found: &DynamicObject| has_same(found, &wanted, &[names::ANNOTATION_SPEC, names::ANNOTATION_ATTEMPT]);
    let params = PostParams::default();
    let making = create_or_find(&api, app_uid, "ExecutorGrant", &wanted, &params, same);
    Ok(in_time(OBJECT_PATIENCE, || format!("ExecutorGrant {}", wanted.name_any()), making).await?.done())
}

fn has_same(found: &DynamicObject, wanted: &DynamicObject, marks: &[&str]) -> bool {
    marks.iter().all(|mark| found.annotations().get(*mark) == wanted.annotations().get(*mark))
}

/// Creates an object, or finds it if it belongs to the application and is the `same`. Others' objects are left alone.
async fn create_or_find(
    api: &Api<DynamicObject>,
    app_uid: &str,
    kind: &str,
    wanted: &DynamicObject,
    params: &PostParams,
    same: impl Fn(&DynamicObject) -> bool,
) -> Result<Made<DynamicObject>, Error> {
    let name = wanted.name_any();
    let what = || format!("create {kind} {name}");
    let hindered = |error: &kube::Error| Ok(Made::Hindered(format!("{kind} {name}: {}", words(error))));
    match create(api, params, wanted).await {
        Ok(Some(created)) => return Ok(Made::Done(created)),
        Ok(None) => {}
        Err(error) => return Made::not(error, kind, &name),
    }
    let found = match api.get_opt(&name).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Made::InTheWay),
        Err(error) if class(&error) == Class::Transient => return hindered(&error),
        Err(error) => return Err(error).during(what),
    };
    if !is_owned_by(&found, app_uid) {
        let why = format!("a {kind} named {name} already exists and does not belong to this application");
        return Ok(Made::Refused(why));
    }
    if same(&found) && found.metadata.deletion_timestamp.is_none() {
        return Ok(Made::Done(found));
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
) -> Result<Made<()>, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let name = run.pod.name_any();
    let what = || format!("create pod {name}");
    match create(&api, &PostParams::default(), &run.pod).await {
        Ok(Some(_)) => return Ok(Made::Done(())),
        Ok(None) => {}
        Err(error) => return Made::not(error, "pod", &name),
    }
    let Some(found) = api.get_opt(&name).await.during(what)? else { return Ok(Made::InTheWay) };
    let found = DriverPod::read(&found, app_name, app_uid);
    let is_expected = found.owner == Owner::Application
        && found.submission_id.as_deref() == Some(run.submission_id.as_str())
        && found.spec_hash.as_deref() == Some(run.spec_hash.as_str());
    if is_expected && !found.deleting {
        return Ok(Made::Done(()));
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

/// Creates a driver's exposure objects, or finds them. Objects that do not belong to the application are left alone.
pub(crate) async fn create_exposure(
    client: &Client,
    namespace: &str,
    app_uid: &str,
    exposure: &Exposure,
) -> ExposureOutcome {
    let services = join_all(exposure.services.iter().map(|o| make_one(client, namespace, app_uid, o)));
    let ingresses = join_all(exposure.ingresses.iter().map(|o| make_one(client, namespace, app_uid, o)));
    let routes = join_all(exposure.routes.iter().map(|o| make_one(client, namespace, app_uid, o)));
    let budgets = join_all(exposure.budget.iter().map(|o| make_one(client, namespace, app_uid, o)));
    let (services, ingresses, routes, budgets) = futures::join!(services, ingresses, routes, budgets);
    let mut outcome = ExposureOutcome::default();
    for made in services.into_iter().chain(ingresses).chain(routes).chain(budgets) {
        let object = match made {
            (_, Made::Done(object)) => object,
            (_, Made::Refused(why)) => {
                outcome.refused.push(why);
                continue;
            }
            (_, Made::Hindered(why)) => {
                outcome.failed.push(why);
                continue;
            }
            (what, Made::InTheWay) => {
                outcome.failed.push(format!("{what}: the one from an earlier attempt is still being deleted"));
                continue;
            }
        };
        let name = Some(object.name_any());
        if name == exposure.web_service {
            let ip = object.data["spec"]["clusterIP"].as_str().filter(|ip| *ip != "None");
            outcome.web_address = ip
                .zip(exposure.web_port)
                .map(|(ip, port)| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") });
            outcome.web_port = exposure.web_port;
            outcome.web_service_uid = object.uid();
            outcome.web_service = name;
        } else if name == exposure.web_ingress {
            outcome.web_url.clone_from(&exposure.web_url);
            outcome.web_ingress = name;
        }
    }
    outcome
}

/// Creates one exposure object; returns its kind and name, and the outcome.
async fn make_one<K>(client: &Client, namespace: &str, app_uid: &str, object: &K) -> (String, Made<DynamicObject>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize,
{
    let kind = K::kind(&());
    let what = format!("{kind} {}", object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()));
    let params = PostParams { field_manager: Some(EXPOSURE_MANAGER.to_owned()), ..PostParams::default() };
    let making = async {
        let wanted: DynamicObject = serde_json::from_value(serde_json::to_value(object)?)?;
        let submission = |o: &DynamicObject| o.labels().get(names::LABEL_SUBMISSION_ID).cloned();
        let same = |found: &DynamicObject| submission(found) == submission(&wanted);
        create_or_find(&api, app_uid, &kind, &wanted, &params, same).await
    };
    let made = in_time(EXPOSURE_PATIENCE, || what.clone(), making).await;
    let made = made.unwrap_or_else(|error| Made::Hindered(format!("{what}: {error}")));
    (what, made)
}

/// Deletes a driver pod by name and uid; with `force`, without waiting for its node.
pub async fn delete_driver(client: &Client, namespace: &str, name: &str, uid: &str, force: bool) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    delete(&api, name, Some(uid.to_owned()), force).await.during(|| format!("delete pod {name}"))
}

/// Creates the Service for the clients of a Connect server, or updates it; returns a message if that cannot be done. A
/// Service that does not belong to the SparkConnect is left alone.
pub async fn apply_service(
    client: &Client,
    namespace: &str,
    uid: &str,
    service: &Service,
) -> Result<Option<String>, Error> {
    let api: Api<Service> = Api::namespaced(client.clone(), namespace);
    let name = service.name_any();
    let what = || format!("apply Service {name}");
    let found = api.get_metadata_opt(&name).await.during(what)?;
    if found.is_some_and(|found| !is_owned_by(&found, uid)) {
        return Ok(Some(format!(
            "a Service named {name} already exists and does not belong to this SparkConnect; delete it, or set \
             spec.server.service.metadata.name"
        )));
    }
    match apply(&api, MANAGER, &name, service, false).await {
        Ok(_) => Ok(None),
        Err(error) => match class(&error) {
            Class::Refused | Class::Missing => Ok(Some(format!("Service {name}: {}", words(&error)))),
            Class::Transient | Class::Conflict | Class::Exists => Err(error).during(what),
        },
    }
}

/// Deletes the objects of all servers of a SparkConnect except one, but not the Service for clients.
pub async fn delete_server_objects(client: &Client, namespace: &str, connect: &str, keep: &str) -> Result<(), Error> {
    let (name, id) = (names::LABEL_CONNECT_NAME, names::LABEL_SUBMISSION_ID);
    let selector = format!("{name}={connect},{id},{id}!={keep},{}=true", names::LABEL_CREATED_BY);
    delete_kinds(client, namespace, &selector).await
}

/// The label selector for all submissions of an application except one.
fn others(app: &str, keep: Option<&str>) -> String {
    let selector = format!("{}={app}", names::LABEL_APP_NAME);
    match keep {
        Some(keep) => format!("{selector},{}!={keep}", names::LABEL_SUBMISSION_ID),
        None => selector,
    }
}

/// Deletes the executors of all submissions of an application except one.
pub async fn delete_executors(client: &Client, namespace: &str, app: &str, keep: Option<&str>) -> Result<(), Error> {
    let selector = others(app, keep);
    let pods = format!("{selector},{}=true,{}=executor", names::LABEL_LAUNCHED_BY, names::LABEL_ROLE);
    delete_all::<Pod>(client, namespace, &pods).await
}

/// Deletes the objects of all submissions of an application except one, but not exposure objects.
pub async fn delete_objects(client: &Client, namespace: &str, app: &str, keep: Option<&str>) -> Result<(), Error> {
    let objects = format!("{},{}=true,!{}", others(app, keep), names::LABEL_CREATED_BY, names::LABEL_EXPOSES);
    delete_kinds(client, namespace, &objects).await
}

/// Deletes the matching objects of every kind that a driver's plan may have.
async fn delete_kinds(client: &Client, namespace: &str, selector: &str) -> Result<(), Error> {
    let (configs, services, secrets, claims, policies) = futures::join!(
        delete_all::<ConfigMap>(client, namespace, selector),
        delete_all::<Service>(client, namespace, selector),
        delete_all::<Secret>(client, namespace, selector),
        delete_all::<PersistentVolumeClaim>(client, namespace, selector),
        delete_all::<NetworkPolicy>(client, namespace, selector),
    );
    configs.and(services).and(secrets).and(claims).and(policies)
}

/// Deletes the exposure objects of an application's driver, except HTTPRoutes; `service_uid` is that of the web UI's Service,
/// if this operator made it. Objects that do not belong to the application are left alone.
pub(crate) async fn delete_exposure(
    client: &Client,
    namespace: &str,
    app: &str,
    app_uid: &str,
    kinds: &Exposed,
    service_uid: Option<String>,
) -> ExposureOutcome {
    let selector = exposes(app);
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let selector = selector.as_str();
    let (a, b, c, d, e) = futures::join!(
        delete_own(&services, app_uid, kinds.web_service.as_deref().map(|name| Which::Named(name, service_uid))),
        delete_own(&services, app_uid, kinds.services.then_some(Which::Labelled(selector))),
        delete_own(&ingresses, app_uid, kinds.web_ingress.as_deref().map(|name| Which::Named(name, None))),
        delete_own(&ingresses, app_uid, kinds.ingresses.then_some(Which::Labelled(selector))),
        delete_own(&budgets, app_uid, kinds.budget.then_some(Which::Labelled(selector))),
    );
    let failed = [a, b, c, d, e].into_iter().flatten().collect();
    ExposureOutcome { failed, ..ExposureOutcome::default() }
}

/// Deletes the HTTPRoutes of an application's driver; returns messages about those that could not be deleted.
pub(crate) async fn delete_routes(
    client: &Client,
    namespace: &str,
    app: &str,
    app_uid: &str,
    kinds: &Exposed,
) -> Vec<String> {
    let selector = exposes(app);
    let routes: Api<HTTPRoute> = Api::namespaced(client.clone(), namespace);
    let (a, b) = futures::join!(
        delete_own(&routes, app_uid, kinds.web_ingress.as_deref().map(|name| Which::Named(name, None))),
        delete_own(&routes, app_uid, kinds.ingresses.then_some(Which::Labelled(&selector))),
    );
    [a, b].into_iter().flatten().collect()
}

/// The label selector of an application's exposure objects.
fn exposes(app: &str) -> String {
    format!("{}={app},{}=driver", names::LABEL_APP_NAME, names::LABEL_EXPOSES)
}

/// Which objects of a kind to delete.
enum Which<'a> {
    /// One by name, and by its uid if that is known to belong to the application.
    Named(&'a str, Option<String>),
    Labelled(&'a str),
}

/// Deletes objects that belong to an application; returns a message if that failed.
async fn delete_own<K>(api: &Api<K>, app_uid: &str, which: Option<Which<'_>>) -> Option<String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let which = which?;
    let work = async {
        let found = match which {
            Which::Named(name, uid @ Some(_)) => return delete(api, name, uid, false).await,
            Which::Named(name, None) => api.get_metadata_opt(name).await?.into_iter().collect(),
            Which::Labelled(selector) => api.list_metadata(&ListParams::default().labels(selector)).await?.items,
        };
        for object in found.iter().filter(|object| is_owned_by(*object, app_uid)) {
            if object.metadata.deletion_timestamp.is_none() {
                delete(api, &object.name_any(), object.uid(), false).await?;
            }
        }
        Ok::<(), kube::Error>(())
    };
    let kind = K::kind(&());
    match tokio::time::timeout(EXPOSURE_PATIENCE, work).await {
        Ok(Ok(())) => None,
        // Without permission for a kind, the operator cannot have created any.
        Ok(Err(error)) if matches!(class(&error), Class::Missing | Class::Refused) && is_forbidden(&error) => {
            tracing::debug!(%kind, %error, "nothing deleted");
            None
        }
        Ok(Err(error)) => Some(format!("{kind}: {}", words(&error))),
        Err(_) => Some(format!("{kind}: no answer within {} s", EXPOSURE_PATIENCE.as_secs())),
    }
}

/// Whether the operator lacks a permission, or the cluster lacks the kind.
fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || (status.code == 403 && !status.message.contains("webhook")))
}

async fn delete_all<K>(client: &Client, namespace: &str, selector: &str) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(selector);
    match api.delete_collection(&DeleteParams::background(), &list).await {
        Ok(_) => Ok(()),
        // Without permission for a kind, the operator cannot have created any.
        Err(error) if matches!(class(&error), Class::Missing | Class::Refused) => {
            tracing::debug!(kind = %K::kind(&()), %error, "nothing deleted");
            Ok(())
        }
        Err(error) => Err(error).during(|| format!("delete {} of earlier attempts", K::plural(&()))),
    }
}

/// Deletes an application whose time to live has passed, if it is unchanged: an edit starts a new run.
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

/// The merge patch that turns a stored status into a new one; `None` if they are equal.
pub fn status_patch<S: Serialize>(stored: Option<&S>, new: &S) -> Result<Option<Map<String, Value>>, Error> {
    let new = serde_json::to_value(new)?;
    let old = stored.map_or(Ok(Value::Object(Map::new())), serde_json::to_value)?;
    let Some(Value::Object(patch)) = merge_patch(&old, &new) else { return Ok(None) };
    Ok(Some(patch))
}

/// An object whose status was written.
#[derive(Debug, Clone)]
pub struct Written {
    pub version: String,
    /// The status as the API server stored it.
    pub status: Map<String, Value>,
}

/// Patches an object's status, if the object still has this version. `None` if it is gone.
pub async fn patch_status<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    name: &str,
    version: Option<&str>,
    patch: &Map<String, Value>,
) -> Result<Option<Written>, Error> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut body = json!({"status": patch});
    if let Some(version) = version {
        body["metadata"] = json!({"resourceVersion": version});
    }
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await {
        Ok(mut stored) => {
            let status = stored.data.get_mut("status").map(Value::take);
            let status = status.and_then(|status| if let Value::Object(status) = status { Some(status) } else { None });
            let version = stored.metadata.resource_version.unwrap_or_default();
            Ok(Some(Written { version, status: status.unwrap_or_default() }))
        }
        Err(error) if class(&error) == Class::Conflict => Err(Error::Changed),
        Err(error) if class(&error) == Class::Missing => Ok(None),
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
