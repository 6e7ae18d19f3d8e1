//! The operator against a real API server (`crates/testenv`).

#![allow(clippy::unwrap_used)]

mod admission;
mod admission_webhooks;
mod applications;
mod around;
mod causes;
mod connect;
mod counted;
mod crash;
mod early;
mod executor_sets;
mod executors;
mod faults;
mod fixture;
mod gateway;
mod killer;
mod kubeflow;
mod kubelet;
mod leaders;
mod live;
mod neighbours;
mod nodes;
mod passes;
mod proxy;
mod rights;
mod schedules;
mod scope;
mod size;
mod webhook;
mod witness;
