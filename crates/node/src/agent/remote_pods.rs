//! Pods on other nodes that Services select: a driver here may have executors there.
//!
//! Whether they are reachable depends on the network: pods of another agent on this machine are, and so are pods of a real node
//! whose pod network this machine can route to.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};

use super::Shared;
use crate::hosts::Endpoint;

/// The endpoint of a pod on another node, from its status.
fn endpoint(pod: &Pod) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.as_deref().filter(|ip| !ip.is_empty())?;
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    (!over).then(|| Endpoint::of(pod, address.to_owned(), ready && pod.metadata.deletion_timestamp.is_none()))
}

/// Keeps the endpoints of pods on other nodes up to date.
pub(super) async fn watch(shared: Arc<Shared>) {
    let api: Api<Pod> = Api::all(shared.client.clone());
    // Pending pods have neither a node nor an address.
    let elsewhere = format!("spec.nodeName!={},spec.nodeName!=", shared.options.name);
    let mut events = watcher(api, watcher::Config::default().fields(&elsewhere)).default_backoff().boxed();
    let (mut known, mut fresh) = (BTreeSet::new(), BTreeSet::new());
    while let Some(event) = events.next().await {
        let (pod, lives) = match event {
            Ok(Event::Init) => {
                fresh.clear();
                continue;
            }
            Ok(Event::InitApply(pod)) => {
                fresh.insert(pod.uid().unwrap_or_default());
                (pod, true)
            }
            Ok(Event::InitDone) => {
                known.difference(&fresh).for_each(|uid: &String| shared.names.set_endpoint(uid, None));
                known = std::mem::take(&mut fresh);
                continue;
            }
            Ok(Event::Apply(pod)) => (pod, true),
            Ok(Event::Delete(pod)) => (pod, false),
            Err(error) => {
                tracing::debug!(%error, "watching the pods of other nodes");
                continue;
            }
        };
        let uid = pod.uid().unwrap_or_default();
        let place = endpoint(&pod).filter(|_| lives);
        if lives {
            known.insert(uid.clone());
        } else {
            known.remove(&uid);
        }
        shared.names.set_endpoint(&uid, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_counts_as_long_as_it_lives_and_has_an_address() {
        let pod = |status: serde_json::Value| -> Pod {
            let meta = serde_json::json!({"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}});
            serde_json::from_value(serde_json::json!({"metadata": meta, "spec": {"containers": []}, "status": status}))
                .expect("a pod")
        };
        let ready = serde_json::json!([{"type": "Ready", "status": "True"}]);
        let running = serde_json::json!({"phase": "Running", "podIP": "127.9.0.1", "conditions": ready});
        let found = endpoint(&pod(running)).expect("an endpoint");
        assert!(found.ready && found.address == "127.9.0.1" && found.hostname == "p");
        assert!(!endpoint(&pod(serde_json::json!({"phase": "Running", "podIP": "127.9.0.1"}))).expect("one").ready);
        assert_eq!(endpoint(&pod(serde_json::json!({"phase": "Pending"}))), None);
        assert_eq!(endpoint(&pod(serde_json::json!({"phase": "Failed", "podIP": "127.9.0.1"}))), None);
    }
}
