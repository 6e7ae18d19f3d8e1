//! The program as a person meets it: run as a process, judged by its exit code, its words and what stands in a real API
//! server afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod applications;
mod control;
mod dry_run;
mod help;
mod in_cluster;
mod interrupted;
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
