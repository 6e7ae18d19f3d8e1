//! What a status says about executors: a bounded table, and counts that stay exact beyond it.
//!
//! Executors of one run have ids that only grow. The table keeps every live executor it has room for and then the most
//! recent ended ones; an ended executor that falls out of it has been counted and is never counted again.

use std::collections::{BTreeMap, BTreeSet};

use firesteel_api::spark_application::ExecutorCounts;

use crate::driver_pod::PodPhase;

/// An executor pod, as far as the status depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorSeen {
    pub name: String,
    pub id: i64,
    pub phase: PodPhase,
}

/// The words of `status.executorState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutorState {
    Pending,
    Running,
    Completed,
    Failed,
    Unknown,
}

impl ExecutorState {
    pub fn word(self) -> &'static str {
        match self {
            ExecutorState::Pending => "PENDING",
            ExecutorState::Running => "RUNNING",
            ExecutorState::Completed => "COMPLETED",
            ExecutorState::Failed => "FAILED",
            ExecutorState::Unknown => "UNKNOWN",
        }
    }

    fn read(word: &str) -> Self {
        match word {
            "PENDING" => ExecutorState::Pending,
            "RUNNING" => ExecutorState::Running,
            "COMPLETED" => ExecutorState::Completed,
            "FAILED" => ExecutorState::Failed,
            _ => ExecutorState::Unknown,
        }
    }

    fn of(phase: PodPhase) -> Self {
        match phase {
            PodPhase::Pending => ExecutorState::Pending,
            PodPhase::Running => ExecutorState::Running,
            PodPhase::Succeeded => ExecutorState::Completed,
            PodPhase::Failed => ExecutorState::Failed,
            PodPhase::Unknown => ExecutorState::Unknown,
        }
    }

    /// Whether it will not change any more.
    pub fn has_ended(self) -> bool {
        match self {
            ExecutorState::Completed | ExecutorState::Failed => true,
            ExecutorState::Pending | ExecutorState::Running | ExecutorState::Unknown => false,
        }
    }
}

/// What an executor whose pod is gone counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The application still runs: nobody knows.
    Unknown,
    /// The application ended well, so did they.
    Completed,
    /// The application failed and took them along.
    Failed,
}

/// Table and counts of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub table: BTreeMap<String, String>,
    pub counts: ExecutorCounts,
}

/// One executor state that changed, for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: String,
    pub state: ExecutorState,
}

/// Folds what is seen now into what was known. `limit` bounds the table.
pub fn fold(old: &Summary, seen: &[ExecutorSeen], gone: Gone, limit: usize) -> (Summary, Vec<Change>) {
    let forgotten = old.counts.forgotten_through.unwrap_or(-1);
    let mut counts = ExecutorCounts {
        completed: old.counts.completed,
        failed: old.counts.failed,
        forgotten_through: old.counts.forgotten_through,
        ..ExecutorCounts::default()
    };
    let mut changes = Vec::new();
    let mut rows: BTreeMap<&str, (i64, ExecutorState, bool)> = BTreeMap::new();
    for executor in seen {
        let state = ExecutorState::of(executor.phase);
        let before = old.table.get(&executor.name).map(|w| ExecutorState::read(w));
        if before.is_none() && state.has_ended() && executor.id <= forgotten {
            continue;
        }
        rows.insert(&executor.name, (executor.id, state, true));
        note(&executor.name, before, state, &mut counts, &mut changes);
    }
    let visible: BTreeSet<&str> = seen.iter().map(|e| e.name.as_str()).collect();
    for (name, word) in old.table.iter().filter(|(name, _)| !visible.contains(name.as_str())) {
        let before = ExecutorState::read(word);
        let state = match (before.has_ended(), gone) {
            (true, _) => before,
            (false, Gone::Unknown) => ExecutorState::Unknown,
            (false, Gone::Completed) => ExecutorState::Completed,
            (false, Gone::Failed) => ExecutorState::Failed,
        };
        rows.insert(name, (id_of(name), state, false));
        note(name, Some(before), state, &mut counts, &mut changes);
    }
    for (_, state, _) in rows.values() {
        match state {
            ExecutorState::Pending => counts.pending += 1,
            ExecutorState::Running => counts.running += 1,
            ExecutorState::Unknown => counts.unknown += 1,
            // Counted when they ended.
            ExecutorState::Completed | ExecutorState::Failed => {}
        }
    }

    let mut order: Vec<(&str, (i64, ExecutorState, bool))> = rows.into_iter().collect();
    // Live ones first, then by age, newest first.
    order.sort_by_key(|(_, (id, state, _))| (state.has_ended(), -id));
    for (_, (id, state, _)) in order.iter().skip(limit) {
        if state.has_ended() {
            counts.forgotten_through = Some(counts.forgotten_through.unwrap_or(-1).max(*id));
        }
    }
    let table =
        order.into_iter().take(limit).map(|(name, (_, state, _))| (name.to_owned(), state.word().to_owned())).collect();
    (Summary { table, counts }, changes)
}

fn note(
    name: &str,
    before: Option<ExecutorState>,
    now: ExecutorState,
    counts: &mut ExecutorCounts,
    changes: &mut Vec<Change>,
) {
    if before == Some(now) {
        return;
    }
    changes.push(Change { name: name.to_owned(), state: now });
    if before.is_some_and(ExecutorState::has_ended) {
        return;
    }
    match now {
        ExecutorState::Completed => counts.completed += 1,
        ExecutorState::Failed => counts.failed += 1,
        ExecutorState::Pending | ExecutorState::Running | ExecutorState::Unknown => {}
    }
}

/// The id at the end of an executor pod's name.
fn id_of(name: &str) -> i64 {
    name.rsplit('-').next().and_then(|id| id.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ids: std::ops::RangeInclusive<i64>, phase: PodPhase) -> Vec<ExecutorSeen> {
        ids.map(|id| ExecutorSeen { name: format!("pi-exec-{id}"), id, phase }).collect()
    }

    #[test]
    fn d17_the_newest_executors_stay_in_the_table_and_counts_stay_exact() {
        let mut summary = Summary::default();
        let mut all = Vec::new();
        for batch in 0..10 {
            all.extend(seen(batch * 10 + 1..=batch * 10 + 10, PodPhase::Failed));
            summary = fold(&summary, &all, Gone::Unknown, 15).0;
        }
        assert_eq!(summary.counts.failed, 100);
        assert_eq!(summary.table.len(), 15);
        assert!(summary.table.contains_key("pi-exec-100") && !summary.table.contains_key("pi-exec-1"));
        let again = fold(&summary, &all, Gone::Unknown, 15).0;
        assert_eq!(again, summary);
        let vanished = fold(&summary, &[], Gone::Failed, 15).0;
        assert_eq!(vanished.counts.failed, 100);
    }

    #[test]
    fn an_executor_that_vanished_ends_as_its_application_does() {
        let running = fold(&Summary::default(), &seen(1..=2, PodPhase::Running), Gone::Unknown, 10).0;
        assert_eq!(running.counts.running, 2);
        let lost = fold(&running, &[], Gone::Unknown, 10).0;
        assert_eq!(lost.counts.unknown, 2);
        let ended = fold(&lost, &[], Gone::Completed, 10).0;
        assert_eq!((ended.counts.unknown, ended.counts.completed), (0, 2));
    }

    #[test]
    fn two_thousand_executors_stay_below_200_kib() {
        let long = "a".repeat(60);
        let executors: Vec<_> = (1..=2000)
            .map(|id| ExecutorSeen { name: format!("{long}-0123456789abcdef-exec-{id}"), id, phase: PodPhase::Running })
            .collect();
        let (summary, _) = fold(&Summary::default(), &executors, Gone::Unknown, 1000);
        assert_eq!(summary.counts.running, 2000);
        assert!(serde_json::to_string(&summary.table).unwrap().len() < 150 * 1024);
    }
}
