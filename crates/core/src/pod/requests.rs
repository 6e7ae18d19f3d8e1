//! What a pod requests of its node, as the scheduler counts it.

use std::collections::BTreeMap;

use firesteel_spark::value::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{PodPhase, phase};

/// CPU in cores and memory in GiB.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Requests {
    pub cores: f64,
    pub gib: f64,
}

impl Requests {
    /// The requests of a pod: the sum over its containers and sidecars, or the largest init container if that needs more,
    /// and the pod's overhead. Requests of the pod as a whole replace those of its containers.
    pub fn of(spec: &PodSpec) -> Self {
        let mut sidecars = Requests::default();
        let mut starting = Requests::default();
        for init in spec.init_containers.iter().flatten() {
            let own = Requests::of_container(init);
            if init.restart_policy.as_deref() == Some("Always") {
                sidecars = sidecars.plus(own);
                starting = starting.max(sidecars);
            } else {
                starting = starting.max(sidecars.plus(own));
            }
        }
        let running = spec.containers.iter().map(Requests::of_container).fold(sidecars, Requests::plus);
        let mut total = running.max(starting);
        let whole = spec.resources.as_ref().map(named).unwrap_or_default();
        if let Some(cpu) = whole.get("cpu") {
            total.cores = cores(cpu);
        }
        if let Some(memory) = whole.get("memory") {
            total.gib = gib(memory);
        }
        spec.overhead.as_ref().map_or(total, |overhead| total.plus(Requests::read(overhead)))
    }

    fn of_container(container: &Container) -> Self {
        container.resources.as_ref().map(|resources| Requests::read(&named(resources))).unwrap_or_default()
    }

    fn read(list: &BTreeMap<String, Written>) -> Self {
        Requests { cores: list.get("cpu").map_or(0.0, cores), gib: list.get("memory").map_or(0.0, gib) }
    }

    fn plus(self, other: Self) -> Self {
        Requests { cores: self.cores + other.cores, gib: self.gib + other.gib }
    }

    fn max(self, other: Self) -> Self {
        Requests { cores: self.cores.max(other.cores), gib: self.gib.max(other.gib) }
    }
}

/// Requests by name; a limit without a request is a request too.
fn named(resources: &ResourceRequirements) -> BTreeMap<String, Written> {
    let mut all = resources.limits.clone().unwrap_or_default();
    all.extend(resources.requests.clone().unwrap_or_default());
    all
}

fn units(quantity: &Written) -> f64 {
    let nanos = quantity.0.parse::<Quantity>().map_or(0, Quantity::nanos);
    // Exact enough: a quantity has far fewer than 53 significant bits.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
    let nanos = nanos as f64;
    nanos / 1e9
}

fn cores(quantity: &Written) -> f64 {
    units(quantity)
}

fn gib(quantity: &Written) -> f64 {
    units(quantity) / f64::from(1 << 30)
}

/// From when to when a pod occupies its node: from its start until its last container ended. The end of a pod that ended
/// without saying when is `now`.
pub fn lifetime(pod: &Pod, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let status = pod.status.as_ref();
    let start = status.and_then(|status| status.start_time.as_ref()).map(|Time(at)| *at);
    let ended = match phase(pod) {
        PodPhase::Succeeded | PodPhase::Failed => {
            let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
            let ends = containers.filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
            Some(ends.map(|Time(at)| *at).max().unwrap_or(now))
        }
        PodPhase::Pending | PodPhase::Running | PodPhase::Unknown => None,
    };
    (start, ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requests(spec: serde_json::Value) -> (f64, f64) {
        let requests = Requests::of(&serde_json::from_value(spec).unwrap());
        (requests.cores, requests.gib)
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn containers_and_sidecars_add_up_and_an_init_container_counts_if_it_needs_more() {
        assert_eq!(requests(json!({"containers": [container("500m", "1Gi"), container("1", "512Mi")]})), (1.5, 1.5));
        let mut sidecar = container("1", "1Gi");
        sidecar["restartPolicy"] = json!("Always");
        let pod = json!({"initContainers": [sidecar, container("3", "1Gi")], "containers": [container("1", "4Gi")],
            "overhead": {"cpu": "250m"}});
        assert_eq!(requests(pod), (4.25, 5.0));
    }

    #[test]
    fn a_limit_without_a_request_and_requests_of_the_whole_pod_count() {
        let limited = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "2Gi"}}}]});
        assert_eq!(requests(limited), (2.0, 2.0));
        let whole = json!({"containers": [container("1", "1Gi")], "resources": {"requests": {"cpu": "5"}}});
        assert_eq!(requests(whole), (5.0, 1.0));
        assert_eq!(requests(json!({"containers": [{"name": "c"}]})), (0.0, 0.0));
    }

    #[test]
    fn a_pod_occupies_its_node_from_its_start_to_the_end_of_its_last_container() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-01-01T01:00:00Z");
        let pod = |phase: &str, ends: &[&str]| -> Pod {
            let ended = |end: &&str| {
                json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "finishedAt": end}}})
            };
            let containers: Vec<_> = ends.iter().map(ended).collect();
            serde_json::from_value(
                json!({"metadata": {}, "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z",
                "containerStatuses": containers}}),
            )
            .unwrap()
        };
        let start = Some(at("2026-01-01T00:00:00Z"));
        let ends = ["2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z"];
        assert_eq!(lifetime(&pod("Running", &ends[..1]), now), (start, None));
        assert_eq!(lifetime(&pod("Succeeded", &ends), now), (start, Some(at(ends[1]))));
        assert_eq!(lifetime(&pod("Failed", &[]), now), (start, Some(now)));
        assert_eq!(lifetime(&Pod::default(), now), (None, None));
    }
}
