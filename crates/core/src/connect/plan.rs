//! One server as objects: an application's driver, with the role, the probes and the addresses of a Connect server.

use std::collections::BTreeMap;

use firesteel_api::validate::Problem;
use firesteel_api::{names, pod_spec};
use firesteel_spark::driver::Object;
use firesteel_spark::names::{key, port};
use firesteel_spark::version::VersionError;
use firesteel_spark::{SparkConf, SparkVersion, Templates};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, Pod, PodTemplateSpec, Probe, ResourceRequirements, Service, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::application::{self, Application, in_terms_of_servers};
use super::{Subject, service};
use crate::conf::{self, Extras};
use crate::footprint::Footprint;
use crate::overlay::{self, DRIVER_CONTAINERS, EXECUTOR_CONTAINERS, RoleSpec};
use crate::run::{self, Attempt, Driver, Executors, Run};
use crate::{identity, mounts, template};

/// A server may take this long to listen, packages and images aside: 300 times 2 seconds.
const STARTUP: (i32, i32) = (2, 300);
/// Once it has listened, it counts as not ready after 3 times 5 seconds without an answer.
const READINESS: (i32, i32) = (5, 3);

/// One server, ready to be created, and the Service that leads to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub run: Run,
    pub service: Service,
    /// The port of the Connect server.
    pub port: i32,
}

/// Plans one server. The same arguments give the same objects, except for `spark.app.submitTime` and secrets.
pub fn plan(subject: &Subject<'_>, attempt: Attempt, master: &str) -> Result<Plan, Problem> {
    planned(subject, attempt, master, Executors::Unplanned).map(|(plan, _)| plan)
}

/// Plans one server with its executors: the server, and everything it takes of its namespace.
pub fn footprint(subject: &Subject<'_>, attempt: Attempt, master: &str) -> Result<(Plan, Footprint), Problem> {
    planned(subject, attempt, master, Executors::Planned)
}

fn planned(
    subject: &Subject<'_>,
    attempt: Attempt,
    master: &str,
    executors: Executors,
) -> Result<(Plan, Footprint), Problem> {
    let problem = |problem: Problem| Problem {
        path: in_terms_of_servers(&problem.path),
        message: in_terms_of_servers(&problem.message),
    };
    let mut application = application::application(subject.spec);
    application.spec.driver.pod_name = Some(subject.pod_name());
    let bad_version = |e: VersionError| Problem { path: "spec.sparkVersion".to_owned(), message: e.to_string() };
    let version: SparkVersion = application.spec.spark_version.parse().map_err(bad_version)?;
    let submission_id = identity::submission_id(subject.uid, attempt.number);
    let created = u64::try_from(attempt.created.as_millisecond()).unwrap_or_default();
    let ids = identity::ids(subject.uid, attempt.number, created);
    let app_id = ids.app_id.clone();
    // The label of an application would make its controller take the pods for its own.
    let mut labels = subject.labels.clone();
    labels.remove(names::LABEL_APP_NAME);
    let own = own_labels(subject.name, &submission_id);
    let app = conf::Subject {
        name: subject.name,
        namespace: subject.namespace,
        uid: subject.uid,
        labels: &labels,
        spec: &application.spec,
    };

    let server = template::start(subject.spec.server.template.as_ref(), DRIVER_CONTAINERS);
    let mut executor = template::start(subject.spec.executor.template.as_ref(), EXECUTOR_CONTAINERS);
    let extras = Extras {
        labels: &own,
        master,
        version: &version,
        driver_container: &server.container,
        executor_container: &executor.container,
        monitoring: None,
        proxy_base: None,
    };
    let mut command = conf::settings(&app, &extras);
    command.args.own.connect_server = true;
    overlay::apply(&mut executor.pod, &executor.container, &RoleSpec::executor(app.spec, None));
    executor.pod.metadata.owner_references = Some(vec![subject.owner(false)]);
    let templates = Templates { driver: Some(server.pod), executor: Some(executor.pod) };
    let driver = run::driver(&command, ids, templates, &attempt, executors).map_err(problem)?;
    let Driver { plan: planned, grant, executors, warnings } = driver;

    let spec_hash = application::fingerprint(subject.spec);
    let mark = |meta: &mut ObjectMeta| {
        meta.namespace = Some(subject.namespace.to_owned());
        meta.owner_references = Some(vec![subject.owner(true)]);
        meta.labels.get_or_insert_default().extend(own.iter().cloned());
        meta.annotations.get_or_insert_default().extend([
            (names::ANNOTATION_ATTEMPT.to_owned(), attempt.number.to_string()),
            (names::ANNOTATION_SPEC.to_owned(), spec_hash.clone()),
        ]);
    };
    let mut pod = planned.pod;
    overlay::apply(&mut pod, &server.container, &RoleSpec::driver(app.spec, None));
    mark(&mut pod.metadata);
    serve(&mut pod, &server.container, &application, subject.spec.server.template.as_ref());
    mounts::check(&pod, "spec.server", &app.spec.driver.pod)?;
    let mut objects = planned.objects;
    for object in &mut objects {
        mark(object.metadata_mut());
        let labels = object.metadata_mut().labels.get_or_insert_default();
        labels.insert(names::LABEL_CREATED_BY.to_owned(), "true".to_owned());
        if let Object::Service(service) = object {
            lead_to_server(service);
        }
    }
    let grant = grant.map(|mut grant| {
        mark(&mut grant.metadata);
        grant.spec.driver.submission_id = Some(submission_id.clone());
        grant
    });
    let service = service::plan(subject, &application, &ports(&planned.properties, application.port))?;
    let run = Run {
        attempt: attempt.number,
        submission_id,
        app_id,
        spec_hash,
        objects,
        pod,
        grant,
        lost: Vec::new(),
        warnings,
    };
    let mut needs = Footprint::of_driver(&run, "spec.server", "server");
    needs.add_service(&service);
    if let Some(executors) = executors.filter(|_| application.threads.is_none()) {
        if let Ok(plan) = &executors {
            mounts::check(&plan.template, "spec.executor", &app.spec.executor.pod)?;
        }
        needs.add_executors(executors, app.spec);
    }
    Ok((Plan { run, service, port: application.port }, needs))
}

/// Labels by which the operator finds the objects of a server.
fn own_labels(name: &str, submission_id: &str) -> [(String, String); 3] {
    [
        (names::LABEL_CONNECT_NAME.to_owned(), name.to_owned()),
        (names::LABEL_LAUNCHED_BY.to_owned(), "true".to_owned()),
        (names::LABEL_SUBMISSION_ID.to_owned(), submission_id.to_owned()),
    ]
}

/// Turns a driver pod into the pod of a Connect server.
fn serve(pod: &mut Pod, container: &str, application: &Application, given: Option<&PodTemplateSpec>) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(names::LABEL_ROLE.to_owned(), names::ROLE_CONNECT_SERVER.to_owned());
    labels.remove(names::LABEL_APP_NAME);
    let containers = &mut pod.spec.get_or_insert_default().containers;
    let Some(server) = containers.iter_mut().find(|c| c.name == container) else { return };
    if let Some(threads) = application.threads {
        // After the word `driver`, which the image's entry point takes away.
        let at =
            server.args.as_ref().map_or(0, |args| args.iter().position(|arg| arg == "driver").map_or(0, |at| at + 1));
        let args = server.args.get_or_insert_default();
        args.splice(at..at, ["--master".to_owned(), format!("local[{threads}]")]);
    }
    let ports = server.ports.get_or_insert_default();
    if !ports.iter().any(|p| p.container_port == application.port) {
        ports.push(ContainerPort {
            name: Some(port::CONNECT.0.to_owned()),
            container_port: application.port,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        });
    }
    server.startup_probe.get_or_insert_with(|| probe(application.port, STARTUP));
    server.readiness_probe.get_or_insert_with(|| probe(application.port, READINESS));
    let template = given.and_then(|template| template.spec.as_ref());
    let given = template.and_then(|spec| spec.containers.iter().find(|c| c.name == container || c.name.is_empty()));
    if let Some(given) = given.and_then(|container| container.resources.as_ref()) {
        keep_resources(server, given);
    }
}

/// Resources that the template asks for. Spark would overwrite them, but the existing operator does not build this pod
/// with Spark, so they have always counted.
fn keep_resources(server: &mut Container, given: &ResourceRequirements) {
    let resources = server.resources.get_or_insert_default();
    let [requests, limits] = [&given.requests, &given.limits].map(|list| list.clone().unwrap_or_default());
    let names: Vec<String> = requests.keys().chain(limits.keys()).cloned().collect();
    let put = |into: &mut Option<BTreeMap<String, Quantity>>, from: &BTreeMap<String, Quantity>| {
        let into = into.get_or_insert_default();
        names.iter().for_each(|name| drop(into.remove(name)));
        into.extend(from.clone());
    };
    put(&mut resources.requests, &requests);
    put(&mut resources.limits, &limits);
}

fn probe(port: i32, (period, failures): (i32, i32)) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(port), host: None }),
        period_seconds: Some(period),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// The headless Service through which executors reach the server: its pods have another role than a driver's, and
/// executors start before the server accepts clients.
fn lead_to_server(service: &mut Service) {
    let Some(spec) = service.spec.as_mut() else { return };
    spec.publish_not_ready_addresses = Some(true);
    if let Some(selector) = spec.selector.as_mut() {
        selector.insert(names::LABEL_ROLE.to_owned(), names::ROLE_CONNECT_SERVER.to_owned());
        selector.remove(names::LABEL_APP_NAME);
    }
}

/// The ports of the Service for clients.
fn ports(properties: &SparkConf, connect: i32) -> [pod_spec::Port; 4] {
    let number = |key: &str, usual: i32| properties.get(key).and_then(|text| text.trim().parse().ok()).unwrap_or(usual);
    let named = |name: &str, container_port: i32| pod_spec::Port {
        name: name.to_owned(),
        container_port,
        protocol: "TCP".to_owned(),
    };
    [
        named(service::CONNECT_PORT, connect),
        named("web-ui", number(key::UI_PORT, port::UI.1)),
        named("driver-rpc", number(key::DRIVER_PORT, port::RPC.1)),
        named("blockmanager", number(key::DRIVER_BLOCK_MANAGER_PORT, port::BLOCK_MANAGER.1)),
    ]
}
