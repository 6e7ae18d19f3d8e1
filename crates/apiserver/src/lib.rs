//! An in-process, Kubernetes-compatible API server.
//!
//! Real clients (kubectl, kube-rs, client-go, fabric8) connect over TLS as to any cluster: built-in kinds and custom resources,
//! watches, patches, server-side apply, RBAC. It runs no pods or controllers itself; those are ordinary clients.
//!
//! ```
//! # async fn example() -> Result<(), firesteel_apiserver::StartError> {
//! use firesteel_apiserver::ApiServer;
//!
//! let server = ApiServer::builder().start().await?;
//! let kubeconfig = server.admin_kubeconfig(); // for kubectl and every client library
//! println!("{} answers at {}", kubeconfig.len(), server.url());
//! server.shutdown().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().expect("runtime").block_on(example()).expect("the server starts");
//! ```

mod admission;
mod after_write;
mod authentication;
mod authorization;
mod bootstrap;
mod builder;
mod conversion;
mod crd;
mod decode;
mod defaults;
mod delete;
mod dial;
mod discovery;
mod get;
mod handler;
mod journal;
mod jsonpath;
mod kinds;
mod managed_fields;
mod meta;
mod names;
mod openapi;
mod patch;
mod pki;
mod pods;
mod protobuf;
mod quantity;
mod request;
mod response;
mod schema;
mod selector;
mod server;
mod service_allocators;
mod state;
mod status;
mod store;
mod stored;
mod strategy;
mod subresource;
mod table;
mod tokens;
mod validate;
mod watch;
mod write;

pub use axum::body::Body;
pub use builder::{ApiServer, Builder, RunningServer, StartError};
pub use journal::JournalError;
pub use pki::{Credentials, PkiError};
