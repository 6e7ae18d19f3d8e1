//! Whether the cluster has HTTPRoutes, by discovery. The Gateway API is installed apart from Kubernetes, before the operator
//! or at any time after it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use firesteel_api::http_route::{GROUP_VERSION, PLURAL};
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, class, words};

/// How often to look.
const INTERVAL: Duration = Duration::from_secs(20);

/// What the operator says if they are missing.
pub(crate) const MISSING: &str = "the cluster has no HTTPRoutes (gateway.networking.k8s.io/v1); install the custom resource definitions of the \
                                  Gateway API, or start the operator without --http-route-parent-refs";

/// What discovery said last.
pub(crate) struct GatewayApi {
    client: Client,
    interval: Duration,
    known: Mutex<Option<bool>>,
    /// Counts how often HTTPRoutes have appeared.
    appeared: watch::Sender<u64>,
}

impl GatewayApi {
    pub(crate) fn new(client: Client, interval: Option<Duration>) -> Self {
        let appeared = watch::Sender::new(0);
        GatewayApi { client, interval: interval.unwrap_or(INTERVAL), known: Mutex::default(), appeared }
    }

    /// Looks now and then until cancelled.
    pub(crate) async fn follow(&self, until: CancellationToken) {
        loop {
            if let Err(error) = self.look().await {
                tracing::debug!(error, "cannot discover HTTPRoutes");
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = until.cancelled() => return,
            }
        }
    }

    /// Whether the cluster has HTTPRoutes, as far as is known; a message if that cannot be found out.
    pub(crate) async fn has_routes(&self) -> Result<bool, String> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => Ok(known),
            None => self.look().await,
        }
    }

    /// Changes each time HTTPRoutes appear.
    pub(crate) fn appearances(&self) -> watch::Receiver<u64> {
        self.appeared.subscribe()
    }

    async fn look(&self) -> Result<bool, String> {
        let found = match self.client.list_api_group_resources(GROUP_VERSION).await {
            Ok(list) => list.resources.iter().any(|resource| resource.name == PLURAL),
            Err(error) if class(&error) == Class::Missing => false,
            Err(error) => return Err(format!("discovery of {GROUP_VERSION}: {}", words(&error))),
        };
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).replace(found);
        if before != Some(found) {
            if found {
                tracing::info!("the cluster has HTTPRoutes");
                self.appeared.send_modify(|count| *count += 1);
            } else {
                tracing::warn!("{MISSING}");
            }
        }
        Ok(found)
    }
}
