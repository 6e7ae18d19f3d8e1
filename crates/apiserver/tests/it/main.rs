//! The server as its clients see it: kube-rs over TLS, and raw requests.

mod access;
mod client;
mod kubectl;
mod limits;
mod node;
mod objects;
mod policy;
mod restart;
#[path = "../shared/reviewer.rs"]
mod reviewer;
mod watches;
mod webhook;
