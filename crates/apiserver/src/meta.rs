//! Accessors for `metadata` of JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

pub(crate) fn labels(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/labels").and_then(Value::as_object)
}

pub(crate) fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// `metadata`, created if it is missing or not an object.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    child(object, "metadata")
}

/// The object under `key`, created if it is missing or not an object.
pub(crate) fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = match object {
        Value::Object(map) => map.entry(key.to_owned()).or_insert_with(|| json!({})),
        other => other,
    };
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("invariant: slot was just made an object"),
    }
}

pub(crate) fn set_resource_version(object: &mut Value, revision: u64) {
    of(object).insert("resourceVersion".into(), revision.to_string().into());
}

/// The time format of `metav1.Time`: whole seconds, UTC.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time format of `metav1.MicroTime`.
pub(crate) fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

pub(crate) fn now() -> String {
    seconds(Timestamp::now())
}

/// Characters of generated names: no vowels, so that no words appear, and no look-alikes.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn random_suffix() -> String {
    use rand::Rng as _;
    let mut rng = rand::rng();
    (0..5).map(|_| char::from(NAME_ALPHABET[rng.random_range(0..NAME_ALPHABET.len())])).collect()
}

/// The generated name for `generateName`: the base is truncated to 63 characters in total.
pub(crate) fn generated_name(base: &str) -> String {
    const LONGEST_BASE: usize = 63 - 5;
    let mut end = base.len().min(LONGEST_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], random_suffix())
}
