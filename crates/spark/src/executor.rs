//! The executor plan: the pod that Spark's own builder in the driver would make for each executor, planned at
//! submission and without a JVM, for when something else than the driver creates executors.
//!
//! [`plan`] gives a template in which the text `EXECID` stands for the executor's id. What only a running driver
//! knows (its address, the words of the JVM's command line, settings changed by the application, resource profiles)
//! comes later, as a [`Profile`]; [`executor`] lays it over the template and gives one pod. The template alone decides
//! image, account, volumes, security and placement.
//!
//! As with the driver, the plan goes through Spark's ordered feature steps; [`STEPS`] is the list.

mod account;
mod allocation;
mod authentication;
mod basic;
mod config_map;
mod hadoop;
mod instance;
mod unsupported;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};

use crate::driver::DriverPlan;
use crate::names::{env, key};
use crate::pod::{Draft, Names, Object, Step, check, local_dirs, role, secrets, settings, template, volumes};
use crate::resource_name;
use crate::submission::{SparkConf, Submission};
use crate::surroundings::Surroundings;
use crate::version::Line;

use settings::Settings;

pub use crate::pod::PlanError;
pub use allocation::Allocation;
pub use authentication::authenticate;
pub use instance::{Profile, claim_templates, claims, executor, is_device, member};

/// Everything that is decided about an application's executors before there is a driver.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutorPlan {
    /// Executor pods are called `<name_prefix>-exec-<id>`.
    pub name_prefix: String,
    /// The container Spark runs in.
    pub container: String,
    /// The pod of the default profile, with `EXECID` for the id; without namespace, owner, JVM words and driver's address.
    pub template: Pod,
    /// Claims to be made for each executor, with `EXECID` for the id in their names; the template's volumes name them.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Whether claims outlive their executor and go to its replacement.
    pub reuse_claims: bool,
    /// The executors' configuration files, which Spark's driver would put into a ConfigMap; none if that is switched off.
    pub config_map: Option<ConfigMap>,
    /// What an executor of the default profile asks for. Its environment is in the template.
    pub profile: Profile,
    pub allocation: Allocation,
    /// Remarks for the submitter; nothing that stops the plan.
    pub warnings: Vec<String>,
}

/// What executors are made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Single pods with ids of ours.
    Pods,
    /// Members of a ReplicaSet, which get their ids from the driver.
    ReplicaSet,
    /// Members of a StatefulSet, which get their ids from the driver.
    StatefulSet,
}

impl Strategy {
    /// The strategy that `spark.kubernetes.allocation.pods.allocator` names; none if Spark's own allocators are meant.
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

/// What the driver's plan adds to the configuration that executors depend on.
const FROM_DRIVER: [&str; 4] =
    [key::APP_ID, key::MEMORY_OVERHEAD_FACTOR, key::RESOURCE_TYPE, key::EXECUTOR_HADOOP_CONFIG_MAP];

/// Plans the executors of a driver. Pure: the same arguments give the same plan.
///
/// `submission` is what the user asked for, before the settings by which the driver is told to leave executors alone
/// (`disableConfigMap` and the like) are added to it; `driver` is the driver's plan.
pub fn plan(
    submission: &Submission,
    around: &Surroundings<'_>,
    driver: &DriverPlan,
    strategy: Strategy,
) -> Result<ExecutorPlan, PlanError> {
    let line = submission.version.line();
    let mut conf = submission.conf.clone();
    for key in FROM_DRIVER {
        conf.extend(driver.properties.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    // Spark's builder runs in the driver, and sees the driver's environment.
    let driver_env = literal_environment(&driver.pod);
    let expanded = settings::expand(&conf, &driver_env);
    let conf = Settings::new(&conf, &expanded, line);
    crate::pod::refuse_custom_steps(&conf, &role::EXECUTOR)?;
    let mut warnings = unsupported::check(&conf)?;
    let allocation = Allocation::read(&conf, strategy)?;
    // The template is the submitter's file.
    let submitted = settings::expand(&submission.conf, &around.env);
    let submitted = Settings::new(&submission.conf, &submitted, line);
    let (pod, container) = template::load(&role::EXECUTOR, &submitted, around, &mut warnings)?;
    let prefix = match conf.get(key::EXECUTOR_NAME_PREFIX) {
        Some(prefix) => prefix.to_owned(),
        None => resource_name::prefix(submitted.app_name(), &around.ids.resources),
    };
    let mut draft = Draft {
        role: &role::EXECUTOR,
        submission,
        around,
        env: &driver_env,
        conf,
        line,
        names: Names {
            pod: format!("{prefix}-exec-{}", role::EXECUTOR.executor_id),
            prefix,
            config_map: format!("spark-exec-{}-conf-map", around.ids.config_map),
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
        allocation,
        warnings: draft.warnings,
    })
}

/// A container that ended is started again only in sets; a pod of its own is replaced.
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

/// The variables of the driver's Spark container whose values are known.
fn literal_environment(driver: &Pod) -> BTreeMap<String, String> {
    let containers = driver.spec.iter().flat_map(|spec| &spec.containers);
    let spark = containers
        .filter_map(|container| container.env.as_ref())
        .find(|variables| variables.iter().any(|variable| variable.name == env::APPLICATION_ID));
    let variables = spark.into_iter().flatten();
    variables.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?))).collect()
}
