//! Pod templates: where a pod starts from.
//!
//! The template is taken as it is; steps add to it and overwrite what Spark insists on. The container Spark runs in
//! is taken out of it and joins the pod again, as its last container, when all steps are done.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::PlanError;
use super::role::Role;
use super::settings::Settings;
use crate::surroundings::Surroundings;

/// The pod to start from and the container Spark runs in.
pub(crate) fn load(
    role: &Role,
    conf: &Settings<'_>,
    around: &Surroundings<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Pod, Container), PlanError> {
    let Some(path) = conf.get(role.template) else { return Ok((Pod::default(), Container::default())) };
    let refuse = |problem: String, remedy: &str| PlanError::File {
        key: role.template.to_owned(),
        path: path.to_owned(),
        problem,
        remedy: remedy.to_owned(),
    };
    let bytes = around.files.read(path).map_err(|e| refuse(e.to_string(), "give the path of a pod template"))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("not UTF-8".to_owned(), "give a YAML or JSON pod"))?;
    let mut pod = parse(&text).map_err(|problem| refuse(problem, "give a YAML or JSON pod"))?;
    let container = take_container(&mut pod, role, conf.get(role.template_container), warnings);
    Ok((pod, container))
}

/// Reads a pod from YAML or JSON. A document that says it is something else than a pod is refused.
pub(crate) fn parse(text: &str) -> Result<Pod, String> {
    let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|e| one_line(&e.to_string()))?;
    match value.get("kind").and_then(serde_json::Value::as_str) {
        Some("Pod") | None if value.is_object() => {}
        Some(kind) => return Err(format!("it holds a {kind}, not a Pod")),
        None => return Err("it does not hold an object".to_owned()),
    }
    serde_json::from_value(value).map_err(|e| format!("not a valid Pod: {e}"))
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Takes out the container named `name`, else the first; an empty one if there is none.
fn take_container(pod: &mut Pod, role: &Role, name: Option<&str>, warnings: &mut Vec<String>) -> Container {
    let Some(containers) = pod.spec.as_mut().map(|s| &mut s.containers) else { return Container::default() };
    let mut at = 0;
    if let Some(name) = name {
        let matching: Vec<usize> = (0..containers.len()).filter(|&i| containers[i].name == name).collect();
        match matching[..] {
            [only] => at = only,
            _ => warnings.push(format!(
                "{}={name}: the pod template has no such container, its first one is used",
                role.template_container
            )),
        }
    }
    if containers.is_empty() { Container::default() } else { containers.remove(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(names: &[&str]) -> Pod {
        let containers: Vec<_> = names.iter().map(|n| serde_json::json!({"name": n})).collect();
        serde_json::from_value(serde_json::json!({"spec": {"containers": containers}})).unwrap()
    }

    fn taken(names: &[&str], wanted: Option<&str>) -> (String, Vec<String>, usize) {
        let mut pod = pod(names);
        let mut warnings = Vec::new();
        let container = take_container(&mut pod, &super::super::role::DRIVER, wanted, &mut warnings);
        let rest = pod.spec.unwrap().containers.into_iter().map(|c| c.name).collect();
        (container.name, rest, warnings.len())
    }

    #[test]
    fn the_named_container_is_taken_else_the_first() {
        assert_eq!(taken(&["a", "b"], Some("b")), ("b".into(), vec!["a".into()], 0));
        assert_eq!(taken(&["a", "b"], None), ("a".into(), vec!["b".into()], 0));
        assert_eq!(taken(&["a", "b"], Some("c")), ("a".into(), vec!["b".into()], 1));
        assert_eq!(taken(&[], None), (String::new(), vec![], 0));
    }

    #[test]
    fn what_is_not_a_pod_is_refused() {
        assert!(parse("this: [is\nnot: a pod").is_err());
        assert_eq!(parse("kind: Service\n"), Err("it holds a Service, not a Pod".to_owned()));
        assert!(parse("- a\n").is_err());
        assert!(parse("spec: 3\n").is_err());
    }
}
