//! Clusters in miniature: random events, crashes at every point of a pass, and the promises of the allocation planner.

mod admission;
mod application;
mod fair;
mod heard;
mod holding;
mod namespace;
mod nodes;
mod reading;
mod sets;
mod singles;
