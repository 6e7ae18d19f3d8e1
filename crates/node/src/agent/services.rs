//! Services with a cluster IP: one small forwarder per port, to the pods the Service selects.
//!
//! Does what kube-proxy does for a ClusterIP, on a loopback address: maps Service ports to target ports, balances connections
//! round-robin, and refuses them if no pod is ready. Headless Services have no address; their names resolve to pods. [`wanted`]
//! and [`backends`] are pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::{TcpListener, TcpStream};

use super::pod::AbortOnDrop;
use super::{Shared, lock};
use crate::address::for_service;
use crate::hosts::{Endpoint, ServiceAddresses};

type ServiceKey = (String, String);

/// How long to try one pod before the next.
const CONNECT: Duration = Duration::from_secs(3);

/// Whether a Service gets an address: it has a selector, uses TCP and is not headless.
fn is_routed(service: &Service) -> bool {
    let Some(spec) = service.spec.as_ref() else { return false };
    let selects = spec.selector.as_ref().is_some_and(|s| !s.is_empty());
    let headless = spec.cluster_ip.as_deref() == Some("None");
    let named = spec.type_.as_deref() == Some("ExternalName");
    selects && !headless && !named && spec.ports.iter().flatten().any(is_tcp)
}

fn is_tcp(port: &ServicePort) -> bool {
    port.protocol.as_deref().is_none_or(|p| p == "TCP")
}

/// The endpoints of one port of a Service.
fn backends(service: &Service, port: u16, endpoints: &[Endpoint]) -> Vec<(String, u16)> {
    let Some(spec) = service.spec.as_ref() else { return Vec::new() };
    let Some(entry) = spec.ports.iter().flatten().find(|p| is_tcp(p) && p.port == i32::from(port)) else {
        return Vec::new();
    };
    let unready = spec.publish_not_ready_addresses == Some(true);
    let chosen = endpoints.iter().filter(|e| (e.ready || unready) && e.is_chosen_by(service));
    let target = |e: &Endpoint| match &entry.target_port {
        None => Some(port),
        Some(IntOrString::Int(0)) => Some(port),
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
        Some(IntOrString::String(name)) => e.ports.get(name).copied(),
    };
    chosen.filter_map(|e| Some((e.address.clone(), target(e)?))).collect()
}

/// The ports to listen on, by Service.
fn wanted(services: &[Service], endpoints: &[Endpoint]) -> BTreeMap<ServiceKey, Vec<u16>> {
    let mut all = BTreeMap::new();
    for service in services.iter().filter(|s| is_routed(s)) {
        let ports = service.spec.iter().flat_map(|s| s.ports.iter().flatten()).filter(|p| is_tcp(p));
        let ports = ports.filter_map(|p| u16::try_from(p.port).ok());
        let live = ports.filter(|p| !backends(service, *p, endpoints).is_empty()).collect();
        all.insert(key_of(service), live);
    }
    all
}

fn key_of(service: &Service) -> ServiceKey {
    (service.metadata.namespace.clone().unwrap_or_default(), service.metadata.name.clone().unwrap_or_default())
}

/// Assigns an address to every Service that needs one. Existing addresses are kept.
fn assign(block: u8, known: &ServiceAddresses, wanted: &BTreeMap<ServiceKey, Vec<u16>>) -> ServiceAddresses {
    let mut all: ServiceAddresses =
        known.iter().filter(|(k, _)| wanted.contains_key(*k)).map(|(k, a)| (k.clone(), *a)).collect();
    for key in wanted.keys() {
        if !all.contains_key(key)
            && let Some(address) =
                for_service(block, &format!("{}/{}", key.0, key.1), |a| all.values().any(|b| *b == a))
        {
            all.insert(key.clone(), address);
        }
    }
    all
}

/// Runs a forwarder for every port of every Service.
pub(super) async fn route(shared: Arc<Shared>) {
    let file = shared.options.data_dir.join("services.json");
    let mut addresses = read(&file);
    let mut open: BTreeMap<(ServiceKey, u16), AbortOnDrop> = BTreeMap::new();
    let mut refused: BTreeMap<(ServiceKey, u16), String> = BTreeMap::new();
    let mut changed = shared.names.subscribe();
    loop {
        changed.borrow_and_update();
        let (services, endpoints, _) = shared.names.snapshot();
        let wanted = wanted(&services, &endpoints);
        let assigned = assign(shared.addresses.block(), &addresses, &wanted);
        if assigned != addresses {
            addresses = assigned;
            write(&file, &addresses);
        }
        let is_wanted = |(key, port): &(ServiceKey, u16)| wanted.get(key).is_some_and(|ports| ports.contains(port));
        open.retain(|listener, _| is_wanted(listener));
        refused.retain(|listener, _| is_wanted(listener));
        let mut listeners: Vec<(ServiceKey, u16)> = Vec::new();
        for (key, ports) in &wanted {
            listeners.extend(ports.iter().map(|port| (key.clone(), *port)));
        }
        for listener in listeners {
            let (key, port) = (&listener.0, listener.1);
            let Some(address) = addresses.get(key) else { continue };
            if open.contains_key(&listener) {
                continue;
            }
            match TcpListener::bind((*address, port)).await {
                Ok(socket) => {
                    refused.remove(&listener);
                    let task = tokio::spawn(serve(socket, Arc::clone(&shared), key.clone(), port));
                    open.insert(listener, AbortOnDrop(task));
                }
                Err(error) => {
                    let why = error.to_string();
                    if refused.get(&listener) != Some(&why) {
                        tracing::warn!(
                            "port {port} of service {}/{} cannot be bound on {address}: {why}; its name resolves to its pods instead",
                            key.0,
                            key.1
                        );
                    }
                    refused.insert(listener, why);
                }
            }
        }
        // If a port cannot be bound (below 1024, for an ordinary user), the Service name resolves to its pods instead.
        let usable =
            addresses.iter().filter(|(key, _)| !refused.keys().any(|(k, _)| k == *key)).map(|(k, a)| (k.clone(), *a));
        shared.names.set_addresses(usable.collect());
        if changed.changed().await.is_err() {
            return;
        }
    }
}

async fn serve(socket: TcpListener, shared: Arc<Shared>, key: ServiceKey, port: u16) {
    let turn = AtomicUsize::new(0);
    loop {
        let Ok((mut from, _)) = socket.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let service = lock(&shared.names.services).get(&key).cloned();
        let endpoints: Vec<Endpoint> = lock(&shared.names.endpoints).values().cloned().collect();
        let mut targets = service.map(|s| backends(&s, port, &endpoints)).unwrap_or_default();
        if !targets.is_empty() {
            let first = turn.fetch_add(1, Ordering::Relaxed) % targets.len();
            targets.rotate_left(first);
        }
        tokio::spawn(async move {
            for (host, port) in targets {
                let Ok(Ok(mut to)) = tokio::time::timeout(CONNECT, TcpStream::connect((host.as_str(), port))).await
                else {
                    continue;
                };
                let _ = from.set_nodelay(true);
                let _ = to.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                return;
            }
        });
    }
}

/// Addresses assigned by an earlier agent: pods may have them in environment variables.
fn read(file: &Path) -> ServiceAddresses {
    let text = std::fs::read(file).unwrap_or_default();
    let all: BTreeMap<String, Ipv4Addr> = serde_json::from_slice(&text).unwrap_or_default();
    let split = |name: &str| name.split_once('/').map(|(n, s)| (n.to_owned(), s.to_owned()));
    all.into_iter().filter_map(|(name, address)| Some((split(&name)?, address))).collect()
}

fn write(file: &Path, addresses: &ServiceAddresses) {
    let all: BTreeMap<String, Ipv4Addr> = addresses.iter().map(|((n, s), a)| (format!("{n}/{s}"), *a)).collect();
    let written = serde_json::to_vec(&all).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|text| crate::shim_protocol::write_atomically(file, &text)) {
        tracing::warn!(%error, "could not save the Service addresses");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, spec: serde_json::Value) -> Service {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec}))
            .expect("a service")
    }

    fn endpoint(address: &str, ready: bool) -> Endpoint {
        Endpoint {
            namespace: "n".to_owned(),
            address: address.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "x".to_owned())]),
            hostname: "h".to_owned(),
            subdomain: None,
            ready,
            ports: BTreeMap::from([("ui".to_owned(), 4040)]),
        }
    }

    #[test]
    fn a_port_leads_to_the_target_port_of_ready_pods() {
        let spec = serde_json::json!({"selector": {"app": "x"}, "ports": [
            {"port": 80, "targetPort": "ui"}, {"port": 81, "targetPort": 9000}, {"port": 82}, {"port": 83, "targetPort": "none"}]});
        let front = service("front", spec);
        let pods = [endpoint("127.1.1.1", true), endpoint("127.1.1.2", false)];
        let one = |port| vec![("127.1.1.1".to_owned(), port)];
        assert_eq!(backends(&front, 80, &pods), one(4040));
        assert_eq!(backends(&front, 81, &pods), one(9000));
        assert_eq!(backends(&front, 82, &pods), one(82));
        assert_eq!(backends(&front, 83, &pods), [], "no pod has a port of that name");
        assert_eq!(backends(&front, 84, &pods), []);
        let wanted = wanted(&[front], &pods);
        assert_eq!(wanted.values().next(), Some(&vec![80, 81, 82]), "nobody listens where nobody answers");
    }

    #[test]
    fn headless_services_have_no_address_and_others_keep_theirs() {
        let headless =
            service("h", serde_json::json!({"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 1}]}));
        let bare = service("b", serde_json::json!({"ports": [{"port": 1}]}));
        let plain = service("p", serde_json::json!({"selector": {"app": "x"}, "ports": [{"port": 1}]}));
        let wanted = wanted(&[headless, bare, plain], &[]);
        assert_eq!(wanted.keys().map(|k| k.1.as_str()).collect::<Vec<_>>(), ["p"]);
        let first = assign(20, &ServiceAddresses::new(), &wanted);
        assert_eq!(assign(20, &first, &wanted), first);
        assert_eq!(assign(20, &first, &BTreeMap::new()), ServiceAddresses::new(), "given back");
    }
}
