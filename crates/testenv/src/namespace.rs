//! A separate namespace for each test, with what a Spark driver needs.

use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::TestEnv;
use crate::limited::LimitedKubeconfig;

/// Permissions of a driver that uses Spark's own allocators.
const DRIVER_RESOURCES: [&str; 4] = ["pods", "services", "configmaps", "persistentvolumeclaims"];
const DRIVER_VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// A new namespace with the service account `spark`, which has a driver's permissions.
///
/// On an external cluster it is deleted when dropped; our own control plane is discarded as a whole.
#[derive(Debug)]
pub struct TestNamespace {
    env: &'static TestEnv,
    name: String,
}

impl TestEnv {
    /// Creates a namespace whose name starts with `prefix`, and waits until pods can be created in it.
    pub async fn namespace(&'static self, prefix: &str) -> TestNamespace {
        let name = format!("{prefix}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let client = self.client().await;
        create::<Namespace>(&Api::all(client.clone()), json!({ "metadata": { "name": name } })).await;
        let namespace = TestNamespace { env: self, name };
        namespace.service_account(&client, "spark").await;
        namespace.allow(&client, "spark", &DRIVER_RESOURCES, &DRIVER_VERBS).await;
        namespace.wait_for_default_account(&client).await;
        namespace
    }
}

impl TestNamespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates a service account without permissions, and returns a kubeconfig for it.
    pub async fn powerless(&self, account: &str) -> LimitedKubeconfig {
        let client = self.env.client().await;
        self.service_account(&client, account).await;
        self.kubeconfig_for(account).await
    }

    /// Creates a service account with these verbs on these core resources, and returns a kubeconfig for it.
    pub async fn limited(&self, account: &str, resources: &[&str], verbs: &[&str]) -> LimitedKubeconfig {
        let client = self.env.client().await;
        self.service_account(&client, account).await;
        self.allow(&client, account, resources, verbs).await;
        self.kubeconfig_for(account).await
    }

    /// A kubeconfig for an existing service account, with this namespace as the default.
    pub async fn kubeconfig_for(&self, account: &str) -> LimitedKubeconfig {
        LimitedKubeconfig::make(self.env, &self.name, account, None).await
    }

    /// The same, with a token bound to a pod, as processes in that pod have it.
    pub async fn kubeconfig_in(&self, pod: &Pod, account: &str) -> LimitedKubeconfig {
        LimitedKubeconfig::make(self.env, &self.name, account, Some(pod)).await
    }

    async fn service_account(&self, client: &Client, name: &str) {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &self.name);
        create(&accounts, json!({ "metadata": { "name": name } })).await;
    }

    async fn allow(&self, client: &Client, account: &str, resources: &[&str], verbs: &[&str]) {
        let name = format!("{account}-rights");
        let rules = json!([{ "apiGroups": [""], "resources": resources, "verbs": verbs }]);
        let roles: Api<Role> = Api::namespaced(client.clone(), &self.name);
        create(&roles, json!({ "metadata": { "name": name }, "rules": rules })).await;
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &self.name);
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": self.name }],
        });
        create(&bindings, binding).await;
    }

    /// Pods are rejected until the controller manager has created the service account `default`.
    async fn wait_for_default_account(&self, client: &Client) {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &self.name);
        for _ in 0..1500 {
            if accounts.get_opt("default").await.expect("read a service account").is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("namespace {} has no service account `default` after 30 s", self.name);
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        if !self.env.is_outside() {
            return;
        }
        let (env, name) = (self.env, self.name.clone());
        // The test's runtime may be shutting down, so delete in a separate thread and runtime.
        let deletion = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let namespaces: Api<Namespace> = Api::all(env.client().await);
                if let Err(error) = namespaces.delete(&name, &DeleteParams::background()).await {
                    eprintln!("namespace {name} is left over: {error}");
                }
            });
        });
        if deletion.join().is_err() {
            eprintln!("namespace {} is left over", self.name);
        }
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let typed: K = serde_json::from_value(object.clone()).expect("an object of its kind");
    if let Err(error) = api.create(&PostParams::default(), &typed).await {
        panic!("create {object}: {error}");
    }
}
