//! An operator that selects namespaces by label, with the permissions of `deploy/operator-role.yaml`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firesteel_api::{ExecutorGrant, ExecutorLedger};
use firesteel_testenv::{TestEnv, TestNamespace};
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, PATIENCE, block_on, install, options, start_with, state};
use crate::rights;
use crate::witness::{self, Witness};

/// Requests that change something.
#[derive(Debug, Clone, Default)]
struct Written(Arc<Mutex<Vec<String>>>);

impl Written {
    /// Takes the requests so far; returns those about one namespace.
    fn take(&self, namespace: &str) -> Vec<String> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter().filter(|what| what.contains(&format!("/namespaces/{namespace}/"))).collect()
    }
}

impl Witness for Written {
    type Note = ();

    fn asked(&self, request: &Request<Body>) -> Option<()> {
        if request.method() != Method::GET {
            self.0.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
        Some(())
    }

    fn answered(&self, (): (), _: StatusCode) -> bool {
        true
    }
}

async fn label(client: &Client, namespace: &str, value: Option<&str>) {
    let api: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {"spark": value}}}));
    api.patch(namespace, &PatchParams::default(), &patch).await.unwrap();
}

/// A namespace whose operator the test starts itself.
fn without_operator(namespace: TestNamespace, client: &Client) -> Fixture {
    Fixture::around(namespace, client.clone(), CancellationToken::new().drop_guard())
}

async fn demand(f: &Fixture, executors: u32) {
    let grants: Api<ExecutorGrant> = Api::namespaced(f.client.clone(), f.namespace.name());
    let profile = json!({"wanted": executors, "cores": 1, "cpu": "1", "memory": "1408Mi"});
    let patch = Patch::Merge(json!({"status": {"profiles": {"0": profile}}}));
    grants.patch_status("outside-driver", &PatchParams::default(), &patch).await.unwrap();
}

async fn executors(f: &Fixture) -> usize {
    f.pods.list(&ListParams::default().labels("spark-role=executor")).await.unwrap().items.len()
}

async fn wait_for_executors(f: &Fixture, count: usize) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while executors(f).await != count {
        assert!(tokio::time::Instant::now() < deadline, "there never were {count} executors");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_namespace_is_worked_in_while_its_labels_match_the_selector() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        rights::install_role(env).await;
        let inside = without_operator(env.namespace("inside").await, &client);
        let changing = without_operator(env.namespace("changing").await, &client);
        // A label value that no other test uses.
        let value = inside.namespace.name().to_owned();
        label(&client, inside.namespace.name(), Some(&value)).await;
        inside.create("pi", &json!({})).await;
        changing.create("pi", &json!({})).await;
        let allocator = json!({"sparkConf": {
            "spark.kubernetes.allocation.pods.allocator": "firesteel", "spark.firesteel.executors.early": "false"},
            "driver": {"serviceAccount": "outside"}, "executor": {"instances": 5, "nodeSelector": {"no": "where"}}});
        changing.namespace.powerless("outside").await;
        changing.create("outside", &allocator).await;

        let user = format!("operator-of-{value}");
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let binding = json!({"metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "firesteel-operator"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        let mut config = crate::crash::config(env).await;
        config.auth_info.impersonate = Some(user.clone());
        let written = Written::default();
        let operator = witness::client(config, &written);
        let allowed: Api<Namespace> = Api::all(operator.clone());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while allowed.list(&ListParams::default()).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "the binding has no effect");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut options = options(inside.namespace.name());
        options.namespaces.clear();
        options.namespace_selector = Some(format!("spark={value}"));
        let running = start_with(operator, options);

        // One that matches, and one that does not.
        inside.driver("pi", 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(written.take(changing.namespace.name()), Vec::<String>::new());
        assert!(changing.apps.get("pi").await.unwrap().status.is_none());

        // It starts to match: existing applications are reconciled, executors included.
        label(&client, changing.namespace.name(), Some(&value)).await;
        for app in ["pi", "outside"] {
            changing.driver(app, 1).await;
            changing.run_driver(app).await;
            changing.wait_state(app, "RUNNING").await;
        }
        demand(&changing, 2).await;
        wait_for_executors(&changing, 2).await;

        // It no longer matches: whatever happens there, nothing is written, and running applications keep running.
        label(&client, changing.namespace.name(), None).await;
        // Events about what happened before may still come: those of a run that goes well are collected for five seconds.
        tokio::time::sleep(Duration::from_secs(7)).await;
        written.take(changing.namespace.name());
        demand(&changing, 5).await;
        changing.end_driver("pi", 1).await;
        changing.edit("outside", &json!({"suspend": true})).await;
        inside.run_driver("pi").await;
        inside.end_driver("pi", 0).await;
        inside.wait_state("pi", "COMPLETED").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(written.take(changing.namespace.name()), Vec::<String>::new());
        assert_eq!(executors(&changing).await, 2);
        assert_eq!(state(&changing.apps.get("pi").await.unwrap()), "RUNNING");
        assert!(changing.pods.get("outside-driver").await.unwrap().metadata.deletion_timestamp.is_none());

        // It matches again.
        changing.edit("outside", &json!({"suspend": false})).await;
        label(&client, changing.namespace.name(), Some(&value)).await;
        changing.wait_state("pi", "FAILED").await;
        wait_for_executors(&changing, 5).await;
        let ledgers: Api<ExecutorLedger> = Api::namespaced(client.clone(), changing.namespace.name());
        assert!(ledgers.get("outside-driver").await.unwrap().status.unwrap().accepted);
        drop(running);
        bindings.delete(&user, &DeleteParams::default()).await.unwrap();
    });
}

#[test]
fn an_unusable_selector_stops_the_operator_with_a_message() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let namespace = env.namespace("selector").await;
        let refused = |client: Client, selector: &str| {
            let mut options = options(namespace.name());
            options.namespace_selector = Some(selector.to_owned());
            let until = CancellationToken::new();
            async move {
                let run = firesteel_operator::run(client, options, until);
                tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap_err().to_string()
            }
        };
        let sentence = refused(env.client().await, "spark in (a").await;
        assert!(sentence.starts_with("--namespace-selector `spark in (a` is not a label selector: "), "{sentence}");
        let powerless = namespace.powerless("nobody").await.client().await;
        let sentence = refused(powerless, "spark=on").await;
        assert!(
            sentence.starts_with("--namespace-selector needs permission to list and watch namespaces"),
            "{sentence}"
        );
    });
}
