//! Service accounts of pods: the default account, image pull secrets, and the token volume.

use serde_json::{Value, json};

use crate::meta;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Slightly more than an hour; kubelets refresh at 80 % of it.
const TOKEN_SECONDS: i64 = 3607;

pub(super) fn admit(state: &State, pod: &mut Value) -> ApiResult<()> {
    if pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some() {
        return Ok(());
    }
    let namespace = meta::namespace(pod).to_owned();
    let pod_name = meta::name(pod).to_owned();
    let name = match meta::text(pod, "/spec/serviceAccountName") {
        "" => "default",
        given => given,
    }
    .to_owned();
    let spec = meta::child(pod, "spec");
    spec.insert("serviceAccountName".into(), name.clone().into());
    spec.insert("serviceAccount".into(), name.clone().into());
    let Some(account) = state.store.get("serviceaccounts", &namespace, &name) else {
        return Err(StatusError::forbidden(
            "",
            "pods",
            &pod_name,
            &format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"),
        ));
    };
    let account = account.value();
    if spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && let Some(secrets) = account.get("imagePullSecrets").filter(|s| s.as_array().is_some_and(|l| !l.is_empty()))
    {
        spec.insert("imagePullSecrets".into(), secrets.clone());
    }
    let wanted = spec
        .get("automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"))
        .and_then(Value::as_bool)
        .unwrap_or(true);
    if wanted {
        mount(spec);
    }
    Ok(())
}

fn mount(spec: &mut serde_json::Map<String, Value>) {
    let existing = spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|v| {
            v.get("name").and_then(Value::as_str).is_some_and(|n| n.starts_with("kube-api-access-"))
                && v.get("projected").is_some()
        })
        .and_then(|v| v.get("name").cloned());
    let known = existing.is_some();
    let volume = existing.unwrap_or_else(|| format!("kube-api-access-{}", meta::random_suffix()).into());
    let mut mounted = false;
    for field in ["initContainers", "containers"] {
        for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|m| m.get("mountPath").is_some_and(|p| p == MOUNT)) {
                continue;
            }
            mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT}));
            mounted = true;
        }
    }
    if !mounted || known {
        return;
    }
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(json!({
            "name": volume,
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ],
            },
        }));
    }
}
