//! The local cluster: controllers that make an API server behave like Kubernetes, and the processes around it.
//!
//! [`controllers`] speak nothing but the Kubernetes API, so they also run against a real kube-apiserver that has no
//! controller manager and no scheduler. [`cluster`] starts an API server, these controllers, a node and an operator on
//! this machine, and ends them again.

pub mod controllers;
mod quantity;
mod queue;
mod watched;
mod world;
