//! Which requests a webhook or policy applies to: rules, selectors, and equivalent versions.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Attributes;
use crate::meta;
use crate::selector::Labels;
use crate::state::State;

/// Whether the selectors of a webhook or policy match a request's namespace and object.
pub(super) fn selected(state: &State, attributes: &Attributes<'_>, selectors: &Value) -> bool {
    in_namespace(state, attributes, selectors.get("namespaceSelector"))
        && has_labels(attributes, selectors.get("objectSelector"))
}

fn in_namespace(state: &State, attributes: &Attributes<'_>, selector: Option<&Value>) -> bool {
    let is_namespace = attributes.req.kind.is("", "namespaces");
    if attributes.namespace.is_empty() && !is_namespace {
        return true;
    }
    let Some(selector) = parsed(selector) else { return true };
    // A write to a namespace is matched against its new state.
    if is_namespace && let Some(new) = attributes.new {
        return selector.matches(meta::labels(new));
    }
    let name = if is_namespace { attributes.name } else { attributes.namespace };
    state.namespace(name).is_some_and(|namespace| selector.matches(namespace.labels()))
}

fn has_labels(attributes: &Attributes<'_>, selector: Option<&Value>) -> bool {
    let Some(selector) = parsed(selector) else { return true };
    [attributes.old, attributes.new]
        .into_iter()
        .flatten()
        .filter(|object| object.get("metadata").is_some_and(Value::is_object))
        .any(|object| selector.matches(meta::labels(object)))
}

/// `None` matches everything.
fn parsed(selector: Option<&Value>) -> Option<Labels> {
    Labels::from_object(selector?).ok().filter(|labels| !labels.is_empty())
}

/// The version in which a request matches one of the rules: its own, or any served version with `matchPolicy: Equivalent`.
pub(super) fn version_for(
    state: &State,
    attributes: &Attributes<'_>,
    rules: Option<&Value>,
    exact: bool,
) -> Option<Arc<str>> {
    let rules: Vec<&Value> = rules.and_then(Value::as_array).into_iter().flatten().collect();
    let own = &attributes.req.kind.version;
    if rules.iter().any(|rule| fits(attributes, rule, own)) {
        return Some(own.clone());
    }
    if exact {
        return None;
    }
    let kinds = state.kinds.load();
    let mut others = kinds.iter().filter(|k| {
        k.group == attributes.req.kind.group && k.resource == attributes.req.kind.resource && k.version != *own
    });
    others.find(|k| rules.iter().any(|rule| fits(attributes, rule, &k.version))).map(|k| k.version.clone())
}

fn fits(attributes: &Attributes<'_>, rule: &Value, version: &str) -> bool {
    let kind = &attributes.req.kind;
    let lists = |field: &str, wanted: &str| texts(rule, field).any(|v| v == "*" || v == wanted);
    let scope = match meta::text(rule, "/scope") {
        "Namespaced" => !attributes.namespace.is_empty(),
        "Cluster" => attributes.namespace.is_empty(),
        _ => true,
    };
    let (resource, subresource) = (&*kind.resource, attributes.req.target.subresource.as_str());
    let resources = texts(rule, "resources").any(|r| {
        let (base, sub) = r.split_once('/').unwrap_or((r, ""));
        (base == "*" || base == resource) && (sub == "*" || sub == subresource)
    });
    let mut names = texts(rule, "resourceNames").peekable();
    let named = names.peek().is_none() || names.any(|n| n == attributes.name);
    scope
        && resources
        && named
        && lists("apiGroups", &kind.group)
        && lists("apiVersions", version)
        && lists("operations", attributes.operation.name())
}

fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    rule.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// An object in another version; without conversion only `apiVersion` differs.
pub(super) fn in_version(attributes: &Attributes<'_>, object: Option<&Value>, version: &str) -> Value {
    let Some(object) = object else { return Value::Null };
    let mut shown = object.clone();
    let own = &*attributes.req.kind.version;
    if version != own
        && let Some(Value::String(text)) =
            shown.as_object_mut().and_then(|map: &mut Map<String, Value>| map.get_mut("apiVersion"))
    {
        *text = match text.rsplit_once('/') {
            Some((group, _)) => format!("{group}/{version}"),
            None => version.to_owned(),
        };
    }
    shown
}
