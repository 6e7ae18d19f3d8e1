//! Computes Endpoints and EndpointSlices from a Service and pods. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort as OldPort, EndpointSubset, Endpoints, ObjectReference, Pod, Service,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::controllers::scheduler::is_terminal;
use crate::controllers::{pod_control, revision};

/// The label that names the writer of an Endpoints object.
pub(crate) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] for this controller, as in the real one.
pub(crate) const MANAGER: &str = "endpoint-controller";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The maximum number of endpoints per slice.
const SLICE_SIZE: usize = 100;

/// Pods with the same ports.
#[derive(Debug, PartialEq)]
pub(crate) struct Group {
    ports: Vec<Port>,
    backends: Vec<Backend>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Port {
    name: Option<String>,
    port: i32,
    protocol: String,
    app_protocol: Option<String>,
}

#[derive(Debug, PartialEq)]
struct Backend {
    address: String,
    node: Option<String>,
    hostname: Option<String>,
    pod: ObjectReference,
    serving: bool,
    terminating: bool,
    /// Counts as ready regardless (`publishNotReadyAddresses`).
    forced: bool,
}

impl Backend {
    fn ready(&self) -> bool {
        self.forced || (self.serving && !self.terminating)
    }
}

/// The Service that a slice belongs to.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<String> {
    slice.labels().get(SERVICE_NAME).cloned()
}

pub(crate) fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let external = spec.and_then(|s| s.type_.as_deref()) == Some("ExternalName");
    !external && spec.and_then(|s| s.selector.as_ref()).is_some_and(|s| !s.is_empty())
}

/// Whether a service selects a pod.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|s| s.selector.as_ref());
    has_selector(service) && selector.into_iter().flatten().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Whether two versions of a pod are the same to every Service.
pub(crate) fn same_to_services(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels == new.metadata.labels
        && address(old) == address(new)
        && is_ready(old) == is_ready(new)
        && is_terminal(old) == is_terminal(new)
        && old.metadata.deletion_timestamp.is_some() == new.metadata.deletion_timestamp.is_some()
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref().filter(|ip| !ip.is_empty())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The pods behind a Service, grouped by ports. The order is stable.
pub(crate) fn group<'a>(service: &Service, pods: impl Iterator<Item = &'a Pod>) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<Port>, Vec<Backend>> = BTreeMap::new();
    let forced = service.spec.as_ref().and_then(|s| s.publish_not_ready_addresses).unwrap_or(false);
    for pod in pods.filter(|pod| selects(service, pod) && !is_terminal(pod)) {
        let Some(address) = address(pod) else { continue };
        let spec = pod.spec.as_ref();
        let subdomain = spec.and_then(|s| s.subdomain.as_deref()) == Some(&service.name_any());
        let backend = Backend {
            address: address.to_owned(),
            node: spec.and_then(|s| s.node_name.clone()),
            hostname: spec.and_then(|s| s.hostname.clone()).filter(|_| subdomain),
            pod: ObjectReference {
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                namespace: pod.namespace(),
                uid: pod.uid(),
                ..ObjectReference::default()
            },
            serving: is_ready(pod),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            forced,
        };
        groups.entry(ports(service, pod)).or_default().push(backend);
    }
    groups.into_iter().map(|(ports, backends)| Group { ports, backends }).collect()
}

/// The ports of a Service on one pod; named ports that the pod does not have are omitted.
fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let named = |name: &str, protocol: &str| {
        let containers = pod.spec.iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
        let found = containers
            .flat_map(|c| c.ports.iter().flatten())
            .find(|p| p.name.as_deref() == Some(name) && p.protocol.as_deref().unwrap_or("TCP") == protocol);
        found.map(|p| p.container_port)
    };
    let listed = service.spec.as_ref().and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let resolve = |p: &k8s_openapi::api::core::v1::ServicePort| {
        let protocol = p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let port = match &p.target_port {
            Some(IntOrString::Int(port)) if *port > 0 => *port,
            Some(IntOrString::String(name)) => named(name, &protocol)?,
            Some(IntOrString::Int(_)) | None => p.port,
        };
        Some(Port { name: p.name.clone(), port, protocol, app_protocol: p.app_protocol.clone() })
    };
    listed.iter().filter_map(resolve).collect()
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()) == Some("None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

pub(crate) fn endpoints(service: &Service, groups: &[Group]) -> Endpoints {
    let subset = |group: &Group| {
        let address = |b: &&Backend| EndpointAddress {
            ip: b.address.clone(),
            hostname: b.hostname.clone(),
            node_name: b.node.clone(),
            target_ref: Some(b.pod.clone()),
        };
        let some = |list: Vec<EndpointAddress>| (!list.is_empty()).then_some(list);
        // Endpoints have no terminating addresses, unless the Service publishes all of them.
        let shown = |b: &&Backend| b.forced || !b.terminating;
        let ready = some(group.backends.iter().filter(shown).filter(|b| b.ready()).map(|b| address(&b)).collect());
        let not = some(group.backends.iter().filter(shown).filter(|b| !b.ready()).map(|b| address(&b)).collect());
        let port = |p: &Port| OldPort {
            name: p.name.clone(),
            port: p.port,
            protocol: Some(p.protocol.clone()),
            app_protocol: p.app_protocol.clone(),
        };
        let ports: Vec<OldPort> = group.ports.iter().map(port).collect();
        (ready.is_some() || not.is_some()).then(|| EndpointSubset {
            addresses: ready,
            not_ready_addresses: not,
            ports: (!ports.is_empty()).then_some(ports),
        })
    };
    let subsets: Vec<EndpointSubset> = groups.iter().filter_map(subset).collect();
    let mut labels = labels(service);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    Endpoints {
        metadata: ObjectMeta {
            name: Some(service.name_any()),
            namespace: service.namespace(),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

/// The slices of a Service. If no pods match there is one empty slice, as in the real controller.
pub(crate) fn slices(service: &Service, groups: &[Group]) -> Vec<EndpointSlice> {
    let mut slices = Vec::new();
    for group in groups {
        for (index, chunk) in group.backends.chunks(SLICE_SIZE).enumerate() {
            slices.push(slice(service, &group.ports, chunk, index));
        }
    }
    if slices.is_empty() {
        slices.push(slice(service, &[], &[], 0));
    }
    slices
}

fn slice(service: &Service, ports: &[Port], backends: &[Backend], index: usize) -> EndpointSlice {
    let endpoint = |b: &Backend| Endpoint {
        addresses: vec![b.address.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(b.ready()),
            serving: Some(b.serving || b.forced),
            terminating: Some(b.terminating),
        }),
        hostname: b.hostname.clone(),
        node_name: b.node.clone(),
        target_ref: Some(b.pod.clone()),
        ..Endpoint::default()
    };
    let port = |p: &Port| EndpointPort {
        name: Some(p.name.clone().unwrap_or_default()),
        port: Some(p.port),
        protocol: Some(p.protocol.clone()),
        app_protocol: p.app_protocol.clone(),
    };
    let mut labels = labels(service);
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(SLICE_MANAGED_BY.to_owned(), "endpointslice-controller.k8s.io".to_owned());
    // The name is derived from the content, so that repeated writes produce one slice.
    let name = format!("{}-{}", service.name_any(), suffix(&(service.uid(), ports, index)));
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: service.namespace(),
            labels: Some(labels),
            owner_references: Some(vec![pod_control::controlled_by(service)]),
            ..ObjectMeta::default()
        },
        address_type: "IPv4".to_owned(),
        endpoints: backends.iter().map(endpoint).collect::<Vec<_>>().into(),
        ports: Some(ports.iter().map(port).collect()),
    }
}

/// Five characters that stand for a value.
fn suffix(of: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    revision::safe_encode(hasher.finish(), 5)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn pod(name: &str, ready: bool, ip: &str) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "labels": {"app": "a"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
        }))
        .unwrap()
    }

    fn plain() -> Service {
        service(json!({"selector": {"app": "a"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}))
    }

    #[test]
    fn ready_and_unready_pods_are_told_apart() {
        let (service, pods) = (plain(), [pod("a", true, "127.0.1.1"), pod("b", false, "127.0.1.2")]);
        let groups = group(&service, pods.iter());
        let subsets = endpoints(&service, &groups).subsets.unwrap();
        assert_eq!(subsets[0].addresses.as_ref().unwrap()[0].ip, "127.0.1.1");
        assert_eq!(subsets[0].not_ready_addresses.as_ref().unwrap()[0].ip, "127.0.1.2");
        assert_eq!(subsets[0].ports.as_ref().unwrap()[0].port, 8080, "a named port is the container's");
        let slices = slices(&service, &groups);
        assert_eq!(slices.len(), 1);
    }

    #[test]
    fn a_service_may_want_pods_that_are_not_ready() {
        let mut service = plain();
        service.spec.as_mut().unwrap().publish_not_ready_addresses = Some(true);
        let groups = group(&service, [pod("b", false, "127.0.1.2")].iter());
        assert!(endpoints(&service, &groups).subsets.unwrap()[0].addresses.is_some());
    }

    #[test]
    fn ended_pods_and_pods_without_address_are_left_out() {
        let mut done = pod("a", true, "127.0.1.1");
        done.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
        let groups = group(&plain(), [done, pod("b", true, "")].iter());
        assert_eq!(groups, []);
        assert_eq!(endpoints(&plain(), &groups).subsets, None);
        assert_eq!(slices(&plain(), &groups).len(), 1, "an empty slice stays");
    }

    #[test]
    fn many_pods_fill_several_slices_with_fixed_names() {
        let pods: Vec<Pod> = (0..250).map(|i| pod(&format!("p{i:03}"), true, &format!("127.0.2.{i}"))).collect();
        let groups = group(&plain(), pods.iter());
        let first = slices(&plain(), &groups);
        assert_eq!(first.len(), 3);
        let names: Vec<String> = first.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, slices(&plain(), &groups).iter().map(ResourceExt::name_any).collect::<Vec<_>>());
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn a_headless_service_names_its_pods() {
        let service = service(json!({"selector": {"app": "a"}, "clusterIP": "None", "ports": [{"port": 7078}]}));
        let mut member = pod("a", true, "127.0.1.1");
        let spec = member.spec.as_mut().unwrap();
        (spec.hostname, spec.subdomain) = (Some("a".to_owned()), Some("s".to_owned()));
        let slices = slices(&service, &group(&service, [member].iter()));
        assert_eq!(slices[0].endpoints.as_deref().unwrap()[0].hostname.as_deref(), Some("a"));
        assert!(slices[0].labels().contains_key(HEADLESS));
    }

    #[test]
    fn services_without_selector_are_not_ours() {
        assert!(!has_selector(&service(json!({"ports": [{"port": 80}]}))));
        assert!(!has_selector(&service(json!({"type": "ExternalName", "externalName": "x", "selector": {"a": "b"}}))));
    }
}
