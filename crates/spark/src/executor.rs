//! The executor plan: the pod that Spark's driver would build for each executor, planned at submission and without a
//! JVM. It is used when the driver does not create its executors.
//!
//! [`plan`] returns a template with `EXECID` as a placeholder for the executor's id. What only a running driver knows
//! (its address, JVM options, settings changed by the application, resource profiles) comes later, as a [`Profile`];
//! [`executor`] applies it to the template and returns one pod. The template alone decides image, service account,
//! volumes, security and placement.
//!
//! As with the driver, the plan goes through Spark's ordered feature steps; [`STEPS`] is the list.

mod account;
mod allocation;
mod authentication;
mod basic;
mod config_map;
mod forecast;
mod hadoop;
mod instance;
mod unsupported;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};

use crate::context::PlanContext;
use crate::driver::DriverPlan;
use crate::names::{env, key};
use crate::pod::{Draft, Names, Object, Step, check, local_dirs, role, secrets, settings, template, volumes};
use crate::resource_name;
use crate::submission::{SparkConf, Submission};
use crate::version::Line;

use settings::Settings;

pub use crate::pod::PlanError;
pub use allocation::Allocation;
pub use authentication::authenticate;
pub use forecast::misfit;
pub use instance::{Profile, claim_templates, claims, executor, is_device, member};

/// Everything that is decided about an application's executors before the driver exists.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutorPlan {
    /// Executor pods are called `<name_prefix>-exec-<id>`.
    pub name_prefix: String,
    /// The container Spark runs in.
    pub container: String,
    /// The pod of the default profile, with `EXECID` for the id; without namespace, owner, JVM options and driver address.
    pub template: Pod,
    /// Claims to create for each executor, with `EXECID` for the id in their names; the template's volumes refer to them.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Whether claims outlive their executor and are reused by its replacement.
    pub reuse_claims: bool,
    /// The executors' configuration files, which Spark's driver would put into a ConfigMap; `None` if that is disabled.
    pub config_map: Option<ConfigMap>,
    /// What an executor of the default profile requests. Its environment is in the template.
    pub profile: Profile,
    /// The same with the environment that the driver will report, if that can be known before it runs.
    pub forecast: Option<Profile>,
    pub allocation: Allocation,
    /// Warnings for the submitter; none of them prevents the plan.
    pub warnings: Vec<String>,
}

/// How executors are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Single pods, with ids from the operator.
    Pods,
    /// Members of a ReplicaSet, which get their ids from the driver.
    ReplicaSet,
    /// Members of a StatefulSet, which get their ids from the driver.
    StatefulSet,
}

impl Strategy {
    /// The strategy that `spark.kubernetes.allocation.pods.allocator` names; `None` for Spark's own allocators.
    pub fn of(conf: &SparkConf) -> Option<Self> {
        match conf.get(key::ALLOCATOR).map(|name| name.trim())? {
            "firesteel" => Some(Strategy::Pods),
            "firesteel-replicaset" | "replicaset" => Some(Strategy::ReplicaSet),
            "firesteel-statefulset" => Some(Strategy::StatefulSet),
            _ => None,
        }
    }
}

/// All steps, in Spark's order.
const STEPS: &[Step] = &[
    ("BasicExecutorFeatureStep", Line::V3_5, basic::apply),
    ("ExecutorKubernetesCredentialsFeatureStep", Line::V3_5, account::apply),
    ("MountSecretsFeatureStep", Line::V3_5, secrets::mount),
    ("EnvSecretsFeatureStep", Line::V3_5, secrets::expose),
    ("MountVolumesFeatureStep", Line::V3_5, volumes::apply),
    ("HadoopConfExecutorFeatureStep", Line::V3_5, hadoop::apply),
    ("LocalDirsFeatureStep", Line::V3_5, local_dirs::apply),
];

/// Keys that the driver's plan sets and executors depend on.
const FROM_DRIVER: [&str; 4] =
    [key::APP_ID, key::MEMORY_OVERHEAD_FACTOR, key::RESOURCE_TYPE, key::EXECUTOR_HADOOP_CONFIG_MAP];

/// Plans the executors of a driver. Pure.
///
/// `submission` is what the user asked for, without the settings of [`crate::bridge::configure`]; `driver` is the
/// driver's plan.
pub fn plan(
    submission: &Submission,
    context: &PlanContext<'_>,
    driver: &DriverPlan,
    strategy: Strategy,
) -> Result<ExecutorPlan, PlanError> {
    let line = submission.version.line();
    let mut conf = submission.conf.clone();
    for key in FROM_DRIVER {
        conf.extend(driver.properties.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    // Spark's builder runs in the driver and sees its environment.
    let driver_env = literal_environment(&driver.pod);
    let expanded = settings::expand(&conf, &driver_env);
    let conf = Settings::new(&conf, &expanded, line);
    crate::pod::refuse_custom_steps(&conf, &role::EXECUTOR)?;
    let mut warnings = unsupported::check(&conf)?;
    let allocation = Allocation::read(&conf, strategy)?;
    // The template is a file on the submitting side.
    let submitted = settings::expand(&submission.conf, &context.env);
    let submitted = Settings::new(&submission.conf, &submitted, line);
    let (pod, container) = template::load(&role::EXECUTOR, &submitted, context, &mut warnings)?;
    let prefix = match conf.get(key::EXECUTOR_NAME_PREFIX) {
        Some(prefix) => prefix.to_owned(),
        None => resource_name::prefix(submitted.app_name(), &context.ids.resources),
    };
    let mut draft = Draft {
        role: &role::EXECUTOR,
        submission,
        context,
        env: &driver_env,
        conf,
        line,
        names: Names {
            pod: format!("{prefix}-exec-{}", role::EXECUTOR.executor_id),
            prefix,
            config_map: format!("spark-exec-{}-conf-map", context.ids.config_map),
        },
        namespace: driver.namespace.clone(),
        pod,
        container,
        properties: SparkConf::new(),
        objects: Vec::new(),
        uploads: Vec::new(),
        warnings,
    };
    let config_map = config_map::apply(&mut draft, driver)?;
    crate::pod::apply(&mut draft, STEPS)?;
    draft.spec().restart_policy = Some(restart_policy(strategy).to_owned());
    check::apply(&draft)?;
    let profile = instance::default_profile(&draft)?;
    let forecast = forecast::environment(&draft.conf, &driver.properties).map(|env| Profile { env, ..profile.clone() });
    let container = std::mem::take(&mut draft.container);
    let container_name = container.name.clone();
    draft.spec().containers.push(container);
    let claims: Vec<PersistentVolumeClaim> = draft.objects.into_iter().filter_map(into_claim).collect();
    unsupported::check_claims(&claims, strategy)?;
    let reuse = draft.conf.boolean(key::DRIVER_REUSES_CLAIMS, true)?;
    let own = draft.conf.boolean(key::DRIVER_OWNS_CLAIMS, true)?;
    Ok(ExecutorPlan {
        name_prefix: draft.names.prefix,
        container: container_name,
        template: draft.pod,
        reuse_claims: own && reuse && !claims.is_empty(),
        claims,
        config_map,
        profile,
        forecast,
        allocation,
        warnings: draft.warnings,
    })
}

/// Containers are restarted only in ReplicaSets and StatefulSets; a single pod is replaced.
fn restart_policy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Pods => "Never",
        Strategy::ReplicaSet | Strategy::StatefulSet => "Always",
    }
}

fn into_claim(object: Object) -> Option<PersistentVolumeClaim> {
    match object {
        Object::PersistentVolumeClaim(claim) => Some(claim),
        Object::ConfigMap(_) | Object::Service(_) | Object::Secret(_) | Object::NetworkPolicy(_) => None,
    }
}

/// The driver's Spark container's variables with literal values.
fn literal_environment(driver: &Pod) -> BTreeMap<String, String> {
    let containers = driver.spec.iter().flat_map(|spec| &spec.containers);
    let spark = containers
        .filter_map(|container| container.env.as_ref())
        .find(|variables| variables.iter().any(|variable| variable.name == env::APPLICATION_ID));
    let variables = spark.into_iter().flatten();
    variables.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?))).collect()
}
