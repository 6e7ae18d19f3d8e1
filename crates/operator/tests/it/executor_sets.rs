//! Executors in ReplicaSets and StatefulSets, on a real API server with its controllers. The test plays the kubelet and
//! the driver's bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firesteel_api::executors::{Cause, ExecutorLedgerStatus};
use firesteel_testenv::TestEnv;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::executors::{APP, GRANT, Stage, named};
use crate::fixture::{Fixture, PATIENCE, block_on, start};
use crate::killer::{self, Point};

/// Waits until a check returns `Ok`; an `Err` describes the current state.
macro_rules! until {
    ($what:expr, $look:block) => {{
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let seen: Result<_, String> = async { $look }.await;
            match seen {
                Ok(found) => break found,
                Err(instead) => assert!(tokio::time::Instant::now() < deadline, "never {}: {instead}", $what),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }};
}

fn strategy(allocator: &str, more: &Value) -> Value {
    let mut patch = json!({"sparkConf": {"spark.kubernetes.allocation.pods.allocator": allocator}});
    crate::fixture::json_patch(&mut patch, more);
    patch
}

impl Stage {
    async fn on_sets(prefix: &str, allocator: &str, more: &Value) -> Option<Stage> {
        Stage::new(prefix, &strategy(allocator, more)).await
    }

    fn replica_sets(&self) -> Api<ReplicaSet> {
        Api::namespaced(self.f.client.clone(), self.f.namespace.name())
    }

    fn stateful_sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.f.client.clone(), self.f.namespace.name())
    }

    /// Members not being deleted, by name.
    async fn members(&self) -> BTreeMap<String, Pod> {
        let list = ListParams::default().labels("spark-role=executor");
        let pods = self.f.pods.list(&list).await.unwrap().items;
        let stay = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        stay.map(|pod| (pod.name_any(), pod)).collect()
    }

    async fn until_members(&self, count: usize) -> BTreeMap<String, Pod> {
        until!(&format!("{count} members"), {
            let members = self.members().await;
            if members.len() == count { Ok(members) } else { Err(format!("{:?}", members.keys())) }
        })
    }

    /// The status of a member's container, as a kubelet writes it.
    async fn container(&self, pod: &str, address: &str, restarts: u32, state: &Value, last: &Value) {
        let mut container = named(state);
        container["restartCount"] = json!(restarts);
        container["lastState"] = last.clone();
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status =
            json!({"phase": "Running", "podIP": address, "conditions": ready, "containerStatuses": [container]});
        let patch = Patch::Merge(json!({"status": status}));
        // Its controller may be deleting it.
        match self.f.pods.patch_status(pod, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn runs(&self, pod: &str, address: &str) {
        self.container(pod, address, 0, &running(), &json!({})).await;
    }

    async fn registers(&self, id: u32, address: &str) {
        self.publish(&json!({"registered": {id.to_string(): address}})).await;
    }

    async fn until_label(&self, pod: &str, label: &str) {
        until!(&format!("labelled {label}"), {
            let found = self.f.pods.get(pod).await.unwrap().labels()["spark-exec-id"].clone();
            if found == label { Ok(()) } else { Err(found) }
        });
    }

    /// Every member runs and registers, with ids from 1 in the order of their names.
    async fn all_register(&self) -> Vec<String> {
        let names: Vec<String> = self.members().await.into_keys().collect();
        for (i, name) in (1..).zip(&names) {
            self.runs(name, &format!("10.1.0.{i}")).await;
            self.registers(i, &format!("10.1.0.{i}")).await;
        }
        for (i, name) in (1..).zip(&names) {
            let id: i32 = i;
            self.until_label(name, &id.to_string()).await;
        }
        names
    }
}

fn running() -> Value {
    json!({"running": {"startedAt": crate::fixture::now()}})
}

fn ended(code: i32, reason: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": crate::fixture::now(),
        "finishedAt": crate::fixture::now()}})
}

#[test]
fn a_replica_set_gives_executors_that_are_known_by_their_addresses() {
    block_on(async {
        let Some(s) = Stage::on_sets("replicas", "firesteel-replicaset", &json!({})).await else { return };
        s.want(3).await;
        s.until_members(3).await;
        let sets = s.replica_sets().list(&ListParams::default()).await.unwrap().items;
        let [set] = sets.as_slice() else { panic!("{sets:?}") };
        let driver = s.f.pods.get(GRANT).await.unwrap();
        let owner = &set.owner_references()[0];
        assert_eq!((owner.kind.as_str(), &owner.uid, owner.controller), ("Pod", &driver.uid().unwrap(), Some(true)));
        assert_eq!(set.name_any(), format!("spark-r-{}-0", driver.labels()["spark-app-selector"]));
        // The pods match the grant, with the driver's sizes.
        let granted = s.grants.get(GRANT).await.unwrap().spec.template.spec.unwrap();
        for pod in s.members().await.values() {
            let spec = pod.spec.clone().unwrap();
            let env = spec.containers[0].env.clone().unwrap();
            let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
            assert_eq!(value("SPARK_EXECUTOR_ID").as_deref(), Some("EXECID"));
            assert_eq!(value("SPARK_DRIVER_URL").as_deref(), Some("spark://d:7078"));
            assert_eq!(spec.containers[0].image, granted.containers[0].image);
            assert_eq!(spec.node_selector, granted.node_selector);
            assert_eq!((spec.restart_policy.as_deref(), spec.hostname), (Some("Always"), None));
        }

        let names = s.all_register().await;
        s.ledger("counted", |l| l.counts.registered == 3 && l.counts.running == 3).await;
        // Killed: its kubelet restarts the container, as another executor.
        let killed = ended(137, "OOMKilled");
        s.container(&names[1], "10.1.0.2", 1, &running(), &killed).await;
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        let loss = &ledger.losses[0];
        assert_eq!((loss.id.as_str(), loss.code, loss.cause), ("2", 137, Cause::Application));
        assert_eq!(ledger.failures.count, 1);
        s.until_label(&names[1], "EXECID").await;
        s.publish(&json!({"lossSeen": loss.seq, "registered": {"2": null, "4": "10.1.0.2"}})).await;
        s.until_label(&names[1], "4").await;
        s.ledger("forgotten", |l| l.losses.is_empty() && l.counts.registered == 3 && l.counts.lost == 1).await;

        // It fails again, and its kubelet backs off before the next restart.
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
        s.container(&names[1], "10.1.0.2", 1, &waiting, &ended(52, "Error")).await;
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        assert_eq!((ledger.losses[0].id.as_str(), ledger.losses[0].code), ("4", 52));
        assert_eq!(ledger.failures.count, 2);
        s.container(&names[1], "10.1.0.2", 2, &running(), &ended(52, "Error")).await;
        s.publish(&json!({"lossSeen": ledger.losses[0].seq, "registered": {"4": null, "5": "10.1.0.2"}})).await;
        s.until_label(&names[1], "5").await;
        let ledger = s.ledger("settled", |l| l.losses.is_empty() && l.counts.registered == 3).await;
        assert_eq!((ledger.failures.count, ledger.counts.lost), (2, 2), "each counts once");

        // A deleted pod is replaced by its set, and its executor is reported lost.
        s.f.pods.delete(&names[2], &DeleteParams::default().grace_period(0)).await.unwrap();
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        assert_eq!((ledger.losses[0].id.as_str(), ledger.losses[0].cause), ("3", Cause::Platform));
        s.until_members(3).await;
        s.publish(&json!({"stopped": true})).await;
        s.until_members(0).await;
        assert!(s.replica_sets().list(&ListParams::default()).await.unwrap().items.is_empty());
    });
}

#[test]
fn a_replica_set_shrinks_by_the_pods_that_spark_released() {
    block_on(async {
        let dynamic = json!({"dynamicAllocation": {"enabled": true, "initialExecutors": 1, "maxExecutors": 4}});
        let Some(s) = Stage::on_sets("shrink", "replicaset", &dynamic).await else { return };
        s.want(4).await;
        s.until_members(4).await;
        let names = s.all_register().await;
        s.want(1).await;
        s.ledger("clamped", |l| l.counts.wanted == 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(s.members().await.len(), 4, "all of them are busy");
        // Spark releases two: they exit with 0, and their kubelets restart them.
        for (name, id) in [(&names[1], 2), (&names[3], 4)] {
            s.publish(&json!({"registered": {id.to_string(): null}})).await;
            s.container(name, &format!("10.1.0.{id}"), 1, &running(), &ended(0, "Completed")).await;
        }
        let left = s.until_members(2).await;
        assert_eq!(left.keys().collect::<Vec<_>>(), [&names[0], &names[2]]);
        let ledger = s.ledger("quiet", |l| l.counts.registered == 2).await;
        assert_eq!((ledger.losses.len(), ledger.counts.lost, ledger.failures.count), (0, 0, 0));
        // Scale up, then down before they run: pending pods are deleted.
        s.want(4).await;
        s.until_members(4).await;
        s.want(1).await;
        let left = s.until_members(2).await;
        assert_eq!(left.keys().collect::<Vec<_>>(), [&names[0], &names[2]]);
        // Down to zero: an empty set is deleted.
        s.publish(&json!({"registered": {"1": null, "3": null}})).await;
        s.want(0).await;
        s.until_members(0).await;
        assert!(s.replica_sets().list(&ListParams::default()).await.unwrap().items.is_empty());
        s.want(1).await;
        s.until_members(1).await;
    });
}

#[test]
fn a_stateful_set_has_numbered_members_with_claims_of_their_own() {
    block_on(async {
        let volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1";
        let conf = json!({"sparkConf": {
            format!("{volume}.options.claimName"): "OnDemand", format!("{volume}.options.sizeLimit"): "1Gi",
            format!("{volume}.options.storageClass"): "none", format!("{volume}.mount.path"): "/data"}});
        let Some(s) = Stage::on_sets("stateful", "firesteel-statefulset", &conf).await else { return };
        s.want(2).await;
        s.until_members(2).await;
        let sets = s.stateful_sets().list(&ListParams::default()).await.unwrap().items;
        let [set] = sets.as_slice() else { panic!("{sets:?}") };
        assert_eq!(set.spec.pod_management_policy.as_deref(), Some("Parallel"));
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
        assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), 2);
        let names = s.all_register().await;
        assert_eq!(names, [format!("{}-0", set.name_any()), format!("{}-1", set.name_any())]);

        // Evicted: the new pod has the same name, but its executor is not mistaken for the old one.
        let gone = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
            "containerStatuses": [named(&ended(143, "Error"))]});
        let before = s.f.pods.get(&names[0]).await.unwrap().uid();
        let patch = Patch::Merge(json!({"status": gone}));
        s.f.pods.patch_status(&names[0], &PatchParams::default(), &patch).await.unwrap();
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        let loss = &ledger.losses[0];
        assert_eq!((loss.id.as_str(), loss.cause, ledger.failures.count), ("1", Cause::Platform, 0));
        assert!(loss.text.contains("evicted"), "{}", loss.text);
        until!("replaced", {
            let there = s.f.pods.get_opt(&names[0]).await.unwrap().and_then(|p| p.uid());
            if there.is_some() && there != before { Ok(()) } else { Err(format!("{there:?}")) }
        });
        s.runs(&names[0], "10.1.0.1").await;
        s.publish(&json!({"lossSeen": loss.seq, "registered": {"1": null, "3": "10.1.0.1"}})).await;
        s.until_label(&names[0], "3").await;

        s.f.end_driver(APP, 0).await;
        s.until_members(0).await;
        until!("without claims", {
            let left = claims.list(&ListParams::default()).await.unwrap().items;
            let left: Vec<_> = left.iter().filter(|c| c.metadata.deletion_timestamp.is_none()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    });
}

#[test]
fn members_that_cannot_start_move_elsewhere_and_hand_edits_do_not_last() {
    block_on(async {
        let Some(mut s) = Stage::on_sets("elsewhere", "firesteel-replicaset", &json!({})).await else { return };
        s.want(1).await;
        let name = s.until_members(1).await.into_keys().next().unwrap();
        let sets = s.replica_sets();
        let set = sets.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
        let edit = json!({"spec": {"replicas": 4, "template": {"spec": {"serviceAccountName": "root"}}}});
        let granted = s.grants.get(GRANT).await.unwrap().spec.template.spec.unwrap().service_account_name;
        for unseen in [false, true] {
            if unseen {
                s.f.stop_operator();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            sets.patch(&set, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
            if unseen {
                s.f.start_operator();
            }
            until!("as it was granted", {
                let spec = sets.get(&set).await.unwrap().spec;
                let account = spec.template.unwrap().spec.unwrap().service_account_name;
                if spec.replicas == Some(1) && account == granted {
                    Ok(())
                } else {
                    Err(format!("{:?} {account:?}, edited while no operator ran: {unseen}", spec.replicas))
                }
            });
        }
        s.until_members(1).await;
        // The first pod may have gone with the surplus.
        let name =
            if s.members().await.contains_key(&name) { name } else { s.members().await.into_keys().next().unwrap() };
        // Its container keeps failing on its node: it gets another pod, on another node.
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "bad"}});
        let bind: http::Request<Vec<u8>> =
            http::Request::post(format!("/api/v1/namespaces/{}/pods/{name}/binding", s.f.namespace.name()))
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&binding).unwrap())
                .unwrap();
        let _: Value = s.f.client.request(bind).await.unwrap();
        for restarts in 0..2 {
            s.container(&name, "10.1.0.9", restarts, &ended(1, "Error"), &json!({})).await;
            s.ledger("counted", |l| l.failures.count == restarts + 1).await;
        }
        let ledger = s.ledger("avoiding", |l| !l.avoided_nodes.is_empty()).await;
        assert!(ledger.losses.is_empty(), "Spark never heard of it: {:?}", ledger.losses);
        until!("replaced elsewhere", {
            // Its node does not exist, so only the test can confirm the end.
            if s.f.pods.get_opt(&name).await.unwrap().is_some_and(|p| p.metadata.deletion_timestamp.is_some()) {
                let _ = s.f.pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            }
            let members = s.members().await;
            let Some(pod) = members.values().find(|p| p.name_any() != name) else { return Err("no other".to_owned()) };
            let affinity = serde_json::to_string(&pod.spec.as_ref().unwrap().affinity).unwrap();
            if affinity.contains("NotIn") && affinity.contains("bad") { Ok(()) } else { Err(affinity) }
        });
    });
}

#[test]
fn a_full_quota_is_named_and_waited_for() {
    block_on(async {
        let Some(s) = Stage::on_sets("setquota", "firesteel-replicaset", &json!({})).await else { return };
        let quotas: Api<ResourceQuota> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
        let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        until!("counted", {
            let used = quotas.get("few").await.unwrap().status.and_then(|s| s.used);
            if used.as_ref().is_some_and(|used| used["pods"].0 == "1") { Ok(()) } else { Err(format!("{used:?}")) }
        });
        s.want(3).await;
        let full = |l: &ExecutorLedgerStatus| {
            l.conditions.iter().any(|c| c.type_ == "Satisfied" && c.message.contains("exceeded quota"))
        };
        // Pending pods have their own reason; start them, so that only the quota is left.
        let name = s.until_members(1).await.into_keys().next().unwrap();
        s.runs(&name, "10.1.0.1").await;
        let ledger = s.ledger("waiting for room", full).await;
        assert_eq!((ledger.failures.count, ledger.failures.row), (0, 0));
    });
}

/// An operator dies at this write and another takes over: the set has the right size, every executor its label, and every
/// loss is reported once.
async fn survives(point: Point) -> bool {
    let env = TestEnv::get().unwrap();
    let prefix = format!("set{}{}", point.write, if point.after { "a" } else { "b" });
    let f = Fixture::with(&prefix, env.client().await).await;
    let mut s = Stage::on(f, &strategy("firesteel-replicaset", &json!({}))).await;
    let (mortal, death) = killer::client(crate::crash::config(env).await, point);
    s.f.hand_over(mortal);
    let story = async {
        s.want(3).await;
        s.until_members(3).await;
        let names = s.all_register().await;
        s.container(&names[1], "10.1.0.2", 1, &running(), &ended(52, "Error")).await;
        let mut told = BTreeSet::new();
        until!("told", {
            let status = s.ledgers.get(GRANT).await.unwrap().status.unwrap();
            told.extend(status.losses.iter().map(|loss| (loss.id.clone(), loss.seq)));
            if told.is_empty() { Err(format!("{status:?}")) } else { Ok(()) }
        });
        let seen = told.iter().map(|(_, seq)| *seq).max();
        s.publish(&json!({"lossSeen": seen, "registered": {"2": null, "4": "10.1.0.2"}})).await;
        s.until_label(&names[1], "4").await;
        // Spark releases one and wants one fewer.
        s.publish(&json!({"registered": {"3": null}})).await;
        s.want(2).await;
        let left: Vec<String> = s.until_members(2).await.into_keys().collect();
        assert_eq!(left, [names[0].clone(), names[1].clone()], "{point:?}");
        let ledger = s.ledger("quiet", |l| l.losses.is_empty() && l.counts.registered == 2).await;
        assert_eq!((ledger.failures.count, ledger.counts.lost), (1, 1), "{point:?}");
        told
    };
    tokio::pin!(story);
    let (told, died) = tokio::select! {
        told = &mut story => (told, false),
        () = death.settled() => {
            let _next = start(s.f.client.clone(), s.f.namespace.name());
            (story.await, true)
        }
    };
    let told: Vec<_> = told.into_iter().map(|(id, _)| id).collect();
    assert_eq!(told, ["2"], "{point:?}");
    died
}

#[test]
fn an_operator_that_dies_at_any_write_leaves_sets_that_another_takes_over() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        crate::fixture::install(&env.client().await).await;
        let mut deaths = 0;
        // They mostly wait, so several run in parallel. Dying before a write equals dying after the one before it.
        for first in (0..30).step_by(4) {
            let points = (first..first + 4).map(|write| Point { write, after: true });
            let died = futures::future::join_all(points.map(survives)).await;
            deaths += died.iter().filter(|died| **died).count();
            println!("{deaths} deaths so far");
            if !died.contains(&true) {
                break;
            }
        }
        assert!(deaths >= 8, "only {deaths} deaths: the story has more writes than that");
    });
}
