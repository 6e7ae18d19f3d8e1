//! The way to a Kubernetes cluster, for whoever acts on one: the command line and the operator.
//!
//! - [`connect`] finds the API server and who we are, and makes a client;
//! - [`rate_limit`] keeps a client from asking more than the API server likes;
//! - [`error`] says what a refused request means, [`refusal`] puts it into a sentence for a person;
//! - [`writes`] creates, adopts, applies and deletes; [`gate`] and [`object`] are what it needs of pods and planned objects;
//! - [`log`] reads the end of a container's log.
//!
//! No decision is made here: what is to be written, and what follows from an answer, is up to the caller.

pub mod connect;
pub mod error;
pub mod gate;
pub mod log;
pub mod object;
pub mod rate_limit;
pub mod refusal;
pub mod writes;

pub use connect::{Access, BadAccess, Cluster};
