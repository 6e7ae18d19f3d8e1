//! One AdmissionReview: from the request to the answer. Reads what a decision needs from the cluster: quotas, and the pods of a
//! run that an edit replaces.

use std::sync::Arc;
use std::time::Duration;

use firesteel_api::names;
use firesteel_api::validate::Problem;
use firesteel_core::admission::{self, Answer, Kind, Question, Settings};
use firesteel_core::quota::{self, Against, Namespace};
use firesteel_core::run::RunSettings;
use firesteel_core::schedule::Zones;
use k8s_openapi::api::core::v1::{LimitRange, Pod, ResourceQuota};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::words;
use crate::metrics::Metrics;
use crate::options::{Options, WebhookOptions};

/// How long reading quotas may take: API servers wait ten seconds for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// The status that the API server itself answers with for an invalid object.
const UNPROCESSABLE: u16 = 422;

/// The parts of an AdmissionReview that matter here.
#[derive(Debug, Deserialize)]
struct Review {
    request: Request,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

/// Answers reviews.
pub(super) struct Reviewer {
    client: Client,
    runs: RunSettings,
    zones: Zones,
    quotas: bool,
    metrics: Arc<Metrics>,
}

impl Reviewer {
    pub(super) fn new(client: Client, options: &Options, webhook: &WebhookOptions, metrics: Arc<Metrics>) -> Self {
        Reviewer { client, runs: options.runs.clone(), zones: Zones::system(), quotas: webhook.quotas, metrics }
    }

    /// The answer to a review, or why it is not one.
    pub(super) async fn answer(&self, kind: Kind, body: &[u8]) -> Result<Value, String> {
        let Review { request } =
            serde_json::from_slice(body).map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
        let (problems, warnings) = self.judge(kind, &request).await;
        let mut response = json!({"uid": request.uid, "allowed": problems.is_empty()});
        if !warnings.is_empty() {
            response["warnings"] = json!(warnings);
        }
        self.metrics.admitted(&request.namespace, problems.is_empty());
        if !problems.is_empty() {
            let message = admission::sentence(&problems);
            tracing::info!(namespace = request.namespace, name = request.name, ?kind, message, "refused");
            let causes = problems.iter().map(
                |Problem { path, message }| json!({"reason": "FieldValueInvalid", "field": path, "message": message}),
            );
            response["status"] = json!({
                "status": "Failure", "code": UNPROCESSABLE, "reason": "Invalid", "message": message,
                "details": {"group": names::GROUP, "kind": kind.resource().1, "name": request.name,
                            "causes": causes.collect::<Vec<_>>()},
            });
        }
        Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    }

    async fn judge(&self, kind: Kind, request: &Request) -> (Vec<Problem>, Vec<String>) {
        let concerns_us = matches!(request.operation.as_str(), "CREATE" | "UPDATE") && request.sub_resource.is_empty();
        if !concerns_us {
            return (Vec::new(), Vec::new());
        }
        let in_object = request.object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        let question = Question {
            kind,
            name: in_object.unwrap_or(&request.name),
            namespace: &request.namespace,
            object: &request.object,
            old: Some(&request.old_object).filter(|old| !old.is_null()),
        };
        let settings = Settings { runs: &self.runs, zones: &self.zones, now: Timestamp::now() };
        match admission::review(&question, &settings) {
            Answer::Refused(problems) => (problems, Vec::new()),
            Answer::Allowed { mut warnings, needs } => {
                let Some((needs, against)) = needs.filter(|_| self.quotas) else { return (Vec::new(), warnings) };
                match self.namespace(&question, against).await {
                    Ok(namespace) if namespace.quotas.is_empty() => (Vec::new(), warnings),
                    Ok(namespace) => {
                        warnings.extend(needs.remarks.iter().map(|remark| format!("quota: {remark}")));
                        (quota::problems(&needs, &namespace, against), warnings)
                    }
                    // The API server enforces quotas in any case, when pods are created.
                    Err(problem) => {
                        tracing::warn!(namespace = request.namespace, problem, "cannot check quotas");
                        warnings.push(format!("quotas were not checked: {problem}"));
                        (Vec::new(), warnings)
                    }
                }
            }
        }
    }

    /// What a namespace has. Nothing but the quotas is read if there are none.
    async fn namespace(&self, question: &Question<'_>, against: Against) -> Result<Namespace, String> {
        let (client, name) = (&self.client, question.namespace);
        let read = async {
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
            let quotas = quotas.list(&ListParams::default()).await?.items;
            if quotas.is_empty() {
                return Ok(Namespace::default());
            }
            let limit_ranges: Api<LimitRange> = Api::namespaced(client.clone(), name);
            let limit_ranges = limit_ranges.list(&ListParams::default()).await?.items;
            let label = match (question.kind, question.old.is_some() && against == Against::Free) {
                (Kind::Application, true) => Some(names::LABEL_APP_NAME),
                (Kind::Connect, true) => Some(names::LABEL_CONNECT_NAME),
                (Kind::Schedule, _) | (_, false) => None,
            };
            let replaced = match label {
                None => Vec::new(),
                Some(label) => {
                    let theirs = ListParams::default().labels(&format!("{label}={}", question.name));
                    let pods: Api<Pod> = Api::namespaced(client.clone(), name);
                    pods.list(&theirs).await?.items
                }
            };
            Ok::<_, kube::Error>(Namespace { quotas, limit_ranges, replaced })
        };
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(read) => read.map_err(|error| words(&error)),
            Err(_) => Err(format!("the API server took longer than {} s", PATIENCE.as_secs())),
        }
    }
}
