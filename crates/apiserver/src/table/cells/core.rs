//! Cells of the core group.

use jiff::Timestamp;
use serde_json::Value;

use super::{Cells, Row, access_modes, count, joined, joined_or, labels, list, or, text};
use crate::meta;
use crate::table::age_of;

pub(super) fn cells(row: Row<'_>) -> Cells {
    let Row { resource, object, name, age, now } = row;
    match resource {
        "pods" => crate::table::pod::cells(object, now),
        "services" => service(object, name, age),
        "configmaps" => vec![name, (count(object, "/data") + count(object, "/binaryData")).into(), age],
        "secrets" => vec![name, text(object, "/type"), count(object, "/data").into(), age],
        "nodes" => node(object, name, age),
        "namespaces" => vec![name, text(object, "/status/phase"), age],
        "events" => event(
            object,
            now,
            ["involvedObject", "source", "message", "firstTimestamp", "lastTimestamp", "count", "reportingComponent"],
        ),
        "persistentvolumeclaims" => {
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
                age,
                or(object, "/spec/volumeMode", "<unset>"),
            ]
        }
        "persistentvolumes" => {
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
                age,
                or(object, "/spec/volumeMode", "<unset>"),
            ]
        }
        "endpoints" => vec![name, endpoints(object), age],
        "resourcequotas" => quota(object, name, age),
        _ => vec![name, age],
    }
}

/// As [`cells`], for an event with the field names of `events.k8s.io`.
pub(super) fn new_event(object: &Value, now: Timestamp) -> Cells {
    let fields = [
        "regarding",
        "deprecatedSource",
        "note",
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
        "deprecatedCount",
        "reportingController",
    ];
    event(object, now, fields)
}

fn service(object: &Value, name: Value, age: Value) -> Cells {
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
        age,
        labels(object, "/spec/selector"),
    ]
}

fn node(object: &Value, name: Value, age: Value) -> Cells {
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
        age,
        text(object, "/status/nodeInfo/kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        or(object, "/status/nodeInfo/osImage", "<unknown>"),
        or(object, "/status/nodeInfo/kernelVersion", "<unknown>"),
        or(object, "/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

/// An event with either group's field names: object, source, message, first, last, count, reporter.
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

fn quota(object: &Value, name: Value, age: Value) -> Cells {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (resource, hard) in object.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten() {
        let used = object.pointer("/status/used").and_then(|u| u.get(resource)).and_then(Value::as_str).unwrap_or("0");
        let shown = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
        if resource.starts_with("limits") { limits.push(shown) } else { requests.push(shown) }
    }
    vec![name, requests.join(", ").into(), limits.join(", ").into(), age]
}
