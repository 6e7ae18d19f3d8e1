//! Allocates cluster IPs and node ports of Services; updates keep them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::meta;
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};

/// The range `10.96.0.0/16`; the first address is the API server's Service.
const BASE: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const SIZE: u32 = 1 << 16;
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// Where to continue searching for a free address. Addresses in use are read from the Services.
#[derive(Debug, Default)]
pub(crate) struct ServiceAllocators {
    next: u32,
}

fn services(state: &State) -> Vec<std::sync::Arc<crate::store::Stored>> {
    state
        .store
        .list("services", None, None, usize::MAX, None, |_| true)
        .map(|snapshot| snapshot.items.into_iter().map(|(_, stored)| stored).collect())
        .unwrap_or_default()
}

fn addresses_of(service: &Value) -> impl Iterator<Item = &str> {
    service.pointer("/spec/clusterIPs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Fields omitted in an update keep their values.
pub(crate) fn keep_addresses(old: &Value, next: &mut Value) {
    let headless_or_own = meta::text(next, "/spec/clusterIP").to_owned();
    let kind = meta::text(next, "/spec/type").to_owned();
    let old_kind = meta::text(old, "/spec/type");
    if kind != "ExternalName" && old_kind != "ExternalName" {
        let spec = meta::child(next, "spec");
        if headless_or_own.is_empty() {
            for field in ["clusterIP", "clusterIPs"] {
                if let Some(value) = old.pointer(&format!("/spec/{field}")) {
                    spec.insert(field.into(), value.clone());
                }
            }
        } else if !spec.contains_key("clusterIPs")
            && let Some(value) = old.pointer("/spec/clusterIPs")
        {
            spec.insert("clusterIPs".into(), value.clone());
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if !spec.contains_key(field)
                && let Some(value) = old.pointer(&format!("/spec/{field}"))
            {
                spec.insert(field.into(), value.clone());
            }
        }
    }
    // A Service that no longer uses node ports loses those it did not ask to keep.
    if matches!(kind.as_str(), "ClusterIP" | "ExternalName") && matches!(old_kind, "NodePort" | "LoadBalancer") {
        let before = old.pointer("/spec/ports").cloned().unwrap_or_default();
        let spec = meta::child(next, "spec");
        spec.remove("externalTrafficPolicy");
        if spec.get("ports") == Some(&before) {
            for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    port.remove("nodePort");
                }
            }
        }
    }
    // Node ports follow their port by name or number.
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") && matches!(old_kind, "NodePort" | "LoadBalancer") {
        let before = old.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
        for port in next.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() == 0
                && let Some(same) = before
                    .iter()
                    .find(|b| b.get("port") == port.get("port") && b.get("protocol") == port.get("protocol"))
                && let Some(number) = same.get("nodePort")
            {
                port["nodePort"] = number.clone();
            }
        }
    }
}

/// Allocates the addresses and ports that a Service's type requires.
pub(crate) fn allocate(state: &State, service: &mut Value, dry_run: bool) -> ApiResult<()> {
    let _ = dry_run;
    let mut addresses = state.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let own = (meta::namespace(service).to_owned(), meta::name(service).to_owned());
    let others: Vec<_> = services(state)
        .into_iter()
        .map(|stored| stored.value())
        .filter(|s| (meta::namespace(s), meta::name(s)) != (own.0.as_str(), own.1.as_str()))
        .collect();
    let kind = meta::text(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        let spec = meta::child(service, "spec");
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            spec.remove(field);
        }
        return Ok(());
    }
    let wanted = meta::text(service, "/spec/clusterIP").to_owned();
    let address = match wanted.as_str() {
        "None" => "None".to_owned(),
        "" => {
            let taken: BTreeSet<&str> = others.iter().flat_map(|s| addresses_of(s)).collect();
            free_address(&mut addresses, &taken)
                .ok_or_else(|| StatusError::internal("failed to allocate a serviceIP: range is full"))?
        }
        given => {
            check_address(service, given, &others)?;
            given.to_owned()
        }
    };
    let spec = meta::child(service, "spec");
    spec.insert("clusterIP".into(), address.clone().into());
    spec.insert("clusterIPs".into(), json!([address]));
    if !spec.contains_key("ipFamilies") {
        spec.insert("ipFamilies".into(), json!(["IPv4"]));
    }
    if !spec.contains_key("ipFamilyPolicy") {
        spec.insert("ipFamilyPolicy".into(), "SingleStack".into());
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        node_ports(service, &others)?;
    }
    Ok(())
}

fn free_address(addresses: &mut ServiceAllocators, taken: &BTreeSet<&str>) -> Option<String> {
    for _ in 0..SIZE {
        addresses.next = addresses.next % (SIZE - 2) + 1;
        // The first one belongs to default/kubernetes.
        if addresses.next == 1 {
            continue;
        }
        let candidate = Ipv4Addr::from(BASE + addresses.next).to_string();
        if !taken.contains(candidate.as_str()) {
            return Some(candidate);
        }
    }
    None
}

fn check_address(service: &Value, given: &str, others: &[std::sync::Arc<Value>]) -> ApiResult<()> {
    let refuse = |detail: &str| {
        Err(StatusError::invalid(
            "",
            "Service",
            meta::name(service),
            &[Cause::invalid("spec.clusterIPs", &json!([given]), detail)],
        ))
    };
    let Ok(address) = given.parse::<Ipv4Addr>() else {
        return refuse("failed to allocate IP: the provided IP is not valid");
    };
    let number = u32::from(address);
    if !(BASE..BASE + SIZE).contains(&number) {
        return refuse(&format!(
            "failed to allocate IP {given}: the provided network does not match the current range"
        ));
    }
    if others.iter().any(|s| addresses_of(s).any(|a| a == given)) {
        return refuse(&format!("failed to allocate IP {given}: provided IP is already allocated"));
    }
    Ok(())
}

fn node_ports(service: &mut Value, others: &[std::sync::Arc<Value>]) -> ApiResult<()> {
    let mut taken: BTreeSet<u64> = others
        .iter()
        .flat_map(|s| s.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten())
        .filter_map(|p| p.get("nodePort").and_then(Value::as_u64))
        .collect();
    let name = meta::name(service).to_owned();
    for (index, port) in
        service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let wanted = port.get("nodePort").and_then(Value::as_u64).unwrap_or_default();
        let number = if wanted != 0 {
            let field = format!("spec.ports[{index}].nodePort");
            if !NODE_PORTS.contains(&u16::try_from(wanted).unwrap_or_default()) {
                let cause = Cause::invalid(
                    field,
                    &wanted.into(),
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                );
                return Err(StatusError::invalid("", "Service", &name, &[cause]));
            }
            if taken.contains(&wanted) {
                let cause = Cause::invalid(field, &wanted.into(), "provided port is already allocated");
                return Err(StatusError::invalid("", "Service", &name, &[cause]));
            }
            wanted
        } else {
            NODE_PORTS
                .map(u64::from)
                .find(|p| !taken.contains(p))
                .ok_or_else(|| StatusError::internal("failed to allocate a nodePort: range is full"))?
        };
        taken.insert(number);
        port["nodePort"] = number.into();
    }
    Ok(())
}
