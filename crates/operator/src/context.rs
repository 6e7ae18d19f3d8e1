//! State shared by all passes over applications.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firesteel_api::{SparkApplication, SparkApplicationStatus};
use firesteel_core::lifecycle::{Effect, Sent};
use firesteel_core::pod::{self, PodPhase};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::definitions::Definitions;
use crate::events::EventRecorder;
use crate::exposures::Exposures;
use crate::fair_queue::{FairQueue, Kind};
use crate::gateway_api::GatewayApi;
use crate::metrics::{Census, Metrics, Tally};
use crate::options::Options;
use crate::pods::{AppKey, PodIndex};
use crate::reconcile_limit::ReconcileLimit;
use crate::scope::Scope;

/// The wait after a first failed pass; it doubles from there.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// At most one in this many workers retries submissions that the cluster failed.
const SLOW_SHARE: u16 = 4;

pub(crate) struct Context {
    pub client: Client,
    pub options: Options,
    /// Where to act.
    pub scope: Arc<Scope>,
    /// The cache of applications, and whether it is complete.
    pub is_listed: AtomicBool,
    pub apps: Store<DeserializeGuard<SparkApplication>>,
    pub pods: Arc<PodIndex>,
    pub events: Arc<EventRecorder>,
    pub metrics: Arc<Metrics>,
    pub turns: Arc<FairQueue<Kind>>,
    /// How fast applications are reconciled.
    pub limit: Arc<ReconcileLimit>,
    /// Cancelled when the operator stops: nothing new is started.
    pub ending: CancellationToken,
    /// Resource versions that this operator has replaced: a cache that still shows one is stale.
    replaced: Mutex<HashMap<AppKey, String>>,
    /// Which status fields the cluster's CRDs keep.
    pub definitions: Arc<Definitions>,
    /// Statuses that the API server stores only in part.
    whole: Mutex<HashMap<AppKey, Whole>>,
    failures: Mutex<HashMap<AppKey, u32>>,
    /// Requests sent since the last submission, so that they are not repeated over and over.
    sent: Mutex<HashMap<AppKey, Vec<Sent>>>,
    /// Exposure objects of drivers (Services, Ingresses, HTTPRoutes, PodDisruptionBudgets) being created or deleted.
    pub exposures: Arc<Exposures>,
    /// Held by applications whose last submission the cluster failed: they may take long and must not hold up the others.
    pub slow: Arc<Semaphore>,
}

/// A status, and what the API server stored of it.
#[derive(Debug)]
struct Whole {
    uid: String,
    kept: SparkApplicationStatus,
    status: SparkApplicationStatus,
}

impl Context {
    #[expect(clippy::too_many_arguments, reason = "everything that passes share")]
    pub(crate) fn new(
        client: Client,
        options: Options,
        scope: Arc<Scope>,
        apps: Store<DeserializeGuard<SparkApplication>>,
        metrics: Arc<Metrics>,
        turns: Arc<FairQueue<Kind>>,
        events: Arc<EventRecorder>,
        gateway_api: Arc<GatewayApi>,
        ending: CancellationToken,
    ) -> Self {
        let exposures = Arc::new(Exposures::new(client.clone(), gateway_api, ending.clone()));
        let slow = Arc::new(Semaphore::new(usize::from(options.workers / SLOW_SHARE).max(1)));
        Context {
            client,
            exposures,
            slow,
            events,
            options,
            scope,
            is_listed: AtomicBool::new(false),
            apps,
            pods: Arc::default(),
            metrics,
            turns,
            limit: Arc::default(),
            ending,
            replaced: Mutex::default(),
            definitions: Arc::default(),
            whole: Mutex::default(),
            failures: Mutex::default(),
            sent: Mutex::default(),
        }
    }

    /// Remembers that `version` of an application is no longer current.
    pub(crate) fn replaced(&self, key: AppKey, version: String) {
        lock(&self.replaced).insert(key, version);
    }

    /// Whether a version is known to be stale.
    pub(crate) fn is_replaced(&self, key: &AppKey, version: &str) -> bool {
        let mut replaced = lock(&self.replaced);
        match replaced.get(key) {
            Some(old) if old == version => true,
            Some(_) => {
                replaced.remove(key);
                false
            }
            None => false,
        }
    }

    /// Remembers a status of which the API server stored only `kept`, or forgets it if all was stored.
    pub(crate) fn remember(
        &self,
        key: AppKey,
        uid: &str,
        kept: &SparkApplicationStatus,
        status: &SparkApplicationStatus,
    ) {
        let mut whole = lock(&self.whole);
        if kept == status {
            whole.remove(&key);
        } else {
            whole.insert(key, Whole { uid: uid.to_owned(), kept: kept.clone(), status: status.clone() });
        }
    }

    /// The complete status that this operator wrote, if the API server stored only part of it.
    pub(crate) fn whole(
        &self,
        key: &AppKey,
        uid: &str,
        kept: &SparkApplicationStatus,
    ) -> Option<SparkApplicationStatus> {
        let whole = lock(&self.whole);
        whole.get(key).filter(|known| known.uid == uid && known.kept == *kept).map(|known| known.status.clone())
    }

    pub(crate) fn succeeded(&self, key: &AppKey) {
        lock(&self.failures).remove(key);
    }

    /// Counts a failure; returns how long to wait, and the number of consecutive failures.
    pub(crate) fn failed(&self, key: AppKey) -> (Duration, u32) {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key).or_default();
        let wait = FIRST_WAIT.saturating_mul(1 << (*count).min(10)).min(self.limit.at_most(LONGEST_WAIT));
        *count = count.saturating_add(1);
        (wait, *count)
    }

    /// How many consecutive passes over an application have failed.
    pub(crate) fn failures(&self, key: &AppKey) -> u32 {
        lock(&self.failures).get(key).copied().unwrap_or_default()
    }

    /// Requests sent for an application since its last submission.
    pub(crate) fn sent(&self, key: &AppKey) -> Vec<Sent> {
        lock(&self.sent).get(key).cloned().unwrap_or_default()
    }

    /// Remembers that a request was sent; returns its updated record.
    pub(crate) fn note_sent(&self, key: &AppKey, effect: Effect, now: Timestamp) -> Sent {
        let mut sent = lock(&self.sent);
        let list = sent.entry(key.clone()).or_default();
        let known = match list.iter().position(|sent| sent.effect == effect) {
            Some(i) => i,
            None => {
                list.push(Sent { effect, first: now, last: now, times: 0 });
                list.len() - 1
            }
        };
        let known = &mut list[known];
        known.last = now;
        known.times = known.times.saturating_add(1);
        known.clone()
    }

    /// Forgets requests sent before a successful submission.
    pub(crate) fn forget_sent(&self, key: &AppKey) {
        lock(&self.sent).remove(key);
    }

    /// Whether the cluster failed at the last submission.
    pub(crate) fn is_hindered(&self, key: &AppKey) -> bool {
        lock(&self.sent).get(key).is_some_and(|sent| sent.iter().any(|s| matches!(s.effect, Effect::Submit { .. })))
    }

    /// Forgets a deleted application.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        lock(&self.replaced).remove(&key);
        lock(&self.whole).remove(&key);
        lock(&self.failures).remove(&key);
        lock(&self.sent).remove(&key);
        self.exposures.forget(&key);
        self.pods.forget(namespace, name);
    }

    /// Forgets all applications except these.
    pub(crate) fn keep_only(&self, apps: &HashSet<AppKey>) {
        lock(&self.replaced).retain(|key, _| apps.contains(key));
        lock(&self.whole).retain(|key, _| apps.contains(key));
        lock(&self.failures).retain(|key, _| apps.contains(key));
        lock(&self.sent).retain(|key, _| apps.contains(key));
        self.exposures.keep_only(apps);
        self.pods.keep_only(apps);
    }
}

impl Census for Context {
    fn count(&self, tally: &mut Tally<'_>) {
        if !self.is_listed.load(Ordering::Relaxed) {
            return;
        }
        for app in self.apps.state() {
            let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
            if !self.scope.covers(&namespace) {
                continue;
            }
            let state = match &app.0 {
                Ok(app) => app.status.as_ref().map_or("", |status| status.application_state.state.as_str()),
                // Its driver may still run.
                Err(_) if self.pods.of(&namespace, &name).drivers.values().any(|pod| is_running(pod)) => "RUNNING",
                Err(_) => "UNKNOWN",
            };
            tally.application(&namespace, app.labels(), state);
        }
    }
}

fn is_running(driver: &Pod) -> bool {
    pod::phase(driver) == PodPhase::Running && driver.metadata.deletion_timestamp.is_none()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
