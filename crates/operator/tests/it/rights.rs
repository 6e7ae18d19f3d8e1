//! The operator with exactly the permissions of `deploy/operator-role.yaml`.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firesteel_api::ExecutorGrant;
use firesteel_operator::LeaderOptions;
use firesteel_testenv::TestEnv;
use http::{Request, StatusCode};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE, block_on, install, options, start_with};
use crate::schedules::Schedules;
use crate::witness::{self, Witness};

const ROLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/operator-role.yaml");

/// Forbidden requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forbidden(Arc<Mutex<Vec<String>>>);

impl Forbidden {
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Witness for Forbidden {
    /// What was requested.
    type Note = String;

    fn asked(&self, request: &Request<Body>) -> Option<String> {
        Some(format!("{} {}", request.method(), request.uri().path()))
    }

    fn answered(&self, what: String, status: StatusCode) -> bool {
        if status == StatusCode::FORBIDDEN {
            self.0.lock().unwrap().push(what);
        }
        true
    }
}

/// Applies the role.
pub(crate) async fn install_role(env: &'static TestEnv) {
    let mut kubectl = Command::new(env.kubectl());
    kubectl.arg("--kubeconfig").arg(env.kubeconfig()).args(["apply", "--server-side", "-f"]).arg(Path::new(ROLE));
    let applied = tokio::task::spawn_blocking(move || kubectl.status().unwrap()).await.unwrap();
    assert!(applied.success(), "{ROLE} is not a manifest");
}

/// A namespace whose operator has the role's permissions in it, and a list of its forbidden requests.
pub(crate) async fn restricted(env: &'static TestEnv) -> (Fixture, Forbidden) {
    let client = env.client().await;
    install(&client).await;
    install_role(env).await;
    let namespace = env.namespace("rights").await;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace.name());
    // As in a cluster: a service account, to which the admission policy applies.
    let user = format!("system:serviceaccount:{}:operator", namespace.name());
    let binding = json!({"metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "firesteel-operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let role = "firesteel-operator-definitions";
    let binding = json!({"metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();

    let mut config = crate::crash::config(env).await;
    config.auth_info.impersonate = Some(user);
    let forbidden = Forbidden::default();
    let operator = witness::client(config, &forbidden);
    let mut options = options(namespace.name());
    options.runs.ui.url_format = "spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
    options.leader = Some(LeaderOptions {
        namespace: namespace.name().to_owned(),
        name: "lock".to_owned(),
        identity: "restricted".to_owned(),
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(1),
    });
    // A binding takes a moment to be in force; requests forbidden until then do not count.
    let allowed: Api<firesteel_api::SparkApplication> = Api::namespaced(operator.clone(), namespace.name());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let definitions: Api<CustomResourceDefinition> = Api::all(operator.clone());
    while allowed.list(&ListParams::default()).await.is_err()
        || definitions.get_metadata("executorgrants.firesteel.dev").await.is_err()
    {
        assert!(tokio::time::Instant::now() < deadline, "the binding has no effect");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    forbidden.clear();
    let guard = start_with(operator, options);
    (Fixture::around(namespace, client, guard), forbidden)
}

#[test]
fn d14_the_role_has_every_right_that_the_operator_uses() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let (f, forbidden) = restricted(env).await;
        let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
        let more = json!([{"servicePort": 8888, "servicePortName": "more", "ingressURLFormat": "more.example"}]);
        let around = json!({"restartPolicy": policy, "driverIngressOptions": more, "driverPodDisruptionBudget": true});
        f.create("pi", &around).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.end_driver("pi", 1).await;
        f.driver("pi", 2).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.edit("pi", &json!({"suspend": true})).await;
        f.wait_state("pi", "SUSPENDED").await;
        f.edit("pi", &json!({"suspend": false, "timeToLiveSeconds": 1})).await;
        f.driver("pi", 3).await;
        f.end_driver("pi", 0).await;

        let grants: Api<ExecutorGrant> = Api::namespaced(f.client.clone(), f.namespace.name());
        let wants =
            |n: u32| json!({"status": {"profiles": {"0": {"wanted": n, "cores": 1, "cpu": "1", "memory": "1408Mi"}}}});
        let ways = [("out", "firesteel"), ("replicas", "firesteel-replicaset"), ("stateful", "firesteel-statefulset")];
        for (name, allocator) in ways {
            let sparks = json!({
                "spark.kubernetes.allocation.pods.allocator": allocator, "spark.firesteel.executors.early": "false"});
            f.create(name, &json!({"sparkConf": sparks, "executor": {"nodeSelector": {"no": "where"}}})).await;
            f.driver(name, 1).await;
            f.run_driver(name).await;
            let demand = Patch::Merge(wants(1));
            grants.patch_status(&format!("{name}-driver"), &PatchParams::default(), &demand).await.unwrap();
        }
        let executors = ListParams::default().labels("spark-role=executor");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while f.pods.list(&executors).await.unwrap().items.len() < 3 || f.apps.get_opt("pi").await.unwrap().is_some() {
            let denied = forbidden.requests();
            assert!(
                tokio::time::Instant::now() < deadline,
                "no executors, or pi is still there; forbidden: {denied:?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (name, _) in ways {
            let demand = Patch::Merge(wants(0));
            grants.patch_status(&format!("{name}-driver"), &PatchParams::default(), &demand).await.unwrap();
        }
        while !f.pods.list(&executors).await.unwrap().items.is_empty() {
            let denied = forbidden.requests();
            assert!(tokio::time::Instant::now() < deadline, "executors are left over; forbidden: {denied:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        f.event("SparkApplicationCompleted").await;
        let schedules = Schedules::of(&f);
        schedules.create("timed", &json!({"schedule": "@every 1s", "concurrencyPolicy": "Replace"})).await;
        schedules.wait("timed", "started", |s| s.last_run_name.is_some()).await;
        schedules.ask("timed", "now").await;
        let by_hand = |name: &String| name.starts_with("timed-by-hand-");
        schedules.wait("timed", "started by hand", |s| s.last_run_name.as_ref().is_some_and(by_hand)).await;
        f.event("RunReplaced").await;
        // The operator learns from this rejection that the admission policy is in force; otherwise only one of the
        // three drivers of one account would have had executors.
        let mut denied = forbidden.requests();
        let tries = |request: &String| request.starts_with("PATCH ") && request.ends_with("-driver/status");
        assert!(denied.iter().any(tries), "{denied:?}");
        denied.retain(|request| !tries(request));
        assert!(denied.is_empty(), "{denied:?}");
    });
}
