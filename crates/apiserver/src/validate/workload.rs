//! Deployments, ReplicaSets, StatefulSets and Jobs.

use serde_json::Value;

use super::pod::{self, PodOrTemplate};
use super::{Differences, text};
use crate::selector::Labels;
use crate::status::Cause;

pub(super) fn check(resource: &str, object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    const COUNTS: [&str; 8] = [
        "replicas",
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "minReadySeconds",
        "revisionHistoryLimit",
    ];
    for field in COUNTS {
        if let Some(value) = spec.get(field).filter(|v| v.as_i64().is_some_and(|v| v < 0)) {
            causes.push(Cause::invalid(format!("spec.{field}"), value, "must be greater than or equal to 0"));
        }
    }
    let (template, path) = match resource {
        "cronjobs" => (spec.pointer("/jobTemplate/spec/template"), "spec.jobTemplate.spec.template"),
        _ => (spec.get("template"), "spec.template"),
    };
    let empty = Value::Null;
    let template = template.unwrap_or(&empty);
    if !matches!(resource, "jobs" | "cronjobs" | "controllerrevisions") {
        let plain = spec.get("selector").filter(|_| resource == "replicationcontrollers");
        let wrapped = plain.map(|labels| serde_json::json!({"selector": {"matchLabels": labels}}));
        selector(wrapped.as_ref().unwrap_or(spec), template, causes);
    }
    let pod = template.get("spec").unwrap_or(&empty);
    for (key, value) in template.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        super::metadata::labels(key, value.as_str().unwrap_or_default(), &format!("{path}.labels"), causes);
    }
    if resource == "statefulsets" {
        pod::spec(&as_in_a_set(spec, pod), &format!("{path}.spec"), PodOrTemplate::Template, causes);
    } else if resource != "controllerrevisions" {
        pod::spec(pod, &format!("{path}.spec"), PodOrTemplate::Template, causes);
    }
    let policy = text(pod, "restartPolicy");
    let field = format!("{path}.spec.restartPolicy");
    match resource {
        "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "replicationcontrollers"
            if policy != "Always" =>
        {
            causes.push(Cause::unsupported(field, &policy.into(), &["Always"]));
        }
        "jobs" | "cronjobs" if policy != "OnFailure" && policy != "Never" => {
            causes.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
        _ => {}
    }
    match resource {
        "deployments" => deployment(spec, causes),
        "statefulsets" => stateful_set(spec, causes),
        "jobs" => job(spec, causes),
        "cronjobs" => {
            match text(spec, "schedule") {
                "" => causes.push(Cause::required("spec.schedule", "")),
                schedule if !schedule.starts_with('@') => {
                    let fields: Vec<&str> = schedule.split_whitespace().collect();
                    if fields.len() != 5 {
                        let why = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
                        causes.push(Cause::invalid("spec.schedule", &schedule.into(), &why));
                    }
                }
                _ => {}
            }
            super::one_of(spec, "concurrencyPolicy", "spec", &["Allow", "Forbid", "Replace"], causes);
        }
        _ => {}
    }
}

/// A strategy as Go prints it.
fn strategy_printed(kind: &str) -> String {
    format!("{{\"Type\":{kind:?},\"RollingUpdate\":null}}")
}

fn deployment(spec: &Value, causes: &mut Vec<Cause>) {
    let strategy = spec.get("strategy").unwrap_or(&Value::Null);
    let rolling = strategy.get("rollingUpdate").filter(|r| r.is_object());
    match text(strategy, "type") {
        "Recreate" if rolling.is_some() => causes.push(Cause::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" => {}
        "RollingUpdate" | "" => {
            let none = |field: &str| rolling.and_then(|r| r.get(field)).is_some_and(|v| *v == 0 || *v == "0%");
            if none("maxSurge") && none("maxUnavailable") {
                causes.push(Cause::invalid(
                    "spec.strategy.rollingUpdate.maxUnavailable",
                    &rolling.and_then(|r| r.get("maxUnavailable")).cloned().unwrap_or_default(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
        }
        other => {
            let message = format!(
                "Unsupported value: {}: supported values: \"Recreate\", \"RollingUpdate\"",
                strategy_printed(other)
            );
            causes.push(Cause { reason: "FieldValueNotSupported", message, field: "spec.strategy".into() });
        }
    }
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or_default()
    {
        causes.push(Cause::invalid(
            "spec.progressDeadlineSeconds",
            &deadline.into(),
            "must be greater than minReadySeconds",
        ));
    }
}

fn stateful_set(spec: &Value, causes: &mut Vec<Cause>) {
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "" | "OrderedReady" | "Parallel") {
        causes.push(Cause::invalid("spec.podManagementPolicy", &policy.into(), "must be 'OrderedReady' or 'Parallel'"));
    }
    let kind = spec.get("updateStrategy").map(|s| text(s, "type")).unwrap_or_default();
    if !matches!(kind, "" | "RollingUpdate" | "OnDelete") {
        let message = format!("Invalid value: {}: must be 'RollingUpdate' or 'OnDelete'", strategy_printed(kind));
        causes.push(Cause { reason: "FieldValueInvalid", message, field: "spec.updateStrategy".into() });
    }
}

fn job(spec: &Value, causes: &mut Vec<Cause>) {
    super::one_of(spec, "completionMode", "spec", &["NonIndexed", "Indexed"], causes);
    if text(spec, "completionMode") == "Indexed" && spec.get("completions").is_none_or(Value::is_null) {
        causes.push(Cause::required("spec.completions", "when completion mode is Indexed"));
    }
    let labels = spec.pointer("/template/metadata/labels").cloned().unwrap_or_default();
    let Some(given) = spec.get("selector").filter(|s| s.is_object()) else { return };
    let manual = spec.get("manualSelector").is_some_and(|m| m == true);
    let generated = given.get("matchExpressions").is_none()
        && given.get("matchLabels").and_then(Value::as_object).is_some_and(|l| l.len() == 1);
    if !manual && !generated {
        causes.push(Cause::invalid("spec.selector", given, "`selector` not auto-generated"));
    }
    if Labels::from_object(given).is_ok_and(|s| !s.matches(labels.as_object())) {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &labels,
            "`selector` does not match template `labels`",
        ));
    }
}

/// A StatefulSet's template as it is validated: the controller sets host name, subdomain and claim volumes, so their values are
/// ignored. (Spark's host name contains `EXECID`, which is invalid.)
fn as_in_a_set(set: &Value, pod: &Value) -> Value {
    let mut pod = pod.clone();
    let claims = set.get("volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&Value> = claims.filter_map(|claim| claim.pointer("/metadata/name")).collect();
    if let Some(fields) = pod.as_object_mut() {
        fields.remove("hostname");
        fields.remove("subdomain");
        if !names.is_empty() {
            let given = fields.entry("volumes").or_insert_with(|| Value::Array(Vec::new()));
            if let Some(volumes) = given.as_array_mut() {
                for name in names {
                    volumes.retain(|v| v.get("name") != Some(name));
                    volumes.push(serde_json::json!({"name": name, "emptyDir": {}}));
                }
            }
        }
    }
    pod
}

fn selector(spec: &Value, template: &Value, causes: &mut Vec<Cause>) {
    let Some(given) = spec.get("selector").filter(|s| s.is_object()) else {
        causes.push(Cause::required("spec.selector", ""));
        let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &labels,
            "`selector` does not match template `labels`",
        ));
        return;
    };
    let parsed = match Labels::from_object(given) {
        Ok(parsed) => parsed,
        Err(_) => {
            const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
            for (index, term) in super::each(given, "matchExpressions").into_iter().enumerate() {
                let operator = text(term, "operator");
                if !OPERATORS.contains(&operator) {
                    let field = format!("spec.selector.matchExpressions[{index}].operator");
                    causes.push(Cause::invalid(field, &operator.into(), "not a valid selector operator"));
                }
            }
            causes.push(Cause::invalid("spec.selector", given, "invalid label selector"));
            return;
        }
    };
    if parsed.is_empty() {
        causes.push(Cause::invalid("spec.selector", given, "empty selector is invalid for deployment"));
        return;
    }
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    if !parsed.matches(labels.as_object()) {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &labels,
            "`selector` does not match template `labels`",
        ));
    }
}

/// The completions of an Indexed job may change only together with its parallelism.
fn completions_update(old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let of = |object: &Value, field: &str| object.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
    let (before, after) = (of(old, "completions"), of(next, "completions"));
    if before == after {
        return;
    }
    let indexed = of(next, "completionMode") == "Indexed";
    if !indexed {
        causes.push(Cause::invalid("spec.completions", &after, "field is immutable"));
    } else if after != of(next, "parallelism") {
        causes.push(Cause::invalid("spec.completions", &after, "can only be modified in tandem with spec.parallelism"));
    }
}

pub(super) fn update(resource: &str, old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    let differ = Differences { old, next };
    match resource {
        "deployments" | "replicasets" | "daemonsets" => differ.immutable("/spec/selector", "spec.selector", causes),
        "jobs" => {
            differ.immutable("/spec/selector", "spec.selector", causes);
            differ.immutable("/spec/completionMode", "spec.completionMode", causes);
            let suspended =
                old.pointer("/spec/suspend").is_some_and(|s| s == true) && old.pointer("/status/startTime").is_none();
            if !suspended {
                differ.immutable("/spec/template", "spec.template", causes);
            } else {
                // A suspended job may still change the placement and resources of its pods, nothing else.
                let rest = |object: &Value| {
                    let mut template = object.pointer("/spec/template").cloned().unwrap_or_default();
                    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
                        for field in ["affinity", "nodeSelector", "tolerations", "schedulingGates"] {
                            spec.remove(field);
                        }
                        for list in ["containers", "initContainers"] {
                            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                                container["resources"] = Value::Null;
                            }
                        }
                    }
                    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
                        metadata.remove("labels");
                        metadata.remove("annotations");
                    }
                    template
                };
                if rest(old) != rest(next) {
                    let shown = next.pointer("/spec/template").unwrap_or(&Value::Null);
                    causes.push(Cause::invalid("spec.template", shown, "field is immutable"));
                }
            }
            completions_update(old, next, causes);
        }
        "controllerrevisions" => differ.immutable("/data", "data", causes),
        "statefulsets" => {
            const MUTABLE: [&str; 8] = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
                "",
            ];
            let rest = |object: &Value| {
                let mut spec = object.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
                spec.retain(|key, _| !MUTABLE.contains(&key.as_str()));
                spec
            };
            if rest(old) != rest(next) {
                causes.push(Cause::forbidden(
                    "spec",
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                ));
            }
        }
        _ => {}
    }
}
