//! Mounts of a finished pod: each needs a volume. An API server would refuse the pod; here the field of the manifest is named.

use firesteel_api::pod_spec::SparkPodSpec;
use firesteel_api::validate::Problem;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

/// Checks a pod of the role at `path`, such as `spec.driver`, that was planned from `given`.
pub(crate) fn check(pod: &Pod, path: &str, given: &SparkPodSpec) -> Result<(), Problem> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for mount in container.volume_mounts.iter().flatten() {
            if volumes.iter().any(|volume| volume.name == mount.name) {
                continue;
            }
            return Err(Problem {
                path: field(path, given, container, &mount.name),
                message: format!(
                    "the pod has no volume {:?}; add it to the volumes of the pod template, or correct the name",
                    mount.name
                ),
            });
        }
    }
    Ok(())
}

/// The field that a mount came from.
fn field(path: &str, given: &SparkPodSpec, container: &Container, volume: &str) -> String {
    let template = given.template.as_ref().and_then(|template| template.spec.as_ref());
    let in_template = |list: &str| format!("{path}.template.spec.{list}");
    let no_containers = Vec::new();
    let lists = [
        (format!("{path}.sidecars"), &given.sidecars),
        (format!("{path}.initContainers"), &given.init_containers),
        (in_template("containers"), template.map_or(&no_containers, |spec| &spec.containers)),
        (
            in_template("initContainers"),
            template.and_then(|spec| spec.init_containers.as_ref()).unwrap_or(&no_containers),
        ),
    ];
    let at = |mounts: &[VolumeMount]| mounts.iter().position(|mount| mount.name == volume);
    for (list, containers) in lists {
        for (i, written) in containers.iter().enumerate().filter(|(_, written)| written.name == container.name) {
            if let Some(at) = at(written.volume_mounts.as_deref().unwrap_or_default()) {
                return format!("{list}[{i}].volumeMounts[{at}].name");
            }
        }
    }
    match at(&given.volume_mounts) {
        Some(at) => format!("{path}.volumeMounts[{at}].name"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn path(given: Value, pod: &Value) -> Option<String> {
        let given = serde_json::from_value(given).unwrap();
        let pod = serde_json::from_value(json!({"spec": pod})).unwrap();
        check(&pod, "spec.driver", &given).err().map(|problem| problem.path)
    }

    #[test]
    fn a_mount_without_a_volume_is_found_where_it_was_written() {
        let mounts = json!([{"name": "good", "mountPath": "/g"}, {"name": "bad", "mountPath": "/b"}]);
        let container = json!({"name": "log", "image": "i", "volumeMounts": mounts});
        let pod = json!({"containers": [{"name": "spark"}, container], "volumes": [{"name": "good"}]});
        let found = path(json!({"sidecars": [{"name": "other"}, container]}), &pod);
        assert_eq!(found.as_deref(), Some("spec.driver.sidecars[1].volumeMounts[1].name"));
        let found = path(json!({"template": {"spec": {"containers": [container]}}}), &pod);
        assert_eq!(found.as_deref(), Some("spec.driver.template.spec.containers[0].volumeMounts[1].name"));
        let pod = json!({"containers": [{"name": "spark", "volumeMounts": mounts}], "volumes": [{"name": "good"}]});
        let found = path(json!({"volumeMounts": mounts}), &pod);
        assert_eq!(found.as_deref(), Some("spec.driver.volumeMounts[1].name"));
    }

    #[test]
    fn mounts_with_volumes_are_in_order() {
        let mounts = json!([{"name": "good", "mountPath": "/g"}]);
        let pod = json!({
            "containers": [{"name": "a", "volumeMounts": mounts}],
            "initContainers": [{"name": "b", "volumeMounts": mounts}], "volumes": [{"name": "good"}]});
        assert_eq!(path(json!({}), &pod), None);
    }
}
