//! Defaults of pod specs, in pods and in pod templates.

use serde_json::{Map, Value, json};

use super::{each, inner, set, set_text};

type Spec = Map<String, Value>;

/// Defaults of a pod: those of templates, and those of pods only.
pub(super) fn whole(spec: &mut Spec) {
    template(spec);
    set(spec, "enableServiceLinks", true);
    for field in ["containers", "initContainers"] {
        each(spec, field).for_each(requests_from_limits);
    }
    pod_level_requests(spec);
}

pub(super) fn template(spec: &mut Spec) {
    set_text(spec, "dnsPolicy", "ClusterFirst");
    set_text(spec, "restartPolicy", "Always");
    set(spec, "securityContext", json!({}));
    set(spec, "terminationGracePeriodSeconds", 30);
    set_text(spec, "schedulerName", "default-scheduler");
    // The deprecated field is always shown along with the new one.
    let account = match spec.get("serviceAccountName").and_then(Value::as_str).filter(|n| !n.is_empty()) {
        Some(name) => Some(name.to_owned()),
        None => spec.get("serviceAccount").and_then(Value::as_str).filter(|n| !n.is_empty()).map(str::to_owned),
    };
    if let Some(account) = account {
        spec.insert("serviceAccountName".into(), account.clone().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    let host_network = spec.get("hostNetwork").is_some_and(|h| h == true);
    if !host_network {
        spec.remove("hostNetwork");
    }
    for field in ["hostPID", "hostIPC"] {
        if spec.get(field).is_some_and(|h| h == false) {
            spec.remove(field);
        }
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for container in each(spec, field) {
            fill_container(container);
            if host_network {
                for port in each(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or_default();
                    if port.get("hostPort").is_none_or(|p| *p == 0) {
                        port.insert("hostPort".into(), number);
                    }
                }
            }
        }
    }
    each(spec, "volumes").for_each(fill_volume);
}

fn fill_container(container: &mut Spec) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    set_text(container, "imagePullPolicy", policy);
    set_text(container, "terminationMessagePath", "/dev/termination-log");
    set_text(container, "terminationMessagePolicy", "File");
    each(container, "ports").for_each(|port| set_text(port, "protocol", "TCP"));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = inner(container, probe) {
            fill_probe(probe);
        }
    }
    if let Some(lifecycle) = inner(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(request) = inner(lifecycle, hook).and_then(|h| inner(h, "httpGet")) {
                fill_http(request);
            }
        }
    }
    for variable in each(container, "env") {
        if let Some(reference) = inner(variable, "valueFrom").and_then(|f| inner(f, "fieldRef")) {
            set_text(reference, "apiVersion", "v1");
        }
    }
    if container.get("securityContext").is_some_and(Value::is_null) {
        container.remove("securityContext");
    }
}

fn fill_probe(probe: &mut Spec) {
    let positive = |map: &mut Spec, field: &str, value: i64| {
        if map.get(field).is_none_or(|v| v.is_null() || *v == 0) {
            map.insert(field.into(), value.into());
        }
    };
    positive(probe, "timeoutSeconds", 1);
    positive(probe, "periodSeconds", 10);
    positive(probe, "successThreshold", 1);
    positive(probe, "failureThreshold", 3);
    if let Some(request) = inner(probe, "httpGet") {
        fill_http(request);
    }
    if let Some(request) = inner(probe, "grpc") {
        set(request, "service", "");
    }
}

fn fill_http(request: &mut Spec) {
    set_text(request, "path", "/");
    set_text(request, "scheme", "HTTP");
}

/// No tag or `latest`, and no digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => true,
    }
}

fn fill_volume(volume: &mut Spec) {
    if volume.keys().all(|k| k == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = inner(volume, source) {
            set(source, "defaultMode", 420);
        }
    }
    if let Some(path) = inner(volume, "hostPath") {
        set(path, "type", "");
    }
    if let Some(downward) = inner(volume, "downwardAPI") {
        field_references(downward);
    }
    if let Some(projected) = inner(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = inner(source, "serviceAccountToken") {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = inner(source, "downwardAPI") {
                field_references(downward);
            }
        }
    }
    let claim = inner(volume, "ephemeral").and_then(|e| inner(e, "volumeClaimTemplate")).and_then(|t| inner(t, "spec"));
    if let Some(spec) = claim {
        set(spec, "volumeMode", "Filesystem");
    }
}

fn field_references(downward: &mut Spec) {
    for item in each(downward, "items") {
        if let Some(reference) = inner(item, "fieldRef") {
            set_text(reference, "apiVersion", "v1");
        }
    }
}

/// A limit without a request is also the request.
fn requests_from_limits(container: &mut Spec) {
    let Some(resources) = inner(container, "resources") else { return };
    copy_limits(resources);
}

fn copy_limits(resources: &mut Spec) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, amount) in limits {
        if requests.get(&name).is_none() {
            requests[&name] = amount;
        }
    }
    if requests.as_object().is_some_and(Map::is_empty) {
        resources.remove("requests");
    }
}

fn pod_level_requests(spec: &mut Spec) {
    if let Some(resources) = inner(spec, "resources") {
        copy_limits(resources);
    }
}
