//! Nodes, classes, budgets, autoscalers, events and typed secrets.

use serde_json::Value;

use super::{each, network, one_of, text};
use crate::meta;
use crate::names;
use crate::status::Cause;

/// The highest priority of user-defined classes.
const HIGHEST: i64 = 1_000_000_000;

pub(super) fn node(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    for (index, taint) in each(spec, "taints").into_iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let (key, value) = (text(taint, "key"), text(taint, "value"));
        if let Some(why) = names::qualified_name_complaint(key) {
            causes.push(Cause::invalid(format!("{at}.key"), &key.into(), &why));
        }
        if let Some(why) = names::label_value_complaint(value) {
            causes.push(Cause::invalid(format!("{at}.value"), &value.into(), &why));
        }
        match text(taint, "effect") {
            "" => causes.push(Cause::required(format!("{at}.effect"), "")),
            _ => one_of(taint, "effect", &at, &["NoSchedule", "PreferNoSchedule", "NoExecute"], causes),
        }
    }
    let block = text(spec, "podCIDR");
    if !block.is_empty() && !network::is_block(block) {
        causes.push(Cause::invalid("spec.podCIDRs[0]", &block.into(), network::NO_BLOCK));
    }
}

pub(super) fn priority_class(object: &Value, causes: &mut Vec<Cause>) {
    const SYSTEM: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
    let name = meta::name(object);
    if name.starts_with("system-") {
        if !SYSTEM.contains(&name) {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            causes.push(Cause::forbidden("metadata.name", &why));
        }
    } else if object.get("value").and_then(Value::as_i64).unwrap_or_default() > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        causes.push(Cause::forbidden("value", &why));
    }
    let policy = text(object, "preemptionPolicy");
    const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        causes.push(Cause::unsupported("preemptionPolicy", &policy.into(), &POLICIES));
    }
}

pub(super) fn runtime_class(object: &Value, causes: &mut Vec<Cause>) {
    let handler = text(object, "handler");
    if let Some(why) = names::label_complaint(handler) {
        causes.push(Cause::invalid("handler", &handler.into(), &why));
    }
}

pub(super) fn budget(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let of = |field: &str| spec.get(field).filter(|v| !v.is_null());
    if let (Some(least), Some(most)) = (of("minAvailable"), of("maxUnavailable")) {
        let selector = of("selector").map_or("null".to_owned(), Value::to_string);
        let message = format!(
            "Invalid value: {{\"MinAvailable\":{least},\"Selector\":{selector},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}: minAvailable and maxUnavailable cannot be both set",
            of("unhealthyPodEvictionPolicy").map_or("null".to_owned(), Value::to_string)
        );
        causes.push(Cause { reason: "FieldValueInvalid", message, field: "spec".into() });
    }
    for field in ["minAvailable", "maxUnavailable"] {
        match of(field) {
            Some(number @ Value::Number(n)) if n.as_i64().is_some_and(|n| n < 0) => {
                causes.push(Cause::invalid(format!("spec.{field}"), number, "must be greater than or equal to 0"));
            }
            Some(Value::String(share)) => match share.strip_suffix('%').and_then(|n| n.parse::<u32>().ok()) {
                None => causes.push(Cause::invalid(
                    format!("spec.{field}"),
                    &share.as_str().into(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )),
                Some(percent) if percent > 100 => causes.push(Cause::invalid(
                    format!("spec.{field}"),
                    &share.as_str().into(),
                    "must not be greater than 100%",
                )),
                Some(_) => {}
            },
            _ => {}
        }
    }
    one_of(spec, "unhealthyPodEvictionPolicy", "spec", &["AlwaysAllow", "IfHealthyBudget"], causes);
}

pub(super) fn autoscaler(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    if let Some(least) = number("minReplicas").filter(|n| *n < 1) {
        causes.push(Cause::invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 1"));
    }
    let most = number("maxReplicas").unwrap_or_default();
    if most < 1 {
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), "must be greater than 0"));
    }
    if number("minReplicas").is_some_and(|least| most < least) {
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), "must be greater than or equal to `minReplicas`"));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    for field in ["kind", "name"] {
        if text(target, field).is_empty() {
            causes.push(Cause::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
    if text(target, "apiVersion").is_empty() {
        causes.push(Cause::invalid("spec.scaleTargetRef.apiVersion", &"".into(), "apiVersion must specify API group"));
    }
}

/// An event is in the namespace of its object; cluster-scoped objects use `default`.
pub(super) fn event(object: &Value, new: bool, causes: &mut Vec<Cause>) {
    let (field, subject) = match object.get("regarding") {
        Some(subject) => ("regarding", subject),
        None => ("involvedObject", object.get("involvedObject").unwrap_or(&Value::Null)),
    };
    let (own, about) = (meta::namespace(object), text(subject, "namespace"));
    if about.is_empty() {
        if own != "default" && own != "kube-system" {
            causes.push(Cause::invalid(format!("{field}.namespace"), &"".into(), "does not match event.namespace"));
        }
    } else if about != own {
        causes.push(Cause::invalid("involvedObject.namespace", &about.into(), "does not match event.namespace"));
    }
    if !new {
        return;
    }
    if object.get("eventTime").is_none_or(Value::is_null) {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &kind.into(), &format!("has invalid value: {kind}")));
    }
}

/// Secret types that require certain keys.
pub(super) fn secret(object: &Value, causes: &mut Vec<Cause>) {
    let data = object.get("data").and_then(Value::as_object);
    let has = |key: &str| data.is_some_and(|d| d.contains_key(key));
    let mut needs = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            causes.push(Cause::required(format!("data[{key}]"), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => needs(&["ssh-privatekey"]),
        "kubernetes.io/dockerconfigjson" => needs(&[".dockerconfigjson"]),
        "kubernetes.io/dockercfg" => needs(&[".dockercfg"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => needs(&["username", "password"]),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let named = object.pointer("/metadata/annotations").and_then(|a| a.get(key)).and_then(Value::as_str);
            if named.is_none_or(str::is_empty) {
                causes.push(Cause::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        _ => {}
    }
}
