//! From the fields of a SparkApplication to Spark configuration, and back from an error to the field.
//!
//! [`fields`] is the table for both directions. The result is what a user would have passed to `spark-submit`, and is resolved
//! like any command line.

mod blame;
mod fields;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use firesteel_api::names;
use firesteel_api::pod_spec::{Port, SparkPodSpec};
use firesteel_api::spark_application::SparkApplicationSpec;
use firesteel_spark::SparkVersion;
use firesteel_spark::args::{ConfArg, RawArgs};
use firesteel_spark::names::{key, label};
use firesteel_spark::submission::Origin;

use crate::monitoring::Monitoring;
use crate::pod::Role;
use fields::{FIELDS, Field, LAST_FIELDS, Manifest, POD_FIELDS, Part, PodManifest, Target};

/// The application around a specification.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    /// With defaults filled in.
    pub spec: &'a SparkApplicationSpec,
}

impl Subject<'_> {
    /// The name of the driver pod.
    pub fn driver_pod_name(&self) -> String {
        let conf = || self.spec.spark_conf.get("spark.kubernetes.driver.pod.name").cloned();
        self.spec.driver.pod_name.clone().or_else(conf).unwrap_or_else(|| format!("{}-driver", self.name))
    }
}

/// What a manifest says about either role.
impl Role {
    const BOTH: [Role; 2] = [Role::Driver, Role::Executor];

    fn pod(self, spec: &SparkApplicationSpec) -> &SparkPodSpec {
        match self {
            Role::Driver => &spec.driver.pod,
            Role::Executor => &spec.executor.pod,
        }
    }

    fn ports(self, spec: &SparkApplicationSpec) -> &[Port] {
        match self {
            Role::Driver => &spec.driver.ports,
            Role::Executor => &spec.executor.ports,
        }
    }

    fn label_prefix(self) -> &'static str {
        match self {
            Role::Driver => key::DRIVER_LABEL_PREFIX,
            Role::Executor => key::EXECUTOR_LABEL_PREFIX,
        }
    }

    /// The path of a field in a manifest; `ROLE` stands for this role.
    fn path(self, path: &str) -> String {
        path.replace(
            "ROLE",
            match self {
                Role::Driver => label::ROLE_DRIVER,
                Role::Executor => label::ROLE_EXECUTOR,
            },
        )
    }
}

/// Inputs of the mapping besides the application.
pub(crate) struct Extras<'a> {
    /// Labels by which the operator finds the pods; nothing overrides them.
    pub(crate) labels: &'a [(String, String)],
    /// The API server, as after `k8s://`.
    pub(crate) master: &'a str,
    pub(crate) version: &'a SparkVersion,
    pub(crate) driver_container: &'a str,
    pub(crate) executor_container: &'a str,
    pub(crate) monitoring: Option<&'a Monitoring>,
    /// The path under which an Ingress serves the driver's web UI.
    pub(crate) proxy_base: Option<&'a str>,
}

/// The command line of an application; each setting remembers the field it came from.
pub(crate) struct Settings<'a> {
    pub(crate) args: RawArgs,
    app: &'a Subject<'a>,
}

/// Builds the command line. Typed fields come after `sparkConf`, so they win.
pub(crate) fn settings<'a>(app: &'a Subject<'a>, extras: &Extras<'_>) -> Settings<'a> {
    let mut out = Settings { args: RawArgs::default(), app };
    out.args.own.spark_version = Some(extras.version.clone());
    out.args.arguments.clone_from(&app.spec.arguments);
    // Before the fields, so that sparkConf can override them.
    if let Some(base) = extras.proxy_base {
        out.set_own(key::UI_PROXY_BASE, base);
        out.set_own(key::UI_PROXY_REDIRECT, "/");
    }
    let manifest = Manifest { app, extras };
    out.write_all(FIELDS, &manifest);
    let containers = [extras.driver_container, extras.executor_container];
    for (at, (role, container)) in Role::BOTH.into_iter().zip(containers).enumerate() {
        let pod = PodManifest { manifest, pod: role.pod(app.spec), container };
        for field in POD_FIELDS {
            out.write(&role.path(field.path), Target::Key(field.keys[at]), (field.parts)(&pod));
        }
        // After the fields, so that nothing overrides them.
        for (name, value) in extras.labels {
            out.set(format!("{}{name}", role.label_prefix()), value, Origin::Field("metadata.name".to_owned()));
        }
    }
    out.write_all(LAST_FIELDS, &manifest);
    if let Some(monitoring) = extras.monitoring {
        out.add_java_option(key::DRIVER_JAVA_OPTIONS, monitoring.driver_java_option.as_deref());
        out.add_java_option(key::EXECUTOR_JAVA_OPTIONS, monitoring.executor_java_option.as_deref());
    }
    out.set_own(key::MASTER, format!("k8s://{}", extras.master));
    out.set_own(key::DEPLOY_MODE, "cluster");
    out.set_own(key::WAIT_APP_COMPLETION, "false");
    out
}

impl Settings<'_> {
    fn write_all(&mut self, fields: &[Field], manifest: &Manifest<'_>) {
        for field in fields {
            self.write(field.path, field.target, (field.parts)(manifest));
        }
    }

    fn write(&mut self, path: &str, target: Target, parts: Vec<Part>) {
        for part in parts {
            match target {
                Target::Key(key) => {
                    let field = Origin::Field(format!("{path}{}", part.place));
                    self.set(format!("{key}{}", part.key), part.value, field);
                }
                Target::Option(_) if part.value.is_empty() => {}
                Target::Option(opt) => {
                    self.args.options.insert(opt, part.value);
                }
                Target::Application => self.args.resource = Some(part.value),
            }
        }
    }

    /// Later settings win, as on a command line.
    fn set(&mut self, key: impl Into<String>, value: impl Into<String>, origin: Origin) {
        self.args.settings.push(ConfArg { key: key.into(), value: value.into(), origin });
    }

    /// Adds a setting without a field.
    fn set_own(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.set(key, value, Origin::Derived("set by the operator"));
    }

    /// Adds a JVM option to those of the fields.
    fn add_java_option(&mut self, key: &str, option: Option<&str>) {
        let Some(option) = option else { return };
        match self.args.settings.iter_mut().rev().find(|setting| setting.key == key) {
            Some(setting) if !setting.value.is_empty() => setting.value = format!("{} {option}", setting.value),
            _ => self.set(key, option, Origin::Field("spec.monitoring.prometheus".to_owned())),
        }
    }
}

/// Labels by which the operator finds its objects.
pub fn operator_labels(app_name: &str, submission_id: &str) -> [(String, String); 3] {
    [
        (names::LABEL_APP_NAME.to_owned(), app_name.to_owned()),
        (names::LABEL_LAUNCHED_BY.to_owned(), "true".to_owned()),
        (names::LABEL_SUBMISSION_ID.to_owned(), submission_id.to_owned()),
    ]
}
