//! Checks whether the admission policy that isolates drivers of one service account is in force, and caches the result.
//!
//! An operator that runs as a service account is subject to the policy: it patches the status of a grant in a dry run, which is
//! rejected with the policy's message if the policy is in force. Any other user is exempt and reads the policy and its binding.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use firesteel_api::{ExecutorGrant, policy};
use firesteel_core::grant::admission::Apart;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use crate::error::{Class, class, words};

/// How soon to check again if the policy is not in force.
const SOON: Duration = Duration::from_secs(2);
/// How long a check may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Results by namespace: permissions and bindings may differ between them.
#[derive(Debug)]
pub(crate) struct Policy {
    valid: Duration,
    known: Mutex<HashMap<String, (Instant, Apart)>>,
    /// Whether this operator is a service account.
    bound: OnceCell<bool>,
}

impl Policy {
    pub(crate) fn new(valid: Duration) -> Self {
        Policy { valid, known: Mutex::default(), bound: OnceCell::new() }
    }

    /// Whether drivers are isolated from each other in the namespace of a grant.
    pub(crate) async fn apart(&self, client: &Client, grant: &ExecutorGrant) -> Apart {
        let namespace = grant.namespace().unwrap_or_default();
        // Held during the check, so that concurrent passes share one request.
        let mut known = self.known.lock().await;
        let before = known.get(&namespace);
        let fresh = |(at, apart): &&(Instant, Apart)| match apart {
            Apart::Yes => at.elapsed() < self.valid,
            Apart::No | Apart::Unknown(_) => at.elapsed() < SOON.min(self.valid),
        };
        if let Some((_, apart)) = before.filter(fresh) {
            return apart.clone();
        }
        let asked = tokio::time::timeout(ANSWER, self.ask(client, grant)).await;
        let apart = match asked {
            Ok(Ok(apart)) => apart,
            // Nothing new was learned: keep the last result.
            Ok(Err(error)) if class(&error) == Class::Transient && before.is_some() => {
                tracing::debug!(%error, "cannot check whether the admission policy is in force");
                return before.map_or(Apart::No, |(_, apart)| apart.clone());
            }
            Ok(Err(error)) => Apart::Unknown(words(&error)),
            Err(_) => match before {
                Some((_, apart)) => return apart.clone(),
                None => Apart::Unknown(format!("no answer within {} s", ANSWER.as_secs())),
            },
        };
        if before.is_none_or(|(_, old)| *old != apart) {
            match &apart {
                Apart::Yes => tracing::info!(namespace, "the admission policy {} is in force", policy::NAME),
                Apart::No => tracing::warn!(
                    namespace,
                    "the admission policy {} is not in force: only one driver per service account gets executors at a time; install it with `{}`",
                    policy::NAME,
                    policy::COMMAND
                ),
                Apart::Unknown(why) => {
                    tracing::warn!(
                        namespace,
                        why,
                        "cannot tell whether the admission policy {} is in force",
                        policy::NAME
                    );
                }
            }
        }
        known.insert(namespace, (Instant::now(), apart.clone()));
        apart
    }

    async fn ask(&self, client: &Client, grant: &ExecutorGrant) -> Result<Apart, kube::Error> {
        if *self.bound.get_or_try_init(|| is_service_account(client)).await? {
            by_writing(client, grant).await
        } else {
            by_reading(client).await
        }
    }
}

async fn is_service_account(client: &Client) -> Result<bool, kube::Error> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let name = review.status.and_then(|status| status.user_info?.username).unwrap_or_default();
    Ok(name.starts_with(policy::SERVICE_ACCOUNT))
}

/// Tries, in a dry run, what only the driver may do.
async fn by_writing(client: &Client, grant: &ExecutorGrant) -> Result<Apart, kube::Error> {
    let api: Api<ExecutorGrant> = Api::namespaced(client.clone(), &grant.namespace().unwrap_or_default());
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"status": {}}));
    match api.patch_status(&grant.name_any(), &params, &patch).await {
        Ok(_) => Ok(Apart::No),
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains(policy::MESSAGE) => {
            Ok(Apart::Yes)
        }
        Err(error) => Err(error),
    }
}

async fn by_reading(client: &Client) -> Result<Apart, kube::Error> {
    let read = async |resource: ApiResource| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = api.get_opt(policy::NAME).await?;
        serde_json::to_value(found).map_err(kube::Error::SerdeError)
    };
    let found: Value = read(ApiResource::erase::<ValidatingAdmissionPolicy>(&())).await?;
    let bound: Value = read(ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&())).await?;
    Ok(if policy::is_in_force(&found, &bound) { Apart::Yes } else { Apart::No })
}
