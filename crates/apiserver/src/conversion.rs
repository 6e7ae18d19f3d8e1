//! Converts objects between the stored form and the version a request asked for.
//!
//! There are two cases: custom resources with several versions and no conversion, where only `apiVersion` differs, and events, whose
//! fields have other names in `events.k8s.io`.

use std::borrow::Cow;

use serde_json::Value;

use crate::kinds::Kind;

/// Field names of core events and of `events.k8s.io` events.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn is_event_view(kind: &Kind) -> bool {
    kind.is("events.k8s.io", "events")
}

/// Whether objects stored with this `apiVersion` must be converted for this kind.
pub(crate) fn differs(kind: &Kind, stored: &str) -> bool {
    match stored.split_once('/') {
        Some((group, version)) => group != &*kind.group || version != &*kind.version,
        None => !kind.group.is_empty() || stored != &*kind.version,
    }
}

/// A stored object as this kind.
pub(crate) fn read<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    if !differs(kind, stored.get("apiVersion").and_then(Value::as_str).unwrap_or_default()) {
        return Cow::Borrowed(stored);
    }
    let mut object = stored.clone();
    if is_event_view(kind) {
        rename(&mut object, |(core, view)| (core, view));
        if let Some(map) = object.as_object_mut() {
            // Always printed in the core group, omitted when empty in this one.
            map.retain(|key, value| {
                !(matches!(key.as_str(), "reportingController" | "reportingInstance" | "note") && value == "")
            });
        }
    }
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = (*kind.kind).into();
    Cow::Owned(object)
}

/// An object of this kind in its stored form.
pub(crate) fn write(kind: &Kind, mut object: Value) -> Value {
    if is_event_view(kind) {
        rename(&mut object, |(core, view)| (view, core));
        object["apiVersion"] = "v1".into();
        if let Some(map) = object.as_object_mut() {
            for field in ["reportingComponent", "reportingInstance"] {
                map.entry(field).or_insert_with(|| "".into());
            }
        }
    } else if let Some(custom) = &kind.custom {
        object["apiVersion"] = format!("{}/{}", kind.group, custom.storage_version).into();
    }
    object
}

fn rename(object: &mut Value, order: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Value::Object(map) = object else { return };
    for pair in EVENT_FIELDS {
        let (from, to) = order(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}
