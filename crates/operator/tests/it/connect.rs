//! Spark Connect servers on a real API server. Server pods request a node that does not exist; the test writes their status,
//! as a kubelet would.

use std::time::Duration;

use firesteel_api::{ExecutorGrant, SparkConnect};
use firesteel_testenv::TestEnv;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, Service};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE, block_on, container, json_patch, now};
use crate::kubelet::Drivers;
use crate::rights::restricted;

/// The SparkConnect objects of a fixture's namespace.
pub(crate) struct Connects<'a> {
    f: &'a Fixture,
    api: Api<SparkConnect>,
}

impl Fixture {
    pub(crate) fn connects(&self) -> Connects<'_> {
        Connects { f: self, api: Api::namespaced(self.client.clone(), self.namespace.name()) }
    }
}

impl Connects<'_> {
    /// Creates one whose server stays pending until the test says otherwise.
    pub(crate) async fn create(&self, name: &str, patch: &Value) {
        let template =
            json!({"spec": {"containers": [], "serviceAccountName": "spark", "nodeSelector": {"no": "where"}}});
        let mut spec = json!({
            "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "server": {"template": template}, "executor": {"instances": 1},
        });
        json_patch(&mut spec, patch);
        let object = json!({
            "apiVersion": "sparkoperator.k8s.io/v1alpha1", "kind": "SparkConnect", "metadata": {"name": name}, "spec": spec,
        });
        // Untyped: some tests write what the types cannot represent.
        self.untyped().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    fn untyped(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<SparkConnect>(&());
        Api::namespaced_with(self.f.client.clone(), self.f.namespace.name(), &resource)
    }

    pub(crate) async fn edit(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn wait(&self, name: &str, what: &str, condition: impl Fn(&SparkConnect) -> bool) -> SparkConnect {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let connect = self.api.get(name).await.unwrap();
            if condition(&connect) {
                return connect;
            }
            let status = serde_json::to_string_pretty(&connect.status).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "{name} never was {what}: {status}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Deletes one and waits until it and its pods are gone.
    pub(crate) async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::background()).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.api.get_opt(name).await.unwrap().is_some()
            || !self.f.pods.list(&ListParams::default()).await.unwrap().items.is_empty()
        {
            assert!(tokio::time::Instant::now() < deadline, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn wait_state(&self, name: &str, state: &str) -> SparkConnect {
        self.wait(name, state, |connect| self::state(connect) == state).await
    }

    /// Waits for server number `attempt`.
    async fn server(&self, name: &str, attempt: i64) -> Pod {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.f.pods.get_opt(&format!("{name}-server")).await.unwrap();
            let found = pod.filter(|pod| pod.annotations()["firesteel.dev/attempt"] == attempt.to_string());
            if let Some(pod) = found.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                return pod;
            }
            assert!(tokio::time::Instant::now() < deadline, "no server {attempt}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn status(&self, name: &str, status: &Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.f.pods.patch_status(&format!("{name}-server"), &PatchParams::default(), &patch).await.unwrap();
    }

    async fn run(&self, name: &str, ready: bool) {
        self.status(name, &running(ready)).await;
    }

    async fn end(&self, name: &str, code: i32) {
        let state = json!({"terminated": {"exitCode": code, "reason": "Error", "finishedAt": now()}});
        self.status(
            name,
            &json!({"phase": "Failed", "containerStatuses": [container(&state)], "conditions": ready(false)}),
        )
        .await;
    }
}

fn ready(is: bool) -> Value {
    json!([{"type": "Ready", "status": if is { "True" } else { "False" }}])
}

fn running(is_ready: bool) -> Value {
    let state = json!({"running": {}});
    json!({"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "conditions": ready(is_ready),
        "containerStatuses": [container(&state)]})
}

fn state(connect: &SparkConnect) -> String {
    connect.status.clone().unwrap_or_default().state.unwrap_or_default()
}

/// The reason and message of a condition, if it has this status.
fn condition(connect: &SparkConnect, kind: &str, status: &str) -> Option<(String, String)> {
    let conditions = &connect.status.as_ref()?.conditions;
    let found = conditions.iter().find(|c| c.type_ == kind && c.status == status)?;
    Some((found.reason.clone(), found.message.clone()))
}

#[test]
fn a_server_becomes_ready_and_is_what_clients_poll() {
    block_on(async {
        let Some(f) = Fixture::new("connect").await else { return };
        let c = f.connects();
        c.create("lab", &json!({})).await;
        let pod = c.server("lab", 1).await;
        c.wait_state("lab", "Provisioning").await;
        assert_eq!(pod.labels()["spark-role"], "connect-server");
        assert_eq!(pod.labels()["sparkoperator.k8s.io/connect-name"], "lab");
        c.run("lab", false).await;
        let waiting = c
            .wait("lab", "running", |c| {
                condition(c, "ServerPodReady", "False").is_some_and(|(_, m)| m.contains("does not accept"))
            })
            .await;
        assert_eq!(state(&waiting), "Provisioning");
        c.run("lab", true).await;
        let connect = c.wait_state("lab", "Ready").await;
        let status = connect.status.clone().unwrap();
        let server = status.server.unwrap();
        assert_eq!(server.pod_name.as_deref(), Some("lab-server"));
        assert_eq!(server.pod_ip.as_deref(), Some("10.0.0.7"));
        assert_eq!(server.service_name.as_deref(), Some("lab-server"));
        assert_eq!(status.observed_generation, connect.metadata.generation);
        assert!(status.start_time.is_some() && status.last_update_time.is_some());
        assert_eq!(condition(&connect, "ServerPodReady", "True").unwrap().0, "ServerPodReady");
        assert_eq!(pod.owner_references()[0].uid, connect.uid().unwrap());

        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let service = services.get("lab-server").await.unwrap();
        assert_eq!(service.owner_references()[0].uid, connect.uid().unwrap());
        let spec = service.spec.unwrap();
        for (name, value) in spec.selector.unwrap() {
            assert_eq!(pod.labels().get(&name), Some(&value));
        }
        let ports: Vec<_> = spec.ports.unwrap().iter().map(|p| (p.name.clone().unwrap(), p.port)).collect();
        assert!(ports.contains(&("spark-connect-server".to_owned(), 15002)), "{ports:?}");

        // Executors, as Spark creates them.
        let labels =
            json!({"spark-role": "executor", "sparkoperator.k8s.io/connect-name": "lab", "spark-exec-id": "1"});
        let executor = json!({"metadata": {"name": "lab-exec-1", "labels": labels},
            "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "spark-kubernetes-executor", "image": "i"}]}});
        f.pods.create(&PostParams::default(), &serde_json::from_value(executor).unwrap()).await.unwrap();
        c.wait("lab", "with an executor", |c| c.status.as_ref().unwrap().executors.get("pending") == Some(&1)).await;
        let patch = Patch::Merge(json!({"status": {"phase": "Running"}}));
        f.pods.patch_status("lab-exec-1", &PatchParams::default(), &patch).await.unwrap();
        c.wait("lab", "with a running executor", |c| c.status.as_ref().unwrap().executors.get("running") == Some(&1))
            .await;
        for reason in ["SparkConnectServerCreated", "SparkConnectServerReady"] {
            f.event(reason).await;
        }
    });
}

#[test]
fn an_edit_rolls_out_once_and_an_invalid_one_leaves_the_server_alone() {
    block_on(async {
        let Some(f) = Fixture::new("rollout").await else { return };
        let c = f.connects();
        c.create("lab", &json!({})).await;
        let first = c.server("lab", 1).await;
        c.run("lab", true).await;
        c.wait_state("lab", "Ready").await;
        c.edit("lab", &json!({"sparkConf": {"spark.connect.grpc.binding.port": "none"}})).await;
        let refused = c.wait("lab", "refused", |c| condition(c, "SpecAccepted", "False").is_some()).await;
        assert_eq!(state(&refused), "Ready");
        let (_, message) = condition(&refused, "SpecAccepted", "False").unwrap();
        assert!(message.starts_with("spec.sparkConf[spark.connect.grpc.binding.port]: "), "{message}");
        assert_eq!(f.event("SparkConnectSpecRefused").await, message);
        assert_eq!(c.server("lab", 1).await.uid(), first.uid());

        c.edit("lab", &json!({"sparkConf": {"spark.connect.grpc.binding.port": "15009"}})).await;
        let second = c.server("lab", 2).await;
        assert_ne!(first.uid(), second.uid());
        let connect = c.wait_state("lab", "Provisioning").await;
        assert!(condition(&connect, "SpecAccepted", "True").is_some());
        c.run("lab", true).await;
        let connect = c.wait_state("lab", "Ready").await;
        assert_eq!(connect.status.clone().unwrap().attempt, Some(2));
        // The Service has the new port, and what belonged to the first server is gone.
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let ports = services.get("lab-server").await.unwrap().spec.unwrap().ports.unwrap();
        assert!(ports.iter().any(|p| p.port == 15009), "{ports:?}");
        assert_left(&f, "lab", 2, 2).await;
        f.event("SparkConnectRolledOut").await;

        // A Service of another name replaces the first one, without a new server.
        c.edit("lab", &json!({"server": {"service": {"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 443, "targetPort": 15009}]}}}})).await;
        c.wait("lab", "renamed", |c| {
            c.status.as_ref().unwrap().server.as_ref().unwrap().service_name.as_deref() == Some("mine")
        })
        .await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while services.get_opt("lab-server").await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "the old Service is still there");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(services.get("mine").await.unwrap().spec.unwrap().ports.unwrap()[0].port, 443);
        assert_eq!(c.server("lab", 2).await.uid(), second.uid());
    });
}

/// Waits until a SparkConnect has this many ConfigMaps and Services.
pub(crate) async fn assert_left(f: &Fixture, name: &str, maps: usize, services: usize) {
    let labelled = ListParams::default().labels(&format!("sparkoperator.k8s.io/connect-name={name}"));
    let all_maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
    let all_services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
    let deadline = tokio::time::Instant::now() + PATIENCE / 2;
    loop {
        let found = (
            all_maps.list(&labelled).await.unwrap().items.len(),
            all_services.list(&labelled).await.unwrap().items.len(),
        );
        if found == (maps, services) {
            return;
        }
        let late = tokio::time::Instant::now() >= deadline;
        assert!(!late, "ConfigMaps and Services in {}: {found:?}", f.namespace.name());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_server_that_dies_says_why_and_is_replaced() {
    block_on(async {
        let Some(f) = Fixture::new("dies").await else { return };
        let c = f.connects();
        c.create("lab", &json!({})).await;
        c.server("lab", 1).await;
        c.run("lab", true).await;
        c.wait_state("lab", "Ready").await;
        c.end("lab", 137).await;
        let connect = c.wait_state("lab", "NotReady").await;
        let (reason, message) = condition(&connect, "ServerPodReady", "False").unwrap();
        assert_eq!(reason, "ServerPodFailed");
        assert!(message.contains("exit code 137"), "{message}");
        assert_eq!(
            f.event("SparkConnectServerFailed").await.lines().next(),
            message.lines().next().map(|l| l.split("; the next server").next().unwrap())
        );
        // Its successor fails before it is ready.
        c.server("lab", 2).await;
        c.end("lab", 1).await;
        let connect = c.wait_state("lab", "Failed").await;
        assert_eq!(connect.status.clone().unwrap().failures, Some(2));
        // A mended specification does not wait.
        c.edit("lab", &json!({"server": {"memory": "2g"}})).await;
        c.server("lab", 3).await;
        c.run("lab", true).await;
        let connect = c.wait_state("lab", "Ready").await;
        assert_eq!(connect.status.unwrap().failures, None);
        // A pod that somebody deletes comes back at once.
        f.pods.delete("lab-server", &DeleteParams::default().grace_period(0)).await.unwrap();
        c.server("lab", 4).await;
        assert_left(&f, "lab", 2, 2).await;
    });
}

#[test]
fn a_bad_specification_fails_with_its_field_and_recovers_when_it_is_mended() {
    block_on(async {
        let Some(f) = Fixture::new("bad").await else { return };
        let c = f.connects();
        c.create("lab", &json!({"server": {"memory": "lots"}})).await;
        c.create("odd", &json!({"server": {"template": {"spec": {"containers": "none"}}}})).await;
        c.create("good", &json!({})).await;
        let connect = c.wait_state("lab", "Failed").await;
        let (_, message) = condition(&connect, "SpecAccepted", "False").unwrap();
        assert_eq!(message, "spec.server.memory: \"lots\" is not a size; write one such as 512m or 2g");
        // What does not even parse: typed clients cannot read it.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let object = c.untyped().get("odd").await.unwrap();
            if object.data["status"]["state"] == "Failed" {
                let words = object.data["status"]["conditions"].to_string();
                assert!(words.contains("spec.server.template.spec.containers: "), "{words}");
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{:?}", object.data);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Others are not disturbed.
        c.server("good", 1).await;
        c.edit("lab", &json!({"server": {"memory": "2g"}})).await;
        c.server("lab", 1).await;
        c.run("lab", true).await;
        c.wait_state("lab", "Ready").await;
    });
}

#[test]
fn a_server_without_executors_needs_nothing_but_itself() {
    block_on(async {
        let Some(f) = Fixture::new("alone").await else { return };
        let c = f.connects();
        c.create("lab", &json!({"executor": {"instances": 0}, "server": {"cores": 2}})).await;
        let pod = c.server("lab", 1).await;
        let args = pod.spec.unwrap().containers[0].args.clone().unwrap();
        assert!(args.windows(2).any(|pair| pair == ["--master", "local[2]"]), "{args:?}");
    });
}

#[test]
fn with_our_allocator_a_server_has_a_grant_that_follows_it() {
    block_on(async {
        let Some(f) = Fixture::new("granted").await else { return };
        let c = f.connects();
        let conf = json!({"spark.kubernetes.allocation.pods.allocator": "firesteel"});
        c.create("lab", &json!({"sparkConf": conf, "executor": {"instances": 3}})).await;
        c.server("lab", 1).await;
        let grants: Api<ExecutorGrant> = Api::namespaced(f.client.clone(), f.namespace.name());
        let first = grants.get("lab-server").await.unwrap();
        assert_eq!(first.spec.maximum.executors, Some(3));
        c.run("lab", true).await;
        c.wait_state("lab", "Ready").await;
        c.edit("lab", &json!({"executor": {"instances": 5}})).await;
        c.server("lab", 2).await;
        let second = grants.get("lab-server").await.unwrap();
        assert_eq!(second.spec.maximum.executors, Some(5));
        assert_ne!(first.uid(), second.uid());
        assert_ne!(first.spec.app_id, second.spec.app_id);
    });
}

#[test]
fn a_refused_server_names_the_quota_and_starts_when_there_is_room() {
    block_on(async {
        let Some(f) = Fixture::new("quota").await else { return };
        let quotas: Api<ResourceQuota> = Api::namespaced(f.client.clone(), f.namespace.name());
        let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let c = f.connects();
        c.create("lab", &json!({})).await;
        let connect = c.wait_state("lab", "Failed").await;
        let (reason, message) = condition(&connect, "ServerPodReady", "False").unwrap();
        assert_eq!(reason, "ServerPodRefused");
        assert!(message.contains("ResourceQuota is exhausted"), "{message}");
        quotas.delete("none", &DeleteParams::default()).await.unwrap();
        c.server("lab", 1).await;
    });
}

#[test]
fn what_belongs_to_others_is_left_alone() {
    block_on(async {
        let Some(f) = Fixture::new("others").await else { return };
        let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
        let service =
            json!({"metadata": {"name": "lab-server"}, "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}}});
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let pod = json!({"metadata": {"name": "den-server"}, "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "i"}]}});
        f.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let c = f.connects();
        c.create("lab", &json!({})).await;
        c.create("den", &json!({})).await;
        let note = f.event("SparkConnectServiceFailed").await;
        assert!(note.contains("lab-server already exists"), "{note}");
        assert_eq!(services.get("lab-server").await.unwrap().spec.unwrap().selector.unwrap()["a"], "b");
        let connect = c.wait_state("den", "Failed").await;
        assert!(
            condition(&connect, "ServerPodReady", "False").unwrap().1.contains("does not belong to this SparkConnect")
        );
        assert!(f.pods.get("den-server").await.unwrap().metadata.deletion_timestamp.is_none());
    });
}

#[test]
fn the_role_in_the_repository_is_enough_for_connect_servers() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let (f, forbidden) = restricted(env).await;
        let c = f.connects();
        let conf = json!({"spark.kubernetes.allocation.pods.allocator": "firesteel"});
        c.create("lab", &json!({"sparkConf": conf})).await;
        c.server("lab", 1).await;
        c.run("lab", true).await;
        c.wait_state("lab", "Ready").await;
        c.edit("lab", &json!({"server": {"memory": "2g"}})).await;
        c.server("lab", 2).await;
        c.end("lab", 1).await;
        c.wait_state("lab", "Failed").await;
        assert!(
            forbidden
                .requests()
                .iter()
                .all(|request| !request.contains("sparkconnects") && !request.contains("/services")),
            "{:?}",
            forbidden.requests()
        );
    });
}

/// Plays the kubelet for server pods until it is aborted: they run and are ready.
pub(crate) async fn play(pods: Api<Pod>, seen: Drivers) {
    let config = watcher::Config::default().labels("spark-role=connect-server");
    let mut events = watcher(pods.clone(), config).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let attempt = pod.annotations().get("firesteel.dev/attempt").cloned().unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap();
            let uids = seen.entry(format!("{} {attempt}", pod.name_any())).or_default();
            if uids.contains(&uid) {
                continue;
            }
            uids.push(uid);
        }
        let patch = Patch::Merge(json!({"status": running(true)}));
        let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
    }
}
