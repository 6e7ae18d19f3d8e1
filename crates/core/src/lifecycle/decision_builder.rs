//! A decision in the making: the moves that make up [`step`](super::step) and [`submitted`](super::submitted).

use firesteel_api::SparkApplicationStatus;
use firesteel_api::names::{CONDITION_DRIVER_PRESENT, CONDITION_RUNNING};
use firesteel_api::spark_application::{DriverInfo, ExecutorCounts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{App, Decision, Effect, Event, Exposed, Limits, Observation, Seen, Sent};
use crate::conditions::{self, Presence};
use crate::driver_node::{self, Unreachable};
use crate::event_reason::application as reason;
use crate::executors::{self, ExecutorSeen, ExecutorState, Gone, Summary};
use crate::phase::Phase;
use crate::pod::{DriverPod, Outcome, Owner, PodPhase, Words, reason_kind};
use crate::restart::{self, Failure, Retry};
use crate::{diagnosis, identity};

/// How long to wait before checking again on something that is being deleted.
pub(super) const SOON: SignedDuration = SignedDuration::from_secs(2);
/// How often to check on a healthy driver without any event.
const CALM: SignedDuration = SignedDuration::from_secs(60);
/// How often to check on a driver on a silent node: nodes are not watched.
const SILENT: SignedDuration = SignedDuration::from_secs(10);
/// How often to check on a state that only a person can change.
pub(super) const IDLE: SignedDuration = SignedDuration::from_mins(10);
/// How long a driver may be pending for no known reason before its events are read.
pub const QUIET: SignedDuration = SignedDuration::from_secs(15);
/// How long, and at least how often, a cluster may fail at a submission or not respond before the submission counts as
/// rejected.
const HINDERED: SignedDuration = SignedDuration::from_mins(2);
const HINDERED_TIMES: u32 = 3;
/// The longest wait between two tries of such a submission.
const HINDERED_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How soon to repeat the deletion of executors, if some are not being deleted yet.
const LATE_EXECUTORS: SignedDuration = SignedDuration::from_secs(10);
/// How soon to repeat the deletion of other objects, which are not watched.
const RESEND: SignedDuration = SignedDuration::from_mins(5);
/// How many executors one event names.
const EVENT_NAMES: usize = 3;

/// The condition's reason while the cluster fails to create a driver.
const NOT_CREATED: &str = "NotCreated";

/// How long to wait after a try at `last`: the longer the cluster has been failing, the longer.
fn hindered_wait(since: Timestamp, last: Timestamp) -> SignedDuration {
    (last.duration_since(since) / 2).clamp(SignedDuration::from_secs(1), HINDERED_WAIT)
}

/// When an effect was requested, if it was.
fn sent<'a>(seen: &'a Observation, effect: &Effect) -> Option<&'a Sent> {
    seen.sent.iter().find(|sent| sent.effect == *effect)
}

/// A decision in the making.
pub(super) struct DecisionBuilder<'a> {
    pub(super) app: &'a App<'a>,
    pub(super) now: Timestamp,
    pub(super) status: SparkApplicationStatus,
    pub(super) effects: Vec<Effect>,
    events: Vec<Event>,
    wake: Option<Timestamp>,
    confirm: bool,
    /// What the node's state means for the observed driver.
    unreachable: Option<Unreachable>,
}

impl<'a> DecisionBuilder<'a> {
    pub(super) fn new(app: &'a App<'a>, now: Timestamp) -> Self {
        DecisionBuilder {
            app,
            now,
            status: app.status.clone(),
            effects: Vec::new(),
            events: Vec::new(),
            wake: None,
            confirm: false,
            unreachable: None,
        }
    }

    /// A decision already made, to be extended.
    pub(super) fn resume(app: &'a App<'a>, decision: Decision, now: Timestamp) -> Self {
        let Decision { status, effects, events, wake, confirm_drivers } = decision;
        DecisionBuilder { app, now, status, effects, events, wake, confirm: confirm_drivers, unreachable: None }
    }

    /// Takes the state of the driver's node into account.
    pub(super) fn look_at_node(&mut self, seen: &Observation, limits: &Limits) {
        if let (Seen::Present(pod), Some(node)) = (&seen.driver, &seen.node) {
            self.unreachable = driver_node::unreachable(pod, node, limits.unreachable_timeout, self.now);
        }
    }

    pub(super) fn finish(mut self, waiting: Option<&(String, String)>) -> Decision {
        let phase = Phase::read(&self.status, self.now);
        let words = waiting.map(|(reason, message)| (reason.as_str(), message.as_str()));
        if !self.app.deleting && phase != Phase::New {
            conditions::follow(&mut self.status, phase, words, self.app.generation, self.now);
        }
        Decision {
            status: self.status,
            effects: self.effects,
            events: self.events,
            wake: self.wake,
            confirm_drivers: self.confirm,
        }
    }

    pub(super) fn event(&mut self, warning: bool, reason: &'static str, note: String) {
        self.events.push(Event { warning, reason, note });
    }

    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |other| other.min(at)));
    }

    pub(super) fn wake_in(&mut self, wait: SignedDuration) {
        self.wake_at(self.now.checked_add(wait).unwrap_or(Timestamp::MAX));
    }

    /// Records the generation; true if the specification changed in a way that affects runs. An invalid edit does not
    /// end a run: it waits until it is corrected or the run ends by itself.
    pub(super) fn note_generation(&mut self, phase: Phase) -> bool {
        let hash = self.app.spec_hash.to_owned();
        let generation = self.app.generation;
        let seen_before = self.status.observed_generation.replace(generation);
        let is_other = self.status.spec_hash.as_ref() != Some(&hash);
        // An edit rejected during a run stays rejected afterwards: the run's outcome is what counts.
        let is_refused = seen_before == Some(generation) && conditions::refuses_edit(&self.status);
        if let Some(problem) = self.app.problem.filter(|_| is_other && (phase.has_run() || is_refused)) {
            if conditions::refuse_edit(&mut self.status, problem, generation, self.now) {
                let note =
                    format!("the edit has no effect: {problem}; the run continues with the previous specification");
                self.event(true, reason::SPEC_UPDATE_FAILED, note);
            }
            return false;
        }
        let was_refused = conditions::forget_refused_edit(&mut self.status);
        let Some(old) = self.status.spec_hash.replace(hash) else { return false };
        if old == self.app.spec_hash || (seen_before == Some(generation) && !was_refused) || phase == Phase::New {
            // Same generation, different hash: written by another version of the operator, not an edit.
            return false;
        }
        self.status.execution_attempts = 0;
        self.status.submission_attempts = 0;
        self.status.run_failures = None;
        self.status.submission_failures = None;
        true
    }

    /// Enters a state, publishes its event, and makes sure the next step follows at once.
    pub(super) fn enter(&mut self, phase: Phase, message: &str) {
        let before = Phase::read(&self.status, self.now);
        phase.word().clone_into(&mut self.status.application_state.state);
        match phase {
            // The reason for the rerun stays readable until it starts.
            Phase::PendingRerun => {}
            Phase::Failed { .. } if message.is_empty() => {}
            _ => message.clone_into(&mut self.status.application_state.error_message),
        }
        if before == Phase::New {
            let name = self.app.subject.name;
            self.event(false, reason::ADDED, format!("SparkApplication {name} was added"));
        }
        // Each rejected submission is a separate failure: the next delay counts from it.
        if before.word() != phase.word() || matches!(phase, Phase::SubmissionFailed { .. }) {
            self.status.state_times.insert(phase.word().to_owned(), Time(self.now));
            self.tell(phase);
        }
        self.wake_at(self.now);
    }

    fn tell(&mut self, phase: Phase) {
        let name = self.app.subject.name;
        let message = self.status.application_state.error_message.clone();
        let first = message.lines().next().unwrap_or_default();
        match phase {
            Phase::New | Phase::Succeeding | Phase::Failing { .. } | Phase::Running | Phase::Unknown => {}
            Phase::Submitted { .. } => {
                self.event(false, reason::SUBMITTED, format!("SparkApplication {name} was submitted"));
            }
            Phase::SubmissionFailed { .. } => self.event(
                true,
                reason::SUBMISSION_FAILED,
                format!("failed to submit SparkApplication {name}: {first}"),
            ),
            Phase::Completed { .. } => {
                self.event(false, reason::COMPLETED, format!("SparkApplication {name} completed"));
            }
            Phase::Failed { .. } => {
                self.event(true, reason::FAILED, format!("SparkApplication {name} failed: {first}"));
            }
            Phase::PendingRerun => {
                self.event(true, reason::PENDING_RERUN, format!("SparkApplication {name} is pending rerun"));
            }
            Phase::Invalidating => self.event(
                false,
                reason::SPEC_UPDATED,
                format!("the specification of SparkApplication {name} changed; it will run again"),
            ),
            Phase::Suspending => {
                self.event(false, reason::SUSPENDING, format!("SparkApplication {name} is suspending"));
            }
            Phase::Suspended => {
                self.event(false, reason::SUSPENDED, format!("SparkApplication {name} was suspended"));
            }
            Phase::Resuming => {
                self.event(false, reason::RESUMING, format!("SparkApplication {name} is resuming"));
            }
        }
    }

    fn attempt(&self) -> i64 {
        self.status.attempt.unwrap_or(0)
    }

    pub(super) fn count_submission(&mut self, attempt: i64) {
        self.status.attempt = Some(attempt);
        self.status.submission_id = Some(identity::submission_id(self.app.subject.uid, attempt));
        self.status.submission_attempts = self.status.submission_attempts.saturating_add(1);
        self.status.last_submission_attempt_time = Some(Time(self.now));
        self.status.termination_time = None;
        self.forget_executors();
    }

    pub(super) fn refuse_for_good(&mut self, why: &str) {
        self.status.termination_time = Some(Time(self.now));
        self.enter(Phase::Failed { since: self.now }, &diagnosis::submission_failure(why));
    }

    /// The cluster rejected an attempt.
    pub(super) fn refuse(&mut self, attempt: i64, why: &str) {
        // So far, every submission of this run was rejected.
        let before = self.status.submission_failures.unwrap_or(self.status.submission_attempts);
        self.count_submission(attempt);
        self.status.submission_failures = Some(before.saturating_add(1));
        self.status.conditions.retain(|c| c.type_ != CONDITION_DRIVER_PRESENT);
        self.enter(Phase::SubmissionFailed { since: self.now }, &diagnosis::submission_failure(why));
    }

    /// The cluster failed, which says nothing about the attempt: it is retried for a while.
    pub(super) fn hinder(&mut self, attempt: i64, why: &str, since: Timestamp, times: u32) {
        let known = conditions::since(&self.status.conditions, CONDITION_DRIVER_PRESENT, "False");
        let since = known.map_or(since, |known| known.min(since));
        if self.now.duration_since(since) >= HINDERED && times >= HINDERED_TIMES {
            let seconds = HINDERED.as_secs();
            return self.refuse(attempt, &format!("{why} (for more than {seconds} s)"));
        }
        let told =
            self.status.conditions.iter().any(|c| c.type_ == CONDITION_DRIVER_PRESENT && c.reason == NOT_CREATED);
        if !told {
            let name = self.app.subject.name;
            let note = format!("SparkApplication {name} cannot be submitted for now and will be retried: {why}");
            self.event(true, reason::SUBMISSION_RETRIED, note);
        }
        let presence = Presence::NotCreated { reason: NOT_CREATED, message: why };
        conditions::driver_present(&mut self.status, presence, self.app.generation, self.now);
        self.wake_in(hindered_wait(since, self.now));
    }

    /// Starts the next attempt once no object of an earlier one is in the way.
    pub(super) fn start(&mut self, seen: &Observation) {
        // The last status was based on an earlier specification: a driver created since may not be cached yet, and may
        // have another name.
        let edited = match self.app.status.observed_generation {
            Some(known) => known != self.app.generation,
            None => self.app.generation > 1,
        };
        if edited && !seen.confirmed {
            self.confirm = true;
            self.wake_in(SOON);
            return;
        }
        if let Some(problem) = self.app.problem {
            // Created before the edit, and not in any status.
            for pod in seen.own_drivers().filter(|pod| pod.outcome().is_none()) {
                self.delete(pod);
            }
            return self.refuse_for_good(problem);
        }
        let attempt = self.attempt() + 1;
        let expected = identity::submission_id(self.app.subject.uid, attempt);
        let mut in_the_way = false;
        for pod in seen.own_drivers() {
            let is_of_attempt = pod.submission_id.as_deref() == Some(expected.as_str());
            let is_ours = pod.owner == Owner::Application
                && is_of_attempt
                && pod.spec_hash.as_deref() == Some(self.app.spec_hash)
                && !pod.deleting;
            if is_ours {
                continue;
            }
            if is_of_attempt {
                // Created for this attempt, but from another specification or being deleted.
                self.spend(attempt);
            }
            self.delete(pod);
            in_the_way = true;
        }
        if let Seen::Absent { last: Some(last) } = &seen.driver
            && last.submission_id.as_deref() == Some(expected.as_str())
        {
            // Created for this attempt and gone before any status recorded it: its outcome must not count for the next
            // driver.
            self.spend(attempt);
            in_the_way = true;
        }
        if in_the_way {
            self.wake_in(SOON);
            return;
        }
        let submit = Effect::Submit { attempt };
        if let Some(hindered) = sent(seen, &submit) {
            let due = hindered.last.checked_add(hindered_wait(hindered.first, hindered.last));
            let due = due.unwrap_or(Timestamp::MAX);
            if self.now < due {
                return self.wake_at(due);
            }
        }
        if seen.strays > 0 || attempt > 1 {
            self.delete_strays(Some(expected), seen);
        }
        self.effects.push(submit);
        self.wake_in(SOON);
    }

    /// Uses up this attempt: no other driver is created for it.
    fn spend(&mut self, attempt: i64) {
        self.status.attempt = Some(attempt);
        self.status.submission_id = Some(identity::submission_id(self.app.subject.uid, attempt));
    }

    pub(super) fn delete(&mut self, pod: &DriverPod) {
        if pod.owner == Owner::Other {
            return;
        }
        let lost = self.tell_unreachable(pod).is_some();
        if !pod.deleting || (lost && !pod.forced) {
            let (name, uid) = (pod.name.clone(), pod.uid.clone());
            self.effects.push(Effect::DeleteDriver { name, uid, force: pod.deleting });
        }
    }

    /// Reports an unreachable driver, once per reason. Returns why the driver counts as lost, if it does.
    fn tell_unreachable(&mut self, pod: &DriverPod) -> Option<String> {
        let Unreachable { reason, message, lost, lost_at, .. } =
            self.unreachable.clone().filter(|unreachable| unreachable.uid == pod.uid)?;
        let told = self.status.conditions.iter().find(|c| c.type_ == CONDITION_DRIVER_PRESENT);
        if told.is_none_or(|told| told.status != "Unknown" || told.reason != reason) {
            self.event(true, reason::DRIVER_UNREACHABLE, message.clone());
        }
        let presence = Presence::Unknown { reason, message: &message };
        conditions::driver_present(&mut self.status, presence, self.app.generation, self.now);
        if let Some(at) = lost_at.filter(|at| *at > self.now) {
            self.wake_at(at);
        }
        self.wake_in(SILENT);
        lost
    }

    /// Deletes everything of other submissions: executors as long as some are not being deleted, other objects once.
    /// Pods are watched as they go; other objects are not, so their deletion is repeated after a while.
    fn delete_strays(&mut self, keep: Option<String>, seen: &Observation) {
        let objects = Effect::DeleteObjects { keep: keep.clone() };
        if !self.sent_within(seen, &objects, RESEND) {
            self.effects.push(objects);
        }
        self.delete_executors(keep, seen);
    }

    fn delete_executors(&mut self, keep: Option<String>, seen: &Observation) {
        let left = seen.undeleted.iter().any(|id| Some(id) != keep.as_ref());
        let executors = Effect::DeleteExecutors { keep };
        if left && !self.sent_within(seen, &executors, LATE_EXECUTORS) {
            self.effects.push(executors);
        }
    }

    fn sent_within(&self, seen: &Observation, effect: &Effect, time: SignedDuration) -> bool {
        sent(seen, effect).is_some_and(|sent| self.now.duration_since(sent.last) < time)
    }

    /// Removes the current run. True once nothing of it is left.
    pub(super) fn clear_away(&mut self, seen: &Observation) -> bool {
        let mut driver_is_gone = true;
        let next = self.attempt() + 1;
        let next_id = identity::submission_id(self.app.subject.uid, next);
        for pod in seen.own_drivers() {
            if pod.submission_id.as_deref() == Some(next_id.as_str()) {
                // Created before the status recorded it.
                self.spend(next);
            }
            self.delete(pod);
            driver_is_gone = false;
        }
        if driver_is_gone && !seen.confirmed {
            self.confirm = true;
            driver_is_gone = false;
        }
        self.unexpose(Exposed::ALL, seen);
        self.delete_strays(None, seen);
        if driver_is_gone && seen.executors.is_empty() && seen.strays == 0 {
            return true;
        }
        self.wake_in(SOON);
        false
    }

    /// Clears what a status says about a run that no longer exists.
    pub(super) fn forget_run(&mut self) {
        self.status.spark_application_id = None;
        self.status.driver_info = DriverInfo::default();
        self.status.termination_time = None;
        self.status.submission_attempts = 0;
        self.status.submission_failures = None;
        self.status.conditions.retain(|c| c.type_ != CONDITION_DRIVER_PRESENT);
        self.forget_executors();
    }

    fn forget_executors(&mut self) {
        self.status.executor_state.clear();
        self.status.executor_counts = None;
    }

    /// Follows a driver that should exist.
    pub(super) fn watch_driver(&mut self, phase: Phase, submitted: Timestamp, seen: &Observation, limits: &Limits) {
        self.fold_executors(Gone::Unknown, seen, limits);
        self.end_earlier(seen);
        let current = self.status.submission_id.as_deref();
        let pod = match &seen.driver {
            Seen::Present(pod) if pod.submission_id.as_deref() == current => pod,
            // A pod with that name that is not this attempt's: this attempt's pod is gone or not cached yet.
            Seen::Present(_) => return self.miss_driver(submitted, None, seen, limits),
            Seen::Absent { last } => {
                let last = last.as_ref().filter(|l| l.submission_id.as_deref() == current);
                return self.miss_driver(submitted, last, seen, limits);
            }
        };
        if let Some(id) = &pod.app_id {
            self.status.spark_application_id = Some(id.clone());
        }
        if let Some(outcome) = pod.outcome() {
            conditions::driver_present(&mut self.status, Presence::Found, self.app.generation, self.now);
            return self.conclude(pod, outcome, seen, limits);
        }
        if let Some(why) = self.unreachable.as_ref().and_then(|unreachable| unreachable.lost.clone()) {
            self.delete(pod);
            self.event(true, reason::DRIVER_LOST, format!("driver {} is lost: {why}", pod.name));
            return self.fail(self.now, &diagnosis::driver_lost(&why));
        }
        self.follow_driver(phase, submitted, pod, limits);
        if !Phase::read(&self.status, self.now).has_driver() {
            return;
        }
        match pod.gone_by.filter(|at| *at > self.now) {
            Some(at) => self.wake_at(at),
            None if pod.deleting => self.wake_in(SILENT),
            None => {}
        }
        if self.unreachable.is_some() {
            self.tell_unreachable(pod);
        } else {
            conditions::driver_present(&mut self.status, Presence::Found, self.app.generation, self.now);
        }
        // The exposure is built from the specification, but a rejected edit does not apply to this driver.
        if pod.phase == PodPhase::Running && !conditions::refuses_edit(&self.status) {
            self.expose(seen.exposure_job.as_ref());
        }
    }

    /// Follows a driver that has not ended.
    fn follow_driver(&mut self, phase: Phase, submitted: Timestamp, pod: &DriverPod, limits: &Limits) {
        let name = &pod.name;
        match pod.phase {
            PodPhase::Running => {
                if phase != Phase::Running {
                    self.event(false, reason::DRIVER_RUNNING, format!("driver {name} is running"));
                    self.enter(Phase::Running, "");
                }
                self.wake = None;
                self.wake_in(CALM);
            }
            PodPhase::Pending => {
                if !matches!(phase, Phase::Submitted { .. }) {
                    self.event(false, reason::DRIVER_PENDING, format!("driver {name} is pending"));
                    self.enter(Phase::Submitted { since: submitted }, "");
                }
                if let Some(words) = &pod.waiting {
                    self.tell_waiting(name, words);
                }
                self.wake = None;
                self.wake_in(CALM);
                let quiet = submitted.checked_add(QUIET).unwrap_or(Timestamp::MAX);
                if pod.waiting.is_none() && self.now < quiet {
                    self.wake_at(quiet);
                }
                if let Some(limit) = limits.pending_timeout {
                    let until = submitted.checked_add(limit).unwrap_or(Timestamp::MAX);
                    if self.now >= until {
                        let message = diagnosis::pending_too_long(pod, limit.as_secs());
                        return self.fail(self.now, &message);
                    }
                    self.wake_at(until);
                }
            }
            PodPhase::Unknown => {
                if phase != Phase::Unknown {
                    self.event(true, reason::DRIVER_UNKNOWN, format!("the state of driver {name} is unknown"));
                    self.enter(Phase::Unknown, "");
                }
                self.wake = None;
                self.wake_in(CALM);
            }
            // Both have an outcome.
            PodPhase::Succeeded | PodPhase::Failed => self.wake_in(SOON),
        }
    }

    /// Reports why a driver is not running, once per reason.
    fn tell_waiting(&mut self, pod: &str, words: &Words) {
        let told = self.status.conditions.iter().find(|c| c.type_ == CONDITION_RUNNING).map(|c| c.reason.as_str());
        let news = told.is_none_or(|told| reason_kind(told) != words.kind());
        if news && words.reason != "SchedulingGated" {
            self.event(true, reason::DRIVER_PENDING, format!("driver {pod} is pending: {}", words.explain()));
        }
    }

    fn miss_driver(&mut self, submitted: Timestamp, last: Option<&DriverPod>, seen: &Observation, limits: &Limits) {
        // It was seen to end before it was removed: that outcome counts.
        if let Some((last, outcome)) = last.and_then(|l| Some((l, l.outcome()?))) {
            return self.conclude(last, outcome, seen, limits);
        }
        conditions::driver_present(&mut self.status, Presence::NotFound, self.app.generation, self.now);
        let missing = conditions::since(&self.status.conditions, CONDITION_DRIVER_PRESENT, "False").unwrap_or(self.now);
        let until = missing.max(submitted).checked_add(limits.driver_grace).unwrap_or(Timestamp::MAX);
        if self.now < until {
            self.wake_at(until);
        } else if seen.confirmed {
            let name = self.status.driver_info.pod_name.clone();
            let name = name.unwrap_or_else(|| self.app.subject.driver_pod_name());
            let message = diagnosis::driver_missing(&name, last);
            self.event(true, reason::DRIVER_NOT_FOUND, format!("driver {name} was not found"));
            self.fail(self.now, &message);
        } else {
            self.confirm = true;
            self.wake_in(SOON);
        }
    }

    fn conclude(&mut self, pod: &DriverPod, outcome: Outcome, seen: &Observation, limits: &Limits) {
        let at = pod.ended.as_ref().and_then(|e| e.at).unwrap_or(self.now);
        match outcome {
            Outcome::Succeeded => {
                self.event(false, reason::DRIVER_COMPLETED, format!("driver {} completed", pod.name));
                self.status.termination_time = Some(Time(at));
                self.enter(Phase::Succeeding, "");
                // A transient state is not worth a write; its time is kept.
                if !restart::after_success(self.app.subject.spec) {
                    self.after_success(seen, limits);
                }
            }
            Outcome::Failed => {
                self.event(true, reason::DRIVER_FAILED, format!("driver {} failed", pod.name));
                self.fail(at, &diagnosis::driver_failure(pod, seen.cause.as_ref()));
            }
        }
    }

    fn fail(&mut self, at: Timestamp, message: &str) {
        let before = self.status.run_failures.unwrap_or_else(|| (self.status.execution_attempts - 1).max(0));
        self.status.run_failures = Some(before.saturating_add(1));
        self.status.termination_time = Some(Time(at));
        self.enter(Phase::Failing { since: at }, message);
    }

    pub(super) fn after_success(&mut self, seen: &Observation, limits: &Limits) {
        self.unexpose(Exposed::of(self.app), seen);
        if restart::after_success(self.app.subject.spec) {
            self.forget_run();
            self.enter(Phase::PendingRerun, "");
        } else {
            self.fold_executors(Gone::Completed, seen, limits);
            let at = self.status.termination_time.as_ref().map_or(self.now, |t| t.0);
            self.enter(Phase::Completed { since: at }, "");
        }
    }

    /// A driver given up while pending must not start after all.
    fn end_driver(&mut self, seen: &Observation) {
        let current = self.status.submission_id.as_deref();
        if let Seen::Present(pod) = &seen.driver
            && pod.submission_id.as_deref() == current
            && pod.outcome().is_none()
        {
            self.delete(pod);
            if !pod.deleting {
                self.wake_in(SOON);
            }
        }
    }

    /// Drivers of earlier submissions must not keep running next to the current one.
    fn end_earlier(&mut self, seen: &Observation) {
        let (uid, current) = (self.app.subject.uid, self.attempt());
        for pod in &seen.other_drivers {
            let attempt = pod.submission_id.as_deref().and_then(|id| identity::attempt_of(uid, id, 1));
            // A driver without an attempt number was created by another operator.
            if attempt.is_none_or(|attempt| attempt < current) {
                self.delete(pod);
            }
        }
    }

    pub(super) fn after_failure(&mut self, since: Timestamp, seen: &Observation, limits: &Limits) {
        self.unexpose(Exposed::of(self.app), seen);
        self.end_driver(seen);
        let count = self.status.run_failures.unwrap_or(self.status.execution_attempts);
        match restart::after(self.app.subject.spec, Failure::Run, count, since) {
            Retry::At(at) if self.now < at => self.wake_at(at),
            Retry::At(_) => {
                self.forget_run();
                self.enter(Phase::PendingRerun, "");
            }
            Retry::Never => {
                self.fold_executors(Gone::Failed, seen, limits);
                self.status.termination_time.get_or_insert(Time(since));
                let message = self.status.application_state.error_message.clone();
                self.enter(Phase::Failed { since }, &message);
            }
        }
    }

    pub(super) fn after_refusal(&mut self, since: Timestamp, seen: &Observation) {
        let count = self.status.submission_failures.unwrap_or(self.status.submission_attempts);
        match restart::after(self.app.subject.spec, Failure::Submission, count, since) {
            Retry::At(at) if self.now < at => self.wake_at(at),
            Retry::At(_) => self.start(seen),
            Retry::Never => {
                self.unexpose(Exposed::ALL, seen);
                self.delete_strays(None, seen);
                self.status.termination_time = Some(Time(self.now));
                let message = self.status.application_state.error_message.clone();
                self.enter(Phase::Failed { since: self.now }, &message);
            }
        }
    }

    /// The application ended: waits for its time to live and for executors that outlive their driver.
    pub(super) fn rest(&mut self, since: Timestamp, gone: Gone, seen: &Observation, limits: &Limits) {
        self.wake = None;
        self.fold_executors(gone, seen, limits);
        self.end_earlier(seen);
        self.end_driver(seen);
        let live = |e: &ExecutorSeen| matches!(e.phase, PodPhase::Pending | PodPhase::Running | PodPhase::Unknown);
        if gone == Gone::Failed && seen.executors.iter().any(live) {
            self.delete_executors(None, seen);
            self.wake_in(CALM);
        }
        self.unexpose_rest(seen);
        let Some(ttl) = self.app.subject.spec.time_to_live_seconds.or(limits.default_ttl) else { return };
        let until = since.checked_add(SignedDuration::from_secs(ttl.max(0))).unwrap_or(Timestamp::MAX);
        if self.now >= until {
            self.effects.push(Effect::DeleteApplication);
            self.wake_in(SOON);
        } else {
            self.wake_at(until);
        }
    }

    fn fold_executors(&mut self, gone: Gone, seen: &Observation, limits: &Limits) {
        if seen.executors.is_empty() && seen.departed.is_empty() && self.status.executor_state.is_empty() {
            return;
        }
        let old = Summary {
            table: std::mem::take(&mut self.status.executor_state),
            counts: self.status.executor_counts.take().unwrap_or_default(),
        };
        let (new, changes) = executors::fold(&old, &seen.executors, &seen.departed, gone, limits.tracked_executors);
        self.status.executor_state = new.table;
        self.status.executor_counts = Some(new.counts).filter(|c| *c != ExecutorCounts::default());
        let states = [
            (ExecutorState::Pending, reason::EXECUTOR_PENDING, "pending", false),
            (ExecutorState::Running, reason::EXECUTOR_RUNNING, "running", false),
            (ExecutorState::Completed, reason::EXECUTOR_COMPLETED, "completed", false),
            (ExecutorState::Failed, reason::EXECUTOR_FAILED, "failed", true),
            (ExecutorState::Unknown, reason::EXECUTOR_UNKNOWN, "in an unknown state", true),
        ];
        for (state, reason, word, warning) in states {
            let names: Vec<&str> = changes.iter().filter(|c| c.state == state).map(|c| c.name.as_str()).collect();
            let note = match names.len() {
                0 => continue,
                1 => format!("executor {} is {word}", names[0]),
                n if n <= EVENT_NAMES => format!("executors {} are {word}", names.join(", ")),
                n => format!("{n} executors are {word}: {} and others", names[..EVENT_NAMES].join(", ")),
            };
            self.event(warning, reason, note);
        }
    }
}
