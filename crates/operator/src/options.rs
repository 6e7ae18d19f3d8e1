//! The operator's settings.

use std::path::PathBuf;
use std::time::Duration;

use firesteel_cluster::requests::RequestCounts;
use firesteel_cluster::token_bucket::Rate;
use firesteel_core::allocation::size::Amount;
use firesteel_core::certificates::Policy;
use firesteel_core::lifecycle::Limits;
use firesteel_core::run::RunSettings;
use firesteel_core::schedule::Precision;
use k8s_openapi::jiff::SignedDuration;

use crate::metrics::MetricsOptions;
use crate::serve::{Listen, ServeMetrics};
use crate::webhook::Tls;

/// Everything that can be set at startup.
#[derive(Debug, Clone)]
pub struct Options {
    /// Namespaces to work in, by name.
    pub namespaces: Vec<String>,
    /// Namespaces to work in, by label. If neither is set, the operator works in all of them.
    pub namespace_selector: Option<String>,
    pub limits: Limits,
    pub runs: RunSettings,
    /// How many applications are reconciled at a time.
    pub workers: u16,
    /// Address of `/healthz` and `/readyz`.
    pub health: Option<Listen>,
    /// Where metrics are served, and how.
    pub metrics: Option<ServeMetrics>,
    /// Which metrics there are.
    pub metrics_options: MetricsOptions,
    /// The requests of the client that the operator gets.
    pub requests: RequestCounts,
    pub leader: Option<LeaderOptions>,
    /// How executors outside the driver are allocated.
    pub executors: ExecutorOptions,
    /// Whether to read a failed driver's log, so that the status can say why it failed.
    pub driver_log: bool,
    /// The unit of the timestamp in the names of a schedule's runs.
    pub run_names: Precision,
    /// The validating webhook; off without it.
    pub webhook: Option<WebhookOptions>,
    /// How often to look whether the cluster has HTTPRoutes, if drivers need them.
    pub discovery_interval: Option<Duration>,
    /// How long filling the caches may take at start; forever if unset.
    pub cache_sync_timeout: Option<Duration>,
    /// How fast applications, schedules and Connect servers are reconciled, and the longest delay of one.
    pub reconciles: ReconcileOptions,
}

/// Limits on reconciliation. Unset means none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReconcileOptions {
    pub rate: Option<Rate>,
    /// No reconciliation waits longer, neither for its turn in the rate nor after failures.
    pub longest_delay: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            namespaces: Vec::new(),
            namespace_selector: None,
            limits: Limits::default(),
            runs: RunSettings::default(),
            workers: 10,
            health: None,
            metrics: None,
            metrics_options: MetricsOptions::default(),
            requests: RequestCounts::default(),
            leader: None,
            executors: ExecutorOptions::default(),
            driver_log: true,
            run_names: Precision::default(),
            webhook: None,
            discovery_interval: None,
            cache_sync_timeout: None,
            reconciles: ReconcileOptions::default(),
        }
    }
}

/// Settings of the leader election.
#[derive(Debug, Clone)]
pub struct LeaderOptions {
    pub namespace: String,
    pub name: String,
    /// Identity of this operator; must be unique.
    pub identity: String,
    /// How long a silent leader is presumed alive.
    pub lease: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew: Duration,
    /// How often to try.
    pub retry: Duration,
}

/// Settings of the validating webhook.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    pub listen: Listen,
    /// The Service that leads to it: namespace and name.
    pub service: (String, String),
    /// Where API servers reach it without a Service.
    pub url: Option<String>,
    /// The name of the ValidatingWebhookConfiguration.
    pub configuration: String,
    /// The Secret with the certificates: namespace and name.
    pub secret: (String, String),
    pub failure_policy: FailurePolicy,
    pub certificates: Certificates,
    /// The Certificate from which cert-manager injects the bundle.
    pub injected_from: Option<String>,
    /// Whether to check that applications fit the quotas of their namespaces.
    pub quotas: bool,
    pub tls: Tls,
}

/// What API servers do while the webhook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Store nothing.
    Fail,
    /// Store everything; the controllers report what cannot work.
    Ignore,
}

impl FailurePolicy {
    pub(crate) fn word(self) -> &'static str {
        match self {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        }
    }
}

/// Where certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificates {
    /// The operator issues them, and keeps them in the Secret.
    Own(Policy),
    /// cert-manager keeps them in the Secret.
    Managed,
    /// They are mounted, with these names for certificate and key.
    Files { directory: PathBuf, certificate: String, key: String },
}

impl Default for WebhookOptions {
    fn default() -> Self {
        let hours = |n: i64| SignedDuration::from_hours(n);
        let (namespace, name) = ("spark-operator".to_owned(), "spark-operator-webhook-svc".to_owned());
        WebhookOptions {
            listen: Listen::Everywhere(9443),
            service: (namespace.clone(), name),
            url: None,
            configuration: "spark-operator-webhook".to_owned(),
            secret: (namespace, "spark-operator-webhook-certs".to_owned()),
            failure_policy: FailurePolicy::Fail,
            certificates: Certificates::Own(Policy {
                server: hours(2160),
                renew_before: hours(720),
                authority: hours(26280),
            }),
            injected_from: None,
            quotas: false,
            tls: Tls::default(),
        }
    }
}

impl WebhookOptions {
    /// What API servers call the server.
    pub(crate) fn names(&self) -> Vec<String> {
        let (namespace, name) = &self.service;
        match self.url.as_deref().and_then(host) {
            Some(host) => vec![host],
            None => vec![format!("{name}.{namespace}.svc")],
        }
    }
}

/// The host of a URL.
fn host(url: &str) -> Option<String> {
    let uri: axum::http::Uri = url.parse().ok()?;
    uri.host().map(|host| host.trim_matches(['[', ']']).to_owned())
}

/// Settings for executors outside the driver.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// Executors created per second, across all applications.
    pub per_second: u32,
    /// Maximum number of pending executors, across all applications.
    pub most_pending: usize,
    /// Concurrent creations.
    pub parallel: usize,
    /// How many applications are reconciled at a time.
    pub workers: u16,
    /// The limit per application, whatever was granted.
    pub per_application: Amount,
    /// The limit per namespace, across its applications.
    pub per_namespace: Amount,
    /// Whether executors are created together with their driver, before it asks for them.
    pub early: bool,
    /// Drivers of one service account need not be isolated from each other.
    pub drivers_trust_each_other: bool,
    /// How long to rely on a check that found the admission policy in force.
    pub policy_valid: Duration,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        ExecutorOptions {
            per_second: 1000,
            most_pending: 20_000,
            parallel: 32,
            workers: 16,
            per_application: Amount { executors: 5_000, cores: 20_000, memory_mib: 80 << 20 },
            per_namespace: Amount { executors: 20_000, cores: 80_000, memory_mib: 320 << 20 },
            early: true,
            drivers_trust_each_other: false,
            policy_valid: Duration::from_secs(30),
        }
    }
}
