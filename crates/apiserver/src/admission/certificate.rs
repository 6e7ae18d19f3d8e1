//! Certificate signing requests: records the requester, and allows approving and signing only with permission for the signer.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::authentication::{MASTERS, User};
use crate::authorization::Access;
use crate::meta;
use crate::request::ApiRequest;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
/// The signer of client certificates that the API server accepts.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Records the requester, and rejects a certificate that would bypass authorization.
pub(super) fn admit_create(req: &ApiRequest, object: &mut Value) -> ApiResult<()> {
    let User { name, uid, groups, extra } = &req.user;
    let spec = meta::child(object, "spec");
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".into(), name.as_str().into());
    spec.insert("groups".into(), json!(groups));
    if !uid.is_empty() {
        spec.insert("uid".into(), uid.as_str().into());
    }
    if !extra.is_empty() {
        spec.insert("extra".into(), json!(extra));
    }
    let request = base64::engine::general_purpose::STANDARD.decode(meta::text(object, "/spec/request"));
    let request = String::from_utf8(request.unwrap_or_default()).unwrap_or_default();
    if meta::text(object, "/spec/signerName") == CLIENT_SIGNER
        && crate::pki::organisations(&request).iter().any(|o| o == MASTERS)
    {
        let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(StatusError::forbidden(GROUP, RESOURCE, meta::name(object), &why));
    }
    Ok(())
}

/// Rejects an approval or certificate by a user without permission for this signer.
pub(super) fn check_update(state: &State, req: &ApiRequest, old: &Value, next: &Value) -> ApiResult<()> {
    let changed = |field: &str| old.pointer(field) != next.pointer(field);
    let verb = match req.target.subresource.as_str() {
        "approval" => "approve",
        "status" if changed("/status/certificate") || changed("/status/conditions") => "sign",
        _ => return Ok(()),
    };
    let signer = meta::text(old, "/spec/signerName");
    let domain = signer.split('/').next().unwrap_or_default();
    // Permission for all signers of a domain is granted on `domain/*`.
    let may = [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let access =
            Access { verb: verb.into(), group: GROUP.into(), resource: "signers".into(), name, ..Access::default() };
        crate::authorization::allowed(state, &req.user, &access)
    });
    if may {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(StatusError::forbidden(GROUP, RESOURCE, &req.target.name, &why))
}
