//! The operator's settings.

use std::time::Duration;

use firesteel_core::allocation::size::Amount;
use firesteel_core::lifecycle::Limits;
use firesteel_core::run::RunSettings;
use firesteel_core::schedule::Precision;

use crate::serve::Listen;

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
    /// Address of `/metrics`.
    pub metrics: Option<Listen>,
    pub metrics_prefix: String,
    pub leader: Option<LeaderOptions>,
    /// How executors outside the driver are allocated.
    pub executors: ExecutorOptions,
    /// Whether to read a failed driver's log, so that the status can say why it failed.
    pub driver_log: bool,
    /// The unit of the timestamp in the names of a schedule's runs.
    pub run_names: Precision,
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
            metrics_prefix: String::new(),
            leader: None,
            executors: ExecutorOptions::default(),
            driver_log: true,
            run_names: Precision::default(),
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
