//! Privilege escalation: writing a role requires holding its rules (or `escalate`), writing a binding requires holding the rules of its
//! role (or `bind`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Access, CLUSTER_ROLES, ROLES, allowed, rules_for};
use crate::authentication::User;
use crate::kinds::Kind;
use crate::meta::{self, text};
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const GROUP: &str = "rbac.authorization.k8s.io";

/// One permission: a verb on a resource (optionally by name) or on a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Permission {
    Resource { group: String, resource: String, name: Option<String>, verb: String },
    Path { path: String, verb: String },
}

/// Rejects a role or binding that would grant more than its author has.
pub(crate) fn check(state: &State, user: &User, kind: &Kind, old: Option<&Value>, object: &Value) -> ApiResult<()> {
    if &*kind.group != GROUP || !state.enforce || user.is_master() {
        return Ok(());
    }
    let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
    let namespace = meta::namespace(object);
    let given = match &*kind.resource {
        "roles" | "clusterroles" => {
            let access = Access {
                verb: "escalate".into(),
                group: GROUP.into(),
                resource: kind.resource.to_string(),
                name: if old.is_some() { meta::name(object).to_owned() } else { String::new() },
                namespace: namespace.to_owned(),
                ..Access::default()
            };
            if same("rules") && same("aggregationRule") || allowed(state, user, &access) {
                return Ok(());
            }
            object.get("rules").cloned().unwrap_or_default()
        }
        "rolebindings" | "clusterrolebindings" => {
            let (role_kind, role) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
            let resource = if role_kind == "Role" { "roles" } else { "clusterroles" };
            let access = Access {
                verb: "bind".into(),
                group: GROUP.into(),
                resource: resource.into(),
                name: role.to_owned(),
                namespace: namespace.to_owned(),
                ..Access::default()
            };
            if same("subjects") && same("roleRef") || allowed(state, user, &access) {
                return Ok(());
            }
            let (table, home) = if role_kind == "Role" { (ROLES, namespace) } else { (CLUSTER_ROLES, "") };
            let found = state
                .store
                .get(table, home, role)
                .ok_or_else(|| StatusError::not_found(GROUP, &kind.resource, role))?;
            found.value().get("rules").cloned().unwrap_or_default()
        }
        _ => return Ok(()),
    };
    let held = rules_for(state, user, namespace);
    let missing: Vec<Permission> = given
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(rights)
        .filter(|right| !held.iter().any(|rule| covers(rule, right)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user.groups.iter().map(|g| format!("{g:?}")).collect();
    let why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        rule_lines(missing)
    );
    Err(StatusError::forbidden(GROUP, &kind.resource, meta::name(object), &why))
}

fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + Clone {
    rule.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn rights(rule: &Value) -> Vec<Permission> {
    let mut all = Vec::new();
    let names: Vec<Option<&str>> = match texts(rule, "resourceNames").map(Some).collect::<Vec<_>>() {
        none if none.is_empty() => vec![None],
        some => some,
    };
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                all.extend(names.iter().map(|name| Permission::Resource {
                    group: group.into(),
                    resource: resource.into(),
                    name: name.map(Into::into),
                    verb: verb.into(),
                }));
            }
        }
    }
    for path in texts(rule, "nonResourceURLs") {
        all.extend(texts(rule, "verbs").map(|verb| Permission::Path { path: path.into(), verb: verb.into() }));
    }
    all
}

fn covers(rule: &Value, right: &Permission) -> bool {
    let lists = |field: &str, wanted: &str| texts(rule, field).any(|v| v == "*" || v == wanted);
    match right {
        Permission::Resource { group, resource, name, verb } => {
            let resources = lists("resources", resource)
                || resource.split_once('/').is_some_and(|(_, sub)| {
                    texts(rule, "resources").any(|r| r.strip_prefix("*/").is_some_and(|s| s == sub))
                });
            let mut limited = texts(rule, "resourceNames").peekable();
            let named = limited.peek().is_none() || name.as_deref().is_some_and(|n| limited.any(|l| l == n));
            lists("apiGroups", group) && lists("verbs", verb) && resources && named
        }
        Permission::Path { path, verb } => {
            lists("verbs", verb)
                && texts(rule, "nonResourceURLs")
                    .any(|url| url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix)))
        }
    }
}

/// Rules as Go prints them, one line per resource.
fn rule_lines(missing: Vec<Permission>) -> String {
    let mut lines = BTreeSet::new();
    let mut verbs: BTreeMap<(String, String, Option<String>), Vec<String>> = BTreeMap::new();
    for right in missing {
        match right {
            Permission::Resource { group, resource, name, verb } => {
                verbs.entry((group, resource, name)).or_default().push(verb);
            }
            Permission::Path { path, verb } => {
                lines.insert(format!("{{NonResourceURLs:[{path:?}], Verbs:[{verb:?}]}}"));
            }
        }
    }
    for ((group, resource, name), verbs) in verbs {
        let names = name.map(|n| format!(", ResourceNames:[{n:?}]")).unwrap_or_default();
        let verbs: Vec<String> = verbs.iter().map(|v| format!("{v:?}")).collect();
        lines
            .insert(format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{names}, Verbs:[{}]}}", verbs.join(" ")));
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}
