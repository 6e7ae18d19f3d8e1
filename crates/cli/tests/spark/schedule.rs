//! Which cases run at the same time: as many as the machine can handle, and none next to one that it would disturb.

use std::panic::AssertUnwindSafe;
use std::sync::{Condvar, Mutex};

use crate::cases::Case;

/// What may run at the same time as a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Anything,
    /// No other case that kills the operator: each measures how soon Spark learns of a loss.
    NoOtherThatKillsTheOperator,
    /// It changes the nodes of the cluster.
    Nothing,
}

impl Beside {
    fn allows(self, running: &[Beside]) -> bool {
        match self {
            Beside::Anything => !running.contains(&Beside::Nothing),
            Beside::NoOtherThatKillsTheOperator => !running.contains(&Beside::Nothing) && !running.contains(&self),
            Beside::Nothing => running.is_empty(),
        }
    }

    /// Cases that exclude each other start early; cases that must run alone come last.
    fn order(self) -> u8 {
        match self {
            Beside::NoOtherThatKillsTheOperator => 0,
            Beside::Anything => 1,
            Beside::Nothing => 2,
        }
    }
}

/// A case and a Spark release.
pub(crate) type Run = (&'static Case, &'static str);

struct State {
    waiting: Vec<Run>,
    running: Vec<Beside>,
}

/// Runs all, `at_once` at a time; `one` must not panic.
pub(crate) fn run_all(runs: &[Run], at_once: usize, one: impl Fn(Run) + Sync) {
    let mut waiting = runs.to_vec();
    waiting.sort_by_key(|(case, _)| case.beside.order());
    let state = Mutex::new(State { waiting, running: Vec::new() });
    let ended = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                let mut turn = state.lock().unwrap();
                while !turn.waiting.is_empty() {
                    let Some(next) = turn.waiting.iter().position(|(case, _)| case.beside.allows(&turn.running)) else {
                        turn = ended.wait(turn).unwrap();
                        continue;
                    };
                    let run = turn.waiting.remove(next);
                    turn.running.push(run.0.beside);
                    drop(turn);
                    one(run);
                    turn = state.lock().unwrap();
                    let mine = turn.running.iter().position(|beside| *beside == run.0.beside).unwrap();
                    turn.running.swap_remove(mine);
                    ended.notify_all();
                }
            });
        }
    });
}

/// How many cases to run at once: one more than there are CPUs, to keep them busy while some cases wait, as long as each has
/// memory for a driver and the executors of the largest application.
pub(crate) fn at_once() -> usize {
    const GIB_PER_CASE: u64 = 4;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available =
        memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    let by_memory = available.map_or(1, |kib: u64| usize::try_from(kib / (GIB_PER_CASE << 20)).unwrap_or(1));
    (cores + 1).min(by_memory).max(1)
}

/// Why a case failed, if it did.
pub(crate) fn failure_of(case: impl FnOnce()) -> Option<String> {
    let cause = std::panic::catch_unwind(AssertUnwindSafe(case)).err()?;
    let words = cause.downcast_ref::<String>().cloned();
    Some(
        words
            .or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "it panicked".to_owned()),
    )
}
