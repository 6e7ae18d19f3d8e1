//! Cells of the smaller groups.

use serde_json::Value;

use super::{Cells, Row, count, int, joined, joined_or, labels, list, or, text};
use crate::meta;

pub(super) fn cells(group: &str, row: Row<'_>) -> Cells {
    let Row { resource, object, name, age, .. } = row;
    let flag = |pointer: &str, missing: bool| -> Value {
        object.pointer(pointer).and_then(Value::as_bool).unwrap_or(missing).into()
    };
    match (group, resource) {
        ("policy", "poddisruptionbudgets") => vec![
            name,
            or(object, "/spec/minAvailable", "N/A"),
            or(object, "/spec/maxUnavailable", "N/A"),
            int(object, "/status/disruptionsAllowed"),
            age,
        ],
        ("coordination.k8s.io", "leases") => vec![name, text(object, "/spec/holderIdentity"), age],
        ("storage.k8s.io", "storageclasses") => {
            let default = object
                .pointer("/metadata/annotations/storageclass.kubernetes.io~1is-default-class")
                .is_some_and(|v| v == "true");
            let shown: Value = if default { format!("{} (default)", meta::name(object)).into() } else { name };
            let expansion = object.pointer("/allowVolumeExpansion").and_then(Value::as_bool).unwrap_or_default();
            vec![
                shown,
                text(object, "/provisioner"),
                text(object, "/reclaimPolicy"),
                text(object, "/volumeBindingMode"),
                expansion.into(),
                age,
            ]
        }
        ("scheduling.k8s.io", "priorityclasses") => vec![
            name,
            int(object, "/value"),
            object.pointer("/globalDefault").and_then(Value::as_bool).unwrap_or_default().into(),
            age,
            text(object, "/preemptionPolicy"),
        ],
        ("discovery.k8s.io", "endpointslices") => {
            let ports = joined_or(
                list(object, "/ports").map(|p| or(p, "/port", "*").as_str().unwrap_or_default().to_owned()),
                "<unset>",
            );
            let addresses = joined_or(
                list(object, "/endpoints")
                    .flat_map(|e| list(e, "/addresses"))
                    .filter_map(|a| a.as_str().map(str::to_owned)),
                "<unset>",
            );
            vec![name, text(object, "/addressType"), ports, addresses, age]
        }
        ("networking.k8s.io", "ingresses") => {
            let hosts = joined_or(
                list(object, "/spec/rules").map(|r| meta::text(r, "/host").to_owned()).filter(|h| !h.is_empty()),
                "*",
            );
            let address = joined(
                list(object, "/status/loadBalancer/ingress").map(|i| match meta::text(i, "/ip") {
                    "" => meta::text(i, "/hostname"),
                    ip => ip,
                }),
                ",",
            );
            let ports = if count(object, "/spec/tls") > 0 { "80, 443" } else { "80" };
            vec![name, or(object, "/spec/ingressClassName", "<none>"), hosts, address.into(), ports.into(), age]
        }
        ("networking.k8s.io", "networkpolicies") => vec![name, labels(object, "/spec/podSelector/matchLabels"), age],
        ("rbac.authorization.k8s.io", _) => {
            let role = format!("{}/{}", meta::text(object, "/roleRef/kind"), meta::text(object, "/roleRef/name"));
            let subjects = |wanted: &str| -> Value {
                let names: Vec<String> = list(object, "/subjects")
                    .filter(|s| meta::text(s, "/kind") == wanted)
                    .map(|s| match meta::text(s, "/namespace") {
                        "" => meta::text(s, "/name").to_owned(),
                        namespace => format!("{namespace}/{}", meta::text(s, "/name")),
                    })
                    .collect();
                names.join(", ").into()
            };
            vec![name, role.into(), age, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            vec![name, count(object, "/webhooks").into(), age]
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            let kind = match meta::text(object, "/spec/paramKind/kind") {
                "" => "<unset>".to_owned(),
                kind => format!("{}/{kind}", meta::text(object, "/spec/paramKind/apiVersion")),
            };
            vec![name, count(object, "/spec/validations").into(), kind.into(), age]
        }
        ("admissionregistration.k8s.io", _) => {
            let reference = match meta::text(object, "/spec/paramRef/name") {
                "" => "<unset>".to_owned(),
                param => match meta::text(object, "/spec/paramRef/namespace") {
                    "" => format!("*/{param}"),
                    namespace => format!("{namespace}/{param}"),
                },
            };
            vec![name, text(object, "/spec/policyName"), reference.into(), age]
        }
        ("certificates.k8s.io", _) => {
            let conditions = joined(list(object, "/status/conditions").map(|c| meta::text(c, "/type")), ",");
            let issued = !meta::text(object, "/status/certificate").is_empty();
            let condition = match (conditions.is_empty(), issued) {
                (true, _) => "Pending".to_owned(),
                (false, true) => format!("{conditions},Issued"),
                (false, false) => conditions,
            };
            let duration = object
                .pointer("/spec/expirationSeconds")
                .and_then(Value::as_i64)
                .map_or("<none>".to_owned(), crate::table::short_duration);
            vec![
                name,
                age,
                or(object, "/spec/signerName", "<none>"),
                text(object, "/spec/username"),
                duration.into(),
                condition.into(),
            ]
        }
        ("networking.k8s.io", "ingressclasses") => {
            let parameters = match meta::text(object, "/spec/parameters/kind") {
                "" => "<none>".to_owned(),
                kind => {
                    let group = match meta::text(object, "/spec/parameters/apiGroup") {
                        "" => String::new(),
                        group => format!(".{group}"),
                    };
                    format!("{kind}{group}/{}", meta::text(object, "/spec/parameters/name"))
                }
            };
            vec![name, text(object, "/spec/controller"), parameters.into(), age]
        }
        ("node.k8s.io", _) => vec![name, text(object, "/handler"), age],
        ("storage.k8s.io", "csinodes") => vec![name, count(object, "/spec/drivers").into(), age],
        ("storage.k8s.io", "csidrivers") => {
            let modes = joined(list(object, "/spec/volumeLifecycleModes").filter_map(Value::as_str), ",");
            let tokens = match object.pointer("/spec/tokenRequests") {
                None => "<unset>".to_owned(),
                Some(_) => joined(list(object, "/spec/tokenRequests").map(|t| meta::text(t, "/audience")), ","),
            };
            vec![
                name,
                flag("/spec/attachRequired", true),
                flag("/spec/podInfoOnMount", false),
                flag("/spec/storageCapacity", false),
                tokens.into(),
                flag("/spec/requiresRepublish", false),
                if modes.is_empty() { "<none>".into() } else { modes.into() },
                age,
            ]
        }
        ("storage.k8s.io", "csistoragecapacities") => {
            vec![name, text(object, "/storageClassName"), or(object, "/capacity", "<unset>")]
        }
        ("storage.k8s.io", "volumeattachments") => vec![
            name,
            text(object, "/spec/attacher"),
            text(object, "/spec/source/persistentVolumeName"),
            text(object, "/spec/nodeName"),
            flag("/status/attached", false),
            age,
        ],
        _ => vec![name, age],
    }
}
