//! Tests of the crate's public API: what it resolves and plans, compared with real Spark.

#![allow(clippy::unwrap_used, reason = "a capture or a plan that is not what it should be fails the test right there")]

mod any_conf;
mod executor_plan;
mod golden;
mod golden_conf;
mod golden_executors;
mod resolve;
