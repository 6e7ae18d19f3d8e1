//! Admission: what the server adds to or refuses about an object because of other objects. Built-in plugins first, then
//! webhooks.

mod account;
mod priority;
mod quota;
mod webhook;

use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use quota::recount;

use crate::kinds::Kind;
use crate::meta;
use crate::request::Asked;
use crate::state::State;
use crate::status::{Failure, Outcome};

/// Namespaces nobody may delete.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Objects are only created in namespaces that exist and are not going away.
pub(crate) fn check_namespace(state: &State, kind: &Kind, namespace: &str, name: &str) -> Outcome<()> {
    if !kind.namespaced {
        return Ok(());
    }
    let Some(found) = state.namespace(namespace) else {
        return Err(Failure::not_found("", "namespaces", namespace));
    };
    if meta::deleting(&found.value) {
        let mut failure = Failure::forbidden(
            &kind.group,
            &kind.resource,
            name,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        if let Some(details) = failure.details.as_mut() {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        return Err(failure);
    }
    Ok(())
}

pub(crate) fn refuse_deletion(kind: &Kind, name: &str) -> Outcome<()> {
    if kind.is("", "namespaces") && IMMORTAL.contains(&name) {
        return Err(Failure::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

pub(crate) fn mutate_create(state: &State, asked: &Asked, object: &mut Value) -> Outcome<()> {
    let kind = &asked.kind;
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => {
            account::admit(state, object)?;
            priority::admit(state, object)?;
            tolerations(object);
            quota::admit(state, object)?;
        }
        ("", "persistentvolumeclaims") => storage_class(state, object),
        _ => {}
    }
    Ok(())
}

pub(crate) fn mutate_update(_state: &State, _asked: &Asked, _old: &Value, _next: &mut Value) -> Outcome<()> {
    Ok(())
}

/// The turn a pod waits for where quotas count; nobody waits elsewhere.
pub(crate) async fn quota_turn<'a>(
    state: &'a State,
    kind: &Kind,
    namespace: &str,
) -> Option<tokio::sync::MutexGuard<'a, ()>> {
    if kind.is("", "pods") && quota::has_any(state, namespace) { Some(state.quota_turn.lock().await) } else { None }
}

/// What may still refuse the final object: webhooks.
pub(crate) async fn validate(
    state: &Arc<State>,
    asked: &Asked,
    old: Option<&Value>,
    new: Option<&Value>,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Outcome<()> {
    webhook::validate(state, asked, old, new, dry_run, warnings).await
}

/// Pods stay five minutes on a node that is not ready or cannot be reached, unless they say otherwise.
fn tolerations(pod: &mut Value) {
    const SECONDS: i64 = 300;
    let spec = meta::child(pod, "spec");
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = list.iter().any(|t| {
            let same_key = t.get("key").and_then(Value::as_str).is_none_or(|k| k == key || k.is_empty());
            let same_effect = t.get("effect").and_then(Value::as_str).is_none_or(|e| e == "NoExecute" || e.is_empty());
            same_key && same_effect
        });
        if !covered {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}));
        }
    }
}

/// A claim that names no class gets the default one.
fn storage_class(state: &State, claim: &mut Value) {
    if claim.pointer("/spec/storageClassName").is_some() {
        return;
    }
    let Ok(classes) = state.store.list("storageclasses.storage.k8s.io", None, None, usize::MAX, None, |class| {
        class
            .value
            .pointer("/metadata/annotations/storageclass.kubernetes.io~1is-default-class")
            .is_some_and(|v| v == "true")
    }) else {
        return;
    };
    let newest =
        classes.items.iter().max_by_key(|(_, c)| meta::text(&c.value, "/metadata/creationTimestamp").to_owned());
    if let Some(((_, name), _)) = newest {
        meta::child(claim, "spec").insert("storageClassName".into(), (**name).into());
    }
}
