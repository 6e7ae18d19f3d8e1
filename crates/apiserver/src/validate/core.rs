//! Services, ConfigMaps, Secrets, claims, roles and the like.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Differences, PORT_RANGE, each, one_of, text};
use crate::meta;
use crate::names;
use crate::status::Cause;

/// The maximum size of a ConfigMap's or Secret's data.
const DATA_LIMIT: usize = 1024 * 1024;

pub(super) fn service(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if !super::network::cluster_address(spec, causes) {
        return;
    }
    let kind = text(spec, "type");
    let ports = each(spec, "ports");
    if ports.is_empty() && text(spec, "clusterIP") != "None" && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(spec, "externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let (mut seen_names, mut seen_ports) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                causes.push(Cause::required(format!("{at}.name"), ""));
            }
        } else if let Some(why) = names::label_complaint(name) {
            causes.push(Cause::invalid(format!("{at}.name"), &name.into(), &why));
        } else if !seen_names.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(format!("{at}.port"), &number.into(), PORT_RANGE));
        }
        one_of(port, "protocol", &at, &["SCTP", "TCP", "UDP"], causes);
        match port.get("targetPort") {
            Some(Value::Number(target)) if !target.as_i64().is_some_and(|t| (1..=65535).contains(&t)) => {
                causes.push(Cause::invalid(format!("{at}.targetPort"), &Value::Number(target.clone()), PORT_RANGE));
            }
            Some(Value::String(target)) => {
                if let Some(why) = names::port_name_complaint(target) {
                    causes.push(Cause::invalid(format!("{at}.targetPort"), &target.as_str().into(), &why));
                }
            }
            _ => {}
        }
        if !seen_ports.insert((number, text(port, "protocol"))) {
            causes.push(Cause::duplicate(at, port));
        }
    }
    one_of(spec, "type", "spec", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], causes);
    one_of(spec, "sessionAffinity", "spec", &["ClientIP", "None"], causes);
    for (key, value) in spec.get("selector").and_then(Value::as_object).into_iter().flatten() {
        super::metadata::labels(key, value.as_str().unwrap_or_default(), "spec.selector", causes);
    }
}

/// Only load balancers have external addresses.
pub(super) fn service_status(object: &Value, causes: &mut Vec<Cause>) {
    let given = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if given && meta::text(object, "/spec/type") != "LoadBalancer" {
        causes.push(Cause::forbidden(
            "status.loadBalancer.ingress",
            "may only be used when `spec.type` is 'LoadBalancer'",
        ));
    }
}

pub(super) fn service_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let kind = |o: &Value| meta::text(o, "/spec/type").to_owned();
    let (before, after) = (meta::text(old, "/spec/clusterIP"), meta::text(next, "/spec/clusterIP"));
    if kind(old) != "ExternalName" && kind(next) != "ExternalName" && !before.is_empty() && before != after {
        causes.push(Cause::invalid("spec.clusterIPs[0]", &serde_json::json!([after]), "may not change once set"));
    }
}

/// Validates the keys and size of a ConfigMap or Secret.
pub(super) fn data(object: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    let mut total = 0;
    let mut seen = BTreeSet::new();
    for field in fields {
        for (key, value) in object.get(*field).and_then(Value::as_object).into_iter().flatten() {
            if let Some(why) = names::config_key_complaint(key) {
                causes.push(Cause::invalid(format!("{field}[{key}]"), &key.as_str().into(), &why));
            }
            if !seen.insert(key) {
                causes.push(Cause::invalid(
                    format!("data[{key}]"),
                    &key.as_str().into(),
                    "duplicate of key present in binaryData",
                ));
            }
            total += value.as_str().map_or(0, str::len);
        }
    }
    if total > DATA_LIMIT {
        let field = if fields.contains(&"binaryData") { "" } else { "data" };
        causes.push(Cause::too_long(field, DATA_LIMIT));
    }
}

pub(super) fn frozen(old: &Value, next: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    if !old.get("immutable").is_some_and(|i| i == true) {
        return;
    }
    const WORDS: &str = "field is immutable when `immutable` is set";
    if !next.get("immutable").is_some_and(|i| i == true) {
        causes.push(Cause::forbidden("immutable", WORDS));
    }
    for field in fields {
        if old.get(*field) != next.get(*field) {
            causes.push(Cause::forbidden(*field, WORDS));
        }
    }
}

pub(super) fn roles(object: &Value, cluster: bool, causes: &mut Vec<Cause>) {
    for (index, rule) in each(object, "rules").into_iter().enumerate() {
        let at = format!("rules[{index}]");
        let filled = |field: &str| rule.get(field).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
        if !filled("verbs") {
            causes.push(Cause::required(format!("{at}.verbs"), "verbs must contain at least one value"));
        }
        if filled("nonResourceURLs") {
            if !cluster {
                causes.push(Cause::invalid(
                    format!("{at}.nonResourceURLs"),
                    rule.get("nonResourceURLs").unwrap_or(&Value::Null),
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if filled("apiGroups") || filled("resources") || filled("resourceNames") {
                causes.push(Cause::invalid(
                    format!("{at}.nonResourceURLs"),
                    rule.get("nonResourceURLs").unwrap_or(&Value::Null),
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if !filled("apiGroups") {
            causes
                .push(Cause::required(format!("{at}.apiGroups"), "resource rules must supply at least one api group"));
        }
        if !filled("resources") {
            causes.push(Cause::required(format!("{at}.resources"), "resource rules must supply at least one resource"));
        }
    }
}

pub(super) fn binding(object: &Value, cluster: bool, causes: &mut Vec<Cause>) {
    let role = object.get("roleRef").unwrap_or(&Value::Null);
    let kinds: &[&str] = if cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
    if text(role, "apiGroup") != "rbac.authorization.k8s.io" {
        causes.push(Cause::unsupported(
            "roleRef.apiGroup",
            &text(role, "apiGroup").into(),
            &["rbac.authorization.k8s.io"],
        ));
    }
    if !kinds.contains(&text(role, "kind")) {
        causes.push(Cause::unsupported("roleRef.kind", &text(role, "kind").into(), kinds));
    }
    if text(role, "name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in each(object, "subjects").into_iter().enumerate() {
        let at = format!("subjects[{index}]");
        if text(subject, "name").is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if text(subject, "namespace").is_empty() && cluster {
                    causes.push(Cause::required(format!("{at}.namespace"), ""));
                }
            }
            "User" | "Group" => {}
            other => causes.push(Cause::unsupported(
                format!("{at}.kind"),
                &other.into(),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

pub(super) fn binding_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    if old.get("roleRef") != next.get("roleRef") {
        let role = next.get("roleRef").unwrap_or(&Value::Null);
        let shown = serde_json::json!({"APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name")});
        causes.push(Cause::invalid("roleRef", &shown, "cannot change roleRef"));
    }
}

pub(super) fn lease(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if let Some(value) = spec.get("leaseDurationSeconds").filter(|v| v.as_i64().is_some_and(|v| v <= 0)) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
    }
    if let Some(value) = spec.get("leaseTransitions").filter(|v| v.as_i64().is_some_and(|v| v < 0)) {
        causes.push(Cause::invalid("spec.leaseTransitions", value, "must be greater than or equal to 0"));
    }
}

pub(super) fn priority_class_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    if old.get("value") != next.get("value") {
        causes.push(Cause::forbidden("value", "may not be changed in an update."));
    }
}

pub(super) fn secret_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    Differences { old, next }.immutable("/type", "type", causes);
}
