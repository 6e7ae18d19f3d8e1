//! The driver plan: from a [`Submission`] to the driver pod and the objects beside it.
//!
//! A plan starts as the pod template (or an empty pod) and goes through the same ordered feature steps as in Spark's
//! client. Each step is a small function in its own module; [`STEPS`] lists them. What Spark's client does after its
//! steps (configuration volume, `spark.properties`) comes last. The result is then checked against the API server's
//! validation rules.
//!
//! Nothing here talks to a cluster or creates anything: a plan is a value.

mod basic;
mod command;
mod config_map;
mod credentials;
mod executor_template;
mod hadoop;
mod kerberos;
mod network_policy;
mod service;
mod upload;

use k8s_openapi::api::core::v1::Pod;

use crate::context::PlanContext;
use crate::names::key;
use crate::pod::{Draft, Names, Step, check, local_dirs, role, secrets, settings, template, volumes};
use crate::resource_name;
use crate::submission::{SparkConf, Submission};
use crate::version::Line;

use settings::Settings;

pub use crate::pod::{Object, PlanError, Upload};

/// Everything that one submission creates, before anything is created.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverPlan {
    pub app_id: String,
    pub namespace: String,
    /// The driver pod, without namespace and owner.
    pub pod: Pod,
    /// The objects besides the pod, to be owned by it (`submit`) or by the SparkApplication (operator).
    pub objects: Vec<Object>,
    /// Local files to upload before the driver starts.
    pub uploads: Vec<Upload>,
    /// What the driver will read as `spark.properties`.
    pub properties: SparkConf,
    /// Warnings for the submitter; none of them prevents the plan.
    pub warnings: Vec<String>,
}

impl DriverPlan {
    /// The driver pod's name.
    pub fn pod_name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Makes one ConfigMap of the two that Spark's client makes for a driver's configuration and its executors' template.
    pub fn join_config_maps(&mut self) {
        executor_template::join(self);
    }
}

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

/// Plans a driver. Pure.
pub fn plan(submission: &Submission, context: &PlanContext<'_>) -> Result<DriverPlan, PlanError> {
    let line = submission.version.line();
    let expanded = settings::expand(&submission.conf, &context.env);
    let conf = Settings::new(&submission.conf, &expanded, line);
    crate::pod::refuse_custom_steps(&conf, &role::DRIVER)?;
    let mut warnings = Vec::new();
    let (pod, container) = template::load(&role::DRIVER, &conf, context, &mut warnings)?;
    let mut draft = Draft {
        role: &role::DRIVER,
        submission,
        context,
        env: &context.env,
        conf,
        line,
        names: name_objects(&conf, context),
        namespace: conf.get(key::NAMESPACE).unwrap_or("default").to_owned(),
        pod,
        container,
        properties: submission.conf.clone(),
        objects: Vec::new(),
        uploads: Vec::new(),
        warnings,
    };
    crate::pod::apply(&mut draft, STEPS)?;
    config_map::apply(&mut draft)?;
    check::apply(&draft)?;
    let container = std::mem::take(&mut draft.container);
    draft.spec().containers.push(container);
    Ok(DriverPlan {
        app_id: context.ids.app_id.clone(),
        namespace: draft.namespace,
        pod: draft.pod,
        objects: draft.objects,
        uploads: draft.uploads,
        properties: draft.properties,
        warnings: draft.warnings,
    })
}

fn name_objects(conf: &Settings<'_>, context: &PlanContext<'_>) -> Names {
    let prefix = resource_name::prefix(conf.app_name(), &context.ids.resources);
    let pod = conf.get(key::DRIVER_POD_NAME).map_or_else(|| format!("{prefix}-driver"), str::to_owned);
    Names { prefix, pod, config_map: format!("spark-drv-{}-conf-map", context.ids.config_map) }
}
