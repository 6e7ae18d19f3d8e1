//! The controllers of the local cluster. Each is a pure decision in a thin shell.
//!
//! They share one informer per kind and react to events rather than poll. All their state is in the API server: after a crash they
//! continue where they left off.

mod certificates;
mod controller;
mod deployments;
mod disruption;
mod endpoints;
mod event_recorder;
mod event_ttl;
mod garbage_collector;
mod graph_builder;
mod ignore;
mod jobs;
mod namespaces;
mod node_lifecycle;
mod persistent_volumes;
mod pod_control;
mod replica_sets;
mod revision;
mod scheduler;
mod service_accounts;
mod stateful_sets;

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

use crate::informers::Informers;

pub use certificates::Signer;

/// Settings of the controllers.
#[derive(Clone)]
pub struct Settings {
    /// A client with cluster-admin permissions.
    pub client: Client,
    /// The API server's CA certificate (PEM), published in every namespace.
    pub ca_pem: String,
    /// The directory for provisioned volumes.
    pub volumes: PathBuf,
    /// How long events are kept, unless the API server expires them itself.
    pub events_ttl: Option<Duration>,
    /// Signs approved client certificate requests, unless somebody else does.
    pub signer: Option<Signer>,
}

/// Running controllers. Dropping them stops them.
pub struct Controllers {
    tasks: JoinSet<()>,
}

/// Starts all controllers. Returns once all informers have synced.
pub async fn start(settings: Settings) -> Controllers {
    let mut tasks = JoinSet::new();
    let informers = Informers::new(settings.client);
    let graph_builder = graph_builder::start(&informers, &mut tasks);
    scheduler::start(&informers, &mut tasks);
    garbage_collector::start(&informers, &graph_builder, &mut tasks);
    namespaces::start(&informers, &graph_builder, &mut tasks);
    service_accounts::start(&informers, settings.ca_pem, &mut tasks);
    endpoints::start(&informers, &mut tasks);
    replica_sets::start(&informers, &mut tasks);
    stateful_sets::start(&informers, &mut tasks);
    deployments::start(&informers, &mut tasks);
    jobs::start(&informers, &mut tasks);
    disruption::start(&informers, &mut tasks);
    node_lifecycle::start(&informers, &mut tasks);
    if let Some(signer) = settings.signer {
        certificates::start(&informers, signer, &mut tasks);
    }
    if let Some(ttl) = settings.events_ttl {
        event_ttl::start(&informers, ttl, &mut tasks);
    }
    persistent_volumes::start(&informers, settings.volumes, &mut tasks);
    informers.start(&mut tasks);
    informers.ready().await;
    graph_builder.ready().await;
    Controllers { tasks }
}

impl Controllers {
    /// Stops all controllers immediately. Interrupted work is repeated after the next start.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
