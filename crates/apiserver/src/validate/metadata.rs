//! Names, labels, annotations, owners and finalizers.

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::meta;
use crate::names;
use crate::status::Cause;

/// The maximum size of an object's annotations.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "foregroundDeletion", "orphan"];

pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    let base = meta::text(object, "/metadata/generateName");
    if !base.is_empty()
        && let Some(complaint) = name_complaint(kind, base.trim_end_matches('-'))
    {
        causes.push(Cause::invalid("metadata.generateName", &base.into(), &complaint));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(complaint) = name_complaint(kind, name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), &complaint));
    }
    for (key, value) in object.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        labels(key, value.as_str().unwrap_or_default(), "metadata.labels", &mut causes);
    }
    annotations(object, &mut causes);
    owners(object, &mut causes);
    let finalizers = meta::finalizers(object);
    for finalizer in &finalizers {
        if let Some(complaint) = names::qualified_name_complaint(finalizer) {
            causes.push(Cause::invalid("metadata.finalizers", &(*finalizer).into(), &complaint));
        }
    }
    // Custom resource definitions have a built-in finalizer without a slash.
    let strict = kind.custom.is_none() && &*kind.group != "apiextensions.k8s.io";
    for (index, finalizer) in finalizers.iter().enumerate() {
        if strict && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer) {
            causes.push(Cause::invalid(
                format!("metadata.finalizers[{index}]"),
                &(*finalizer).into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}

pub(super) fn labels(key: &str, value: &str, path: &str, causes: &mut Vec<Cause>) {
    if let Some(complaint) = names::qualified_name_complaint(key) {
        causes.push(Cause::invalid(path, &key.into(), &complaint));
    }
    if let Some(complaint) = names::label_value_complaint(value) {
        causes.push(Cause::invalid(path, &value.into(), &complaint));
    }
}

fn annotations(object: &Value, causes: &mut Vec<Cause>) {
    let mut total = 0;
    for (key, value) in object.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten() {
        // Annotation keys are validated in lower case.
        if let Some(complaint) = names::qualified_name_complaint(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &key.as_str().into(), &complaint));
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
}

fn owners(object: &Value, causes: &mut Vec<Cause>) {
    let mut controllers = Vec::new();
    for owner in object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        let path = "metadata.ownerReferences";
        for (field, words) in [("apiVersion", "version must not be empty"), ("kind", ""), ("name", ""), ("uid", "")] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                causes.push(Cause::invalid(
                    format!("{path}.{field}"),
                    &"".into(),
                    if words.is_empty() { "must not be empty" } else { words },
                ));
            }
        }
        if owner.get("controller").is_some_and(|c| c == true) {
            controllers.push(owner);
        }
    }
    if controllers.len() > 1 {
        let shown = object.pointer("/metadata/ownerReferences").cloned().unwrap_or_default();
        let both = |o: &Value| format!("{}/{}", meta::text(o, "/kind"), meta::text(o, "/name"));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            both(controllers[0]),
            both(controllers[1])
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &shown, &detail));
    }
}

fn name_complaint(kind: &Kind, name: &str) -> Option<String> {
    match (&*kind.group, &*kind.resource) {
        ("", "services") => names::dns1035_complaint(name),
        ("", "namespaces") => names::label_complaint(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment_complaint(name),
        _ => names::subdomain_complaint(name),
    }
}

pub(super) fn check_update(old: &Value, next: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if meta::deleting(old) {
        let held = meta::finalizers(old);
        let added: Vec<&str> = meta::finalizers(next).into_iter().filter(|f| !held.contains(f)).collect();
        if !added.is_empty() {
            let shown: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let cause = Cause::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    shown.join(", ")
                ),
            );
            // Reported twice: once for all objects, once by the kind.
            causes.extend([cause.clone(), cause]);
        }
    }
    for field in ["name", "namespace"] {
        let pointer = format!("/metadata/{field}");
        if meta::text(old, &pointer) != meta::text(next, &pointer) {
            causes.push(Cause::invalid(
                format!("metadata.{field}"),
                &json!(meta::text(next, &pointer)),
                "field is immutable",
            ));
        }
    }
    causes
}
