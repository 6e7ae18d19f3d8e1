//! The program from the outside: run as a process and checked by its exit code, its output and the objects in a real API
//! server afterwards.

#![allow(clippy::unwrap_used, reason = "a failing test panics at its line")]

mod applications;
#[path = "../clients/connect.rs"]
mod connect_client;
mod control;
mod dry_run;
mod help;
mod in_cluster;
mod interrupted;
mod monitoring;
mod operator;
mod outside;
mod place;
mod program;
mod proxy;
mod real_node;
mod refusals;
mod run;
mod setup;
mod submit;
mod upload;
mod waiting;
