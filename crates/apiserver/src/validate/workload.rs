//! Deployments, sets and jobs.

use serde_json::Value;

use super::pod::{self, Home};
use super::{Differences, text};
use crate::selector::Labels;
use crate::status::Cause;

pub(super) fn check(resource: &str, object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    for field in ["replicas", "parallelism", "completions", "backoffLimit", "minReadySeconds", "revisionHistoryLimit"] {
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
        selector(spec, template, causes);
    }
    let pod = template.get("spec").unwrap_or(&empty);
    for (key, value) in template.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        super::metadata::labels(key, value.as_str().unwrap_or_default(), &format!("{path}.labels"), causes);
    }
    if resource == "statefulsets" {
        pod::spec(&as_in_a_set(spec, pod), &format!("{path}.spec"), Home::Template, causes);
    } else if resource != "controllerrevisions" {
        pod::spec(pod, &format!("{path}.spec"), Home::Template, causes);
    }
    let policy = text(pod, "restartPolicy");
    let field = format!("{path}.spec.restartPolicy");
    match resource {
        "deployments" | "replicasets" | "statefulsets" | "daemonsets" if policy != "Always" => {
            causes.push(Cause::unsupported(field, &policy.into(), &["Always"]));
        }
        "jobs" | "cronjobs" if policy != "OnFailure" && policy != "Never" => {
            causes.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
        _ => {}
    }
    if resource == "statefulsets" {
        super::one_of(spec, "podManagementPolicy", "spec", &["OrderedReady", "Parallel"], causes);
    }
    if resource == "cronjobs" {
        if text(spec, "schedule").is_empty() {
            causes.push(Cause::required("spec.schedule", ""));
        }
        super::one_of(spec, "concurrencyPolicy", "spec", &["Allow", "Forbid", "Replace"], causes);
    }
}

/// The template of a StatefulSet as it is checked: the controller gives each pod its host name and subdomain and the volumes
/// of its claims, so what stands there for them does not matter. (Spark's hold `EXECID`, which is no host name.)
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
        Err(why) => {
            causes.push(Cause::invalid("spec.selector", given, &why));
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
            }
        }
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
