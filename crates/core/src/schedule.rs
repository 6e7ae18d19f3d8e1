//! Schedules: which run of a ScheduledSparkApplication starts now, which old ones are deleted, and when the next is due.
//!
//! [`step`] decides; when it asks for a run, the outcome goes into [`started`]. The status is written after the effects, and
//! the operator may die in between. `status.nextRun` stays what it was until a run for it exists, and the run's name derives
//! from it ([`run_name`]), so the next operator finds the run instead of starting another.
//!
//! Invariants: one run makes up for any number of missed ones; nothing starts while the specification is invalid, and
//! nothing but a correction is needed afterwards; an edit of the schedule takes effect at once; runs are deleted only by
//! uid, and only those that the schedule owns.

mod cron;
mod go_duration;
mod run_name;
mod zones;

use std::cmp::Reverse;

use firesteel_api::names::{
    ANNOTATION_RUN_NOW, ANNOTATION_SCHEDULED_FOR, API_VERSION, CONDITION_SCHEDULED, LABEL_SCHEDULED_APP,
};
use firesteel_api::validate::{self, NOT_NEGATIVE, POLICIES, Problem};
use firesteel_api::{
    ScheduledSparkApplication, ScheduledSparkApplicationSpec, ScheduledSparkApplicationStatus, SparkApplication,
    SparkApplicationStatus,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::conditions::{self, Holds};
use crate::event_reason::schedule as reason;
use crate::identity::bounded_name;
use crate::lifecycle::Event;
use crate::phase::Phase;

pub use cron::Schedule;
pub use run_name::Precision;
pub use zones::Zones;

pub const KIND: &str = "ScheduledSparkApplication";
/// `status.scheduleState` of a schedule in force.
pub const SCHEDULED: &str = "Scheduled";
/// `status.scheduleState` of an invalid one.
pub const FAILED_VALIDATION: &str = "FailedValidation";

/// Runs kept of each kind if the specification does not say.
const KEPT: usize = 1;
/// How many missed runs are counted.
const MOST_COUNTED: usize = 100;
/// When to try again after the cluster refused a run.
const REFUSED: SignedDuration = SignedDuration::from_secs(15);
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// A schedule and its runs.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    pub object: &'a ScheduledSparkApplication,
    /// Why the specification does not parse: a message that names the field.
    pub unreadable: Option<&'a str>,
    /// Every run that the schedule owns.
    pub runs: &'a [RunSeen],
    pub zones: &'a Zones,
    pub precision: Precision,
}

/// A run, as observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSeen {
    pub name: String,
    pub uid: String,
    pub version: String,
    pub created: Option<Timestamp>,
    pub state: RunState,
    /// When it was due.
    pub due: Option<Timestamp>,
    /// The annotation that asked for it.
    pub request: Option<String>,
    pub deleting: bool,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    Unfinished,
    Completed,
    Failed,
}

impl RunSeen {
    /// Reads a run. Without a status that parses, it counts as unfinished.
    pub fn read(metadata: &ObjectMeta, status: Option<&SparkApplicationStatus>) -> Self {
        let annotation = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name));
        let phase = status.map(|status| Phase::read(status, Timestamp::UNIX_EPOCH));
        RunSeen {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            state: match phase {
                Some(Phase::Completed { .. }) => RunState::Completed,
                Some(Phase::Failed { .. }) => RunState::Failed,
                Some(_) | None => RunState::Unfinished,
            },
            due: annotation(ANNOTATION_SCHEDULED_FOR).and_then(|text| text.parse().ok()),
            request: annotation(ANNOTATION_RUN_NOW).cloned(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A run to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    pub name: String,
    /// The name to use if the first one belongs to something else.
    pub apart: Option<String>,
    pub cause: Cause,
}

/// Why a run starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It was due at this instant.
    Due(Timestamp),
    /// Someone asked for it with this annotation value.
    Asked(String),
}

/// An effect. All of them are idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Delete a run, if it is unchanged.
    DeleteRun { name: String, uid: String, version: String },
    /// Create the run, or find it, then call [`started`].
    StartRun(NewRun),
    /// Remove the annotation that asked for a run.
    RemoveRequest,
}

/// What became of a run to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It exists, and since when.
    Exists { name: String, since: Timestamp },
    /// The cluster refused it.
    Refused(String),
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub status: ScheduledSparkApplicationStatus,
    pub effects: Vec<Effect>,
    pub events: Vec<Event>,
    /// When to look again, if nothing happens before.
    pub wake: Option<Timestamp>,
    /// How many runs were given up.
    pub missed: usize,
}

/// What is wrong with a schedule, in the order of its fields.
pub fn problems(spec: &ScheduledSparkApplicationSpec, namespace: &str, zones: &Zones) -> Vec<Problem> {
    let mut found: Vec<Problem> = Vec::new();
    let mut add = |path: &str, message: String| found.push(Problem { path: path.to_owned(), message });
    let schedule = Schedule::parse(&spec.schedule, spec.time_zone.as_deref(), zones);
    if let Err(Problem { path, message }) = schedule {
        add(&path, message);
    }
    if Policy::read(spec).is_none() {
        let policy = spec.concurrency_policy.as_deref().unwrap_or_default();
        add("spec.concurrencyPolicy", format!("{policy:?} {POLICIES}"));
    }
    for (path, is_negative) in [
        ("spec.startingDeadlineSeconds", spec.starting_deadline_seconds.is_some_and(|n| n < 0)),
        ("spec.successfulRunHistoryLimit", spec.successful_run_history_limit.is_some_and(|n| n < 0)),
        ("spec.failedRunHistoryLimit", spec.failed_run_history_limit.is_some_and(|n| n < 0)),
    ] {
        if is_negative {
            add(path, NOT_NEGATIVE.to_owned());
        }
    }
    let of_template = |text: &str| text.replace("spec.", "spec.template.");
    for problem in validate::problems("run", namespace, &spec.template) {
        add(&of_template(&problem.path), of_template(&problem.message));
    }
    found
}

/// What happens to a run that is due while another one is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Allow,
    Forbid,
    Replace,
}

impl Policy {
    fn read(spec: &ScheduledSparkApplicationSpec) -> Option<Self> {
        match spec.concurrency_policy.as_deref() {
            None | Some("" | "Allow") => Some(Policy::Allow),
            Some("Forbid") => Some(Policy::Forbid),
            Some("Replace") => Some(Policy::Replace),
            Some(_) => None,
        }
    }
}

/// Decides what follows from what is seen.
pub fn step(sight: &Sight<'_>, now: Timestamp) -> Decision {
    let mut builder = Builder::new(sight, now);
    if sight.object.metadata.deletion_timestamp.is_some() {
        // Runs are owned by the schedule and garbage-collected with it.
        return builder.finish(None);
    }
    let plan = match builder.plan() {
        Ok(plan) => plan,
        Err(problem) => return builder.refuse(&problem),
    };
    builder.keep_history();
    if let Some(request) = sight.request() {
        let last = builder.status.last_run_name.as_deref().unwrap_or_default();
        let name = run_name::by_hand(&sight.name(), &sight.uid(), request, last);
        let run = NewRun { name, apart: None, cause: Cause::Asked(request.to_owned()) };
        if !builder.makes_way(plan.policy, &run) {
            return builder.wait(&plan, &run);
        }
        return builder.start(&plan, run);
    }
    builder.recall_request();
    if sight.is_suspended() {
        return builder.stay(&plan);
    }
    let Some(due) = plan.next.filter(|next| *next <= now) else { return builder.stay(&plan) };
    if let Some(run) = sight.runs.iter().find(|run| run.due == Some(due)) {
        // An operator died before it could write the status.
        let found = Started::Exists { name: run.name.clone(), since: run.created.unwrap_or(now) };
        let run = sight.run_at(due);
        let effects = std::mem::take(&mut builder.effects);
        let mut decision = started(sight, &run, &found, now);
        decision.effects.extend(effects);
        return decision;
    }
    if plan.is_late(due, now) {
        return builder.miss(&plan, due);
    }
    let run = sight.run_at(due);
    if !builder.makes_way(plan.policy, &run) {
        return builder.wait(&plan, &run);
    }
    builder.start(&plan, run)
}

/// Decides what follows from the outcome of a start.
pub fn started(sight: &Sight<'_>, run: &NewRun, outcome: &Started, now: Timestamp) -> Decision {
    let mut builder = Builder::new(sight, now);
    let mut plan = match builder.plan() {
        Ok(plan) => plan,
        Err(problem) => return builder.refuse(&problem),
    };
    builder.list_past();
    let (name, since) = match outcome {
        Started::Exists { name, since } => (name, *since),
        Started::Refused(why) => {
            let message = format!("run {} cannot start: {why}", run.name);
            builder.status.next_run = plan.next.map(Time);
            builder.status.reason = Some(message.clone());
            builder.event(true, reason::RUN_REFUSED, message.clone());
            builder.condition("False", reason::RUN_REFUSED, &message);
            return builder.finish(now.checked_add(REFUSED).ok());
        }
    };
    builder.status.last_run = Some(Time(since));
    builder.status.last_run_name = Some(name.clone());
    let news = match &run.cause {
        Cause::Due(due) => {
            plan.next = plan.after(*due, since);
            format!("run {name} started; it was due at {}{}", plan.shown(*due), plan.made_up(*due, since))
        }
        Cause::Asked(_) => {
            builder.effects.push(Effect::RemoveRequest);
            format!("run {name} started; {ANNOTATION_RUN_NOW} asked for it")
        }
    };
    builder.event(false, reason::RUN_STARTED, news);
    builder.stay(&plan)
}

/// The object of a run.
pub fn application(sight: &Sight<'_>, run: &NewRun, name: &str) -> SparkApplication {
    let schedule = &sight.object.metadata;
    let mut labels = schedule.labels.clone().unwrap_or_default();
    labels.insert(LABEL_SCHEDULED_APP.to_owned(), label(&sight.name()));
    let annotation = match &run.cause {
        Cause::Due(due) => (ANNOTATION_SCHEDULED_FOR.to_owned(), due.to_string()),
        Cause::Asked(request) => (ANNOTATION_RUN_NOW.to_owned(), request.clone()),
    };
    let owner = OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        name: sight.name(),
        uid: sight.uid(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: schedule.namespace.clone(),
        labels: Some(labels),
        annotations: Some([annotation].into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    SparkApplication { metadata, spec: sight.object.spec.template.clone(), status: None }
}

/// The value of the label `sparkoperator.k8s.io/scheduled-app-name`: the schedule's name, cut if it is too long.
pub fn label(schedule: &str) -> String {
    bounded_name(schedule, LONGEST_LABEL)
}

/// Whether an object is this run: owned by the schedule, and started for the same reason.
pub fn is_run(sight: &Sight<'_>, run: &NewRun, found: &ObjectMeta) -> bool {
    let is_owned = found.owner_references.iter().flatten().any(|owner| owner.uid == sight.uid());
    let annotation = |name: &str| found.annotations.as_ref().and_then(|all| all.get(name));
    let is_same = match &run.cause {
        Cause::Due(due) => annotation(ANNOTATION_SCHEDULED_FOR).and_then(|text| text.parse().ok()) == Some(*due),
        Cause::Asked(request) => annotation(ANNOTATION_RUN_NOW) == Some(request),
    };
    is_owned && is_same
}

impl Sight<'_> {
    fn name(&self) -> String {
        self.object.metadata.name.clone().unwrap_or_default()
    }

    fn uid(&self) -> String {
        self.object.metadata.uid.clone().unwrap_or_default()
    }

    /// The annotation that asks for a run.
    fn request(&self) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(ANNOTATION_RUN_NOW).map(String::as_str)
    }

    fn is_suspended(&self) -> bool {
        self.object.spec.suspend == Some(true)
    }

    fn run_at(&self, due: Timestamp) -> NewRun {
        let (name, uid) = (self.name(), self.uid());
        NewRun {
            name: run_name::at(&name, &uid, due, self.precision),
            apart: Some(run_name::apart(&name, &uid, due)),
            cause: Cause::Due(due),
        }
    }
}

/// A valid schedule, and when its next run is due.
struct Plan {
    schedule: Schedule,
    policy: Policy,
    deadline: Option<SignedDuration>,
    /// `None` while suspended, unless a run is overdue.
    next: Option<Timestamp>,
    /// `status.observedSchedule`.
    text: String,
}

impl Plan {
    /// The instant that follows `due`, the run of which started at `since`. Missed ones are skipped.
    fn after(&self, due: Timestamp, since: Timestamp) -> Option<Timestamp> {
        let next = self.schedule.next(due).filter(|next| *next > since);
        next.or_else(|| self.schedule.next(since))
    }

    fn is_late(&self, due: Timestamp, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| now.duration_since(due).as_secs() > deadline.as_secs())
    }

    /// Instants from `due` to `now`.
    fn count(&self, due: Timestamp, now: Timestamp) -> usize {
        let instants = std::iter::successors(Some(due), |at| self.schedule.next(*at));
        instants.take_while(|at| *at <= now).take(MOST_COUNTED).count()
    }

    /// What else the run of `due` stands for.
    fn made_up(&self, due: Timestamp, since: Timestamp) -> String {
        match self.count(due, since) {
            0 | 1 => String::new(),
            MOST_COUNTED => format!(", and makes up for {MOST_COUNTED} runs or more"),
            count => format!(", and makes up for {count} runs"),
        }
    }

    fn shown(&self, at: Timestamp) -> String {
        show(at, &self.schedule)
    }
}

/// An instant in the zone of its schedule.
pub fn show(at: Timestamp, schedule: &Schedule) -> String {
    let zoned = at.to_zoned(schedule.zone().clone());
    match schedule.zone().iana_name() {
        Some(zone) => format!("{} {zone}", zoned.strftime("%Y-%m-%d %H:%M:%S")),
        None => zoned.strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
    }
}

/// A decision in the making.
struct Builder<'a> {
    sight: &'a Sight<'a>,
    now: Timestamp,
    status: ScheduledSparkApplicationStatus,
    effects: Vec<Effect>,
    events: Vec<Event>,
    missed: usize,
}

impl<'a> Builder<'a> {
    fn new(sight: &'a Sight<'a>, now: Timestamp) -> Self {
        let status = sight.object.status.clone().unwrap_or_default();
        Builder { sight, now, status, effects: Vec::new(), events: Vec::new(), missed: 0 }
    }

    /// Reads the specification. The stored `nextRun` counts if it stems from this schedule.
    fn plan(&self) -> Result<Plan, String> {
        let spec = &self.sight.object.spec;
        if let Some(problem) = self.sight.unreadable {
            return Err(problem.to_owned());
        }
        let namespace = self.sight.object.metadata.namespace.as_deref().unwrap_or_default();
        let problems = problems(spec, namespace, self.sight.zones);
        let policy = Policy::read(spec);
        let schedule = Schedule::parse(&spec.schedule, spec.time_zone.as_deref(), self.sight.zones);
        let (Ok(schedule), Some(policy), []) = (schedule, policy, problems.as_slice()) else {
            return Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
        };
        let Some(soonest) = schedule.next(self.now) else {
            let text = &spec.schedule;
            return Err(format!("spec.schedule: {text:?} is never due: no such date comes within five years"));
        };
        let text = match spec.time_zone.as_deref() {
            Some(zone) if !zone.is_empty() && !spec.schedule.contains("TZ=") => {
                format!("CRON_TZ={zone} {}", spec.schedule)
            }
            _ => spec.schedule.clone(),
        };
        let stored = self.status.next_run.as_ref().map(|time| time.0);
        let stored = stored.filter(|next| match &self.status.observed_schedule {
            Some(observed) => *observed == text,
            // Another operator wrote it, or the cluster's definition drops the field.
            None => schedule.includes(*next, self.now),
        });
        let fresh = (!self.sight.is_suspended()).then_some(soonest);
        let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        Ok(Plan { schedule, policy, deadline, next: stored.or(fresh), text })
    }

    /// No run starts until the specification is corrected.
    fn refuse(mut self, problem: &str) -> Decision {
        let known = self.status.schedule_state.as_deref() == Some(FAILED_VALIDATION)
            && self.status.reason.as_deref() == Some(problem);
        if !known {
            self.event(true, reason::FAILED_VALIDATION, problem.to_owned());
        }
        self.status.schedule_state = Some(FAILED_VALIDATION.to_owned());
        self.status.reason = Some(problem.to_owned());
        self.status.next_run = None;
        self.status.observed_schedule = None;
        self.condition("False", FAILED_VALIDATION, problem);
        self.finish(None)
    }

    /// Nothing is due: waits for the next instant.
    fn stay(mut self, plan: &Plan) -> Decision {
        let is_news = self.status.schedule_state.as_deref() != Some(SCHEDULED)
            || self.status.observed_schedule.as_ref().is_some_and(|observed| *observed != plan.text);
        self.adopt(plan);
        if self.sight.is_suspended() {
            self.condition("False", "Suspended", "spec.suspend is true");
            return self.finish(None);
        }
        if let Some(next) = plan.next.filter(|_| is_news) {
            self.event(false, reason::SCHEDULED, format!("the next run is due at {}", plan.shown(next)));
        }
        self.condition("True", SCHEDULED, "");
        self.finish(plan.next)
    }

    /// Puts a valid plan into the status.
    fn adopt(&mut self, plan: &Plan) {
        self.status.schedule_state = Some(SCHEDULED.to_owned());
        self.status.reason = None;
        self.status.next_run = plan.next.map(Time);
        self.status.observed_schedule = plan.next.map(|_| plan.text.clone());
    }

    /// Gives up runs that are too late. The next one may be due already.
    fn miss(mut self, plan: &Plan, due: Timestamp) -> Decision {
        let deadline = plan.deadline.unwrap_or_default();
        // The first that is not too late.
        let before = self.now.checked_sub(deadline).and_then(|at| at.checked_sub(SignedDuration::from_secs(1)));
        let next = before.ok().and_then(|before| plan.schedule.next(before.max(due)));
        let given_up = next.map_or(MOST_COUNTED, |next| {
            let instants = std::iter::successors(Some(due), |at| plan.schedule.next(*at));
            instants.take_while(|at| *at < next).take(MOST_COUNTED).count()
        });
        self.missed = given_up.max(1);
        let note = format!(
            "{} not started within {} s (spec.startingDeadlineSeconds); the first was due at {}",
            match self.missed {
                1 => "1 run was".to_owned(),
                MOST_COUNTED => format!("{MOST_COUNTED} runs or more were"),
                count => format!("{count} runs were"),
            },
            deadline.as_secs(),
            plan.shown(due)
        );
        self.event(true, reason::RUNS_MISSED, note);
        self.adopt(plan);
        self.status.next_run = next.map(Time);
        self.condition("True", SCHEDULED, "");
        self.finish(next)
    }

    /// Runs that are not finished, other than this one.
    fn others(&self, run: &NewRun) -> Vec<&'a RunSeen> {
        let runs = self.sight.runs.iter();
        runs.filter(|other| other.state == RunState::Unfinished && other.name != run.name).collect()
    }

    /// Notes a run by hand that an operator started, but died before it could write the status: the same request made again
    /// means another run.
    fn recall_request(&mut self) {
        let (name, uid) = (self.sight.name(), self.sight.uid());
        let last = self.status.last_run_name.clone().unwrap_or_default();
        let follows = |run: &&RunSeen| {
            run.request.as_ref().is_some_and(|request| run.name == run_name::by_hand(&name, &uid, request, &last))
        };
        if let Some(run) = self.sight.runs.iter().find(follows) {
            self.status.last_run = run.created.map(Time);
            self.status.last_run_name = Some(run.name.clone());
        }
    }

    /// Deletes the runs that a new one replaces. False if it has to wait for them.
    fn makes_way(&mut self, policy: Policy, run: &NewRun) -> bool {
        let others = self.others(run);
        match policy {
            Policy::Allow => true,
            Policy::Forbid => others.is_empty(),
            Policy::Replace => {
                for other in others.into_iter().filter(|other| !other.deleting) {
                    let note = format!("run {} is deleted: run {} replaces it", other.name, run.name);
                    self.event(false, reason::RUN_REPLACED, note);
                    self.delete(other);
                }
                true
            }
        }
    }

    /// Waits for other runs to end: their events lead to the next step.
    fn wait(mut self, plan: &Plan, run: &NewRun) -> Decision {
        let others: Vec<&str> = self.others(run).iter().map(|other| other.name.as_str()).collect();
        let what = match &run.cause {
            Cause::Due(due) => format!("the run due at {}", plan.shown(*due)),
            Cause::Asked(_) => format!("the run that {ANNOTATION_RUN_NOW} asks for"),
        };
        let message = format!("{what} waits for {} to end (spec.concurrencyPolicy: Forbid)", others.join(", "));
        self.adopt(plan);
        let known = self.status.conditions.iter().any(|c| c.type_ == CONDITION_SCHEDULED && c.message == message);
        if !known {
            self.event(false, reason::RUN_WAITING, message.clone());
        }
        self.condition("True", reason::RUN_WAITING, &message);
        // When it will be too late.
        let due = plan.next.filter(|_| !self.sight.is_suspended());
        let late = plan.deadline.and_then(|deadline| due?.checked_add(deadline + SignedDuration::from_secs(1)).ok());
        self.finish(late)
    }

    fn start(mut self, plan: &Plan, run: NewRun) -> Decision {
        self.adopt(plan);
        self.effects.push(Effect::StartRun(run));
        let now = self.now;
        self.finish(Some(now))
    }

    fn delete(&mut self, run: &RunSeen) {
        let RunSeen { name, uid, version, .. } = run.clone();
        self.effects.push(Effect::DeleteRun { name, uid, version });
    }

    /// Finished runs to keep and to delete, the newest first.
    fn past(&self, state: RunState, limit: Option<i32>) -> (Vec<&'a RunSeen>, Vec<&'a RunSeen>) {
        let mut runs: Vec<&RunSeen> =
            self.sight.runs.iter().filter(|run| run.state == state && !run.deleting).collect();
        runs.sort_by_key(|run| (Reverse(run.created), Reverse(run.due), Reverse(&run.name)));
        let limit = limit.map_or(KEPT, |limit| usize::try_from(limit).unwrap_or_default());
        let old = runs.split_off(limit.min(runs.len()));
        (runs, old)
    }

    /// Lists the runs that are kept in the status, and returns the others.
    fn list_past(&mut self) -> Vec<&'a RunSeen> {
        let spec = &self.sight.object.spec;
        let (completed, old) = self.past(RunState::Completed, spec.successful_run_history_limit);
        let (failed, old_failed) = self.past(RunState::Failed, spec.failed_run_history_limit);
        let names = |runs: &[&RunSeen]| runs.iter().map(|run| run.name.clone()).collect();
        self.status.past_successful_run_names = names(&completed);
        self.status.past_failed_run_names = names(&failed);
        old.into_iter().chain(old_failed).collect()
    }

    /// Deletes finished runs beyond the limits.
    fn keep_history(&mut self) {
        for run in self.list_past() {
            self.delete(run);
        }
    }

    fn event(&mut self, warning: bool, reason: &'static str, note: String) {
        self.events.push(Event { warning, reason, note });
    }

    fn condition(&mut self, status: &str, reason: &str, message: &str) {
        let generation = self.sight.object.metadata.generation.unwrap_or_default();
        let holds = Holds { kind: CONDITION_SCHEDULED, status, reason, message };
        conditions::set(&mut self.status.conditions, &holds, generation, self.now);
    }

    fn finish(self, wake: Option<Timestamp>) -> Decision {
        Decision { status: self.status, effects: self.effects, events: self.events, wake, missed: self.missed }
    }
}
