//! The headless service through which executors reach the driver.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Draft, Object, PlanError};
use crate::names::{key, label, port};
use crate::version::Line;

/// The longest name a Service may have.
const MAX_NAME: usize = 63;

pub(super) fn apply(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let conf = draft.conf;
    for key in [key::DRIVER_BIND_ADDRESS, key::DRIVER_HOST] {
        if let Some(value) = conf.get(key) {
            return Err(PlanError::Value {
                key: key.to_owned(),
                value: value.to_owned(),
                problem: "on Kubernetes the driver's address is that of its pod and service".to_owned(),
                remedy: "leave it out".to_owned(),
            });
        }
    }
    // As in Spark, this port does not fall back to spark.blockManager.port, unlike the container's.
    let block_manager = conf.port(key::DRIVER_BLOCK_MANAGER_PORT)?.unwrap_or(port::BLOCK_MANAGER.1);
    let rpc = conf.port(key::DRIVER_PORT)?.unwrap_or(port::RPC.1);
    let mut ports = vec![
        named(port::RPC.0, rpc),
        named(port::BLOCK_MANAGER.0, block_manager),
        named(port::UI.0, conf.port(key::UI_PORT)?.unwrap_or(port::UI.1)),
    ];
    if draft.line >= Line::V4_1 {
        let mut connect = named(port::CONNECT.0, conf.port(key::CONNECT_PORT)?.unwrap_or(port::CONNECT.1));
        if draft.line >= Line::V4_2 {
            connect.app_protocol = Some("grpc".to_owned());
        }
        ports.push(connect);
    }
    let policy = conf.one_of(key::IP_FAMILY_POLICY, &["SingleStack", "PreferDualStack", "RequireDualStack"])?;
    let families = conf.one_of(key::IP_FAMILIES, &["IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4"])?;

    let name = name(draft);
    let mut metadata = draft.metadata(&name);
    let mut labels = std::collections::BTreeMap::from([(label::APP_ID.to_owned(), draft.app_id().to_owned())]);
    labels.extend(conf.with_prefix(key::DRIVER_SERVICE_LABEL_PREFIX));
    metadata.labels = Some(labels);
    metadata.annotations = Some(conf.with_prefix(key::DRIVER_SERVICE_ANNOTATION_PREFIX)).filter(|a| !a.is_empty());
    let publish = draft.line >= Line::V4_3 && conf.boolean(key::PUBLISH_NOT_READY, false)?;
    let spec = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        ip_family_policy: Some(policy.unwrap_or("SingleStack").to_owned()),
        ip_families: Some(families.unwrap_or("IPv4").split(',').map(str::to_owned).collect()),
        selector: Some(draft.labels()?),
        ports: Some(ports),
        publish_not_ready_addresses: publish.then_some(true),
        ..ServiceSpec::default()
    };
    draft.set_property(key::DRIVER_HOST, format!("{name}.{}.svc", draft.namespace));
    draft.set_property(key::DRIVER_PORT, rpc.to_string());
    draft.set_property(key::DRIVER_BLOCK_MANAGER_PORT, block_manager.to_string());
    draft.objects.push(Object::Service(Service { metadata, spec: Some(spec), ..Service::default() }));
    Ok(())
}

fn name(draft: &mut Draft<'_>) -> String {
    let usual = format!("{}-driver-svc", draft.names.prefix);
    if usual.len() <= MAX_NAME {
        return usual;
    }
    let shorter = format!("spark-{}-driver-svc", draft.context.ids.service);
    draft
        .warnings
        .push(format!("the driver service is named {shorter}, because {usual} is longer than {MAX_NAME} characters"));
    shorter
}

fn named(name: &str, number: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: number,
        target_port: Some(IntOrString::Int(number)),
        ..ServicePort::default()
    }
}
