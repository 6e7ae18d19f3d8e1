//! The controllers of a small cluster, each a pure decision and a thin shell around it.
//!
//! They share one watch per kind and react to events, not to clocks. They hold no state that the API server does not
//! have: killed at any point and started again, they go on where they were.

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

/// What the controllers need to know.
#[derive(Clone)]
pub struct Settings {
    /// A client that may do everything.
    pub client: Client,
    /// The certificate authority of the API server, handed to every namespace as PEM.
    pub ca_pem: String,
    /// The directory that persistent volumes are made in.
    pub volumes: PathBuf,
    /// How long events stay, where the API server does not see to it itself.
    pub events_ttl: Option<Duration>,
    /// Signs approved requests for client certificates, where nobody else does.
    pub signer: Option<Signer>,
}

/// Running controllers; dropping them ends them.
pub struct Controllers {
    tasks: JoinSet<()>,
}

/// Starts all controllers. Gives them back once each has seen the whole cluster.
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
    /// Ends all controllers at once; what they were doing is done again by the next that start.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
