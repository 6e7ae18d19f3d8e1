//! Finds the field of a manifest that caused a configuration error.

use firesteel_api::validate::Problem;
use firesteel_spark::driver::PlanError;
use firesteel_spark::names::key;
use firesteel_spark::submission::{Origin, SubmissionError};
use firesteel_spark::{Input, TemplatePart};
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::Settings;
use super::fields::{FIELDS, LAST_FIELDS, POD_FIELDS, Target};
use crate::overlay;
use crate::pod::Role;

impl Settings<'_> {
    /// Why the command line is not a valid submission, by field.
    pub(crate) fn unresolved(&self, error: &SubmissionError) -> Problem {
        self.problem(&error.input(), error.to_string())
    }

    /// Why there is no plan, by field.
    pub(crate) fn unplanned(&self, error: &PlanError) -> Problem {
        self.problem(&error.input(), error.to_string())
    }

    /// What is wrong with an input, by field.
    pub(crate) fn problem(&self, input: &Input, message: String) -> Problem {
        Problem { path: self.path(input), message }
    }

    /// The path of the field that an input came from, or would have come from.
    pub(super) fn path(&self, input: &Input) -> String {
        match input {
            Input::Key(key) => self.path_of_key(key),
            Input::Option(flag) => {
                let is_it = |target: Target| matches!(target, Target::Option(opt) if opt.flag() == *flag);
                declared(is_it).unwrap_or_else(|| "spec".to_owned())
            }
            Input::Application => declared(|target| target == Target::Application).unwrap_or_else(|| "spec".to_owned()),
            // An application has neither variables nor files.
            Input::Variable(_) | Input::File(_) => "spec".to_owned(),
            Input::Template { key, part } => {
                let role = if *key == key::DRIVER_TEMPLATE { Role::Driver } else { Role::Executor };
                role.path(&self.path_of_part(role, part))
            }
        }
    }

    fn path_of_key(&self, key: &str) -> String {
        match self.args.settings.iter().rev().find(|setting| setting.key == key).map(|setting| &setting.origin) {
            Some(Origin::Field(path)) => path.clone(),
            _ => declared(|target| matches!(target, Target::Key(name) if name == key))
                .unwrap_or_else(|| format!("spec.sparkConf[{key}]")),
        }
    }

    /// The path of a part of a role's template: a typed field merged over the template, or a field of the template.
    fn path_of_part(&self, role: Role, part: &TemplatePart) -> String {
        const TEMPLATE: &str = "spec.ROLE.template";
        let (spec, pod) = (self.app.spec, role.pod(self.app.spec));
        let template = pod.template.as_ref().and_then(|template| template.spec.as_ref());
        let found = match part {
            TemplatePart::Volume(name) => place("spec.volumes", &spec.volumes, |v| v.name == *name)
                .or_else(|| place("spec.ROLE.configMaps", &pod.config_maps, |m| overlay::volume_name(m) == *name))
                .or_else(|| {
                    let volumes = template.and_then(|t| t.volumes.as_deref()).unwrap_or_default();
                    place(&format!("{TEMPLATE}.spec.volumes"), volumes, |v| v.name == *name)
                }),
            TemplatePart::VolumeMount(path) => {
                place("spec.ROLE.volumeMounts", &pod.volume_mounts, |m| m.mount_path == *path)
                    .or_else(|| place("spec.ROLE.configMaps", &pod.config_maps, |m| m.path == *path))
                    .or_else(|| {
                        in_containers(
                            template,
                            "volumeMounts",
                            |c| c.volume_mounts.as_deref(),
                            |m| m.mount_path == *path,
                        )
                    })
            }
            TemplatePart::EnvVar(name) => place("spec.ROLE.env", &pod.env, |v| v.name == *name)
                .or_else(|| in_containers(template, "env", |c| c.env.as_deref(), |v| v.name == *name)),
            TemplatePart::Port(name) => {
                let ports = role.ports(spec);
                place("spec.ROLE.ports", ports, |p| p.name == *name).or_else(|| {
                    in_containers(template, "ports", |c| c.ports.as_deref(), |p| p.name.as_ref() == Some(name))
                })
            }
            TemplatePart::Resource(name) => {
                pod.gpu.as_ref().filter(|gpu| gpu.name == *name).map(|_| "spec.ROLE.gpu".to_owned())
            }
        };
        found.unwrap_or_else(|| TEMPLATE.to_owned())
    }
}

/// The field that the table lists for a target.
fn declared(is_it: impl Fn(Target) -> bool) -> Option<String> {
    let fields = FIELDS.iter().chain(LAST_FIELDS).map(|field| (field.path.to_owned(), field.target));
    let of_pods = POD_FIELDS.iter().flat_map(|field| {
        let roles = Role::BOTH.into_iter().zip(field.keys);
        roles.map(|(role, key)| (role.path(field.path), Target::Key(key)))
    });
    fields.chain(of_pods).find(|(_, target)| is_it(*target)).map(|(path, _)| path)
}

/// The path of the entry of a list.
fn place<T>(path: &str, list: &[T], is_it: impl Fn(&T) -> bool) -> Option<String> {
    list.iter().position(is_it).map(|i| format!("{path}[{i}]"))
}

/// The path of an entry in a list of a template's containers.
fn in_containers<T>(
    template: Option<&PodSpec>,
    field: &str,
    list: fn(&Container) -> Option<&[T]>,
    is_it: impl Fn(&T) -> bool,
) -> Option<String> {
    template?.containers.iter().enumerate().find_map(|(i, container)| {
        let path = format!("spec.ROLE.template.spec.containers[{i}].{field}");
        place(&path, list(container).unwrap_or_default(), &is_it)
    })
}
