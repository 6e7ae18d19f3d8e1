//! Structural schemas: pruning and defaulting of objects, and validation of definitions.

use serde_json::{Map, Value};

use crate::decode::StrictErrors;
use crate::meta;
use crate::schema::Schema;
use crate::status::{Cause, go_quote};

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

pub(super) fn prune_root(schema: &Schema, object: &mut Value, complaints: &mut StrictErrors) {
    prune(schema, object, "", true, complaints);
    complaints.sort();
}

fn prune(schema: &Schema, value: &mut Value, path: &str, resource: bool, complaints: &mut StrictErrors) {
    match value {
        Value::Object(map) => prune_map(schema, map, path, resource || schema.embedded, complaints),
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                for (index, item) in list.iter_mut().enumerate() {
                    prune(items, item, &format!("{path}[{index}]"), false, complaints);
                }
            }
        }
        _ => {}
    }
}

fn prune_map(schema: &Schema, map: &mut Map<String, Value>, path: &str, resource: bool, complaints: &mut StrictErrors) {
    let mut unknown = Vec::new();
    for (name, field) in map.iter_mut() {
        if resource {
            match name.as_str() {
                "apiVersion" | "kind" => continue,
                "metadata" => {
                    let mut inner = StrictErrors::new();
                    let _ = crate::decode::conform(crate::schema::object_meta(), "ObjectMeta", field, &mut inner, true);
                    let prefix = join(path, "metadata");
                    complaints
                        .extend(inner.into_iter().map(|c| c.replacen("field \"", &format!("field \"{prefix}."), 1)));
                    continue;
                }
                _ => {}
            }
        }
        match schema.field(name) {
            Some(known) => prune(known, field, &join(path, name), false, complaints),
            None if schema.preserve => {}
            None => unknown.push(name.clone()),
        }
    }
    for name in unknown {
        complaints.push(format!("unknown field {}", go_quote(&join(path, &name))));
        map.remove(&name);
    }
}

pub(super) fn fill_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, field) in &schema.fields {
                let Some(default) = &field.default else { continue };
                // A null that is not allowed counts as missing.
                let missing = map.get(name).is_none_or(|v| v.is_null() && !field.nullable);
                if missing {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, inner) in map.iter_mut() {
                if let Some(field) = schema.field(name) {
                    fill_defaults(field, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items.as_deref() {
                list.iter_mut().for_each(|item| fill_defaults(items, item));
            }
        }
        _ => {}
    }
}

/// Validates a definition.
pub(crate) fn definition_causes(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |pointer: &str| meta::text(definition, pointer);
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let expected = format!("{plural}.{group}");
    if meta::name(definition) != expected {
        causes.push(Cause::invalid(
            "metadata.name",
            &meta::name(definition).into(),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if let Some(why) = crate::names::subdomain_complaint(group) {
        causes.push(Cause::invalid("spec.group", &group.into(), &why));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    match text("/spec/scope") {
        "Namespaced" | "Cluster" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        other => causes.push(Cause::unsupported("spec.scope", &other.into(), &["Cluster", "Namespaced"])),
    }
    let versions: Vec<&Value> = super::versions(definition).collect();
    let schema_of = |version: &Value| version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    // A schema shared by all versions is stored, and reported on, in one place.
    let shared = versions.windows(2).all(|pair| schema_of(pair[0]) == schema_of(pair[1]));
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = crate::names::dns1035_complaint(name) {
            causes.push(Cause::invalid(format!("{path}.name"), &name.into(), &why));
        }
        let place = if shared {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("{path}.schema.openAPIV3Schema")
        };
        match schema_of(version) {
            Value::Null => causes.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), "")),
            _ if shared && index > 0 => {}
            schema => structural(&schema, &place, true, &mut causes),
        }
    }
    let storage = versions.iter().filter(|v| v.get("storage").is_some_and(|s| s == true)).count();
    if storage != 1 {
        let shown: Value = match versions.as_slice() {
            [] => Value::Null,
            some => some.iter().map(|v| (*v).clone()).collect::<Vec<_>>().into(),
        };
        causes.push(Cause::invalid("spec.versions", &shown, "must have exactly one version marked as storage version"));
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(&format!("/spec/names/{field}")).to_owned();
        let path = format!("spec.names.{field}");
        if value.is_empty() {
            causes.push(Cause::required(path, ""));
        } else if let Some(why) = crate::names::dns1035_complaint(&value.to_lowercase()) {
            causes.push(Cause::invalid(path, &value.into(), &why));
        }
    }
    if definition.pointer("/status/storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        causes.push(Cause::invalid("status.storedVersions", &Value::Null, "must have at least one stored version"));
    }
    causes
}

/// Every node of a structural schema has a type, unless it preserves unknown fields or is int-or-string.
fn structural(schema: &Value, path: &str, root: bool, causes: &mut Vec<Cause>) {
    let Some(map) = schema.as_object() else { return };
    let flag = |field: &str| map.get(field).is_some_and(|v| v == true);
    let ty = map.get("type").and_then(Value::as_str).unwrap_or_default();
    if ty.is_empty() {
        if !flag("x-kubernetes-int-or-string") && !flag("x-kubernetes-preserve-unknown-fields") {
            let detail =
                if root { "must not be empty at the root" } else { "must not be empty for specified object fields" };
            causes.push(Cause::required(format!("{path}.type"), detail));
        }
    } else if root && ty != "object" {
        causes.push(Cause::invalid(format!("{path}.type"), &ty.into(), "must be object at the root"));
    } else if !matches!(ty, "object" | "array" | "string" | "integer" | "number" | "boolean") {
        causes.push(Cause::unsupported(
            format!("{path}.type"),
            &ty.into(),
            &["array", "boolean", "integer", "number", "object", "string"],
        ));
    }
    if ty == "array" && map.get("items").is_none_or(Value::is_null) {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    super::cel_rules::check(schema, path, causes);
    for (name, field) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if root && name == "metadata" {
            continue;
        }
        structural(field, &format!("{path}.properties[{name}]"), false, causes);
    }
    if let Some(items @ Value::Object(_)) = map.get("items") {
        structural(items, &format!("{path}.items"), false, causes);
    }
    if let Some(values @ Value::Object(_)) = map.get("additionalProperties") {
        structural(values, &format!("{path}.additionalProperties"), false, causes);
    }
    if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
        && let Err(error) = regex::Regex::new(pattern)
    {
        let why = error.to_string();
        let line = why.lines().last().unwrap_or_default().to_owned();
        causes.push(Cause::invalid(
            format!("{path}.pattern"),
            &pattern.into(),
            &format!("must be a valid regular expression, but isn't: {line}"),
        ));
    }
}
