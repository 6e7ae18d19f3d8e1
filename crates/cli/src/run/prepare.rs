//! Everything between input and following: images, namespaces, accounts, files, objects.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Context;
use firesteel_cluster::writes;
use firesteel_core::overlay::{DRIVER_CONTAINERS, EXECUTOR_CONTAINERS};
use firesteel_spark::names::key;
use firesteel_spark::redaction::Redaction;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::creation::Creation;
use crate::exit::{BadInput, Interrupted};
use crate::interrupt::Interrupt;
use crate::run::arguments::{Planned, Wanted};
use crate::run::cluster::Local;
use crate::run::files::{self, StagedFiles};
use crate::run::follow::Followed;
use crate::run::images;
use crate::run::manifests::{Document, Work};
use crate::run::mounts::{Mounts, Which};
use crate::run::schedules::{self, FollowedSchedule};
use crate::run::view::View;

const MANAGER: &str = "firesteel-run";
/// How long deleting an old application of the same name may take.
const VANISHING: std::time::Duration = std::time::Duration::from_secs(60);

/// What was started.
pub(crate) struct Started {
    pub(crate) followed: Vec<Followed>,
    pub(crate) schedules: Vec<FollowedSchedule>,
    /// The images of its pods.
    pub(crate) images: Vec<String>,
    /// When the run began: after downloads, which happen only once.
    pub(crate) began: Instant,
    staged: StagedFiles,
}

impl Started {
    /// Stops everything and deletes the file copies.
    pub(crate) async fn end(&self, local: &Local) {
        for schedule in &self.schedules {
            schedule.end(local).await;
        }
        for followed in &self.followed {
            followed.end(local).await;
        }
        self.clear();
    }

    /// Deletes the file copies after a run.
    pub(crate) fn clear(&self) {
        self.staged.clear();
    }
}

/// An object that was applied.
enum Begun {
    Followed(Followed),
    Schedule(FollowedSchedule),
}

fn new_staging(local: &Local) -> StagedFiles {
    StagedFiles::at(local.home.node().join("files").join(uuid::Uuid::new_v4().to_string()))
}

pub(crate) async fn submission(
    local: &Local,
    wanted: Wanted,
    view: &View,
    interrupt: &Interrupt,
) -> anyhow::Result<Started> {
    let images = wanted.images();
    images::provide(images.clone(), view, interrupt).await;
    let began = Instant::now();
    let mut staged = new_staging(local);
    stop_if(interrupt)?;
    let Planned { driver: plan, grant, warnings, notes } = wanted.plan(&local.cluster.server, &mut staged)?;
    warnings.iter().for_each(|w| view.line(&format!("Warning: {w}")));
    notes.iter().for_each(|note| view.line(note));
    namespace(local, &plan.namespace, view).await?;
    if let Some(account) = plan.pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref()) {
        service_account(local, &plan.namespace, account, view).await?;
    }
    let pod =
        Creation::new(&local.cluster, &plan, interrupt)?.with_grant(grant.as_ref()).run(crate::output::Printer).await?;
    let redaction = Redaction::new(plan.properties.get(key::REDACTION_REGEX).map(String::as_str));
    let followed = Followed {
        namespace: plan.namespace.clone(),
        name: pod.name_any(),
        application: None,
        serves: false,
        redaction,
    };
    Ok(Started { followed: vec![followed], schedules: Vec::new(), images, began, staged })
}

pub(crate) async fn manifests(
    local: &Local,
    mut documents: Vec<Document>,
    mounts: &Mounts,
    view: &View,
    interrupt: &Interrupt,
) -> anyhow::Result<Started> {
    let mut staged = new_staging(local);
    for document in documents.iter_mut().filter(|d| d.has_application()) {
        let base = document.base.clone();
        let shipped = files::ship_application(&mut staged, document.spec_mut(), &base);
        shipped.with_context(|| document.place.clone())?;
    }
    documents.iter_mut().for_each(|document| show(document, mounts));
    let wanted: BTreeSet<String> = documents.iter().flat_map(images_of).collect();
    let images: Vec<String> = wanted.into_iter().collect();
    images::provide(images.clone(), view, interrupt).await;
    let began = Instant::now();
    let given: BTreeSet<&str> = documents.iter().filter(|d| d.kind() == "Namespace").map(Document::name).collect();
    let needed: BTreeSet<&str> = documents.iter().map(Document::namespace).collect();
    for name in needed.iter().filter(|n| !given.contains(*n)) {
        namespace(local, name, view).await?;
    }
    // Dependencies first, in file order, then applications and pods.
    documents.sort_by_key(|d| match d.work() {
        Work::None => 0,
        Work::SparkApplication | Work::ScheduledSparkApplication | Work::Pod => 1,
        // A server is followed until the end of the run.
        Work::SparkConnect => 2,
    });
    let mut started = Started { followed: Vec::new(), schedules: Vec::new(), images, began, staged };
    for document in &documents {
        match start(local, document, view, interrupt).await {
            Ok(Some(Begun::Followed(followed))) => started.followed.push(followed),
            Ok(Some(Begun::Schedule(schedule))) => started.schedules.push(schedule),
            Ok(None) => {}
            Err(error) => {
                // Stop what was started before.
                started.end(local).await;
                return Err(error);
            }
        }
    }
    Ok(started)
}

/// Adds the requested mounts to a pod or to the pods of an application.
fn show(document: &mut Document, mounts: &Mounts) {
    let nothing = BTreeSet::new();
    match document.work() {
        Work::None => {}
        _ if mounts.is_empty() => {}
        Work::Pod => mounts.put_into(&mut document.object, Which::All, &nothing),
        Work::SparkConnect => {
            for (role, containers) in [("server", DRIVER_CONTAINERS), ("executor", EXECUTOR_CONTAINERS)] {
                let template = &mut document.object["spec"][role]["template"];
                mounts.put_into(template, Which::Application(containers), &nothing);
            }
        }
        Work::SparkApplication | Work::ScheduledSparkApplication => {
            for (role, containers) in [("driver", DRIVER_CONTAINERS), ("executor", EXECUTOR_CONTAINERS)] {
                let spec = &mut document.spec_mut()[role];
                if spec.is_null() {
                    *spec = json!({});
                }
                // These two fields override the template's.
                let of_pod = &spec["podSecurityContext"];
                let decided = ["runAsUser", "runAsNonRoot"].iter().any(|field| !of_pod[*field].is_null());
                if spec["securityContext"].is_object() {
                    mounts.give_rights(spec, decided);
                } else if decided {
                    spec["template"]["spec"]["securityContext"] = of_pod.clone();
                }
                let taken = spec["volumeMounts"].as_array().into_iter().flatten();
                let taken = taken.filter_map(|m| Some(m["mountPath"].as_str()?.trim_end_matches('/').to_owned()));
                let taken: BTreeSet<String> = taken.collect();
                mounts.put_into(&mut spec["template"], Which::Application(containers), &taken);
            }
        }
    }
}

/// Applies one object; returns what to follow, if anything.
async fn start(
    local: &Local,
    document: &Document,
    view: &View,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Begun>> {
    stop_if(interrupt)?;
    let (resource, api) = resource(local, document).await?;
    if document.work() != Work::None {
        make_room(&api, document, view).await?;
        if let Some(account) = account_of(document) {
            service_account(local, document.namespace(), &account, view).await?;
        }
    }
    apply(&api, document).await?;
    let (namespace, name) = (document.namespace().to_owned(), document.name().to_owned());
    let redaction = Redaction::new(document.spec()["sparkConf"][key::REDACTION_REGEX].as_str());
    let (application, serves) = match document.work() {
        Work::SparkApplication => (Some(resource), false),
        Work::SparkConnect => (Some(resource), true),
        Work::Pod => (None, false),
        Work::ScheduledSparkApplication => {
            let instants = schedules::read(document)?;
            let schedule = FollowedSchedule { namespace, name, resource, redaction, instants };
            return Ok(Some(Begun::Schedule(schedule)));
        }
        Work::None => return Ok(None),
    };
    Ok(Some(Begun::Followed(Followed { namespace, name, application, serves, redaction })))
}

fn stop_if(interrupt: &Interrupt) -> anyhow::Result<()> {
    if interrupt.came() {
        Err(Interrupted("interrupted before anything was started".to_owned()).into())
    } else {
        Ok(())
    }
}

fn images_of(document: &Document) -> Vec<String> {
    let text = |value: &Value| value.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    let spec = document.spec();
    match document.work() {
        Work::SparkApplication | Work::ScheduledSparkApplication => {
            [&spec["image"], &spec["driver"]["image"], &spec["executor"]["image"]]
                .into_iter()
                .filter_map(text)
                .collect()
        }
        Work::SparkConnect => {
            let templates = ["server", "executor"].map(|role| &spec[role]["template"]["spec"]["containers"]);
            let containers = templates.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
            std::iter::once(&spec["image"]).chain(containers.map(|c| &c["image"])).filter_map(text).collect()
        }
        Work::Pod => ["initContainers", "containers"]
            .into_iter()
            .flat_map(|field| spec[field].as_array().into_iter().flatten())
            .filter_map(|c| text(&c["image"]))
            .collect(),
        Work::None => Vec::new(),
    }
}

fn account_of(document: &Document) -> Option<String> {
    let spec = document.spec();
    let name = match document.work() {
        Work::SparkApplication | Work::ScheduledSparkApplication => &spec["driver"]["serviceAccount"],
        Work::SparkConnect => &spec["server"]["template"]["spec"]["serviceAccountName"],
        Work::Pod => &spec["serviceAccountName"],
        Work::None => &Value::Null,
    };
    name.as_str().filter(|n| !n.is_empty()).map(str::to_owned)
}

async fn namespace(local: &Local, name: &str, view: &View) -> anyhow::Result<()> {
    let api: Api<Namespace> = Api::all(local.cluster.client.clone());
    if api.get_opt(name).await.with_context(|| format!("look for namespace {name}"))?.is_some() {
        return Ok(());
    }
    let object = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => view.line(&format!("Created namespace {name}")),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error).with_context(|| format!("create namespace {name}")),
    }
    Ok(())
}

/// Creates a service account with a driver's permissions if it is missing.
async fn service_account(local: &Local, namespace: &str, name: &str, view: &View) -> anyhow::Result<()> {
    let api: Api<ServiceAccount> = Api::namespaced(local.cluster.client.clone(), namespace);
    let there = api.get_opt(name).await.with_context(|| format!("look for service account {namespace}/{name}"))?;
    if there.is_none() {
        firesteel_local::driver_account(&local.cluster.client, namespace, name).await?;
        view.line(&format!("Created service account {name} in namespace {namespace} with a driver's permissions"));
    }
    Ok(())
}

async fn resource(local: &Local, document: &Document) -> anyhow::Result<(ApiResource, Api<DynamicObject>)> {
    let client: &Client = &local.cluster.client;
    let types = TypeMeta {
        api_version: document.object["apiVersion"].as_str().unwrap_or_default().to_owned(),
        kind: document.kind().to_owned(),
    };
    let unknown =
        || BadInput(format!("{}: the cluster has no kind {} in {}", document.place, types.kind, types.api_version));
    let gvk = GroupVersionKind::try_from(&types).map_err(|_| unknown())?;
    let (resource, can) = match kube::discovery::pinned_kind(client, &gvk).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 => return Err(unknown().into()),
        Err(kube::Error::Discovery(_)) => return Err(unknown().into()),
        Err(error) => return Err(error).context("discover the cluster's kinds"),
    };
    let api = match can.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), document.namespace(), &resource),
    };
    Ok((resource, api))
}

/// Deletes a finished application or pod of the same name. A running one is not touched.
async fn make_room(api: &Api<DynamicObject>, document: &Document, view: &View) -> anyhow::Result<()> {
    let (kind, name) = (document.kind(), document.name());
    let Some(old) = api.get_opt(name).await.with_context(|| format!("look for {kind} {name}"))? else { return Ok(()) };
    let state = match document.work() {
        Work::SparkApplication => {
            old.data["status"]["applicationState"]["state"].as_str().unwrap_or_default().to_owned()
        }
        Work::ScheduledSparkApplication => old.data["status"]["scheduleState"].as_str().unwrap_or_default().to_owned(),
        Work::SparkConnect => old.data["status"]["state"].as_str().unwrap_or_default().to_owned(),
        Work::Pod | Work::None => old.data["status"]["phase"].as_str().unwrap_or_default().to_owned(),
    };
    let over = matches!(state.as_str(), "COMPLETED" | "FAILED" | "Succeeded" | "Failed");
    if !over && old.metadata.deletion_timestamp.is_none() {
        let namespace = document.namespace();
        let state = if state.is_empty() { "not finished".to_owned() } else { state };
        return Err(BadInput(format!(
            "{kind} {namespace}/{name} already exists and is {state}: delete it first, or choose another name"
        ))
        .into());
    }
    view.line(&format!("Replacing the finished {kind} {name}"));
    let deleted = writes::delete_if(api, name, old.uid(), DeleteParams::foreground()).await;
    deleted.with_context(|| format!("delete the old {kind} {name}"))?;
    let gone = async {
        while api.get_opt(name).await?.is_some_and(|o| o.uid() == old.uid()) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Ok::<_, kube::Error>(())
    };
    tokio::time::timeout(VANISHING, gone)
        .await
        .with_context(|| format!("the old {kind} {name} was not deleted in time"))??;
    Ok(())
}

async fn apply(api: &Api<DynamicObject>, document: &Document) -> anyhow::Result<()> {
    match writes::apply(api, MANAGER, document.name(), &document.object, true).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_invalid() || matches!(status.code, 400 | 403 | 422) => {
            Err(BadInput(format!("{}: {}", document.place, status.message)).into())
        }
        Err(error) => Err(error).with_context(|| format!("apply {} {}", document.kind(), document.name())),
    }
}
