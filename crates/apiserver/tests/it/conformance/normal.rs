//! Normalizes responses: uids, versions, times, addresses, generated names, documentation texts.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

struct Patterns {
    time: Regex,
    age: Regex,
    replaced: Vec<(Regex, &'static str)>,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("a pattern");
    Patterns {
        time: regex(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"),
        age: regex(r"^(\d+[smhd])+$"),
        replaced: vec![
            (regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
            (regex("X509SHA256=[0-9a-f]{64}"), "X509SHA256=<digest>"),
            (regex("JTI=<uid>"), "JTI"),
            (regex("testenv-admin|kubernetes-admin"), "<admin>"),
            (regex(r"[\w-]{20,}\.[\w-]{20,}\.[\w-]{20,}"), "<token>"),
            (regex("https://kubernetes.default.svc(.cluster.local)?"), "<issuer>"),
            (regex(r"kube-api-access-\w{5}"), "kube-api-access-<x>"),
            (regex(r"\b10\.\d+\.\d+\.\d+\b"), "<ip>"),
            (regex(r"\bgen-\w{5}\b"), "gen-<x>"),
            (regex(r"in record \(\d+\)"), "in record (<n>)"),
            // A diff of Go structs follows.
            (regex(r"(?s)(if it was previously negative\)).*"), "$1"),
            (regex(r"(?s)\n@@ .*"), ""),
            (regex(r"(?s)spec.template: Invalid value: \{.*\}: field is immutable"), "spec.template: <immutable>"),
            (regex(r"(?s)^Invalid value: \{.*\}: field is immutable"), "Invalid value: <object>: field is immutable"),
            // It contains the whole patched object, or the patch in Go's own form.
            (
                regex(r#"(?s)patch: Invalid value: ".*": (strict decoding|json:)"#),
                "patch: Invalid value: <patched>: $1",
            ),
            (regex(r#"(?s)^Invalid value: "(\{|map\[).*": (strict decoding|json:)"#), "Invalid value: <patched>: $2"),
            // Which of several allowing bindings is named depends on the order of a Go map.
            (regex(r"RBAC: allowed by .*"), "RBAC: allowed"),
        ],
    }
});

pub(crate) fn form(value: &Value) -> Value {
    walk(value, "")
}

fn walk(value: &Value, key: &str) -> Value {
    match value {
        // The managed fields of something that is never stored.
        Value::Object(map) if map.get("kind").is_some_and(|k| k == "TokenRequest") => {
            let mut map = map.clone();
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
            Value::Object(map.iter().map(|(k, v)| (k.clone(), walk(v, k))).collect())
        }
        Value::Object(map) => Value::Object(causes_sorted(map).iter().map(|(k, v)| (k.clone(), walk(v, k))).collect()),
        Value::Array(list) if key == "managedFields" => {
            // Sorted by whole seconds, so their order depends on timing.
            let mut entries: Vec<Value> = list.iter().map(|v| walk(v, key)).collect();
            entries.sort_by_key(Value::to_string);
            entries.into()
        }
        Value::Array(list) => {
            list.iter().filter(|v| !is_plain_bookmark(v)).map(|v| walk(v, key)).collect::<Vec<_>>().into()
        }
        Value::String(text) => match text.split_once("denied the request: {") {
            // A webhook that returns what it was sent.
            Some((before, told)) => {
                let told: Value = serde_json::from_str(&format!("{{{told}")).unwrap_or_else(|_| told.into());
                json!({"said": before, "told": walk(&told, "")})
            }
            None => plain(text, key).into(),
        },
        Value::Number(_) if key == "nodePort" => "<port>".into(),
        other => other.clone(),
    }
}

/// Bookmarks come at any time, except the one that ends the initial events.
fn is_plain_bookmark(value: &Value) -> bool {
    value.get("type").is_some_and(|t| t == "BOOKMARK") && value.pointer("/object/metadata/annotations").is_none()
}

/// Several invalid fields are reported in the order of checks; for custom resources in the random order of a Go map.
fn causes_sorted(map: &Map<String, Value>) -> Map<String, Value> {
    let mut map = map.clone();
    let causes = map.get_mut("details").and_then(|d| d.get_mut("causes")).and_then(Value::as_array_mut);
    if let Some(causes) = causes.filter(|c| c.len() > 1) {
        causes.sort_by_key(|c| c["field"].to_string() + &c["message"].to_string());
        map.insert("message".into(), "<in any order>".into());
    }
    map
}

fn plain(text: &str, key: &str) -> String {
    match key {
        "resourceVersion" | "continue" if !text.is_empty() => return format!("<{key}>"),
        "description" | "storageVersionHash" => return String::new(),
        _ => {}
    }
    if PATTERNS.time.is_match(text) {
        return "<time>".into();
    }
    if PATTERNS.age.is_match(text) {
        return "<age>".into();
    }
    PATTERNS
        .replaced
        .iter()
        .fold(text.to_owned(), |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}
