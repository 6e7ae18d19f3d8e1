//! The validating webhook: API servers ask it before they store an object of this operator. Optional; every replica serves it,
//! whoever is the leader.
//!
//! - [`server`] answers over TLS, [`review`] turns a request into an answer of `firesteel_core::admission`;
//! - [`keeper`] keeps certificates and the ValidatingWebhookConfiguration current ([`pki`], [`configuration`]), without a
//!   restart and without a moment in which the two do not fit together.

mod configuration;
mod keeper;
mod pki;
mod review;
mod server;

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use kube::Client;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::options::Options;
use crate::serve::Ready;

pub use server::Tls;

/// The certificate that is served; it can change at any time.
#[derive(Debug, Default)]
pub(crate) struct Served(RwLock<Option<Arc<CertifiedKey>>>);

impl Served {
    fn set(&self, certified: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A webhook that is being served.
#[derive(Debug)]
pub(crate) struct Webhook {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Webhook {
    /// Listens, and starts everything. `None` if it is switched off.
    pub(crate) async fn start(
        client: &Client,
        options: &Options,
        metrics: &Arc<Metrics>,
        ready: &Ready,
    ) -> anyhow::Result<Option<Self>> {
        let Some(webhook) = options.webhook.clone() else { return Ok(None) };
        ready.wait_for_webhook();
        let served = Arc::new(Served::default());
        let stop = CancellationToken::new();
        let keeper = keeper::Keeper::new(client, options, &webhook, served.clone(), metrics, ready.clone())
            .map_err(|problem| anyhow::anyhow!("--namespace-selector: {problem}"))?;
        let reviewer = Arc::new(review::Reviewer::new(client.clone(), options, &webhook, metrics.clone()));
        let at = &webhook.listen;
        let problem = || format!("cannot listen on {at} for the webhook; choose another --webhook-port");
        let serving = server::serve(&webhook, served, reviewer, stop.clone()).await.with_context(problem)?;
        let tasks = vec![serving, tokio::spawn(keeper.keep(stop.clone()))];
        Ok(Some(Webhook { tasks, stop }))
    }

    /// Answers what was asked, then stops.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
    }
}
