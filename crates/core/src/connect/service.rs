//! The Service that clients connect to. It belongs to the SparkConnect, not to one server, so its address stays the same
//! when a server is replaced.
//!
//! A Service in the specification is kept as it is written, its ports included. Only the selector is always ours, and
//! ports it lacks are added.

use firesteel_api::names;
use firesteel_api::pod_spec::Port;
use firesteel_api::validate::Problem;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Subject;
use super::application::Application;
use crate::identity;

/// The name of the port of the Connect server, as in the existing operator.
pub const CONNECT_PORT: &str = "spark-connect-server";

/// Plans the Service. `wanted` are the server's ports, that of the Connect server first.
pub(super) fn plan(subject: &Subject<'_>, application: &Application, wanted: &[Port]) -> Result<Service, Problem> {
    let mut service = subject.spec.server.service.clone().unwrap_or_default();
    service.status = None;
    let spec = service.spec.get_or_insert_default();
    if spec.type_.as_deref() == Some("ExternalName") {
        return Err(Problem {
            path: "spec.server.service.spec.type".to_owned(),
            message: "an ExternalName Service leads to no pod; use ClusterIP, NodePort or LoadBalancer".to_owned(),
        });
    }
    spec.selector = Some(
        [
            (names::LABEL_CONNECT_NAME.to_owned(), subject.name.to_owned()),
            (names::LABEL_ROLE.to_owned(), names::ROLE_CONNECT_SERVER.to_owned()),
        ]
        .into(),
    );
    let ports = spec.ports.get_or_insert_default();
    for port in wanted.iter().filter(|port| port.container_port > 0) {
        let leads = |given: &ServicePort| match &given.target_port {
            Some(IntOrString::Int(number)) if *number != 0 => *number == port.container_port,
            Some(IntOrString::String(name)) => {
                port.container_port == application.port && name == firesteel_spark::names::port::CONNECT.0
            }
            Some(IntOrString::Int(_)) | None => given.port == port.container_port,
        };
        let taken = |given: &ServicePort| {
            given.name.as_deref() == Some(port.name.as_str()) || given.port == port.container_port
        };
        if ports.iter().any(leads) || ports.iter().any(taken) {
            continue;
        }
        ports.push(ServicePort {
            name: Some(port.name.clone()),
            port: port.container_port,
            target_port: Some(IntOrString::Int(port.container_port)),
            protocol: Some(port.protocol.clone()),
            app_protocol: match port.name.as_str() {
                CONNECT_PORT => Some("grpc".to_owned()),
                "web-ui" => Some("http".to_owned()),
                _ => None,
            },
            ..ServicePort::default()
        });
    }
    // A Service with several ports needs a name for each.
    for port in ports.iter_mut().filter(|port| port.name.as_deref().unwrap_or_default().is_empty()) {
        port.name = Some(format!("port-{}", port.port));
    }
    let given = service.metadata;
    let mut metadata = ObjectMeta {
        name: Some(subject.service_name()),
        namespace: Some(subject.namespace.to_owned()),
        labels: given.labels,
        annotations: given.annotations,
        owner_references: Some(vec![subject.owner(true)]),
        ..ObjectMeta::default()
    };
    let labels = metadata.labels.get_or_insert_default();
    labels.extend([
        (names::LABEL_CONNECT_NAME.to_owned(), subject.name.to_owned()),
        (names::LABEL_CREATED_BY.to_owned(), "true".to_owned()),
        (names::LABEL_EXPOSES.to_owned(), names::ROLE_CONNECT_SERVER.to_owned()),
    ]);
    labels.remove(names::LABEL_SUBMISSION_ID);
    service.metadata = metadata;
    let hash = identity::digest(&serde_json::to_value(&service).unwrap_or_default());
    let annotations = service.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ANNOTATION_PLAN.to_owned(), hash);
    Ok(service)
}

/// The hash of what a Service was planned from.
pub fn hash(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(names::ANNOTATION_PLAN).map(String::as_str)
}
