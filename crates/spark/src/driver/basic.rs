//! The driver container and pod as such: image, ports, environment, resources, labels, placement.

use k8s_openapi::api::core::v1::{
    ContainerPort, EnvVar, EnvVarSource, LocalObjectReference, ObjectFieldSelector, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Draft, PlanError, resources, upload};
use crate::names::{DRIVER_CONTAINER, env, key, port};
use crate::submission::MainResource;
use crate::version::Line;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    container(draft)?;
    environment(draft);
    compute(draft)?;
    pod(draft)?;
    draft.set_property(key::DRIVER_POD_NAME, draft.names.pod.clone());
    draft.set_property(key::APP_ID, draft.app_id().to_owned());
    draft.set_property(key::SUBMIT_IN_DRIVER, "true");
    draft.set_property(key::MEMORY_OVERHEAD_FACTOR, resources::java_double(resources::default_factor(draft)?));
    upload::dependencies(draft)
}

fn container(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let conf = draft.conf;
    let image = conf.get(key::DRIVER_IMAGE).or(conf.get(key::IMAGE)).ok_or_else(|| PlanError::Missing {
        key: key::IMAGE.to_owned(),
        remedy: format!(
            "give the image to run, such as --conf {}=apache/spark:{}",
            key::IMAGE,
            draft.submission.version
        ),
    })?;
    let image = if draft.line >= Line::V4_1 {
        image.replace("{{SPARK_VERSION}}", draft.submission.version.as_str())
    } else {
        image.to_owned()
    };
    let pull_policy =
        conf.one_of(key::IMAGE_PULL_POLICY, &["Always", "Never", "IfNotPresent"])?.unwrap_or("IfNotPresent");
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
    let container = &mut draft.container;
    if container.name.is_empty() {
        container.name = DRIVER_CONTAINER.to_owned();
    }
    container.image = Some(image);
    container.image_pull_policy = Some(pull_policy.to_owned());
    container.ports.get_or_insert_default().extend(ports.into_iter().map(|(name, number)| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }));
    if draft.line >= Line::V4_3 {
        let inherited = conf.boolean(key::ALLOW_ESCALATION, false)?;
        let allowed = conf.boolean(key::DRIVER_ALLOW_ESCALATION, inherited)?;
        let context: &mut SecurityContext = container.security_context.get_or_insert_default();
        context.allow_privilege_escalation = Some(allowed);
    }
    Ok(())
}

fn environment(draft: &mut Draft<'_>) {
    let around = draft.around;
    // From 4.3 on the driver runs in the name of the proxy user, where there is one.
    let proxy_user = draft.submission.proxy_user.as_ref().filter(|_| draft.line >= Line::V4_3);
    draft.add_env(env::USER, proxy_user.unwrap_or(&around.user));
    draft.add_env(env::APPLICATION_ID, &around.ids.app_id);
    for (name, value) in draft.conf.with_prefix(key::DRIVER_ENV_PREFIX) {
        draft.add_env(&name, &value);
    }
    draft.container.env.get_or_insert_default().push(EnvVar {
        name: env::DRIVER_BIND_ADDRESS.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "status.podIP".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
}

fn compute(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let request = match draft.conf.get(key::DRIVER_REQUEST_CORES) {
        Some(cores) => cores.to_owned(),
        None => draft.conf.int(key::DRIVER_CORES)?.unwrap_or(1).to_string(),
    };
    let memory = Quantity(format!("{}Mi", resources::driver_memory(draft)?));
    let limit = draft.conf.get(key::DRIVER_LIMIT_CORES).map(|cores| Quantity(cores.to_owned()));
    let devices = resources::devices(&draft.conf)?;
    let resources = draft.container.resources.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    requests.insert("cpu".to_owned(), Quantity(request));
    requests.insert("memory".to_owned(), memory.clone());
    let limits = resources.limits.get_or_insert_default();
    limits.extend(limit.map(|limit| ("cpu".to_owned(), limit)));
    limits.insert("memory".to_owned(), memory);
    limits.extend(devices);
    Ok(())
}

fn pod(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let conf = draft.conf;
    let labels = draft.labels()?;
    let annotations: Vec<_> = conf
        .with_prefix(key::DRIVER_ANNOTATION_PREFIX)
        .into_iter()
        .map(|(name, value)| (name, draft.substitute_ids(&value)))
        .collect();
    let metadata = &mut draft.pod.metadata;
    metadata.name = Some(draft.names.pod.clone());
    metadata.namespace = None;
    metadata.labels.get_or_insert_default().extend(labels);
    if !annotations.is_empty() {
        metadata.annotations.get_or_insert_default().extend(annotations);
    }

    let mut selectors = conf.with_prefix(key::NODE_SELECTOR_PREFIX);
    selectors.extend(conf.with_prefix(key::DRIVER_NODE_SELECTOR_PREFIX));
    let spec = draft.spec();
    spec.restart_policy = Some("Never".to_owned());
    if !selectors.is_empty() {
        spec.node_selector.get_or_insert_default().extend(selectors);
    }
    let secrets = conf.list(key::IMAGE_PULL_SECRETS);
    if !secrets.is_empty() {
        spec.image_pull_secrets
            .get_or_insert_default()
            .extend(secrets.into_iter().map(|name| LocalObjectReference { name: name.to_owned() }));
    }
    if let Some(name) = conf.get(key::DRIVER_SCHEDULER).or(conf.get(key::SCHEDULER)) {
        spec.scheduler_name = Some(name.to_owned());
    }
    Ok(())
}

/// Whether the application is Python or R, which need more memory outside the JVM.
pub(super) fn is_non_jvm(main: &MainResource) -> bool {
    match main {
        MainResource::Python(_) | MainResource::R(_) => true,
        MainResource::Jar(_) | MainResource::None => false,
    }
}
