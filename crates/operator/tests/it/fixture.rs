//! A namespace with its own operator, and control over its driver pods.

use crate::passes::Passes;
use std::time::Duration;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use firesteel_api::{SparkApplication, crds, policy};
use firesteel_core::lifecycle::Limits;
use firesteel_operator::Options;
use firesteel_testenv::{TestEnv, TestNamespace};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with its own operator.
pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) namespace: TestNamespace,
    pub(crate) apps: Api<SparkApplication>,
    pub(crate) pods: Api<Pod>,
    operator: Option<DropGuard>,
}

impl Fixture {
    pub(crate) async fn new(prefix: &str) -> Option<Fixture> {
        let env = TestEnv::get()?;
        let client = env.client().await;
        install(&client).await;
        Some(Fixture::with(prefix, client).await)
    }

    /// A namespace whose operator runs with other options.
    pub(crate) async fn tuned(prefix: &str, tune: impl FnOnce(&mut Options)) -> Option<Fixture> {
        let env = TestEnv::get()?;
        let client = env.client().await;
        install(&client).await;
        let namespace = env.namespace(prefix).await;
        let mut options = options(namespace.name());
        tune(&mut options);
        Some(Fixture::around(namespace, client.clone(), start_with(client, options)))
    }

    /// A namespace whose operator uses the client `operator`; the CRDs must be installed.
    pub(crate) async fn with(prefix: &str, operator: Client) -> Fixture {
        let env = TestEnv::get().expect("a control plane");
        let client = env.client().await;
        let namespace = env.namespace(prefix).await;
        let operator = start(operator, namespace.name());
        Fixture::around(namespace, client, operator)
    }

    pub(crate) fn around(namespace: TestNamespace, client: Client, operator: DropGuard) -> Fixture {
        Fixture {
            apps: Api::namespaced(client.clone(), namespace.name()),
            pods: Api::namespaced(client.clone(), namespace.name()),
            client,
            namespace,
            operator: Some(operator),
        }
    }

    /// Stops the operator gracefully.
    pub(crate) fn stop_operator(&mut self) {
        self.operator = None;
    }

    /// Another operator, started by the test, ends with the fixture.
    pub(crate) fn run_operator(&mut self, operator: DropGuard) {
        self.operator = Some(operator);
    }

    pub(crate) fn start_operator(&mut self) {
        self.operator = Some(start(self.client.clone(), self.namespace.name()));
    }

    /// Another operator takes over.
    pub(crate) fn hand_over(&mut self, operator: Client) {
        self.operator = None;
        self.operator = Some(start(operator, self.namespace.name()));
    }

    /// Creates an application whose driver stays pending until the test says otherwise.
    pub(crate) async fn create(&self, name: &str, patch: &Value) {
        let mut spec = json!({
            "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
            "mainApplicationFile": "local:///opt/app.jar",
            "driver": {"serviceAccount": "spark", "nodeSelector": {"no": "where"}}, "executor": {"instances": 1},
        });
        json_patch(&mut spec, patch);
        self.try_create(&json!({"name": name}), &spec, &PostParams::default()).await.unwrap();
    }

    /// Creates an application exactly as given.
    pub(crate) async fn try_create(&self, meta: &Value, spec: &Value, params: &PostParams) -> Result<(), kube::Error> {
        let app = json!({
            "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": meta, "spec": spec,
        });
        // Untyped: some tests write what the types cannot represent.
        let resource = ApiResource::erase::<SparkApplication>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), self.namespace.name(), &resource);
        api.create(params, &serde_json::from_value(app).unwrap()).await.map(|_| ())
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
        self.wait_for(name, what, PATIENCE, condition).await
    }

    async fn wait_for(
        &self,
        name: &str,
        what: &str,
        patience: Duration,
        condition: impl Fn(&SparkApplication) -> bool,
    ) -> SparkApplication {
        let deadline = tokio::time::Instant::now() + patience;
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

    /// Waits longer than any request may take.
    pub(crate) async fn wait_settled(
        &self,
        name: &str,
        condition: impl Fn(&SparkApplication) -> bool,
    ) -> SparkApplication {
        self.wait_for(name, "settled", 2 * PATIENCE, condition).await
    }

    pub(crate) async fn wait_patiently(&self, name: &str, state: &str, patience: Duration) -> SparkApplication {
        self.wait_for(name, state, patience, |app| self::state(app) == state).await
    }

    pub(crate) async fn wait_state(&self, name: &str, state: &str) -> SparkApplication {
        self.wait(name, state, |app| self::state(app) == state).await
    }

    /// Waits for the driver pod of an attempt and returns it.
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

    /// Creates an executor pod as Spark would, or changes its phase.
    pub(crate) async fn executor(&self, app: &SparkApplication, id: u32, phase: &str) {
        let name = format!("{}-exec-{id}", app.name_any());
        let submission = app.status.as_ref().unwrap().submission_id.clone().unwrap();
        if self.pods.get_opt(&name).await.unwrap().is_none() {
            let pod = json!({
                "metadata": {"name": name, "labels": {
                    "sparkoperator.k8s.io/app-name": app.name_any(), "sparkoperator.k8s.io/submission-id": submission,
                    "sparkoperator.k8s.io/launched-by-spark-operator": "true", "spark-role": "executor",
                    "spark-exec-id": id.to_string()}},
                "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "spark-kubernetes-executor", "image": "i"}]},
            });
            self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        self.pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until an event with this reason is published; returns its note.
    pub(crate) async fn event(&self, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace.name());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let list = events.list(&ListParams::default()).await.unwrap().items;
            if let Some(event) = list.iter().find(|e| e.reason.as_deref() == Some(reason)) {
                return event.note.clone().unwrap_or_default();
            }
            let reasons: Vec<_> = list.iter().filter_map(|e| e.reason.clone()).collect();
            assert!(tokio::time::Instant::now() < deadline, "{reason} is not in {reasons:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Runs a test on threads with stacks large enough for an unoptimised build.
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

/// The reason and message of a condition, if it has this status.
pub(crate) fn condition(app: &SparkApplication, kind: &str, status: &str) -> Option<(String, String)> {
    let conditions = &app.status.as_ref()?.conditions;
    let found = conditions.iter().find(|c| c.type_ == kind && c.status == status)?;
    Some((found.reason.clone(), found.message.clone()))
}

pub(crate) fn json_patch(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, value) in patch {
                json_patch(target.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

pub(crate) fn options(namespace: &str) -> Options {
    let limits = Limits { driver_grace: SignedDuration::from_secs(2), ..Limits::default() };
    Options { namespaces: vec![namespace.to_owned()], limits, ..Options::default() }
}

pub(crate) fn start(client: Client, namespace: &str) -> DropGuard {
    start_with(client, options(namespace))
}

pub(crate) fn start_with(client: Client, options: Options) -> DropGuard {
    let said = std::env::var_os("RUST_LOG")
        .map(|_| tracing_subscriber::fmt::layer().with_filter(tracing_subscriber::EnvFilter::from_default_env()));
    let _ = tracing_subscriber::registry().with(said).with(Passes).try_init();
    let until = CancellationToken::new();
    tokio::spawn(firesteel_operator::run(client, options, until.clone()));
    until.drop_guard()
}

/// Installs what `firesteel crds` prints in the cluster that tests share, once: applying a large definition costs the API
/// server a second, even if nothing changes.
pub(crate) async fn install(client: &Client) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let install = async || {
        define(client).await;
        install_policy(client).await;
    };
    INSTALLED.get_or_init(install).await;
}

/// Installs the policy that isolates drivers of one service account.
pub(crate) async fn install_policy(client: &Client) {
    for (api, manifest) in policy_objects(client) {
        api.patch(policy::NAME, &PatchParams::apply("test").force(), &Patch::Apply(&manifest)).await.unwrap();
    }
}

/// The policy and its binding, each with its API.
pub(crate) fn policy_objects(client: &Client) -> Vec<(Api<DynamicObject>, Value)> {
    let kinds = [
        ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()),
    ];
    let api = |kind: &ApiResource| Api::all_with(client.clone(), kind);
    kinds.iter().map(api).zip(policy::manifests()).collect()
}

/// Installs the CRDs alone.
pub(crate) async fn define(client: &Client) {
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
