//! What the server does after a write: serves custom resources as their definitions come and go, and populates new namespaces.

use std::sync::Arc;

use serde_json::json;

use crate::kinds::Kind;
use crate::meta;
use crate::state::State;
use crate::store::Stored;

/// Called once per stored change; `after` is `None` if the object was removed.
pub(crate) async fn after_write(
    state: &Arc<State>,
    kind: &Kind,
    before: Option<&Arc<Stored>>,
    after: Option<&Arc<Stored>>,
) {
    match (&*kind.group, &*kind.resource) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition_changed(state, kind, before, after).await,
        ("", "namespaces") if before.is_none() => {
            if let Some(created) = after {
                furnish_namespace(state, meta::name(&created.value())).await;
            }
        }
        ("", "pods" | "resourcequotas") => {
            if let Some(object) = after.or(before) {
                crate::admission::recount(state, meta::namespace(&object.value())).await;
            }
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            if let Some(policy) = after {
                policy_seen(state, kind, policy).await;
            }
        }
        ("rbac.authorization.k8s.io", "clusterroles") => crate::authorization::aggregate(state).await,
        _ => {}
    }
}

/// Sets the status of a policy; its expressions were checked before it was stored.
async fn policy_seen(state: &State, kind: &Kind, policy: &Arc<Stored>) {
    let mut current = policy.clone();
    loop {
        let mut next = serde_json::Value::clone(&current.value());
        next["status"]["observedGeneration"] = meta::generation(&current.value()).into();
        next["status"]["typeChecking"] = json!({});
        if next == *current.value() || !matches!(state.replace(kind, &current, next).await, Ok(None)) {
            return;
        }
        match state.get(kind, "", meta::name(&policy.value())) {
            Some(newer) => current = newer,
            None => return,
        }
    }
}

/// Creates the service account and CA bundle that pods need. In a full cluster controllers maintain them; here they exist from the
/// start, so that the server alone can accept pods.
pub(crate) async fn furnish_namespace(state: &State, namespace: &str) {
    let objects = [
        (
            "serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}),
        ),
        (
            "configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "kube-root-ca.crt", "namespace": namespace,
                    "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
                },
                "data": {"ca.crt": state.pki.ca_pem()},
            }),
        ),
    ];
    for (resource, object) in objects {
        if let Err(failure) = crate::bootstrap::ensure(state, "", "v1", resource, object).await {
            tracing::warn!(namespace, resource, why = failure.message, "a namespace is not furnished");
        }
    }
}

async fn definition_changed(
    state: &Arc<State>,
    kind: &Kind,
    before: Option<&Arc<Stored>>,
    after: Option<&Arc<Stored>>,
) {
    let Some(definition) = after else {
        if let Some(gone) = before {
            serve(state, |kinds| crate::crd::unregister(kinds, &gone.value()));
        }
        return;
    };
    let spec_changed = before.is_none_or(|b| b.value().get("spec") != definition.value().get("spec"));
    if spec_changed {
        serve(state, |kinds| crate::crd::register(kinds, &definition.value()));
    }
    if meta::deleting(&definition.value()) {
        if before.is_some_and(|b| !meta::deleting(&b.value())) {
            tokio::spawn(clean_up(state.clone(), definition.clone()));
        }
        return;
    }
    if spec_changed {
        // The server writes the status, not the client that created the definition.
        let mut current = definition.clone();
        loop {
            let next = crate::crd::established(&current.value());
            if next == *current.value() {
                return;
            }
            match state.replace(kind, &current, next).await {
                Ok(Some(_)) | Err(_) => return,
                Ok(None) => match state.get(kind, "", meta::name(&definition.value())) {
                    Some(newer) => current = newer,
                    None => return,
                },
            }
        }
    }
}

fn serve(state: &State, change: impl Fn(&mut crate::kinds::Kinds)) {
    state.kinds.rcu(|kinds| {
        let mut next = (**kinds).clone();
        change(&mut next);
        next
    });
}

/// Deletes the instances of a terminating definition, then the definition. Waits for instances with finalizers.
async fn clean_up(state: Arc<State>, definition: Arc<Stored>) {
    let group = meta::text(&definition.value(), "/spec/group").to_owned();
    let plural = meta::text(&definition.value(), "/spec/names/plural").to_owned();
    let name = meta::name(&definition.value()).to_owned();
    loop {
        let Some(instances) = state.kinds.load().any_version(&group, &plural) else { break };
        let left = state.store.names_of(&instances.table);
        if left.is_empty() {
            break;
        }
        for (namespace, instance) in left {
            if let Some(stored) = state.get(&instances, &namespace, &instance)
                && !meta::deleting(&stored.value())
            {
                crate::delete::delete_plainly(&state, &instances, &stored).await;
            }
        }
        tokio::select! {
            () = state.stopping.cancelled() => return,
            () = tokio::time::sleep(std::time::Duration::from_millis(100)) => {}
        }
    }
    let Some(kind) = state.kinds.load().find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return };
    while let Some(current) = state.get(&kind, "", &name) {
        let mut next = serde_json::Value::clone(&current.value());
        if let Some(list) = meta::of(&mut next).get_mut("finalizers").and_then(serde_json::Value::as_array_mut) {
            list.retain(|f| f != crate::crd::CLEANUP);
        }
        let done = if meta::finalizers(&next).is_empty() {
            let removed = state.remove(&kind, &current).await;
            if matches!(removed, Ok(Some(_))) {
                serve(&state, |kinds| crate::crd::unregister(kinds, &current.value()));
            }
            removed
        } else {
            state.replace(&kind, &current, next).await
        };
        match done {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return,
        }
    }
}
