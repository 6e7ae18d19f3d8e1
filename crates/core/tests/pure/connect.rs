//! Spark Connect servers: what is planned from a SparkConnect, and what follows from what happens to its server.

mod model;
mod plan;
mod step;

use std::collections::BTreeMap;

use firesteel_api::SparkConnectSpec;
use firesteel_core::connect::Subject;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const UID: &str = "uid-1";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A specification with some fields replaced.
pub(crate) fn spec(patch: &Value) -> SparkConnectSpec {
    let mut spec = json!({
        "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "server": {}, "executor": {"instances": 2},
    });
    for (name, value) in patch.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

pub(crate) fn with_subject<T>(spec: &SparkConnectSpec, test: impl FnOnce(&Subject<'_>) -> T) -> T {
    let labels = BTreeMap::from([
        ("team".to_owned(), "a".to_owned()),
        // Would make the application controller take the pods for its own.
        ("sparkoperator.k8s.io/app-name".to_owned(), "x".to_owned()),
    ]);
    test(&Subject { name: "lab", namespace: "jobs", uid: UID, labels: &labels, spec })
}
