//! Checks the finished objects against the API server's validation rules, so that errors name the setting at fault and
//! occur before anything is created.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::role::LONGEST_ID;
use super::{Draft, PlanError};
use crate::input::{Input, TemplatePart};
use crate::names::key;
use crate::object_name::{MAX_LABEL, MAX_NAME, is_dns_label, is_label_value, is_qualified_name};
use crate::value;
use crate::version::Line;

pub(crate) fn apply(draft: &Draft<'_>) -> Result<(), PlanError> {
    namespace(draft)?;
    pod_name(draft)?;
    labels(draft)?;
    annotations(draft)?;
    quantities(draft)?;
    ports(draft)?;
    volumes(draft)?;
    environment(draft)
}

fn namespace(draft: &Draft<'_>) -> Result<(), PlanError> {
    let name = &draft.namespace;
    if name.len() <= MAX_LABEL && is_dns_label(name) {
        return Ok(());
    }
    Err(PlanError::Value {
        key: key::NAMESPACE.to_owned(),
        value: name.clone(),
        problem: "not a valid namespace name".to_owned(),
        remedy: "use at most 63 lower case letters, digits and dashes".to_owned(),
    })
}

fn pod_name(draft: &Draft<'_>) -> Result<(), PlanError> {
    let mut name = draft.names.pod.clone();
    if !draft.role.executor_id.is_empty() {
        name = name.replace(draft.role.executor_id, LONGEST_ID);
    }
    let problem = if name.len() > MAX_NAME {
        format!("a pod name of {} characters is too long", name.len())
    } else if !name.split('.').all(is_dns_label) {
        "not a valid pod name".to_owned()
    } else {
        return Ok(());
    };
    let setting = draft.role.name_setting;
    let (key, remedy) = if draft.conf.get(setting).is_some() {
        let most = MAX_NAME - draft.role.name_room;
        (setting, format!("use at most {most} lower case letters, digits, dashes and dots"))
    } else {
        (key::APP_NAME, format!("use a shorter application name, or set {setting}"))
    };
    let value = draft.conf.get(key).unwrap_or_default().to_owned();
    Err(PlanError::Value { key: key.to_owned(), value, problem, remedy })
}

fn labels(draft: &Draft<'_>) -> Result<(), PlanError> {
    for prefix in [
        draft.role.label_prefix,
        key::DRIVER_SERVICE_LABEL_PREFIX,
        key::NODE_SELECTOR_PREFIX,
        draft.role.node_selector_prefix,
    ] {
        for (name, value) in draft.conf.with_prefix(prefix) {
            let substituted = prefix == draft.role.label_prefix && draft.line >= Line::V4_0;
            let value = if substituted { draft.substitute_ids(&value) } else { value };
            let refuse = |problem: &str, remedy: &str| PlanError::Value {
                key: format!("{prefix}{name}"),
                value: value.clone(),
                problem: problem.to_owned(),
                remedy: remedy.to_owned(),
            };
            if !is_qualified_name(&name) {
                return Err(refuse("not a valid label name", "write it as name or domain/name"));
            }
            if !is_label_value(&value) {
                let remedy = "use at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit";
                return Err(refuse("not a valid label value", remedy));
            }
        }
    }
    Ok(())
}

fn annotations(draft: &Draft<'_>) -> Result<(), PlanError> {
    for prefix in [draft.role.annotation_prefix, key::DRIVER_SERVICE_ANNOTATION_PREFIX] {
        for (name, value) in draft.conf.with_prefix(prefix) {
            if !is_qualified_name(&name.to_lowercase()) {
                return Err(PlanError::Value {
                    key: format!("{prefix}{name}"),
                    value,
                    problem: "not a valid annotation name".to_owned(),
                    remedy: "write it as name or domain/name".to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn quantities(draft: &Draft<'_>) -> Result<(), PlanError> {
    let Some(resources) = &draft.container.resources else { return Ok(()) };
    let parse = |name: &str, quantity: &Quantity, setting: &str| {
        let parsed = quantity.0.parse::<value::Quantity>();
        parsed.map_err(|problem| match draft.conf.get(setting).filter(|_| name == "cpu") {
            Some(_) => PlanError::Invalid { key: setting.to_owned(), problem: problem.to_string() },
            None => resource(draft, name, &problem.to_string()),
        })
    };
    let role = draft.role;
    for (name, request) in resources.requests.iter().flatten() {
        let wanted = parse(name, request, role.request_cores)?;
        let Some(limit) = resources.limits.as_ref().and_then(|l| l.get(name)) else { continue };
        let most = parse(name, limit, role.limit_cores)?;
        if wanted <= most {
            continue;
        }
        let problem = format!("a container cannot request more {name} than its limit of {}", limit.0);
        if name != "cpu" {
            return Err(resource(draft, name, &problem));
        }
        let key = draft.conf.get(role.request_cores).map_or(role.cores, |_| role.request_cores);
        return Err(PlanError::Value {
            key: key.to_owned(),
            value: request.0.clone(),
            problem,
            remedy: format!("lower it, or raise {}", role.limit_cores),
        });
    }
    for (name, limit) in resources.limits.iter().flatten() {
        parse(name, limit, role.limit_cores)?;
    }
    Ok(())
}

/// Refuses a request or limit from a pod template.
fn resource(draft: &Draft<'_>, name: &str, problem: &str) -> PlanError {
    PlanError::Object {
        input: of_template(draft, TemplatePart::Resource(name.to_owned())).into(),
        object: format!("pod {}", draft.names.pod),
        problem: format!("resource {name}: {problem}"),
        remedy: "fix the resources in the pod template".to_owned(),
    }
}

fn of_template(draft: &Draft<'_>, part: TemplatePart) -> Input {
    Input::Template { key: draft.role.template, part }
}

fn ports(draft: &Draft<'_>) -> Result<(), PlanError> {
    let Some(port) = draft.container.ports.iter().flatten().find(|p| p.container_port == 0) else { return Ok(()) };
    let name = port.name.as_deref().unwrap_or_default();
    let key = match name {
        "driver-rpc-port" => key::DRIVER_PORT,
        "blockmanager" => key::DRIVER_BLOCK_MANAGER_PORT,
        "spark-connect" => key::CONNECT_PORT,
        "spark-ui" => key::UI_PORT,
        _ => {
            return Err(PlanError::Object {
                input: of_template(draft, TemplatePart::Port(name.to_owned())).into(),
                object: format!("pod {}", draft.names.pod),
                problem: format!("port {name:?} has no number"),
                remedy: "give each port of the pod template a containerPort from 1 to 65535".to_owned(),
            });
        }
    };
    Err(PlanError::Value {
        key: key.to_owned(),
        value: "0".to_owned(),
        problem: format!("the {name} port of a container and its service needs a number"),
        remedy: "write a port from 1 to 65535, or leave it out".to_owned(),
    })
}

fn volumes(draft: &Draft<'_>) -> Result<(), PlanError> {
    let object = || format!("pod {}", draft.names.pod);
    let mut seen = std::collections::BTreeSet::new();
    for volume in draft.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let name = &volume.name;
        let problem = if name.len() > MAX_LABEL || !is_dns_label(name) {
            format!("{name} is not a valid volume name")
        } else if !seen.insert(name) {
            format!("two volumes are named {name}")
        } else {
            continue;
        };
        return Err(PlanError::Object {
            input: volume_input(draft, name).into(),
            object: object(),
            problem,
            remedy: "rename the volume or Secret that it comes from".to_owned(),
        });
    }
    let mut paths = std::collections::BTreeSet::new();
    for mount in draft.container.volume_mounts.iter().flatten() {
        if !paths.insert(&mount.mount_path) {
            return Err(PlanError::Object {
                input: mount_input(draft, &mount.mount_path).into(),
                object: object(),
                problem: format!("two volumes are mounted at {}", mount.mount_path),
                remedy: "give each volume and Secret its own path".to_owned(),
            });
        }
    }
    Ok(())
}

/// Where a volume comes from: a setting, else the pod template.
fn volume_input(draft: &Draft<'_>, name: &str) -> Input {
    let role = draft.role;
    let volumes = draft.conf.with_prefix(role.volumes_prefix);
    let configured = volumes.keys().filter_map(|rest| rest.split_once('.')).find_map(|(kind, rest)| {
        let part = rest.strip_prefix(name)?.strip_prefix('.')?;
        Some(format!("{}{kind}.{name}.{part}", role.volumes_prefix))
    });
    let secret = || name.strip_suffix("-volume").map(|secret| format!("{}{secret}", role.secrets_prefix));
    let key = configured.or_else(|| secret().filter(|key| draft.conf.get(key).is_some()));
    key.map_or_else(|| of_template(draft, TemplatePart::Volume(name.to_owned())), Input::Key)
}

/// Where a mount comes from: a setting, else the pod template.
fn mount_input(draft: &Draft<'_>, path: &str) -> Input {
    let role = draft.role;
    let is_mount = |prefix: &str, key: &str| prefix == role.secrets_prefix || key.ends_with(".mount.path");
    let configured = [role.secrets_prefix, role.volumes_prefix].into_iter().find_map(|prefix| {
        let family = draft.conf.with_prefix(prefix);
        let (rest, _) = family.iter().find(|(rest, value)| *value == path && is_mount(prefix, rest))?;
        Some(format!("{prefix}{rest}"))
    });
    configured.map_or_else(|| of_template(draft, TemplatePart::VolumeMount(path.to_owned())), Input::Key)
}

/// Where an environment variable comes from: a setting, else the pod template.
fn variable_input(draft: &Draft<'_>, name: &str) -> Input {
    let prefixes = [draft.role.env_prefix, draft.role.secret_key_ref_prefix].into_iter();
    let key = prefixes.map(|prefix| format!("{prefix}{name}")).find(|key| draft.conf.get(key).is_some());
    key.map_or_else(|| of_template(draft, TemplatePart::EnvVar(name.to_owned())), Input::Key)
}

fn environment(draft: &Draft<'_>) -> Result<(), PlanError> {
    for variable in draft.container.env.iter().flatten() {
        let name = &variable.name;
        // Printable ASCII without '=': what API servers accept since 1.30.
        if name.is_empty() || !name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
            let input = Box::new(variable_input(draft, name));
            let remedy = match &*input {
                Input::Template { .. } => "rename it in the pod template".to_owned(),
                _ => format!("rename it in {}*", draft.role.env_prefix),
            };
            let problem = format!("{name:?} is not a valid environment variable name");
            return Err(PlanError::Object { input, object: format!("pod {}", draft.names.pod), problem, remedy });
        }
    }
    Ok(())
}
