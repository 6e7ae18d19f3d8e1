//! Decisions about Spark applications: pure functions of what is wanted and what was seen.
//!
//! - [`lifecycle`] decides which state comes next and what has to be done ([`phase`], [`restart`], [`executors`] and
//!   [`diagnosis`] are its parts, [`pod`] is what it sees of the driver);
//! - [`run`] decides which objects one attempt consists of ([`conf`], [`template`], [`overlay`], [`lost`],
//!   [`monitoring`] and [`ui`] are its parts, [`identity`] gives their names);
//! - [`grant`] plans a driver whose executors are outside of it, and [`allocation`] decides which executors to start,
//!   withdraw and replace.
//!
//! [`event_reason`] lists the reasons of events, for both.
//!
//! No client, no clock, no randomness: time and ids are arguments. `crates/operator` observes, asks, and acts.

pub mod allocation;
pub mod conditions;
pub mod conf;
pub mod diagnosis;
pub mod driver_node;
pub mod event_reason;
pub mod executors;
pub mod grant;
mod id_set;
pub mod identity;
pub mod lifecycle;
pub mod lost;
pub mod monitoring;
pub mod overlay;
pub mod phase;
pub mod pod;
pub mod recall;
pub mod restart;
pub mod run;
pub mod template;
pub mod ui;
