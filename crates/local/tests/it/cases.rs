//! What the controllers must do, as seen by a client.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// When something counts as never: other suites run at the same time.
const PATIENCE: Duration = Duration::from_secs(60);

/// One namespace and a client.
#[derive(Clone)]
pub(crate) struct Case {
    client: Client,
    namespace: String,
}

type Run = fn(Case) -> BoxFuture<'static, ()>;

/// Runs all cases concurrently, each in its own namespace.
pub(crate) async fn all(client: &Client) {
    let list: &[(&str, Run)] = &[
        ("unschedulable", |c| unschedulable_pods_say_why_and_get_their_turn(c).boxed()),
        ("gates", |c| gated_pods_wait(c).boxed()),
        ("background", |c| dependents_go_after_their_owner(c).boxed()),
        ("foreground", |c| an_owner_waits_for_its_dependents(c).boxed()),
        ("orphan", |c| orphans_stay(c).boxed()),
        ("custom", |c| custom_resources_own_and_are_owned(c).boxed()),
        ("namespace", |c| a_namespace_goes_with_its_content(c).boxed()),
        ("provided", |c| a_namespace_has_account_and_authority(c).boxed()),
        ("endpoints", |c| services_know_their_pods(c).boxed()),
        ("replicas", |c| a_replica_set_keeps_its_size(c).boxed()),
        ("parallel", |c| a_parallel_stateful_set_starts_at_once(c).boxed()),
        ("ordered", |c| an_ordered_stateful_set_waits(c).boxed()),
        ("deployment", |c| a_deployment_rolls(c).boxed()),
        ("claims", |c| a_claim_gets_a_directory(c).boxed()),
        ("job", |c| a_job_counts_its_pods_once(c).boxed()),
        ("job-fails", |c| a_job_fails_when_its_pods_do(c).boxed()),
        ("budget", |c| a_budget_limits_evictions(c).boxed()),
        ("set-claims", |c| a_stateful_set_gives_each_pod_its_claim(c).boxed()),
    ];
    let wanted = std::env::var("CASE").ok();
    let runs = list.iter().filter(|(name, _)| wanted.as_deref().is_none_or(|w| w == *name)).map(|(name, run)| {
        let client = client.clone();
        async move {
            let case = Case::new(client, name).await;
            let began = std::time::Instant::now();
            run(case.clone()).await;
            eprintln!("{name}: {:?}", began.elapsed());
            case.end().await;
        }
    });
    let outcomes = futures::future::join_all(runs.map(|r| std::panic::AssertUnwindSafe(r).catch_unwind())).await;
    let failed = outcomes.iter().filter(|o| o.is_err()).count();
    assert_eq!(failed, 0, "{failed} cases failed, see above");
}

impl Case {
    async fn new(client: Client, name: &str) -> Self {
        let api: Api<Namespace> = Api::all(client.clone());
        let meta = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("{name}-")}});
        let made = api
            .create(&PostParams::default(), &serde_json::from_value(meta).expect("well formed"))
            .await
            .expect("namespace");
        let case = Case { client, namespace: made.name_any() };
        // Pods need the default service account.
        case.until(name, || async {
            case.api::<ServiceAccount>().get_opt("default").await.expect("an answer").is_some()
        })
        .await;
        case
    }

    async fn end(&self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let _ = api.delete(&self.namespace, &DeleteParams::default()).await;
        self.until("namespace gone", || async { api.get_opt(&self.namespace).await.expect("an answer").is_none() })
            .await;
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Serialize
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).expect("well formed");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("created")
    }

    async fn pod(&self, name: &str, cpu: &str, more: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": name}, "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
        merge(&mut pod, more);
        self.create(pod).await
    }

    async fn map(&self, name: &str, owners: &[&ConfigMap]) -> ConfigMap {
        let owners: Vec<_> = owners
            .iter()
            .map(|o| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o.name_any(), "uid": o.uid(), "blockOwnerDeletion": true})
            })
            .collect();
        self.create(json!({"metadata": {"name": name, "ownerReferences": owners}})).await
    }

    async fn there<K>(&self, name: &str) -> bool
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.api::<K>().get_opt(name).await.expect("get").is_some()
    }

    async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{}: not in time: {what}", self.namespace);
        }
    }

    async fn node_of(&self, pod: &str) -> Option<String> {
        self.api::<Pod>().get(pod).await.expect("pod").spec.and_then(|s| s.node_name)
    }

    async fn scheduled(&self, pod: &str) -> Option<(String, String)> {
        let status = self.api::<Pod>().get(pod).await.expect("pod").status?;
        let condition = status.conditions?.into_iter().find(|c| c.type_ == "PodScheduled")?;
        Some((condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()))
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

async fn unschedulable_pods_say_why_and_get_their_turn(case: Case) {
    let only = json!({"spec": {"nodeSelector": {"pool": case.namespace}}});
    case.pod("selective", "1m", only).await;
    let message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to \
                   deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    case.until("condition", || async {
        case.scheduled("selective").await == Some(("Unschedulable".to_owned(), message.to_owned()))
    })
    .await;
    case.pod("huge", "64", json!({})).await;
    case.until("condition", || async {
        case.scheduled("huge")
            .await
            .is_some_and(|(_, m)| m.starts_with("0/1 nodes are available: 1 Insufficient cpu. "))
    })
    .await;
    let events: Api<k8s_openapi::api::core::v1::Event> = case.api();
    let about = ListParams::default().fields("involvedObject.name=huge,reason=FailedScheduling");
    case.until("event", || async { !events.list(&about).await.expect("events").items.is_empty() }).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(case.client.clone());
    let label = json!({"metadata": {"labels": {"pool": case.namespace}}});
    nodes.patch("puppet", &PatchParams::default(), &Patch::Merge(&label)).await.expect("label");
    case.until("bound", || async { case.node_of("selective").await.as_deref() == Some("puppet") }).await;
}

async fn gated_pods_wait(case: Case) {
    case.pod("gated", "1m", json!({"spec": {"schedulingGates": [{"name": "firesteel.dev/wait"}]}})).await;
    case.until("gated", || async { case.scheduled("gated").await.is_some_and(|(r, _)| r == "SchedulingGated") }).await;
    let lift = json!({"spec": {"schedulingGates": []}});
    case.api::<Pod>().patch("gated", &PatchParams::default(), &Patch::Merge(&lift)).await.expect("lift");
    case.until("bound", || async { case.node_of("gated").await.is_some() }).await;
}

async fn dependents_go_after_their_owner(case: Case) {
    let owner = case.map("owner", &[]).await;
    let other = case.map("other", &[]).await;
    let child = case.map("child", &[&owner]).await;
    case.map("grandchild", &[&child]).await;
    case.map("shared", &[&owner, &other]).await;
    case.api::<ConfigMap>().delete("owner", &DeleteParams::background()).await.expect("delete");
    case.until("child gone", || async { !case.there::<ConfigMap>("child").await }).await;
    case.until("grandchild gone", || async { !case.there::<ConfigMap>("grandchild").await }).await;
    case.until("shared has one owner left", || async {
        case.api::<ConfigMap>().get("shared").await.expect("stays").owner_references().len() == 1
    })
    .await;
    // An owner that never existed: the object is deleted at once. A different uid is a different owner.
    let mut imposter = other.clone();
    imposter.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    case.map("of-imposter", &[&imposter]).await;
    case.until("gone", || async { !case.there::<ConfigMap>("of-imposter").await }).await;
}

async fn an_owner_waits_for_its_dependents(case: Case) {
    let owner = case.map("owner", &[]).await;
    let mut held = serde_json::to_value(case.map("held", &[&owner]).await).expect("json");
    held["metadata"]["finalizers"] = json!(["firesteel.dev/hold"]);
    let hold = json!({"metadata": {"finalizers": ["firesteel.dev/hold"]}});
    case.api::<ConfigMap>().patch("held", &PatchParams::default(), &Patch::Merge(&hold)).await.expect("hold");
    case.api::<ConfigMap>().delete("owner", &DeleteParams::foreground()).await.expect("delete");
    case.until("held is going", || async {
        case.api::<ConfigMap>().get("held").await.expect("held").metadata.deletion_timestamp.is_some()
    })
    .await;
    assert!(case.there::<ConfigMap>("owner").await, "the owner waits");
    let free = json!({"metadata": {"finalizers": []}});
    case.api::<ConfigMap>().patch("held", &PatchParams::default(), &Patch::Merge(&free)).await.expect("free");
    case.until("owner gone", || async { !case.there::<ConfigMap>("owner").await }).await;
}

async fn orphans_stay(case: Case) {
    let owner = case.map("owner", &[]).await;
    case.map("child", &[&owner]).await;
    case.api::<ConfigMap>().delete("owner", &DeleteParams::orphan()).await.expect("delete");
    case.until("owner gone", || async { !case.there::<ConfigMap>("owner").await }).await;
    assert!(case.api::<ConfigMap>().get("child").await.expect("stays").owner_references().is_empty());
}

async fn custom_resources_own_and_are_owned(case: Case) {
    let group = format!("{}.firesteel.dev", case.namespace);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"metadata": {"name": format!("things.{group}")}, "spec": {
        "group": group, "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let crds: Api<CustomResourceDefinition> = Api::all(case.client.clone());
    crds.create(&PostParams::default(), &serde_json::from_value(crd).expect("well formed")).await.expect("crd");
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Thing"), "things");
    let things: Api<DynamicObject> = Api::namespaced_with(case.client.clone(), &case.namespace, &resource);
    let thing = DynamicObject::new("thing", &resource);
    case.until("served", || async { things.create(&PostParams::default(), &thing).await.is_ok() }).await;
    let owner = things.get("thing").await.expect("thing");
    let reference = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "name": "thing", "uid": owner.uid()});
    case.create::<ConfigMap>(json!({"metadata": {"name": "owned", "ownerReferences": [reference]}})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(case.there::<ConfigMap>("owned").await, "its owner is there");
    things.delete("thing", &DeleteParams::background()).await.expect("delete");
    case.until("owned gone", || async { !case.there::<ConfigMap>("owned").await }).await;
    crds.delete(&format!("things.{group}"), &DeleteParams::default()).await.expect("delete crd");
}

async fn a_namespace_goes_with_its_content(case: Case) {
    case.map("content", &[]).await;
    case.pod("running", "1m", json!({})).await;
    case.until("bound", || async { case.node_of("running").await.is_some() }).await;
    // Every case ends by deleting its namespace and waiting for it.
}

async fn a_namespace_has_account_and_authority(case: Case) {
    case.until("authority", || async {
        let map = case.api::<ConfigMap>().get_opt("kube-root-ca.crt").await.expect("get");
        map.and_then(|m| m.data).is_some_and(|d| d.get("ca.crt").is_some_and(|ca| ca == "the authority"))
    })
    .await;
    case.api::<ServiceAccount>().delete("default", &DeleteParams::default()).await.expect("delete");
    case.until("account is back", || async { case.there::<ServiceAccount>("default").await }).await;
}

async fn services_know_their_pods(case: Case) {
    let spec = json!({"selector": {"app": "a"}, "clusterIP": "None", "ports": [{"name": "rpc", "port": 7078}]});
    case.create::<Service>(json!({"metadata": {"name": "svc"}, "spec": spec})).await;
    case.pod("one", "1m", json!({"metadata": {"labels": {"app": "a"}}})).await;
    let slices = ListParams::default().labels("kubernetes.io/service-name=svc");
    case.until("slice", || async {
        let list = case.api::<EndpointSlice>().list(&slices).await.expect("slices").items;
        let ready =
            |e: &k8s_openapi::api::discovery::v1::Endpoint| e.conditions.as_ref().and_then(|c| c.ready) == Some(true);
        list.iter().flat_map(|s| s.endpoints.iter().flatten()).any(|e| e.addresses == ["10.9.8.7"] && ready(e))
    })
    .await;
    case.until("endpoints", || async {
        let found = case.api::<Endpoints>().get_opt("svc").await.expect("endpoints");
        found.and_then(|e| e.subsets).is_some_and(|s| s[0].addresses.as_ref().is_some_and(|a| a.len() == 1))
    })
    .await;
    case.api::<Service>().delete("svc", &DeleteParams::default()).await.expect("delete");
    case.until("endpoints gone", || async { !case.there::<Endpoints>("svc").await }).await;
    case.until("slices gone", || async {
        case.api::<EndpointSlice>().list(&slices).await.expect("slices").items.is_empty()
    })
    .await;
}

async fn running(case: &Case, labels: &str) -> Vec<String> {
    let pods = case.api::<Pod>().list(&ListParams::default().labels(labels)).await.expect("pods").items;
    let up = |p: &&Pod| {
        p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running") && p.metadata.deletion_timestamp.is_none()
    };
    pods.iter().filter(up).map(ResourceExt::name_any).collect()
}

async fn a_replica_set_keeps_its_size(case: Case) {
    let spec =
        json!({"replicas": 3, "selector": {"matchLabels": {"app": "r"}}, "template": template(json!({"app": "r"}))});
    case.create::<ReplicaSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await;
    let status = |want: i32| {
        let case = case.clone();
        async move {
            let status = case.api::<ReplicaSet>().get("set").await.expect("set").status.unwrap_or_default();
            status.replicas == want
                && status.ready_replicas.unwrap_or(0) == want
                && status.available_replicas.unwrap_or(0) == want
        }
    };
    case.until("three ready", || status(3)).await;
    let victim = running(&case, "app=r").await.remove(0);
    case.api::<Pod>().delete(&victim, &DeleteParams::default()).await.expect("delete");
    case.until("replaced", || async {
        let now = running(&case, "app=r").await;
        now.len() == 3 && !now.contains(&victim)
    })
    .await;
    let scale = json!({"spec": {"replicas": 1}});
    case.api::<ReplicaSet>().patch_scale("set", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scale");
    case.until("one left", || status(1)).await;
    case.api::<ReplicaSet>().delete("set", &DeleteParams::background()).await.expect("delete");
    case.until("pods gone", || async { running(&case, "app=r").await.is_empty() }).await;
}

async fn a_parallel_stateful_set_starts_at_once(case: Case) {
    let mut pod = template(json!({"app": "p"}));
    pod["metadata"]["annotations"] = json!({"puppet/unready": "yes"});
    let spec = json!({"replicas": 3, "podManagementPolicy": "Parallel", "serviceName": "s", "selector": {"matchLabels": {"app": "p"}}, "template": pod});
    case.create::<StatefulSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await;
    case.until("all three", || async { running(&case, "app=p").await == ["set-0", "set-1", "set-2"] }).await;
    let scale = json!({"spec": {"replicas": 1}});
    case.api::<StatefulSet>().patch_scale("set", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scale");
    case.until("one", || async { running(&case, "app=p").await == ["set-0"] }).await;
}

async fn an_ordered_stateful_set_waits(case: Case) {
    let mut pod = template(json!({"app": "o"}));
    pod["metadata"]["annotations"] = json!({"puppet/unready": "yes"});
    let spec = json!({"replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"app": "o"}}, "template": pod});
    case.create::<StatefulSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await;
    case.until("the first", || async { running(&case, "app=o").await == ["set-0"] }).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running(&case, "app=o").await, ["set-0"], "the second waits until the first is ready");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    case.api::<Pod>().patch_status("set-0", &PatchParams::default(), &Patch::Strategic(&ready)).await.expect("ready");
    case.until("both", || async { running(&case, "app=o").await == ["set-0", "set-1"] }).await;
}

async fn a_deployment_rolls(case: Case) {
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": template(json!({"app": "d"}))});
    case.create::<Deployment>(json!({"metadata": {"name": "dep"}, "spec": spec})).await;
    let done = |case: Case| async move {
        let dep = case.api::<Deployment>().get("dep").await.expect("dep");
        let status = dep.status.unwrap_or_default();
        status.observed_generation == dep.metadata.generation
            && status.updated_replicas == Some(2)
            && status.available_replicas == Some(2)
            && status.replicas == Some(2)
    };
    case.until("up", || done(case.clone())).await;
    let before = running(&case, "app=d").await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}});
    case.api::<Deployment>().patch("dep", &PatchParams::default(), &Patch::Strategic(&image)).await.expect("patch");
    case.until("rolled", || done(case.clone())).await;
    case.until("new pods only", || async {
        let now = running(&case, "app=d").await;
        now.len() == 2 && now.iter().all(|p| !before.contains(p))
    })
    .await;
    let dep = case.api::<Deployment>().get("dep").await.expect("dep");
    assert_eq!(dep.annotations().get("deployment.kubernetes.io/revision").map(String::as_str), Some("2"));
}

async fn a_claim_gets_a_directory(case: Case) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    case.create::<PersistentVolumeClaim>(json!({"metadata": {"name": "data"}, "spec": spec})).await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    case.pod("user", "1m", json!({"spec": {"volumes": volumes}})).await;
    case.until("pod bound", || async { case.node_of("user").await.is_some() }).await;
    let claim = case.api::<PersistentVolumeClaim>().get("data").await.expect("claim");
    assert_eq!(claim.status.and_then(|s| s.phase).as_deref(), Some("Bound"));
    let volume = claim.spec.and_then(|s| s.volume_name).expect("a volume");
    let all: Api<PersistentVolume> = Api::all(case.client.clone());
    let path = all.get(&volume).await.expect("volume").spec.and_then(|s| s.host_path).expect("a path").path;
    assert!(std::path::Path::new(&path).is_dir());
    case.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.expect("delete");
    tokio::time::sleep(Duration::from_millis(200)).await;
    case.api::<Pod>().delete("user", &DeleteParams::default()).await.expect("delete");
    case.until("volume gone", || async { all.get_opt(&volume).await.expect("volume").is_none() }).await;
    assert!(!std::path::Path::new(&path).exists(), "the directory is gone too");
}

async fn a_job_counts_its_pods_once(case: Case) {
    let mut pod = template(json!({}));
    pod["metadata"]["annotations"] = json!({"puppet/phase": "Succeeded"});
    pod["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"completions": 5, "parallelism": 2, "template": pod});
    case.create::<Job>(json!({"metadata": {"name": "job"}, "spec": spec})).await;
    case.until("complete", || async {
        let status = case.api::<Job>().get("job").await.expect("job").status.unwrap_or_default();
        let complete = status.conditions.iter().flatten().any(|c| c.type_ == "Complete" && c.status == "True");
        complete && status.succeeded == Some(5)
    })
    .await;
    let pods = case.api::<Pod>().list(&ListParams::default().labels("job-name=job")).await.expect("pods").items;
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|p| p.finalizers().is_empty()));
}

async fn a_job_fails_when_its_pods_do(case: Case) {
    let mut pod = template(json!({}));
    pod["metadata"]["annotations"] = json!({"puppet/phase": "Failed"});
    pod["spec"]["restartPolicy"] = json!("Never");
    let spec = json!({"backoffLimit": 0, "ttlSecondsAfterFinished": 2, "template": pod});
    case.create::<Job>(json!({"metadata": {"name": "job"}, "spec": spec})).await;
    let failed = std::sync::atomic::AtomicBool::new(false);
    case.until("failed, then gone", || async {
        let Some(job) = case.api::<Job>().get_opt("job").await.expect("job") else { return true };
        let conditions = job.status.and_then(|s| s.conditions).unwrap_or_default();
        let over = conditions.iter().find(|c| c.type_ == "Failed" && c.status == "True");
        if let Some(over) = over {
            assert_eq!(over.reason.as_deref(), Some("BackoffLimitExceeded"));
            failed.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        false
    })
    .await;
    assert!(failed.into_inner(), "it said why before it went");
}

async fn a_budget_limits_evictions(case: Case) {
    let spec =
        json!({"replicas": 2, "selector": {"matchLabels": {"app": "b"}}, "template": template(json!({"app": "b"}))});
    case.create::<ReplicaSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await;
    let budget = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "b"}}});
    case.create::<PodDisruptionBudget>(json!({"metadata": {"name": "budget"}, "spec": budget})).await;
    let allowed = |want: i32, healthy: i32| {
        let case = case.clone();
        async move {
            let status = case.api::<PodDisruptionBudget>().get("budget").await.expect("budget").status;
            status.is_some_and(|s| s.disruptions_allowed == Some(want) && s.current_healthy == Some(healthy))
        }
    };
    case.until("two healthy pods, none to spare", || allowed(0, 2)).await;
    let victim = running(&case, "app=b").await.remove(0);
    // The client retries for as long as it gets 429.
    let asked = case.api::<Pod>();
    let nothing = kube::api::EvictParams::default();
    let refused = tokio::time::timeout(Duration::from_secs(3), asked.evict(&victim, &nothing)).await;
    assert!(!matches!(refused, Ok(Ok(_))), "the eviction was not refused");
    assert!(running(&case, "app=b").await.contains(&victim), "the pod stays");
    let scale = json!({"spec": {"replicas": 3}});
    case.api::<ReplicaSet>().patch_scale("set", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scale");
    case.until("one to spare", || allowed(1, 3)).await;
    case.api::<Pod>().evict(&victim, &kube::api::EvictParams::default()).await.expect("evict");
    case.until("replaced", || async {
        let now = running(&case, "app=b").await;
        now.len() == 3 && !now.contains(&victim)
    })
    .await;
    case.until("one to spare again", || allowed(1, 3)).await;
}

async fn a_stateful_set_gives_each_pod_its_claim(case: Case) {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    let spec = json!({
        "replicas": 2, "podManagementPolicy": "Parallel", "serviceName": "s", "selector": {"matchLabels": {"app": "v"}},
        "template": template(json!({"app": "v"})),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    });
    case.create::<StatefulSet>(json!({"metadata": {"name": "set"}, "spec": spec})).await;
    let ready = |want: i32| {
        let case = case.clone();
        async move {
            let status = case.api::<StatefulSet>().get("set").await.expect("set").status.unwrap_or_default();
            status.ready_replicas.unwrap_or(0) == want && status.replicas == want
        }
    };
    case.until("two ready", || ready(2)).await;
    for name in ["data-set-0", "data-set-1"] {
        let claim = case.api::<PersistentVolumeClaim>().get(name).await.expect("claim");
        assert_eq!(claim.status.and_then(|s| s.phase).as_deref(), Some("Bound"), "{name}");
    }
    let scale = json!({"spec": {"replicas": 1}});
    case.api::<StatefulSet>().patch_scale("set", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scale");
    case.until("one left", || ready(1)).await;
    assert!(case.there::<PersistentVolumeClaim>("data-set-1").await, "claims outlive their pods");
}
