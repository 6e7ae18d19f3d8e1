//! Validates objects, in the real server's words.

mod admission;
mod certificate;
mod cluster;
mod core;
mod limits;
mod metadata;
mod network;
mod pod;
mod storage;
mod workload;

use serde_json::Value;

use crate::kinds::Kind;
use crate::state::State;
use crate::status::Cause;

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn each<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten().filter(|v| v.is_object()).collect()
}

/// The field, if set, must be one of these.
fn one_of(value: &Value, field: &str, path: &str, options: &[&str], causes: &mut Vec<Cause>) {
    let given = text(value, field);
    if !given.is_empty() && !options.contains(&given) {
        causes.push(Cause::unsupported(format!("{path}.{field}"), &given.into(), options));
    }
}

/// Two states of an object.
struct Differences<'a> {
    old: &'a Value,
    next: &'a Value,
}

impl Differences<'_> {
    fn immutable(&self, pointer: &str, field: &str, causes: &mut Vec<Cause>) {
        let after = self.next.pointer(pointer);
        if self.old.pointer(pointer) != after {
            causes.push(Cause::invalid(field, after.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

fn check(kind: &Kind, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if let Some(custom) = &kind.custom {
        causes.extend(custom.causes(object, old));
        return;
    }
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => pod::spec(object.get("spec").unwrap_or(&Value::Null), "spec", pod::PodOrTemplate::Pod, causes),
        ("", "podtemplates") => {
            pod::spec(
                object.pointer("/template/spec").unwrap_or(&Value::Null),
                "template.spec",
                pod::PodOrTemplate::Template,
                causes,
            );
        }
        ("apps" | "batch", resource) => workload::check(resource, object, causes),
        ("", "replicationcontrollers") => workload::check("replicationcontrollers", object, causes),
        ("", "nodes") => cluster::node(object, causes),
        ("", "persistentvolumes") => storage::volume(object, causes),
        ("", "limitranges") => limits::limit_range(object, causes),
        ("", "resourcequotas") => limits::quota(object, causes),
        ("", "endpoints") => network::endpoints(object, causes),
        ("", "events") => cluster::event(object, false, causes),
        ("events.k8s.io", "events") => cluster::event(object, true, causes),
        ("storage.k8s.io", "storageclasses") => storage::class(object, causes),
        ("scheduling.k8s.io", "priorityclasses") => cluster::priority_class(object, causes),
        ("node.k8s.io", "runtimeclasses") => cluster::runtime_class(object, causes),
        ("policy", "poddisruptionbudgets") => cluster::budget(object, causes),
        ("autoscaling", "horizontalpodautoscalers") => cluster::autoscaler(object, causes),
        ("networking.k8s.io", "ingresses") => network::ingress(object, causes),
        ("networking.k8s.io", "networkpolicies") => network::policy(object, causes),
        // If a slice's address type changes its addresses are not checked; the change itself is the error.
        ("discovery.k8s.io", "endpointslices")
            if old.is_none_or(|old| old.get("addressType") == object.get("addressType")) =>
        {
            network::slice(object, causes);
        }
        ("", "services") => core::service(object, causes),
        ("", "configmaps") => core::data(object, &["data", "binaryData"], causes),
        ("", "secrets") => {
            core::data(object, &["data"], causes);
            cluster::secret(object, causes);
        }
        ("", "persistentvolumeclaims") => storage::claim(object, causes),
        ("rbac.authorization.k8s.io", "roles") => core::roles(object, false, causes),
        ("rbac.authorization.k8s.io", "clusterroles") => core::roles(object, true, causes),
        ("rbac.authorization.k8s.io", "rolebindings") => core::binding(object, false, causes),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => core::binding(object, true, causes),
        ("coordination.k8s.io", "leases") => core::lease(object, causes),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            admission::webhooks(object, causes);
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => admission::policy(object, causes),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => admission::binding(object, causes),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::request(object, causes),
        ("apiextensions.k8s.io", "customresourcedefinitions") => causes.extend(crate::crd::definition_causes(object)),
        _ => {}
    }
}

pub(crate) fn create(_state: &State, kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::check(kind, object);
    check(kind, object, None, &mut causes);
    causes
}

pub(crate) fn update(_state: &State, kind: &Kind, subresource: &str, old: &Value, next: &Value) -> Vec<Cause> {
    let mut causes = metadata::check_update(old, next);
    causes.extend(metadata::check(kind, next));
    if kind.is("certificates.k8s.io", "certificatesigningrequests") {
        certificate::update(subresource, old, next, &mut causes);
    }
    if !subresource.is_empty() && kind.custom.is_none() {
        if kind.is("", "services") && subresource == "status" {
            core::service_status(next, &mut causes);
        }
        return causes;
    }
    check(kind, next, Some(old), &mut causes);
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => pod::update(old, next, &mut causes),
        ("apps" | "batch", resource) => workload::update(resource, old, next, &mut causes),
        ("", "services") => core::service_update(old, next, &mut causes),
        ("", "configmaps") => core::frozen(old, next, &["data", "binaryData"], &mut causes),
        ("", "secrets") => {
            core::secret_update(old, next, &mut causes);
            core::frozen(old, next, &["data"], &mut causes);
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            core::binding_update(old, next, &mut causes);
        }
        ("scheduling.k8s.io", "priorityclasses") => core::priority_class_update(old, next, &mut causes),
        ("", "persistentvolumeclaims") => storage::claim_update(old, next, &mut causes),
        ("", "persistentvolumes") => storage::volume_update(old, next, &mut causes),
        ("storage.k8s.io", "storageclasses") => storage::class_update(old, next, &mut causes),
        ("node.k8s.io", "runtimeclasses") => Differences { old, next }.immutable("/handler", "handler", &mut causes),
        ("networking.k8s.io", "ingressclasses") => {
            Differences { old, next }.immutable("/spec/controller", "spec.controller", &mut causes);
        }
        ("discovery.k8s.io", "endpointslices") => {
            Differences { old, next }.immutable("/addressType", "addressType", &mut causes);
        }
        _ => {}
    }
    causes
}
