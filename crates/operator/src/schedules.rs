//! The controller of ScheduledSparkApplications: starts their runs, which the application controller then follows.
//!
//! - [`pass`] is one pass over one schedule: it asks `firesteel_core::schedule` and carries the decision out;
//! - [`runs`] knows the runs of each schedule, from the cache of applications;
//! - [`writes`] makes every change.
//!
//! Between two runs a schedule costs nothing but a timer.

mod pass;
pub(crate) mod runs;
mod writes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firesteel_api::ScheduledSparkApplication;
use firesteel_core::schedule::{Precision, Zones};
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, controller, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, class, words};
use crate::events::EventRecorder;
use crate::fair_queue::{FairQueue, Kind};
use crate::metrics::Metrics;
use crate::reconcile_limit::ReconcileLimit;
use crate::relist::{Change, Relist};
use crate::scope::Scope;
use runs::{RunIndex, ScheduleKey};

/// The wait after a first failed pass; it doubles from there.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

type Scheduled = DeserializeGuard<ScheduledSparkApplication>;

/// What the controllers of all namespaces share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub client: Client,
    pub scope: Arc<Scope>,
    pub metrics: Arc<Metrics>,
    pub events: Arc<EventRecorder>,
    pub turns: Arc<FairQueue<Kind>>,
    pub limit: Arc<ReconcileLimit>,
    pub precision: Precision,
    /// Cancelled when the operator stops: nothing new is started.
    pub ending: CancellationToken,
}

/// State shared by all passes over schedules.
struct Schedules {
    shared: Shared,
    zones: Zones,
    cache: Store<Scheduled>,
    runs: Arc<RunIndex>,
    /// Resource versions that this operator has replaced: a cache that still shows one is stale.
    replaced: Mutex<HashMap<ScheduleKey, Vec<String>>>,
    failures: Mutex<HashMap<ScheduleKey, u32>>,
    /// Status fields that the cluster's definition drops.
    dropped: Mutex<BTreeSet<String>>,
}

impl Schedules {
    fn replaced(&self, key: ScheduleKey, version: String) {
        lock(&self.replaced).entry(key).or_default().push(version);
    }

    /// Whether a version is known to be stale.
    fn is_replaced(&self, key: &ScheduleKey, version: &str) -> bool {
        let mut replaced = lock(&self.replaced);
        let is_stale = replaced.get(key).is_some_and(|old| old.iter().any(|old| old == version));
        if !is_stale {
            replaced.remove(key);
        }
        is_stale
    }

    fn succeeded(&self, key: &ScheduleKey) {
        lock(&self.failures).remove(key);
    }

    /// Counts a failure; returns how long to wait, and the number of consecutive failures.
    fn failed(&self, key: ScheduleKey) -> (Duration, u32) {
        let mut failures = lock(&self.failures);
        let count = failures.entry(key).or_default();
        let wait = FIRST_WAIT.saturating_mul(1 << (*count).min(10)).min(self.shared.limit.at_most(LONGEST_WAIT));
        *count = count.saturating_add(1);
        (wait, *count)
    }

    fn keep_only(&self, keep: impl Fn(&ScheduleKey) -> bool) {
        lock(&self.replaced).retain(|key, _| keep(key));
        lock(&self.failures).retain(|key, _| keep(key));
    }
}

/// Runs the controller for one namespace, or for all. `touches` names schedules whose runs have changed.
pub(crate) async fn look_after(
    shared: Shared,
    namespace: Option<String>,
    runs: Arc<RunIndex>,
    mut touches: mpsc::UnboundedReceiver<Vec<ScheduleKey>>,
) {
    let api: Api<Scheduled> = match &namespace {
        Some(namespace) => Api::namespaced(shared.client.clone(), namespace),
        None => Api::all(shared.client.clone()),
    };
    let (cache, writer) = reflector::store();
    let ctx = Arc::new(Schedules {
        shared: shared.clone(),
        zones: Zones::system(),
        cache: cache.clone(),
        runs: runs.clone(),
        replaced: Mutex::default(),
        failures: Mutex::default(),
        dropped: Mutex::default(),
    });
    let (send, triggers) = mpsc::unbounded_channel();
    let joining = send.clone();
    let follow_runs = async move {
        while let Some(touched) = touches.recv().await {
            for (namespace, name) in touched {
                let _ = send.send(ObjectRef::<Scheduled>::new(&name).within(&namespace));
            }
        }
        // The application watch has ended; running passes finish.
        std::future::pending::<()>().await;
    };
    let listed = cache.clone();
    let follow_scope = shared.scope.each_change(
        |namespace| {
            let schedules = listed.state();
            let within = schedules.iter().filter(|schedule| schedule.namespace().as_deref() == Some(namespace));
            within.for_each(|schedule| drop(joining.send(ObjectRef::from_obj(schedule.as_ref()))));
        },
        |_| {},
    );
    let forgetting = ctx.clone();
    let (mut relist, mut complained) = (Relist::default(), false);
    let stream = watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(|schedule| schedule.meta_mut().managed_fields = None)
        .inspect(move |event| match event {
            Ok(event) => {
                complained = false;
                match relist.fold(event) {
                    Change::Gone(schedule) => {
                        let gone = (schedule.namespace().unwrap_or_default(), schedule.name_any());
                        forgetting.keep_only(|key| *key != gone);
                    }
                    Change::Listed(there) => {
                        let there: HashSet<ScheduleKey> = there.into_keys().collect();
                        forgetting.keep_only(|key| there.contains(key));
                    }
                    Change::Lists | Change::InList(_) | Change::Seen(_) => {}
                }
            }
            Err(error) if std::mem::replace(&mut complained, true) => {
                tracing::debug!(%error, "the schedule watch was interrupted");
            }
            Err(error) => complain(error),
        })
        .reflect(writer)
        .touched_objects();
    let control = async {
        let synced = async {
            runs.synced().await;
            shared.scope.synced().await;
        };
        if shared.ending.run_until_cancelled(synced).await.is_none() {
            // It has started nothing that it would have to finish.
            return;
        }
        // `turns` decides which schedules are reconciled, and how many at a time.
        Controller::for_stream(stream, cache)
            .with_config(controller::Config::default().concurrency(0))
            .reconcile_on(UnboundedReceiverStream::new(triggers))
            .graceful_shutdown_on(shared.ending.clone().cancelled_owned())
            .run(pass::reconcile, |schedule, error, ctx| pass::again(&schedule, error, &ctx), ctx.clone())
            .for_each(|_| std::future::ready(()))
            .await;
    };
    tokio::select! {
        () = control => {}
        () = follow_runs => {}
        () = follow_scope => {}
        // The controller shuts down by itself; this covers one that has not started yet.
        () = async { shared.ending.cancelled().await; tokio::time::sleep(Duration::from_secs(30)).await } => {}
    }
}

/// Logs why schedules cannot be watched, with what to do.
fn complain(error: &watcher::Error) {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => Some(source),
        _ => None,
    };
    match source.map(|source| (class(source), source)) {
        Some((Class::Refused, source)) => tracing::warn!(
            "schedules are not served: {}; grant the operator the permissions in deploy/operator-role.yaml",
            words(source)
        ),
        Some((Class::Missing, _)) => tracing::warn!(
            "schedules are not served: the cluster has no ScheduledSparkApplications; install them: {}",
            firesteel_api::crds::UPDATE_COMMAND
        ),
        _ => tracing::warn!(%error, "the schedule watch was interrupted"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
