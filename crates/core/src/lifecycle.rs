//! The life cycle of an application: from desired and observed state to the next status and the effects.
//!
//! [`step`] decides; when it asks for a submission, its outcome goes into [`submitted`]. Effects are carried out before
//! the status is written, and the operator may die in between. So every effect is idempotent, and a submission that was
//! already made is found by its id, which derives from (uid, attempt).
//!
//! Invariants: a terminal state is left only when the specification changes; an invalid edit ends no run; every other
//! decision has a submission, a question or a wake-up time; only this application's pods are deleted, by uid.

mod decision_builder;
mod exposing;

use std::collections::BTreeSet;

use firesteel_api::SparkApplicationStatus;
use firesteel_api::spark_application::DriverInfo;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::conditions::{self, Presence};
use crate::conf::Subject;
use crate::diagnosis::Cause;
use crate::driver_node::DriverNode;
use crate::event_reason::application as reason;
use crate::executors::{ExecutorSeen, Gone};
use crate::phase::Phase;
use crate::pod::{DriverPod, Owner};
use decision_builder::{DecisionBuilder, IDLE, SOON};

pub use crate::conditions::refuses_edit;
pub use decision_builder::QUIET;
pub use exposing::{BUDGET as EXPOSURE_BUDGET, ExposureJob, ExposureOutcome, Work};

/// The desired application.
#[derive(Debug, Clone, Copy)]
pub struct App<'a> {
    pub subject: Subject<'a>,
    /// `identity::fingerprint` of the specification.
    pub spec_hash: &'a str,
    pub generation: i64,
    pub deleting: bool,
    pub status: &'a SparkApplicationStatus,
    /// What is wrong with the specification, if anything: a message that names the field.
    pub problem: Option<&'a str>,
}

/// The observed state of the cluster.
#[derive(Debug, Clone)]
pub struct Observation {
    pub now: Timestamp,
    pub driver: Seen,
    /// This application's other driver pods, whatever their names.
    pub other_drivers: Vec<DriverPod>,
    /// Whether driver pods were read from the API server rather than from a cache that may lag.
    pub confirmed: bool,
    /// Executors of the current submission.
    pub executors: Vec<ExecutorSeen>,
    /// Executors whose pods disappeared since the last observation, as they were last seen.
    pub departed: Vec<ExecutorSeen>,
    /// Pods of this application's other submissions.
    pub strays: usize,
    /// Why the driver failed, according to its log.
    pub cause: Option<Cause>,
    /// The driver's node, if it was read.
    pub node: Option<DriverNode>,
    /// Submissions with executors whose deletion has not been requested.
    pub undeleted: BTreeSet<String>,
    /// Effects already requested since the last submission.
    pub sent: Vec<Sent>,
    /// Progress of the driver's exposure.
    pub exposure_job: Option<ExposureJob>,
}

/// An effect that this operator requested, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub effect: Effect,
    pub first: Timestamp,
    pub last: Timestamp,
    pub times: u32,
}

impl Observation {
    /// Just a driver, as cached.
    pub fn of(driver: Seen, now: Timestamp) -> Self {
        Observation {
            now,
            driver,
            other_drivers: Vec::new(),
            confirmed: false,
            executors: Vec::new(),
            departed: Vec::new(),
            strays: 0,
            cause: None,
            node: None,
            undeleted: BTreeSet::new(),
            sent: Vec::new(),
            exposure_job: None,
        }
    }

    /// Every driver pod that is this application's own.
    fn own_drivers(&self) -> impl Iterator<Item = &DriverPod> {
        let driver = match &self.driver {
            Seen::Present(pod) => Some(pod).filter(|pod| pod.owner != Owner::Other),
            Seen::Absent { .. } => None,
        };
        driver.into_iter().chain(&self.other_drivers)
    }
}

/// Picks the current driver pod among pods with an application's labels, and returns this application's other ones. The
/// pod of the current submission is the current one, whatever its name; without it, the pod with the name of the next
/// driver.
pub fn choose_driver(pods: Vec<DriverPod>, current: Option<&str>, name: &str) -> (Option<DriverPod>, Vec<DriverPod>) {
    let is_current = |pod: &DriverPod| {
        pod.owner == Owner::Application && current.is_some() && pod.submission_id.as_deref() == current
    };
    let named = |pod: &DriverPod| pod.name == name;
    let chosen = pods
        .iter()
        .position(|pod| is_current(pod) && named(pod))
        .or_else(|| pods.iter().position(is_current))
        .or_else(|| pods.iter().position(named));
    let (mut driver, mut others) = (None, Vec::new());
    for (i, pod) in pods.into_iter().enumerate() {
        if Some(i) == chosen {
            driver = Some(pod);
        } else if pod.owner == Owner::Application {
            others.push(pod);
        }
    }
    (driver, others)
}

/// The current driver pod; see [`choose_driver`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Absent {
        /// Its last known state, if it was ever seen.
        last: Option<DriverPod>,
    },
    Present(DriverPod),
}

/// Limits set at startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a driver pod may be missing before it counts as ended.
    pub driver_grace: SignedDuration,
    /// How long a driver may stay pending; forever if unset.
    pub pending_timeout: Option<SignedDuration>,
    /// How long past its deletion deadline a driver on a silent node counts as lost; never if unset.
    pub unreachable_timeout: Option<SignedDuration>,
    /// For applications without `timeToLiveSeconds`.
    pub default_ttl: Option<i64>,
    /// The maximum number of entries in `status.executorState`.
    pub tracked_executors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            driver_grace: SignedDuration::from_secs(10),
            pending_timeout: None,
            unreachable_timeout: None,
            default_ttl: None,
            tracked_executors: 1000,
        }
    }
}

/// An effect. All of them are idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Create all objects of this attempt or adopt existing ones, then call [`submitted`].
    Submit { attempt: i64 },
    /// Delete the pod with this uid. `force` does not wait for its node.
    DeleteDriver { name: String, uid: String, force: bool },
    /// Delete the executors of all submissions but this one.
    DeleteExecutors { keep: Option<String> },
    /// Delete the objects of all submissions but this one.
    DeleteObjects { keep: Option<String> },
    /// Start creating the exposure of the current driver in the background, then call [`exposed`].
    Expose,
    /// Start deleting the driver's exposure in the background. If that takes longer, call [`still_exposed`].
    DeleteExposure(Exposed),
    /// Delete the application.
    DeleteApplication,
}

/// Which exposure objects a driver may have: those of its web UI by name, others by kind. Finding objects by kind makes
/// the API server search the whole namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    pub web_service: Option<String>,
    pub web_ingress: Option<String>,
    pub services: bool,
    /// Ingresses and HTTPRoutes.
    pub ingresses: bool,
    pub budget: bool,
}

impl Exposed {
    /// Anything that may exist, including objects of an earlier specification.
    pub const ALL: Exposed =
        Exposed { web_service: None, web_ingress: None, services: true, ingresses: true, budget: true };

    /// What the current run has, according to its status and specification.
    fn of(app: &App<'_>) -> Self {
        let (info, spec) = (&app.status.driver_info, app.subject.spec);
        let more = !spec.driver_ingress_options.is_empty();
        Exposed {
            web_service: info.web_ui_service_name.clone(),
            web_ingress: info.web_ui_ingress_name.clone(),
            services: more,
            ingresses: more,
            budget: spec.driver_pod_disruption_budget == Some(true),
        }
    }
}

/// An event for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub status: SparkApplicationStatus,
    pub effects: Vec<Effect>,
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Read driver pods from the API server and decide again.
    pub confirm_drivers: bool,
}

/// The outcome of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Submission {
    /// The driver pod exists.
    Created(Box<Created>),
    /// An object of an earlier attempt is in the way; its deletion was requested.
    InTheWay,
    /// The cluster rejected it; a retry may help.
    Refused(String),
    /// The cluster failed or did not respond, for the n-th time: its message, and since when.
    Hindered { why: String, since: Timestamp, times: u32 },
    /// It cannot work as specified.
    Impossible(String),
}

/// A successful submission.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Created {
    pub pod_name: String,
    pub app_id: String,
    /// Fields without effect, with the reason.
    pub lost: Vec<(String, String)>,
    /// Suspicious settings.
    pub remarks: Vec<String>,
}

/// Decides what follows from an observation.
pub fn step(app: &App<'_>, seen: &Observation, limits: &Limits) -> Decision {
    let mut builder = DecisionBuilder::new(app, seen.now);
    builder.look_at_node(seen, limits);
    if app.deleting {
        // Everything is owned by the application and garbage-collected with it.
        return builder.finish(None);
    }
    let phase = Phase::read(app.status, seen.now);
    let edited = builder.note_generation(phase);
    let suspend = app.subject.spec.suspend == Some(true);
    match phase {
        Phase::New
        | Phase::Submitted { .. }
        | Phase::Running
        | Phase::Unknown
        | Phase::Succeeding
        | Phase::Failing { .. }
        | Phase::SubmissionFailed { .. }
        | Phase::PendingRerun
        | Phase::Invalidating
        | Phase::Resuming
            if suspend =>
        {
            builder.enter(Phase::Suspending, "");
        }
        Phase::Completed { .. } | Phase::Failed { .. } if edited && app.problem.is_some() => {
            let problem = app.problem.unwrap_or_default();
            builder.event(true, reason::SPEC_UPDATE_FAILED, format!("the edit is invalid: {problem}"));
            builder.refuse_for_good(problem);
        }
        Phase::Submitted { .. }
        | Phase::Running
        | Phase::Unknown
        | Phase::Succeeding
        | Phase::Failing { .. }
        | Phase::SubmissionFailed { .. }
        | Phase::Completed { .. }
        | Phase::Failed { .. }
            if edited =>
        {
            builder.enter(Phase::Invalidating, "");
        }
        Phase::New | Phase::PendingRerun | Phase::Resuming => builder.start(seen),
        Phase::Submitted { since } => builder.watch_driver(phase, since, seen, limits),
        Phase::Running | Phase::Unknown => {
            let since = app.status.last_submission_attempt_time.as_ref().map_or(seen.now, |t| t.0);
            builder.watch_driver(phase, since, seen, limits);
        }
        Phase::Succeeding => builder.after_success(seen, limits),
        Phase::Failing { since } => builder.after_failure(since, seen, limits),
        Phase::SubmissionFailed { since } => builder.after_refusal(since, seen),
        Phase::Invalidating => {
            if builder.clear_away(seen) {
                builder.forget_run();
                builder.enter(Phase::PendingRerun, "");
            }
        }
        Phase::Suspending => {
            if builder.clear_away(seen) {
                builder.forget_run();
                builder.enter(Phase::Suspended, "");
            }
        }
        Phase::Suspended if suspend => {
            // A driver that the cache did not show yet when the state was entered.
            for pod in seen.own_drivers() {
                builder.delete(pod);
            }
            builder.unexpose_rest(seen);
            builder.wake_in(IDLE);
        }
        Phase::Suspended => builder.enter(Phase::Resuming, ""),
        Phase::Completed { since } => builder.rest(since, Gone::Completed, seen, limits),
        Phase::Failed { since } => builder.rest(since, Gone::Failed, seen, limits),
    }
    let waiting = match &seen.driver {
        Seen::Present(pod) => pod.waiting.as_ref().map(|w| (w.reason.clone(), w.explain())),
        Seen::Absent { .. } => None,
    };
    builder.finish(waiting.as_ref())
}

/// Decides what follows from a submission.
pub fn submitted(app: &App<'_>, attempt: i64, outcome: &Submission, now: Timestamp) -> Decision {
    let mut builder = DecisionBuilder::new(app, now);
    let phase = Phase::read(app.status, now);
    builder.note_generation(phase);
    match outcome {
        Submission::InTheWay => builder.wake_in(SOON),
        Submission::Impossible(why) => builder.refuse_for_good(why),
        Submission::Refused(why) => builder.refuse(attempt, why),
        Submission::Hindered { why, since, times } => builder.hinder(attempt, why, *since, *times),
        Submission::Created(created) => {
            builder.count_submission(attempt);
            let status = &mut builder.status;
            status.submission_failures = None;
            status.execution_attempts = status.execution_attempts.saturating_add(1);
            status.spark_application_id = Some(created.app_id.clone());
            status.driver_info = DriverInfo { pod_name: Some(created.pod_name.clone()), ..DriverInfo::default() };
            conditions::fields(status, &created.lost, app.generation, now);
            conditions::driver_present(status, Presence::Found, app.generation, now);
            for (path, why) in &created.lost {
                builder.event(true, reason::FIELD_NOT_HONOURED, format!("{path} has no effect: {why}"));
            }
            if !created.remarks.is_empty() {
                // One event: of several with the same reason only the first would be published.
                builder.event(true, reason::REMARK, created.remarks.join("; "));
            }
            builder.enter(Phase::Submitted { since: now }, "");
            builder.event(false, reason::DRIVER_PENDING, format!("driver {} is pending", created.pod_name));
        }
    }
    builder.finish(None)
}

/// Decides what follows from the start of creating an exposure.
pub fn exposed(app: &App<'_>, decision: Decision, job: &ExposureJob, now: Timestamp) -> Decision {
    let mut builder = DecisionBuilder::resume(app, decision, now);
    builder.expose(Some(job));
    // The next observation leads to the next try.
    Decision { effects: Vec::new(), ..builder.finish(None) }
}

/// Decides what follows from deleting an exposure that takes longer.
pub fn still_exposed(app: &App<'_>, decision: Decision, job: &ExposureJob, now: Timestamp) -> Decision {
    let mut builder = DecisionBuilder::resume(app, decision, now);
    builder.note_removal(job);
    // The next observation leads to the next try.
    Decision { effects: Vec::new(), ..builder.finish(None) }
}
