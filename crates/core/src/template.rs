//! Pod templates of an application, and the container in them that Spark runs in.

use firesteel_api::names;
use k8s_openapi::api::core::v1::{Container, Pod, PodTemplateSpec};

/// A pod to start from.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub pod: Pod,
    /// The name of the container Spark runs in; it is in the pod.
    pub container: String,
}

/// The pod of a role's template, with a container for Spark in it. `usual` lists the names that Spark's container may have,
/// the usual one first; in a template without any of them, Spark runs in the first container.
pub fn start(template: Option<&PodTemplateSpec>, usual: &[&str]) -> Template {
    let template = template.cloned().unwrap_or_default();
    let mut pod = Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, status: None };
    let containers = &mut pod.spec.get_or_insert_default().containers;
    let at = usual.iter().find_map(|name| containers.iter().position(|c| c.name == *name));
    let first = usual.first().copied().unwrap_or(names::DRIVER_CONTAINER);
    let at = match at {
        Some(at) => at,
        None if containers.is_empty() => {
            containers.push(Container::default());
            0
        }
        None => 0,
    };
    if containers[at].name.is_empty() {
        first.clone_into(&mut containers[at].name);
    }
    let container = containers[at].name.clone();
    Template { pod, container }
}
