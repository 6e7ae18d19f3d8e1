//! The driver's exposure: its Services, Ingresses or HTTPRoutes, and PodDisruptionBudget, from when the driver runs until it ends. They
//! are created and deleted in the background and never hold up the application. This module decides what the status
//! says about them, and when to retry.
//!
//! Retries are limited in time, counted from the first failure, which the condition remembers across operators.

use firesteel_api::names::CONDITION_EXPOSED;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::decision_builder::DecisionBuilder;
use super::{Effect, Exposed, Observation};
use crate::conditions::{self, Holds};
use crate::event_reason::application as reason;

/// How long a failed exposure is retried.
pub const BUDGET: SignedDuration = SignedDuration::from_mins(30);
/// The delay after the first failure; it doubles from there.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(2);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(1);
/// How long to wait for work in progress, which normally reports its end.
const UNDER_WAY: SignedDuration = SignedDuration::from_mins(1);

const APPLIED: &str = "Applied";
const APPLYING: &str = "Applying";
const RETRYING: &str = "Retrying";
const REFUSED: &str = "Refused";
const REMOVING: &str = "Removing";
const GIVEN_UP: &str = "GivenUp";
const KIND_MISSING: &str = "KindMissing";

/// Work on a driver's exposure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// None until the driver of this submission runs: a driver that waits needs none of it.
    Wait {
        submission_id: String,
    },
    /// Create it for the driver of this submission.
    Make {
        submission_id: String,
    },
    Remove,
}

/// Progress of that work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureJob {
    pub work: Work,
    /// How many objects to create.
    pub objects: usize,
    pub under_way: bool,
    /// Consecutive failures, and when the first and the last one happened.
    pub failures: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    /// The outcome of the last try, if one has ended.
    pub outcome: Option<ExposureOutcome>,
    /// A kind that the cluster lacked then is there now.
    pub kind_appeared: bool,
}

/// The outcome of one try.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExposureOutcome {
    pub web_service: Option<String>,
    /// The uid of that Service, so that it need not be read before it is deleted.
    pub web_service_uid: Option<String>,
    pub web_address: Option<String>,
    pub web_port: Option<i32>,
    pub web_ingress: Option<String>,
    pub web_url: Option<String>,
    /// Objects that are rejected and will be again, with a message each.
    pub refused: Vec<String>,
    /// Objects that may succeed later, with a message each.
    pub failed: Vec<String>,
    /// Objects of a kind that the cluster does not have, with a message each.
    pub missing: Vec<String>,
}

impl ExposureJob {
    /// When the next try is due.
    fn due(&self) -> Timestamp {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        self.last.checked_add(doubled.min(LONGEST_WAIT)).unwrap_or(Timestamp::MAX)
    }

    /// Whether it is neither done nor rejected for good.
    pub fn is_unsettled(&self) -> bool {
        self.under_way || self.failed().is_some()
    }

    fn failed(&self) -> Option<&ExposureOutcome> {
        self.outcome.as_ref().filter(|outcome| !outcome.failed.is_empty())
    }
}

impl DecisionBuilder<'_> {
    /// Moves the exposure of the current driver, which runs, forward.
    pub(super) fn expose(&mut self, job: Option<&ExposureJob>) {
        let ours = |job: &&ExposureJob| matches!(&job.work, Work::Make { submission_id } if Some(submission_id) == self.status.submission_id.as_ref());
        let Some(job) = job.filter(ours) else {
            // No try since this operator started. What another operator settled stays settled.
            let settled = |(_, reason): (String, String)| matches!(reason.as_str(), APPLIED | REFUSED | GIVEN_UP);
            if !self.exposed().is_some_and(settled) {
                self.effects.push(Effect::Expose);
                self.wake_in(UNDER_WAY);
            }
            return;
        };
        if job.objects == 0 {
            return;
        }
        let Some(outcome) = &job.outcome else {
            self.say_exposed(
                "Unknown",
                APPLYING,
                "creating the driver's services, ingresses and disruption budget",
                false,
            );
            self.wake_in(UNDER_WAY);
            return;
        };
        let info = &mut self.status.driver_info;
        info.web_ui_service_name.clone_from(&outcome.web_service);
        info.web_ui_address.clone_from(&outcome.web_address);
        info.web_ui_port = outcome.web_port;
        info.web_ui_ingress_name.clone_from(&outcome.web_ingress);
        info.web_ui_ingress_address.clone_from(&outcome.web_url);
        if let Some(outcome) = job.failed() {
            let sentences = outcome
                .failed
                .iter()
                .chain(&outcome.missing)
                .chain(&outcome.refused)
                .cloned()
                .collect::<Vec<_>>()
                .join("; ");
            if self.try_again(job, RETRYING, &format!("the driver runs without them for now: {sentences}")) {
                self.effects.push(Effect::Expose);
            }
        } else if !outcome.missing.is_empty() {
            let sentences = outcome.missing.iter().chain(&outcome.refused).cloned().collect::<Vec<_>>().join("; ");
            self.say_exposed("False", KIND_MISSING, &sentences, true);
            if job.kind_appeared && !job.under_way {
                self.effects.push(Effect::Expose);
                self.wake_in(UNDER_WAY);
            }
        } else if outcome.refused.is_empty() {
            self.say_exposed("True", APPLIED, "", false);
        } else {
            self.say_exposed("False", REFUSED, &outcome.refused.join("; "), true);
        }
    }

    /// Deletes the driver's exposure; nothing waits for it.
    pub(super) fn unexpose(&mut self, exposed: Exposed, seen: &Observation) {
        let job = seen.exposure_job.as_ref();
        match job.map(|job| (job, &job.work)) {
            Some((job, Work::Remove)) => self.note_removal(job),
            // It ended before this operator saw it run.
            Some((_, Work::Wait { submission_id }))
                if Some(submission_id) == self.status.submission_id.as_ref() && self.exposed().is_none() => {}
            Some((_, Work::Wait { .. } | Work::Make { .. })) | None => {
                // The status names only objects known to exist, and an operator may have died before it wrote them.
                let named = self.exposed().map_or(job.is_some(), |(_, reason)| reason == APPLIED);
                let exposed = if named { exposed } else { Exposed::ALL };
                self.effects.push(Effect::DeleteExposure(exposed));
                self.forget_exposed();
            }
        }
    }

    /// The same, but only if an earlier try left something behind.
    pub(super) fn unexpose_rest(&mut self, seen: &Observation) {
        if self.exposed().is_some_and(|(_, reason)| reason == REMOVING) {
            self.unexpose(Exposed::ALL, seen);
        }
    }

    /// Records the progress of a deletion.
    pub(super) fn note_removal(&mut self, job: &ExposureJob) {
        if let Some(outcome) = job.failed() {
            let sentences = outcome.failed.join("; ");
            if self.try_again(
                job,
                REMOVING,
                &format!(
                    "some of the driver's services, ingresses or disruption budgets are not deleted yet: {sentences}"
                ),
            ) {
                self.effects.push(Effect::DeleteExposure(Exposed::ALL));
            }
        } else if job.under_way {
            self.say_exposed(
                "False",
                REMOVING,
                "deleting the driver's services, ingresses and disruption budget",
                false,
            );
            self.wake_in(UNDER_WAY);
        } else {
            self.forget_exposed();
        }
    }

    /// Records a failed try. True if the next one is due, which it never is once the time limit has passed.
    fn try_again(&mut self, job: &ExposureJob, reason: &str, message: &str) -> bool {
        let known = conditions::since(&self.status.conditions, CONDITION_EXPOSED, "False");
        let first = known.map_or(job.first, |known| known.min(job.first));
        if self.now.duration_since(first) >= BUDGET {
            let minutes = BUDGET.as_mins();
            self.say_exposed("False", GIVEN_UP, &format!("gave up after {minutes} minutes: {message}"), true);
            return false;
        }
        self.say_exposed("False", reason, message, true);
        if job.under_way {
            self.wake_in(UNDER_WAY);
            return false;
        }
        let due = job.due();
        if self.now < due {
            self.wake_at(due);
            return false;
        }
        self.wake_in(UNDER_WAY);
        true
    }

    /// Status and reason of the condition.
    fn exposed(&self) -> Option<(String, String)> {
        let condition = self.status.conditions.iter().find(|c| c.type_ == CONDITION_EXPOSED)?;
        Some((condition.status.clone(), condition.reason.clone()))
    }

    fn forget_exposed(&mut self) {
        self.status.conditions.retain(|c| c.type_ != CONDITION_EXPOSED);
    }

    /// Sets the condition. A problem is also published as an event, once per reason.
    fn say_exposed(&mut self, status: &str, reason: &str, message: &str, wrong: bool) {
        let news = self.exposed().is_none_or(|(_, told)| told != reason);
        if wrong && news {
            self.event(true, reason::DRIVER_NOT_EXPOSED, message.to_owned());
        }
        let holds = Holds { kind: CONDITION_EXPOSED, status, reason, message };
        conditions::set(&mut self.status.conditions, &holds, self.app.generation, self.now);
    }
}
