//! The node agent: runs the pods of a Kubernetes node as sandboxed processes of this machine.
//!
//! It uses only the Kubernetes API, so it can join a real control plane as well as the local cluster. Decisions (`lifecycle`,
//! `environment`, `volumes`, `hosts`) are pure functions; the agent performs them. A pod's processes belong to a [`shim`],
//! not to the agent, so that nothing is lost when an agent dies or is replaced.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values in place"))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Firesteel runs pods as processes in Linux namespaces, so it builds on Linux only; use a Linux machine, virtual machine or container"
);

mod address;
mod agent;
mod container_config;
mod environment;
mod frames;
mod hosts;
mod image;
mod kubelet;
mod lifecycle;
mod names;
mod objects;
mod private_directory;
pub mod runtime;
mod security;
pub mod shim;
mod shim_protocol;
mod volumes;

pub use agent::{AgentError, AgentOptions, Capacity, OnStop, end_all_pods, run};
