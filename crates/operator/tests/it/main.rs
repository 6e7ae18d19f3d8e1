//! The operator against a real API server (`crates/testenv`).

mod applications;
mod crash;
mod fixture;
mod killer;
