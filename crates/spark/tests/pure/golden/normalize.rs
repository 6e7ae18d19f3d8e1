//! Makes planned and captured objects comparable: API server defaults are removed (or added, if the capture has them),
//! lists whose order does not matter are sorted, random parts become placeholders.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

/// Our objects, in the form of the capture.
pub(crate) fn objects(objects: &[Value], inputs: &str) -> Vec<Value> {
    let mut out: Vec<Value> = objects.iter().cloned().map(|o| object(o, inputs)).collect();
    sort(&mut out);
    out
}

/// Captured objects: already normalised, except for what the server computes. Their owners are already removed.
pub(crate) fn golden(objects: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = objects.to_vec();
    for o in &mut out {
        if o["kind"] == "Pod" {
            for container in containers(o) {
                resources(container);
                local_dirs(container);
            }
        }
        mounts_of_local_dirs(o);
        quantities(o);
    }
    sort(&mut out);
    out
}

fn sort(objects: &mut [Value]) {
    objects.sort_by_key(|o| (o["kind"].to_string(), o["metadata"]["name"].to_string()));
}

fn object(mut o: Value, inputs: &str) -> Value {
    let kind = o["kind"].as_str().unwrap().to_owned();
    match kind.as_str() {
        "Pod" => {
            o["metadata"].as_object_mut().unwrap().remove("namespace");
            pod_spec(o["spec"].as_object_mut().unwrap());
            for container in containers(&mut o) {
                resources(container);
                local_dirs(container);
            }
            mounts_of_local_dirs(&mut o);
        }
        "Service" => {
            let spec = o["spec"].as_object_mut().unwrap();
            drop_equal(spec, &json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}));
            for port in spec["ports"].as_array_mut().unwrap() {
                let port = port.as_object_mut().unwrap();
                if port.get("targetPort") == port.get("port") {
                    port.remove("targetPort");
                }
            }
        }
        "ConfigMap" => {
            if let Some(text) = o["data"]["spark.properties"].as_str() {
                let pairs = firesteel_spark::properties::parse(text).unwrap();
                let mut properties: std::collections::BTreeMap<_, _> = pairs.into_iter().collect();
                properties.retain(|k, _| {
                    !k.starts_with("spark.kubernetes.authenticate.submission.") && k != "spark.kubernetes.context"
                });
                if let Some(time) = properties.get_mut("spark.app.submitTime") {
                    *time = "<TIME>".to_owned();
                }
                o["data"]["spark.properties"] = serde_json::to_value(properties).unwrap();
            }
        }
        _ => {}
    }
    quantities(&mut o);
    let text = placeholders(&o.to_string().replace(inputs, "<INPUTS>"));
    serde_json::from_str(&text).unwrap()
}

fn containers(pod: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let spec = pod["spec"].as_object_mut().unwrap();
    let both = spec.iter_mut().filter(|(k, _)| *k == "containers" || *k == "initContainers");
    both.flat_map(|(_, list)| list.as_array_mut().unwrap().iter_mut()).map(|c| c.as_object_mut().unwrap())
}

fn pod_spec(spec: &mut Map<String, Value>) {
    spec.remove("serviceAccount");
    if spec.get("serviceAccountName") == Some(&json!("default")) {
        spec.remove("serviceAccountName");
    }
    drop_equal(
        spec,
        &json!({"dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30}),
    );
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.sort_by_key(|v| v["name"].to_string());
        for volume in volumes {
            for source in ["configMap", "secret", "projected", "downwardAPI"] {
                let items = volume.pointer_mut(&format!("/{source}/items")).and_then(Value::as_array_mut);
                for item in items.into_iter().flatten() {
                    drop_equal(item.as_object_mut().unwrap(), &json!({"mode": 420}));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for c in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container(c.as_object_mut().unwrap());
        }
    }
}

fn container(c: &mut Map<String, Value>) {
    // Server defaults for containers from a template.
    if !c.contains_key("imagePullPolicy") {
        let image = c.get("image").and_then(Value::as_str).unwrap_or_default();
        let tagged = image.rsplit('/').next().is_some_and(|last| last.contains(':') && !last.ends_with(":latest"));
        if !tagged {
            c.insert("imagePullPolicy".to_owned(), json!("Always"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = c.get_mut(probe).and_then(Value::as_object_mut) {
            for (key, value) in
                [("failureThreshold", 3), ("periodSeconds", 10), ("successThreshold", 1), ("timeoutSeconds", 1)]
            {
                probe.entry(key).or_insert(json!(value));
            }
        }
    }
    drop_equal(c, &json!({"imagePullPolicy": "IfNotPresent", "resources": {}}));
    for port in c.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        drop_equal(port.as_object_mut().unwrap(), &json!({"protocol": "TCP"}));
    }
    for env in c.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = env.pointer_mut("/valueFrom/fieldRef").and_then(Value::as_object_mut) {
            drop_equal(field, &json!({"apiVersion": "v1"}));
        }
    }
    if let Some(env) = c.get_mut("env").and_then(Value::as_array_mut) {
        env.sort_by_key(|e| e["name"].to_string());
    }
    if let Some(mounts) = c.get_mut("volumeMounts").and_then(Value::as_array_mut) {
        mounts.sort_by_key(|m| (m["mountPath"].to_string(), m["name"].to_string()));
    }
}

/// The server copies limits to missing requests.
fn resources(c: &mut Map<String, Value>) {
    let Some(resources) = c.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, limit) in limits {
        requests.as_object_mut().unwrap().entry(name).or_insert(limit);
    }
}

/// Spark shuffles local directories.
fn local_dirs(c: &mut Map<String, Value>) {
    for env in c.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if env["name"] == "SPARK_LOCAL_DIRS" {
            let mut dirs: Vec<&str> = env["value"].as_str().unwrap().split(',').collect();
            dirs.sort_unstable();
            env["value"] = json!(dirs.join(","));
        }
    }
}

/// Since the order of directories is random, so is which volume is mounted where.
fn mounts_of_local_dirs(o: &mut Value) {
    if o["kind"] != "Pod" {
        return;
    }
    for c in containers(o) {
        for mount in c.get_mut("volumeMounts").and_then(Value::as_array_mut).into_iter().flatten() {
            if mount["name"].as_str().unwrap().starts_with("spark-local-dir-") {
                mount["name"] = json!("spark-local-dir-N");
            }
        }
    }
}

/// Quantities by value: everything below these keys is written in thousandths.
fn quantities(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                match (key.as_str(), &mut *child) {
                    ("limits" | "requests", Value::Object(resources)) => {
                        resources.values_mut().for_each(quantity);
                    }
                    ("sizeLimit", child) => quantity(child),
                    _ => quantities(child),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(quantities),
        _ => {}
    }
}

fn quantity(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().unwrap();
    let factor = match &text[split..] {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        other => panic!("unit {other} in {text}"),
    };
    *value = json!(format!("{} thousandths", (number * factor * 1000.0).round()));
}

fn drop_equal(map: &mut Map<String, Value>, defaults: &Value) {
    for (key, default) in defaults.as_object().unwrap() {
        if map.get(key) == Some(default) {
            map.remove(key);
        }
    }
}

static APP_ID: LazyLock<Regex> = LazyLock::new(|| Regex::new("spark-[0-9a-f]{32}").unwrap());
static UUID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
static ID: LazyLock<Regex> = LazyLock::new(|| Regex::new("(^|[^0-9a-z])[0-9a-f]{15,16}([-.\"]|$)").unwrap());

/// Random parts become `<APP_ID>`, `<UUID>` and `<ID>`.
fn placeholders(text: &str) -> String {
    let text = APP_ID.replace_all(text, "<APP_ID>");
    let text = UUID.replace_all(&text, "<UUID>");
    ID.replace_all(&text, "$1<ID>$2").into_owned()
}

/// Where two lists of objects differ, line by line; `None` if they do not.
pub(crate) fn diff(expected: &[Value], ours: &[Value]) -> Option<String> {
    if expected == ours {
        return None;
    }
    let mut lines = Vec::new();
    compare("", &json!(keyed(expected)), &json!(keyed(ours)), &mut lines);
    Some(lines.join("\n"))
}

fn keyed(objects: &[Value]) -> Map<String, Value> {
    let name = |o: &Value| format!("{}/{}", o["kind"].as_str().unwrap(), o["metadata"]["name"].as_str().unwrap());
    objects.iter().map(|o| (name(o), o.clone())).collect()
}

fn compare(path: &str, expected: &Value, ours: &Value, lines: &mut Vec<String>) {
    match (expected, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let child = format!("{path}/{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => compare(&child, a, b, lines),
                    (Some(a), None) => lines.push(format!("  missing {child}: {a}")),
                    (None, Some(b)) => lines.push(format!("  extra   {child}: {b}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{i}"), a, b, lines);
            }
        }
        (a, b) if a == b => {}
        (a, b) => lines.push(format!("  {path}: Spark {a}, we {b}")),
    }
}
