//! Columns and cells of built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

use super::{Cells, Column, age, age_of, short_duration};
use crate::kinds::Kind;
use crate::meta;

/// Columns as `Name:type[:wide]`; `Name` itself has the format `name`.
fn spec(kind: &Kind) -> &'static str {
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => "Name Ready Status Restarts Age IP:w Node:w Nominated_Node:w Readiness_Gates:w",
        ("", "services") => "Name Type Cluster-IP External-IP Port(s) Age Selector:w",
        ("", "configmaps") => "Name Data Age",
        ("", "secrets") => "Name Type Data Age",
        ("", "serviceaccounts") => "Name Age",
        ("", "nodes") => {
            "Name Status Roles Age Version Internal-IP:w External-IP:w OS-Image:w Kernel-Version:w Container-Runtime:w"
        }
        ("", "namespaces") => "Name Status Age",
        ("", "events") | ("events.k8s.io", _) => {
            "Last_Seen Type Reason Object Subobject:w Source:w Message First_Seen:w Count:w Name:w"
        }
        ("", "persistentvolumeclaims") => {
            "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode:w"
        }
        ("", "persistentvolumes") => {
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode:w"
        }
        ("", "endpoints") => "Name Endpoints Age",
        ("", "replicationcontrollers") => "Name Desired:i Current:i Ready:i Age Containers:w Images:w Selector:w",
        ("", "resourcequotas") => "Name Request Limit Age",
        ("", "limitranges") => "Name Created_At",
        ("apps", "deployments") => "Name Ready Up-to-date Available Age Containers:w Images:w Selector:w",
        ("apps", "replicasets") => "Name Desired:i Current:i Ready:i Age Containers:w Images:w Selector:w",
        ("apps", "statefulsets") => "Name Ready Age Containers:w Images:w",
        ("apps", "daemonsets") => {
            "Name Desired:i Current:i Ready:i Up-to-date:i Available:i Node_Selector Age Containers:w Images:w Selector:w"
        }
        ("apps", "controllerrevisions") => "Name Controller Revision Age",
        ("batch", "jobs") => "Name Status Completions Duration Age Containers:w Images:w Selector:w",
        ("batch", "cronjobs") => {
            "Name Schedule Timezone Suspend:b Active:i Last_Schedule Age Containers:w Images:w Selector:w"
        }
        ("policy", "poddisruptionbudgets") => "Name Min_Available Max_Unavailable Allowed_Disruptions:i Age",
        ("coordination.k8s.io", "leases") => "Name Holder Age",
        ("storage.k8s.io", "storageclasses") => {
            "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"
        }
        ("scheduling.k8s.io", "priorityclasses") => "Name Value:i Global-Default:b Age PreemptionPolicy",
        ("discovery.k8s.io", "endpointslices") => "Name AddressType Ports Endpoints Age",
        ("networking.k8s.io", "ingresses") => "Name Class Hosts Address Ports Age",
        ("networking.k8s.io", "networkpolicies") => "Name Pod-Selector Age",
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => "Name Created_At",
        ("rbac.authorization.k8s.io", _) => "Name Role Age Users:w Groups:w ServiceAccounts:w",
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            "Name Webhooks:i Age"
        }
        ("apiextensions.k8s.io", _) => "Name Created_At",
        _ => "Name Age",
    }
}

/// Nothing but a name and when it was made.
pub(super) fn is_plain(kind: &Kind) -> bool {
    kind.custom.is_none() && spec(kind) == "Name Created_At"
}

pub(super) fn of(kind: &Kind) -> Vec<Column> {
    spec(kind)
        .split(' ')
        .map(|column| {
            let (name, flags) = column.split_once(':').unwrap_or((column, ""));
            let ty = if flags.contains('i') {
                "integer"
            } else if flags.contains('b') {
                "boolean"
            } else if name == "Created_At" {
                "date"
            } else {
                "string"
            };
            Column {
                name: name.replace('_', " "),
                ty,
                format: if name == "Name" { "name" } else { "" },
                priority: i64::from(flags.contains('w')),
            }
        })
        .collect()
}

fn text(object: &Value, pointer: &str) -> Value {
    meta::text(object, pointer).into()
}

fn or(object: &Value, pointer: &str, missing: &str) -> Value {
    match object.pointer(pointer) {
        None | Some(Value::Null) => missing.into(),
        Some(Value::String(found)) if found.is_empty() => missing.into(),
        Some(Value::String(found)) => found.as_str().into(),
        Some(other) => other.to_string().into(),
    }
}

fn int(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default().into()
}

fn count(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn joined<'a>(items: impl Iterator<Item = &'a str>, separator: &str) -> String {
    items.collect::<Vec<_>>().join(separator)
}

fn containers(object: &Value, at: &str, field: &str) -> Value {
    joined(list(object, at).map(|c| meta::text(c, field)), ",").into()
}

fn labels(object: &Value, pointer: &str) -> Value {
    let pairs: Vec<String> = object
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() }
}

fn access_modes(object: &Value, pointer: &str) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    joined(list(object, pointer).filter_map(Value::as_str).map(short), ",").into()
}

pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Cells {
    let name: Value = meta::name(object).into();
    let old = age(object, now);
    let template = "/spec/template/spec/containers";
    let workload = |selector: &str| {
        [containers(object, template, "/name"), containers(object, template, "/image"), labels(object, selector)]
    };
    match (&*kind.group, &*kind.resource) {
        ("", "pods") => super::pod::cells(object, now),
        ("", "services") => service(object, name, old),
        ("", "configmaps") => vec![name, (count(object, "/data") + count(object, "/binaryData")).into(), old],
        ("", "secrets") => vec![name, text(object, "/type"), count(object, "/data").into(), old],
        ("", "nodes") => node(object, name, old),
        ("", "namespaces") => vec![name, text(object, "/status/phase"), old],
        ("", "events") => event(
            object,
            now,
            ["involvedObject", "source", "message", "firstTimestamp", "lastTimestamp", "count", "reportingComponent"],
        ),
        ("events.k8s.io", _) => event(
            object,
            now,
            [
                "regarding",
                "deprecatedSource",
                "note",
                "deprecatedFirstTimestamp",
                "deprecatedLastTimestamp",
                "deprecatedCount",
                "reportingController",
            ],
        ),
        ("", "persistentvolumeclaims") => {
            let bound = !meta::text(object, "/spec/volumeName").is_empty();
            let status: Value =
                if meta::deleting(object) { "Terminating".into() } else { text(object, "/status/phase") };
            vec![
                name,
                status,
                text(object, "/spec/volumeName"),
                if bound { text(object, "/status/capacity/storage") } else { "".into() },
                if bound { access_modes(object, "/status/accessModes") } else { "".into() },
                text(object, "/spec/storageClassName"),
                or(object, "/spec/volumeAttributesClassName", "<unset>"),
                old,
                or(object, "/spec/volumeMode", "<unset>"),
            ]
        }
        ("", "persistentvolumes") => {
            let claim = match meta::text(object, "/spec/claimRef/name") {
                "" => String::new(),
                claim => format!("{}/{claim}", meta::text(object, "/spec/claimRef/namespace")),
            };
            let status: Value =
                if meta::deleting(object) { "Terminating".into() } else { text(object, "/status/phase") };
            vec![
                name,
                text(object, "/spec/capacity/storage"),
                access_modes(object, "/spec/accessModes"),
                text(object, "/spec/persistentVolumeReclaimPolicy"),
                status,
                claim.into(),
                text(object, "/spec/storageClassName"),
                or(object, "/spec/volumeAttributesClassName", "<unset>"),
                text(object, "/status/reason"),
                old,
                or(object, "/spec/volumeMode", "<unset>"),
            ]
        }
        ("", "endpoints") => vec![name, endpoints(object), old],
        ("", "replicationcontrollers") => {
            let [names, images, selector] = workload("/spec/selector");
            vec![
                name,
                int(object, "/spec/replicas"),
                int(object, "/status/replicas"),
                int(object, "/status/readyReplicas"),
                old,
                names,
                images,
                selector,
            ]
        }
        ("", "resourcequotas") => quota(object, name, old),
        ("", "limitranges") | ("apiextensions.k8s.io", _) | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            vec![name, text(object, "/metadata/creationTimestamp")]
        }
        ("apps", "deployments") => {
            let [names, images, selector] = workload("/spec/selector/matchLabels");
            let ready = format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas"));
            vec![
                name,
                ready.into(),
                int(object, "/status/updatedReplicas"),
                int(object, "/status/availableReplicas"),
                old,
                names,
                images,
                selector,
            ]
        }
        ("apps", "replicasets") => {
            let [names, images, selector] = workload("/spec/selector/matchLabels");
            vec![
                name,
                int(object, "/spec/replicas"),
                int(object, "/status/replicas"),
                int(object, "/status/readyReplicas"),
                old,
                names,
                images,
                selector,
            ]
        }
        ("apps", "statefulsets") => {
            let [names, images, _] = workload("/spec/selector/matchLabels");
            let ready = format!("{}/{}", int(object, "/status/readyReplicas"), int(object, "/spec/replicas"));
            vec![name, ready.into(), old, names, images]
        }
        ("apps", "daemonsets") => {
            let [names, images, selector] = workload("/spec/selector/matchLabels");
            vec![
                name,
                int(object, "/status/desiredNumberScheduled"),
                int(object, "/status/currentNumberScheduled"),
                int(object, "/status/numberReady"),
                int(object, "/status/updatedNumberScheduled"),
                int(object, "/status/numberAvailable"),
                labels(object, "/spec/template/spec/nodeSelector"),
                old,
                names,
                images,
                selector,
            ]
        }
        ("apps", "controllerrevisions") => {
            let owner =
                list(object, "/metadata/ownerReferences").find(|o| o.get("controller").is_some_and(|c| c == true));
            let controller = owner.map_or("<none>".to_owned(), |o| {
                format!("{}/{}", meta::text(o, "/kind").to_lowercase(), meta::text(o, "/name"))
            });
            vec![name, controller.into(), int(object, "/revision"), old]
        }
        ("batch", "jobs") => job(object, name, old, now),
        ("batch", "cronjobs") => {
            let at = "/spec/jobTemplate/spec/template/spec/containers";
            let last = match meta::text(object, "/status/lastScheduleTime") {
                "" => "<none>".to_owned(),
                time => age_of(time, now),
            };
            vec![
                name,
                text(object, "/spec/schedule"),
                or(object, "/spec/timeZone", "<none>"),
                object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default().into(),
                count(object, "/status/active").into(),
                last.into(),
                old,
                containers(object, at, "/name"),
                containers(object, at, "/image"),
                "<none>".into(),
            ]
        }
        ("policy", "poddisruptionbudgets") => vec![
            name,
            or(object, "/spec/minAvailable", "N/A"),
            or(object, "/spec/maxUnavailable", "N/A"),
            int(object, "/status/disruptionsAllowed"),
            old,
        ],
        ("coordination.k8s.io", "leases") => vec![name, text(object, "/spec/holderIdentity"), old],
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
                old,
            ]
        }
        ("scheduling.k8s.io", "priorityclasses") => vec![
            name,
            int(object, "/value"),
            object.pointer("/globalDefault").and_then(Value::as_bool).unwrap_or_default().into(),
            old,
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
            vec![name, text(object, "/addressType"), ports, addresses, old]
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
            vec![name, or(object, "/spec/ingressClassName", "<none>"), hosts, address.into(), ports.into(), old]
        }
        ("networking.k8s.io", "networkpolicies") => vec![name, labels(object, "/spec/podSelector/matchLabels"), old],
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
            vec![name, role.into(), old, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            vec![name, count(object, "/webhooks").into(), old]
        }
        _ => vec![name, old],
    }
}

fn joined_or(items: impl Iterator<Item = String>, missing: &str) -> Value {
    let items: Vec<String> = items.collect();
    let shown = match items.len() {
        0 => missing.to_owned(),
        1..=3 => items.join(","),
        more => format!("{} + {} more...", items[..3].join(","), more - 3),
    };
    shown.into()
}

fn service(object: &Value, name: Value, old: Value) -> Cells {
    let external = match meta::text(object, "/spec/type") {
        "ExternalName" => meta::text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let given = joined(
                list(object, "/status/loadBalancer/ingress").map(|i| match meta::text(i, "/ip") {
                    "" => meta::text(i, "/hostname"),
                    ip => ip,
                }),
                ",",
            );
            if given.is_empty() { "<pending>".into() } else { given }
        }
        _ => {
            let given = joined(list(object, "/spec/externalIPs").filter_map(Value::as_str), ",");
            if given.is_empty() { "<none>".into() } else { given }
        }
    };
    let ports: Vec<String> = list(object, "/spec/ports")
        .map(|p| {
            let port = p.get("port").and_then(Value::as_i64).unwrap_or_default();
            let protocol = meta::text(p, "/protocol");
            match p.get("nodePort").and_then(Value::as_i64).unwrap_or_default() {
                0 => format!("{port}/{protocol}"),
                node => format!("{port}:{node}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") };
    vec![
        name,
        text(object, "/spec/type"),
        or(object, "/spec/clusterIP", "<none>"),
        external.into(),
        ports.into(),
        old,
        labels(object, "/spec/selector"),
    ]
}

fn node(object: &Value, name: Value, old: Value) -> Cells {
    let mut status = list(object, "/status/conditions")
        .find(|c| c.get("type").is_some_and(|t| t == "Ready"))
        .map_or("Unknown", |c| match meta::text(c, "/status") {
            "True" => "Ready",
            _ => "NotReady",
        })
        .to_owned();
    if object.pointer("/spec/unschedulable").is_some_and(|u| u == true) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = meta::labels(object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str().filter(|v| !v.is_empty()),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    let address = |kind: &str| -> Value {
        list(object, "/status/addresses")
            .find(|a| a.get("type").is_some_and(|t| t == kind))
            .map_or("<none>".into(), |a| text(a, "/address"))
    };
    vec![
        name,
        status.into(),
        if roles.is_empty() { "<none>".into() } else { roles.join(",").into() },
        old,
        text(object, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        or(object, "/status/nodeInfo/osImage", "<unknown>"),
        or(object, "/status/nodeInfo/kernelVersion", "<unknown>"),
        or(object, "/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

/// An event under either group's field names: object, source, message, first, last, count, reporter.
fn event(object: &Value, now: Timestamp, fields: [&str; 7]) -> Cells {
    let [subject, source, message, first, last, number, reporter] = fields;
    let at = |field: &str| meta::text(object, &format!("/{field}")).to_owned();
    let since = |time: &str| if time.is_empty() { "<unknown>".to_owned() } else { age_of(time, now) };
    let event_time = at("eventTime");
    let first_time = if at(first).is_empty() { event_time.clone() } else { at(first) };
    let last_time = match meta::text(object, "/series/lastObservedTime") {
        "" if at(last).is_empty() => first_time.clone(),
        "" => at(last),
        observed => observed.to_owned(),
    };
    let who = object.get(subject).cloned().unwrap_or_default();
    let target = format!("{}/{}", meta::text(&who, "/kind").to_lowercase(), meta::text(&who, "/name"));
    let from = object.get(source).cloned().unwrap_or_default();
    let component = match meta::text(&from, "/component") {
        "" => at(reporter),
        given => given.to_owned(),
    };
    let source = match meta::text(&from, "/host") {
        "" => component,
        host => format!("{component}, {host}"),
    };
    let times = object
        .pointer("/series/count")
        .and_then(Value::as_i64)
        .or_else(|| object.get(number).and_then(Value::as_i64).filter(|c| *c > 0))
        .unwrap_or(1);
    vec![
        since(&last_time).into(),
        text(object, "/type"),
        text(object, "/reason"),
        target.into(),
        text(&who, "/fieldPath"),
        source.into(),
        at(message).trim().into(),
        since(&first_time).into(),
        times.into(),
        meta::name(object).into(),
    ]
}

fn endpoints(object: &Value) -> Value {
    let mut out = Vec::new();
    for subset in list(object, "/subsets") {
        let ports: Vec<Option<i64>> = match count(subset, "/ports") {
            0 => vec![None],
            _ => list(subset, "/ports").map(|p| p.get("port").and_then(Value::as_i64)).collect(),
        };
        for port in ports {
            for address in list(subset, "/addresses") {
                let ip = meta::text(address, "/ip");
                out.push(port.map_or(ip.to_owned(), |p| format!("{ip}:{p}")));
            }
        }
    }
    joined_or(out.into_iter(), "<none>")
}

fn quota(object: &Value, name: Value, old: Value) -> Cells {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (resource, hard) in object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten() {
        let used = object.pointer("/status/used").and_then(|u| u.get(resource)).and_then(Value::as_str).unwrap_or("0");
        let shown = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
        if resource.starts_with("limits") { limits.push(shown) } else { requests.push(shown) }
    }
    vec![name, requests.join(", ").into(), limits.join(", ").into(), old]
}

fn job(object: &Value, name: Value, old: Value, now: Timestamp) -> Cells {
    let at = "/spec/template/spec/containers";
    let done = int(object, "/status/succeeded");
    let completions = match (
        object.pointer("/spec/completions").and_then(Value::as_i64),
        object.pointer("/spec/parallelism").and_then(Value::as_i64),
    ) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    };
    let has = |kind: &str| {
        list(object, "/status/conditions")
            .any(|c| c.get("type").is_some_and(|t| t == kind) && c.get("status").is_some_and(|s| s == "True"))
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if meta::deleting(object) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let duration = match meta::text(object, "/status/startTime").parse::<Timestamp>() {
        Err(_) => String::new(),
        Ok(start) => {
            let end = meta::text(object, "/status/completionTime").parse::<Timestamp>().unwrap_or(now);
            short_duration(end.duration_since(start).as_secs())
        }
    };
    vec![
        name,
        status.into(),
        completions.into(),
        duration.into(),
        old,
        containers(object, at, "/name"),
        containers(object, at, "/image"),
        labels(object, "/spec/selector/matchLabels"),
    ]
}
