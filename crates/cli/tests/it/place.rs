//! A namespace per test in a real API server, and helpers to inspect it.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use firesteel_testenv::{LimitedKubeconfig, TestEnv, TestNamespace};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::program::{Ran, Run as _, firesteel, pi};

pub(crate) const NO_WAIT: (&str, &str) = ("spark.kubernetes.submission.waitAppCompletion", "false");
/// Keeps a driver from being scheduled, so that only the test sets its status.
pub(crate) const NOWHERE: (&str, &str) = ("spark.kubernetes.driver.node.selector.test", "nowhere");

pub(crate) struct Place {
    pub(crate) env: &'static TestEnv,
    pub(crate) namespace: TestNamespace,
    pub(crate) client: Client,
}

impl Place {
    /// `None` without a test Kubernetes.
    pub(crate) async fn new(prefix: &str) -> Option<Place> {
        let env = TestEnv::get()?;
        Some(Place { env, namespace: env.namespace(prefix).await, client: env.client().await })
    }

    pub(crate) fn name(&self) -> &str {
        self.namespace.name()
    }

    pub(crate) fn master(&self) -> String {
        format!("k8s://{}", self.env.server())
    }

    /// A submission into this namespace, as administrator.
    pub(crate) fn submission(&self, conf: &[(&str, &str)]) -> Command {
        self.submission_with(&[], conf)
    }

    /// The same with more options.
    pub(crate) fn submission_with(&self, options: &[&str], conf: &[(&str, &str)]) -> Command {
        let here = [("spark.kubernetes.namespace", self.name())];
        let conf: Vec<_> = here.iter().chain(conf).copied().collect();
        let mut arguments = pi(&self.master(), &conf);
        arguments.splice(1..1, options.iter().map(|option| (*option).to_owned()));
        let mut command = firesteel(arguments);
        command.kubeconfig(self.env.kubeconfig());
        command
    }

    pub(crate) fn control(&self, verb: &str, id: &str) -> Ran {
        firesteel(["submit", verb, id, "--master", &self.master()]).kubeconfig(self.env.kubeconfig()).run()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.name())
    }

    /// All pods, services and ConfigMaps here except the cluster's own, as `kind/name`.
    pub(crate) async fn contents(&self) -> Vec<String> {
        let all = ListParams::default();
        let services: Api<Service> = Api::namespaced(self.client.clone(), self.name());
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.name());
        let pods = self.pods().list(&all).await.expect("pods").items;
        let services = services.list(&all).await.expect("services").items;
        let maps = maps.list(&all).await.expect("config maps").items;
        let mut found: Vec<String> = pods.iter().map(|pod| format!("pod/{}", pod.name_any())).collect();
        found.extend(services.iter().map(|service| format!("service/{}", service.name_any())));
        found.extend(maps.iter().map(|map| format!("configmap/{}", map.name_any())));
        found.retain(|name| name != "configmap/kube-root-ca.crt");
        found
    }

    /// Waits until nothing is left here; garbage collection takes a moment.
    pub(crate) async fn empties(&self) {
        let mut left = Vec::new();
        for _ in 0..300 {
            left = self.contents().await;
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("left after 30 s: {left:?}");
    }

    /// Waits for the one pod here.
    pub(crate) async fn the_pod(&self) -> Pod {
        for _ in 0..300 {
            if let Some(pod) = self.pods().list(&ListParams::default()).await.expect("pods").items.pop() {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no pod came up in 15 s");
    }

    /// Waits until a pod has no gate any more.
    pub(crate) async fn the_pod_without_gate(&self) -> Pod {
        for _ in 0..300 {
            let pod = self.the_pod().await;
            if gates(&pod).is_empty() {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the gate was not lifted in 15 s");
    }

    /// What `firesteel crds` prints, applied and in effect.
    pub(crate) fn install_crds(&self) {
        let mut names = Vec::new();
        for object in firesteel_api::crds::manifests().into_iter().chain(firesteel_api::policy::manifests()) {
            let mut kubectl = self
                .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("kubectl starts");
            let mut stdin = kubectl.stdin.take().expect("stdin");
            stdin.write_all(object.to_string().as_bytes()).expect("written");
            drop(stdin);
            assert!(kubectl.wait().expect("kubectl ends").success());
            if object["kind"] == "CustomResourceDefinition" {
                names.push(format!("crd/{}", object["metadata"]["name"].as_str().expect("a name")));
            }
        }
        let mut words = vec!["wait", "--for=condition=Established", "--timeout=30s"];
        words.extend(names.iter().map(String::as_str));
        assert!(self.kubectl(&words).stdout(Stdio::null()).status().expect("kubectl runs").success());
    }

    fn kubectl(&self, words: &[&str]) -> Command {
        let mut kubectl = Command::new(self.env.kubectl());
        kubectl.args(words).env("KUBECONFIG", self.env.kubeconfig());
        kubectl
    }

    /// Plays the kubelet.
    pub(crate) async fn set_status(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.expect("the status is set");
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), self.name());
        let object: K = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("it is created");
    }

    /// A kubeconfig with these permissions, once they are in effect.
    pub(crate) async fn limited(&self, resources: &[&str], verbs: &[&str]) -> LimitedKubeconfig {
        let limited = self.namespace.limited("limited", resources, verbs).await;
        let config = kube::config::Kubeconfig::read_from(limited.path()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.expect("a config");
        let reviews: Api<SelfSubjectAccessReview> = Api::all(Client::try_from(config).expect("a client"));
        let attributes = json!({ "namespace": self.name(), "verb": verbs[0], "resource": resources[0] });
        let question = json!({ "spec": { "resourceAttributes": attributes } });
        let question: SelfSubjectAccessReview = serde_json::from_value(question).expect("a question");
        for _ in 0..100 {
            let answer = reviews.create(&PostParams::default(), &question).await.expect("an answer");
            if answer.status.is_some_and(|status| status.allowed) {
                return limited;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the permissions did not take effect in 5 s");
    }
}

pub(crate) fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.clone()).unwrap_or_default();
    gates.into_iter().map(|gate| gate.name).collect()
}
