//! The server as its clients see it: kube-rs over TLS, and raw requests.

mod access;
mod badinput;
mod certificates;
mod client;
mod conformance;
mod controller;
mod crash;
mod disk;
mod fabric8;
mod inside;
mod kubectl;
mod limits;
mod node;
mod objects;
mod patches;
mod policy;
mod process;
mod random;
mod replay;
mod restart;
mod reviewer;
mod watches;
mod webhook;
