//! A fake node: reports its pods as running once bound, and as gone once deleted.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

pub(crate) struct Puppet {
    task: JoinHandle<()>,
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A ready Node with this many CPUs.
pub(crate) async fn node(client: &Client, name: &str, cpu: &str) -> Puppet {
    let api: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
        .expect("well formed");
    api.create(&PostParams::default(), &node).await.expect("node");
    let amounts = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "Puppet", "message": "says so"}]);
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}});
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await.expect("node status");
    // A real API server taints new nodes until the node controller has seen them ready.
    let clean = json!({"spec": {"taints": null}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&clean)).await.expect("node taints");
    let task = tokio::spawn(play(client.clone(), name.to_owned()));
    Puppet { task }
}

async fn play(client: Client, node: String) {
    let all: Api<Pod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut pods = std::pin::pin!(watcher(all, config).default_backoff().applied_objects());
    while let Some(Ok(pod)) = pods.next().await {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            continue;
        }
        if pod.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Pending") {
            continue;
        }
        let now = jiff::Timestamp::now();
        let end = pod.annotations().get("puppet/phase").cloned();
        let phase = end.clone().unwrap_or_else(|| "Running".to_owned());
        let ready = if end.is_some() || pod.annotations().contains_key("puppet/unready") { "False" } else { "True" };
        let status = json!({"status": {
            "phase": phase, "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}],
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": format!("{now:.0}")}],
        }});
        let _ = api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await;
    }
}
