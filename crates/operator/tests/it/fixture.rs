//! A namespace with an operator that looks after it, and a hand on its driver pods.

use std::time::Duration;

use firesteel_api::{SparkApplication, crds};
use firesteel_core::lifecycle::Limits;
use firesteel_operator::Options;
use firesteel_testenv::{TestEnv, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with an operator that looks after it.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: TestNamespace,
    pub(crate) apps: Api<SparkApplication>,
    pub(crate) pods: Api<Pod>,
    _operator: DropGuard,
}

impl Fixture {
    pub(crate) async fn new(prefix: &str) -> Option<Fixture> {
        let env = TestEnv::get()?;
        let client = env.client().await;
        install(&client).await;
        Some(Fixture::with(prefix, client).await)
    }

    /// A namespace whose operator works through `operator`; the definitions must be there already.
    pub(crate) async fn with(prefix: &str, operator: Client) -> Fixture {
        let env = TestEnv::get().expect("a control plane");
        let client = env.client().await;
        let namespace = env.namespace(prefix).await;
        let operator = start(operator, namespace.name());
        Fixture {
            apps: Api::namespaced(client.clone(), namespace.name()),
            pods: Api::namespaced(client.clone(), namespace.name()),
            client,
            namespace,
            _operator: operator,
        }
    }

    /// Creates an application whose driver stays pending until the test says otherwise.
    pub(crate) async fn create(&self, name: &str, patch: &Value) {
        let mut spec = json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
            "mainApplicationFile": "local:///opt/app.jar",
            "driver": {"serviceAccount": "spark", "nodeSelector": {"no": "where"}}, "executor": {"instances": 1},
        });
        json_patch(&mut spec, patch);
        let app = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
            "metadata": {"name": name}, "spec": spec,
        });
        // Untyped: some tests write what the types cannot hold.
        let resource = ApiResource::erase::<SparkApplication>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace.name(), &resource);
        api.create(&PostParams::default(), &serde_json::from_value(app).unwrap()).await.unwrap();
    }

    pub(crate) async fn edit(&self, name: &str, spec: &Value) {
        let patch = json!({"spec": spec});
        self.apps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until the application satisfies a condition.
    pub(crate) async fn wait(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&SparkApplication) -> bool,
    ) -> SparkApplication {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let app = self.apps.get(name).await.unwrap();
            if condition(&app) {
                return app;
            }
            let status = serde_json::to_string_pretty(&app.status).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "{name} never was {what}: {status}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn wait_state(&self, name: &str, state: &str) -> SparkApplication {
        self.wait(name, state, |app| self::state(app) == state).await
    }

    /// Waits for the driver pod of an attempt and gives it.
    pub(crate) async fn driver(&self, name: &str, attempt: i64) -> Pod {
        let app =
            self.wait(name, "submitted", |app| app.status.as_ref().is_some_and(|s| s.attempt == Some(attempt))).await;
        let id = app.status.unwrap().submission_id.unwrap();
        let pod = self.pods.get(&format!("{name}-driver")).await.unwrap();
        assert_eq!(pod.labels()["sparkoperator.k8s.io/submission-id"], id);
        pod
    }

    pub(crate) async fn pod_status(&self, name: &str, status: &Value) {
        let patch = json!({"status": status});
        self.pods
            .patch_status(&format!("{name}-driver"), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub(crate) async fn run_driver(&self, name: &str) {
        self.pod_status(name, &json!({"phase": "Running", "containerStatuses": [container(&json!({"running": {}}))]}))
            .await;
    }

    pub(crate) async fn end_driver(&self, name: &str, code: i32) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let ended = json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": now()}});
        self.pod_status(name, &json!({"phase": phase, "containerStatuses": [container(&ended)]})).await;
    }

    pub(crate) async fn reasons(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace.name());
        let list = events.list(&ListParams::default()).await.unwrap();
        list.items.into_iter().filter_map(|e| e.reason).collect()
    }
}

/// Runs a test on threads with room for the large values of an unoptimised build.
pub(crate) fn block_on(test: impl Future<Output = ()> + Send + 'static) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).thread_stack_size(8 << 20).enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(runtime.spawn(test)) {
        std::panic::resume_unwind(error.into_panic());
    }
}

pub(crate) fn now() -> String {
    k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn container(state: &Value) -> Value {
    json!({"name": "spark-kubernetes-driver", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

pub(crate) fn state(app: &SparkApplication) -> String {
    app.status.clone().unwrap_or_default().application_state.state
}

pub(crate) fn message(app: &SparkApplication) -> String {
    app.status.clone().unwrap_or_default().application_state.error_message
}

fn json_patch(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                json_patch(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

pub(crate) fn start(client: Client, namespace: &str) -> DropGuard {
    if std::env::var_os("RUST_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).try_init();
    }
    let limits = Limits { driver_grace: SignedDuration::from_secs(2), ..Limits::default() };
    let options = Options { namespaces: vec![namespace.to_owned()], limits, ..Options::default() };
    let until = CancellationToken::new();
    tokio::spawn(firesteel_operator::run(client, options, until.clone()));
    until.drop_guard()
}

pub(crate) async fn install(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for manifest in crds::manifests() {
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&manifest)).await.unwrap();
        tokio::time::timeout(PATIENCE, await_condition(api.clone(), &name, is_crd_established()))
            .await
            .unwrap()
            .unwrap();
    }
}
