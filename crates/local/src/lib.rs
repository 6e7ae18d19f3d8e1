//! The local cluster: controllers that make an API server behave like Kubernetes, and the processes around it.
//!
//! The [`controllers`] use only the Kubernetes API, so they also run against a real kube-apiserver without a controller manager
//! and a scheduler. [`cluster`] starts and stops an API server, these controllers, a node and an operator on this machine.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values in place"))]

mod bootstrap;
pub mod cluster;
pub mod controllers;
pub mod daemon;
pub mod home;
mod informer;
mod informers;
mod orphans;
mod resource_list;
pub mod supervisor;
mod work_queue;

pub use bootstrap::driver_account;
