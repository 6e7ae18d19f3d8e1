//! Every change that is made for a schedule.
//!
//! Runs are created or found again, never overwritten, and deleted by uid if they are unchanged. Patches carry the resource
//! version they were decided on.

use firesteel_api::names::ANNOTATION_RUN_NOW;
use firesteel_api::{ScheduledSparkApplication, SparkApplication};
use firesteel_cluster::writes::create;
use firesteel_core::schedule::{self, NewRun, Sight, Started};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};

use crate::error::{Class, During, Error, class, words};
use crate::writes::Written;

/// Creates a run, or finds it.
pub(super) async fn start_run(client: &Client, sight: &Sight<'_>, run: &NewRun) -> Result<Started, Error> {
    let namespace = sight.object.namespace().unwrap_or_default();
    let api: Api<SparkApplication> = Api::namespaced(client.clone(), &namespace);
    for name in [Some(&run.name), run.apart.as_ref()].into_iter().flatten() {
        let what = || format!("create SparkApplication {name}");
        match create(&api, &PostParams::default(), &schedule::application(sight, run, name)).await {
            Ok(Some(_)) => return Ok(Started::Exists { name: name.clone(), since: Timestamp::now() }),
            Ok(None) => {}
            Err(error) => match class(&error) {
                Class::Refused | Class::Missing => return Ok(Started::Refused(words(&error))),
                Class::Conflict | Class::Exists | Class::Transient => return Err(error).during(what),
            },
        }
        let Some(found) = api.get_metadata_opt(name).await.during(what)? else { return Err(Error::Changed) };
        if schedule::is_run(sight, run, &found.metadata) {
            let since = found.creation_timestamp().map_or_else(Timestamp::now, |time| time.0);
            return Ok(Started::Exists { name: name.clone(), since });
        }
    }
    let name = &run.name;
    Ok(Started::Refused(format!("a SparkApplication named {name} exists and is not a run of this schedule; delete it")))
}

/// Deletes a run that has not changed since it was seen, with everything it owns.
pub(super) async fn delete_run(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    version: &str,
) -> Result<(), Error> {
    let api: Api<SparkApplication> = Api::namespaced(client.clone(), namespace);
    let unchanged = Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
    let params = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::background() };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) => match class(&error) {
            Class::Missing => Ok(()),
            Class::Conflict | Class::Exists => Err(Error::Changed),
            Class::Refused | Class::Transient => Err(error).during(|| format!("delete SparkApplication {name}")),
        },
    }
}

/// Removes the annotation that asked for a run; returns the new version. `None` if the schedule is gone.
pub(super) async fn remove_request(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &str,
) -> Result<Option<String>, Error> {
    let api: Api<ScheduledSparkApplication> = Api::namespaced(client.clone(), namespace);
    let annotations = json!({ANNOTATION_RUN_NOW: null});
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version, "annotations": annotations}}));
    match api.patch_metadata(name, &PatchParams::default(), &patch).await {
        Ok(patched) => Ok(patched.metadata.resource_version),
        Err(error) => match class(&error) {
            Class::Missing => Ok(None),
            Class::Conflict | Class::Exists => Err(Error::Changed),
            Class::Refused | Class::Transient => {
                Err(error).during(|| format!("remove the annotation {ANNOTATION_RUN_NOW}"))
            }
        },
    }
}

/// Patches a schedule's status, if the schedule still has this version. `None` if it is gone.
pub(super) async fn patch_status(
    client: &Client,
    namespace: &str,
    name: &str,
    version: &str,
    patch: &Map<String, Value>,
) -> Result<Option<Written>, Error> {
    crate::writes::patch_status::<ScheduledSparkApplication>(client, namespace, name, Some(version), patch).await
}
