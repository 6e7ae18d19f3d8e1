//! Cells of built-in kinds: dispatch to modules, and what those share.

mod core;
mod others;
mod workload;

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use crate::kinds::Kind;
use crate::meta;

/// An object to print as a row.
struct Row<'a> {
    resource: &'a str,
    object: &'a Value,
    name: Value,
    age: Value,
    now: Timestamp,
}

pub(super) fn of(kind: &Kind, object: &Value, now: Timestamp) -> Cells {
    if super::columns::is_plain(kind) {
        return vec![meta::name(object).into(), text(object, "/metadata/creationTimestamp")];
    }
    let row =
        Row { resource: &kind.resource, object, name: meta::name(object).into(), age: super::age(object, now), now };
    match &*kind.group {
        "" if matches!(row.resource, "podtemplates" | "replicationcontrollers") => workload::cells(row),
        "apps" | "batch" | "autoscaling" => workload::cells(row),
        "" => core::cells(row),
        "events.k8s.io" => core::new_event(object, now),
        group => others::cells(group, row),
    }
}

fn text(object: &Value, pointer: &str) -> Value {
    meta::text(object, pointer).into()
}

fn or(object: &Value, pointer: &str, missing: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => missing.into(),
        Some(Value::String(found)) if found.is_empty() => missing.into(),
        Some(Value::String(found)) => found.as_str().into(),
        Some(other) => other.to_string().into(),
    }
}

fn int(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default().into()
}

fn count(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn joined<'a>(items: impl Iterator<Item = &'a str>, separator: &str) -> String {
    items.collect::<Vec<_>>().join(separator)
}

fn containers(object: &Value, at: &str, field: &str) -> Value {
    joined(list(object, at).map(|c| meta::text(c, field)), ",").into()
}

fn labels(object: &Value, pointer: &str) -> Value {
    let pairs: Vec<String> = object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() }
}

fn access_modes(object: &Value, pointer: &str) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    joined(list(object, pointer).filter_map(Value::as_str).map(short), ",").into()
}

fn joined_or(items: impl Iterator<Item = String>, missing: &str) -> Value {
    let items: Vec<String> = items.collect();
    let shown = match items.len() {
        0 => missing.to_owned(),
        1..=3 => items.join(","),
        more => format!("{} + {} more...", items[..3].join(","), more - 3),
    };
    shown.into()
}
