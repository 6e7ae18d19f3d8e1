//! Clusters in miniature: random events, crashes at every point of a pass, and the promises of the allocation planner.

mod application;
mod holding;
mod namespace;
mod sets;
mod singles;
