//! What driver and executor pods have in common: the draft that feature steps work on, and the steps that differ
//! between the two only in the names of settings ([`Role`]).
//!
//! A draft starts as the pod template (or an empty pod); Spark's container is kept separately until all steps are
//! done. Nothing here talks to a cluster.

pub(crate) mod basic;
pub(crate) mod check;
pub(crate) mod local_dirs;
pub(crate) mod object;
pub(crate) mod resources;
pub(crate) mod role;
pub(crate) mod secrets;
pub(crate) mod settings;
pub(crate) mod template;
pub(crate) mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::context::PlanContext;
use crate::input::Input;
use crate::names::{key, label};
use crate::resource_name;
use crate::submission::{SparkConf, Submission};
use crate::version::Line;

pub use object::{Object, Upload};
use role::Role;
use settings::Settings;

/// Why planning failed. Each message names the key or file at fault and says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A setting's value cannot be parsed; the problem names the value and says what to write.
    #[error("{key}: {problem}")]
    Invalid { key: String, problem: String },
    /// A setting has a value that cannot work.
    #[error("{key}={value}: {problem}; {remedy}")]
    Value { key: String, value: String, problem: String, remedy: String },
    /// A required setting is missing.
    #[error("{key} is not set; {remedy}")]
    Missing { key: String, remedy: String },
    /// A setting cannot be combined with something else.
    #[error("{key} and {other} are mutually exclusive; {remedy}")]
    Exclusive { key: String, other: String, remedy: String },
    /// A file that a setting or a variable names cannot be used.
    #[error("{input}: cannot use file {path}: {problem}; {remedy}")]
    File { input: Box<Input>, path: String, problem: String, remedy: String },
    /// A local file has to be uploaded, but no upload path is set.
    #[error(
        "{} is not set; {input} names the local file {uri}: set it to an upload location (s3a://, gs://, abfss:// or a \
         shared file:// path), or use a local:// path inside the image",
        key::UPLOAD_PATH
    )]
    NoUploadPath { input: Input, uri: String },
    /// The API server would refuse the object.
    #[error("the API server would refuse {object}: {problem}; {remedy}")]
    Object { input: Box<Input>, object: String, problem: String, remedy: String },
    /// Custom feature steps are Java classes, which cannot run here.
    #[error(
        "{key}={value}: custom feature steps are Java classes, which Firesteel does not run; use a pod template \
         ({template}) instead, or {instead}"
    )]
    CustomStep { key: String, value: String, template: &'static str, instead: &'static str },
}

impl PlanError {
    /// What is at fault.
    pub fn input(&self) -> Input {
        match self {
            PlanError::Invalid { key, .. }
            | PlanError::Value { key, .. }
            | PlanError::Missing { key, .. }
            | PlanError::Exclusive { key, .. }
            | PlanError::CustomStep { key, .. } => Input::key(key),
            PlanError::File { input, .. } | PlanError::Object { input, .. } => (**input).clone(),
            PlanError::NoUploadPath { input, .. } => input.clone(),
        }
    }
}

/// Names of the objects in a plan.
pub(crate) struct Names {
    /// Prefix of most object names.
    pub(crate) prefix: String,
    pub(crate) pod: String,
    pub(crate) config_map: String,
}

impl Names {
    /// Prefix of names that belong to one pod. For a driver it may differ from the pod's name, which can be set.
    fn pod_part(&self, role: &Role) -> String {
        match role.executor_id {
            "" => format!("{}-driver", self.prefix),
            id => format!("{}-exec-{id}", self.prefix),
        }
    }
}

/// A plan in the making: what feature steps read and write.
pub(crate) struct Draft<'a> {
    pub(crate) role: &'static Role,
    pub(crate) submission: &'a Submission,
    pub(crate) context: &'a PlanContext<'a>,
    /// The environment in which Spark would build this pod: the submitter's for a driver, the driver's for executors.
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) conf: Settings<'a>,
    pub(crate) line: Line,
    pub(crate) names: Names,
    pub(crate) namespace: String,
    pub(crate) pod: Pod,
    /// Spark's container; added to the pod as its last container when all steps are done.
    pub(crate) container: Container,
    /// What the driver will read as `spark.properties`.
    pub(crate) properties: SparkConf,
    pub(crate) objects: Vec<Object>,
    pub(crate) uploads: Vec<Upload>,
    pub(crate) warnings: Vec<String>,
}

impl Draft<'_> {
    pub(crate) fn app_id(&self) -> &str {
        &self.context.ids.app_id
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

    /// Adds a variable whose value is a field of the pod.
    pub(crate) fn add_field_env(&mut self, name: &str, field: &str) {
        self.container.env.get_or_insert_default().push(EnvVar {
            name: name.to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    api_version: Some("v1".to_owned()),
                    field_path: field.to_owned(),
                }),
                ..EnvVarSource::default()
            }),
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

    /// Metadata of an object that goes with the pod.
    pub(crate) fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), namespace: Some(self.namespace.clone()), ..ObjectMeta::default() }
    }

    pub(crate) fn set_property(&mut self, key: &str, value: impl Into<String>) {
        self.properties.insert(key.to_owned(), value.into());
    }

    /// Labels of the pod: Spark's, and those from settings.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>, PlanError> {
        let version = &self.submission.version;
        let mut reserved = vec![
            (label::VERSION, version.as_str().to_owned()),
            (label::APP_ID, self.app_id().to_owned()),
            (label::APP_NAME, resource_name::label_value(self.conf.app_name())),
            (label::ROLE, self.role.word.to_owned()),
        ];
        reserved.extend(self.role.own_labels.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let mut labels = self.conf.with_prefix(self.role.label_prefix);
        for (name, _) in &reserved {
            if let Some(value) = labels.get(*name) {
                return Err(PlanError::Value {
                    key: format!("{}{name}", self.role.label_prefix),
                    value: value.clone(),
                    problem: format!("the label {name} is reserved for Spark's own bookkeeping"),
                    remedy: "use another label".to_owned(),
                });
            }
        }
        if self.line >= Line::V4_0 {
            labels.values_mut().for_each(|value| *value = self.substitute_ids(value));
        }
        // An assumed version is not a label: the executors' own label would contradict it.
        reserved.retain(|(name, _)| !(version.is_assumed() && *name == label::VERSION));
        labels.extend(reserved.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(labels)
    }

    /// Replaces `{{APP_ID}}` and `{{EXECUTOR_ID}}`; on a driver, the latter becomes empty.
    pub(crate) fn substitute_ids(&self, text: &str) -> String {
        text.replace("{{APP_ID}}", self.app_id()).replace("{{EXECUTOR_ID}}", self.role.executor_id)
    }
}

/// A feature step: its class in Spark (by which it can be excluded), the first line that has it, and its function.
pub(crate) type Step = (&'static str, Line, fn(&mut Draft<'_>) -> Result<(), PlanError>);

/// Refuses custom steps, which are Java classes.
pub(crate) fn refuse_custom_steps(conf: &Settings<'_>, role: &Role) -> Result<(), PlanError> {
    match conf.get(role.feature_steps).filter(|v| !v.trim().is_empty()) {
        None => Ok(()),
        Some(value) => Err(PlanError::CustomStep {
            key: role.feature_steps.to_owned(),
            value: value.to_owned(),
            template: role.template,
            instead: role.instead,
        }),
    }
}

/// Applies the line's steps in order, except excluded ones.
pub(crate) fn apply(draft: &mut Draft<'_>, steps: &[Step]) -> Result<(), PlanError> {
    let excluded = if draft.line >= Line::V4_1 { draft.conf.list(draft.role.excluded_steps) } else { Vec::new() };
    for (class, since, apply) in steps {
        let is_excluded = excluded.iter().any(|e| e.rsplit('.').next() == Some(class) && e.contains(".features."));
        if draft.line >= *since && !is_excluded {
            apply(draft)?;
        }
    }
    Ok(())
}
