//! The basic executor container and pod: image, port, environment, resources, lifecycle, labels, placement.

use k8s_openapi::api::core::v1::{ContainerPort, ContainerResizePolicy, ExecAction, Lifecycle, LifecycleHandler};

use super::{PlanError, instance};
use crate::names::{env, key, path, port};
use crate::pod::{Draft, basic, resources};
use crate::value;
use crate::version::Line;

const DECOMMISSION_SCRIPT: &str = "/opt/decom.sh";
const GRACE_PERIOD: i64 = 30;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    basic::container(draft)?;
    ports(draft)?;
    environment(draft)?;
    resources::apply(draft, memory(draft)?)?;
    if draft.line >= Line::V4_2 {
        draft.container.resize_policy = Some(["cpu", "memory"].map(resize).into());
    }
    draft.container.args.get_or_insert_default().push("executor".to_owned());
    decommission(draft)?;
    basic::pod(draft, "Never")?;
    let hostname = instance::hostname(&draft.names.pod);
    draft.spec().hostname = Some(hostname);
    if draft.line >= Line::V4_1 {
        let grace = draft.conf.time(key::EXECUTOR_GRACE_PERIOD, value::TimeUnit::Seconds)?.unwrap_or(GRACE_PERIOD);
        draft.spec().termination_grace_period_seconds = Some(grace);
    }
    Ok(())
}

fn resize(resource: &str) -> ContainerResizePolicy {
    ContainerResizePolicy { resource_name: resource.to_owned(), restart_policy: "NotRequired".to_owned() }
}

/// The block manager port. Port 0 means any port, and is not declared.
fn ports(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let number = draft.conf.port(key::BLOCK_MANAGER_PORT)?.unwrap_or(port::BLOCK_MANAGER.1);
    if number != 0 && number < 1024 {
        return Err(PlanError::Value {
            key: key::BLOCK_MANAGER_PORT.to_owned(),
            value: number.to_string(),
            problem: "not a valid executor port".to_owned(),
            remedy: "write 0 or a port from 1024 to 65535".to_owned(),
        });
    }
    if number != 0 {
        draft.container.ports.get_or_insert_default().push(ContainerPort {
            name: Some(port::BLOCK_MANAGER.0.to_owned()),
            container_port: number,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        });
    }
    Ok(())
}

/// What is known before the driver exists. Its address and the JVM options come with the [`Profile`](super::Profile).
fn environment(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let cores = resources::cores(draft)?;
    if cores < 1 {
        return Err(PlanError::Value {
            key: key::EXECUTOR_CORES.to_owned(),
            value: cores.to_string(),
            problem: "an executor needs at least one core".to_owned(),
            remedy: "write 1 or more".to_owned(),
        });
    }
    let heap = resources::heap(draft)?;
    let id = draft.role.executor_id;
    let app_id = draft.app_id().to_owned();
    let user = draft.env.get(env::USER).unwrap_or(&draft.context.user).clone();
    draft.add_env(env::USER, &user);
    draft.add_env(env::EXECUTOR_CORES, &cores.to_string());
    draft.add_env(env::EXECUTOR_MEMORY, &format!("{heap}m"));
    draft.add_env(env::APPLICATION_ID, &app_id);
    draft.add_env(env::CONF_DIR, path::CONF_DIR);
    draft.add_env(env::EXECUTOR_ID, id);
    draft.add_env(env::RESOURCE_PROFILE_ID, "0");
    if draft.line >= Line::V4_0 && draft.conf.get(key::CUSTOM_EXECUTOR_LOG_URL).is_some() {
        draft.add_env(env::EXECUTOR_ATTRIBUTE_APP_ID, &app_id);
        draft.add_env(env::EXECUTOR_ATTRIBUTE_EXECUTOR_ID, id);
    }
    for (name, mut value) in draft.conf.with_prefix(key::EXECUTOR_ENV_PREFIX) {
        let problem = match name.as_str() {
            env::AUTH_SECRET => Some("secrets are not passed to executors in clear text"),
            name if !is_variable(name) => Some("not a valid environment variable name for executors"),
            _ => None,
        };
        if let Some(problem) = problem {
            draft.warnings.push(format!("{}{name} is ignored: {problem}", key::EXECUTOR_ENV_PREFIX));
            continue;
        }
        if name == env::EXECUTOR_DIRS {
            value = value.replace(env::APPLICATION_ID, &app_id).replace(env::EXECUTOR_ID, id);
        }
        draft.add_env(&name, &value);
    }
    if let Some(class_path) = draft.conf.get(key::EXECUTOR_CLASS_PATH) {
        draft.add_env(env::CLASSPATH, class_path);
    }
    draft.add_field_env(env::EXECUTOR_POD_IP, "status.podIP");
    draft.add_field_env(env::EXECUTOR_POD_NAME, "metadata.name");
    Ok(())
}

/// The variable names Spark accepts for executors: letters, digits, '-', '_' and '.', no digit first.
fn is_variable(name: &str) -> bool {
    let part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    name.bytes().next().is_some_and(|first| part(first) && !first.is_ascii_digit()) && name.bytes().all(part)
}

/// Memory of the container, in MiB: heap, overhead, off-heap memory, Python's memory.
pub(super) fn memory(draft: &Draft<'_>) -> Result<u64, PlanError> {
    let conf = &draft.conf;
    let mut total = resources::heap_and_overhead(draft)?;
    if conf.boolean(key::OFF_HEAP, false)? {
        let size = conf.get(key::OFF_HEAP_SIZE).unwrap_or("0");
        let invalid = |problem: value::SizeError| PlanError::Invalid {
            key: key::OFF_HEAP_SIZE.to_owned(),
            problem: problem.to_string(),
        };
        value::check_suffix(size, draft.line).map_err(invalid)?;
        // A bare number is in bytes here, unlike the other sizes.
        let bytes = value::size_bytes(size).map_err(invalid)?;
        let mebibytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).map(|bytes| bytes >> 20);
        let mebibytes = mebibytes.ok_or_else(|| PlanError::Value {
            key: key::OFF_HEAP_SIZE.to_owned(),
            value: size.to_owned(),
            problem: format!("{} requires a size", key::OFF_HEAP),
            remedy: "write a size such as 512m".to_owned(),
        })?;
        total = resources::add(total, mebibytes, key::OFF_HEAP_SIZE, draft.role)?;
    }
    if conf.get(key::RESOURCE_TYPE) == Some("python")
        && let Some(python) = conf.mebibytes(key::EXECUTOR_PYSPARK_MEMORY)?
    {
        total = resources::add(total, python, key::EXECUTOR_PYSPARK_MEMORY, draft.role)?;
    }
    Ok(total)
}

/// With decommissioning, an executor migrates its blocks before it stops. This replaces the template's lifecycle.
fn decommission(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    if draft.conf.boolean(key::DECOMMISSION, false)? {
        let script = draft.conf.get(key::DECOMMISSION_SCRIPT).unwrap_or(DECOMMISSION_SCRIPT);
        let exec = ExecAction { command: Some(vec![script.to_owned()]) };
        let handler = LifecycleHandler { exec: Some(exec), ..LifecycleHandler::default() };
        draft.container.lifecycle = Some(Lifecycle { pre_stop: Some(handler), ..Lifecycle::default() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_named_as_spark_takes_them() {
        for name in ["A", "_a", "-a.b", "a1"] {
            assert!(is_variable(name), "{name}");
        }
        for name in ["", "1a", "a b", "a=b", "ä"] {
            assert!(!is_variable(name), "{name}");
        }
    }
}
