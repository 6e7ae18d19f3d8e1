//! Clusters in miniature: random events, crashes at every point of a pass, and the promises of the allocation planner.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod application;
mod namespace;
mod sets;
mod singles;
