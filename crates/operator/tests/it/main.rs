//! The operator against a real API server (`crates/testenv`).

#![allow(clippy::unwrap_used)]

mod applications;
mod crash;
mod fixture;
mod killer;
