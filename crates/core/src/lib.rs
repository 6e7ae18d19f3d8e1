//! Decisions about Spark applications: pure functions of the desired and the observed state.
//!
//! - [`lifecycle`] decides the next state and what to do ([`phase`], [`restart`], [`executors`] and [`diagnosis`] are
//!   its parts, [`pod`] is its view of the driver);
//! - [`run`] decides which objects make up one attempt ([`conf`], [`template`], [`overlay`], [`ineffective_fields`], [`monitoring`]
//!   and [`ui`] are its parts, [`identity`] names the objects);
//! - [`grant`] plans a driver with executors outside it, and [`allocation`] decides which executors to start, withdraw
//!   and replace;
//! - [`connect`] decides the same for Spark Connect servers, with the parts of [`run`];
//! - [`schedule`] decides when the runs of a ScheduledSparkApplication start, and which old ones are deleted;
//! - [`admission`] decides whether an object may be stored: the checks of all of the above, and whether a run ([`footprint`])
//!   fits the namespace's [`quota`]; [`certificates`] decides when the webhook's certificates are renewed.
//!
//! [`event_reason`] lists the event reasons of the controllers. [`legible`] reads specifications field by field, and
//! [`label_selector`] reads label selectors.
//!
//! No client, no clock, no randomness: time and ids are arguments. `crates/operator` observes, asks and acts.

pub mod admission;
pub mod allocation;
pub mod batch_scheduler;
pub mod certificates;
mod conditions;
pub mod conf;
pub mod connect;
pub mod diagnosis;
pub mod driver_node;
pub mod event_reason;
pub mod executors;
pub mod fair;
pub mod footprint;
pub mod grant;
mod id_set;
pub mod identity;
pub mod ineffective_fields;
pub mod label_selector;
pub mod legible;
pub mod lifecycle;
mod monitoring;
mod mounts;
pub mod overlay;
pub mod phase;
pub mod pod;
pub mod quota;
pub mod recall;
mod restart;
pub mod run;
pub mod schedule;
pub mod template;
pub mod ui;
