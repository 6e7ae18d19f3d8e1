//! Spark's container in a pod.
//!
//! It has Spark's usual name, unless a pod template names it otherwise. Then the operator writes its name into an annotation;
//! Spark itself does not mark it, but puts it last. The annotation is kubectl's, so in pods that the operator did not create
//! it may name any container.

use firesteel_api::names;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;

use super::exit::Ended;

/// The container that Spark runs in. In a pod that is not Spark's, its first one.
#[derive(Debug, Clone, Copy)]
pub struct SparkContainer<'a> {
    name: &'a str,
    status: Option<&'a ContainerStatus>,
}

impl<'a> SparkContainer<'a> {
    pub fn of(pod: &'a Pod) -> Self {
        SparkContainer::named(pod.status.as_ref(), name(pod))
    }

    /// The container of this name; if there is only one, that one.
    pub fn named(status: Option<&'a PodStatus>, name: &'a str) -> Self {
        let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let status = statuses.iter().find(|status| status.name == name).or(match statuses {
            [only] => Some(only),
            _ => None,
        });
        SparkContainer { name, status }
    }

    pub fn name(self) -> &'a str {
        self.name
    }

    /// Whether it runs or has ended, so that there is a log.
    pub fn has_started(self) -> bool {
        self.state().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    }

    pub fn is_running(self) -> bool {
        self.state().is_some_and(|state| state.running.is_some())
    }

    pub fn running_since(self) -> Option<Timestamp> {
        Some(self.state()?.running.as_ref()?.started_at.as_ref()?.0)
    }

    /// How it ended, unless it was restarted.
    pub fn ended(self) -> Option<Ended> {
        self.state()?.terminated.as_ref().map(Ended::from)
    }

    /// How it ended before its restart.
    pub fn ended_before(self) -> Option<Ended> {
        self.status?.last_state.as_ref()?.terminated.as_ref().map(Ended::from)
    }

    /// How often it was restarted.
    pub fn restarts(self) -> u32 {
        self.status.map_or(0, |status| u32::try_from(status.restart_count).unwrap_or_default())
    }

    /// Kubernetes' reason why it does not run.
    pub fn waiting(self) -> Option<&'a str> {
        self.state()?.waiting.as_ref()?.reason.as_deref()
    }

    /// Whether its state is unknown.
    pub fn is_unknown(self) -> bool {
        self.state().is_none()
    }

    fn state(self) -> Option<&'a ContainerState> {
        self.status?.state.as_ref()
    }
}

fn name(pod: &Pod) -> &str {
    let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let executor = label(names::LABEL_ROLE) == Some("executor");
    let usual = if executor { names::EXECUTOR_CONTAINER } else { names::DRIVER_CONTAINER };
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    if containers.iter().map(|c| &c.name).chain(statuses.map(|s| &s.name)).any(|name| name == usual) {
        return usual;
    }
    let ours = executor || label(names::LABEL_LAUNCHED_BY) == Some("true");
    let annotations = pod.metadata.annotations.as_ref().filter(|_| ours);
    if let Some(named) = annotations.and_then(|annotations| annotations.get(names::ANNOTATION_DEFAULT_CONTAINER)) {
        return named;
    }
    let is_spark = label(names::LABEL_ROLE).is_some();
    let place = if is_spark { containers.last() } else { containers.first() };
    place.map_or(usual, |container| container.name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(role: Option<&str>, by_operator: bool, annotated: Option<&str>, containers: &[&str]) -> Pod {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {}, "annotations": {}},
            "spec": {"containers": containers.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()},
        }))
        .unwrap();
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.extend(role.map(|role| (names::LABEL_ROLE.to_owned(), role.to_owned())));
        labels.extend(by_operator.then(|| (names::LABEL_LAUNCHED_BY.to_owned(), "true".to_owned())));
        let annotation = annotated.map(|name| (names::ANNOTATION_DEFAULT_CONTAINER.to_owned(), name.to_owned()));
        pod.metadata.annotations.get_or_insert_default().extend(annotation);
        pod
    }

    #[test]
    fn sparks_container_is_found_whoever_made_the_pod() {
        let (driver, executor) = (names::DRIVER_CONTAINER, names::EXECUTOR_CONTAINER);
        for (role, by_operator, annotated, containers, found) in [
            (Some("driver"), true, Some(driver), &["proxy", driver, "logs"][..], driver),
            (Some("driver"), true, Some("main"), &["proxy", "main", "logs"], "main"),
            // As the operator's cache keeps it.
            (Some("driver"), true, Some("main"), &[], "main"),
            (Some("executor"), false, Some("main"), &["main", "proxy"], "main"),
            (Some("executor"), false, None, &[executor, "proxy"], executor),
            // Submitted: the annotation is the user's, for kubectl.
            (Some("driver"), false, Some("proxy"), &["proxy", "main"], "main"),
            (Some("driver"), false, Some("proxy"), &["proxy", driver], driver),
            (Some("driver"), false, None, &[], driver),
            // A pod that is not Spark's.
            (None, false, None, &["first", "second"], "first"),
        ] {
            let pod = pod(role, by_operator, annotated, containers);
            assert_eq!(SparkContainer::of(&pod).name(), found, "{role:?} {annotated:?} {containers:?}");
        }
    }
}
