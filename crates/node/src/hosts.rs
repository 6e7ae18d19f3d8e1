//! A pod's hosts file: resolves the names of Services, pods and the API server. Pure.
//!
//! A real API server rejects loopback addresses in EndpointSlices, so cluster DNS does not know our pods, and the agent evaluates
//! Service selectors itself. The file is bind-mounted into containers, so it must be rewritten in place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Pod, Service};

/// A pod that Services can select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) namespace: String,
    pub(crate) address: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) hostname: String,
    pub(crate) subdomain: Option<String>,
    pub(crate) ready: bool,
    /// Its ports by name, for named target ports.
    pub(crate) ports: BTreeMap<String, u16>,
}

impl Endpoint {
    /// A pod at an address.
    pub(crate) fn of(pod: &Pod, address: String, ready: bool) -> Self {
        let all = pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        let ports = all.flat_map(|c| c.ports.iter().flatten());
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            address,
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            hostname: hostname(pod),
            subdomain: pod.spec.as_ref().and_then(|s| s.subdomain.clone()),
            ready,
            ports: ports.filter_map(|p| Some((p.name.clone()?, u16::try_from(p.container_port).ok()?))).collect(),
        }
    }

    /// Whether a Service selects this pod.
    pub(crate) fn is_chosen_by(&self, service: &Service) -> bool {
        let selector = service.spec.as_ref().and_then(|s| s.selector.as_ref()).filter(|s| !s.is_empty());
        service.metadata.namespace.as_ref() == Some(&self.namespace)
            && selector.is_some_and(|s| s.iter().all(|(k, v)| self.labels.get(k) == Some(v)))
    }
}

/// Service addresses by namespace and name.
pub(crate) type ServiceAddresses = BTreeMap<(String, String), Ipv4Addr>;

/// A pod's host name: its `hostname` or name, truncated to the kernel's limit.
pub(crate) fn hostname(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let wanted = spec
        .and_then(|s| s.hostname.clone())
        .filter(|h| !h.is_empty())
        .or_else(|| pod.metadata.name.clone())
        .unwrap_or_default();
    let mut name: String = wanted.chars().take(63).collect();
    while name.ends_with(['-', '.']) {
        name.pop();
    }
    name
}

/// The contents of a pod's hosts file.
pub(crate) fn file(
    pod: &Pod,
    address: &str,
    api_server: &str,
    services: &[Service],
    endpoints: &[Endpoint],
    addresses: &ServiceAddresses,
) -> String {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let mut out = String::from(
        "# Written by the Firesteel node agent.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    );
    let _ = writeln!(
        out,
        "{api_server}\tkubernetes.default.svc kubernetes.default.svc.cluster.local kubernetes.default kubernetes"
    );
    let hostname = hostname(pod);
    match spec.and_then(|s| s.subdomain.clone()).filter(|s| !s.is_empty()) {
        Some(subdomain) => {
            let _ = writeln!(out, "{address}\t{hostname}.{subdomain}.{namespace}.svc.cluster.local {hostname}");
        }
        None => {
            let _ = writeln!(out, "{address}\t{hostname}");
        }
    }
    for alias in spec.and_then(|s| s.host_aliases.clone()).into_iter().flatten() {
        let _ = writeln!(out, "{}\t{}", alias.ip, alias.hostnames.unwrap_or_default().join(" "));
    }
    for service in services {
        service_lines(&mut out, service, &namespace, endpoints, addresses);
    }
    out
}

/// A Service with an address resolves to it; others resolve to their pods.
fn service_lines(
    out: &mut String,
    service: &Service,
    own_namespace: &str,
    endpoints: &[Endpoint],
    addresses: &ServiceAddresses,
) {
    let (Some(name), Some(namespace)) = (&service.metadata.name, &service.metadata.namespace) else { return };
    if name == "kubernetes" && namespace == "default" {
        return;
    }
    let forms = |prefix: &str| {
        let mut names = vec![
            format!("{prefix}{name}.{namespace}.svc"),
            format!("{prefix}{name}.{namespace}.svc.cluster.local"),
            format!("{prefix}{name}.{namespace}"),
        ];
        if namespace == own_namespace {
            names.push(format!("{prefix}{name}"));
        }
        names.join(" ")
    };
    let own = addresses.get(&(namespace.clone(), name.clone()));
    if let Some(own) = own {
        let _ = writeln!(out, "{own}\t{}", forms(""));
    }
    for endpoint in endpoints.iter().filter(|e| e.is_chosen_by(service)) {
        let mut names = Vec::new();
        if own.is_none() {
            names.push(forms(""));
        }
        if endpoint.subdomain.as_ref() == Some(name) {
            names.push(forms(&format!("{}.", endpoint.hostname)));
        }
        if !names.is_empty() {
            let _ = writeln!(out, "{}\t{}", endpoint.address, names.join(" "));
        }
    }
}

/// A pod's Service environment variables, named as by a kubelet.
pub(crate) fn links(namespace: &str, services: &[Service], addresses: &ServiceAddresses) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for service in services {
        let Some(name) =
            service.metadata.name.clone().filter(|_| service.metadata.namespace.as_deref() == Some(namespace))
        else {
            continue;
        };
        let Some(address) = addresses.get(&(namespace.to_owned(), name.clone())) else { continue };
        let prefix = name.to_uppercase().replace('-', "_");
        let mut add = |name: String, value: String| all.push((name, value));
        add(format!("{prefix}_SERVICE_HOST"), address.to_string());
        for (index, port) in service.spec.iter().flat_map(|s| s.ports.iter().flatten()).enumerate() {
            let number = port.port;
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{address}:{number}", protocol.to_lowercase());
            if index == 0 {
                add(format!("{prefix}_SERVICE_PORT"), number.to_string());
                add(format!("{prefix}_PORT"), url.clone());
            }
            if let Some(name) = port.name.as_ref().filter(|n| !n.is_empty()) {
                add(format!("{prefix}_SERVICE_PORT_{}", name.to_uppercase().replace('-', "_")), number.to_string());
            }
            let own = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
            add(own.clone(), url);
            add(format!("{own}_PROTO"), protocol.to_lowercase());
            add(format!("{own}_PORT"), number.to_string());
            add(format!("{own}_ADDR"), address.to_string());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_name_leads_to_the_pods_it_selects() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "driver", "namespace": "jobs"},
            "spec": {"containers": [], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}]}
        }))
        .expect("a pod");
        let service: Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "driver-svc", "namespace": "jobs"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}}
        }))
        .expect("a service");
        let endpoint = |app: &str, namespace: &str, address: &str| Endpoint {
            namespace: namespace.to_owned(),
            address: address.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
            hostname: "h".to_owned(),
            subdomain: None,
            ready: true,
            ports: BTreeMap::new(),
        };
        let endpoints = [
            endpoint("x", "jobs", "127.1.1.1"),
            endpoint("y", "jobs", "127.1.1.2"),
            endpoint("x", "other", "127.1.1.3"),
        ];
        let plain: Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "front", "namespace": "other"}, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}
        }))
        .expect("a service");
        let addresses = BTreeMap::from([(("other".to_owned(), "front".to_owned()), Ipv4Addr::new(127, 1, 201, 1))]);
        let text = file(&pod, "127.1.1.1", "127.0.0.1", &[service, plain], &endpoints, &addresses);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_host_name_is_never_longer_than_the_kernel_takes() {
        let mut pod = Pod::default();
        pod.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(30)));
        assert_eq!(hostname(&pod), "a".repeat(62));
    }
}
