//! Compares executor pods created by real Spark with the same table as the pure tests.

use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::bed::{Bed, until};

const FIELDS: &str = include_str!("../../../../core/tests/pure/pods/fields.json");
const CONTAINER: &str = "spark-kubernetes-executor";

/// An application whose executors have every field of the table at once; they need not start.
pub(crate) async fn every_field_shows_in_real_executors(bed: &Bed) {
    let rows: Vec<Value> = serde_json::from_str(FIELDS).unwrap();
    let rows: Vec<&Value> =
        rows.iter().filter(|row| row["roles"].as_array().unwrap().contains(&json!("executor"))).collect();
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(bed.client.clone());
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();

    let mut executor = json!({});
    let mut volumes = vec![json!({"name": "script", "configMap": {"name": "script"}})];
    for row in &rows {
        executor[row["field"].as_str().unwrap()] = row["value"].clone();
        volumes.extend(row["spec"]["volumes"].as_array().cloned().unwrap_or_default());
    }
    executor["instances"] = json!(1);
    bed.start("fields", &["page"], &json!({"volumes": volumes, "executor": executor})).await;
    let pod = until("there is an executor", async || bed.executors("fields").await.into_iter().next()).await;
    let at = pod.spec.as_ref().unwrap().containers.iter().position(|c| c.name == CONTAINER).unwrap();
    let pod = serde_json::to_value(&pod).unwrap();
    let mut wrong = Vec::new();
    for row in rows {
        for (pointer, expected) in row["pod"].as_object().into_iter().flatten() {
            let got = pod.pointer(&pointer.replace("MAIN", &at.to_string())).unwrap_or(&Value::Null);
            if !holds(got, expected) {
                wrong.push(format!("{}: {pointer}: {got} is not {expected}", row["field"]));
            }
        }
    }
    bed.apps.delete("fields", &DeleteParams::background()).await.unwrap();
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), serde_json::to_string_pretty(&pod).unwrap());
    bed.no_pods("fields").await;
}

/// A list must contain the expected object, or all expected objects; everything else must be equal, except for fields added by
/// servers and Spark.
fn holds(got: &Value, expected: &Value) -> bool {
    match (got, expected) {
        (Value::Array(items), Value::Object(_)) => items.iter().any(|item| contains(item, expected)),
        (Value::Array(items), Value::Array(all)) => all.iter().all(|e| items.iter().any(|item| contains(item, e))),
        _ => contains(got, expected),
    }
}

fn contains(got: &Value, expected: &Value) -> bool {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            expected.iter().all(|(name, value)| got.get(name).is_some_and(|g| contains(g, value)))
        }
        (Value::Array(got), Value::Array(expected)) => {
            got.len() == expected.len() && got.iter().zip(expected).all(|(g, e)| contains(g, e))
        }
        _ => got == expected,
    }
}
