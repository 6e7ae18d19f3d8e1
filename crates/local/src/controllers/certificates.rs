//! Certificate signing requests for clients of the API server: those that somebody approved are signed.
//!
//! Approving is for people and for other controllers; requests for other signers stay as they are.

use std::sync::Arc;

use anyhow::Context;
use base64::Engine as _;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::controllers::controller::{self, Controller};
use crate::queue::Next;
use crate::watched::Key;
use crate::world::World;

/// Signs a request (PEM) for at most so many seconds; gives the certificate (PEM), or why not.
pub type Signer = Arc<dyn Fn(&str, Option<i64>) -> Result<String, String> + Send + Sync>;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Leave,
    Sign,
    Fail(String),
}

fn verdict(request: &CertificateSigningRequest) -> Verdict {
    let status = request.status.as_ref();
    let has = |kind: &str| {
        let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == kind && c.status == "True")
    };
    let signed = status.and_then(|s| s.certificate.as_ref()).is_some_and(|c| !c.0.is_empty());
    let approved = has("Approved") && !has("Denied") && !has("Failed");
    if request.spec.signer_name != SIGNER || !approved || signed {
        return Verdict::Leave;
    }
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let known = ["client auth", "digital signature", "key encipherment"];
    if let Some(other) = usages.iter().find(|u| !known.contains(&u.as_str())) {
        return Verdict::Fail(format!("invalid usage for client certificate: {other}"));
    }
    if usages.iter().all(|u| u != "client auth") {
        return Verdict::Fail("missing required usage for client certificate: client auth".to_owned());
    }
    Verdict::Sign
}

/// The status that says why there is no certificate.
fn failure(request: &CertificateSigningRequest, why: &str, now: Timestamp) -> Value {
    let conditions = request.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions: Vec<Value> = conditions.into_iter().flatten().map(|c| json!(c)).collect();
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    conditions.push(json!({
        "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why, "lastUpdateTime": now,
    }));
    json!({"conditions": conditions})
}

pub(crate) fn start(world: &Arc<World>, signer: Signer, tasks: &mut JoinSet<()>) {
    Controller::new("certificate signing requests", world).reconciles(&world.signing_requests).run(
        tasks,
        1,
        move |world, key| reconcile(world, Arc::clone(&signer), key),
    );
}

async fn reconcile(world: Arc<World>, signer: Signer, key: Key) -> anyhow::Result<Next> {
    let Some(request) = world.signing_requests.get(&key) else { return Ok(Next::Wait) };
    let signed = match verdict(&request) {
        Verdict::Leave => return Ok(Next::Wait),
        Verdict::Fail(why) => Err(why),
        Verdict::Sign => {
            let pem = String::from_utf8_lossy(&request.spec.request.0);
            signer(&pem, request.spec.expiration_seconds.map(i64::from))
        }
    };
    let status = match signed {
        Ok(pem) => json!({"certificate": base64::engine::general_purpose::STANDARD.encode(pem)}),
        Err(why) => failure(&request, &why, Timestamp::now()),
    };
    let patch = json!({"metadata": {"resourceVersion": request.resource_version()}, "status": status});
    let api = world.cluster_api::<CertificateSigningRequest>();
    let written = controller::patch_status(&api, &world.signing_requests, &key.name, &patch).await;
    written.context("write the status of a certificate signing request")?;
    Ok(Next::Wait)
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
        assert_eq!(verdict(&request(&usages, &["Approved"])), Verdict::Sign);
        for conditions in [&[][..], &["Denied"], &["Approved", "Failed"]] {
            assert_eq!(verdict(&request(&usages, conditions)), Verdict::Leave, "{conditions:?}");
        }
        let mut done = request(&usages, &["Approved"]);
        done.status.as_mut().unwrap().certificate = Some(k8s_openapi::ByteString(b"x".to_vec()));
        assert_eq!(verdict(&done), Verdict::Leave);
        let mut other = request(&usages, &["Approved"]);
        other.spec.signer_name = "example.com/other".to_owned();
        assert_eq!(verdict(&other), Verdict::Leave);
    }

    #[test]
    fn what_is_no_client_certificate_fails_with_the_reason() {
        let why = "missing required usage for client certificate: client auth";
        assert_eq!(verdict(&request(&["digital signature"], &["Approved"])), Verdict::Fail(why.to_owned()));
        let why = "invalid usage for client certificate: server auth";
        assert_eq!(verdict(&request(&["client auth", "server auth"], &["Approved"])), Verdict::Fail(why.to_owned()));
        let status = failure(&request(&[], &["Approved"]), "so", Timestamp::UNIX_EPOCH);
        let conditions = status["conditions"].as_array().unwrap();
        assert_eq!((conditions.len(), &conditions[1]["message"]), (2, &json!("so")), "the approval stays");
    }
}
