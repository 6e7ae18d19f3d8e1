//! Admission: changes or rejects objects depending on other objects. Built-in plugins come first, then policies and webhooks, quotas
//! last.

pub(crate) mod cel_expression;
mod certificate;
mod limit_ranger;
mod policy;
mod priority;
mod resource_quota;
mod rules;
mod service_account;
mod webhook;

use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use resource_quota::recount;

use crate::kinds::Kind;
use crate::meta;
use crate::request::ApiRequest;
use crate::state::State;
use crate::status::{ApiResult, StatusError};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Objects can be created only in namespaces that exist and are not terminating.
pub(crate) fn check_namespace(state: &State, kind: &Kind, namespace: &str, name: &str) -> ApiResult<()> {
    if !kind.namespaced {
        return Ok(());
    }
    let Some(found) = state.namespace(namespace) else {
        return Err(StatusError::not_found("", "namespaces", namespace));
    };
    if meta::deleting(&found.value()) {
        let mut failure = StatusError::forbidden(
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

pub(crate) fn refuse_deletion(kind: &Kind, name: &str) -> ApiResult<()> {
    if kind.is("", "namespaces") && IMMORTAL.contains(&name) {
        return Err(StatusError::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

pub(crate) fn mutate_create(state: &State, req: &ApiRequest, object: &mut Value) -> ApiResult<()> {
    let kind = &req.kind;
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => {
            service_account::admit(state, object)?;
            priority::admit(state, object)?;
            tolerations(object);
            limit_ranger::fill(state, object);
            object["status"]["qosClass"] = crate::pods::qos_class(object).into();
        }
        ("", "persistentvolumeclaims") => {
            storage_class(state, object);
            protect(object, "kubernetes.io/pvc-protection");
        }
        ("", "persistentvolumes") => protect(object, "kubernetes.io/pv-protection"),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::admit_create(req, object)?,
        _ => {}
    }
    Ok(())
}

/// Rejects a change that needs additional permissions.
pub(crate) fn check_update(state: &State, req: &ApiRequest, old: &Value, next: &Value) -> ApiResult<()> {
    if req.kind.is("certificates.k8s.io", "certificatesigningrequests") {
        certificate::check_update(state, req, old, next)?;
    }
    Ok(())
}

/// Serializes pod creation in namespaces with quotas.
pub(crate) async fn quota_turn<'a>(
    state: &'a State,
    kind: &Kind,
    namespace: &str,
) -> Option<tokio::sync::MutexGuard<'a, ()>> {
    if kind.is("", "pods") && resource_quota::has_any(state, namespace) {
        Some(state.quota_turn.lock().await)
    } else {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A change (or a stream to a pod) as policies and webhooks see it.
pub(crate) struct Attributes<'a> {
    pub(crate) req: &'a ApiRequest,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// The attributes of a request's own change.
    pub(crate) fn on(
        req: &'a ApiRequest,
        operation: Operation,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
        dry_run: bool,
    ) -> Self {
        let object = new.or(old);
        let name = match req.target.name.as_str() {
            // Deleting a collection has no single name.
            "" => new.map(meta::name).unwrap_or_default(),
            given => given,
        };
        let namespace = match req.target.namespace.as_str() {
            "" => object.map(meta::namespace).unwrap_or_default(),
            given => given,
        };
        Self { req, operation, namespace, name, old, new, dry_run }
    }

    /// `request` in admission reviews and expressions, for a webhook or policy that matches the resource as `version`.
    fn request(&self, version: &str) -> Value {
        let kind = &self.req.kind;
        let subresource = self.req.target.subresource.as_str();
        let gvk = |version: &str| match spoken(kind, subresource) {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": &*kind.group, "version": version, "kind": &*kind.kind}),
        };
        let gvr = |version: &str| json!({"group": &*kind.group, "version": version, "resource": &*kind.resource});
        let options = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Update => "UpdateOptions",
            Operation::Connect => "",
        };
        let mut request = json!({
            "uid": "", "kind": gvk(version), "resource": gvr(version),
            "requestKind": gvk(&kind.version), "requestResource": gvr(&kind.version),
            "operation": self.operation.name(), "userInfo": self.req.user.info(), "dryRun": self.dry_run,
            "object": null, "oldObject": null, "options": null,
        });
        if !options.is_empty() {
            request["options"] = json!({"kind": options, "apiVersion": "meta.k8s.io/v1"});
            if self.dry_run {
                request["options"]["dryRun"] = json!(["All"]);
            }
            let manager = self.req.query.get("fieldManager");
            if !manager.is_empty() && self.operation != Operation::Delete {
                request["options"]["fieldManager"] = manager.into();
            }
        }
        for (field, value) in [
            ("name", self.name),
            ("namespace", self.namespace),
            ("subResource", subresource),
            ("requestSubResource", subresource),
        ] {
            if !value.is_empty() {
                request[field] = value.into();
            }
        }
        request
    }
}

/// The kind of a subresource, if it differs from its parent's.
fn spoken<'a>(kind: &'a Kind, subresource: &str) -> Option<(&'a str, &'a str, &'a str)> {
    if subresource == "scale" {
        return Some(("autoscaling", "v1", "Scale"));
    }
    let sub = kind.others.iter().find(|s| s.name == subresource)?;
    let (group, version) = sub.group_version.split_once('/').unwrap_or(("", sub.group_version));
    Some((group, version, sub.kind))
}

/// The final checks: policies, webhooks and quotas.
pub(crate) async fn validate(
    state: &Arc<State>,
    attributes: &Attributes<'_>,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let kind = &attributes.req.kind;
    // Admission configuration is exempt, so that a broken one can always be removed.
    if &*kind.group != "admissionregistration.k8s.io" {
        policy::validate(state, attributes, warnings)?;
        webhook::validate(state, attributes, warnings).await?;
    }
    let (Operation::Create, "", Some(new)) =
        (attributes.operation, attributes.req.target.subresource.as_str(), attributes.new)
    else {
        return Ok(());
    };
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => {
            limit_ranger::admit(state, new)?;
            resource_quota::admit(state, new)
        }
        ("", "persistentvolumeclaims") => limit_ranger::admit_claim(state, new),
        _ => Ok(()),
    }
}

/// By default pods tolerate a not-ready or unreachable node for five minutes.
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

/// Adds the finalizer that protects storage in use.
fn protect(object: &mut Value, finalizer: &str) {
    let held = meta::of(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(held) = held.as_array_mut()
        && !held.iter().any(|f| f == finalizer)
    {
        held.push(finalizer.into());
    }
}

/// A claim without a class gets the default one.
fn storage_class(state: &State, claim: &mut Value) {
    if claim.pointer("/spec/storageClassName").is_some() {
        return;
    }
    let Ok(classes) = state.store.list("storageclasses.storage.k8s.io", None, None, usize::MAX, None, |class| {
        class
            .value()
            .pointer("/metadata/annotations/storageclass.kubernetes.io~1is-default-class")
            .is_some_and(|v| v == "true")
    }) else {
        return;
    };
    let newest =
        classes.items.iter().max_by_key(|(_, c)| meta::text(&c.value(), "/metadata/creationTimestamp").to_owned());
    if let Some(((_, name), _)) = newest {
        meta::child(claim, "spec").insert("storageClassName".into(), (**name).into());
    }
}
