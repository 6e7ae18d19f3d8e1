//! The driver plan: from a [`Submission`] to the driver pod and the objects beside it.
//!
//! A plan starts as the pod template (or an empty pod) and goes through the same ordered feature steps as in Spark's
//! own client; each step is a small function in a module of its own, and [`STEPS`] is the list. What Spark's client
//! does after its steps (configuration volume, `spark.properties`) comes last, then the whole is checked against the
//! rules by which an API server would refuse it.
//!
//! Nothing here talks to a cluster, and nothing is created: a plan is a value.

mod basic;
mod check;
mod command;
mod config_map;
mod credentials;
mod executor_template;
mod hadoop;
mod kerberos;
mod local_dirs;
mod network_policy;
mod resources;
mod secrets;
mod service;
mod settings;
mod template;
mod upload;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, PersistentVolumeClaim, Pod, PodSpec, Secret, Service, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names::{key, label};
use crate::resource_name;
use crate::submission::{SparkConf, Submission};
use crate::surroundings::Surroundings;
use crate::version::Line;

use settings::Settings;

/// Everything that one submission creates, before anything is created.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverPlan {
    pub app_id: String,
    pub namespace: String,
    /// The driver pod, without namespace and owner.
    pub pod: Pod,
    /// Everything beside the pod; to be owned by it (`submit`) or by the SparkApplication (operator).
    pub objects: Vec<Object>,
    /// Local files that must be shipped before the driver starts.
    pub uploads: Vec<Upload>,
    /// What the driver will read as `spark.properties`.
    pub properties: SparkConf,
    /// Remarks for the submitter; nothing that stops the plan.
    pub warnings: Vec<String>,
}

impl DriverPlan {
    /// The driver pod's name.
    pub fn pod_name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }
}

/// One object beside the driver pod. Its namespace is set, its owner is not.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan holds a handful of them")]
pub enum Object {
    ConfigMap(ConfigMap),
    Service(Service),
    Secret(Secret),
    PersistentVolumeClaim(PersistentVolumeClaim),
    NetworkPolicy(NetworkPolicy),
}

impl Object {
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Object::ConfigMap(o) => &o.metadata,
            Object::Service(o) => &o.metadata,
            Object::Secret(o) => &o.metadata,
            Object::PersistentVolumeClaim(o) => &o.metadata,
            Object::NetworkPolicy(o) => &o.metadata,
        }
    }

    pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Object::ConfigMap(o) => &mut o.metadata,
            Object::Service(o) => &mut o.metadata,
            Object::Secret(o) => &mut o.metadata,
            Object::PersistentVolumeClaim(o) => &mut o.metadata,
            Object::NetworkPolicy(o) => &mut o.metadata,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Object::ConfigMap(_) => "ConfigMap",
            Object::Service(_) => "Service",
            Object::Secret(_) => "Secret",
            Object::PersistentVolumeClaim(_) => "PersistentVolumeClaim",
            Object::NetworkPolicy(_) => "NetworkPolicy",
        }
    }

    /// The object as JSON, apiVersion and kind included.
    pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
        match self {
            Object::ConfigMap(o) => serde_json::to_value(o),
            Object::Service(o) => serde_json::to_value(o),
            Object::Secret(o) => serde_json::to_value(o),
            Object::PersistentVolumeClaim(o) => serde_json::to_value(o),
            Object::NetworkPolicy(o) => serde_json::to_value(o),
        }
    }
}

/// A local file and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// An absolute path on the submitting side.
    pub from: String,
    /// The full target URI, below `spark.kubernetes.file.upload.path`.
    pub to: String,
}

/// Why no plan could be made. Each message names the key or file at fault, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A setting does not hold the kind of value it takes; the problem says what it holds and what to write.
    #[error("{key}: {problem}")]
    Invalid { key: String, problem: String },
    /// A setting has a value that cannot work.
    #[error("{key}={value}: {problem}; {remedy}")]
    Value { key: String, value: String, problem: String, remedy: String },
    /// A setting is needed and absent.
    #[error("{key} is not set; {remedy}")]
    Missing { key: String, remedy: String },
    /// Settings that exclude each other.
    #[error("{one} and {other} exclude each other; {remedy}")]
    Exclusive { one: String, other: String, remedy: String },
    /// A file that a setting names cannot be used.
    #[error("{key}: cannot use file {path}: {problem}; {remedy}")]
    File { key: String, path: String, problem: String, remedy: String },
    /// The API server would refuse the object.
    #[error("the API server would refuse {object}: {problem}; {remedy}")]
    Object { object: String, problem: String, remedy: String },
    /// Java classes cannot run here.
    #[error(
        "{key}={value}: custom feature steps are Java classes, which Firesteel does not run; use a pod template \
         ({template}) instead, or Spark's own spark-submit",
        template = key::DRIVER_TEMPLATE
    )]
    CustomStep { key: String, value: String },
}

/// Names of everything in one plan.
pub(crate) struct Names {
    /// What the names of most objects begin with.
    pub(crate) prefix: String,
    pub(crate) pod: String,
    pub(crate) service: String,
    pub(crate) config_map: String,
}

/// A plan in the making: what feature steps read and write.
pub(crate) struct Draft<'a> {
    pub(crate) submission: &'a Submission,
    pub(crate) around: &'a Surroundings<'a>,
    pub(crate) conf: Settings<'a>,
    pub(crate) line: Line,
    pub(crate) names: Names,
    pub(crate) namespace: String,
    pub(crate) pod: Pod,
    /// The container Spark runs in; joins the pod, as its last, when all steps are done.
    pub(crate) container: Container,
    pub(crate) properties: SparkConf,
    pub(crate) objects: Vec<Object>,
    pub(crate) uploads: Vec<Upload>,
    pub(crate) warnings: Vec<String>,
}

impl Draft<'_> {
    pub(crate) fn app_id(&self) -> &str {
        &self.around.ids.app_id
    }

    pub(crate) fn spec(&mut self) -> &mut PodSpec {
        self.pod.spec.get_or_insert_default()
    }

    pub(crate) fn add_env(&mut self, name: &str, value: &str) {
        self.container.env.get_or_insert_default().push(EnvVar {
            name: name.to_owned(),
            value: Some(value.to_owned()).filter(|v| !v.is_empty()),
            ..EnvVar::default()
        });
    }

    pub(crate) fn add_volume(&mut self, volume: Volume) {
        self.spec().volumes.get_or_insert_default().push(volume);
    }

    pub(crate) fn add_mount(&mut self, name: &str, path: &str) {
        self.container.volume_mounts.get_or_insert_default().push(VolumeMount {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            ..VolumeMount::default()
        });
    }

    /// Metadata of an object beside the pod.
    pub(crate) fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), namespace: Some(self.namespace.clone()), ..ObjectMeta::default() }
    }

    pub(crate) fn set_property(&mut self, key: &str, value: impl Into<String>) {
        self.properties.insert(key.to_owned(), value.into());
    }

    /// Labels of the driver pod, which the service also selects by.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>, PlanError> {
        let reserved = [
            (label::VERSION, self.submission.version.as_str().to_owned()),
            (label::APP_ID, self.app_id().to_owned()),
            (label::APP_NAME, resource_name::label_value(self.conf.app_name())),
            (label::ROLE, label::ROLE_DRIVER.to_owned()),
        ];
        let mut labels = self.conf.with_prefix(key::DRIVER_LABEL_PREFIX);
        for (name, _) in &reserved {
            if let Some(value) = labels.get(*name) {
                return Err(PlanError::Value {
                    key: format!("{}{name}", key::DRIVER_LABEL_PREFIX),
                    value: value.clone(),
                    problem: format!("the label {name} is reserved for Spark's own bookkeeping"),
                    remedy: "use another label".to_owned(),
                });
            }
        }
        if self.line >= Line::V4_0 {
            labels.values_mut().for_each(|value| *value = self.substitute_ids(value));
        }
        labels.extend(reserved.map(|(name, value)| (name.to_owned(), value)));
        Ok(labels)
    }

    /// Replaces `{{APP_ID}}`; there is no executor here, so `{{EXECUTOR_ID}}` becomes nothing.
    pub(crate) fn substitute_ids(&self, text: &str) -> String {
        text.replace("{{APP_ID}}", self.app_id()).replace("{{EXECUTOR_ID}}", "")
    }
}

/// A feature step: its class in Spark (by which it can be excluded), the line that has it, and what it does.
type Step = (&'static str, Line, fn(&mut Draft<'_>) -> Result<(), PlanError>);

/// All steps, in Spark's order.
const STEPS: &[Step] = &[
    ("BasicDriverFeatureStep", Line::V3_5, basic::apply),
    ("DriverKubernetesCredentialsFeatureStep", Line::V3_5, credentials::apply),
    ("DriverServiceFeatureStep", Line::V3_5, service::apply),
    ("NetworkPolicyFeatureStep", Line::V4_2, network_policy::apply),
    ("MountSecretsFeatureStep", Line::V3_5, secrets::mount),
    ("EnvSecretsFeatureStep", Line::V3_5, secrets::expose),
    ("MountVolumesFeatureStep", Line::V3_5, volumes::apply),
    ("DriverCommandFeatureStep", Line::V3_5, command::apply),
    ("HadoopConfDriverFeatureStep", Line::V3_5, hadoop::apply),
    ("KerberosConfDriverFeatureStep", Line::V3_5, kerberos::apply),
    ("PodTemplateConfigMapStep", Line::V3_5, executor_template::apply),
    ("LocalDirsFeatureStep", Line::V3_5, local_dirs::apply),
];

/// Plans a driver. Pure: the same arguments give the same plan.
pub fn plan(submission: &Submission, around: &Surroundings<'_>) -> Result<DriverPlan, PlanError> {
    let line = submission.version.line();
    let expanded = settings::expand(&submission.conf, &around.env);
    let conf = Settings::new(&submission.conf, &expanded, line);
    if let Some(value) = conf.get(key::DRIVER_FEATURE_STEPS).filter(|v| !v.trim().is_empty()) {
        return Err(PlanError::CustomStep { key: key::DRIVER_FEATURE_STEPS.to_owned(), value: value.to_owned() });
    }
    let excluded = if line >= Line::V4_1 { conf.list(key::DRIVER_EXCLUDED_STEPS) } else { Vec::new() };
    let mut warnings = Vec::new();
    let (pod, container) = template::load(&conf, around, &mut warnings)?;
    let mut draft = Draft {
        submission,
        around,
        conf,
        line,
        names: name_objects(&conf, around, &mut warnings),
        namespace: conf.get(key::NAMESPACE).unwrap_or("default").to_owned(),
        pod,
        container,
        properties: submission.conf.clone(),
        objects: Vec::new(),
        uploads: Vec::new(),
        warnings,
    };
    for (class, since, apply) in STEPS {
        let is_excluded = excluded.iter().any(|e| e.rsplit('.').next() == Some(class) && e.contains(".features."));
        if line >= *since && !is_excluded {
            apply(&mut draft)?;
        }
    }
    config_map::apply(&mut draft)?;
    check::apply(&draft)?;
    let container = std::mem::take(&mut draft.container);
    draft.spec().containers.push(container);
    Ok(DriverPlan {
        app_id: around.ids.app_id.clone(),
        namespace: draft.namespace,
        pod: draft.pod,
        objects: draft.objects,
        uploads: draft.uploads,
        properties: draft.properties,
        warnings: draft.warnings,
    })
}

/// The longest name a Service may have.
const MAX_SERVICE_NAME: usize = 63;

fn name_objects(conf: &Settings<'_>, around: &Surroundings<'_>, warnings: &mut Vec<String>) -> Names {
    let prefix = resource_name::prefix(conf.app_name(), &around.ids.resources);
    let pod = conf.get(key::DRIVER_POD_NAME).map_or_else(|| format!("{prefix}-driver"), str::to_owned);
    let mut service = format!("{prefix}-driver-svc");
    if service.len() > MAX_SERVICE_NAME {
        let shorter = format!("spark-{}-driver-svc", around.ids.service);
        warnings.push(format!(
            "the driver service is named {shorter}, because {service} is longer than {MAX_SERVICE_NAME} characters"
        ));
        service = shorter;
    }
    Names { prefix, pod, service, config_map: format!("spark-drv-{}-conf-map", around.ids.config_map) }
}
