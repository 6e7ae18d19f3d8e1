//! Executors created together with their driver, on a real API server. The test plays the kubelet and the driver's bridge.

use std::collections::BTreeMap;
use std::time::Duration;

use firesteel_api::executors::{Cause, ExecutorLedgerStatus};
use firesteel_operator::{ExecutorOptions, Options};
use firesteel_testenv::TestEnv;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::executors::{ACCOUNT, APP, GRANT, Stage, account, named};
use crate::fixture::{Fixture, PATIENCE, block_on, install, options, start, start_with};
use crate::killer::{self, Point};

const EARLY: &str = "firesteel.dev/early";

/// An application whose four executors are created with its driver, which does not run yet.
async fn stage(f: Fixture, allocator: &str) -> Stage {
    account(&f.client, f.namespace.name()).await;
    f.create(APP, &spec(allocator)).await;
    Stage::pending(f).await
}

fn spec(allocator: &str) -> Value {
    json!({
        "sparkConf": {"spark.kubernetes.allocation.pods.allocator": allocator},
        "driver": {"serviceAccount": ACCOUNT},
        "executor": {"instances": 4, "nodeSelector": {"no": "where"}},
    })
}

/// The driver runs and asks for so many executors of the kind that the grant forecasts, with these changes.
async fn asks(s: &Stage, wanted: u32, changes: &Value) {
    let grant = s.grants.get(GRANT).await.unwrap();
    let mut profile = serde_json::to_value(grant.spec.early.unwrap().profile).unwrap();
    profile["wanted"] = json!(wanted);
    // Only a running driver knows its address.
    profile["env"]["SPARK_DRIVER_POD_IP"] = json!("10.9.9.9");
    crate::fixture::json_patch(&mut profile, changes);
    s.publish(&json!({"profiles": {"0": profile}})).await;
}

fn is_admitted(ledger: &ExecutorLedgerStatus) -> bool {
    ledger.early.as_ref().is_some_and(|early| early.admitted.is_some())
}

fn is_early(pod: &Pod) -> bool {
    pod.annotations().contains_key(EARLY)
}

async fn has_event(s: &Stage, words: &str) {
    let events: Api<Event> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let notes: Vec<String> = all
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("EarlyExecutorsWithdrawn"))
            .filter_map(|event| event.note)
            .collect();
        if notes.iter().any(|note| note.contains(words)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "no event says {words:?}: {notes:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn executors_are_there_before_the_driver_runs_and_admitted_when_it_asks_for_them() {
    block_on(async {
        let Some(f) = Fixture::new("early").await else { return };
        let s = stage(f, "firesteel").await;
        let pods = s.until_executors(&[1, 2, 3, 4]).await;
        let pod = &pods[&1];
        assert!(is_early(pod));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let env = container.env.clone().unwrap();
        let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone()).unwrap_or_default();
        assert!(value("SPARK_DRIVER_URL").starts_with("spark://CoarseGrainedScheduler@pi-"), "{env:?}");
        assert!(env.iter().any(|v| v.value.as_deref().is_some_and(|v| v.starts_with("-javaagent:"))), "{env:?}");
        let ledger = s.ledger("written", |ledger| ledger.early.is_some()).await;
        assert!(!is_admitted(&ledger) && ledger.losses.is_empty());

        s.f.run_driver(APP).await;
        asks(&s, 4, &json!({})).await;
        let ledger = s.ledger("admitted", is_admitted).await;
        assert_eq!((ledger.early.unwrap().withdrawn, ledger.reserved_through), (0, 4));
        let adopted = s.until_executors(&[1, 2, 3, 4]).await;
        for (id, pod) in &pods {
            assert_eq!(adopted[id].uid(), pod.uid(), "executor {id} is another");
        }
        // A later one needs no agent.
        s.set(2, &json!({"phase": "Failed", "containerStatuses": [named(&json!({"terminated": {"exitCode": 1}}))]}))
            .await;
        let pods = s.until_executors(&[1, 3, 4, 5]).await;
        assert!(!is_early(&pods[&5]));
        s.publish(&json!({"stopped": true})).await;
        s.until_executors(&[]).await;
    });
}

#[test]
fn those_that_a_driver_does_not_ask_for_are_withdrawn_before_the_others_are_admitted() {
    block_on(async {
        let Some(f) = Fixture::new("earlyfewer").await else { return };
        let s = stage(f, "firesteel").await;
        s.until_executors(&[1, 2, 3, 4]).await;
        s.f.run_driver(APP).await;
        asks(&s, 2, &json!({})).await;
        let ledger = s.ledger("admitted", is_admitted).await;
        assert_eq!(ledger.early.unwrap().withdrawn, 2);
        assert!(ledger.losses.iter().all(|loss| loss.cause == Cause::Withdrawn) && ledger.failures.count == 0);
        s.until_executors(&[1, 2]).await;
    });
}

#[test]
fn a_program_that_changes_its_mind_gets_what_it_asks_for_and_nothing_else() {
    block_on(async {
        let changes = [
            ("memory", json!({"memory": "2048Mi"}), "resources"),
            ("cores", json!({"cpu": "2", "cores": 2, "env": {"SPARK_EXECUTOR_CORES": "2"}}), "resources"),
            ("java", json!({"env": {"SPARK_JAVA_OPT_99": "-Dx=1"}}), "Java option -Dx=1"),
            ("env", json!({"env": {"MODE": "fast"}}), "variable MODE"),
            ("port", json!({"env": {"SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@pi:1"}}), "driver's address"),
        ];
        for (name, change, words) in changes {
            let Some(f) = Fixture::new(&format!("early{name}")).await else { return };
            let s = stage(f, "firesteel").await;
            s.until_executors(&[1, 2, 3, 4]).await;
            s.f.run_driver(APP).await;
            // More memory for each means fewer of them, because the grant bounds the sum.
            asks(&s, 2, &change).await;
            let pods = s.until_executors(&[5, 6]).await;
            assert!(pods.values().all(|pod| !is_early(pod)), "{name}");
            let ledger = s.ledger("counted", |ledger| ledger.counts.wanted == 2).await;
            assert_eq!(ledger.early.clone().unwrap().withdrawn, 4, "{name}");
            assert!(!is_admitted(&ledger) && ledger.failures.count == 0, "{name}: {ledger:?}");
            has_event(&s, words).await;
        }
    });
}

#[test]
fn a_driver_without_a_node_is_not_kept_from_it_by_its_executors() {
    block_on(async {
        let Some(f) = Fixture::new("earlynode").await else { return };
        let s = stage(f, "firesteel").await;
        s.until_executors(&[1, 2, 3, 4]).await;
        let condition = |status: &str, reason: &str| {
            json!({"conditions": [{"type": "PodScheduled", "status": status, "reason": reason,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let nowhere = Patch::Merge(json!({"status": condition("False", "Unschedulable")}));
        s.f.pods.patch_status(GRANT, &PatchParams::default(), &nowhere).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        s.until_executors(&[1, 2, 3, 4]).await;
        s.set(3, &condition("True", "")).await;
        s.until_executors(&[]).await;
        let ledger = s.ledger("closed", |l| l.early.as_ref().is_some_and(|early| early.closed.is_some())).await;
        assert_eq!((ledger.early.unwrap().withdrawn, ledger.counts.lost, ledger.failures.count), (4, 0, 0));
        has_event(&s, "no node for the driver").await;
        s.f.run_driver(APP).await;
        asks(&s, 2, &json!({})).await;
        s.until_executors(&[5, 6]).await;
    });
}

#[test]
fn an_operator_that_is_told_so_creates_none_early() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let namespace = env.namespace("earlyoff").await;
        let executors = ExecutorOptions { early: false, ..ExecutorOptions::default() };
        let late = Options { executors, ..options(namespace.name()) };
        let operator = start_with(client.clone(), late);
        let s = stage(Fixture::around(namespace, client, operator), "firesteel").await;
        s.ledger("accepted", |ledger| ledger.accepted).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(s.executors().await.is_empty());
        s.f.run_driver(APP).await;
        asks(&s, 1, &json!({})).await;
        s.until_executors(&[1]).await;
    });
}

#[test]
fn sets_are_there_early_and_replaced_if_they_do_not_fit() {
    block_on(async {
        for (allocator, prefix) in [("firesteel-replicaset", "earlyrs"), ("firesteel-statefulset", "earlysts")] {
            for fits in [true, false] {
                let Some(f) = Fixture::new(&format!("{prefix}{}", u8::from(fits))).await else { return };
                let s = stage(f, allocator).await;
                let (first, replicas, early) = until_set(&s, allocator, |_, replicas, _| replicas == 4).await;
                assert!(early && replicas == 4);
                s.f.run_driver(APP).await;
                asks(&s, 3, &if fits { json!({}) } else { json!({"env": {"MODE": "fast"}}) }).await;
                let (second, ..) = until_set(&s, allocator, |_, replicas, early| replicas == 3 && early == fits).await;
                assert_eq!(first == second, fits, "{allocator}");
                if fits {
                    s.ledger("admitted", is_admitted).await;
                }
            }
        }
    });
}

/// Waits for a set: its uid, its size, and whether it was created early.
async fn until_set(s: &Stage, allocator: &str, is: impl Fn(&str, i32, bool) -> bool) -> (String, i32, bool) {
    let (client, ns) = (s.f.client.clone(), s.f.namespace.name());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = if allocator == "firesteel-replicaset" {
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), ns);
            let sets = sets.list(&ListParams::default()).await.unwrap().items;
            sets.into_iter().map(|set| (set.metadata, set.spec.replicas)).next()
        } else {
            let sets: Api<StatefulSet> = Api::namespaced(client.clone(), ns);
            let sets = sets.list(&ListParams::default()).await.unwrap().items;
            sets.into_iter().map(|set| (set.metadata, set.spec.replicas)).next()
        };
        if let Some((meta, replicas)) = found.clone() {
            let early = meta.annotations.unwrap_or_default().contains_key(EARLY);
            let (uid, replicas) = (meta.uid.unwrap(), replicas.unwrap_or_default());
            if is(&uid, replicas, early) {
                return (uid, replicas, early);
            }
        }
        assert!(tokio::time::Instant::now() < deadline, "the set never was as expected: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An operator dies at this write and another takes over: no id is used twice, and the driver gets exactly what it asks for.
async fn survives(point: Point) -> bool {
    let env = TestEnv::get().unwrap();
    let (mortal, death) = killer::client(crate::crash::config(env).await, point);
    let name = format!("earlydie{}{}", point.write, if point.after { "a" } else { "b" });
    let f = Fixture::with(&name, mortal).await;
    let ns = f.namespace.name().to_owned();
    let client = f.client.clone();
    let story = async {
        let s = stage(f, "firesteel").await;
        let mut uids: BTreeMap<u64, String> = BTreeMap::new();
        let mut seen = |pods: &BTreeMap<u64, Pod>| {
            for (id, pod) in pods {
                let uid = pod.uid().unwrap();
                assert_eq!(*uids.entry(*id).or_insert(uid.clone()), uid, "{point:?}: id {id} is used twice");
            }
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pods = s.executors().await;
            seen(&pods);
            if pods.len() >= 4 {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{point:?}: {} executors are there early", pods.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        s.f.run_driver(APP).await;
        asks(&s, 3, &json!({})).await;
        loop {
            let pods = s.executors().await;
            seen(&pods);
            let ledger = s.ledgers.get(GRANT).await.unwrap().status.unwrap();
            if pods.len() == 3 && is_admitted(&ledger) {
                assert_eq!((ledger.failures.count, ledger.counts.lost), (0, 0), "{point:?}");
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{point:?}: {} executors, {ledger:?}", pods.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::pin!(story);
    tokio::select! {
        () = &mut story => false,
        () = death.settled() => {
            let _next = start(client, &ns);
            story.await;
            true
        }
    }
}

#[test]
fn an_operator_that_dies_at_any_write_admits_exactly_those_that_are_wanted() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        install(&env.client().await).await;
        let mut deaths = 0;
        for first in (0..40).step_by(2) {
            let points = (first..first + 2).flat_map(|write| [false, true].map(|after| Point { write, after }));
            let died = futures::future::join_all(points.map(survives)).await;
            if !died.contains(&true) {
                break;
            }
            deaths += died.into_iter().filter(|died| *died).count();
        }
        assert!(deaths >= 20, "only {deaths} deaths: the story has more writes than that");
    });
}
