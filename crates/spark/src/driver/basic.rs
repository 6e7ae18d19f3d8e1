//! The basic driver container and pod: image, ports, environment, resources, labels, placement.

use k8s_openapi::api::core::v1::ContainerPort;

use super::{Draft, PlanError, upload};
use crate::names::{env, key, port};
use crate::pod::{basic, resources};
use crate::version::Line;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    basic::container(draft)?;
    ports(draft)?;
    environment(draft);
    resources::apply(draft, resources::heap_and_overhead(draft)?)?;
    basic::pod(draft, "Never")?;
    draft.set_property(key::DRIVER_POD_NAME, draft.names.pod.clone());
    draft.set_property(key::APP_ID, draft.app_id().to_owned());
    draft.set_property(key::SUBMIT_IN_DRIVER, "true");
    draft.set_property(key::MEMORY_OVERHEAD_FACTOR, resources::java_double(resources::default_factor(draft)?));
    upload::dependencies(draft)
}

fn ports(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let conf = draft.conf;
    let block_manager = match conf.port(key::DRIVER_BLOCK_MANAGER_PORT)? {
        Some(port) => Some(port),
        None => conf.port(key::BLOCK_MANAGER_PORT)?,
    };
    let mut ports = vec![
        (port::RPC.0, conf.port(key::DRIVER_PORT)?.unwrap_or(port::RPC.1)),
        (port::BLOCK_MANAGER.0, block_manager.unwrap_or(port::BLOCK_MANAGER.1)),
        (port::UI.0, conf.port(key::UI_PORT)?.unwrap_or(port::UI.1)),
    ];
    if draft.line >= Line::V4_1 {
        ports.push((port::CONNECT.0, conf.port(key::CONNECT_PORT)?.unwrap_or(port::CONNECT.1)));
    }
    draft.container.ports.get_or_insert_default().extend(ports.into_iter().map(|(name, number)| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }));
    Ok(())
}

fn environment(draft: &mut Draft<'_>) {
    let context = draft.context;
    // Spark's client runs as the proxy user, if there is one; up to 4.2 SPARK_USER takes precedence over it.
    let named = draft.line < Line::V4_3 && context.env.contains_key(env::USER);
    let proxy_user = draft.submission.proxy_user.as_ref().filter(|_| !named);
    draft.add_env(env::USER, proxy_user.unwrap_or(&context.user));
    draft.add_env(env::APPLICATION_ID, &context.ids.app_id);
    for (name, value) in draft.conf.with_prefix(key::DRIVER_ENV_PREFIX) {
        draft.add_env(&name, &value);
    }
    draft.add_field_env(env::DRIVER_BIND_ADDRESS, "status.podIP");
}
