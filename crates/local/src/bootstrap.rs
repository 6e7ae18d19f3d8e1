//! What a new local cluster contains: custom resource definitions and a service account for drivers.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::daemon::apply;

/// How long a definition may take to be served.
const ESTABLISHED: Duration = Duration::from_secs(20);
/// The service account of drivers.
const ACCOUNT: &str = "spark";

/// Applies objects and waits until the definitions among them are established.
pub(crate) async fn objects(client: &Client, objects: &[Value]) -> anyhow::Result<()> {
    let mut definitions = Vec::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default();
        let written = apply(client, object).await.with_context(|| format!("apply {kind} {name}"))?;
        if kind == "CustomResourceDefinition" {
            definitions.push(written.name_any());
        }
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in definitions {
        let served = await_condition(api.clone(), &name, conditions::is_crd_established());
        let served = tokio::time::timeout(ESTABLISHED, served).await;
        served
            .with_context(|| format!("{name} was not established in time"))?
            .with_context(|| format!("wait for {name}"))?;
    }
    Ok(())
}

/// The service account `spark`, with the permissions Spark's own drivers need.
pub(crate) async fn spark_account(client: &Client, namespace: &str) -> anyhow::Result<()> {
    driver_account(client, namespace, ACCOUNT).await
}

/// A service account with the permissions Spark's own drivers need.
pub async fn driver_account(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    for object in account_objects(namespace, name) {
        let what = format!("{} {name}", object["kind"].as_str().unwrap_or_default());
        apply(client, &object).await.with_context(|| format!("apply {what} in {namespace}"))?;
    }
    Ok(())
}

fn account_objects(namespace: &str, name: &str) -> Vec<Value> {
    let verbs = ["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"];
    let meta = json!({"name": name, "namespace": namespace});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": [
            {"apiGroups": [""], "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get", "list"]},
            {"apiGroups": ["apps"], "resources": ["statefulsets", "deployments"], "verbs": verbs},
            {"apiGroups": ["apps"], "resources": ["statefulsets/scale", "deployments/scale"], "verbs": ["get", "update", "patch"]},
            {"apiGroups": ["firesteel.dev"], "resources": ["executorgrants/status"], "verbs": ["patch"]},
            {"apiGroups": ["firesteel.dev"], "resources": ["executorledgers"], "verbs": ["get", "watch"]},
        ]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_is_bound_to_the_account_of_its_namespace() {
        let objects = account_objects("jobs", "spark");
        assert_eq!(objects[2]["subjects"][0]["namespace"], "jobs");
        assert!(objects.iter().all(|o| o["metadata"]["namespace"] == "jobs" && o["metadata"]["name"] == "spark"));
    }
}
