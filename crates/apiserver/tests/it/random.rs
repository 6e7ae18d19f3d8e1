//! Random requests through the fuzz target's entry point: the server responds to each and never panics.

#[path = "../../../../fuzz/entry.rs"]
mod entry;

use firesteel_apiserver::ApiServer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Text that gets past the first lines of a parser: JSON and YAML with the words of objects, truncated or corrupted.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
        "fieldsV1",
        "f:metadata",
        "k:{\"name\":\"x\"}",
        "resourceVersion",
        "uid",
        "generateName",
        "spec",
        "status",
        "containers",
        "volumes",
        "resources",
        "limits",
        "requests",
        "cpu",
        "template",
        "selector",
        "matchLabels",
        "matchExpressions",
        "ports",
        "data",
        "binaryData",
        "replicas",
        "versions",
        "schema",
        "openAPIV3Schema",
        "properties",
        "items",
        "x-kubernetes-validations",
        "rule",
        "$patch",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "$retainKeys",
        "op",
        "path",
        "value",
        "from",
        "target",
    ]);
    let leaf = prop_oneof![
        3 => prop::sample::select(vec![
            "x", "v1", "Pod", "ConfigMap", "Thing", "example.com/v1", "things.example.com", "100m", "1e9999999999", "-1Gi", "0x", "merge",
            "replace", "delete", "add", "test", "move", "/metadata/labels/~1", "/-", "/spec/containers/99999999999999999999", "2026-11-15T00:00:00Z",
            "self.x > 1", "self.x.filter(", "((((", "\u{0}", "ä\u{202e}", "integer", "object", "Namespaced", "",
        ]).prop_map(serde_json::Value::from),
        1 => any::<i64>().prop_map(serde_json::Value::from),
        1 => any::<f64>().prop_map(serde_json::Value::from),
        1 => any::<bool>().prop_map(serde_json::Value::from),
        1 => Just(serde_json::Value::Null),
    ];
    let value = leaf.prop_recursive(7, 48, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            3 => prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    });
    let typed = (
        value,
        prop::sample::select(vec![
            ("v1", "Pod"),
            ("v1", "ConfigMap"),
            ("apps/v1", "Deployment"),
            ("example.com/v1", "Thing"),
        ]),
    )
        .prop_map(|(mut value, (version, kind))| {
            if let Some(map) = value.as_object_mut() {
                map.insert("apiVersion".into(), version.into());
                map.insert("kind".into(), kind.into());
            }
            value.to_string().into_bytes()
        });
    let spoilt = (typed.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut text, at, byte)| {
        let at = at.index(text.len());
        text[at] = byte;
        text
    });
    let cut = (typed.clone(), any::<prop::sample::Index>()).prop_map(|(mut text, at)| {
        text.truncate(at.index(text.len()));
        text
    });
    prop_oneof![5 => typed, 2 => spoilt, 1 => cut, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn queries() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just(String::new()),
        2 => prop::sample::select(vec![
            "fieldManager=f", "fieldManager=f&force=true", "dryRun=All", "fieldValidation=Strict", "fieldManager=%00", "watch=true", "limit=-1",
            "continue=x", "labelSelector=a in (b", "labelSelector=!!", "fieldSelector=a=b=c", "resourceVersion=-1&watch=1", "pretty=maybe",
            "resourceVersion=99999999999999999999", "sendInitialEvents=true", "resourceVersionMatch=Exact", "gracePeriodSeconds=-9",
        ]).prop_map(str::to_owned),
        1 => "[a-zA-Z]{0,12}=[ -~]{0,12}",
    ]
}

#[test]
fn no_request_brings_the_server_down() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let server = runtime.block_on(ApiServer::builder().history(64).start()).expect("the server starts");
    let definition = serde_json::json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    runtime.block_on(crate::inside::ask(&server, "POST", definitions, "application/json", &definition));
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let inputs = (0..entry::METHODS.len(), 0..entry::MEDIA.len(), 0..entry::PATHS.len(), queries(), bodies());
    let outcome = runner.run(&inputs, |(method, media, path, query, body)| {
        // A one-second watch for each of them would take all day.
        prop_assume!(!(query.starts_with("watch") || query.contains("&watch")) || entry::METHODS[method] != "GET");
        let mut input: Vec<u8> =
            [method, media, path].iter().map(|index| u8::try_from(*index).expect("small")).collect();
        input.extend_from_slice(query.as_bytes());
        input.push(0);
        input.extend_from_slice(&body);
        runtime.block_on(entry::run(&server, &input)).map_err(TestCaseError::fail)
    });
    outcome.expect("an answer to everything");
}
