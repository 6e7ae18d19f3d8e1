//! Impersonation: its headers, and the permissions it requires.

use http::HeaderMap;

use super::{Access, allowed, refusal};
use crate::authentication::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const AUTHENTICATION: &str = "authentication.k8s.io";

/// One impersonated attribute.
struct Impersonation {
    group: &'static str,
    resource: &'static str,
    /// Key of an extra value.
    subresource: String,
    name: String,
    namespace: String,
}

impl Impersonation {
    fn new(group: &'static str, resource: &'static str, name: &str) -> Self {
        Self { group, resource, subresource: String::new(), name: name.into(), namespace: String::new() }
    }

    /// Prints a Go `ObjectReference`, as the real server does.
    fn printed(&self) -> String {
        let (kind, version) = match self.resource {
            "groups" => ("Group", ""),
            "userextras" => ("UserExtra", "authentication.k8s.io/v1"),
            "uids" => ("UID", "authentication.k8s.io/v1"),
            _ => ("User", ""),
        };
        format!("{{{kind}  {}  {version}  {}}}", self.name, self.subresource)
    }
}

/// The impersonated user.
pub(crate) fn impersonate(state: &State, headers: &HeaderMap, user: User) -> ApiResult<User> {
    let texts = |name: &str| -> Vec<&str> { headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect() };
    let name = texts("impersonate-user").first().copied().unwrap_or_default();
    let uid = texts("impersonate-uid").first().copied().unwrap_or_default();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let mut wishes = Vec::new();
    match account {
        Some((namespace, account)) => {
            wishes.push(Impersonation {
                namespace: namespace.into(),
                ..Impersonation::new("", "serviceaccounts", account)
            });
        }
        None if !name.is_empty() => wishes.push(Impersonation::new("", "users", name)),
        None => {}
    }
    let groups = texts("impersonate-group");
    wishes.extend(groups.iter().map(|group| Impersonation::new("", "groups", group)));
    for (header, value) in headers {
        if let (Some(key), Ok(value)) = (header.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().into_owned();
            wishes.push(Impersonation { subresource: key, ..Impersonation::new(AUTHENTICATION, "userextras", value) });
        }
    }
    if !uid.is_empty() {
        wishes.push(Impersonation::new(AUTHENTICATION, "uids", uid));
    }
    if wishes.is_empty() {
        return Ok(user);
    }
    if name.is_empty() {
        let printed: Vec<String> = wishes.iter().map(Impersonation::printed).collect();
        let message = format!("requested [{}] without impersonating a user", printed.join(" "));
        return Err(StatusError::bad_request(message));
    }
    let mut acting = User { name: name.to_owned(), uid: uid.to_owned(), ..User::default() };
    for wish in wishes {
        let access = Access {
            verb: "impersonate".into(),
            group: wish.group.into(),
            resource: wish.resource.into(),
            subresource: wish.subresource.clone(),
            name: wish.name.clone(),
            namespace: wish.namespace.clone(),
            path: None,
        };
        if !allowed(state, &user, &access) {
            return Err(StatusError::forbidden(wish.group, wish.resource, &wish.name, &refusal(&user, &access)));
        }
        match wish.resource {
            "groups" => acting.groups.push(wish.name),
            "userextras" => acting.extra.entry(wish.subresource).or_default().push(wish.name),
            _ => {}
        }
    }
    if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
        acting.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    // Authenticated users are in `system:authenticated`, unless the request says otherwise.
    let (base, instead): (_, &[&str]) =
        if name == ANONYMOUS { (UNAUTHENTICATED, &[]) } else { (AUTHENTICATED, &[UNAUTHENTICATED]) };
    if !acting.groups.iter().any(|g| g == base || instead.contains(&g.as_str())) {
        acting.groups.push(base.into());
    }
    Ok(acting)
}
