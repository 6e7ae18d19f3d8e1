//! One attempt as objects: the driver pod and everything around it.

use std::collections::BTreeMap;

use firesteel_api::ExecutorGrant;
use firesteel_api::names;
use firesteel_api::validate::Problem;
use firesteel_spark::context::NoFiles;
use firesteel_spark::driver::{DriverPlan, Object, PlanError};
use firesteel_spark::executor::{self, ExecutorPlan};
use firesteel_spark::names::key;
use firesteel_spark::submission::{ResolveContext, Resolved, resolve};
use firesteel_spark::version::VersionError;
use firesteel_spark::{Ids, PlanContext, SparkVersion, Templates};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;

use crate::batch_scheduler::BatchSchedulers;
use crate::conf::{self, Extras, Settings, Subject, operator_labels};
use crate::footprint::Footprint;
use crate::overlay::{self, DRIVER_CONTAINERS, EXECUTOR_CONTAINERS, RoleSpec};
use crate::ui::{self, Exposure, UiSettings};
use crate::{grant, identity, ineffective_fields, monitoring, mounts, template};

/// Settings common to all runs of this operator.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// The API server as drivers reach it.
    pub master: String,
    pub ui: UiSettings,
    pub batch_schedulers: BatchSchedulers,
    /// Edits of where executors run reach new executors, where the operator creates them.
    pub partial_restart: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            master: "https://kubernetes.default.svc".to_owned(),
            ui: UiSettings { service: true, ..UiSettings::default() },
            batch_schedulers: BatchSchedulers::default(),
            partial_restart: false,
        }
    }
}

/// One attempt, ready to be created. Every object has its owner, labels and namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub attempt: i64,
    pub submission_id: String,
    pub app_id: String,
    pub spec_hash: String,
    /// In the order they must exist; the pod comes after them.
    pub objects: Vec<Object>,
    pub pod: Pod,
    /// The grant for its executors, if they are outside the driver.
    pub grant: Option<ExecutorGrant>,
    /// Fields that cannot take effect, and why.
    pub lost: Vec<(String, String)>,
    pub warnings: Vec<String>,
}

/// The inputs of one attempt.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub number: i64,
    /// The generation of the application.
    pub generation: i64,
    /// When the application was created.
    pub created: Timestamp,
    pub now: Timestamp,
    /// Random; used only to derive secrets.
    pub nonce: u128,
}

/// Plans one attempt. The same arguments give the same objects, except for `spark.app.submitTime`.
pub fn plan(app: &Subject<'_>, attempt: Attempt, settings: &RunSettings) -> Result<Run, Problem> {
    planned(app, attempt, settings, Executors::Unplanned).map(|(run, _)| run)
}

/// Plans one attempt with its executors, whoever creates them: the run, and everything it takes of its namespace.
pub fn footprint(app: &Subject<'_>, attempt: Attempt, settings: &RunSettings) -> Result<(Run, Footprint), Problem> {
    let (run, executors) = planned(app, attempt, settings, Executors::Planned)?;
    let mut needs = Footprint::of_driver(&run, "spec.driver", "driver");
    needs.expose(&exposure(app, &run.app_id, &run.submission_id, settings));
    if let Some(executors) = executors {
        if let Ok(plan) = &executors {
            mounts::check(&plan.template, "spec.executor", &app.spec.executor.pod)?;
        }
        needs.add_executors(executors, app.spec);
    }
    Ok((run, needs))
}

fn planned(
    app: &Subject<'_>,
    attempt: Attempt,
    settings: &RunSettings,
    executors: Executors,
) -> Result<(Run, Option<Result<ExecutorPlan, PlanError>>), Problem> {
    let bad_version = |e: VersionError| Problem { path: "spec.sparkVersion".to_owned(), message: e.to_string() };
    let version: SparkVersion = app.spec.spark_version.parse().map_err(bad_version)?;
    if let Some(problem) = settings.batch_schedulers.problem(app.spec) {
        return Err(problem);
    }
    let submission_id = identity::submission_id(app.uid, attempt.number);
    let ids =
        identity::ids(app.uid, attempt.number, u64::try_from(attempt.created.as_millisecond()).unwrap_or_default());
    let app_id = ids.app_id.clone();
    let spec_hash = identity::fingerprint(app.spec, settings.partial_restart);
    let monitoring = monitoring::monitoring(app.name, app.namespace, app.spec);
    let driver_template = template::start(app.spec.driver.pod.template.as_ref(), DRIVER_CONTAINERS);
    let mut executor_template = template::start(app.spec.executor.pod.template.as_ref(), EXECUTOR_CONTAINERS);
    let proxy_base = ui::proxy_base(app, &app_id, &settings.ui);

    let extras = Extras {
        labels: &operator_labels(app.name, &submission_id),
        master: &settings.master,
        version: &version,
        driver_container: &driver_template.container,
        executor_container: &executor_template.container,
        monitoring: monitoring.as_ref(),
        proxy_base: proxy_base.as_deref(),
    };
    let command = conf::settings(app, &extras);

    let executor_role = RoleSpec::executor(app.spec, monitoring.as_ref());
    overlay::apply(&mut executor_template.pod, &executor_template.container, &executor_role);
    executor_template.pod.metadata.owner_references = Some(vec![owner(app, false)]);

    let templates = Templates { driver: Some(driver_template.pod), executor: Some(executor_template.pod) };
    let Driver { plan: mut planned, grant, executors, warnings } =
        driver(&command, ids, templates, &attempt, executors)?;

    // One request less for every application.
    planned.join_config_maps();

    let mark = AttemptMetadata { app, submission_id: &submission_id, attempt: attempt.number, spec_hash: &spec_hash };
    let mut pod = planned.pod;
    overlay::apply(&mut pod, &driver_template.container, &RoleSpec::driver(app.spec, monitoring.as_ref()));
    mark.put(&mut pod.metadata);
    let generation = (names::ANNOTATION_GENERATION.to_owned(), attempt.generation.to_string());
    pod.metadata.annotations.get_or_insert_default().extend([generation]);
    // They override a template's labels, as they override sparkConf's.
    pod.metadata.labels.get_or_insert_default().extend(operator_labels(app.name, &submission_id));
    mounts::check(&pod, "spec.driver", &app.spec.driver.pod)?;
    let mut objects = planned.objects;
    objects.extend(monitoring.and_then(|m| m.config_map).map(Object::ConfigMap));
    for object in &mut objects {
        let meta = object.metadata_mut();
        mark.put(meta);
        meta.labels.get_or_insert_default().insert(names::LABEL_CREATED_BY.to_owned(), "true".to_owned());
    }
    let grant = grant.map(|mut grant| {
        mark.put(&mut grant.metadata);
        grant.spec.driver.submission_id = Some(submission_id.clone());
        grant
    });
    let run = Run {
        attempt: attempt.number,
        submission_id,
        app_id,
        spec_hash,
        objects,
        pod,
        grant,
        lost: ineffective_fields::ineffective_fields(app.spec, version.line(), &settings.ui),
        warnings,
    };
    Ok((run, executors))
}

/// A planned driver, before it belongs to anything.
pub(crate) struct Driver {
    pub(crate) plan: DriverPlan,
    pub(crate) grant: Option<ExecutorGrant>,
    /// Its executors, if they were asked for.
    pub(crate) executors: Option<Result<ExecutorPlan, PlanError>>,
    pub(crate) warnings: Vec<String>,
}

/// Whether to plan the executors of a driver, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executors {
    Planned,
    Unplanned,
}

/// Plans the driver that a command line asks for.
pub(crate) fn driver(
    command: &Settings<'_>,
    ids: Ids,
    templates: Templates,
    attempt: &Attempt,
    executors: Executors,
) -> Result<Driver, Problem> {
    let env = BTreeMap::new();
    let now_ms = u64::try_from(attempt.now.as_millisecond()).unwrap_or_default();
    let context = ResolveContext { env: &env, files: &NoFiles, cwd: "/", now_ms };
    let effective = match resolve(&command.args, context).map_err(|e| command.unresolved(&e))? {
        Resolved::Submit(effective) => effective,
        Resolved::Client
        | Resolved::Kill(_)
        | Resolved::Status(_)
        | Resolved::Version
        | Resolved::Help
        | Resolved::UsageError => {
            return Err(Problem { path: "spec.mode".to_owned(), message: "only cluster mode is supported".to_owned() });
        }
    };
    let context = PlanContext { ids, user: "spark".to_owned(), env, files: &NoFiles, templates };
    let secret = format!("{:032x}", attempt.nonce);
    let (mut plan, grant) = grant::plan(&effective.submission, &context, &secret).map_err(|e| command.unplanned(&e))?;
    if let Some(upload) = plan.uploads.first() {
        let message = format!(
            "{} would have to be uploaded from the operator, which has no files; write local:// for a file inside the \
             image, or a URI the driver can read",
            upload.from
        );
        return Err(command.problem(&upload.input, message));
    }
    let executors = (executors == Executors::Planned).then(|| {
        let mut asked = effective.submission.clone();
        let strategy = executor::Strategy::of(&asked.conf).unwrap_or_else(|| {
            // What it refuses with executors outside the driver works with Spark's own allocators.
            asked.conf.remove(key::PLUGINS);
            executor::Strategy::Pods
        });
        executor::plan(&asked, &context, &plan, strategy)
    });
    let mut warnings = effective.warnings;
    warnings.append(&mut plan.warnings);
    Ok(Driver { plan, grant, executors, warnings })
}

/// The exposure of one submission's driver.
pub fn exposure(app: &Subject<'_>, app_id: &str, submission_id: &str, settings: &RunSettings) -> Exposure {
    let mut exposure = ui::exposure(app, app_id, submission_id, &settings.ui);
    let services = exposure.services.iter_mut().map(|s| &mut s.metadata);
    let ingresses = exposure.ingresses.iter_mut().map(|i| &mut i.metadata);
    let routes = exposure.routes.iter_mut().map(|r| &mut r.metadata);
    for meta in services.chain(ingresses).chain(routes).chain(exposure.budget.iter_mut().map(|b| &mut b.metadata)) {
        meta.owner_references = Some(vec![owner(app, true)]);
    }
    exposure
}

/// A reference to the application. Only one owner of an object may be its controller; for executors that is the driver.
pub fn owner(app: &Subject<'_>, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: names::KIND.to_owned(),
        name: app.name.to_owned(),
        uid: app.uid.to_owned(),
        controller: Some(controller),
        block_owner_deletion: Some(controller),
    }
}

/// Marks an object with its application and attempt.
struct AttemptMetadata<'a> {
    app: &'a Subject<'a>,
    submission_id: &'a str,
    attempt: i64,
    spec_hash: &'a str,
}

impl AttemptMetadata<'_> {
    fn put(&self, meta: &mut ObjectMeta) {
        meta.namespace = Some(self.app.namespace.to_owned());
        meta.owner_references = Some(vec![owner(self.app, true)]);
        meta.labels.get_or_insert_default().extend([
            (names::LABEL_APP_NAME.to_owned(), self.app.name.to_owned()),
            (names::LABEL_SUBMISSION_ID.to_owned(), self.submission_id.to_owned()),
        ]);
        meta.annotations.get_or_insert_default().extend([
            (names::ANNOTATION_ATTEMPT.to_owned(), self.attempt.to_string()),
            (names::ANNOTATION_SPEC.to_owned(), self.spec_hash.to_owned()),
        ]);
    }
}
