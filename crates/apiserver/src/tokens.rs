//! Service account tokens: expiring JWTs signed with the cluster's key, optionally bound to a pod.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde_json::{Value, json};

use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn key(state: &State) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &state.pki.token_key, &SystemRandom::new()).ok()
}

fn key_id(public: &[u8]) -> String {
    use sha2::Digest as _;
    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(public))
}

/// Signs claims.
pub(crate) fn sign(state: &State, claims: &Value) -> ApiResult<String> {
    let broken = || StatusError::internal("the token key cannot be used");
    let pair = key(state).ok_or_else(broken)?;
    let header = json!({"alg": "ES256", "kid": key_id(pair.public_key().as_ref()), "typ": "JWT"});
    let body = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = pair.sign(&SystemRandom::new(), body.as_bytes()).map_err(|_| broken())?;
    Ok(format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The claims of a token signed by this cluster; expiry is not checked.
pub(crate) fn verify(state: &State, token: &str) -> Option<Value> {
    let (body, signature) = token.rsplit_once('.')?;
    let (_, claims) = body.split_once('.')?;
    let pair = key(state)?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
    public.verify(body.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// The audiences of a token signed by this cluster.
pub(crate) fn audiences(state: &State, token: &str) -> Option<Vec<String>> {
    let claims = verify(state, token)?;
    Some(claims.get("aud")?.as_array()?.iter().filter_map(|a| a.as_str().map(str::to_owned)).collect())
}

/// OpenID discovery, for external token verifiers.
pub(crate) fn configuration() -> Value {
    json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"), "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
    })
}

pub(crate) fn keys(state: &State) -> Value {
    let Some(pair) = key(state) else { return json!({"keys": []}) };
    let public = pair.public_key().as_ref();
    // An uncompressed point: a prefix byte, then x and y.
    let (x, y) = (public.get(1..33).unwrap_or_default(), public.get(33..65).unwrap_or_default());
    json!({"keys": [{
        "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": key_id(public),
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    }]})
}

/// A token lives at least ten minutes, by default one hour.
const SHORTEST: i64 = 600;
pub(crate) const USUAL: i64 = 3600;
const LONGEST: i64 = 1 << 32;

/// Answers a TokenRequest for a service account.
pub(crate) fn issue(state: &State, namespace: &str, account_name: &str, request: &Value, now: i64) -> ApiResult<Value> {
    use crate::meta::{name, text, uid};
    let account = state
        .store
        .get("serviceaccounts", namespace, account_name)
        .ok_or_else(|| StatusError::not_found("", "serviceaccounts", account_name))?;
    for (field, given, wanted) in
        [("name", name(request), account_name), ("namespace", crate::meta::namespace(request), namespace)]
    {
        if !given.is_empty() && given != wanted {
            let why = format!("must match the service account {field} if specified");
            let cause = crate::status::Cause::invalid(format!("metadata.{field}"), &given.into(), &why);
            return Err(StatusError::invalid("authentication.k8s.io", "TokenRequest", account_name, &[cause]));
        }
    }
    let given_uid = uid(request);
    if !given_uid.is_empty() && given_uid != uid(&account.value()) {
        let why = format!(
            "the UID in the token request ({given_uid}) does not match the UID of the service account ({})",
            uid(&account.value())
        );
        return Err(StatusError::conflict("authentication.k8s.io", "TokenRequest", account_name, &why));
    }
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(USUAL);
    let wrong = |detail: &str| {
        let cause = crate::status::Cause::invalid("spec.expirationSeconds", &seconds.into(), detail);
        StatusError::invalid("authentication.k8s.io", "TokenRequest", "", &[cause])
    };
    if seconds < SHORTEST {
        return Err(wrong("may not specify a duration less than 10 minutes"));
    }
    if seconds > LONGEST {
        return Err(wrong("may not specify a duration larger than 2^32 seconds"));
    }
    let audiences = request
        .pointer("/spec/audiences")
        .filter(|a| a.as_array().is_some_and(|l| !l.is_empty()))
        .cloned()
        .unwrap_or_else(|| json!([ISSUER]));
    let mut private = json!({
        "namespace": namespace,
        "serviceaccount": {"name": account_name, "uid": uid(&account.value())},
    });
    let reference = request.pointer("/spec/boundObjectRef").cloned().unwrap_or_default();
    if reference.is_object() {
        let (kind, version) = (text(&reference, "/kind"), text(&reference, "/apiVersion"));
        let bound_name = text(&reference, "/name").to_owned();
        let (table, field, home) = match (version.contains('/'), kind) {
            (false, "Pod") => ("pods", "pod", namespace),
            (false, "Secret") => ("secrets", "secret", namespace),
            (false, "Node") => ("nodes", "node", ""),
            (slash, other) => {
                let slash = if slash { "" } else { "/" };
                return Err(StatusError::bad_request(format!(
                    "cannot bind token to object of type {slash}{version}, Kind={other}"
                )));
            }
        };
        let object =
            state.store.get(table, home, &bound_name).ok_or_else(|| StatusError::not_found("", table, &bound_name))?;
        if kind == "Pod" && text(&object.value(), "/spec/serviceAccountName") != account_name {
            return Err(StatusError::bad_request(format!(
                "cannot bind token for serviceaccount {account_name:?} to pod running with different serviceaccount name."
            )));
        }
        let wanted = text(&reference, "/uid");
        if !wanted.is_empty() && wanted != uid(&object.value()) {
            return Err(StatusError::conflict(
                "",
                kind,
                &bound_name,
                &format!(
                    "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            ));
        }
        private[field] = json!({"name": name(&object.value()), "uid": uid(&object.value())});
        let node = text(&object.value(), "/spec/nodeName").to_owned();
        if kind == "Pod" && !node.is_empty() {
            private["node"] = json!({"name": node});
            if let Some(found) = state.store.get("nodes", "", &node) {
                private["node"]["uid"] = uid(&found.value()).into();
            }
        }
    }
    let claims = json!({
        "aud": audiences, "iss": ISSUER, "sub": format!("system:serviceaccount:{namespace}:{account_name}"),
        "iat": now, "nbf": now, "exp": now + seconds, "jti": uuid::Uuid::new_v4().to_string(), "kubernetes.io": private,
    });
    let token = sign(state, &claims)?;
    let end = jiff::Timestamp::from_second(now + seconds).map(crate::meta::seconds).unwrap_or_default();
    let mut spec = json!({"audiences": audiences, "expirationSeconds": seconds});
    spec["boundObjectRef"] = reference;
    let mut metadata = json!({
        "name": account_name, "namespace": namespace, "uid": uid(&account.value()), "creationTimestamp": crate::meta::now(),
    });
    if let Some(fields) = request.pointer("/metadata/managedFields") {
        metadata["managedFields"] = fields.clone();
    }
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata,
        "spec": spec, "status": {"token": token, "expirationTimestamp": end},
    }))
}

/// The user of a valid service account token: not expired, and bound to an account and pod that still exist.
pub(crate) fn account_user(
    state: &State,
    token: &str,
    audiences: &[String],
    now: i64,
) -> Option<crate::authentication::User> {
    use crate::meta::{text, uid};
    let claims = verify(state, token)?;
    let number = |field: &str| claims.get(field).and_then(Value::as_i64);
    if number("exp")? <= now || number("nbf")? > now + 60 || text(&claims, "/iss") != ISSUER {
        return None;
    }
    let meant =
        claims.get("aud")?.as_array()?.iter().filter_map(Value::as_str).any(|a| audiences.iter().any(|w| w == a));
    if !meant {
        return None;
    }
    let private = claims.get("kubernetes.io")?;
    let namespace = text(private, "/namespace");
    let account_name = text(private, "/serviceaccount/name");
    let account = state.store.get("serviceaccounts", namespace, account_name)?;
    if uid(&account.value()) != text(private, "/serviceaccount/uid") {
        return None;
    }
    let mut extra = std::collections::BTreeMap::new();
    for (field, table) in [("pod", "pods"), ("secret", "secrets")] {
        let Some(bound) = private.get(field) else { continue };
        let object = state.store.get(table, namespace, text(bound, "/name"))?;
        if uid(&object.value()) != text(bound, "/uid") {
            return None;
        }
        if field == "pod" {
            extra.insert("authentication.kubernetes.io/pod-name".into(), vec![text(bound, "/name").to_owned()]);
            extra.insert("authentication.kubernetes.io/pod-uid".into(), vec![text(bound, "/uid").to_owned()]);
        }
    }
    if let Some(node) = private.get("node") {
        // A token bound to a node expires with it; a pod's node is informational.
        let alone = private.get("pod").is_none();
        if alone
            && state.store.get("nodes", "", text(node, "/name")).is_none_or(|n| uid(&n.value()) != text(node, "/uid"))
        {
            return None;
        }
        extra.insert("authentication.kubernetes.io/node-name".into(), vec![text(node, "/name").to_owned()]);
        if node.get("uid").is_some() {
            extra.insert("authentication.kubernetes.io/node-uid".into(), vec![text(node, "/uid").to_owned()]);
        }
    }
    extra.insert(crate::authentication::CREDENTIAL.into(), vec![format!("JTI={}", text(&claims, "/jti"))]);
    Some(crate::authentication::User {
        name: text(&claims, "/sub").to_owned(),
        uid: uid(&account.value()).to_owned(),
        groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
        extra,
    })
}
