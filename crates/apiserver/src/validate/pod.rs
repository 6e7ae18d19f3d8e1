//! Pod specs, in pods and in templates.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{each, one_of, text};
use crate::names;
use crate::quantity::{self, Quantity};
use crate::status::Cause;

const NEGATIVE: &str = "must be greater than or equal to 0";

/// Whether the spec is a pod's or a template's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodOrTemplate {
    Pod,
    Template,
}

pub(super) fn spec(spec: &Value, path: &str, home: PodOrTemplate, causes: &mut Vec<Cause>) {
    let volumes = volumes(spec, path, causes);
    let containers = each(spec, "containers");
    if containers.is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for field in ["containers", "initContainers"] {
        for (index, item) in each(spec, field).into_iter().enumerate() {
            let at = format!("{path}.{field}[{index}]");
            container(item, &at, &volumes, causes);
            let name = text(item, "name");
            if !name.is_empty() && !seen.insert(name.to_owned()) {
                causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
            }
        }
    }
    one_of(spec, "restartPolicy", path, &["Always", "OnFailure", "Never"], causes);
    one_of(spec, "dnsPolicy", path, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], causes);
    if let Some(value) = spec.get("activeDeadlineSeconds")
        && !value.as_i64().is_some_and(|v| (1..=i64::from(i32::MAX)).contains(&v))
    {
        causes.push(Cause::invalid(
            format!("{path}.activeDeadlineSeconds"),
            value,
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let value = text(spec, field);
        if !value.is_empty()
            && let Some(why) = names::subdomain_complaint(value)
        {
            causes.push(Cause::invalid(format!("{path}.{field}"), &value.into(), &why));
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, field);
        if !value.is_empty()
            && let Some(why) = names::label_complaint(value)
        {
            causes.push(Cause::invalid(format!("{path}.{field}"), &value.into(), &why));
        }
    }
    for (key, value) in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        super::metadata::labels(key, value.as_str().unwrap_or_default(), &format!("{path}.nodeSelector"), causes);
    }
    tolerations(spec, path, causes);
    let mut gates = BTreeSet::new();
    for (index, gate) in each(spec, "schedulingGates").into_iter().enumerate() {
        let (at, name) = (format!("{path}.schedulingGates[{index}]"), text(gate, "name"));
        if let Some(why) = names::qualified_name_complaint(name) {
            causes.push(Cause::invalid(at.clone(), &name.into(), &why));
        }
        if !gates.insert(name) {
            causes.push(Cause::duplicate(at, &name.into()));
        }
    }
    if home == PodOrTemplate::Pod && !gates.is_empty() && !text(spec, "nodeName").is_empty() {
        causes.push(Cause::forbidden(
            format!("{path}.nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
}

fn tolerations(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, item) in each(spec, "tolerations").into_iter().enumerate() {
        let at = format!("{path}.tolerations[{index}]");
        let (key, operator, effect) = (text(item, "key"), text(item, "operator"), text(item, "effect"));
        if !key.is_empty()
            && let Some(why) = names::qualified_name_complaint(key)
        {
            causes.push(Cause::invalid(format!("{at}.key"), &key.into(), &why));
        }
        if key.is_empty() && operator != "Exists" {
            causes.push(Cause::invalid(
                format!("{at}.operator"),
                &operator.into(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if item.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            causes.push(Cause::invalid(
                format!("{at}.effect"),
                &effect.into(),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        match operator {
            "" | "Equal" => {}
            "Exists" => {
                if !text(item, "value").is_empty() {
                    causes.push(Cause::invalid(
                        format!("{at}.operator"),
                        item,
                        "value must be empty when `operator` is 'Exists'",
                    ));
                }
            }
            other => causes.push(Cause::unsupported(format!("{at}.operator"), &other.into(), &["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            one_of(item, "effect", &at, &["NoSchedule", "PreferNoSchedule", "NoExecute"], causes);
        }
    }
}

/// Validates volumes and returns their names.
fn volumes(spec: &Value, path: &str, causes: &mut Vec<Cause>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for (index, volume) in each(spec, "volumes").into_iter().enumerate() {
        let at = format!("{path}.volumes[{index}]");
        let name = text(volume, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if let Some(why) = names::label_complaint(name) {
            causes.push(Cause::invalid(format!("{at}.name"), &name.into(), &why));
        } else if !seen.insert(name.to_owned()) {
            causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
        }
        for (source, field) in [
            ("secret", "secretName"),
            ("persistentVolumeClaim", "claimName"),
            ("configMap", "name"),
            ("hostPath", "path"),
        ] {
            if let Some(inner) = volume.get(source).filter(|s| text(s, field).is_empty()) {
                let _ = inner;
                causes.push(Cause::required(format!("{at}.{source}.{field}"), ""));
            }
        }
        let sources = volume.as_object().map_or(0, |m| m.keys().filter(|k| *k != "name").count());
        if sources > 1 {
            let extra: Vec<&String> =
                volume.as_object().into_iter().flat_map(Map::keys).filter(|k| *k != "name").skip(1).collect();
            for field in extra {
                causes.push(Cause::forbidden(format!("{at}.{field}"), "may not specify more than 1 volume type"));
            }
        }
    }
    seen
}

fn container(item: &Value, path: &str, volumes: &BTreeSet<String>, causes: &mut Vec<Cause>) {
    let name = text(item, "name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    } else if let Some(why) = names::label_complaint(name) {
        causes.push(Cause::invalid(format!("{path}.name"), &name.into(), &why));
    }
    let image = text(item, "image");
    if image.is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        causes.push(Cause::invalid(
            format!("{path}.image"),
            &image.into(),
            "must not have leading or trailing whitespace",
        ));
    }
    ports(item, path, causes);
    environment(item, path, causes);
    for (index, mount) in each(item, "volumeMounts").into_iter().enumerate() {
        let at = format!("{path}.volumeMounts[{index}]");
        let volume = text(mount, "name");
        if volume.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(volume) {
            causes.push(Cause::not_found(format!("{at}.name"), &volume.into()));
        }
        if text(mount, "mountPath").is_empty() {
            causes.push(Cause::required(format!("{at}.mountPath"), ""));
        }
        let same = each(item, "volumeMounts")
            .into_iter()
            .take(index)
            .any(|m| text(m, "mountPath") == text(mount, "mountPath"));
        if same && !text(mount, "mountPath").is_empty() {
            causes.push(Cause::invalid(format!("{at}.mountPath"), &text(mount, "mountPath").into(), "must be unique"));
        }
    }
    one_of(item, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"], causes);
    one_of(item, "terminationMessagePolicy", path, &["File", "FallbackToLogsOnError"], causes);
    resources(item.get("resources").unwrap_or(&Value::Null), &format!("{path}.resources"), causes);
}

fn ports(item: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, port) in each(item, "ports").into_iter().enumerate() {
        let at = format!("{path}.ports[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            if let Some(why) = names::port_name_complaint(name) {
                causes.push(Cause::invalid(format!("{at}.name"), &name.into(), &why));
            } else if !seen.insert(name) {
                causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
            }
        }
        let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or_default();
        if number == 0 {
            causes.push(Cause::required(format!("{at}.containerPort"), ""));
        } else if !(1..=65535).contains(&number) {
            causes.push(Cause::invalid(format!("{at}.containerPort"), &number.into(), super::PORT_RANGE));
        }
        if let Some(host) = port.get("hostPort").and_then(Value::as_i64).filter(|p| *p != 0 && !(1..=65535).contains(p))
        {
            causes.push(Cause::invalid(format!("{at}.hostPort"), &host.into(), super::PORT_RANGE));
        }
        if text(port, "protocol").is_empty() {
            causes.push(Cause::required(format!("{at}.protocol"), ""));
        } else {
            one_of(port, "protocol", &at, &["SCTP", "TCP", "UDP"], causes);
        }
    }
}

fn environment(item: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, variable) in each(item, "env").into_iter().enumerate() {
        let at = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if name.contains('=') || !name.chars().all(|c| (' '..='~').contains(&c)) {
            causes.push(Cause::invalid(
                format!("{at}.name"),
                &name.into(),
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            ));
        }
        if let Some(from) = variable.get("valueFrom") {
            if from.as_object().is_none_or(Map::is_empty) {
                causes.push(Cause::invalid(format!("{at}.valueFrom"), &"".into(), "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"));
            } else if !text(variable, "value").is_empty() {
                causes.push(Cause::invalid(
                    format!("{at}.valueFrom"),
                    &"".into(),
                    "may not be specified when `value` is not empty",
                ));
            }
        }
    }
}

/// Requests and limits.
pub(super) fn resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let amounts = |list: &str| -> Vec<(String, String, Quantity)> {
        resources
            .get(list)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(name, v)| {
                let shown = v.as_str()?;
                Some((name.clone(), shown.to_owned(), quantity::parse(shown).ok()?))
            })
            .collect()
    };
    let (limits, requests) = (amounts("limits"), amounts("requests"));
    for (list, entries) in [("limits", &limits), ("requests", &requests)] {
        for (name, shown, amount) in entries {
            let at = format!("{path}.{list}[{name}]");
            if let Some(why) = names::qualified_name_complaint(name) {
                causes.push(Cause::invalid(at.clone(), &name.as_str().into(), &why));
            } else if !name.contains('/')
                && !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "storage")
                && !name.starts_with("hugepages-")
            {
                causes.push(Cause::invalid(
                    at.clone(),
                    &name.as_str().into(),
                    "must be a standard resource type or fully qualified",
                ));
                causes.push(Cause::invalid(
                    at.clone(),
                    &name.as_str().into(),
                    "must be a standard resource for containers",
                ));
            }
            if amount.is_negative() {
                causes.push(Cause::invalid(at.clone(), &shown.as_str().into(), NEGATIVE));
            }
            if name.contains('/') && !amount.is_whole() {
                causes.push(Cause::invalid(at, &shown.as_str().into(), "must be an integer"));
            }
        }
    }
    for (name, shown, amount) in &requests {
        let at = format!("{path}.requests");
        match limits.iter().find(|(n, ..)| n == name) {
            Some((_, limit_shown, limit)) => {
                if name.contains('/') && amount != limit {
                    causes.push(Cause::invalid(
                        at,
                        &shown.as_str().into(),
                        &format!("must be equal to {name} limit of {limit_shown}"),
                    ));
                } else if amount > limit {
                    causes.push(Cause::invalid(
                        at,
                        &shown.as_str().into(),
                        &format!("must be less than or equal to {name} limit of {limit_shown}"),
                    ));
                }
            }
            None if name.contains('/') && !name.contains("kubernetes.io/") => {
                causes.push(Cause::required(
                    format!("{path}.limits"),
                    "Limit must be set for non overcommitable resources",
                ));
            }
            None => {}
        }
    }
}

/// Which fields of a pod's spec may change.
pub(super) fn update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    const MUTABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    let gated = each(old.get("spec").unwrap_or(&Value::Null), "schedulingGates");
    let mut left = old.get("spec").cloned().unwrap_or_default();
    let mut right = next.get("spec").cloned().unwrap_or_default();
    for gate in each(&right, "schedulingGates") {
        if !gated.contains(&gate) {
            causes.push(Cause::forbidden(
                "spec.schedulingGates",
                "only deletion is allowed, but found new scheduling gate '{name}'"
                    .replace("{name}", text(gate, "name"))
                    .as_str(),
            ));
        }
    }
    let old_tolerations: Vec<Value> = each(&left, "tolerations").into_iter().cloned().collect();
    let new_tolerations: Vec<Value> = each(&right, "tolerations").into_iter().cloned().collect();
    let kept = old_tolerations.iter().all(|t| {
        new_tolerations.iter().any(|n| {
            let mut a = t.clone();
            let mut b = n.clone();
            for side in [&mut a, &mut b] {
                if let Some(map) = side.as_object_mut() {
                    map.remove("tolerationSeconds");
                }
            }
            a == b
        })
    });
    if !kept {
        causes.push(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    for side in [&mut left, &mut right] {
        let Some(map) = side.as_object_mut() else { continue };
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "schedulingGates",
            "terminationGracePeriodSeconds",
            "ephemeralContainers",
        ] {
            map.remove(field);
        }
        if !gated.is_empty() {
            // A gated pod can still be moved.
            map.remove("nodeSelector");
            map.remove("affinity");
        }
        for list in ["containers", "initContainers"] {
            for item in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(item) = item.as_object_mut() {
                    item.insert("image".into(), json!(""));
                }
            }
        }
    }
    if left != right {
        causes.push(Cause::forbidden("spec", &format!("pod updates may not change fields other than {MUTABLE}\n")));
    }
}
