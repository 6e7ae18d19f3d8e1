//! A driver pod's state as text, in `spark-submit`'s format.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::ResourceExt as _;

/// The fields of a pod, one per line, indented by a tab.
pub(crate) fn describe(pod: &Pod) -> String {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let labels = pod.labels().iter().map(|(key, value)| format!("{key} -> {value}")).collect::<Vec<_>>().join(", ");
    let volumes = spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    let volumes = volumes.map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut text = pairs(
        1,
        &[
            ("pod name", pod.name_any()),
            ("namespace", pod.namespace().unwrap_or_default()),
            ("labels", labels),
            ("pod uid", pod.uid().unwrap_or_default()),
            ("creation time", pod.creation_timestamp().map(|time| time.0.to_string()).unwrap_or_default()),
            ("service account name", spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()),
            ("volumes", volumes),
            ("node name", spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default()),
            (
                "start time",
                status.and_then(|status| status.start_time.as_ref()).map(|time| time.0.to_string()).unwrap_or_default(),
            ),
            ("phase", phase(pod).to_owned()),
        ],
    );
    let containers = containers(pod);
    text.push_str("\n\t container status:");
    text.push_str(if containers.is_empty() { " N/A" } else { &containers });
    text
}

/// The state of every container, one block each.
pub(crate) fn containers(pod: &Pod) -> String {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    statuses.map(container).collect::<Vec<_>>().join("\n")
}

fn container(status: &ContainerStatus) -> String {
    let mut fields = vec![("container name", status.name.clone()), ("container image", status.image.clone())];
    match status.state.as_ref() {
        Some(ContainerState { running: Some(running), .. }) => {
            fields.push(("container state", "running".to_owned()));
            fields.push((
                "container started at",
                running.started_at.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
            ));
        }
        Some(ContainerState { waiting: Some(waiting), .. }) => {
            fields.push(("container state", "waiting".to_owned()));
            fields.push(("pending reason", waiting.reason.clone().unwrap_or_default()));
        }
        Some(ContainerState { terminated: Some(ended), .. }) => {
            let time = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
                time.map(|time| time.0.to_string()).unwrap_or_default()
            };
            fields.push(("container state", "terminated".to_owned()));
            fields.push(("container started at", time(ended.started_at.as_ref())));
            fields.push(("container finished at", time(ended.finished_at.as_ref())));
            fields.push(("exit code", ended.exit_code.to_string()));
            fields.push(("termination reason", ended.reason.clone().unwrap_or_default()));
        }
        _ => fields.push(("container state", String::new())),
    }
    pairs(2, &fields)
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}

fn pairs(indent: usize, fields: &[(&str, String)]) -> String {
    let tabs = "\t".repeat(indent);
    let line = |(name, value): &(&str, String)| {
        format!("\n{tabs} {name}: {}", if value.is_empty() { "N/A" } else { value.as_str() })
    };
    fields.iter().map(line).collect()
}
