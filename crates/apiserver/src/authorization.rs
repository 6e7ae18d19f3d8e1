//! Authorization: RBAC over the Roles and bindings in the store.

mod escalation;
mod impersonation;
mod roles;

use http::Method;
use serde_json::Value;

use crate::authentication::User;
use crate::request::{Query, RequestInfo};
use crate::selector::Labels;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

pub(crate) use escalation::check as check_escalation;
pub(crate) use impersonation::impersonate;
pub(crate) use roles::{aggregate, bootstrap};

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// An authorization query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// A non-resource path.
    pub(crate) path: Option<String>,
}

impl Access {
    fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

/// Authorizes a request for a resource.
pub(crate) fn check(state: &State, user: &User, verb: &str, target: &RequestInfo, query: &Query) -> ApiResult<()> {
    // Listing or watching a single object by name needs permission for that object only.
    let chosen = match verb {
        "list" | "watch" | "deletecollection" if target.name.is_empty() => {
            let fields = crate::selector::Fields::parse(query.get("fieldSelector")).ok();
            fields.and_then(|f| f.exact_name().map(str::to_owned)).unwrap_or_default()
        }
        _ => target.name.clone(),
    };
    let access = Access {
        verb: verb.to_owned(),
        group: target.group.clone(),
        resource: target.resource.clone(),
        subresource: target.subresource.clone(),
        name: chosen.clone(),
        // A namespace itself is checked within itself.
        namespace: if target.group.is_empty() && target.resource == "namespaces" {
            target.name.clone()
        } else {
            target.namespace.clone()
        },
        path: None,
    };
    if allowed(state, user, &access) {
        return Ok(());
    }
    Err(StatusError::forbidden(&target.group, &target.resource, &chosen, &refusal(user, &access)))
}

pub(crate) fn check_path(state: &State, user: &User, method: &Method, path: &str) -> ApiResult<()> {
    let verb = method.as_str().to_lowercase();
    let access = Access { verb: verb.clone(), path: Some(path.to_owned()), ..Access::default() };
    if allowed(state, user, &access) {
        return Ok(());
    }
    let mut failure = StatusError::forbidden("", "", "", &format!("User {:?} cannot {verb} path {path:?}", user.name));
    failure.details = Some(serde_json::json!({}));
    Err(failure)
}

fn refusal(user: &User, access: &Access) -> String {
    let place = if access.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", access.namespace)
    };
    format!(
        "User {:?} cannot {} resource {:?} in API group {:?} {place}",
        user.name,
        access.verb,
        access.full_resource(),
        access.group
    )
}

pub(crate) fn allowed(state: &State, user: &User, access: &Access) -> bool {
    decide(state, user, access).is_some()
}

/// Why access is allowed, in the words of an access review; `None` if it is denied.
pub(crate) fn decide(state: &State, user: &User, access: &Access) -> Option<String> {
    if !state.enforce || user.is_master() {
        return Some(String::new());
    }
    grants(state, user, &access.namespace).into_iter().find_map(|(binding, home, subject)| {
        role_rules(state, &binding.value(), &home).iter().any(|rule| permits(rule, access)).then(|| {
            let kind = if home.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
            let name = match home.as_str() {
                "" => crate::meta::name(&binding.value()).to_owned(),
                namespace => format!("{}/{namespace}", crate::meta::name(&binding.value())),
            };
            format!(
                "RBAC: allowed by {kind} {name:?} of {} {:?} to {subject}",
                crate::meta::text(&binding.value(), "/roleRef/kind"),
                crate::meta::text(&binding.value(), "/roleRef/name")
            )
        })
    })
}

/// All rules that apply to a user: cluster-wide ones, and those of a namespace if given.
pub(crate) fn rules_for(state: &State, user: &User, namespace: &str) -> Vec<Value> {
    grants(state, user, namespace)
        .into_iter()
        .flat_map(|(binding, home, _)| role_rules(state, &binding.value(), &home))
        .collect()
}

/// Bindings for the user, with their namespace and the matching subject.
fn grants(state: &State, user: &User, namespace: &str) -> Vec<(std::sync::Arc<crate::store::Stored>, String, String)> {
    let everywhere = bindings(state, CLUSTER_ROLE_BINDINGS, None);
    let here = if namespace.is_empty() { Vec::new() } else { bindings(state, ROLE_BINDINGS, Some(namespace)) };
    everywhere
        .into_iter()
        .map(|b| (b, String::new()))
        .chain(here.into_iter().map(|b| (b, namespace.to_owned())))
        .filter_map(|(binding, home)| concerned(&binding.value(), user, &home).map(|subject| (binding, home, subject)))
        .collect()
}

fn bindings(state: &State, table: &str, namespace: Option<&str>) -> Vec<std::sync::Arc<crate::store::Stored>> {
    state
        .store
        .list(table, namespace, None, usize::MAX, None, |_| true)
        .map(|snapshot| snapshot.items.into_iter().map(|(_, stored)| stored).collect())
        .unwrap_or_default()
}

/// The subject of a binding that matches the user.
fn concerned(binding: &Value, user: &User, home: &str) -> Option<String> {
    binding.get("subjects").and_then(Value::as_array).into_iter().flatten().find_map(|subject| {
        let name = crate::meta::text(subject, "/name");
        let kind = crate::meta::text(subject, "/kind");
        let fits = match kind {
            "User" => name == "*" || name == user.name,
            "Group" => user.groups.iter().any(|g| g == name),
            "ServiceAccount" => {
                let namespace = match crate::meta::text(subject, "/namespace") {
                    "" => home,
                    given => given,
                };
                !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        };
        fits.then(|| match crate::meta::text(subject, "/namespace") {
            "" => format!("{kind} {name:?}"),
            namespace => format!("{kind} \"{name}/{namespace}\""),
        })
    })
}

fn role_rules(state: &State, binding: &Value, home: &str) -> Vec<Value> {
    let name = crate::meta::text(binding, "/roleRef/name");
    let role = match crate::meta::text(binding, "/roleRef/kind") {
        "ClusterRole" => state.store.get(CLUSTER_ROLES, "", name),
        "Role" if !home.is_empty() => state.store.get(ROLES, home, name),
        _ => None,
    };
    role.and_then(|r| r.value().get("rules").and_then(Value::as_array).cloned()).unwrap_or_default()
}

fn lists(rule: &Value, field: &str, wanted: impl Fn(&str) -> bool) -> bool {
    rule.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).any(wanted)
}

fn permits(rule: &Value, access: &Access) -> bool {
    if !lists(rule, "verbs", |v| v == "*" || v == access.verb) {
        return false;
    }
    if let Some(path) = &access.path {
        return lists(rule, "nonResourceURLs", |url| {
            url == path || url == "*" || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
        });
    }
    let full = access.full_resource();
    let resource = lists(rule, "resources", |r| {
        r == "*"
            || r == full
            || (!access.subresource.is_empty() && r.strip_prefix("*/").is_some_and(|s| s == access.subresource))
    });
    let named = rule.get("resourceNames").and_then(Value::as_array).is_none_or(Vec::is_empty)
        || lists(rule, "resourceNames", |n| !access.name.is_empty() && n == access.name);
    resource && named && lists(rule, "apiGroups", |g| g == "*" || g == access.group)
}

/// The label selectors of an aggregated role.
fn aggregation(role: &Value) -> Vec<Labels> {
    role.pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|s| Labels::from_object(s).ok())
        .collect()
}
