//! Limit ranges and resource quotas.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{each, text};
use crate::quantity::{self, Quantity};
use crate::status::Cause;

/// What a quota can count without a prefix.
const COUNTED: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

fn amounts(item: &Value, field: &str) -> BTreeMap<String, (Quantity, String)> {
    let given = item.get(field).and_then(Value::as_object).into_iter().flatten();
    given
        .filter_map(|(name, amount)| {
            let shown = amount.as_str()?;
            Some((name.clone(), (quantity::parse(shown).ok()?, shown.to_owned())))
        })
        .collect()
}

pub(super) fn limit_range(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut seen = BTreeSet::new();
    for (index, item) in each(spec, "limits").into_iter().enumerate() {
        let at = format!("spec.limits[{index}]");
        let kind = text(item, "type");
        if !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") && !kind.contains('/') {
            causes.push(Cause::invalid(
                format!("{at}.type"),
                &kind.into(),
                "must be a standard limit type or fully qualified",
            ));
        }
        if !seen.insert(kind) {
            causes.push(Cause::duplicate(format!("{at}.type"), &kind.into()));
        }
        let pod = kind == "Pod";
        let of = |field: &str| if pod && field.starts_with("default") { BTreeMap::new() } else { amounts(item, field) };
        for field in ["default", "defaultRequest"] {
            if pod && item.get(field).and_then(Value::as_object).is_some_and(|m| !m.is_empty()) {
                causes.push(Cause::forbidden(format!("{at}.{field}"), "may not be specified when `type` is 'Pod'"));
            }
        }
        let (min, max, usual, request) = (of("min"), of("max"), of("default"), of("defaultRequest"));
        if kind == "PersistentVolumeClaim" && !min.contains_key("storage") && !max.contains_key("storage") {
            causes.push(Cause::required(
                format!("{at}.limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            ));
        }
        let mut above = |field: &str, shown: &str, low: (&str, &str), high: (&str, &str), resource: &str| {
            let why = format!("{} value {} is greater than {} value {}", low.0, low.1, high.0, high.1);
            causes.push(Cause::invalid(format!("{at}.{field}[{resource}]"), &shown.into(), &why));
        };
        let names: BTreeSet<&String> = min.keys().chain(max.keys()).chain(usual.keys()).chain(request.keys()).collect();
        for name in names {
            let pair = |a: &BTreeMap<String, (Quantity, String)>, b: &BTreeMap<String, (Quantity, String)>| {
                let (a, b) = (a.get(name)?, b.get(name)?);
                (a.0 > b.0).then(|| (a.1.clone(), b.1.clone()))
            };
            if let Some((a, b)) = pair(&min, &max) {
                above("min", &a, ("min", &a), ("max", &b), name);
            }
            if let Some((a, b)) = pair(&min, &request) {
                above("defaultRequest", &b, ("min", &a), ("default request", &b), name);
            }
            if let Some((a, b)) = pair(&request, &max) {
                above("defaultRequest", &a, ("default request", &a), ("max", &b), name);
            }
            if let Some((a, b)) = pair(&request, &usual) {
                above("defaultRequest", &a, ("default request", &a), ("default limit", &b), name);
            }
            if let Some((a, b)) = pair(&min, &usual) {
                above("default", &a, ("min", &a), ("default", &b), name);
            }
            if let Some((a, b)) = pair(&usual, &max) {
                above("default", &b, ("default", &a), ("max", &b), name);
            }
        }
    }
}

pub(super) fn quota(object: &Value, causes: &mut Vec<Cause>) {
    let hard = object.pointer("/spec/hard").and_then(Value::as_object);
    for (name, amount) in hard.into_iter().flatten() {
        let field = format!("spec.hard[{name}]");
        let standard = COUNTED.contains(&name.as_str()) || name.starts_with("hugepages-");
        if !name.contains('/') && !standard {
            let dotted = name.starts_with("requests.") || name.starts_with("limits.");
            if !dotted {
                causes.push(Cause::invalid(
                    field.clone(),
                    &name.as_str().into(),
                    "must be a standard resource type or fully qualified",
                ));
            }
            causes.push(Cause::invalid(field.clone(), &name.as_str().into(), "must be a standard resource for quota"));
        }
        let parsed = amount.as_str().and_then(|a| quantity::parse(a).ok());
        if parsed.is_some_and(|q| q < Quantity::ZERO) {
            causes.push(Cause::invalid(field, amount, "must be greater than or equal to 0"));
        }
    }
    let scopes = object.pointer("/spec/scopes").cloned().unwrap_or_default();
    let given: Vec<&str> = scopes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for scope in &given {
        if !SCOPES.contains(scope) {
            causes.push(Cause::invalid("spec.scopes", &scopes, "unsupported scope"));
        }
    }
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| given.contains(scope)) {
            causes.push(Cause::invalid("spec.scopes", &scopes, "conflicting scopes"));
        }
    }
}
