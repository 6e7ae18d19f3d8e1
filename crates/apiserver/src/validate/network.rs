//! Endpoints, slices, ingresses and network policies.

use std::net::IpAddr;

use serde_json::Value;

use super::{PORT_RANGE, each, one_of, text};
use crate::names;
use crate::status::Cause;

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
pub(super) const NO_BLOCK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn is_block(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

pub(super) fn cluster_address(spec: &Value, causes: &mut Vec<Cause>) -> bool {
    let given = text(spec, "clusterIP");
    if given.is_empty() || given == "None" || given.parse::<IpAddr>().is_ok() {
        return true;
    }
    causes.push(Cause::invalid("spec.clusterIPs[0]", &given.into(), NO_ADDRESS));
    false
}

pub(super) fn endpoints(object: &Value, causes: &mut Vec<Cause>) {
    for (index, subset) in each(object, "subsets").into_iter().enumerate() {
        let at = format!("subsets[{index}]");
        for field in ["addresses", "notReadyAddresses"] {
            for (index, address) in each(subset, field).into_iter().enumerate() {
                let ip = text(address, "ip");
                if ip.parse::<IpAddr>().is_err() {
                    let field = format!("{at}.{field}[{index}].ip");
                    causes.push(Cause::invalid(field.clone(), &ip.into(), NO_ADDRESS));
                    causes.push(Cause::invalid(field, &ip.into(), "must be a valid IP address"));
                }
            }
        }
        for (index, port) in each(subset, "ports").into_iter().enumerate() {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            if !(1..=65535).contains(&number) {
                causes.push(Cause::invalid(format!("{at}.ports[{index}].port"), &number.into(), PORT_RANGE));
            }
            one_of(port, "protocol", &format!("{at}.ports[{index}]"), &PROTOCOLS, causes);
        }
    }
}

pub(super) fn slice(object: &Value, causes: &mut Vec<Cause>) {
    let kind = text(object, "addressType");
    if kind.is_empty() {
        causes.push(Cause::required("addressType", ""));
        return;
    }
    const KINDS: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
    if !KINDS.contains(&kind) {
        causes.push(Cause::unsupported("addressType", &kind.into(), &KINDS));
    }
    for (index, port) in each(object, "ports").into_iter().enumerate() {
        one_of(port, "protocol", &format!("ports[{index}]"), &PROTOCOLS, causes);
    }
    for (index, endpoint) in each(object, "endpoints").into_iter().enumerate() {
        let addresses = endpoint.get("addresses").and_then(Value::as_array).cloned().unwrap_or_default();
        if addresses.is_empty() {
            causes.push(Cause::required(format!("endpoints[{index}].addresses"), "must contain at least 1 address"));
        }
        for (place, address) in addresses.iter().enumerate() {
            let shown = address.as_str().unwrap_or_default();
            let good = match kind {
                "IPv4" => shown.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => shown.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => true,
            };
            if !good {
                causes.push(Cause::invalid(format!("endpoints[{index}].addresses[{place}]"), address, NO_ADDRESS));
            }
        }
    }
}

pub(super) fn ingress(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let default = spec.get("defaultBackend").filter(|b| b.is_object());
    let rules = each(spec, "rules");
    if default.is_none() && rules.is_empty() {
        causes.push(Cause::invalid("spec", &Value::Null, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(backend) = default {
        ingress_backend(backend, "spec.defaultBackend", causes);
    }
    for (index, rule) in rules.into_iter().enumerate() {
        let at = format!("spec.rules[{index}]");
        let host = text(rule, "host");
        if let Some(why) =
            names::subdomain_complaint(host.strip_prefix("*.").unwrap_or(host)).filter(|_| !host.is_empty())
        {
            causes.push(Cause::invalid(format!("{at}.host"), &host.into(), &why));
        }
        for (index, path) in each(rule.get("http").unwrap_or(&Value::Null), "paths").into_iter().enumerate() {
            let at = format!("{at}.http.paths[{index}]");
            let (kind, given) = (text(path, "pathType"), text(path, "path"));
            match kind {
                "" => causes.push(Cause::required(format!("{at}.pathType"), "pathType must be specified")),
                "Exact" | "Prefix" if !given.starts_with('/') => {
                    causes.push(Cause::invalid(format!("{at}.path"), &given.into(), "must be an absolute path"));
                }
                _ => one_of(path, "pathType", &at, &["Exact", "ImplementationSpecific", "Prefix"], causes),
            }
            ingress_backend(path.get("backend").unwrap_or(&Value::Null), &format!("{at}.backend"), causes);
        }
    }
}

fn ingress_backend(backend: &Value, at: &str, causes: &mut Vec<Cause>) {
    let Some(service) = backend.get("service").filter(|s| s.is_object()) else {
        if !backend.get("resource").is_some_and(Value::is_object) {
            causes.push(Cause::required(at, "resource or service backend is required"));
        }
        return;
    };
    if text(service, "name").is_empty() {
        causes.push(Cause::required(format!("{at}.service.name"), ""));
    }
    let port = service.get("port").unwrap_or(&Value::Null);
    let number = port.get("number").and_then(Value::as_i64).unwrap_or_default();
    match (text(port, "name").is_empty(), number) {
        (true, 0) => causes.push(Cause::required(at, "port name or number is required")),
        (_, 0) => {}
        (false, _) => {
            causes.push(Cause::invalid(format!("{at}.service"), service, "cannot set both port name & port number"));
        }
        (true, number) if !(1..=65535).contains(&number) => {
            causes.push(Cause::invalid(format!("{at}.service.port.number"), &number.into(), PORT_RANGE));
        }
        _ => {}
    }
}

pub(super) fn policy(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in each(spec, direction).into_iter().enumerate() {
            let at = format!("spec.{direction}[{index}]");
            for (index, port) in each(rule, "ports").into_iter().enumerate() {
                let at = format!("{at}.ports[{index}]");
                one_of(port, "protocol", &at, &PROTOCOLS, causes);
                match port.get("port") {
                    Some(Value::Number(n)) if !n.as_i64().is_some_and(|n| (1..=65535).contains(&n)) => {
                        causes.push(Cause::invalid(format!("{at}.port"), &Value::Number(n.clone()), PORT_RANGE));
                    }
                    Some(Value::String(name)) => {
                        if let Some(why) = names::port_name_complaint(name) {
                            causes.push(Cause::invalid(format!("{at}.port"), &name.as_str().into(), &why));
                        }
                    }
                    _ => {}
                }
            }
            for (index, peer) in each(rule, peers).into_iter().enumerate() {
                let at = format!("{at}.{peers}[{index}]");
                let Some(block) = peer.get("ipBlock").filter(|b| b.is_object()) else {
                    if !["podSelector", "namespaceSelector"].iter().any(|s| peer.get(*s).is_some()) {
                        causes.push(Cause::required(at, "must specify a peer"));
                    }
                    continue;
                };
                let cidr = text(block, "cidr");
                if cidr.is_empty() {
                    causes.push(Cause::required(format!("{at}.ipBlock.cidr"), ""));
                } else if !is_block(cidr) {
                    causes.push(Cause::invalid(format!("{at}.ipBlock.cidr"), &cidr.into(), NO_BLOCK));
                }
            }
        }
    }
    for (index, kind) in spec.get("policyTypes").and_then(Value::as_array).into_iter().flatten().enumerate() {
        if !kind.as_str().is_some_and(|k| ["Ingress", "Egress"].contains(&k)) {
            causes.push(Cause::unsupported(format!("spec.policyTypes[{index}]"), kind, &["Ingress", "Egress"]));
        }
    }
}
