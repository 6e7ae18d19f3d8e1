//! Pod templates: the starting point of a pod.
//!
//! Steps add to the template and overwrite what Spark controls. Spark's container is taken out of it and added back, as
//! the last container, when all steps are done.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::PlanError;
use super::role::Role;
use super::settings::Settings;
use crate::context::{Files, PlanContext};
use crate::input::Input;

/// Where the template of a role comes from.
pub(crate) enum Source<'a> {
    /// A file on the submitting side, by path or URI.
    File(&'a str),
    /// The pod itself.
    Value(&'a Pod),
}

impl<'a> Source<'a> {
    /// The template of a role, if there is one. A value takes precedence over a file.
    pub(crate) fn of(role: &Role, conf: &Settings<'a>, context: &'a PlanContext<'_>) -> Option<Self> {
        let file = || conf.get(role.template).map(Source::File);
        (role.template_value)(&context.templates).map(Source::Value).or_else(file)
    }

    /// The pod and its source text.
    pub(crate) fn read(&self, role: &Role, files: &dyn Files) -> Result<(Pod, String), PlanError> {
        match self {
            Source::File(path) => {
                let refuse = |problem: String, remedy: &str| self.refuse(role, problem, remedy);
                let bytes = files.read(path).map_err(|e| refuse(e.to_string(), "give the path of a pod template"))?;
                let not_a_pod = |problem| refuse(problem, "give a YAML or JSON pod");
                let text = String::from_utf8(bytes).map_err(|_| not_a_pod("not UTF-8".to_owned()))?;
                Ok((parse(&text).map_err(not_a_pod)?, text))
            }
            Source::Value(pod) => {
                let text = serde_json::to_string(pod);
                let text = text.map_err(|e| self.refuse(role, e.to_string(), "use values that JSON can represent"))?;
                Ok(((*pod).clone(), text))
            }
        }
    }

    /// The error for a template that cannot be used.
    pub(crate) fn refuse(&self, role: &Role, problem: String, remedy: &str) -> PlanError {
        match self {
            Source::File(path) => PlanError::File {
                input: Input::key(role.template).into(),
                path: (*path).to_owned(),
                problem,
                remedy: remedy.to_owned(),
            },
            Source::Value(_) => {
                PlanError::Invalid { key: role.template.to_owned(), problem: format!("{problem}; {remedy}") }
            }
        }
    }
}

/// The pod to start from and the container Spark runs in.
pub(crate) fn load(
    role: &Role,
    conf: &Settings<'_>,
    context: &PlanContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Pod, Container), PlanError> {
    let mut pod = match Source::of(role, conf, context) {
        None => return Ok((Pod::default(), Container::default())),
        Some(Source::Value(pod)) => pod.clone(),
        Some(file) => file.read(role, context.files)?.0,
    };
    let container = take_container(&mut pod, role, conf.get(role.template_container), warnings);
    Ok((pod, container))
}

/// Reads a pod from YAML or JSON. A document of another kind is refused.
fn parse(text: &str) -> Result<Pod, String> {
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
                "{}={name}: the pod template has no such container; its first one is used",
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

    struct OneFile(String);

    impl Files for OneFile {
        fn read(&self, _: &str) -> std::io::Result<Vec<u8>> {
            Ok(self.0.clone().into_bytes())
        }

        fn list(&self, _: &str) -> std::io::Result<Vec<(String, u64)>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_template_by_value_is_planned_like_its_file() {
        use crate::context::{Ids, Templates};
        use crate::driver::{DriverPlan, plan};
        use crate::names::key;
        use crate::{MainResource, Submission};

        let template = pod(&["side", "spark"]);
        let planned = |with: &[(&str, &str)], templates: Templates| -> DriverPlan {
            let fixed = [(key::IMAGE, "i"), (key::DRIVER_TEMPLATE_CONTAINER, "spark")];
            let conf = with.iter().chain(&fixed).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let submission = Submission {
                conf,
                version: "4.1.4".parse().unwrap(),
                main: MainResource::None,
                main_class: "Main".to_owned(),
                arguments: Vec::new(),
                proxy_user: None,
            };
            let files = OneFile(serde_json::to_string(&template).unwrap());
            let ids = Ids::from_bytes(&[1; 64], 1);
            let env = std::collections::BTreeMap::new();
            let context = PlanContext { ids, user: "me".to_owned(), env, files: &files, templates };
            plan(&submission, &context).unwrap()
        };
        let files = [(key::DRIVER_TEMPLATE, "/d"), (key::EXECUTOR_TEMPLATE, "/e")];
        let by_file = planned(&files, Templates::default());
        let values = || Templates { driver: Some(template.clone()), executor: Some(template.clone()) };
        let by_value = planned(&[], values());
        assert_eq!(by_value.pod, by_file.pod);
        let maps = |plan: &DriverPlan| {
            let maps =
                plan.objects.iter().filter(|o| o.metadata().name.as_deref().is_some_and(|n| n.contains("podspec")));
            maps.cloned().collect::<Vec<_>>()
        };
        assert_eq!(maps(&by_value).len(), 1);
        assert_eq!(maps(&by_value), maps(&by_file));
        assert_eq!(by_value.properties[key::EXECUTOR_TEMPLATE], by_file.properties[key::EXECUTOR_TEMPLATE]);
        // A value takes precedence over a file.
        let both = planned(&files, Templates { driver: Some(pod(&["other"])), executor: None });
        assert_eq!(both.pod.spec.unwrap().containers[0].name, "other");
    }
}
