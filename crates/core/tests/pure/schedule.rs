//! Schedules: the instants against robfig/cron's own, and the decisions with a clock that the test moves.

#[allow(clippy::needless_pass_by_value, reason = "values are written in place")]
mod decisions;
mod instants;
