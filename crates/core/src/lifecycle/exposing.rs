//! What stands around a driver (services and ingresses that lead to it, its budget) is made and removed beside the life of
//! the application, and never holds it up. Here is what follows from how that goes: what the status says of it, and when
//! it is tried again.
//!
//! Tries have a budget in time. It is counted from the first failure, which the condition remembers across operators.

use firesteel_api::names::CONDITION_EXPOSED;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use super::{Effect, Exposed, Observation};
use crate::conditions::{self, Holds};
use crate::event_reason::application as reason;

/// How long what stands around a driver is tried again.
pub const BUDGET: SignedDuration = SignedDuration::from_mins(30);
/// The wait after the first failure; it doubles from there.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(2);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(1);
/// How long to wait for work that is under way; as a rule its end is told.
const UNDER_WAY: SignedDuration = SignedDuration::from_mins(1);

const APPLIED: &str = "Applied";
const APPLYING: &str = "Applying";
const RETRYING: &str = "Retrying";
const REFUSED: &str = "Refused";
const REMOVING: &str = "Removing";
const GIVEN_UP: &str = "GivenUp";

/// Work on what stands around a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Make it for the driver of this submission.
    Make {
        submission_id: String,
    },
    Remove,
}

/// How far this operator is with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    pub work: Work,
    /// Objects there are to be.
    pub objects: usize,
    pub under_way: bool,
    /// Tries that failed, one after the other, and when the first and the last of them did.
    pub failures: u32,
    pub first: Timestamp,
    pub last: Timestamp,
    /// What the last try came to, if one has ended.
    pub outcome: Option<Outcome>,
}

/// What one try came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub web_service: Option<String>,
    pub web_address: Option<String>,
    pub web_port: Option<i32>,
    pub web_ingress: Option<String>,
    pub web_url: Option<String>,
    /// Objects that are refused and will be again, each with a sentence.
    pub refused: Vec<String>,
    /// Objects that may work later, each with a sentence.
    pub failed: Vec<String>,
}

impl Around {
    /// When the next try is due.
    fn due(&self) -> Timestamp {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        self.last.checked_add(doubled.min(LONGEST_WAIT)).unwrap_or(Timestamp::MAX)
    }

    /// Whether it is neither done nor refused for good.
    pub fn is_unsettled(&self) -> bool {
        self.under_way || self.failed().is_some()
    }

    fn failed(&self) -> Option<&Outcome> {
        self.outcome.as_ref().filter(|outcome| !outcome.failed.is_empty())
    }
}

impl Draft<'_> {
    /// Brings what stands around the driver of the current submission along.
    pub(super) fn expose(&mut self, around: Option<&Around>) {
        let ours = |around: &&Around| matches!(&around.work, Work::Make { submission_id } if Some(submission_id) == self.status.submission_id.as_ref());
        let Some(around) = around.filter(ours) else {
            // Nobody has tried since this operator began. What another one has settled stays settled.
            let settled = |(_, reason): (String, String)| matches!(reason.as_str(), APPLIED | REFUSED | GIVEN_UP);
            if !self.exposed().is_some_and(settled) {
                self.effects.push(Effect::Expose);
                self.wake_in(UNDER_WAY);
            }
            return;
        };
        if around.objects == 0 {
            return;
        }
        let Some(outcome) = &around.outcome else {
            self.say_exposed("Unknown", APPLYING, "what stands around the driver is being made", false);
            self.wake_in(UNDER_WAY);
            return;
        };
        let info = &mut self.status.driver_info;
        info.web_ui_service_name.clone_from(&outcome.web_service);
        info.web_ui_address.clone_from(&outcome.web_address);
        info.web_ui_port = outcome.web_port;
        info.web_ui_ingress_name.clone_from(&outcome.web_ingress);
        info.web_ui_ingress_address.clone_from(&outcome.web_url);
        if let Some(outcome) = around.failed() {
            let sentences = outcome.failed.iter().chain(&outcome.refused).cloned().collect::<Vec<_>>().join("; ");
            if self.try_again(around, RETRYING, &format!("the driver does without it for now: {sentences}")) {
                self.effects.push(Effect::Expose);
            }
        } else if outcome.refused.is_empty() {
            self.say_exposed("True", APPLIED, "", false);
        } else {
            self.say_exposed("False", REFUSED, &outcome.refused.join("; "), true);
        }
    }

    /// Removes what stands around the driver: nothing waits for it.
    pub(super) fn unexpose(&mut self, exposed: Exposed, seen: &Observation) {
        let removal = seen.around.as_ref().filter(|around| around.work == Work::Remove);
        match removal {
            None => {
                // The status names only what is known to be there.
                let named = self.exposed().is_none_or(|(_, reason)| reason == APPLIED);
                let exposed = if named { exposed } else { Exposed::ALL };
                self.effects.push(Effect::DeleteExposure(exposed));
                self.forget_exposed();
            }
            Some(around) => self.note_removal(around),
        }
    }

    /// The same, but only if an earlier try has left something.
    pub(super) fn unexpose_rest(&mut self, seen: &Observation) {
        if self.exposed().is_some_and(|(_, reason)| reason == REMOVING) {
            self.unexpose(Exposed::ALL, seen);
        }
    }

    /// Takes in how far a removal is.
    pub(super) fn note_removal(&mut self, around: &Around) {
        if let Some(outcome) = around.failed() {
            let sentences = outcome.failed.join("; ");
            if self.try_again(around, REMOVING, &format!("what stood around the driver is not all gone: {sentences}")) {
                self.effects.push(Effect::DeleteExposure(Exposed::ALL));
            }
        } else if around.under_way {
            self.say_exposed("False", REMOVING, "what stood around the driver is being removed", false);
            self.wake_in(UNDER_WAY);
        } else {
            self.forget_exposed();
        }
    }

    /// Says that a try failed. Whether the next one is due; it never is once the budget is spent.
    fn try_again(&mut self, around: &Around, reason: &str, message: &str) -> bool {
        let known = conditions::since(&self.status.conditions, CONDITION_EXPOSED, "False");
        let first = known.map_or(around.first, |known| known.min(around.first));
        if self.now.duration_since(first) >= BUDGET {
            let minutes = BUDGET.as_mins();
            self.say_exposed("False", GIVEN_UP, &format!("given up after {minutes} minutes: {message}"), true);
            return false;
        }
        self.say_exposed("False", reason, message, true);
        if around.under_way {
            self.wake_in(UNDER_WAY);
            return false;
        }
        let due = around.due();
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

    /// Sets the condition; what is wrong is an event too, once for each reason.
    fn say_exposed(&mut self, status: &str, reason: &str, message: &str, wrong: bool) {
        let news = self.exposed().is_none_or(|(_, told)| told != reason);
        if wrong && news {
            self.event(true, reason::DRIVER_NOT_EXPOSED, message.to_owned());
        }
        let holds = Holds { kind: CONDITION_EXPOSED, status, reason, message };
        conditions::set(&mut self.status.conditions, &holds, self.app.generation, self.now);
    }
}
