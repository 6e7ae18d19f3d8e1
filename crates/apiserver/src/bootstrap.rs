//! The initial objects of a cluster, and custom resources restored from a data directory.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::meta;
use crate::state::State;
use crate::status::ApiResult;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

pub(crate) async fn run(state: &Arc<State>, address: SocketAddr) -> ApiResult<()> {
    for name in NAMESPACES {
        if state.namespace(name).is_none() {
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            create(state, "", "v1", "namespaces", object).await?;
        }
        crate::after_write::furnish_namespace(state, name).await;
    }
    let serving = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": address.port()}]);
    ensure(
        state,
        "",
        "v1",
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "ports": serving, "sessionAffinity": "None", "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        }),
    )
    .await?;
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        ensure(
            state,
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
                "value": value, "preemptionPolicy": "PreemptLowerPriority",
                "description": "Used for system critical pods that must run in the cluster.",
            }),
        )
        .await?;
    }
    crate::authorization::bootstrap(state).await?;
    restore_definitions(state);
    Ok(())
}

/// Serves the custom resources of stored definitions.
fn restore_definitions(state: &State) {
    let stored =
        state.store.list("customresourcedefinitions.apiextensions.k8s.io", None, None, usize::MAX, None, |_| true);
    let Ok(stored) = stored else { return };
    let mut kinds = (*state.kinds.load_full()).clone();
    for (_, definition) in &stored.items {
        crate::crd::register(&mut kinds, &definition.value());
    }
    state.kinds.store(Arc::new(kinds));
}

/// Creates an object unless it exists.
pub(crate) async fn ensure(state: &State, group: &str, version: &str, resource: &str, object: Value) -> ApiResult<()> {
    let Some(kind) = state.kinds.load().find(group, version, resource) else { return Ok(()) };
    if state.get(&kind, meta::namespace(&object), meta::name(&object)).is_some() {
        return Ok(());
    }
    match create(state, group, version, resource, object).await {
        Err(failure) if failure.reason == "AlreadyExists" => Ok(()),
        other => other,
    }
}

async fn create(state: &State, group: &str, version: &str, resource: &str, mut object: Value) -> ApiResult<()> {
    let Some(kind) = state.kinds.load().find(group, version, resource) else { return Ok(()) };
    let metadata = meta::of(&mut object);
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), meta::now().into());
    state.create(&kind, object).await.map(|_| ())
}
