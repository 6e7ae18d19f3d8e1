//! Why an executor was lost, and what caused it.
//!
//! The application: its own exit code, or exceeding its memory limit. The platform: eviction, preemption, drain, deletion, a
//! lost node, an image that cannot be pulled, an unschedulable pod, and everything without a known reason.

use firesteel_api::executors::Cause;

use super::pod::{End, ExecutorPod, State};
use crate::pod::{OUT_OF_MEMORY, Role, Words, exit_meaning, is_start_failure};

/// The end of one executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub code: i32,
    pub cause: Cause,
    pub text: String,
    pub kind: EndingKind,
}

/// What an ending says about starting another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndingKind {
    /// It finished.
    Done,
    /// It failed while it worked.
    Failed,
    /// It never started to work; another node may do better.
    NeverStarted,
    /// The platform took it away.
    Taken,
}

impl Ending {
    /// The same for an executor that never registered with the driver: it cannot have finished.
    pub(super) fn unless_done(mut self) -> Self {
        if self.kind == EndingKind::Done {
            self.kind = EndingKind::Failed;
            self.text += " before it registered with the driver; check its log and the command of its image";
        }
        self
    }
}

/// The end of an executor whose container or pod ended.
pub fn of_end(pod: &ExecutorPod, end: &End) -> Ending {
    if let Some(words) = end.pod.as_ref().filter(|words| words.is_node_refusal()) {
        return Ending {
            code: end.code,
            cause: Cause::Platform,
            text: words.explain(),
            kind: EndingKind::NeverStarted,
        };
    }
    if let Some(words) = end.pod.as_ref().filter(|words| words.is_taken()) {
        return taken(end.code, &words.explain());
    }
    if let Some(words) = &pod.disruption {
        return taken(end.code, &words.explain());
    }
    let meaning = exit_meaning(Role::Executor, end.code, &end.reason).unwrap_or_else(|| "unexpected".to_owned());
    if end.reason == OUT_OF_MEMORY {
        let text = format!("{OUT_OF_MEMORY} (exit code {}): {meaning}", end.code);
        return Ending { code: end.code, cause: Cause::Application, text, kind: EndingKind::Failed };
    }
    if pod.leaving_by.is_some() && (end.code != 0 || end.reason.is_empty()) {
        return taken(end.code, "its pod was deleted by someone else (kubectl delete, a drain, or a controller)");
    }
    if end.code == 0 {
        let text = "the executor ended by itself (exit code 0)".to_owned();
        return Ending { code: 0, cause: Cause::Application, text, kind: EndingKind::Done };
    }
    if end.code == -1 {
        let words = end.pod.as_ref().map_or_else(|| "no container reports why".to_owned(), Words::explain);
        return taken(-1, &format!("the pod failed: {words}"));
    }
    if is_start_failure(&end.reason) {
        let text = format!("{meaning} ({}): {}", end.reason, end.message.trim());
        return Ending { code: end.code, cause: Cause::Platform, text, kind: EndingKind::NeverStarted };
    }
    let mut text = format!("exit code {}: {meaning}", end.code);
    if !end.message.trim().is_empty() {
        text += &format!(" ({})", tail(end.message.trim()));
    }
    Ending { code: end.code, cause: Cause::Application, text, kind: EndingKind::Failed }
}

/// Every word of [`loss_word`].
pub const LOSS_WORDS: [&str; 7] =
    ["application", "out_of_memory", "evicted", "preempted", "node", "platform", "withdrawn"];

/// The cause of a loss as one word for metrics, more exact if the pod says more.
pub fn loss_word(cause: Cause, pod: Option<&ExecutorPod>) -> &'static str {
    let end = pod.and_then(|pod| match &pod.state {
        State::Ended(end) => Some(end),
        State::Pending { .. } | State::Running { .. } => None,
    });
    match cause {
        Cause::Withdrawn => "withdrawn",
        Cause::Application if end.is_some_and(|end| end.reason == OUT_OF_MEMORY) => "out_of_memory",
        Cause::Application => "application",
        Cause::Platform => {
            let of_pod = end.and_then(|end| end.pod.as_ref()).and_then(Words::taker);
            let of_condition = || pod.and_then(|pod| pod.disruption.as_ref()).and_then(Words::taker);
            of_pod.or_else(of_condition).unwrap_or("platform")
        }
    }
}

/// The end of an executor whose pod no longer exists.
pub fn of_missing() -> Ending {
    taken(-1, "its pod is gone: it was deleted, or its node was removed")
}

/// The end of an executor whose pod runs another one now.
pub fn of_restarted() -> Ending {
    taken(-1, "its container restarted as another executor")
}

/// The end of an executor whose pod should have ended long ago.
pub fn of_overdue(pod: &ExecutorPod) -> Ending {
    let words = pod.disruption.as_ref().map_or_else(
        || "its pod was deleted and did not end in time; its node may be gone".to_owned(),
        |words| format!("{}; it did not end in time", words.explain()),
    );
    taken(-1, &words)
}

/// The end of an executor that lost its driver, or that its driver lost, for no known reason.
pub fn of_disconnected() -> Ending {
    taken(-1, "it lost its connection to the driver, and no reason was found within 10 s")
}

/// The end of an executor that runs but never registered with the driver.
pub fn of_unregistered(seconds: u32) -> Ending {
    let text = format!(
        "it ran for {seconds} s without registering with the driver; check its log, and that it can reach the driver's \
         Service"
    );
    Ending { code: -1, cause: Cause::Platform, text, kind: EndingKind::NeverStarted }
}

/// The end of an executor that keeps running although Spark told it to stop.
pub fn of_hung() -> Ending {
    Ending {
        code: -1,
        cause: Cause::Platform,
        text: "Spark removed it, but its process kept running; it was stopped".to_owned(),
        kind: EndingKind::Done,
    }
}

/// The end of a pod that never started.
pub fn of_waiting(words: Option<&Words>, seconds: u32) -> Ending {
    let why = words.map_or_else(|| "no reason is known".to_owned(), Words::explain);
    let text = format!("it did not start within {seconds} s: {why}");
    Ending { code: -1, cause: Cause::Platform, text, kind: EndingKind::NeverStarted }
}

fn taken(code: i32, text: &str) -> Ending {
    Ending { code, cause: Cause::Platform, text: text.to_owned(), kind: EndingKind::Taken }
}

/// The last part of a long message.
fn tail(text: &str) -> &str {
    const MOST: usize = 300;
    let mut at = text.len().saturating_sub(MOST);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}
