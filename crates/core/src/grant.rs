//! A driver with executors outside it: the driver's plan, and the grant from which the operator creates executors.
//!
//! `spark.kubernetes.allocation.pods.allocator` decides: with Spark's own allocators there is only the driver's plan.
//!
//! - [`admission`] decides whether a grant can be accepted next to the drivers that exist;
//! - [`heard`] decides which demand in a driver's name can be trusted;
//! - [`live`] decides which edits of an application reach its new executors.

pub mod admission;
pub mod heard;
pub mod live;

use std::collections::BTreeMap;

use firesteel_api::executors::{
    ClaimTemplate, EarlyExecutors, ExecutorGrantSpec, FailureBudget, GrantedDriver, Maximum, ProfileDemand, Strategy,
    default_register_seconds,
};
use firesteel_api::{ExecutorGrant, names};
use firesteel_spark::driver::{self, DriverPlan, Object, PlanError};
use firesteel_spark::executor::{self, ExecutorPlan};
use firesteel_spark::value::{boolean, memory_mib};
use firesteel_spark::{PlanContext, Submission, bridge};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::allocation;

/// The most cores and memory that all executors together may have.
const MAX_CORES: &str = "spark.firesteel.executors.maxCores";
const MAX_MEMORY: &str = "spark.firesteel.executors.maxMemory";
const MAX_RESOURCES: &str = "spark.firesteel.executors.maxResources";
const EARLY: &str = "spark.firesteel.executors.early";
const REGISTER: &str = "spark.firesteel.executors.registerTimeout";
const STRATEGY: &str = "spark.firesteel.strategy";

/// Settings for users: key, default and meaning, for the reference.
pub const SETTINGS: [(&str, &str, &str); 5] = [
    (
        MAX_CORES,
        "the maximum number of executors, each of the default profile's size",
        "The most cores that all executors of the application may have together.",
    ),
    (
        MAX_MEMORY,
        "the maximum number of executors, each of the default profile's size",
        "The most memory that all executors of the application may have together, in Spark's notation (`100g`).",
    ),
    (
        MAX_RESOURCES,
        "the maximum number of executors, each of the default profile's size",
        "The most named resources that all executors may have together: `nvidia.com/gpu=8,example.com/fpga=2`. Unlisted resources are denied.",
    ),
    (
        EARLY,
        "true",
        "Whether the operator creates the first executors together with the driver, so that they are ready when it is. `false`: only once the driver asks for them.",
    ),
    (REGISTER, "300", "Seconds a running executor may take to register with the driver before it is replaced."),
];

/// Plans a driver, and the grant if its executors are outside it. `secret` is an unguessable string for
/// `spark.authenticate`; the namespace defaults as in Spark.
///
/// The grant has no owner and only its driver's name: the caller adds what it knows.
pub fn plan(
    submission: &Submission,
    context: &PlanContext<'_>,
    secret: &str,
) -> Result<(DriverPlan, Option<ExecutorGrant>), PlanError> {
    let Some(strategy) = executor::Strategy::of(&submission.conf) else {
        return Ok((driver::plan(submission, context)?, None));
    };
    let mut asked = submission.clone();
    let namespace = asked.conf.get("spark.kubernetes.namespace").cloned().unwrap_or_else(|| "default".to_owned());
    let auth_name = format!("spark-auth-{}", context.ids.config_map);
    let auth = executor::authenticate(&mut asked.conf, &auth_name, &namespace, secret)?;
    let mut told = asked.clone();
    bridge::configure(&mut told.conf);
    told.conf.insert(STRATEGY.to_owned(), word(strategy).word().to_owned());
    let mut driver = driver::plan(&told, context)?;
    let mut executors = executor::plan(&asked, context, &driver, strategy)?;
    let shared = executors.template.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    if let Some(problem) = allocation::sets::refusal(word(strategy), shared) {
        let key = "spark.kubernetes.allocation.pods.allocator".to_owned();
        return Err(PlanError::Invalid { key, problem: problem.to_owned() });
    }
    if strategy != executor::Strategy::Pods && executors.allocation.lifetime.is_some() {
        let remark = "spark.kubernetes.allocation.maximum has no effect with sets of executors, which replace their pods \
                      themselves";
        executors.warnings.push(remark.to_owned());
    }
    driver.warnings.append(&mut executors.warnings);

    let jar = format!("spark-bridge-{}", context.ids.config_map);
    bridge::mount(&mut driver, &jar);
    driver.objects.extend(auth.map(Object::Secret));
    driver.objects.extend(executors.config_map.take().map(Object::ConfigMap));
    let labels = driver.pod.metadata.labels.get_or_insert_default();
    labels.insert(names::LABEL_ALLOCATOR.to_owned(), "firesteel".to_owned());
    let grant = ExecutorGrant {
        metadata: ObjectMeta {
            name: Some(driver.pod_name().to_owned()),
            namespace: Some(driver.namespace.clone()),
            labels: Some([(names::LABEL_APP_SELECTOR.to_owned(), driver.app_id.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: spec(&asked, &driver, executors, strategy, &jar)?,
        status: None,
    };
    Ok((driver, Some(grant)))
}

fn spec(
    submission: &Submission,
    driver: &DriverPlan,
    plan: ExecutorPlan,
    strategy: executor::Strategy,
    jar: &str,
) -> Result<ExecutorGrantSpec, PlanError> {
    let allocation = &plan.allocation;
    let seconds = |key: &str| match submission.conf.get(key) {
        Some(text) => whole(key, text),
        None => Ok(u64::from(default_register_seconds())),
    };
    Ok(ExecutorGrantSpec {
        driver: GrantedDriver { pod_name: driver.pod_name().to_owned(), ..GrantedDriver::default() },
        app_id: driver.app_id.clone(),
        strategy: word(strategy),
        dynamic: allocation.dynamic,
        early: early(submission, &plan, jar)?,
        maximum: maximum(submission, &plan)?,
        failures: FailureBudget {
            maximum: Some(allocation.max_failures).filter(|most| *most < i32::MAX as u32),
            window_seconds: allocation.failure_window.map(|window| window.as_secs().max(1)),
        },
        keep_failed: allocation.keep_failed,
        register_seconds: u32::try_from(seconds(REGISTER)?).unwrap_or(u32::MAX),
        start_seconds: u32::try_from(allocation.start.as_secs()).unwrap_or(u32::MAX).max(1),
        name_prefix: plan.name_prefix,
        container: plan.container,
        template: PodTemplateSpec { metadata: Some(plan.template.metadata), spec: plan.template.spec },
        claims: plan.claims.into_iter().map(claim).collect(),
        reuse_claims: plan.reuse_claims,
    })
}

/// The executors that the driver will ask for first, if that is known.
fn early(submission: &Submission, plan: &ExecutorPlan, jar: &str) -> Result<Option<EarlyExecutors>, PlanError> {
    let wanted = match submission.conf.get(EARLY) {
        Some(text) => {
            boolean(text).map_err(|e| PlanError::Invalid { key: EARLY.to_owned(), problem: e.to_string() })?
        }
        None => true,
    };
    let forecast = plan.forecast.as_ref().filter(|_| wanted && plan.allocation.initial > 0);
    Ok(forecast.map(|forecast| {
        let profile = ProfileDemand {
            wanted: plan.allocation.initial,
            cores: forecast.cores,
            cpu: Some(forecast.cpu.clone()).filter(|cpu| !cpu.is_empty()),
            cpu_limit: forecast.cpu_limit.clone(),
            memory: forecast.memory.clone(),
            resources: forecast.resources.clone(),
            env: forecast.env.clone(),
        };
        EarlyExecutors { profile, agent: jar.to_owned() }
    }))
}

/// The maxima: the number of executors from the settings, and the resources of that many of the default profile.
fn maximum(submission: &Submission, plan: &ExecutorPlan) -> Result<Maximum, PlanError> {
    let executors = plan.allocation.maximum;
    let cores = u64::from(plan.profile.cores).max(allocation::whole(&plan.profile.cpu)).max(1);
    let memory = allocation::mebibytes(&plan.profile.memory);
    let times = |each: u64| executors.map(|n| u64::from(n).saturating_mul(each));
    Ok(Maximum {
        executors,
        lifetime: plan.allocation.lifetime,
        cores: match submission.conf.get(MAX_CORES) {
            Some(text) => Some(whole(MAX_CORES, text)?),
            None => times(cores),
        },
        memory_mib: match submission.conf.get(MAX_MEMORY) {
            Some(text) => {
                let mib = memory_mib(text)
                    .map_err(|e| PlanError::Invalid { key: MAX_MEMORY.to_owned(), problem: e.to_string() })?;
                Some(u64::try_from(mib).unwrap_or_default())
            }
            None => times(memory),
        },
        resources: match submission.conf.get(MAX_RESOURCES) {
            Some(text) => Some(named(text)?),
            None => executors.map(|_| {
                let each = plan.profile.resources.iter();
                each.filter_map(|(name, amount)| Some((name.clone(), times(allocation::whole(amount))?))).collect()
            }),
        },
    })
}

/// `nvidia.com/gpu=8,example.com/fpga=2`.
fn named(text: &str) -> Result<BTreeMap<String, u64>, PlanError> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, amount) = pair.split_once('=')?;
        Some((name.trim().to_owned(), amount.trim().parse().ok()?))
    };
    pairs
        .map(|text| {
            pair(text).ok_or_else(|| PlanError::Invalid {
                key: MAX_RESOURCES.to_owned(),
                problem: format!("`{text}` is not a name and a whole number; write, for example, nvidia.com/gpu=8"),
            })
        })
        .collect()
}

fn whole(key: &str, text: &str) -> Result<u64, PlanError> {
    text.trim().parse().map_err(|_| PlanError::Invalid {
        key: key.to_owned(),
        problem: format!("`{text}` is not a whole number; write, for example, 64"),
    })
}

fn claim(claim: PersistentVolumeClaim) -> ClaimTemplate {
    ClaimTemplate {
        name: claim.metadata.name.unwrap_or_default(),
        labels: claim.metadata.labels.unwrap_or_default(),
        annotations: claim.metadata.annotations.unwrap_or_default(),
        spec: claim.spec.unwrap_or_default(),
    }
}

fn word(strategy: executor::Strategy) -> Strategy {
    match strategy {
        executor::Strategy::Pods => Strategy::Pods,
        executor::Strategy::ReplicaSet => Strategy::ReplicaSet,
        executor::Strategy::StatefulSet => Strategy::StatefulSet,
    }
}
