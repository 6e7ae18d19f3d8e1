//! Authentication: client certificates and bearer tokens.

use std::collections::{BTreeMap, HashMap};

use http::HeaderMap;
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Identifies the credential of a user, for logs.
pub(crate) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
pub(crate) const MASTERS: &str = "system:masters";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub(crate) fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..Self::default() }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, &[UNAUTHENTICATED])
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }

    /// `userInfo` in reviews and admission requests.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.clone().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    fn logged_in(mut self) -> Self {
        if self.name != ANONYMOUS && !self.groups.iter().any(|g| g == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }
}

/// Static bearer tokens: the administrator's, and those configured at build time. Stored as digests, so that neither logs nor
/// comparison times reveal them.
#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<[u8; 32], User>);

impl Tokens {
    pub(crate) fn insert(&mut self, token: &str, user: User) {
        self.0.insert(sha2::Sha256::digest(token).into(), user);
    }

    fn user(&self, token: &str) -> Option<User> {
        let digest: [u8; 32] = sha2::Sha256::digest(token).into();
        self.0.get(&digest).cloned()
    }
}

/// The user of a client certificate: common name and organizations.
pub(crate) fn certificate_user(certificate: &[u8]) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = parsed.subject().iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
    let digest: String = sha2::Sha256::digest(certificate).iter().map(|b| format!("{b:02x}")).collect();
    let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("X509SHA256={digest}")])]);
    Some(User { name, groups, extra, ..User::default() })
}

/// Authenticates a request. A certificate takes precedence over a bearer token; an invalid token is rejected.
pub(crate) fn authenticate(state: &State, headers: &HeaderMap, certificate: Option<&User>) -> ApiResult<User> {
    let bearer = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer ").or_else(|| v.strip_prefix("bearer ")))
        .map(str::trim)
        .filter(|t| !t.is_empty());
    if let Some(user) = certificate {
        return Ok(user.clone().logged_in());
    }
    match bearer {
        Some(token) => {
            token_user(state, token, &[crate::tokens::ISSUER.to_owned()]).ok_or_else(StatusError::unauthorized)
        }
        None => Ok(User::anonymous()),
    }
}

/// The user of a bearer token for one of `audiences`.
pub(crate) fn token_user(state: &State, token: &str, audiences: &[String]) -> Option<User> {
    let known = state.tokens.user(token);
    let now = jiff::Timestamp::now().as_second();
    known.or_else(|| crate::tokens::account_user(state, token, audiences, now)).map(User::logged_in)
}
