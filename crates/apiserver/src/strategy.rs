//! Per-kind strategies before storing: which fields a create or update may set, and what the server fills in beyond plain defaults.

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::meta;
use crate::state::State;
use crate::status::ApiResult;

/// Kinds for which PUT creates missing objects.
pub(crate) fn creates_on_update(kind: &Kind) -> bool {
    matches!(
        (&*kind.group, &*kind.resource),
        ("", "endpoints" | "events" | "limitranges" | "services" | "podtemplates")
            | ("events.k8s.io", "events")
            | ("coordination.k8s.io", "leases")
            | ("rbac.authorization.k8s.io", _)
            | ("node.k8s.io", "runtimeclasses")
            | ("discovery.k8s.io", "endpointslices")
            | ("admissionregistration.k8s.io", _)
    ) && !kind.is("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
        && !kind.is("admissionregistration.k8s.io", "validatingwebhookconfigurations")
        && !kind.is("admissionregistration.k8s.io", "validatingadmissionpolicies")
        && !kind.is("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
        && !kind.is("discovery.k8s.io", "endpointslices")
}

/// Kinds for which PUT without `resourceVersion` overwrites.
pub(crate) fn unconditional_update(kind: &Kind) -> bool {
    if kind.custom.is_some() {
        return false;
    }
    !matches!(
        (&*kind.group, &*kind.resource),
        ("apiextensions.k8s.io", _)
            | ("coordination.k8s.io", "leases")
            | ("policy", "poddisruptionbudgets")
            | ("scheduling.k8s.io", _)
            | ("admissionregistration.k8s.io", _)
            | ("storage.k8s.io", "csidrivers" | "csinodes" | "volumeattachments")
    )
}

pub(crate) fn prepare_create(state: &State, kind: &Kind, object: &mut Value) -> ApiResult<()> {
    let _ = state;
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => {
            let class = crate::pods::qos_class(object);
            object["status"] = json!({"phase": "Pending", "qosClass": class});
            crate::pods::mark_gated(object);
        }
        ("", "namespaces") => {
            let name = meta::name(object).to_owned();
            object["status"] = json!({"phase": "Active"});
            let spec = meta::child(object, "spec");
            let held = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
            if !held.iter().any(|f| f == "kubernetes") {
                let mut held = held;
                held.push("kubernetes".into());
                spec.insert("finalizers".into(), held.into());
            }
            label(object, "kubernetes.io/metadata.name", &name);
        }
        ("", "persistentvolumeclaims") => object["status"] = json!({"phase": "Pending"}),
        ("", "persistentvolumes") => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": meta::now()});
        }
        ("", "services") => object["status"] = json!({"loadBalancer": {}}),
        // A node registers itself with its status.
        ("", "nodes") => {}
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::crd::prepare_create(object),
        ("batch", "jobs") => {
            object["status"] = json!({});
            crate::defaults::job_labels(object);
            if meta::labels(object).is_none_or(serde_json::Map::is_empty)
                && let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned()
            {
                meta::of(object).insert("labels".into(), labels);
            }
        }
        _ if kind.custom.is_some() => {
            if kind.status
                && let Some(map) = object.as_object_mut()
            {
                map.remove("status");
            }
        }
        _ if kind.status => object["status"] = empty_status(kind),
        _ => {}
    }
    Ok(())
}

/// The status of a new object, as Go prints it.
fn empty_status(kind: &Kind) -> Value {
    let mut status = json!({"status": {}});
    if let Some(schema) = kind.schema.and_then(crate::schema::built_in) {
        crate::decode::fill(schema, &mut status);
    }
    if kind.is("autoscaling", "horizontalpodautoscalers") {
        status["status"]["currentMetrics"] = Value::Null;
    }
    status["status"].take()
}

pub(crate) fn label(object: &mut Value, key: &str, value: &str) {
    let metadata = meta::of(object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[key] = value.into();
}

/// Keeps from `old` what this kind of update may not set.
pub(crate) fn prepare_update(kind: &Kind, subresource: &str, old: &Value, next: &mut Value) {
    let status_apart = kind.status;
    match subresource {
        "" if kind.is("certificates.k8s.io", "certificatesigningrequests") => {
            // The requested state stays as requested.
            copy(old, next, "spec");
            copy(old, next, "status");
        }
        "" if status_apart => copy(old, next, "status"),
        "" => {}
        "status" => {
            let status = next.get("status").cloned();
            let sent_metadata = next.get("metadata").cloned().unwrap_or_default();
            *next = old.clone();
            match status {
                Some(status) => {
                    next["status"] = status;
                    if let Some(class) = old.pointer("/status/qosClass").filter(|_| kind.is("", "pods")) {
                        next["status"]["qosClass"] = class.clone();
                    }
                }
                None => {
                    if let Some(map) = next.as_object_mut() {
                        map.remove("status");
                    }
                }
            }
            let metadata = meta::of(next);
            let follows = if kind.custom.is_some() || &*kind.group == "apps" || &*kind.group == "batch" {
                &["managedFields"][..]
            } else {
                &["managedFields", "labels", "annotations", "finalizers"][..]
            };
            for field in follows {
                match sent_metadata.get(*field) {
                    Some(value) => metadata.insert((*field).to_owned(), value.clone()),
                    None => metadata.remove(*field),
                };
            }
        }
        "finalize" => {
            let finalizers = next.pointer("/spec/finalizers").cloned();
            *next = old.clone();
            let spec = meta::child(next, "spec");
            match finalizers {
                Some(list) => spec.insert("finalizers".into(), list),
                None => spec.remove("finalizers"),
            };
        }
        "approval" => {
            let decided = next.pointer("/status/conditions").cloned().unwrap_or_default();
            copy(old, next, "spec");
            copy(old, next, "status");
            meta::child(next, "status").insert("conditions".into(), decided);
        }
        "ephemeralcontainers" => {
            let list = next.pointer("/spec/ephemeralContainers").cloned();
            *next = old.clone();
            if let Some(list) = list {
                meta::child(next, "spec").insert("ephemeralContainers".into(), list);
            }
        }
        "resize" => {
            let containers = next.pointer("/spec/containers").cloned();
            *next = old.clone();
            if let Some(containers) = containers {
                meta::child(next, "spec").insert("containers".into(), containers);
            }
        }
        _ => {}
    }
    if kind.is("certificates.k8s.io", "certificatesigningrequests") && matches!(subresource, "status" | "approval") {
        date_conditions(old, next);
    }
    if kind.is("", "namespaces") && subresource != "finalize" {
        let finalizers = old.pointer("/spec/finalizers").cloned();
        let spec = meta::child(next, "spec");
        match finalizers {
            Some(list) => spec.insert("finalizers".into(), list),
            None => spec.remove("finalizers"),
        };
    }
    if kind.is("", "services") {
        crate::service_allocators::keep_addresses(old, next);
    }
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") && subresource.is_empty() {
        crate::crd::prepare_update(old, next);
    }
}

/// Fills in the times of conditions that the client left out.
fn date_conditions(old: &Value, next: &mut Value) {
    let before = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = next.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|c| c.is_object()) {
        let same = |c: &&Value| ["type", "status"].iter().all(|field| c.get(*field) == condition.get(*field));
        let since = before.iter().find(same).and_then(|c| c.get("lastTransitionTime")).filter(|t| !t.is_null());
        let since = since.cloned().unwrap_or_else(|| meta::now().into());
        for (field, value) in [("lastUpdateTime", meta::now().into()), ("lastTransitionTime", since)] {
            if condition.get(field).is_none_or(Value::is_null) {
                condition[field] = value;
            }
        }
    }
}

fn copy(old: &Value, next: &mut Value, field: &str) {
    let Some(map) = next.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Allocates unique values last, when nothing else can reject the object.
pub(crate) fn allocate(state: &State, kind: &Kind, object: &mut Value, dry_run: bool) -> ApiResult<()> {
    if kind.is("", "services") {
        crate::service_allocators::allocate(state, object, dry_run)?;
    }
    Ok(())
}

pub(crate) fn reallocate(state: &State, kind: &Kind, old: &Value, next: &mut Value, dry_run: bool) -> ApiResult<()> {
    if kind.is("", "services") && old.get("spec") != next.get("spec") {
        crate::service_allocators::allocate(state, next, dry_run)?;
    }
    Ok(())
}

/// An object without finalizers that something else still holds.
pub(crate) fn waits_for_more(kind: &Kind, object: &Value) -> bool {
    if kind.is("", "namespaces") {
        return object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
    }
    object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s > 0)
}
