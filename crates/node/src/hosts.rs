//! The hosts file of a pod: how names of Services, pods and the API server resolve inside it. Pure.
//!
//! A real API server refuses loopback addresses in EndpointSlices, so no cluster DNS knows our pods: the agent matches the
//! selectors of Services itself. The file is bound into containers, so it must be rewritten in place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Pod, Service};

/// A pod that names may lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) namespace: String,
    pub(crate) address: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) hostname: String,
    pub(crate) subdomain: Option<String>,
}

/// The host name a pod sees: its `hostname` or its name, cut to what a host name may be.
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

/// The content of the file for one pod.
pub(crate) fn file(pod: &Pod, address: &str, api_server: &str, services: &[Service], endpoints: &[Endpoint]) -> String {
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
        service_lines(&mut out, service, &namespace, endpoints);
    }
    out
}

fn service_lines(out: &mut String, service: &Service, own_namespace: &str, endpoints: &[Endpoint]) {
    let (Some(name), Some(namespace)) = (&service.metadata.name, &service.metadata.namespace) else { return };
    if name == "kubernetes" && namespace == "default" {
        return;
    }
    let Some(selector) = service.spec.as_ref().and_then(|s| s.selector.as_ref()).filter(|s| !s.is_empty()) else {
        return;
    };
    let chosen = endpoints
        .iter()
        .filter(|e| &e.namespace == namespace && selector.iter().all(|(k, v)| e.labels.get(k) == Some(v)));
    for endpoint in chosen {
        let mut names = vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
            format!("{name}.{namespace}"),
        ];
        if namespace == own_namespace {
            names.push(name.clone());
        }
        if endpoint.subdomain.as_ref() == Some(name) {
            let host = &endpoint.hostname;
            names.extend([
                format!("{host}.{name}.{namespace}.svc"),
                format!("{host}.{name}.{namespace}.svc.cluster.local"),
                format!("{host}.{name}"),
            ]);
        }
        let _ = writeln!(out, "{}\t{}", endpoint.address, names.join(" "));
    }
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
        };
        let endpoints = [
            endpoint("x", "jobs", "127.1.1.1"),
            endpoint("y", "jobs", "127.1.1.2"),
            endpoint("x", "other", "127.1.1.3"),
        ];
        let text = file(&pod, "127.1.1.1", "127.0.0.1", &[service], &endpoints);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_host_name_is_never_longer_than_the_kernel_takes() {
        let mut pod = Pod::default();
        pod.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(30)));
        assert_eq!(hostname(&pod), "a".repeat(62));
    }
}
