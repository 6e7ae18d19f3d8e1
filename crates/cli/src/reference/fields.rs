//! Fields of the custom resources, from their definitions; defaults and effects from the code that applies them.

use std::collections::BTreeMap;

use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_api::{ExecutorGrant, ExecutorLedger};
use firesteel_spark::version::Line;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::{cell, code, table};

/// Remarks on a field besides its description: its default, its effect, the setting it becomes.
type Remarks = BTreeMap<String, Vec<String>>;

pub(super) fn page() -> String {
    let remarks = remarks();
    let mut body = String::from(
        "Types are those of the custom resource definitions (`firesteel crds`). Embedded Kubernetes types (volumes, \
         affinity, containers, …) are `object` here and are read as Kubernetes reads them. A field that has no effect says \
         so; the condition `FieldsHonoured` and an event name it too.\n\n",
    );
    for crd in firesteel_api::crds::manifests() {
        let names = &crd["spec"]["names"];
        let kind = names["kind"].as_str().unwrap_or_default();
        let version = &crd["spec"]["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api = format!("{}/{}", text(&crd["spec"]["group"]), text(&version["name"]));
        body.push_str(&format!(
            "## {kind}\n\n`{api}`, short name `{}`. {}\n\n",
            text(&names["shortNames"][0]),
            intro(kind)
        ));
        for part in ["spec", "status"] {
            let mut rows = Vec::new();
            let own = Vec::new();
            walk(&schema["properties"][part], part, kind, &remarks, &mut rows, &own);
            if !rows.is_empty() {
                body.push_str(&format!("### {kind} {part}\n\n"));
                body.push_str(&table(&["field", "type", "meaning"], rows));
                body.push('\n');
            }
        }
    }
    super::page("Fields", "For people who write manifests: every field of the custom resources.", &body)
}

fn intro(kind: &str) -> &'static str {
    match kind {
        "SparkApplication" => "One run of a program, with retries. See [operator.md](../operator.md).",
        "ScheduledSparkApplication" => {
            "Runs of a SparkApplication at fixed times. See [schedules.md](../schedules.md)."
        }
        "SparkConnect" => "A Spark Connect server with its executors. See [connect.md](../connect.md).",
        "ExecutorGrant" => {
            "The executors that a driver may have (`spec`, immutable) and those it requests (`status`, written by the driver). \
             Firesteel writes these; you only read them. See [executors.md](../executors.md)."
        }
        "ExecutorLedger" => "What happened to a driver's executors. Written only by the operator.",
        _ => "",
    }
}

fn walk(schema: &Value, path: &str, kind: &str, remarks: &Remarks, rows: &mut Vec<Vec<String>>, seen: &[String]) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let mut said: Vec<String> = field["description"].as_str().map(sentence).into_iter().collect();
        let is_application = kind == "ScheduledSparkApplication" && path == "spec.template";
        if is_application {
            said.push("The fields of a SparkApplication's `spec`.".to_owned());
        }
        if let Some(words) = field["enum"].as_array() {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).map(code).collect();
            said.push(format!("One of {}.", words.join(", ")));
        }
        said.extend(remarks.get(&format!("{kind} {path}")).into_iter().flatten().cloned());
        if required.contains(&name.as_str()) {
            said.push("Required.".to_owned());
        }
        if said.is_empty() && field["x-kubernetes-preserve-unknown-fields"] == true {
            said.push("As in a Kubernetes pod.".to_owned());
        }
        assert!(!said.is_empty(), "{kind} {path} has no description");
        rows.push(vec![code(&path), type_of(field), cell(&said.join(" "))]);
        if is_application || seen.len() > 6 {
            continue;
        }
        let deeper: Vec<String> = seen.iter().cloned().chain([name.clone()]).collect();
        walk(field, &path, kind, remarks, rows, &deeper);
        walk(&field["items"], &format!("{path}[]"), kind, remarks, rows, &deeper);
        walk(&field["additionalProperties"], &format!("{path}.*"), kind, remarks, rows, &deeper);
    }
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    let plain = field["type"].as_str().unwrap_or("any");
    match plain {
        "array" => format!("list of {}", type_of(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&field["additionalProperties"]))
        }
        "string" if field["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    }
}

fn remarks() -> Remarks {
    let mut remarks = Remarks::new();
    application_defaults(&mut remarks);
    for crd in [ExecutorGrant::crd(), ExecutorLedger::crd()] {
        let crd = serde_json::to_value(&crd).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            schema_defaults(&schema["properties"][part], &format!("{kind} {part}"), &mut remarks);
        }
    }
    settings(&mut remarks);
    without_effect(&mut remarks);
    remarks
}

fn add(remarks: &mut Remarks, path: &str, text: String) {
    remarks.entry(path.to_owned()).or_default().push(text);
}

/// The operator's defaults, found by applying them to minimal specs.
fn application_defaults(remarks: &mut Remarks) {
    let probe = json!({"restartPolicy": {"type": "OnFailure"}, "dynamicAllocation": {"enabled": true}});
    for probe in [probe, json!({})] {
        let spec: SparkApplicationSpec = serde_json::from_value(probe).unwrap();
        let before = serde_json::to_value(&spec).unwrap();
        let after = serde_json::to_value(firesteel_api::defaults::defaulted(&spec)).unwrap();
        compare(&before, &after, "SparkApplication spec", remarks);
    }
}

fn compare(before: &Value, after: &Value, path: &str, remarks: &mut Remarks) {
    let Value::Object(fields) = after else {
        if before != after {
            let text = format!("Default: `{}`.", after.as_str().map_or_else(|| after.to_string(), str::to_owned));
            if !remarks.get(path).is_some_and(|said| said.contains(&text)) {
                add(remarks, path, text);
            }
        }
        return;
    };
    for (name, value) in fields {
        compare(&before[name], value, &format!("{path}.{name}"), remarks);
    }
}

fn schema_defaults(schema: &Value, path: &str, remarks: &mut Remarks) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if let Some(number) = field["default"].as_u64().filter(|number| *number > 0) {
            add(remarks, &path, format!("Default: `{number}`."));
        }
        schema_defaults(field, &path, remarks);
    }
}

/// The Spark settings that driver and executor fields become, from the table that tests compare with the plan.
fn settings(remarks: &mut Remarks) {
    let text = std::fs::read_to_string(super::root().join("crates/core/tests/pure/pods/fields.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    for row in &rows {
        let field = row["field"].as_str().unwrap_or_default();
        for role in row["roles"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mine = |key: &str| match key.split_once(' ') {
                Some((only, key)) => only.eq_ignore_ascii_case(role).then(|| key.to_owned()),
                None => Some(key.replace("ROLE", role)),
            };
            let keys: Vec<String> =
                row["conf"].as_object().into_iter().flatten().filter_map(|(key, _)| mine(key)).collect();
            // Keys that end in a user-chosen name are examples, not settings.
            if let [key] = keys.as_slice()
                && firesteel_spark::registry::find(key).is_some()
            {
                add(remarks, &format!("SparkApplication spec.{role}.{field}"), format!("Sets `{key}`."));
            }
        }
    }
}

/// Fields that never have an effect, with the operator's reason.
fn without_effect(remarks: &mut Remarks) {
    let probe = json!({
        "failureRetries": 1, "retryInterval": 1, "batchSchedulerOptions": {"queue": "q"}, "executor": {"memoryLimit": "1g"},
    });
    let spec: SparkApplicationSpec = serde_json::from_value(probe).unwrap();
    for (path, why) in firesteel_core::ineffective_fields::ineffective_fields(
        &spec,
        Line::ALL[0],
        &firesteel_core::ui::UiSettings::default(),
    ) {
        add(remarks, &format!("SparkApplication {path}"), format!("**No effect:** {}.", why.trim_end_matches('.')));
    }
}
