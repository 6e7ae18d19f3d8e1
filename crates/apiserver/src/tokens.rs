//! Service account tokens: JWTs signed by the cluster's key that expire and name the pod they are bound to.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::state::State;
use crate::status::{Failure, Outcome};

pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

fn key(state: &State) -> Option<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &state.pki.token_key, &SystemRandom::new()).ok()
}

fn key_id(public: &[u8]) -> String {
    use sha2::Digest as _;
    URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(public))
}

/// Signs claims.
pub(crate) fn sign(state: &State, claims: &Value) -> Outcome<String> {
    let broken = || Failure::internal("the token key cannot be used");
    let pair = key(state).ok_or_else(broken)?;
    let header = json!({"alg": "ES256", "kid": key_id(pair.public_key().as_ref()), "typ": "JWT"});
    let body = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    let signature = pair.sign(&SystemRandom::new(), body.as_bytes()).map_err(|_| broken())?;
    Ok(format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The claims of a token this cluster signed; time is not looked at.
pub(crate) fn verify(state: &State, token: &str) -> Option<Value> {
    let (body, signature) = token.rsplit_once('.')?;
    let (_, claims) = body.split_once('.')?;
    let pair = key(state)?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
    public.verify(body.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

/// OpenID discovery, for those who verify tokens themselves.
pub(crate) fn configuration() -> Value {
    json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/openid/v1/jwks"), "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
    })
}

pub(crate) fn keys(state: &State) -> Value {
    let Some(pair) = key(state) else { return json!({"keys": []}) };
    let public = pair.public_key().as_ref();
    // An uncompressed point: one byte of form, then x and y.
    let (x, y) = (public.get(1..33).unwrap_or_default(), public.get(33..65).unwrap_or_default());
    json!({"keys": [{
        "use": "sig", "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": key_id(public),
        "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
    }]})
}
