//! Access to a Kubernetes cluster, for the command line and the operator.
//!
//! - [`connect`] finds the API server and the credentials, and builds a client;
//! - [`rate_limit`] adapts a client's request rate to the API server, [`requests`] counts what is sent;
//! - [`error`] classifies API errors, [`refusal`] turns them into sentences for people;
//! - [`writes`] creates, applies and deletes objects; [`gate`] handles the driver's scheduling gate, [`object`] planned objects;
//! - [`log`] reads the end of a container's log.
//!
//! No decision is made here: callers decide what to write and how to react to a response.

mod connect;
pub mod error;
pub mod gate;
pub mod log;
pub mod object;
pub mod rate_limit;
pub mod refusal;
pub mod requests;
pub mod token_bucket;
pub mod writes;

pub use connect::{Access, BadAccess, Cluster};
