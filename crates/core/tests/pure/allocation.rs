//! Miniature clusters with random events and crashes at every point of a pass, and the allocation planner's guarantees.

mod admission;
mod application;
mod early;
mod fair;
mod heard;
mod holding;
mod namespace;
mod nodes;
mod reading;
mod sets;
mod singles;
