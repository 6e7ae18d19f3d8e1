//! The controllers of a small cluster, each a pure decision and a thin shell around it.
//!
//! They share one watch per kind and react to events, not to clocks. They hold no state that the API server does not
//! have: killed at any point and started again, they go on where they were.

mod affairs;
mod certificates;
mod collector;
mod controller;
mod deployments;
mod disruptions;
mod endpoints;
mod events;
mod ignore;
mod inventory;
mod jobs;
mod members;
mod namespaces;
mod nodes;
mod replica_sets;
mod revision;
mod scheduler;
mod service_accounts;
mod stateful_sets;
mod volumes;

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

use crate::world::World;

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
    let world = World::new(settings.client);
    let inventory = inventory::start(&world, &mut tasks);
    scheduler::start(&world, &mut tasks);
    collector::start(&world, &inventory, &mut tasks);
    namespaces::start(&world, &inventory, &mut tasks);
    service_accounts::start(&world, settings.ca_pem, &mut tasks);
    endpoints::start(&world, &mut tasks);
    replica_sets::start(&world, &mut tasks);
    stateful_sets::start(&world, &mut tasks);
    deployments::start(&world, &mut tasks);
    jobs::start(&world, &mut tasks);
    disruptions::start(&world, &mut tasks);
    nodes::start(&world, &mut tasks);
    if let Some(signer) = settings.signer {
        certificates::start(&world, signer, &mut tasks);
    }
    if let Some(ttl) = settings.events_ttl {
        events::start(&world, ttl, &mut tasks);
    }
    volumes::start(&world, settings.volumes, &mut tasks);
    world.start(&mut tasks);
    world.ready().await;
    inventory.ready().await;
    Controllers { tasks }
}

impl Controllers {
    /// Ends all controllers at once; what they were doing is done again by the next that start.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
