//! Algebra of patches on random values: a diff leads from one value to the other, applying twice equals applying once, and a failed patch
//! changes nothing.

use firesteel_apiserver::{ApiServer, RunningServer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::inside::{ask, revision};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

struct Bench {
    runtime: Runtime,
    server: RunningServer,
}

impl Bench {
    fn new() -> Self {
        let runtime = Runtime::new().expect("runtime");
        let server = runtime.block_on(ApiServer::builder().start()).expect("the server starts");
        let definition = json!({
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                     "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                         "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
        });
        let bench = Self { runtime, server };
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(bench.ask("POST", definitions, "application/json", &definition).0, 201);
        bench
    }

    fn ask(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
        self.runtime.block_on(ask(&self.server, method, path, media, body))
    }

    /// The object `x`, re-created with this spec.
    fn thing(&self, spec: &Value) -> Value {
        self.ask("DELETE", &format!("{THINGS}/x"), "", &Value::Null);
        let body = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
        let (code, made) = self.ask("POST", THINGS, "application/json", &body);
        assert_eq!(code, 201, "{made}");
        made
    }

    fn patch(&self, media: &str, patch: &Value) -> (u16, Value) {
        self.ask("PATCH", &format!("{THINGS}/x?fieldManager=test"), media, patch)
    }
}

fn run<T: std::fmt::Debug>(
    cases: u32,
    inputs: impl Strategy<Value = T>,
    test: impl Fn(T) -> Result<(), TestCaseError>,
) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    if let Err(error) = runner.run(&inputs, test) {
        panic!("{error}");
    }
}

/// Any JSON object without nulls (a merge patch cannot set one).
fn specs() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-c~/]{0,3}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-c~/]{1,2}", value, 0..4).prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// The merge patch from one value to another.
fn merge_difference(from: &Value, to: &Value) -> Value {
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return to.clone() };
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old) if old.is_object() && value.is_object() => {
                patch.insert(key.clone(), merge_difference(old, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[test]
fn differences_lead_from_one_value_to_the_other() {
    let bench = Bench::new();
    run(80, (specs(), specs()), |(from, to)| {
        bench.thing(&from);
        let merge = json!({"spec": merge_difference(&from, &to)});
        let (code, once) = bench.patch(MERGE, &merge);
        prop_assert_eq!(code, 200, "{}", once);
        prop_assert_eq!(&once["spec"], &to);
        let (_, twice) = bench.patch(MERGE, &merge);
        prop_assert_eq!(revision(&twice), revision(&once), "done again, it changes nothing");

        let before = bench.thing(&from);
        let difference = json_patch::diff(&json!({"spec": from}), &json!({"spec": to}));
        let (code, patched) = bench.patch(JSON, &serde_json::to_value(&difference).expect("JSON"));
        prop_assert_eq!(code, 200, "{}", patched);
        prop_assert_eq!(&patched["spec"], &to);
        prop_assert_eq!(revision(&patched) == revision(&before), from == to);
        Ok(())
    });
}

#[test]
fn a_patch_that_fails_changes_nothing() {
    let bench = Bench::new();
    run(40, (specs(), specs()), |(from, to)| {
        let before = bench.thing(&from);
        let mut operations =
            serde_json::to_value(json_patch::diff(&json!({"spec": from}), &json!({"spec": to}))).expect("JSON");
        let list = operations.as_array_mut().expect("a list");
        list.push(json!({"op": "test", "path": "/metadata/name", "value": "y"}));
        let (code, answer) = bench.patch(JSON, &operations);
        prop_assert!(code == 422 || code == 400, "{}: {}", code, answer);
        prop_assert_eq!(bench.ask("GET", &format!("{THINGS}/x"), "", &Value::Null).1, before);
        Ok(())
    });
}

#[test]
fn applying_again_changes_nothing_and_applying_nothing_gives_all_back() {
    let bench = Bench::new();
    let applied = |manager: &str, spec: &Value, force: bool| {
        let body = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
        bench.ask("PATCH", &format!("{THINGS}/x?fieldManager={manager}&force={force}"), APPLY, &body)
    };
    run(60, (specs(), specs()), |(mine, yours)| {
        bench.thing(&json!({"kept": {"by": "create"}}));
        let (code, first) = applied("me", &mine, false);
        prop_assert_eq!(code, 200, "{}", first);
        let (_, again) = applied("me", &mine, false);
        prop_assert_eq!(revision(&again), revision(&first), "applied again, it changes nothing");
        // Another manager with the same values shares them without a conflict, and either can leave without removing anything.
        let (code, shared) = applied("you", &mine, false);
        prop_assert_eq!(code, 200, "{}", shared);
        let (_, left) = applied("me", &json!({}), false);
        prop_assert_eq!(&left["spec"], &first["spec"]);
        // Another manager with other values takes them by force; a manager that applies nothing gives up what only it owned.
        applied("me", &yours, true);
        applied("you", &json!({}), false);
        let (code, bare) = applied("me", &json!({}), false);
        prop_assert_eq!(code, 200, "{}", bare);
        prop_assert_eq!(&bare["spec"], &json!({"kept": {"by": "create"}}));
        Ok(())
    });
}

/// Containers as name and image.
fn containers() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::btree_map("[a-e]", "[x-z]", 1..4).prop_map(|map| map.into_iter().collect())
}

#[test]
fn strategic_patches_merge_containers_by_name() {
    let bench = Bench::new();
    let list = |containers: &[(String, String)]| -> Vec<Value> {
        containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
    };
    let images = |pod: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        pod["spec"]["containers"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| (text(&c["name"]), text(&c["image"])))
            .collect()
    };
    run(60, (containers(), containers()), |(before, changes)| {
        bench.ask("DELETE", &format!("{PODS}/x?gracePeriodSeconds=0"), "", &Value::Null);
        let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": list(&before)}});
        let (code, made) = bench.ask("POST", PODS, "application/json", &pod);
        prop_assert_eq!(code, 201, "{}", made);
        // In a pod only the images of existing containers can change.
        let known: Vec<_> =
            changes.iter().filter(|(name, _)| before.iter().any(|(other, _)| other == name)).cloned().collect();
        let path = format!("{PODS}/x");
        let patch = json!({"spec": {"containers": list(&known)}});
        let (code, patched) = bench.ask("PATCH", &path, STRATEGIC, &patch);
        prop_assert_eq!(code, 200, "{}", patched);
        let expected: Vec<_> = before
            .iter()
            .map(|(name, image)| {
                known.iter().find(|(other, _)| other == name).cloned().unwrap_or((name.clone(), image.clone()))
            })
            .collect();
        let mut found = images(&patched);
        found.sort();
        prop_assert_eq!(&found, &expected);
        let (_, again) = bench.ask("PATCH", &path, STRATEGIC, &patch);
        prop_assert_eq!(revision(&again), revision(&patched), "done again, it changes nothing");
        // `$patch: delete` of a missing element changes nothing.
        let absent = json!({"spec": {"containers": [{"name": "nobody", "$patch": "delete"}]}});
        let (code, same) = bench.ask("PATCH", &path, STRATEGIC, &absent);
        prop_assert_eq!(code, 200, "{}", same);
        prop_assert_eq!(images(&same), images(&patched));
        Ok(())
    });
}
