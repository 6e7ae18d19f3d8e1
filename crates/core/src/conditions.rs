//! Conditions of a status, for `kubectl wait` and for people.

use firesteel_api::SparkApplicationStatus;
use firesteel_api::names::{
    CONDITION_DRIVER_PRESENT, CONDITION_FIELDS_HONOURED, CONDITION_FINISHED, CONDITION_RUNNING,
    CONDITION_SPEC_ACCEPTED, CONDITION_SUCCEEDED,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::phase::Phase;

/// The most of a message that a condition holds.
const MESSAGE_BYTES: usize = 1024;

/// One condition to set.
pub(crate) struct Holds<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Sets a condition. The transition time changes only with the status.
pub(crate) fn set(list: &mut Vec<Condition>, holds: &Holds<'_>, generation: i64, now: Timestamp) {
    let mut message = holds.message;
    if message.len() > MESSAGE_BYTES {
        let mut end = MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message = &message[..end];
    }
    let old = list.iter().position(|c| c.type_ == holds.kind);
    let since = old.map(|i| &list[i]).filter(|c| c.status == holds.status).map(|c| c.last_transition_time.clone());
    let condition = Condition {
        type_: holds.kind.to_owned(),
        status: holds.status.to_owned(),
        reason: reason(holds.reason),
        message: message.to_owned(),
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match old {
        Some(i) => list[i] = condition,
        None => list.push(condition),
    }
}

pub(crate) fn find<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.type_ == kind)
}

/// Since when a condition has this status.
pub(crate) fn since(list: &[Condition], kind: &str, status: &str) -> Option<Timestamp> {
    list.iter().find(|c| c.type_ == kind && c.status == status).map(|c| c.last_transition_time.0)
}

/// What is known of the driver pod that should exist.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Presence<'a> {
    Found,
    NotFound,
    /// It cannot be created for now.
    NotCreated {
        reason: &'a str,
        message: &'a str,
    },
    /// Whether it still exists is unknown.
    Unknown {
        reason: &'a str,
        message: &'a str,
    },
}

pub(crate) fn driver_present(
    status: &mut SparkApplicationStatus,
    presence: Presence<'_>,
    generation: i64,
    now: Timestamp,
) {
    let (value, reason, message) = match presence {
        Presence::Found => ("True", "Found", ""),
        Presence::NotFound => ("False", "NotFound", "the driver pod does not exist"),
        Presence::NotCreated { reason, message } => ("False", reason, message),
        Presence::Unknown { reason, message } => ("Unknown", reason, message),
    };
    let holds = Holds { kind: CONDITION_DRIVER_PRESENT, status: value, reason, message };
    set(&mut status.conditions, &holds, generation, now);
}

pub(crate) fn fields(status: &mut SparkApplicationStatus, lost: &[(String, String)], generation: i64, now: Timestamp) {
    let message: Vec<String> = lost.iter().map(|(path, why)| format!("{path} has no effect: {why}")).collect();
    let message = message.join("; ");
    let holds = if lost.is_empty() {
        Holds { kind: CONDITION_FIELDS_HONOURED, status: "True", reason: "AllApplied", message: "" }
    } else {
        Holds { kind: CONDITION_FIELDS_HONOURED, status: "False", reason: "NoEffect", message: &message }
    };
    set(&mut status.conditions, &holds, generation, now);
}

/// Reports what is wrong with an edit while the previous run continues. True if that is news.
pub(crate) fn refuse_edit(status: &mut SparkApplicationStatus, problem: &str, generation: i64, now: Timestamp) -> bool {
    let said = |list: &[Condition]| list.iter().find(|c| c.type_ == CONDITION_SPEC_ACCEPTED).map(|c| c.message.clone());
    let before = said(&status.conditions);
    let message = format!("{problem}; the run continues with the previous specification");
    let holds = Holds { kind: CONDITION_SPEC_ACCEPTED, status: "False", reason: "CannotWork", message: &message };
    set(&mut status.conditions, &holds, generation, now);
    said(&status.conditions) != before
}

/// Whether the status says that an edit was refused.
pub fn refuses_edit(status: &SparkApplicationStatus) -> bool {
    status.conditions.iter().any(|c| c.type_ == CONDITION_SPEC_ACCEPTED)
}

/// No edit is refused any more. True if one was.
pub(crate) fn forget_refused_edit(status: &mut SparkApplicationStatus) -> bool {
    let before = status.conditions.len();
    status.conditions.retain(|c| c.type_ != CONDITION_SPEC_ACCEPTED);
    status.conditions.len() != before
}

/// Sets the conditions that follow from the phase. `waiting` is why the driver does not run yet.
pub(crate) fn follow(
    status: &mut SparkApplicationStatus,
    phase: Phase,
    waiting: Option<(&str, &str)>,
    generation: i64,
    now: Timestamp,
) {
    let word = camel(phase.word());
    let error = status.application_state.error_message.clone();
    let first_line = error.lines().next().unwrap_or_default();
    let (reason, message) = match waiting {
        Some((reason, message)) if matches!(phase, Phase::Submitted { .. }) => (reason, message),
        Some(_) | None => (word.as_str(), first_line),
    };
    let running = if phase == Phase::Running { "True" } else { "False" };
    let finished = if phase.is_terminal() { "True" } else { "False" };
    let succeeded = match phase {
        Phase::Completed { .. } => "True",
        Phase::Failed { .. } => "False",
        Phase::New
        | Phase::Submitted { .. }
        | Phase::Running
        | Phase::Succeeding
        | Phase::Failing { .. }
        | Phase::SubmissionFailed { .. }
        | Phase::PendingRerun
        | Phase::Invalidating
        | Phase::Suspending
        | Phase::Suspended
        | Phase::Resuming
        | Phase::Unknown => "Unknown",
    };
    for (kind, value) in
        [(CONDITION_RUNNING, running), (CONDITION_SUCCEEDED, succeeded), (CONDITION_FINISHED, finished)]
    {
        set(&mut status.conditions, &Holds { kind, status: value, reason, message }, generation, now);
    }
}

/// `PENDING_RERUN` as `PendingRerun`.
fn camel(word: &str) -> String {
    if word.is_empty() {
        return "New".to_owned();
    }
    word.split('_')
        .map(|part| {
            let mut letters = part.chars();
            letters.next().into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect::<String>()
        })
        .collect()
}

/// Reasons are single words.
pub(crate) fn reason(text: &str) -> String {
    let word: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
    if word.starts_with(|c: char| c.is_ascii_alphabetic()) { word } else { format!("Reason{word}") }
}
