//! What a pod requests from a node.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use crate::resource_list::{self, ResourceList};

/// The resource requests of a pod, as Kubernetes computes them: containers and sidecars together, but at least what any init
/// container needs while it runs with the sidecars started before it.
pub(crate) fn requests(spec: &PodSpec) -> ResourceList {
    let of = |c: &Container| resource_list::amounts(c.resources.as_ref().and_then(|r| r.requests.as_ref()));
    let mut running = ResourceList::new();
    for container in &spec.containers {
        resource_list::add(&mut running, &of(container));
    }
    let mut sidecars = ResourceList::new();
    let mut peak = ResourceList::new();
    for container in spec.init_containers.iter().flatten() {
        let asked = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            resource_list::add(&mut running, &asked);
            resource_list::add(&mut sidecars, &asked);
            resource_list::raise(&mut peak, &sidecars);
        } else {
            let mut here = sidecars.clone();
            resource_list::add(&mut here, &asked);
            resource_list::raise(&mut peak, &here);
        }
    }
    resource_list::raise(&mut running, &peak);
    // Pod-level requests override those of the containers.
    if let Some(whole) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        running.extend(resource_list::amounts(Some(whole)));
    }
    resource_list::add(&mut running, &resource_list::amounts(spec.overhead.as_ref()));
    running.retain(|_, amount| *amount != 0);
    running
}

/// Host ports as (protocol, address, port).
pub(crate) fn host_ports(spec: &PodSpec) -> Vec<(String, String, i32)> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            let protocol = p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            let address = p.host_ip.clone().filter(|a| !a.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((protocol, address, port))
        })
        .collect()
}

/// Whether two host ports conflict.
pub(crate) fn ports_clash(a: &(String, String, i32), b: &(String, String, i32)) -> bool {
    a.2 == b.2 && a.0 == b.0 && (a.1 == b.1 || a.1 == "0.0.0.0" || b.1 == "0.0.0.0")
}

/// Whether a pod has terminated and holds no resources.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cpu(spec: serde_json::Value) -> i128 {
        requests(&serde_json::from_value(spec).unwrap()).get("cpu").copied().unwrap_or(0)
    }

    fn container(cpu: &str) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn containers_add_up_and_init_containers_set_a_floor() {
        assert_eq!(cpu(json!({"containers": [container("1"), container("500m")]})), 1500);
        assert_eq!(
            cpu(json!({"containers": [container("1")], "initContainers": [container("3"), container("2")]})),
            3000
        );
    }

    #[test]
    fn sidecars_run_beside_everything_that_starts_after_them() {
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        assert_eq!(cpu(json!({"containers": [container("1")], "initContainers": [sidecar, container("3")]})), 4000);
    }

    #[test]
    fn requests_of_the_whole_pod_and_overhead_count() {
        let spec = json!({"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m"}});
        assert_eq!(cpu(spec), 2250);
    }

    #[test]
    fn host_ports_clash_by_protocol_and_address() {
        let port = |protocol: &str, address: &str| (protocol.to_owned(), address.to_owned(), 80);
        assert!(ports_clash(&port("TCP", "0.0.0.0"), &port("TCP", "127.0.0.1")));
        assert!(!ports_clash(&port("TCP", "127.0.0.2"), &port("TCP", "127.0.0.1")));
        assert!(!ports_clash(&port("UDP", "0.0.0.0"), &port("TCP", "0.0.0.0")));
    }
}
