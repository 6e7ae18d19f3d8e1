//! Malicious requests: too large, too deep, random.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::client::{cluster, send};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_body_over_three_mebibytes_is_refused() {
    let cluster = cluster().await;
    let body = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = send(&cluster.client, "POST", PATH, "application/json", body).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
}

#[tokio::test]
async fn deep_nesting_is_refused_in_every_format() {
    let cluster = cluster().await;
    let deep = "[".repeat(100_000);
    for media in ["application/json", "application/yaml"] {
        let answer = send(&cluster.client, "POST", PATH, media, deep.clone().into_bytes()).await;
        assert_eq!(answer.code, 400, "{media}");
    }
    for media in ["application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"] {
        let path = format!("{PATH}/kube-root-ca.crt?fieldManager=x");
        let answer = send(&cluster.client, "PATCH", &path, media, deep.clone().into_bytes()).await;
        assert_eq!(answer.code, 400, "{media}");
    }
    assert_eq!(cluster.get("/healthz").await.code, 200);
}

/// JSON that resembles objects.
fn objects() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        "[a-z0-9:/.-]{0,8}".prop_map(serde_json::Value::from),
    ];
    let names = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("name"),
        Just("labels"),
        Just("containers"),
        Just("volumes"),
        Just("resources"),
        Just("limits"),
        Just("template"),
        Just("ports"),
        Just("status"),
        Just("finalizers"),
        Just("data"),
        Just("selector"),
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn no_random_object_gets_more_than_a_refusal() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let cluster = runtime.block_on(cluster());
    let mut runner = TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let paths = [
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/services",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    ];
    let outcome = runner.run(&(objects(), 0..paths.len()), |(object, path)| {
        let body = object.to_string().into_bytes();
        let answers = runtime.block_on(async {
            let path = paths[path];
            vec![
                send(&cluster.client, "POST", path, "application/json", body.clone()).await,
                send(
                    &cluster.client,
                    "PATCH",
                    &format!("{path}/x?fieldManager=f"),
                    "application/apply-patch+yaml",
                    body.clone(),
                )
                .await,
                send(&cluster.client, "PATCH", &format!("{path}/x"), "application/strategic-merge-patch+json", body)
                    .await,
            ]
        });
        for answer in answers {
            prop_assert!(answer.code < 500, "{answer:?}");
        }
        Ok(())
    });
    outcome.expect("no server error");
}
