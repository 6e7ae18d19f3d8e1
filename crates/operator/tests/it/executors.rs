//! Executors outside the driver, on a real API server. The test plays the kubelet and the driver's bridge, the latter
//! with a token of the driver's account, which has exactly the role of `firesteel setup --executors-outside`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firesteel_api::executors::{Cause, ExecutorLedgerStatus};
use firesteel_api::{ExecutorGrant, ExecutorLedger};
use firesteel_core::allocation::size::Amount;
use firesteel_operator::ExecutorOptions;
use firesteel_operator::Options;
use firesteel_testenv::TestEnv;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, PATIENCE, block_on, container, install, options, start, start_with};
use crate::killer::{self, Point};
use crate::passes::passes;

/// One application with its executors outside, and its driver's bridge.
pub(crate) struct Stage {
    pub(crate) f: Fixture,
    /// The API as the driver sees it.
    driver: Client,
    pub(crate) grants: Api<ExecutorGrant>,
    pub(crate) ledgers: Api<ExecutorLedger>,
}

pub(crate) const APP: &str = "pi";
pub(crate) const GRANT: &str = "pi-driver";
/// The drivers' service account: no pod permissions.
pub(crate) const ACCOUNT: &str = "outside";

impl Stage {
    pub(crate) async fn new(prefix: &str, patch: &Value) -> Option<Stage> {
        let f = Fixture::new(prefix).await?;
        Some(Stage::on(f, patch).await)
    }

    pub(crate) async fn on(f: Fixture, patch: &Value) -> Stage {
        let ns = f.namespace.name();
        account(&f.client, ns).await;
        let mut spec = json!({
            // Executors before the driver asks for them: `early.rs`.
            "sparkConf": {
                "spark.kubernetes.allocation.pods.allocator": "firesteel", "spark.firesteel.executors.early": "false"},
            "driver": {"serviceAccount": ACCOUNT},
            "executor": {"instances": 4, "nodeSelector": {"no": "where"}},
        });
        crate::fixture::json_patch(&mut spec, patch);
        f.create(APP, &spec).await;
        let stage = Stage::pending(f).await;
        stage.f.run_driver(APP).await;
        stage.ledger("accepted", |ledger| ledger.accepted).await;
        stage
    }

    /// Its driver's pod is there, and does not run.
    pub(crate) async fn pending(f: Fixture) -> Stage {
        let pod = f.driver(APP, 1).await;
        let driver = f.namespace.kubeconfig_in(&pod, ACCOUNT).await.client().await;
        let ns = f.namespace.name();
        let (grants, ledgers) = (Api::namespaced(f.client.clone(), ns), Api::namespaced(f.client.clone(), ns));
        Stage { f, driver, grants, ledgers }
    }

    /// What the bridge publishes.
    pub(crate) async fn publish(&self, status: &Value) {
        self.try_publish(&self.driver, GRANT, status).await.unwrap();
    }

    async fn try_publish(&self, client: &Client, grant: &str, status: &Value) -> Result<(), kube::Error> {
        let grants: Api<ExecutorGrant> = Api::namespaced(client.clone(), self.f.namespace.name());
        let patch = Patch::Merge(json!({"status": status}));
        grants.patch_status(grant, &PatchParams::default(), &patch).await.map(|_| ())
    }

    pub(crate) async fn want(&self, wanted: u32) {
        let env = json!({"SPARK_DRIVER_URL": "spark://d:7078", "SPARK_JAVA_OPT_0": "-Dx=EXECID"});
        self.publish(&json!({"profiles": {"0": {
            "wanted": wanted, "cores": 1, "cpu": "1", "memory": "1408Mi", "env": env}}}))
            .await;
    }

    /// Waits until the ledger satisfies a condition.
    pub(crate) async fn ledger(
        &self,
        what: &str,
        condition: impl Fn(&ExecutorLedgerStatus) -> bool,
    ) -> ExecutorLedgerStatus {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let ledger = self.ledgers.get_opt(GRANT).await.unwrap().and_then(|l| l.status).unwrap_or_default();
            if condition(&ledger) {
                return ledger;
            }
            let text = serde_json::to_string_pretty(&ledger).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "the ledger never was {what}: {text}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn executors(&self) -> BTreeMap<u64, Pod> {
        let list = ListParams::default().labels("spark-role=executor");
        let pods = self.f.pods.list(&list).await.unwrap().items;
        pods.into_iter().map(|pod| (pod.labels()["spark-exec-id"].parse().unwrap(), pod)).collect()
    }

    /// Waits until exactly these executors exist.
    pub(crate) async fn until_executors(&self, ids: &[u64]) -> BTreeMap<u64, Pod> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pods = self.executors().await;
            if pods.keys().eq(ids) {
                return pods;
            }
            let there: Vec<_> = pods.keys().collect();
            assert!(tokio::time::Instant::now() < deadline, "executors are {there:?}, not {ids:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until one is gone and this many exist again; returns their ids.
    async fn until_replaced(&self, gone: u64, count: usize) -> Vec<u64> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let ids: Vec<u64> = self.executors().await.into_keys().collect();
            if ids.len() == count && !ids.contains(&gone) {
                return ids;
            }
            assert!(tokio::time::Instant::now() < deadline, "executors are {ids:?}: {gone} is not replaced");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn set(&self, id: u64, status: &Value) {
        let name = self.executors().await[&id].name_any();
        let patch = Patch::Merge(json!({"status": status}));
        self.f.pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A kubelet starts it, and it registers.
    async fn register(&self, id: u64) {
        let state = json!({"running": {"startedAt": crate::fixture::now()}});
        self.set(
            id,
            &json!({"phase": "Running", "podIP": format!("10.0.0.{id}"), "containerStatuses": [named(&state)]}),
        )
        .await;
        self.publish(&json!({"registered": {id.to_string(): format!("10.0.0.{id}")}})).await;
    }

    async fn end(&self, id: u64, code: i32, reason: &str) {
        let state = json!({"terminated": {"exitCode": code, "reason": reason}});
        self.set(id, &json!({"phase": "Failed", "containerStatuses": [named(&state)]})).await;
    }
}

pub(crate) fn named(state: &Value) -> Value {
    let mut status = container(state);
    status["name"] = json!("spark-kubernetes-executor");
    status
}

/// The drivers' service account: no pod permissions.
pub(crate) async fn account(client: &Client, ns: &str) {
    let meta = json!({"name": ACCOUNT});
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), ns);
    let roles: Api<Role> = Api::namespaced(client.clone(), ns);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), ns);
    let role = json!({"metadata": meta, "rules": [
        {"apiGroups": ["firesteel.dev"], "resources": ["executorgrants/status"], "verbs": ["patch"]},
        {"apiGroups": ["firesteel.dev"], "resources": ["executorledgers"], "verbs": ["get", "watch"]}]});
    let binding = json!({"metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ns}]});
    accounts.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": meta})).unwrap()).await.unwrap();
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[test]
fn demand_becomes_pods_and_a_lost_executor_is_replaced_and_reported() {
    block_on(async {
        let Some(s) = Stage::new("outside", &json!({})).await else { return };
        s.want(3).await;
        let pods = s.until_executors(&[1, 2, 3]).await;
        let pod = &pods[&2];
        let env = &pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap();
        let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
        assert_eq!(value("SPARK_EXECUTOR_ID").as_deref(), Some("2"));
        assert_eq!(value("SPARK_DRIVER_URL").as_deref(), Some("spark://d:7078"));
        assert_eq!(value("SPARK_JAVA_OPT_0").as_deref(), Some("-Dx=2"));
        let owners: Vec<_> = pod.owner_references().iter().map(|o| (o.kind.as_str(), o.controller)).collect();
        assert!(owners.contains(&("Pod", Some(true))), "{owners:?}");

        for id in 1..=3 {
            s.register(id).await;
        }
        s.ledger("satisfied", |l| l.counts.registered == 3).await;
        s.end(2, 137, "OOMKilled").await;
        s.until_executors(&[1, 3, 4]).await;
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        let loss = &ledger.losses[0];
        assert_eq!((loss.id.as_str(), loss.code, loss.cause), ("2", 137, Cause::Application));
        assert_eq!(ledger.failures.count, 1);
        // The bridge has informed Spark.
        s.publish(&json!({"lossSeen": loss.seq, "registered": {"2": null}})).await;
        s.ledger("forgotten", |l| l.losses.is_empty() && l.counts.lost == 1).await;

        // Eviction is nobody's fault.
        s.f.pods.delete(&s.executors().await[&3].name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
        s.until_executors(&[1, 4, 5]).await;
        let ledger = s.ledger("told", |l| l.losses.len() == 1).await;
        assert_eq!((ledger.losses[0].cause, ledger.failures.count), (Cause::Platform, 1));

        // Less is wanted: pending executors are withdrawn; only Spark stops running ones.
        s.want(0).await;
        s.until_executors(&[1]).await;
        s.publish(&json!({"stopped": true})).await;
        s.until_executors(&[]).await;
    });
}

#[test]
fn a_hostile_driver_gets_no_more_than_it_was_granted() {
    block_on(async {
        let Some(s) = Stage::new("hostile", &json!({})).await else { return };
        let ns = s.f.namespace.name().to_owned();
        // It may only patch grant statuses and read ledgers.
        let pods: Api<Pod> = Api::namespaced(s.driver.clone(), &ns);
        let maps: Api<ConfigMap> = Api::namespaced(s.driver.clone(), &ns);
        let grants: Api<ExecutorGrant> = Api::namespaced(s.driver.clone(), &ns);
        let ledgers: Api<ExecutorLedger> = Api::namespaced(s.driver.clone(), &ns);
        assert_eq!(code(&pods.list(&ListParams::default()).await.unwrap_err()), 403);
        assert_eq!(code(&maps.list(&ListParams::default()).await.unwrap_err()), 403);
        let evil = Patch::Merge(json!({"spec": {"maximum": {"executors": 1000}}}));
        assert_eq!(code(&grants.patch(GRANT, &PatchParams::default(), &evil).await.unwrap_err()), 403);
        assert_eq!(code(&ledgers.patch(GRANT, &PatchParams::default(), &evil).await.unwrap_err()), 403);
        // Nor can anyone else change the grant.
        assert_eq!(code(&s.grants.patch(GRANT, &PatchParams::default(), &evil).await.unwrap_err()), 422);
        // A status patch does not reach the spec.
        let both = Patch::Merge(json!({"spec": {"maximum": {"executors": 1000}}, "status": {"lossSeen": 0}}));
        let _ = grants.patch_status(GRANT, &PatchParams::default(), &both).await;
        assert_eq!(s.grants.get(GRANT).await.unwrap().spec.maximum.executors, Some(4));

        // More than granted, and things that are not the driver's choice.
        s.publish(&json!({"profiles": {"0": {
            "wanted": 100, "cores": 1, "cpu": "1", "memory": "1408Mi", "image": "evil", "serviceAccountName": "root",
            "env": {"_SPARK_AUTH_SECRET": "x", "SPARK_EXECUTOR_ID": "77"}}}}))
            .await;
        let pods = s.until_executors(&[1, 2, 3, 4]).await;
        let granted = s.grants.get(GRANT).await.unwrap().spec.template.spec.unwrap();
        for (id, pod) in &pods {
            let spec = pod.spec.clone().unwrap();
            assert_eq!(spec.containers[0].image, granted.containers[0].image);
            assert_eq!(spec.service_account_name, granted.service_account_name);
            assert_eq!(spec.node_selector, granted.node_selector);
            assert_eq!(spec.security_context.unwrap_or_default(), granted.security_context.clone().unwrap_or_default());
            let own = spec.volumes.unwrap().into_iter().filter(|v| v.projected.is_none()).count();
            assert_eq!(own, granted.volumes.clone().unwrap_or_default().len());
            let env = spec.containers[0].env.clone().unwrap();
            assert!(!env.iter().any(|v| v.name == "_SPARK_AUTH_SECRET"));
            let said = env.iter().find(|v| v.name == "SPARK_EXECUTOR_ID").unwrap().value.clone();
            assert_eq!(said, Some(id.to_string()), "an executor has the id that was reserved");
        }
        let clamped =
            |l: &ExecutorLedgerStatus| l.conditions.iter().any(|c| c.type_ == "WithinMaximum" && c.status == "False");
        s.ledger("clamped", clamped).await;
        // Bigger executors: fewer of them.
        s.publish(&json!({"profiles": {"0": {"memory": "3Gi"}}})).await;
        s.until_executors(&[1]).await;
        // Another profile, while it claims that an executor of the first is still running.
        s.register(1).await;
        s.publish(&json!({"profiles": {
            "0": {"wanted": 0, "memory": "1408Mi"},
            "1": {"wanted": 4, "cores": 1, "cpu": "1", "memory": "1408Mi", "resources": {"memory": "900Gi"}}}}))
            .await;
        let pods = s.until_executors(&[1, 5, 6, 7]).await;
        let limits = pods[&5].spec.clone().unwrap().containers[0].resources.clone().unwrap().limits.unwrap();
        assert_eq!(limits["memory"].0, "1408Mi");
        tokio::time::sleep(Duration::from_secs(1)).await;
        s.until_executors(&[1, 5, 6, 7]).await;

        // After its pod ended, its demand is ignored.
        s.f.end_driver(APP, 1).await;
        s.until_executors(&[]).await;
        let _ = s.try_publish(&s.driver, GRANT, &json!({"profiles": {"0": {"wanted": 4, "memory": "1408Mi"}}})).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(s.executors().await.is_empty());
    });
}

#[test]
fn a_driver_cannot_touch_the_grant_of_another_under_the_same_account() {
    block_on(async {
        let Some(s) = Stage::new("neighbours", &json!({})).await else { return };
        let sparks = json!({
            "spark.kubernetes.allocation.pods.allocator": "firesteel", "spark.firesteel.executors.early": "false"});
        s.f.create(
            "other",
            &json!({"sparkConf": sparks, "driver": {"serviceAccount": ACCOUNT},
            "executor": {"nodeSelector": {"no": "where"}}}),
        )
        .await;
        s.f.driver("other", 1).await;
        // The policy takes a moment to be in force.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match s.try_publish(&s.driver, "other-driver", &json!({"stopped": true})).await {
                Err(error) => break assert_eq!(code(&error), 403, "{error}"),
                Ok(()) => assert!(tokio::time::Instant::now() < deadline, "nothing stops it"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        s.want(1).await;
        s.until_executors(&[1]).await;
    });
}

#[test]
fn an_exhausted_quota_is_waited_for_and_uses_no_failure_budget() {
    block_on(async {
        let Some(s) = Stage::new("quota", &json!({})).await else { return };
        let quotas: Api<ResourceQuota> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
        let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while quotas.get("few").await.unwrap().status.and_then(|s| s.used).is_none_or(|used| used["pods"].0 != "1") {
            assert!(tokio::time::Instant::now() < deadline, "the quota is never counted");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        s.want(4).await;
        let waiting = |l: &ExecutorLedgerStatus| l.conditions.iter().any(|c| c.reason == "QuotaExceeded");
        let ledger = s.ledger("waiting for room", waiting).await;
        assert_eq!((ledger.failures.count, ledger.failures.row), (0, 0));
        assert_eq!(s.executors().await.len(), 2);
        let more = Patch::Merge(json!({"spec": {"hard": {"pods": "10"}}}));
        quotas.patch("few", &PatchParams::default(), &more).await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while s.executors().await.len() < 4 {
            assert!(tokio::time::Instant::now() < deadline, "room is never used");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn the_limit_on_pending_executors_is_shared_by_all_namespaces() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let (one, two) = (env.namespace("share").await, env.namespace("share").await);
        let executors = ExecutorOptions { most_pending: 5, ..ExecutorOptions::default() };
        let namespaces = vec![one.name().to_owned(), two.name().to_owned()];
        let operator = start_with(client.clone(), Options { namespaces, executors, ..options(one.name()) });
        let nobody = CancellationToken::new().drop_guard();
        let one = Stage::on(Fixture::around(one, client.clone(), operator), &json!({})).await;
        let two = Stage::on(Fixture::around(two, client, nobody), &json!({})).await;
        one.want(4).await;
        one.until_executors(&[1, 2, 3, 4]).await;
        two.want(4).await;
        two.until_executors(&[1]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(two.executors().await.len(), 1);
        // An application that waits for room is not reconciled over and over.
        let before = passes(two.f.namespace.name());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let looks = passes(two.f.namespace.name()) - before;
        assert!(before > 0 && looks <= 2, "{looks} passes while there was no room, after {before}");
        // Those that run leave room for others.
        for id in 1..=4 {
            one.register(id).await;
        }
        two.until_executors(&[1, 2, 3, 4]).await;
    });
}

#[test]
fn dynamic_allocation_without_a_maximum_is_bounded_by_the_operator_and_says_so() {
    block_on(async {
        let few = |options: &mut Options| options.executors.per_application.executors = 3;
        let Some(f) = Fixture::tuned("unbounded", few).await else { return };
        let conf = json!({"sparkConf": {"spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true"}});
        let s = Stage::on(f, &conf).await;
        assert_eq!(s.grants.get(GRANT).await.unwrap().spec.maximum.executors, None, "the grant itself has no maximum");
        s.want(1_000_000).await;
        s.until_executors(&[1, 2, 3]).await;
        let limited = |l: &ExecutorLedgerStatus| {
            let found = l.conditions.iter().find(|c| c.type_ == "WithinMaximum" && c.status == "False");
            found.is_some_and(|c| c.reason == "OperatorLimit" && c.message.contains("--max-executors-per-application"))
        };
        s.ledger("limited", limited).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        s.until_executors(&[1, 2, 3]).await;
    });
}

#[test]
fn applications_of_a_namespace_share_its_limit_and_a_next_operator_keeps_it() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let namespace = env.namespace("limit").await;
        let four = Amount { executors: 4, ..ExecutorOptions::default().per_namespace };
        let executors = ExecutorOptions { per_namespace: four, ..ExecutorOptions::default() };
        let limited = Options { executors, ..options(namespace.name()) };
        let operator = start_with(client.clone(), limited.clone());
        let mut s = Stage::on(Fixture::around(namespace, client.clone(), operator), &json!({})).await;
        s.want(4).await;
        s.until_executors(&[1, 2, 3, 4]).await;
        let conf = json!({
            "spark.kubernetes.allocation.pods.allocator": "firesteel", "spark.firesteel.executors.early": "false"});
        let executor = json!({"instances": 4, "nodeSelector": {"no": "where"}});
        s.f.create("other", &json!({"sparkConf": conf, "driver": {"serviceAccount": ACCOUNT}, "executor": executor}))
            .await;
        let driver = s.f.driver("other", 1).await;
        s.f.run_driver("other").await;
        let other = s.f.namespace.kubeconfig_in(&driver, ACCOUNT).await.client().await;
        let wants = json!({"profiles": {"0": {"wanted": 4, "cores": 1, "cpu": "1", "memory": "1408Mi"}}});
        s.try_publish(&other, "other-driver", &wants).await.unwrap();
        let count = async |s: &Stage| {
            let mut counts = [0, 0];
            let list = ListParams::default().labels("spark-role=executor");
            for pod in s.f.pods.list(&list).await.unwrap().items {
                let own = pod.owner_references().iter().any(|owner| owner.name == GRANT);
                counts[usize::from(!own)] += 1;
            }
            counts
        };
        let until = async |s: &Stage, wanted: [usize; 2]| {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while count(s).await != wanted {
                assert!(tokio::time::Instant::now() < deadline, "{:?} executors, not {wanted:?}", count(s).await);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waits = async |s: &Stage| {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            loop {
                let status =
                    s.ledgers.get_opt("other-driver").await.unwrap().and_then(|l| l.status).unwrap_or_default();
                let why = status.conditions.iter().find(|c| c.type_ == "Satisfied" && c.reason == "NamespaceLimit");
                if let Some(why) = why {
                    return assert!(why.message.contains("--max-executors-per-namespace"), "{why:?}");
                }
                assert!(tokio::time::Instant::now() < deadline, "its ledger never said why it waits: {status:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        waits(&s).await;
        assert_eq!(count(&s).await, [4, 0]);
        // The next operator counts the existing executors.
        s.f.stop_operator();
        let _next = start_with(client, limited);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(count(&s).await, [4, 0]);
        // Executors that one releases go to the other, and the first does not get them back.
        s.want(2).await;
        until(&s, [2, 2]).await;
        s.want(4).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(count(&s).await, [2, 2]);
    });
}

#[test]
fn a_lost_ledger_continues_with_the_ids_that_the_driver_knows() {
    block_on(async {
        let Some(mut s) = Stage::new("lostledger", &json!({})).await else { return };
        s.want(2).await;
        s.until_executors(&[1, 2]).await;
        s.register(1).await;
        s.register(2).await;
        // The older one ends and another is created, with an id above all before: the next one, or the one after it if
        // the first attempt to reserve one found no ledger.
        let lost = async |s: &Stage, seq: u64| {
            let before: Vec<u64> = s.executors().await.into_keys().collect();
            s.end(before[0], 137, "OOMKilled").await;
            let after = s.until_replaced(before[0], 2).await;
            assert_eq!(after[0], before[1]);
            assert!((1..=2).contains(&(after[1] - before[1])), "{after:?} after {before:?}");
            let told = s.ledger("told", |l| l.losses.iter().any(|loss| loss.id == before[0].to_string())).await;
            assert_eq!((told.losses.len(), told.losses[0].seq, told.loss_seq), (1, seq, seq));
            assert_eq!(told.reserved_through, after[1]);
            s.register(after[1]).await;
            s.publish(&json!({"lossSeen": seq, "registered": {before[0].to_string(): null}})).await;
            s.ledger("forgotten", |l| l.losses.is_empty()).await;
        };
        lost(&s, 1).await;
        s.ledgers.delete(GRANT, &DeleteParams::default()).await.unwrap();
        // Above all ids the driver can have seen, which it reports a little later.
        lost(&s, 1 + 1000 + 1).await;
        // A repeated event is one event with a count; an operator publishes pending counts when it stops.
        s.f.stop_operator();
        let events: Api<Event> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut all = events.list(&ListParams::default()).await.unwrap().items;
            all.retain(|event| event.reason.as_deref() == Some("ExecutorLost"));
            let counts: Vec<_> = all.iter().map(|event| event.series.as_ref().map(|series| series.count)).collect();
            if counts == [Some(2)] {
                let about = all.remove(0).regarding.unwrap_or_default();
                let driver = s.f.pods.get(GRANT).await.unwrap();
                break assert_eq!((about.kind.as_deref(), about.uid), (Some("Pod"), driver.uid()));
            }
            assert!(tokio::time::Instant::now() < deadline, "two losses are counted as {counts:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The next operator knows only what is in the cluster.
        s.ledgers.delete(GRANT, &DeleteParams::default()).await.unwrap();
        s.f.start_operator();
        lost(&s, 1002 + 1000 + 1).await;
    });
}

#[test]
fn a_second_spark_context_gets_claims_of_its_own() {
    block_on(async {
        let volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data";
        let conf = json!({"sparkConf": {
            "spark.kubernetes.allocation.pods.allocator": "firesteel", format!("{volume}.mount.path"): "/data",
            format!("{volume}.options.claimName"): "OnDemand", format!("{volume}.options.sizeLimit"): "1Gi",
            format!("{volume}.options.storageClass"): "none"}});
        let Some(s) = Stage::new("again", &conf).await else { return };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(s.f.client.clone(), s.f.namespace.name());
        let names = async || -> Vec<String> {
            let mut found = claims.list(&ListParams::default()).await.unwrap().items;
            found.retain(|claim| claim.metadata.deletion_timestamp.is_none());
            found.into_iter().map(|claim| claim.name_any()).collect()
        };
        s.want(1).await;
        s.until_executors(&[1]).await;
        assert_eq!(names().await.len(), 1);
        s.publish(&json!({"stopped": true})).await;
        s.until_executors(&[]).await;
        s.ledger("stopped", |l| l.conditions.iter().any(|c| c.reason == "Stopped")).await;
        s.publish(&json!({"stopped": false})).await;
        let pods = s.until_executors(&[2]).await;
        let volumes = pods[&2].spec.clone().unwrap().volumes.unwrap();
        let used = volumes.iter().find_map(|v| v.persistent_volume_claim.as_ref()).unwrap().claim_name.clone();
        assert_eq!(names().await, [used], "its claim exists, and that of the first context does not");
        // These are deleted as well.
        s.publish(&json!({"stopped": true})).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !names().await.is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "claims stay: {:?}", names().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// An operator dies at this write and another takes over: no id is used twice, there are as many executors as wanted, and no
/// loss is forgotten.
async fn survives(point: Point) -> bool {
    let env = TestEnv::get().unwrap();
    let f =
        Fixture::with(&format!("die{}{}", point.write, if point.after { "a" } else { "b" }), env.client().await).await;
    let mut s = Stage::on(f, &json!({})).await;
    // The first operator created the grant and its ledger; it stops, and the mortal one takes over.
    let (mortal, death) = killer::client(crate::crash::config(env).await, point);
    s.f.hand_over(mortal);
    let story = async {
        s.want(3).await;
        let mut told = BTreeSet::new();
        let mut victim = None;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            assert!(tokio::time::Instant::now() < deadline, "{point:?}: never settled");
            let pods = s.executors().await;
            if victim.is_none() && pods.len() == 3 {
                for id in pods.keys() {
                    s.register(*id).await;
                }
                victim = pods.keys().nth(1).copied();
                s.end(victim.unwrap(), 52, "Error").await;
            }
            let status = s.ledgers.get(GRANT).await.unwrap().status.unwrap();
            // A creation in flight when its operator died may land after its replacement: one is withdrawn.
            for loss in status.losses.iter().filter(|loss| loss.cause != Cause::Withdrawn) {
                told.insert((loss.id.clone(), loss.seq));
            }
            if victim.is_some_and(|id| pods.len() == 3 && !pods.contains_key(&id)) {
                break (victim, told);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::pin!(story);
    let (outcome, died) = tokio::select! {
        outcome = &mut story => (outcome, false),
        () = death.settled() => {
            let _next = start(s.f.client.clone(), s.f.namespace.name());
            (story.await, true)
        }
    };
    let (victim, told) = outcome;
    let told: Vec<_> = told.into_iter().map(|(id, _)| id).collect();
    assert_eq!(told, [victim.unwrap().to_string()], "{point:?}");
    died
}

#[test]
fn an_operator_that_dies_at_any_write_loses_and_doubles_no_executor() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        crate::fixture::install(&env.client().await).await;
        let mut deaths = 0;
        for write in 0..30 {
            let (before, after) =
                tokio::join!(survives(Point { write, after: false }), survives(Point { write, after: true }));
            if !before && !after {
                break;
            }
            deaths += u32::from(before) + u32::from(after);
        }
        assert!(deaths >= 8, "only {deaths} deaths: the story has more writes than that");
    });
}
