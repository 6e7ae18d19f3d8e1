//! Drivers that share a service account, on a real API server and on Firesteel's own. Each driver uses a token bound to its
//! pod, as a kubelet mounts it; one of them attacks the other.

use std::fmt::Debug;
use std::time::Duration;

use firesteel_api::executors::ExecutorLedgerStatus;
use firesteel_api::{ExecutorGrant, ExecutorLedger, policy};
use firesteel_operator::Options;
use firesteel_testenv::TestEnv;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use crate::fixture::{PATIENCE, block_on, container, define, install_policy, options, policy_objects, start_with};

/// The drivers' service account.
const ACCOUNT: &str = "spark";

/// The operator's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// A service account, to which the policy applies.
    Account,
    /// A user with a certificate, who is exempt.
    Administrator,
}

/// A namespace in which drivers run under one account.
struct Place {
    config: Config,
    client: Client,
    name: String,
    pods: Api<Pod>,
    ledgers: Api<ExecutorLedger>,
}

impl Place {
    async fn new(config: Config, name: &str) -> Place {
        let client = Client::try_from(config.clone()).unwrap();
        define(&client).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let (pods, ledgers) = (Api::namespaced(client.clone(), name), Api::namespaced(client.clone(), name));
        let place = Place { config, client, name: name.to_owned(), pods, ledgers };
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let all = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"];
        place
            .account(
                ACCOUNT,
                json!([
                    rule(&["firesteel.dev"], &["executorgrants/status"], &["patch"]),
                    rule(&["firesteel.dev"], &["executorledgers"], &["get", "watch"]),
                ]),
            )
            .await;
        place
            .account(
                "operator",
                json!([
                    rule(&["firesteel.dev", "sparkoperator.k8s.io", "apps", "events.k8s.io"], &["*"], &all),
                    rule(&[""], &["pods"], &all),
                ]),
            )
            .await;
        place
    }

    async fn account(&self, name: &str, rules: Value) {
        let meta = json!({"name": name});
        self.create::<ServiceAccount>(json!({"metadata": meta})).await;
        self.create::<Role>(json!({"metadata": meta, "rules": rules})).await;
        self.create::<RoleBinding>(json!({"metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.name}]}))
            .await;
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.name);
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// The API as seen by an account, or by a process in one of its pods.
    async fn client_of(&self, account: &str, pod: Option<&Pod>) -> Client {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.name);
        let bound = pod.map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()}));
        let request = json!({"spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        let token = answer.status.and_then(|status| status.token).unwrap();
        let mut config = self.config.clone();
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        Client::try_from(config).unwrap()
    }

    async fn start(&self, operator: Operator, trusting: bool) -> DropGuard {
        let client = match operator {
            Operator::Account => self.client_of("operator", None).await,
            Operator::Administrator => self.client.clone(),
        };
        let mut options: Options = options(&self.name);
        options.executors.drivers_trust_each_other = trusting;
        options.executors.policy_valid = Duration::from_secs(1);
        start_with(client, options)
    }

    /// A running driver with its grant; returns the API as it sees it.
    async fn driver(&self, app: &str) -> Client {
        let name = format!("{app}-driver");
        let labels = json!({"firesteel.dev/allocator": "firesteel", "spark-role": "driver", "spark-app-selector": app});
        let main = json!({"name": "spark-kubernetes-driver", "image": "spark"});
        let spec = json!({"serviceAccountName": ACCOUNT, "nodeSelector": {"no": "where"}, "containers": [main]});
        let pod: Pod = self.create(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
        self.set(&name, json!({"phase": "Running", "containerStatuses": [container(&json!({"running": {}}))]})).await;
        let executor = json!({"name": "spark-kubernetes-executor", "image": "spark"});
        let template = json!({"spec": {"nodeSelector": {"no": "where"}, "containers": [executor]}});
        let grant = json!({"driver": {"podName": name, "podUid": pod.uid()}, "appId": app, "strategy": "pods",
            "namePrefix": app, "container": "spark-kubernetes-executor", "template": template,
            "maximum": {"executors": 2}, "failures": {"maximum": 1, "windowSeconds": 60}});
        self.create::<ExecutorGrant>(json!({"apiVersion": "firesteel.dev/v1alpha1", "kind": "ExecutorGrant",
            "metadata": {"name": name}, "spec": grant}))
            .await;
        self.client_of(ACCOUNT, Some(&pod)).await
    }

    async fn set(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods.patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn end(&self, app: &str) {
        let state = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let status = json!({"phase": "Succeeded", "containerStatuses": [container(&state)]});
        self.set(&format!("{app}-driver"), status).await;
    }

    /// Writes a driver's demand and its executors' destination into a grant; returns the message of a rejection.
    async fn publish(&self, client: &Client, app: &str, wanted: u32, url: &str) -> Result<(), String> {
        let grants: Api<ExecutorGrant> = Api::namespaced(client.clone(), &self.name);
        let patch = Patch::Merge(json!({"status": {"profiles": {"0": {"wanted": wanted, "cores": 1, "cpu": "1",
            "memory": "1408Mi", "env": {"SPARK_DRIVER_URL": url}}}}}));
        match grants.patch_status(&format!("{app}-driver"), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(other) => panic!("{other}"),
        }
    }

    async fn ledger(&self, app: &str) -> ExecutorLedgerStatus {
        let found = self.ledgers.get_opt(&format!("{app}-driver")).await.unwrap();
        found.and_then(|ledger| ledger.status).unwrap_or_default()
    }

    async fn until(
        &self,
        app: &str,
        what: &str,
        condition: impl Fn(&ExecutorLedgerStatus) -> bool,
    ) -> ExecutorLedgerStatus {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let ledger = self.ledger(app).await;
            if condition(&ledger) {
                return ledger;
            }
            assert!(tokio::time::Instant::now() < deadline, "the grant of {app} never was {what}: {ledger:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn accepted(&self, app: &str) {
        self.until(app, "accepted", |ledger| ledger.accepted).await;
    }

    /// Waits until a grant is rejected because of another driver, one of these.
    async fn refused(&self, app: &str, firsts: &[&str]) {
        let ledger = self.until(app, "refused", |ledger| !ledger.message.is_empty()).await;
        assert!(!ledger.accepted, "{ledger:?}");
        let command = "`firesteel crds | kubectl apply --server-side -f -`";
        let named = firsts.iter().any(|first| ledger.message.starts_with(&format!("driver {first}-driver runs ")));
        assert!(named && ledger.message.contains(command), "{}", ledger.message);
    }

    /// The executors of an application: name and driver URL.
    async fn executors(&self, app: &str) -> Vec<(String, String)> {
        let list = ListParams::default().labels(&format!("spark-role=executor,spark-app-selector={app}"));
        let pods = self.pods.list(&list).await.unwrap().items;
        let url = |pod: &Pod| {
            let env = pod.spec.as_ref().unwrap().containers[0].env.clone().unwrap_or_default();
            env.into_iter().find(|each| each.name == "SPARK_DRIVER_URL").and_then(|each| each.value).unwrap_or_default()
        };
        let there = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        there.map(|pod| (pod.name_any(), url(pod))).collect()
    }

    async fn until_executors(&self, app: &str, count: usize) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let there = self.executors(app).await;
            if there.len() == count {
                return there.into_iter().map(|(_, url)| url).collect();
            }
            assert!(tokio::time::Instant::now() < deadline, "{app} has {there:?}, not {count}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Two drivers of one account, without and with the policy; then more drivers without it.
async fn story(config: Config, name: &str, operator: Operator) {
    let place = Place::new(config, name).await;
    for (api, _) in policy_objects(&place.client) {
        let _ = api.delete(policy::NAME, &DeleteParams::default()).await;
    }
    let running = place.start(operator, false).await;
    let one = place.driver("one").await;
    place.accepted("one").await;
    until_allowed(&place, &one).await;
    assert_eq!(place.until_executors("one", 1).await, ["spark://one"]);

    // Nothing isolates the second one: it gets no executors, and cannot hijack those of the first.
    let two = place.driver("two").await;
    place.refused("two", &["one"]).await;
    place.publish(&two, "two", 1, "spark://two").await.unwrap();
    place.publish(&two, "one", 2, "spark://two").await.expect("without the policy the API server allows it");
    assert_eq!(place.until_executors("one", 2).await, ["spark://one", "spark://one"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(place.executors("two").await.is_empty());

    // With the policy, both are served, and the attack is rejected.
    install_policy(&place.client).await;
    place.accepted("two").await;
    assert_eq!(place.until_executors("two", 1).await, ["spark://two"]);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // The API server needs a moment to pick up what it stores.
    let refusal = loop {
        match place.publish(&two, "one", 2, "spark://two").await {
            Err(refusal) => break refusal,
            Ok(()) => assert!(tokio::time::Instant::now() < deadline, "nothing stops it"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(refusal.contains(policy::MESSAGE), "{refusal}");
    place.publish(&one, "one", 2, "spark://one").await.expect("a driver may write its own grant");

    // What was accepted stays accepted and served without the policy, whichever operator takes over.
    let (binding, _) = policy_objects(&place.client).remove(1);
    binding.delete(policy::NAME, &DeleteParams::default()).await.unwrap();
    drop(running);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while place.publish(&two, "one", 2, "spark://one").await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the policy stays in force without its binding");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let running = place.start(operator, false).await;
    place.driver("three").await;
    place.refused("three", &["one", "two"]).await;
    let (lost, _) = place.executors("one").await.remove(0);
    place.pods.delete(&lost, &DeleteParams::default().grace_period(0)).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while place.executors("one").await.len() < 2 || place.executors("one").await.iter().any(|(name, _)| *name == lost) {
        assert!(tokio::time::Instant::now() < deadline, "{lost} is not replaced");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(place.ledger("one").await.accepted && place.ledger("two").await.accepted);

    // When the others have ended, it is served.
    place.end("one").await;
    place.end("two").await;
    place.accepted("three").await;
    place.driver("four").await;
    place.refused("four", &["three"]).await;
    drop(running);
    let _running = place.start(operator, true).await;
    place.accepted("four").await;
}

/// A new role takes a moment to be in force.
async fn until_allowed(place: &Place, one: &Client) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while let Err(refusal) = place.publish(one, "one", 1, "spark://one").await {
        assert!(tokio::time::Instant::now() < deadline, "{refusal}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_driver_that_attacks_another_of_its_account_on_a_real_api_server() {
    block_on(async {
        let Some(env) = TestEnv::own() else { return };
        let config = crate::crash::config(env).await;
        story(config.clone(), "account", Operator::Account).await;
        story(config, "administrator", Operator::Administrator).await;
    });
}

#[test]
fn a_driver_that_attacks_another_of_its_account_on_our_api_server() {
    block_on(async {
        for operator in [Operator::Account, Operator::Administrator] {
            let server = firesteel_apiserver::ApiServer::builder().start().await.unwrap();
            let file = Kubeconfig::from_yaml(&server.admin_kubeconfig()).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            story(config, "neighbours", operator).await;
            server.shutdown().await;
        }
    });
}
