//! What a status says about executors: a bounded table, and counts that stay exact beyond it.
//!
//! The table keeps every live executor it has room for, then the most recent of those that ended or vanished. For the others
//! only ids are kept, as ranges, by what is known about them: an executor is counted once, whether the table shows it or not.
//!
//! An executor is live if it has a pod that has not ended. One whose pod is gone keeps its last phase if that is final;
//! otherwise how it ended is unknown, and it is UNKNOWN until its application ends, as with the existing operator.

use std::collections::{BTreeMap, BTreeSet};

use firesteel_api::spark_application::{ExecutorCounts, UntrackedExecutors};

use crate::id_set;
use crate::pod::PodPhase;

/// The most bytes of names and states in the table. The API server keeps the names a second time, in `managedFields`.
const TABLE_BYTES: usize = 64 * 1024;

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

    /// The state once its pod is gone.
    fn without_pod(self, gone: Gone) -> Self {
        match (self.has_ended(), gone) {
            (true, _) => self,
            (false, Gone::Unknown) => ExecutorState::Unknown,
            (false, Gone::Completed) => ExecutorState::Completed,
            (false, Gone::Failed) => ExecutorState::Failed,
        }
    }
}

/// What an executor whose pod is gone counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The application still runs: unknown.
    Unknown,
    /// The application succeeded, and so did they.
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

/// What was known about an executor before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// In the table.
    Row(ExecutorState),
    /// Not in the table, alive when last seen.
    Live,
}

/// Folds the current observation into what was known. Pods in `departed` have disappeared since the last one; their phase is
/// the last they had. `limit` bounds the rows of the table.
pub fn fold(
    old: &Summary,
    seen: &[ExecutorSeen],
    departed: &[ExecutorSeen],
    gone: Gone,
    limit: usize,
) -> (Summary, Vec<Change>) {
    let untracked = old.counts.untracked.clone().unwrap_or_default();
    let (mut live, ended) = (id_set::read(&untracked.live), id_set::read(&untracked.ended));
    let mut lost = id_set::read(&untracked.lost);
    let mut counts =
        ExecutorCounts { completed: old.counts.completed, failed: old.counts.failed, ..ExecutorCounts::default() };
    let mut changes = Vec::new();
    let mut beyond = Beyond::default();
    // Departed executors may be reported again, if the response to a status write was lost.
    let mut told = BTreeSet::new();
    let mut rows: BTreeMap<&str, (i64, ExecutorState, bool)> = BTreeMap::new();
    let visible: BTreeSet<&str> = seen.iter().map(|e| e.name.as_str()).collect();
    let departed = departed.iter().filter(|executor| !visible.contains(executor.name.as_str()));
    for (executor, present) in seen.iter().map(|e| (e, true)).chain(departed.map(|e| (e, false))) {
        let last = ExecutorState::of(executor.phase);
        let state = if present { last } else { last.without_pod(gone) };
        let row = old.table.get(&executor.name).map(|w| ExecutorState::read(w));
        let was_live = live.remove(&executor.id) | lost.remove(&executor.id);
        if row.is_none() && state.has_ended() && ended.contains(&executor.id) {
            beyond.ended.insert(executor.id);
            continue;
        }
        let before = match row {
            Some(row) => Before::Row(row),
            None if was_live => Before::Live,
            None => Before::Nothing,
        };
        rows.insert(&executor.name, (executor.id, state, present));
        if !present {
            told.insert(executor.id);
        }
        note(&executor.name, before, state, &mut counts, &mut changes);
    }
    for (name, word) in &old.table {
        if rows.contains_key(name.as_str()) {
            continue;
        }
        let before = ExecutorState::read(word);
        let state = before.without_pod(gone);
        rows.insert(name, (id_of(name), state, false));
        note(name, Before::Row(before), state, &mut counts, &mut changes);
    }
    // Executors that are gone and that the table never had room for.
    let vanished = live.into_iter().chain(lost);
    match gone {
        Gone::Unknown => beyond.lost.extend(vanished),
        Gone::Completed => counts.completed = add(counts.completed, vanished.count()),
        Gone::Failed => counts.failed = add(counts.failed, vanished.count()),
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
    counts.unknown = add(counts.unknown, beyond.lost.len());

    let mut order: Vec<(&str, (i64, ExecutorState, bool))> = rows.into_iter().collect();
    // Live ones first, then by age, newest first.
    order.sort_by_key(|(_, (id, state, present))| (state.has_ended() || !present, -id));
    let mut table = BTreeMap::new();
    let mut bytes = 0;
    for (name, (id, state, present)) in order {
        let size = name.len() + state.word().len();
        if table.len() < limit && bytes + size <= TABLE_BYTES {
            bytes += size;
            table.insert(name.to_owned(), state.word().to_owned());
        } else {
            beyond.put(id, state, present || (state.has_ended() && told.contains(&id)));
        }
    }
    counts.untracked = beyond.written();
    (Summary { table, counts }, changes)
}

/// Executors the table has no room for.
#[derive(Debug, Default)]
struct Beyond {
    live: BTreeSet<i64>,
    ended: BTreeSet<i64>,
    lost: BTreeSet<i64>,
}

impl Beyond {
    fn put(&mut self, id: i64, state: ExecutorState, present: bool) {
        match (state.has_ended(), present) {
            (false, true) => self.live.insert(id),
            (false, false) => self.lost.insert(id),
            (true, true) => self.ended.insert(id),
            // Counted, and never seen again.
            (true, false) => false,
        };
    }

    fn written(&self) -> Option<UntrackedExecutors> {
        let written = UntrackedExecutors {
            live: id_set::write(&self.live),
            ended: id_set::write(&self.ended),
            lost: id_set::write(&self.lost),
        };
        Some(written).filter(|w| *w != UntrackedExecutors::default())
    }
}

fn add(count: i32, more: usize) -> i32 {
    count.saturating_add(i32::try_from(more).unwrap_or(i32::MAX))
}

fn note(name: &str, before: Before, now: ExecutorState, counts: &mut ExecutorCounts, changes: &mut Vec<Change>) {
    match before {
        Before::Row(state) if state == now => return,
        // Whether it was pending or running is unknown; the counts show both.
        Before::Live if !now.has_ended() => return,
        Before::Row(_) | Before::Live | Before::Nothing => {}
    }
    changes.push(Change { name: name.to_owned(), state: now });
    if matches!(before, Before::Row(state) if state.has_ended()) {
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
            summary = fold(&summary, &all, &[], Gone::Unknown, 15).0;
        }
        assert_eq!(summary.counts.failed, 100);
        assert_eq!(summary.table.len(), 15);
        assert!(summary.table.contains_key("pi-exec-100") && !summary.table.contains_key("pi-exec-1"));
        let again = fold(&summary, &all, &[], Gone::Unknown, 15).0;
        assert_eq!(again, summary);
        let vanished = fold(&summary, &[], &[], Gone::Failed, 15).0;
        assert_eq!(vanished.counts.failed, 100);
    }

    #[test]
    fn an_executor_that_vanished_ends_as_its_application_does() {
        let running = fold(&Summary::default(), &seen(1..=2, PodPhase::Running), &[], Gone::Unknown, 10).0;
        assert_eq!(running.counts.running, 2);
        let lost = fold(&running, &[], &[], Gone::Unknown, 10).0;
        assert_eq!(lost.counts.unknown, 2);
        let ended = fold(&lost, &[], &[], Gone::Completed, 10).0;
        assert_eq!((ended.counts.unknown, ended.counts.completed), (0, 2));
    }

    #[test]
    fn a_thousand_executors_that_vanished_leave_the_table_to_those_that_run() {
        let mut all = seen(1..=10, PodPhase::Running);
        all.extend(seen(11..=1010, PodPhase::Running));
        let before = fold(&Summary::default(), &all, &[], Gone::Unknown, 1000).0;
        let after = fold(&before, &seen(1..=10, PodPhase::Running), &[], Gone::Unknown, 1000).0;
        assert_eq!((after.counts.running, after.counts.unknown, after.table.len()), (10, 1000, 1000));
        let running = |summary: &Summary| summary.table.values().filter(|word| *word == "RUNNING").count();
        assert_eq!(running(&after), 10, "live ones come first");
        let again = fold(&after, &seen(1..=10, PodPhase::Running), &[], Gone::Unknown, 1000).0;
        assert_eq!(again, after);
    }

    #[test]
    fn an_executor_that_ended_and_went_between_two_looks_keeps_its_last_phase() {
        let running = fold(&Summary::default(), &seen(1..=3, PodPhase::Running), &[], Gone::Unknown, 10).0;
        let mut departed = seen(1..=1, PodPhase::Succeeded);
        departed.extend(seen(2..=2, PodPhase::Failed));
        departed.extend(seen(3..=3, PodPhase::Running));
        // One that nobody ever saw.
        departed.extend(seen(4..=4, PodPhase::Failed));
        let (after, changes) = fold(&running, &[], &departed, Gone::Unknown, 10);
        let counts = &after.counts;
        assert_eq!((counts.completed, counts.failed, counts.unknown, counts.running), (1, 2, 1, 0));
        let words: Vec<&str> = after.table.values().map(String::as_str).collect();
        assert_eq!(words, ["COMPLETED", "FAILED", "UNKNOWN", "FAILED"]);
        assert_eq!(changes.len(), 4);
        assert_eq!(fold(&after, &[], &[], Gone::Unknown, 10), (after.clone(), vec![]), "they are reported once");
        assert_eq!(fold(&after, &[], &[], Gone::Completed, 10).0.counts.completed, 2);
        // Beyond the table, and reported twice: the first status was written, but the response was lost.
        let (once, _) = fold(&running, &[], &departed, Gone::Unknown, 1);
        let (twice, _) = fold(&once, &[], &departed, Gone::Unknown, 1);
        assert_eq!((twice.counts.completed, twice.counts.failed, twice.counts.unknown), (1, 2, 1));
        let (later, _) = fold(&twice, &[], &[], Gone::Unknown, 1);
        assert_eq!((later.counts.completed, later.counts.failed, later.counts.unknown), (1, 2, 1));
    }

    #[test]
    fn executors_beyond_the_table_are_counted_once_each() {
        let mut summary = fold(&Summary::default(), &seen(1..=40, PodPhase::Running), &[], Gone::Unknown, 10).0;
        assert_eq!((summary.counts.running, summary.table.len()), (40, 10));
        // The newest fail first, so that older ones fail after a newer one was forgotten.
        for last_alive in (0..40).rev() {
            let mut now = seen(1..=last_alive, PodPhase::Running);
            now.extend(seen(last_alive + 1..=40, PodPhase::Failed));
            summary = fold(&summary, &now, &[], Gone::Unknown, 10).0;
            assert_eq!(i64::from(summary.counts.running), last_alive);
            assert_eq!(i64::from(summary.counts.failed), 40 - last_alive, "{summary:?}");
        }
        assert_eq!(fold(&summary, &[], &[], Gone::Failed, 10).0.counts.failed, 40);
    }

    #[test]
    fn executors_beyond_the_table_that_vanish_are_not_forgotten() {
        let running = fold(&Summary::default(), &seen(1..=30, PodPhase::Running), &[], Gone::Unknown, 10).0;
        let half = fold(&running, &seen(16..=30, PodPhase::Running), &[], Gone::Unknown, 10).0;
        assert_eq!((half.counts.running, half.counts.unknown), (15, 15));
        assert_eq!(fold(&half, &seen(16..=30, PodPhase::Running), &[], Gone::Unknown, 10).0, half);
        let ended = fold(&half, &[], &[], Gone::Completed, 10).0;
        assert_eq!((ended.counts.completed, ended.counts.unknown), (30, 0));
        assert_eq!(fold(&ended, &[], &[], Gone::Completed, 10).0.counts.completed, 30);
    }

    #[test]
    fn the_table_is_bounded_in_bytes() {
        let long = "a".repeat(63);
        let executors: Vec<_> = (1..=2000)
            .map(|id| ExecutorSeen { name: format!("{long}-0123456789abcdef-exec-{id}"), id, phase: PodPhase::Running })
            .collect();
        let (summary, _) = fold(&Summary::default(), &executors, &[], Gone::Unknown, 1000);
        assert_eq!(summary.counts.running, 2000);
        assert!(summary.table.len() > 500);
        assert!(serde_json::to_string(&summary.table).unwrap().len() < 80 * 1024);
    }
}
