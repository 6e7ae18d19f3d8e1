//! Edits that reach the new executors of a running application without another run, on a real API server.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::executors::{APP, Stage};
use crate::fixture::{Fixture, PATIENCE, block_on, condition};

impl Stage {
    async fn label(&self, labels: &Value) {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        self.f.apps.patch(APP, &PatchParams::default(), &patch).await.unwrap();
    }

    /// It is still the first run, with the same driver.
    async fn is_first_run(&self, driver: &str) {
        let app = self.f.apps.get(APP).await.unwrap();
        let status = app.status.as_ref().unwrap();
        assert_eq!((status.attempt, status.application_state.state.as_str()), (Some(1), "RUNNING"), "{status:?}");
        let pod = self.f.pods.get("pi-driver").await.unwrap();
        assert_eq!(pod.uid().as_deref(), Some(driver));
    }

    async fn driver_uid(&self) -> String {
        self.f.pods.get("pi-driver").await.unwrap().uid().unwrap()
    }

    /// Waits until the operator has taken an edit in.
    async fn until_observed(&self) {
        self.f
            .wait(APP, "observed", |app| app.status.as_ref().unwrap().observed_generation == app.metadata.generation)
            .await;
    }
}

fn labels<'a>(pods: &'a BTreeMap<u64, Pod>, id: u64, names: &[&str]) -> Vec<Option<&'a str>> {
    let labels = pods[&id].labels();
    names.iter().map(|name| labels.get(*name).map(String::as_str)).collect()
}

#[test]
fn labels_reach_new_executors_also_after_a_restart_of_the_operator() {
    block_on(async {
        let executor = json!({"executor": {"instances": 5, "labels": {"stage": "one"}}});
        let Some(mut stage) = Stage::new("live", &executor).await else { return };
        let driver = stage.driver_uid().await;
        stage.want(1).await;
        let names = ["stage", "cost", "spark-role", "sparkoperator.k8s.io/app-name", "spark-exec-id"];
        let pods = stage.until_executors(&[1]).await;
        assert_eq!(labels(&pods, 1, &names), [Some("one"), None, Some("executor"), Some(APP), Some("1")]);

        // The application's own labels, and those of its executors.
        stage.label(&json!({"cost": "a", "sparkoperator.k8s.io/app-name": "other", "spark-role": "driver"})).await;
        stage.f.edit(APP, &json!({"executor": {"labels": {"stage": "two"}, "annotations": {"note": "n"}}})).await;
        stage.until_observed().await;
        stage.want(2).await;
        let pods = stage.until_executors(&[1, 2]).await;
        assert_eq!(labels(&pods, 2, &names), [Some("two"), Some("a"), Some("executor"), Some(APP), Some("2")]);
        assert_eq!(pods[&2].annotations()["note"], "n");
        assert_eq!(labels(&pods, 1, &names), [Some("one"), None, Some("executor"), Some(APP), Some("1")], "left alone");
        assert!(stage.f.event("ExecutorTemplateUpdated").await.contains("executors created from now on"));
        stage.is_first_run(&driver).await;

        // Edited while no operator runs.
        stage.f.stop_operator();
        tokio::time::sleep(Duration::from_millis(500)).await;
        stage.label(&json!({"cost": "b"})).await;
        stage.f.edit(APP, &json!({"executor": {"labels": {"stage": null}}})).await;
        stage.f.start_operator();
        stage.until_observed().await;
        stage.want(3).await;
        let pods = stage.until_executors(&[1, 2, 3]).await;
        assert_eq!(labels(&pods, 3, &names), [None, Some("b"), Some("executor"), Some(APP), Some("3")]);
        stage.is_first_run(&driver).await;

        // What cannot work reaches nobody, and is named.
        stage.f.edit(APP, &json!({"executor": {"labels": {"stage": "not a label"}}})).await;
        let app = stage.f.wait(APP, "refused", |app| condition(app, "SpecAccepted", "False").is_some()).await;
        let (_, message) = condition(&app, "SpecAccepted", "False").unwrap();
        assert!(message.contains("spec.executor.labels"), "{message}");
        stage.want(4).await;
        let pods = stage.until_executors(&[1, 2, 3, 4]).await;
        assert_eq!(labels(&pods, 4, &names[..2]), [None, Some("b")]);
        stage.f.edit(APP, &json!({"executor": {"labels": {"stage": "five"}}})).await;
        stage.f.wait(APP, "accepted", |app| condition(app, "SpecAccepted", "False").is_none()).await;
        stage.want(5).await;
        let pods = stage.until_executors(&[1, 2, 3, 4, 5]).await;
        assert_eq!(labels(&pods, 5, &names[..2]), [Some("five"), Some("b")]);
        stage.is_first_run(&driver).await;
    });
}

#[test]
fn labels_reach_the_templates_of_sets() {
    block_on(async {
        for allocator in ["firesteel-replicaset", "firesteel-statefulset"] {
            let conf = json!({"sparkConf": {"spark.kubernetes.allocation.pods.allocator": allocator}});
            let Some(stage) = Stage::new("live-set", &conf).await else { return };
            let driver = stage.driver_uid().await;
            stage.want(1).await;
            let list = ListParams::default().labels("spark-role=executor");
            let members = async |count: usize| {
                let deadline = tokio::time::Instant::now() + PATIENCE;
                loop {
                    let pods = stage.f.pods.list(&list).await.unwrap().items;
                    if pods.len() == count {
                        return pods;
                    }
                    assert!(tokio::time::Instant::now() < deadline, "{} members, not {count}", pods.len());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            members(1).await;
            stage.label(&json!({"cost": "a"})).await;
            stage.f.edit(APP, &json!({"executor": {"labels": {"stage": "two"}}})).await;
            // Its controller creates members by itself, so the template follows at once.
            let deadline = tokio::time::Instant::now() + PATIENCE;
            loop {
                let of = |labels: Option<BTreeMap<String, String>>| labels.unwrap_or_default();
                let (namespace, list) = (stage.f.namespace.name(), ListParams::default());
                let templates: Vec<BTreeMap<String, String>> = if allocator == "firesteel-replicaset" {
                    let sets: Api<ReplicaSet> = Api::namespaced(stage.f.client.clone(), namespace);
                    let sets = sets.list(&list).await.unwrap().items.into_iter();
                    sets.map(|set| of(set.spec.template.unwrap().metadata.unwrap().labels)).collect()
                } else {
                    let sets: Api<StatefulSet> = Api::namespaced(stage.f.client.clone(), namespace);
                    let sets = sets.list(&list).await.unwrap().items.into_iter();
                    sets.map(|set| of(set.spec.template.metadata.unwrap().labels)).collect()
                };
                assert_eq!(templates.len(), 1);
                let has = |name: &str, value: &str| templates[0].get(name).is_some_and(|label| label == value);
                if has("cost", "a") && has("stage", "two") {
                    break;
                }
                assert!(tokio::time::Instant::now() < deadline, "{allocator}: {templates:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            stage.want(2).await;
            let pods = members(2).await;
            let labelled: Vec<&Pod> =
                pods.iter().filter(|pod| pod.labels().get("cost").is_some_and(|c| c == "a")).collect();
            assert_eq!(labelled.len(), 1, "{allocator}: the new one has the label, the old one is left alone");
            assert_eq!(labelled[0].labels()["spark-role"], "executor");
            stage.is_first_run(&driver).await;
        }
    });
}

#[test]
fn where_executors_run_follows_an_edit_with_the_gate_and_restarts_without_it() {
    block_on(async {
        for gate in [true, false] {
            let tune = |options: &mut firesteel_operator::Options| options.runs.partial_restart = gate;
            let Some(f) = Fixture::tuned("live-gate", tune).await else { return };
            let stage = Stage::on(f, &json!({})).await;
            let driver = stage.driver_uid().await;
            stage.want(1).await;
            stage.until_executors(&[1]).await;
            stage.f.edit(APP, &json!({"executor": {"nodeSelector": {"no": "where", "disk": "ssd"}}})).await;
            if gate {
                stage.until_observed().await;
                stage.want(2).await;
                let pods = stage.until_executors(&[1, 2]).await;
                let selector = |id: u64| pods[&id].spec.as_ref().unwrap().node_selector.clone().unwrap();
                assert_eq!(selector(2)["disk"], "ssd");
                assert!(!selector(1).contains_key("disk"));
                stage.is_first_run(&driver).await;
            } else {
                stage.f.wait(APP, "run again", |app| app.status.as_ref().unwrap().attempt == Some(2)).await;
            }
        }
    });
}
