//! Defaults of Deployments, StatefulSets, ReplicaSets, DaemonSets, Jobs and CronJobs.

use serde_json::{Map, Value, json};

use super::{each, inner, set, set_text};
use crate::meta;

pub(super) fn apply(resource: &str, object: &mut Value) {
    if resource == "controllerrevisions" {
        return;
    }
    let template_labels = object.pointer("/spec/template/metadata/labels").cloned();
    let labels = object.pointer("/metadata/labels").cloned();
    let mut generation_note = false;
    let spec = meta::child(object, "spec");
    if let Some(template) = inner(spec, "template").and_then(|t| inner(t, "spec")) {
        super::pod::template(template);
    }
    match resource {
        "deployments" => deployment(spec),
        "statefulsets" => stateful_set(spec),
        "replicasets" => set(spec, "replicas", 1),
        "replicationcontrollers" => {
            set(spec, "replicas", 1);
            // Printed only if non-empty.
            if spec.get("minReadySeconds").is_some_and(|s| *s == 0) {
                spec.remove("minReadySeconds");
            }
            if let Some(found) = &template_labels {
                set(spec, "selector", found.clone());
            }
        }
        "daemonsets" => {
            let strategy = meta_child(spec, "updateStrategy");
            set_text(strategy, "type", "RollingUpdate");
            if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
                let rolling = meta_child(strategy, "rollingUpdate");
                set(rolling, "maxUnavailable", 1);
                set(rolling, "maxSurge", 0);
            }
            set(spec, "revisionHistoryLimit", 10);
            generation_note = true;
        }
        "jobs" => job(spec),
        "cronjobs" => {
            set_text(spec, "concurrencyPolicy", "Allow");
            set(spec, "suspend", false);
            set(spec, "successfulJobsHistoryLimit", 3);
            set(spec, "failedJobsHistoryLimit", 1);
            let pod = inner(spec, "jobTemplate")
                .and_then(|t| inner(t, "spec"))
                .and_then(|s| inner(s, "template"))
                .and_then(|t| inner(t, "spec"));
            if let Some(pod) = pod {
                super::pod::template(pod);
            }
        }
        _ => {}
    }
    if generation_note {
        let notes = meta_child(meta::of(object), "annotations");
        set(notes, "deprecated.daemonset.template.generation", "1");
    }
    if resource == "replicationcontrollers"
        && labels.is_none()
        && let Some(found) = template_labels
    {
        meta::of(object).insert("labels".into(), found);
    }
}

fn meta_child<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(field.to_owned()).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("invariant: slot was just made an object"),
    }
}

fn deployment(spec: &mut Map<String, Value>) {
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    let strategy = meta_child(spec, "strategy");
    set_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
        let rolling = meta_child(strategy, "rollingUpdate");
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
}

fn stateful_set(spec: &mut Map<String, Value>) {
    set_text(spec, "podManagementPolicy", "OrderedReady");
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    let strategy = meta_child(spec, "updateStrategy");
    set_text(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|t| t == "RollingUpdate") {
        set(meta_child(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = meta_child(spec, "persistentVolumeClaimRetentionPolicy");
    set_text(retention, "whenDeleted", "Retain");
    set_text(retention, "whenScaled", "Retain");
    for claim in each(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
        set(meta_child(claim, "spec"), "volumeMode", "Filesystem");
        set(meta_child(claim, "status"), "phase", "Pending");
    }
}

fn job(spec: &mut Map<String, Value>) {
    let unset = |spec: &Map<String, Value>, field: &str| spec.get(field).is_none_or(Value::is_null);
    if unset(spec, "completions") && unset(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    set(spec, "manualSelector", false);
    let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", policy);
}

/// A job's pods are selected by the job's uid: the server sets selector and template labels.
pub(crate) fn job_labels(object: &mut Value) {
    let uid = meta::uid(object).to_owned();
    let name = meta::name(object).to_owned();
    let spec = meta::child(object, "spec");
    if spec.get("manualSelector").is_some_and(|m| m == true) {
        return;
    }
    let template = meta_child(spec, "template");
    let labels = meta_child(meta_child(template, "metadata"), "labels");
    for (key, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        labels.insert(key.into(), value.as_str().into());
    }
    let chosen = meta_child(meta_child(spec, "selector"), "matchLabels");
    chosen.insert("batch.kubernetes.io/controller-uid".into(), uid.into());
}
