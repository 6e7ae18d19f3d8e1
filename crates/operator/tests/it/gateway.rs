//! Drivers behind a Gateway: HTTPRoutes with the Gateway API's own definitions, installed while the operator runs, on a real
//! API server and on ours.

use std::path::Path;
use std::time::Duration;

use firesteel_api::SparkApplication;
use firesteel_api::http_route::{HTTPRoute, ParentRef};
use firesteel_operator::Options;
use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{PATIENCE, block_on, condition, container, define, now, options, start_with, state};

/// A namespace whose operator serves drivers behind a Gateway.
struct Place {
    client: Client,
    name: String,
    apps: Api<SparkApplication>,
    pods: Api<Pod>,
    routes: Api<HTTPRoute>,
}

impl Place {
    async fn wait(&self, what: &str, holds: impl Fn(&SparkApplication) -> bool) -> SparkApplication {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let app = self.apps.get("pi").await.unwrap();
            if holds(&app) {
                return app;
            }
            let status = serde_json::to_string_pretty(&app.status).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "never {what}: {status}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn driver_status(&self, phase: &str, state: &Value) {
        let status = json!({"phase": phase, "containerStatuses": [container(state)]});
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status("pi-driver", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits for the driver of an attempt and runs it.
    async fn run(&self, attempt: i64) {
        self.wait("submitted", |app| app.status.as_ref().is_some_and(|s| s.attempt == Some(attempt))).await;
        self.driver_status("Running", &json!({"running": {}})).await;
    }

    async fn route(&self, name: &str) -> HTTPRoute {
        self.routes.get(name).await.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// The Gateway API's definitions.
fn definitions(directory: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    files.map(|file| serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()).collect()
}

async fn uninstall(client: &Client, definitions: &[Value]) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let _ = api.delete(name, &DeleteParams::default()).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while api.get_opt(name).await.unwrap().is_some() {
            assert!(tokio::time::Instant::now() < deadline, "{name} is not deleted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn install(client: &Client, definitions: &[Value]) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(definition)).await.unwrap();
        let established = await_condition(api.clone(), name, is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
    }
}

async fn story(client: Client, directory: &Path) {
    let definitions = definitions(directory);
    assert_eq!(definitions.len(), 4);
    uninstall(&client, &definitions).await;
    define(&client).await;
    let name = format!("gateway-{}", uuid());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"name": name}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    let account = json!({"metadata": {"name": "spark"}});
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let mut tuned: Options = options(&name);
    let parent = json!({"name": "web", "namespace": "infra", "sectionName": "https"});
    tuned.runs.ui.gateways = vec![serde_json::from_value::<ParentRef>(parent).unwrap()];
    tuned.runs.ui.url_format = "https://spark.example:8443/{{$appNamespace}}/{{$appName}}".to_owned();
    tuned.discovery_interval = Some(Duration::from_millis(300));
    let _operator = start_with(client.clone(), tuned);
    let place = Place {
        apps: Api::namespaced(client.clone(), &name),
        pods: Api::namespaced(client.clone(), &name),
        routes: Api::namespaced(client.clone(), &name),
        client,
        name,
    };

    // Without the definitions the application runs, and says once what is missing.
    let more = json!([{"servicePort": 8888, "servicePortName": "more", "serviceLabels": {"team": "a"}, "ingressURLFormat": "more.example"}]);
    let app = json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "pi"}, "spec": {
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar", "driverIngressOptions": more,
        "driver": {"serviceAccount": "spark", "nodeSelector": {"no": "where"}}, "executor": {"instances": 1}}});
    let resource = ApiResource::erase::<SparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.name, &resource);
    api.create(&PostParams::default(), &serde_json::from_value(app).unwrap()).await.unwrap();
    place.run(1).await;
    let missing =
        |app: &SparkApplication| condition(app, "Exposed", "False").is_some_and(|(reason, _)| reason == "KindMissing");
    let app = place.wait("without routes", missing).await;
    assert_eq!(state(&app), "RUNNING");
    let (_, message) = condition(&app, "Exposed", "False").unwrap();
    for route in ["HTTPRoute pi-ui-route", "HTTPRoute pi-route-8888"] {
        assert!(message.contains(&format!("{route}: the cluster has no HTTPRoutes")), "{message}");
    }
    assert!(message.contains("install the custom resource definitions of the Gateway API"), "{message}");
    let services: Api<Service> = Api::namespaced(place.client.clone(), &place.name);
    services.get("pi-ui-svc").await.unwrap();
    assert_eq!(services.get("pi-driver-8888").await.unwrap().labels()["team"], "a");

    // They are noticed when they are installed.
    install(&place.client, &definitions).await;
    let app = place.wait("exposed", |app| condition(app, "Exposed", "True").is_some()).await;
    let info = app.status.unwrap().driver_info;
    assert_eq!(info.web_ui_ingress_name.as_deref(), Some("pi-ui-route"));
    assert_eq!(info.web_ui_ingress_address, Some(format!("https://spark.example:8443/{}/pi", place.name)));
    let page = place.route("pi-ui-route").await;
    assert_eq!(
        (page.owner_references()[0].kind.as_str(), page.owner_references()[0].controller),
        ("SparkApplication", Some(true))
    );
    let spec = serde_json::to_value(&page.spec).unwrap();
    assert_eq!(spec["hostnames"], json!(["spark.example"]));
    assert_eq!(
        (&spec["parentRefs"][0]["name"], &spec["parentRefs"][0]["sectionName"]),
        (&json!("web"), &json!("https"))
    );
    assert_eq!(spec["parentRefs"][0]["kind"], "Gateway", "the definition's default");
    let rule = &spec["rules"][0];
    assert_eq!(rule["matches"][0]["path"], json!({"type": "PathPrefix", "value": format!("/{}/pi", place.name)}));
    assert_eq!(rule["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"], "/");
    assert_eq!(rule["backendRefs"][0], json!({"name": "pi-ui-svc", "port": 4040}));
    let more = place.route("pi-route-8888").await;
    assert_eq!(more.spec.hostnames, ["more.example"]);
    assert_eq!(more.spec.rules[0].backend_refs[0].name, "pi-driver-8888");
    let driver = place.pods.get("pi-driver").await.unwrap();
    let conf = config(&place.client, &place.name, &driver).await;
    assert!(conf.contains(&format!("spark.ui.proxyBase=/{}/pi", place.name)), "{conf}");
    let ingresses: Api<Ingress> = Api::namespaced(place.client.clone(), &place.name);
    assert!(ingresses.list(&ListParams::default()).await.unwrap().items.is_empty());

    // Another run gets its own, and the end of a run removes them.
    let edit = Patch::Merge(json!({"spec": {"arguments": ["x"]}}));
    place.apps.patch("pi", &PatchParams::default(), &edit).await.unwrap();
    // Nothing deletes pods that run nowhere on an API server alone.
    let gone =
        place.wait("of the second attempt", |app| app.status.as_ref().is_some_and(|s| s.attempt == Some(2))).await;
    let submission = gone.status.unwrap().submission_id.unwrap();
    place.run(2).await;
    place.wait("exposed again", |app| condition(app, "Exposed", "True").is_some()).await;
    let again = place.route("pi-ui-route").await;
    assert_eq!(again.labels()["sparkoperator.k8s.io/submission-id"], submission);
    assert_ne!(again.uid(), page.uid());
    place
        .driver_status("Succeeded", &json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}}))
        .await;
    place.wait("at its end", |app| state(app) == "COMPLETED").await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !place.routes.list(&ListParams::default()).await.unwrap().items.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "routes are left over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    namespaces.delete(&place.name, &DeleteParams::default()).await.unwrap();
    uninstall(&place.client, &definitions).await;
}

/// What the driver's properties say.
async fn config(client: &Client, namespace: &str, driver: &Pod) -> String {
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client.clone(), namespace);
    let id = &driver.labels()["sparkoperator.k8s.io/submission-id"];
    let list = ListParams::default().labels(&format!("sparkoperator.k8s.io/submission-id={id}"));
    let maps = maps.list(&list).await.unwrap().items;
    maps.into_iter()
        .filter_map(|map| map.data)
        .flat_map(std::collections::BTreeMap::into_values)
        .collect::<Vec<_>>()
        .join("\n")
}

fn uuid() -> String {
    let nanos = k8s_openapi::jiff::Timestamp::now().as_nanosecond();
    format!("{}-{nanos}", std::process::id())
}

#[test]
fn routes_follow_the_gateway_api_on_a_real_api_server() {
    block_on(async {
        let Some(directory) = tokio::task::spawn_blocking(TestEnv::gateway_crds).await.unwrap() else { return };
        // Its own one: while definitions come and go, a control plane's garbage collector pauses.
        let Some(env) = tokio::task::spawn_blocking(TestEnv::another).await.unwrap() else { return };
        story(env.client().await, &directory).await;
    });
}

#[test]
fn routes_follow_the_gateway_api_on_our_api_server() {
    block_on(async {
        let Some(directory) = tokio::task::spawn_blocking(TestEnv::gateway_crds).await.unwrap() else { return };
        let server = firesteel_apiserver::ApiServer::builder().start().await.unwrap();
        let file = Kubeconfig::from_yaml(&server.admin_kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        story(Client::try_from(config).unwrap(), &directory).await;
        server.shutdown().await;
    });
}
