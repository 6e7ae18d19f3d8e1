//! A SparkConnect read as an application: its driver is the Connect server.
//!
//! Fields have other paths there (`spec.driver` is `spec.server` here); [`in_terms_of_servers`] translates messages back.

use firesteel_api::validate::{self, Problem};
use firesteel_api::{SparkApplicationSpec, SparkConnectSpec, defaults};
use firesteel_spark::SparkVersion;
use firesteel_spark::names::{CONNECT_SERVER, NO_RESOURCE, key, port};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::json;

use super::Subject;
use crate::identity;
use crate::overlay::{DRIVER_CONTAINERS, EXECUTOR_CONTAINERS};
use crate::template;

/// The longest name of a SparkConnect: with `-server` it names a Service.
const LONGEST_NAME: usize = 56;

/// A SparkConnect as an application.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    pub spec: SparkApplicationSpec,
    /// Without executors: queries run in the server itself, on this many threads.
    pub threads: Option<u32>,
    /// The port of the Connect server.
    pub port: i32,
}

/// Reads a specification. Nothing is checked: see [`problems`].
pub fn application(spec: &SparkConnectSpec) -> Application {
    let mut app = SparkApplicationSpec {
        type_: "Scala".to_owned(),
        mode: Some("cluster".to_owned()),
        spark_version: spec.spark_version.clone(),
        image: spec.image.clone().filter(|image| !image.is_empty()),
        main_class: Some(CONNECT_SERVER.to_owned()),
        main_application_file: Some(NO_RESOURCE.to_owned()),
        spark_conf: spec.spark_conf.clone(),
        dynamic_allocation: spec.dynamic_allocation.clone(),
        ..SparkApplicationSpec::default()
    };
    // The existing operator tolerates the prefix here, but not in applications.
    let without = |name: &String| name.strip_prefix(key::HADOOP_PREFIX).unwrap_or(name).to_owned();
    app.hadoop_conf = spec.hadoop_conf.iter().map(|(name, value)| (without(name), value.clone())).collect();
    let (server, executor) = (&spec.server, &spec.executor);
    (app.driver.pod.cores, app.driver.pod.memory) = (server.cores, server.memory.clone());
    (app.executor.pod.cores, app.executor.pod.memory) = (executor.cores, executor.memory.clone());
    // An image in a template wins, as in the existing operator.
    app.driver.pod.image = image_of(server.template.as_ref(), DRIVER_CONTAINERS);
    app.executor.pod.image = image_of(executor.template.as_ref(), EXECUTOR_CONTAINERS);
    app.driver.pod.template.clone_from(&server.template);
    app.executor.pod.template.clone_from(&executor.template);
    if app.spark_version.trim().is_empty() {
        let image = app.driver.pod.image.as_ref().or(app.image.as_ref());
        let version = image.and_then(|image| SparkVersion::from_image(image));
        app.spark_version = version.map(|version| version.as_str().to_owned()).unwrap_or_default();
    }
    let dynamic = defaults::dynamic_allocation(&app);
    let zero = || conf(spec, key::EXECUTOR_INSTANCES).is_some_and(|text| text.trim() == "0");
    let none = !dynamic && executor.instances.map_or_else(zero, |count| count == 0);
    // Spark refuses to start with 0 instances; with dynamic allocation the field says no more than its absence.
    app.executor.instances = executor.instances.filter(|count| *count != 0);
    let cores = || conf(spec, key::DRIVER_CORES).and_then(|text| text.trim().parse().ok());
    let threads = none.then(|| server.cores.and_then(|cores| u32::try_from(cores).ok()).or_else(cores).unwrap_or(1));
    if none {
        // Nothing may ask for executors.
        app.spark_conf.remove(key::ALLOCATOR);
        app.spark_conf.remove(key::EXECUTOR_INSTANCES);
    }
    let port = conf(spec, key::CONNECT_PORT).and_then(|text| text.trim().parse().ok()).unwrap_or(port::CONNECT.1);
    Application { spec: app, threads, port }
}

fn conf<'a>(spec: &'a SparkConnectSpec, key: &str) -> Option<&'a str> {
    spec.spark_conf.get(key).map(String::as_str)
}

fn image_of(pod: Option<&PodTemplateSpec>, usual: &[&str]) -> Option<String> {
    let start = template::start(pod, usual);
    let containers = start.pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let container = containers.into_iter().find(|container| container.name == start.container);
    container.and_then(|container| container.image).filter(|image| !image.is_empty())
}

/// Everything that is wrong with a SparkConnect and can be said without planning it.
pub fn problems(subject: &Subject<'_>) -> Vec<Problem> {
    let app = application(subject.spec).spec;
    let mut found: Vec<Problem> = validate::problems(subject.name, subject.namespace, &app)
        .into_iter()
        .map(|problem| Problem {
            path: in_terms_of_servers(&problem.path),
            message: in_terms_of_servers(&problem.message),
        })
        .collect();
    if subject.name.len() > LONGEST_NAME {
        found.push(Problem {
            path: "metadata.name".to_owned(),
            message: format!("{:?} is longer than {LONGEST_NAME} characters", subject.name),
        });
    }
    if subject.spec.executor.instances.is_some_and(|count| count < 0) {
        found.retain(|problem| problem.path != "spec.executor.instances");
        found.push(Problem {
            path: "spec.executor.instances".to_owned(),
            message: "must not be negative; 0 runs queries in the server itself".to_owned(),
        });
    }
    if let Some(text) = conf(subject.spec, key::CONNECT_PORT)
        && !text.trim().parse::<u16>().is_ok_and(|port| port > 0)
    {
        found.push(Problem {
            path: format!("spec.sparkConf[{}]", key::CONNECT_PORT),
            message: format!("{text:?} is not a port that clients can be told; write a number from 1 to 65535"),
        });
    }
    if let Some(service) = &subject.spec.server.service {
        found.extend(validate::embedded::service("spec.server.service", service));
    }
    found.dedup();
    found
}

/// A short hash of everything in a specification that a server depends on. The Service for clients is not part of it: it
/// changes without a new server.
pub fn fingerprint(spec: &SparkConnectSpec) -> String {
    let app = application(spec);
    identity::digest(&json!([defaults::canonical(&app.spec), app.threads]))
}

/// A message about an application, about a Connect server instead.
pub fn in_terms_of_servers(text: &str) -> String {
    const WORDS: [(&str, &str); 13] = [
        ("spec.driver.serviceAccount", "spec.server.template.spec.serviceAccountName"),
        ("spec.executor.serviceAccount", "spec.executor.template.spec.serviceAccountName"),
        ("spec.driver.kubernetesMaster", "the operator's own API server"),
        ("spec.driver.memoryOverhead", "spec.sparkConf[spark.driver.memoryOverhead]"),
        ("spec.driver.image", "spec.image"),
        ("spec.executor.image", "spec.image"),
        ("an image for each role", "an image in both templates"),
        ("spec.deps.packages", "spec.sparkConf[spark.jars.packages]"),
        ("spec.deps.jars", "spec.sparkConf[spark.jars]"),
        ("spec.driver", "spec.server"),
        ("the driver", "the server"),
        ("driver pod", "server pod"),
        ("the application", "the SparkConnect"),
    ];
    WORDS.iter().fold(text.to_owned(), |text, (of_application, of_server)| text.replace(of_application, of_server))
}
