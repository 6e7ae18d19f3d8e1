//! What the operator was started with.

use std::time::Duration;

use firesteel_core::lifecycle::Limits;
use firesteel_core::run::RunSettings;

use crate::executors::ExecutorOptions;
use crate::serve::Listen;

/// Everything that can be chosen when the operator starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// Namespaces to work in, by name.
    pub namespaces: Vec<String>,
    /// And by label. With neither, the operator works in all.
    pub namespace_selector: Option<String>,
    pub limits: Limits,
    pub runs: RunSettings,
    /// Applications worked on at the same time.
    pub workers: u16,
    /// Where `/healthz` and `/readyz` answer.
    pub health: Option<Listen>,
    /// Where `/metrics` answers.
    pub metrics: Option<Listen>,
    pub metrics_prefix: String,
    pub leader: Option<LeaderOptions>,
    /// How executors outside the driver are allocated.
    pub executors: ExecutorOptions,
    /// Whether the log of a failed driver is read, so that the status can say why it failed.
    pub driver_log: bool,
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
        }
    }
}

/// How operators agree on who acts.
#[derive(Debug, Clone)]
pub struct LeaderOptions {
    pub namespace: String,
    pub name: String,
    /// Who this operator is; must differ between operators.
    pub identity: String,
    /// How long a silent leader is believed to be alive.
    pub lease: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew: Duration,
    /// How often to try.
    pub retry: Duration,
}
