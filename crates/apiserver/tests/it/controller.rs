//! kube-rs's Controller, as an operator uses it: a finalizer, server-side apply of owned objects, a status, a lease.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Client, CustomResource, CustomResourceExt as _, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::cluster;

#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Mirror", namespaced, status = "MirrorStatus")]
struct MirrorSpec {
    text: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct MirrorStatus {
    shown: String,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("{0}")]
    Finalizer(String),
}

async fn reconcile(mirror: Arc<Mirror>, client: Arc<Client>) -> Result<Action, Failed> {
    let client = Client::clone(&client);
    let mirrors: Api<Mirror> = Api::default_namespaced(client.clone());
    let done = finalizer(&mirrors, "example.com/mirror", mirror, |event| async {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        match event {
            Event::Apply(mirror) => {
                let name = mirror.name_any();
                let owner = kube::Resource::controller_owner_ref(&*mirror, &()).expect("it is stored");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]},
                                 "data": {"text": mirror.spec.text}});
                maps.patch(&name, &PatchParams::apply("mirror").force(), &Patch::Apply(&map)).await?;
                let status =
                    json!({"apiVersion": "example.com/v1", "kind": "Mirror", "status": {"shown": mirror.spec.text}});
                let mirrors: Api<Mirror> = Api::default_namespaced(client.clone());
                mirrors.patch_status(&name, &PatchParams::apply("mirror").force(), &Patch::Apply(&status)).await?;
            }
            Event::Cleanup(mirror) => {
                maps.delete(&mirror.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok::<_, kube::Error>(Action::await_change())
    });
    done.await.map_err(|error| Failed::Finalizer(error.to_string()))
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_of_kube_rs_does_its_work() {
    let cluster = cluster().await;
    let client = cluster.client.clone();
    let definitions: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    definitions.create(&PostParams::default(), &Mirror::crd()).await.expect("a definition");
    soon("established", await_condition(definitions, "mirrors.example.com", conditions::is_crd_established()))
        .await
        .expect("established");

    let mirrors: Api<Mirror> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let config = watcher::Config::default();
    let controller = Controller::new(mirrors.clone(), config.clone())
        .owns(maps.clone(), config)
        .run(reconcile, |_, error, _| panic!("{error}"), Arc::new(client.clone()))
        .for_each(|_| async {});
    let running = tokio::spawn(controller);

    mirrors
        .create(&PostParams::default(), &Mirror::new("m", MirrorSpec { text: "one".into() }))
        .await
        .expect("created");
    let shows = |text: &'static str| {
        move |mirror: Option<&Mirror>| mirror.and_then(|m| m.status.as_ref()).is_some_and(|s| s.shown == text)
    };
    let mirror =
        soon("first", await_condition(mirrors.clone(), "m", shows("one"))).await.expect("watched").expect("there");
    assert_eq!(mirror.finalizers(), ["example.com/mirror"]);
    assert_eq!(mirror.metadata.generation, Some(1), "status and finalizers do not count");

    mirrors
        .patch("m", &PatchParams::default(), &Patch::Merge(json!({"spec": {"text": "two"}})))
        .await
        .expect("patched");
    soon("second", await_condition(mirrors.clone(), "m", shows("two"))).await.expect("watched");
    assert_eq!(maps.get("m").await.expect("the map").data.expect("data")["text"], "two");

    // An owned object is re-created when somebody deletes it.
    maps.delete("m", &DeleteParams::default()).await.expect("deleted");
    soon("again", await_condition(maps.clone(), "m", |map: Option<&ConfigMap>| map.is_some())).await.expect("watched");

    mirrors.delete("m", &DeleteParams::default()).await.expect("deleted");
    let uid = mirror.metadata.uid.clone().expect("a uid");
    soon("gone", await_condition(mirrors.clone(), "m", conditions::is_deleted(&uid))).await.expect("watched");
    assert!(maps.get_opt("m").await.expect("an answer").is_none(), "cleaned up before the finalizer went");
    running.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_want_a_lease_one_has_it() {
    let cluster = cluster().await;
    let leases: Api<Lease> = Api::default_namespaced(cluster.client.clone());
    let lease = |holder: &str, version: Option<String>| -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "leader", "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-11-15T00:00:00.000001Z"},
        }))
        .expect("a lease")
    };
    let created = futures::future::join_all((0..8).map(|number| {
        let (leases, wanted) = (leases.clone(), lease(&format!("n{number}"), None));
        async move { leases.create(&PostParams::default(), &wanted).await }
    }))
    .await;
    let winners: Vec<&Lease> = created.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1);
    for lost in created.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(lost, kube::Error::Api(status) if status.is_already_exists()), "{lost}");
    }
    // Acquiring it: all send the revision they saw, and one wins.
    let seen = winners[0].resource_version();
    let taken = futures::future::join_all((0..8).map(|number| {
        let (leases, wanted) = (leases.clone(), lease(&format!("t{number}"), seen.clone()));
        async move { leases.replace("leader", &PostParams::default(), &wanted).await }
    }))
    .await;
    assert_eq!(taken.iter().filter(|result| result.is_ok()).count(), 1);
    for lost in taken.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(lost, kube::Error::Api(status) if status.is_conflict()), "{lost}");
    }
}
