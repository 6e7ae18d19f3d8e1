//! The decisions of this crate, from the outside: values in, values out.

#![allow(clippy::unwrap_used, reason = "a panic shows where the test failed")]

mod admission;
mod allocation;
mod connect;
mod deaths;
mod exposing;
mod lifecycle;
mod model;
mod node;
mod pods;
mod schedule;
mod waiting;
