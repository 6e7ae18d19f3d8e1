//! Controllers for Spark applications: they observe, ask `firesteel_core`, and act.
//!
//! - [`operator`] starts and stops everything;
//! - [`reconcile`] is the main loop: it gathers what [`observe`] sees, asks for a decision, and has [`writes`] carry it
//!   out;
//! - [`connect`] is the same for Spark Connect servers;
//! - [`executors`] allocates executors for drivers without pod permissions;
//! - [`schedules`] starts the runs of ScheduledSparkApplications;
//! - [`definitions`] knows which status fields the cluster keeps;
//! - [`exposures`] manages each driver's Services, Ingresses and PodDisruptionBudget; [`scope`] selects the namespaces;
//!   [`webhook`] judges objects before they are stored; [`pods`] caches what is needed of pods; [`leader`] elects the one
//!   operator that acts; [`serve`] serves probes and [`metrics`], over TLS with [`serve_tls`]; [`fair_queue`] shares the workers;
//!   [`events`] records Kubernetes events.
//!
//! No decision is made here, and nothing but `writes`, `executors::writes` and `schedules::writes` changes the cluster (the
//! leader's lease and events aside).

mod admission_policy;
mod connect;
mod context;
mod creation_limit;
mod debounce;
mod definitions;
mod error;
mod events;
mod executors;
mod exposures;
mod fair_queue;
mod gateway_api;
mod leader;
mod malformed;
pub mod metrics;
mod observe;
mod operator;
mod options;
mod pods;
mod reconcile;
mod reconcile_limit;
mod relist;
mod schedules;
mod scope;
mod serve;
mod serve_tls;
mod webhook;
pub mod writes;

pub use metrics::{LabelNames, MetricsOptions};
pub use operator::run;
pub use options::{
    Certificates, ExecutorOptions, FailurePolicy, LeaderOptions, Options, ReconcileOptions, WebhookOptions,
};
pub use serve::{Listen, ServeMetrics};
pub use serve_tls::{Certificate, MetricsTls, TlsVersion};
pub use webhook::Tls;
