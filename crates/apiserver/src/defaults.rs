//! Defaults of built-in kinds, as the real server stores them.

mod pod;
mod workload;

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::meta;

pub(crate) use workload::job_labels;

/// Sets a missing or null field.
fn set(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value.into());
    }
}

/// As [`set`]; an empty string counts as missing.
fn set_text(map: &mut Map<String, Value>, field: &str, value: &str) {
    if map.get(field).is_none_or(|v| v.is_null() || v == "") {
        map.insert(field.to_owned(), value.into());
    }
}

fn each<'a>(map: &'a mut Map<String, Value>, field: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn inner<'a>(map: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_object_mut)
}

pub(crate) fn apply(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() || !object.is_object() {
        return;
    }
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => pod::whole(meta::child(object, "spec")),
        ("", "podtemplates") => {
            if let Some(spec) = object.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
                pod::template(spec);
            }
        }
        ("apps" | "batch", _) | ("", "replicationcontrollers") => workload::apply(&kind.resource, object),
        ("", "namespaces") => {
            let name = meta::name(object).to_owned();
            if !name.is_empty() {
                crate::strategy::label(object, "kubernetes.io/metadata.name", &name);
            }
        }
        ("", "services") => service(object),
        ("", "secrets") => secret(object),
        ("", "persistentvolumeclaims") => set(meta::child(object, "spec"), "volumeMode", "Filesystem"),
        ("", "persistentvolumes") => {
            let spec = meta::child(object, "spec");
            set(spec, "persistentVolumeReclaimPolicy", "Retain");
            set(spec, "volumeMode", "Filesystem");
            if let Some(path) = inner(spec, "hostPath") {
                set(path, "type", "");
            }
        }
        ("", "endpoints") => {
            if let Some(map) = object.as_object_mut() {
                for subset in each(map, "subsets") {
                    each(subset, "ports").for_each(|port| set(port, "protocol", "TCP"));
                }
            }
        }
        ("", "limitranges") => limit_range(object),
        ("discovery.k8s.io", "endpointslices") => {
            if let Some(map) = object.as_object_mut() {
                for port in each(map, "ports") {
                    set(port, "name", "");
                    set(port, "protocol", "TCP");
                }
            }
        }
        // Always printed, even if empty.
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            if let Some(map) = object.as_object_mut()
                && map.get("rules").is_none_or(|r| r.as_array().is_some_and(Vec::is_empty))
            {
                map.insert("rules".into(), Value::Null);
            }
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(object),
        ("storage.k8s.io", "storageclasses") => {
            if let Some(map) = object.as_object_mut() {
                set(map, "reclaimPolicy", "Delete");
                set(map, "volumeBindingMode", "Immediate");
            }
        }
        ("storage.k8s.io", "csidrivers") => {
            let spec = meta::child(object, "spec");
            set(spec, "attachRequired", true);
            set(spec, "podInfoOnMount", false);
            set(spec, "storageCapacity", false);
            set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            set(spec, "volumeLifecycleModes", json!(["Persistent"]));
            set(spec, "requiresRepublish", false);
            set(spec, "seLinuxMount", false);
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            if let Some(map) = object.as_object_mut() {
                set(map, "preemptionPolicy", "PreemptLowerPriority");
            }
        }
        ("admissionregistration.k8s.io", _) => webhooks(object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::crd::defaults(object),
        ("autoscaling", "horizontalpodautoscalers") => {
            let spec = meta::child(object, "spec");
            set(spec, "minReplicas", 1);
            set(
                spec,
                "metrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
            );
        }
        ("networking.k8s.io", "networkpolicies") => network_policy(object),
        _ => {}
    }
}

fn service(object: &mut Value) {
    let spec = meta::child(object, "spec");
    set_text(spec, "sessionAffinity", "None");
    set_text(spec, "type", "ClusterIP");
    if spec.get("sessionAffinity").is_some_and(|a| a == "ClientIP") {
        set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    }
    let external = spec.get("type").is_some_and(|t| t == "NodePort" || t == "LoadBalancer");
    let internal = external || spec.get("type").is_some_and(|t| t == "ClusterIP");
    if external {
        set_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if internal {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec.get("type").is_some_and(|t| t == "LoadBalancer") {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
    for port in each(spec, "ports") {
        set_text(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_default();
        let unset = port.get("targetPort").is_none_or(|t| t.is_null() || *t == 0 || t == "");
        if unset {
            port.insert("targetPort".into(), number);
        }
    }
}

/// `stringData` is write-only: it is stored as base64 in `data`.
fn secret(object: &mut Value) {
    use base64::Engine as _;
    let Some(map) = object.as_object_mut() else { return };
    set_text(map, "type", "Opaque");
    let Some(Value::Object(plain)) = map.remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    let data = map.entry("data").or_insert_with(|| json!({}));
    if !data.is_object() {
        *data = json!({});
    }
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        data[&key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

fn binding(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    if let Some(role) = inner(map, "roleRef") {
        set_text(role, "apiGroup", "rbac.authorization.k8s.io");
    }
    for subject in each(map, "subjects") {
        if subject.get("kind").is_some_and(|k| k == "User" || k == "Group") {
            set_text(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

fn webhooks(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let mutating = map.get("kind").is_some_and(|k| k == "MutatingWebhookConfiguration");
    for hook in each(map, "webhooks") {
        set(hook, "failurePolicy", "Fail");
        set(hook, "matchPolicy", "Equivalent");
        set(hook, "namespaceSelector", json!({}));
        set(hook, "objectSelector", json!({}));
        set(hook, "timeoutSeconds", 10);
        if mutating {
            set(hook, "reinvocationPolicy", "Never");
        }
        each(hook, "rules").for_each(|rule| set(rule, "scope", "*"));
        if let Some(service) = inner(hook, "clientConfig").and_then(|c| inner(c, "service")) {
            set(service, "port", 443);
        }
    }
    if let Some(spec) = inner(map, "spec") {
        let constraints = if spec.contains_key("policyName") { "matchResources" } else { "matchConstraints" };
        if !spec.contains_key("policyName") {
            set(spec, "failurePolicy", "Fail");
        }
        if let Some(constraints) = inner(spec, constraints) {
            set(constraints, "matchPolicy", "Equivalent");
            set(constraints, "namespaceSelector", json!({}));
            set(constraints, "objectSelector", json!({}));
            for rules in ["resourceRules", "excludeResourceRules"] {
                each(constraints, rules).for_each(|rule| set(rule, "scope", "*"));
            }
        }
    }
}

fn limit_range(object: &mut Value) {
    let spec = meta::child(object, "spec");
    for item in each(spec, "limits") {
        if item.get("type").is_none_or(|t| t != "Container") {
            continue;
        }
        // Defaults derive from each other: max -> default -> defaultRequest, min -> defaultRequest.
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(source) = item.get(from).and_then(Value::as_object).cloned() else { continue };
            let target = item.entry(to).or_insert_with(|| json!({}));
            for (resource, amount) in source {
                if target.get(&resource).is_none() {
                    target[&resource] = amount;
                }
            }
        }
    }
}

fn network_policy(object: &mut Value) {
    let spec = meta::child(object, "spec");
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            each(rule, "ports").for_each(|port| set(port, "protocol", "TCP"));
        }
    }
}
