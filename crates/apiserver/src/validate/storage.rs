//! Claims, volumes and storage classes.

use serde_json::Value;

use super::{one_of, text};
use crate::names;
use crate::quantity::{self, Quantity};
use crate::status::Cause;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
/// Fields of a volume's spec that are not its source.
const ABOUT: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

fn modes(spec: &Value, missing: &str, causes: &mut Vec<Cause>) {
    let given: Vec<&Value> = spec.get("accessModes").and_then(Value::as_array).into_iter().flatten().collect();
    if given.is_empty() {
        causes.push(Cause::required("spec.accessModes", missing));
    }
    for mode in &given {
        if !mode.as_str().is_some_and(|m| MODES.contains(&m)) {
            causes.push(Cause::unsupported("spec.accessModes", mode, &MODES));
        }
    }
    if given.len() > 1 && given.iter().any(|m| *m == "ReadWriteOncePod") {
        causes.push(Cause::forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes"));
    }
}

fn class_name(spec: &Value, causes: &mut Vec<Cause>) {
    let class = text(spec, "storageClassName");
    if let Some(why) = names::subdomain_complaint(class).filter(|_| !class.is_empty()) {
        causes.push(Cause::invalid("spec.storageClassName", &class.into(), &why));
    }
}

pub(super) fn claim(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    modes(spec, "at least 1 access mode is required", causes);
    match spec.pointer("/resources/requests/storage").and_then(Value::as_str) {
        None => causes.push(Cause::required("spec.resources[storage]", "")),
        Some(shown) => {
            if quantity::parse(shown).is_ok_and(|q| q <= Quantity::ZERO) {
                causes.push(Cause::invalid("spec.resources[storage]", &shown.into(), "must be greater than zero"));
            }
        }
    }
    class_name(spec, causes);
    one_of(spec, "volumeMode", "spec", &VOLUME_MODES, causes);
}

/// Of a bound claim, only the request may grow; the volume name is set once.
pub(super) fn claim_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            map.remove("volumeAttributesClassName");
            if object.pointer("/spec/volumeName").and_then(Value::as_str).is_none_or(str::is_empty)
                || old.pointer("/spec/volumeName").and_then(Value::as_str).is_none_or(str::is_empty)
            {
                map.remove("volumeName");
            }
        }
        if let Some(requests) = spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut)
            && old.pointer("/status/phase").is_some_and(|p| p == "Bound")
        {
            requests.remove("storage");
        }
        spec
    };
    if fixed(old) != fixed(next) {
        causes.push(Cause::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let size = |object: &Value| {
        object
            .pointer("/spec/resources/requests/storage")
            .and_then(Value::as_str)
            .and_then(|text| quantity::parse(text).ok())
    };
    let real = old.pointer("/status/capacity/storage").and_then(Value::as_str).and_then(|t| quantity::parse(t).ok());
    if size(next) < size(old) && (real.is_none() || size(next) <= real) {
        causes.push(Cause::forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"));
    }
}

fn source(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields.filter(|(name, value)| !ABOUT.contains(&name.as_str()) && value.is_object()).collect()
}

pub(super) fn volume(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    modes(spec, "", causes);
    let capacity = spec.get("capacity").and_then(Value::as_object).filter(|c| !c.is_empty());
    if capacity.is_none() {
        causes.push(Cause::required("spec.capacity", ""));
    }
    if !capacity.is_some_and(|c| c.contains_key("storage") && c.len() == 1) {
        let shown = spec.get("capacity").cloned().unwrap_or_default();
        causes.push(Cause::unsupported("spec.capacity", &shown, &["storage"]));
    }
    for (resource, amount) in capacity.into_iter().flatten() {
        if amount.as_str().and_then(|a| quantity::parse(a).ok()).is_some_and(|q| q <= Quantity::ZERO) {
            causes.push(Cause::invalid(format!("spec.capacity[{resource}]"), amount, "must be greater than zero"));
        }
    }
    one_of(spec, "persistentVolumeReclaimPolicy", "spec", &["Delete", "Recycle", "Retain"], causes);
    let sources = source(spec);
    match sources.as_slice() {
        [] => causes.push(Cause::required("spec", "must specify a volume type")),
        [(name, of)] => {
            if matches!(name.as_str(), "hostPath" | "local") && text(of, "path").is_empty() {
                causes.push(Cause::required(format!("spec.{name}.path"), ""));
            }
            if name.as_str() == "local" && spec.pointer("/nodeAffinity/required").is_none() {
                causes.push(Cause::required("spec.nodeAffinity", "Local volume requires node affinity"));
            }
        }
        [_, rest @ ..] => causes.extend(
            rest.iter()
                .map(|(name, _)| Cause::forbidden(format!("spec.{name}"), "may not specify more than 1 volume type")),
        ),
    }
    class_name(spec, causes);
    one_of(spec, "volumeMode", "spec", &VOLUME_MODES, causes);
}

pub(super) fn volume_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let spec = |object: &Value| object.get("spec").cloned().unwrap_or_default();
    if source(&spec(old)) != source(&spec(next)) {
        causes.push(Cause::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    super::Differences { old, next }.immutable("/spec/volumeMode", "spec.volumeMode", causes);
}

pub(super) fn class(object: &Value, causes: &mut Vec<Cause>) {
    if text(object, "provisioner").is_empty() {
        causes.push(Cause::required("provisioner", ""));
    }
    for (field, options) in
        [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
    {
        let given = text(object, field);
        if !given.is_empty() && !options.contains(&given) {
            causes.push(Cause::unsupported(field, &given.into(), &options));
        }
    }
}

pub(super) fn class_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if old.get(field) != next.get(field) {
            causes.push(Cause::forbidden(field, &format!("updates to {field} are forbidden.")));
        }
    }
    super::Differences { old, next }.immutable("/volumeBindingMode", "volumeBindingMode", causes);
}
