//! Authenticates and authorizes clients of the node's API through the API server, as a kubelet does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::FromDer as _;

use crate::agent::lock;

/// How long decisions of the API server are cached.
const REMEMBER: Duration = Duration::from_secs(30);
const MASTERS: &str = "system:masters";

/// The client's identity from its TLS certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Peer(Option<UserInfo>);

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct UserInfo {
    name: String,
    groups: Vec<String>,
}

impl Peer {
    pub(super) fn of(connection: &ServerConnection) -> Self {
        Self(connection.peer_certificates().and_then(|c| c.first()).and_then(|der| user_of(der)))
    }
}

/// The common name is the user, the organizations are the groups.
fn user_of(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let text = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| a.as_str().ok().map(str::to_owned);
    Some(UserInfo {
        name: subject.iter_common_name().next().and_then(text)?,
        groups: subject.iter_organization().filter_map(text).collect(),
    })
}

/// A TLS server configuration with its own certificate that requests client certificates.
pub(super) fn tls(name: &str, roots: &[Vec<u8>]) -> Result<Arc<ServerConfig>, String> {
    let made =
        rcgen::generate_simple_self_signed(vec![name.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()])
            .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().map(|der| CertificateDer::from(der.clone())));
    let builder = if store.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|e| e.to_string())?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_single_cert(vec![made.cert.der().clone()], key).map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

type Denial = (StatusCode, String);

/// Cached decisions, with their time.
type Remembered<K, V> = BTreeMap<K, (Instant, V)>;

/// Delegates authentication (TokenReview) and authorization (SubjectAccessReview) to the API server.
pub(super) struct DelegatingAuth {
    client: Client,
    node: String,
    tokens: Mutex<Remembered<[u8; 32], Option<UserInfo>>>,
    decisions: Mutex<Remembered<(UserInfo, &'static str), bool>>,
}

impl DelegatingAuth {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self { client, node, tokens: Mutex::default(), decisions: Mutex::default() }
    }

    pub(super) async fn check(&self, peer: &Peer, headers: &HeaderMap, verb: &'static str) -> Result<(), Denial> {
        let user = match &peer.0 {
            Some(user) => Some(user.clone()),
            None => match bearer(headers) {
                Some(token) => self.user_of_token(token).await,
                None => None,
            },
        };
        let Some(user) = user else { return Err((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())) };
        if self.may(&user, verb).await {
            Ok(())
        } else {
            Err((
                StatusCode::FORBIDDEN,
                format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource=proxy)", user.name),
            ))
        }
    }

    async fn user_of_token(&self, token: &str) -> Option<UserInfo> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some((at, user)) = lock(&self.tokens).get(&key)
            && at.elapsed() < REMEMBER
        {
            return user.clone();
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let answer = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await.ok()?;
        let status = answer.status.unwrap_or_default();
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(|u| UserInfo { name: u.username.unwrap_or_default(), groups: u.groups.unwrap_or_default() });
        let mut tokens = lock(&self.tokens);
        tokens.retain(|_, (at, _)| at.elapsed() < REMEMBER);
        tokens.insert(key, (Instant::now(), user.clone()));
        user
    }

    async fn may(&self, user: &UserInfo, verb: &'static str) -> bool {
        if user.groups.iter().any(|g| g == MASTERS) {
            return true;
        }
        let key = (user.clone(), verb);
        if let Some((at, allowed)) = lock(&self.decisions).get(&key)
            && at.elapsed() < REMEMBER
        {
            return *allowed;
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some("proxy".to_owned()),
                    name: Some(self.node.clone()),
                    version: Some("v1".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let Ok(answer) =
            Api::<SubjectAccessReview>::all(self.client.clone()).create(&PostParams::default(), &review).await
        else {
            return false;
        };
        let allowed = answer.status.is_some_and(|s| s.allowed);
        let mut decisions = lock(&self.decisions);
        decisions.retain(|_, (at, _)| at.elapsed() < REMEMBER);
        decisions.insert(key, (Instant::now(), allowed));
        allowed
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim).filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_its_user_and_groups() {
        let mut parameters = rcgen::CertificateParams::new(vec![]).expect("parameters");
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver-kubelet-client");
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let user = user_of(certificate.der()).expect("a user");
        assert_eq!(
            user,
            UserInfo { name: "kube-apiserver-kubelet-client".to_owned(), groups: vec!["system:masters".to_owned()] }
        );
    }
}
