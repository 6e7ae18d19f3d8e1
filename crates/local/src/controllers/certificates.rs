//! Signs approved certificate signing requests for API server clients.
//!
//! Approval is left to people and other controllers. Requests for other signers are ignored.

use std::sync::Arc;

use anyhow::Context;
use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::informer::Key;
use crate::informers::Informers;
use crate::work_queue::Action;

/// Signs a PEM request for at most this many seconds; returns the PEM certificate or the reason for refusing.
pub type Signer = Arc<dyn Fn(&str, Option<i64>) -> Result<String, String> + Send + Sync>;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
enum SigningDecision {
    Leave,
    Sign,
    Fail(String),
}

fn decide(request: &CertificateSigningRequest) -> SigningDecision {
    let status = request.status.as_ref();
    let has = |kind: &str| {
        let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == kind && c.status == "True")
    };
    let signed = status.and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty());
    let approved = has("Approved") && !has("Denied") && !has("Failed");
    if request.spec.signer_name != SIGNER || !approved || signed {
        return SigningDecision::Leave;
    }
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let known = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|u| !known.contains(&u.as_str())) {
        return SigningDecision::Fail(format!("invalid usage for client certificate: {other}"));
    }
    if usages.iter().all(|u| u != "client auth") {
        return SigningDecision::Fail("missing required usage for client certificate: client auth".to_owned());
    }
    SigningDecision::Sign
}

/// The status of a request that cannot be signed.
fn failure(request: &CertificateSigningRequest, why: &str, now: Timestamp) -> Value {
    let conditions = request.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions: Vec<Value> = conditions.into_iter().flatten().map(|c| json!(c)).collect();
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    conditions.push(json!({
        "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why, "lastUpdateTime": now,
    }));
    json!({"conditions": conditions})
}

pub(crate) fn start(informers: &Arc<Informers>, signer: Signer, tasks: &mut JoinSet<()>) {
    Controller::new("certificate signing requests", informers).reconciles(&informers.signing_requests).run(
        tasks,
        1,
        move |informers, key| reconcile(informers, Arc::clone(&signer), key),
    );
}

async fn reconcile(informers: Arc<Informers>, signer: Signer, key: Key) -> anyhow::Result<Action> {
    let Some(request) = informers.signing_requests.get(&key) else { return Ok(Action::AwaitChange) };
    let signed = match decide(&request) {
        SigningDecision::Leave => return Ok(Action::AwaitChange),
        SigningDecision::Fail(why) => Err(why),
        SigningDecision::Sign => {
            let pem = String::from_utf8_lossy(&request.spec.request.0);
            signer(&pem, request.spec.expiration_seconds.map(i64::from))
        }
    };
    let status = match signed {
        Ok(pem) => json!({"certificate": base64::engine::general_purpose::STANDARD.encode(pem)}),
        Err(why) => failure(&request, &why, Timestamp::now()),
    };
    let patch = json!({"metadata": {"resourceVersion": request.resource_version()}, "status": status});
    let api = informers.cluster_api::<CertificateSigningRequest>();
    let written = controller::patch_status(&api, &informers.signing_requests, &key.name, &patch).await;
    written.context("write the status of a certificate signing request")?;
    Ok(Action::AwaitChange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(usages: &[&str], conditions: &[&str]) -> CertificateSigningRequest {
        let conditions: Vec<Value> = conditions.iter().map(|c| json!({"type": c, "status": "True"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "r"}, "spec": {"request": "", "signerName": SIGNER, "usages": usages},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn what_is_approved_for_clients_is_signed_once() {
        let usages = ["client auth", "digital signature"];
        assert_eq!(decide(&request(&usages, &["Approved"])), SigningDecision::Sign);
        for conditions in [&[][..], &["Denied"], &["Approved", "Failed"]] {
            assert_eq!(decide(&request(&usages, conditions)), SigningDecision::Leave, "{conditions:?}");
        }
        let mut done = request(&usages, &["Approved"]);
        done.status.as_mut().unwrap().certificate = Some(k8s_openapi::ByteString(b"x".to_vec()));
        assert_eq!(decide(&done), SigningDecision::Leave);
        let mut other = request(&usages, &["Approved"]);
        other.spec.signer_name = "example.com/other".to_owned();
        assert_eq!(decide(&other), SigningDecision::Leave);
    }

    #[test]
    fn what_is_no_client_certificate_fails_with_the_reason() {
        let why = "missing required usage for client certificate: client auth";
        assert_eq!(decide(&request(&["digital signature"], &["Approved"])), SigningDecision::Fail(why.to_owned()));
        let why = "invalid usage for client certificate: server auth";
        assert_eq!(
            decide(&request(&["client auth", "server auth"], &["Approved"])),
            SigningDecision::Fail(why.to_owned())
        );
        let status = failure(&request(&[], &["Approved"]), "so", Timestamp::UNIX_EPOCH);
        let conditions = status["conditions"].as_array().unwrap();
        assert_eq!((conditions.len(), &conditions[1]["message"]), (2, &json!("so")), "the approval stays");
    }
}
