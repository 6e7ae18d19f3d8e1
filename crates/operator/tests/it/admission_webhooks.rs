//! Admission webhooks that fail, are busy, or do not answer, called by a real API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use firesteel_api::SparkApplication;
use firesteel_testenv::{TestEnv, serve_https};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE, block_on, condition, install, options, start_with, state};

/// How a webhook responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Allows,
    /// With an HTTP error.
    Fails,
    /// With a 429 rejection.
    Busy,
    /// Not at all.
    Silent,
}

const BROKEN: [Mood; 3] = [Mood::Fails, Mood::Busy, Mood::Silent];

/// A webhook for one namespace: a server of this test that the API server calls.
struct Webhook {
    mood: Arc<Mutex<Mood>>,
    configurations: Api<ValidatingWebhookConfiguration>,
    name: String,
}

impl Webhook {
    /// Starts one for objects with this label.
    async fn start(f: &Fixture, rules: Value, label: (&str, &str), mood: Mood) -> Webhook {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let mood = Arc::new(Mutex::new(mood));
        let asked = mood.clone();
        let router = Router::new().fallback(move |request: Request<Body>| {
            let mood = *asked.lock().unwrap();
            review(request, mood)
        });
        let port = serve_https(certified.cert.der().to_vec(), certified.signing_key.serialize_der(), router).await;
        let name = f.namespace.name().to_owned();
        let ca = ByteString(certified.cert.pem().into_bytes());
        let configuration = json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "broken.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 3, "rules": rules,
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/review"), "caBundle": ca},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "objectSelector": {"matchLabels": {label.0: label.1}},
            }],
        });
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(f.client.clone());
        let configuration = serde_json::from_value(configuration).unwrap();
        configurations.create(&PostParams::default(), &configuration).await.unwrap();
        let webhook = Webhook { mood, configurations, name };
        // The API server picks up its configuration with a short delay.
        tokio::time::sleep(Duration::from_secs(2)).await;
        webhook
    }

    fn becomes(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    async fn remove(self) {
        self.configurations.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

async fn review(request: Request<Body>, mood: Mood) -> Response<Body> {
    let body = axum::body::to_bytes(request.into_body(), 16 << 20).await.unwrap();
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let mut answer = json!({"uid": asked["request"]["uid"], "allowed": true});
    match mood {
        Mood::Allows => {}
        Mood::Fails => return Response::builder().status(500).body(Body::from("out of order")).unwrap(),
        Mood::Busy => {
            answer["allowed"] = json!(false);
            answer["status"] = json!({"code": 429, "reason": "TooManyRequests", "message": "busy"});
        }
        Mood::Silent => std::future::pending().await,
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(review.to_string())).unwrap()
}

/// Whether this is the API server's message about such a webhook.
fn is_its_word(mood: Mood, message: &str) -> bool {
    match mood {
        Mood::Allows => false,
        Mood::Fails | Mood::Silent => message.contains("failed calling webhook \"broken.example.org\""),
        Mood::Busy => message.contains("admission webhook \"broken.example.org\" denied the request: busy"),
    }
}

fn around() -> Value {
    json!([
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["services"]},
        {"apiGroups": ["networking.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["ingresses"]},
        {"apiGroups": ["policy"], "apiVersions": ["*"], "operations": ["*"], "resources": ["poddisruptionbudgets"]},
    ])
}

/// A namespace whose operator uses the same client as `firesteel operator`: other clients retry by themselves.
async fn paced(prefix: &str) -> Option<Fixture> {
    let env = TestEnv::get()?;
    let client = env.client().await;
    install(&client).await;
    let namespace = env.namespace(prefix).await;
    let mut options = options(namespace.name());
    options.runs.ui.url_format = "spark.example/{{$appNamespace}}/{{$appName}}".to_owned();
    let operator = firesteel_cluster::rate_limit::client(crate::crash::config(env).await).unwrap();
    Some(Fixture::around(namespace, client, start_with(operator, options)))
}

/// A namespace in which every driver has a UI Service, an Ingress and a PodDisruptionBudget, with a broken webhook for
/// all three.
async fn surrounded(mood: Mood) -> Option<(Fixture, Webhook)> {
    let f = paced("webhook").await?;
    let webhook = Webhook::start(&f, around(), ("firesteel.dev/exposes", "driver"), mood).await;
    Some((f, webhook))
}

async fn a_broken_webhook_around_drivers(mood: Mood) {
    let Some((f, webhook)) = surrounded(mood).await else { return };
    let names = ["one", "two", "three", "four", "five", "six"];
    for name in names {
        f.create(name, &json!({"driverPodDisruptionBudget": true})).await;
    }
    for name in names {
        f.driver(name, 1).await;
        f.run_driver(name).await;
        f.wait_state(name, "RUNNING").await;
    }
    for name in names {
        let retried = |a: &SparkApplication| condition(a, "Exposed", "False").is_some();
        let app = f.wait(name, "not exposed", retried).await;
        let (reason, message) = condition(&app, "Exposed", "False").unwrap();
        assert_eq!(reason, "Retrying", "{mood:?}");
        assert!(is_its_word(mood, &message), "{mood:?}: {message}");
        assert_eq!(state(&app), "RUNNING");
    }
    assert!(is_its_word(mood, &f.event("SparkDriverNotExposed").await));
    webhook.becomes(Mood::Allows);
    for name in names {
        let app = f.wait(name, "exposed", |a| condition(a, "Exposed", "True").is_some()).await;
        let info = app.status.unwrap().driver_info;
        assert_eq!(info.web_ui_service_name, Some(format!("{name}-ui-svc")));
        assert_eq!(info.web_ui_ingress_name, Some(format!("{name}-ui-ingress")));
    }
    // It fails again during cleanup: the applications' ends do not wait for it.
    webhook.becomes(mood);
    for name in names {
        f.end_driver(name, 0).await;
    }
    for name in names {
        f.wait_state(name, "COMPLETED").await;
    }
    f.wait("one", "with a rest", |a| condition(a, "Exposed", "False").is_some_and(|(r, _)| r == "Removing")).await;
    webhook.becomes(Mood::Allows);
    let (client, namespace) = (f.client.clone(), f.namespace.name());
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), namespace);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, namespace);
    let theirs = ListParams::default().labels("firesteel.dev/exposes=driver");
    let deadline = tokio::time::Instant::now() + 2 * PATIENCE;
    loop {
        let left = services.list(&theirs).await.unwrap().items.len()
            + ingresses.list(&theirs).await.unwrap().items.len()
            + budgets.list(&theirs).await.unwrap().items.len();
        if left == 0 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{mood:?}: {left} are left over");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    f.wait("one", "without a rest", |a| condition(a, "Exposed", "False").is_none()).await;
    webhook.remove().await;
}

#[test]
fn every_driver_starts_and_ends_while_a_webhook_breaks_its_exposure() {
    block_on(async {
        futures::future::join_all(BROKEN.map(a_broken_webhook_around_drivers)).await;
    });
}

async fn a_broken_webhook_for_drivers(mood: Mood) {
    let Some(f) = paced("webhook-pods").await else { return };
    let rules = json!([{"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let webhook = Webhook::start(&f, rules, ("spark-role", "driver"), mood).await;
    f.create("pi", &json!({})).await;
    let hindered = |a: &SparkApplication| condition(a, "DriverPresent", "False").is_some();
    let app = f.wait("pi", "hindered", hindered).await;
    let (reason, message) = condition(&app, "DriverPresent", "False").unwrap();
    assert_eq!(reason, "NotCreated");
    assert!(is_its_word(mood, &message), "{mood:?}: {message}");
    assert!(is_its_word(mood, &f.event("SparkApplicationSubmissionRetried").await));
    assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
    webhook.becomes(Mood::Allows);
    f.driver("pi", 1).await;
    let app = f.apps.get("pi").await.unwrap();
    assert_eq!(app.status.unwrap().submission_failures, None, "it was not the fault of the application");
    webhook.remove().await;
}

#[test]
fn a_webhook_that_breaks_drivers_is_reported_at_once_and_waited_for() {
    block_on(async {
        futures::future::join_all(BROKEN.map(a_broken_webhook_for_drivers)).await;
    });
}
