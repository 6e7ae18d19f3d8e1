//! Leader election: only the operator that holds the Lease acts.
//!
//! Only this machine's clock decides whether another holder is alive: a Lease is abandoned once it has not changed for
//! its duration since it was first seen. A holder that cannot renew in time stops before others may start.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::error::{Class, class};
use crate::options::LeaderOptions;

/// A held Lease. It is renewed in the background until dropped or lost.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// Cancelled when the Lease could not be renewed.
    pub lost: CancellationToken,
    release: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Leadership {
    /// Releases the Lease so that another operator can take over at once.
    pub(crate) async fn release(self) {
        self.release.cancel();
        let _ = self.task.await;
    }
}

/// Waits until this operator holds the Lease. `None` if the token is cancelled first.
pub(crate) async fn acquire(client: &Client, options: &LeaderOptions, until: &CancellationToken) -> Option<Leadership> {
    let mut candidate =
        Candidate { api: Api::namespaced(client.clone(), &options.namespace), options: options.clone(), seen: None };
    tracing::info!(
        lease = options.name,
        namespace = options.namespace,
        identity = options.identity,
        "waiting for the lease"
    );
    loop {
        match candidate.try_hold().await {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot reach the lease"),
        }
        tokio::select! {
            () = tokio::time::sleep(options.retry) => {}
            () = until.cancelled() => return None,
        }
    }
    tracing::info!(identity = options.identity, "holding the lease");
    let (lost, release) = (CancellationToken::new(), CancellationToken::new());
    let task = tokio::spawn(candidate.keep(lost.clone(), release.clone()));
    Some(Leadership { lost, release, task })
}

struct Candidate {
    api: Api<Lease>,
    options: LeaderOptions,
    /// The last resource version seen, and when it was first seen.
    seen: Option<(String, Instant)>,
}

impl Candidate {
    async fn keep(mut self, lost: CancellationToken, release: CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.options.retry) => {}
                () = release.cancelled() => {
                    if let Err(error) = self.give_up().await {
                        tracing::warn!(%error, "cannot release the lease; it will expire");
                    }
                    return;
                }
            }
            let left = self.options.renew.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left.max(Duration::from_millis(1)), self.try_hold()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => {
                    tracing::error!("another operator took the lease");
                    return lost.cancel();
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => tracing::warn!("the lease was not renewed in time"),
            }
            if renewed.elapsed() >= self.options.renew {
                tracing::error!("the lease could not be renewed");
                return lost.cancel();
            }
        }
    }

    /// Takes or renews the Lease if it is free, ours or abandoned.
    async fn try_hold(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.options.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.held(None)),
            };
            return lost_race(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let ours = holder == self.options.identity;
        let version = lease.resource_version().unwrap_or_default();
        let since = match &self.seen {
            Some((known, since)) if *known == version => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((version, now));
                now
            }
        };
        let term = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        let abandoned = since.elapsed() >= Duration::from_secs(term).max(self.options.retry);
        if !ours && !holder.is_empty() && !abandoned {
            return Ok(false);
        }
        let previous = Some(&spec).filter(|_| ours);
        let lease = Lease {
            spec: Some(self.held(previous.or(Some(&LeaseSpec {
                lease_transitions: spec.lease_transitions.map(|n| n.saturating_add(1)).or(Some(1)),
                ..LeaseSpec::default()
            })))),
            ..lease
        };
        lost_race(self.api.replace(&self.options.name, &PostParams::default(), &lease).await)
    }

    fn held(&self, previous: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: i32::try_from(self.options.lease.as_secs()).ok(),
            acquire_time: previous.and_then(|p| p.acquire_time.clone()).or_else(|| now.clone()),
            renew_time: now,
            lease_transitions: previous.and_then(|p| p.lease_transitions).or(Some(0)),
            ..LeaseSpec::default()
        }
    }

    async fn give_up(&self) -> Result<(), kube::Error> {
        let Some(lease) = self.api.get_opt(&self.options.name).await? else { return Ok(()) };
        let mut spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(self.options.identity.as_str()) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        let lease = Lease { spec: Some(spec), ..lease };
        lost_race(self.api.replace(&self.options.name, &PostParams::default(), &lease).await).map(|_| ())
    }
}

/// Losing the race to another operator is not an error.
fn lost_race<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if matches!(class(&error), Class::Conflict | Class::Exists) => Ok(false),
        Err(error) => Err(error),
    }
}
