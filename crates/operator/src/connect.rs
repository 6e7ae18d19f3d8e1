//! The controller for SparkConnect objects, beside that for applications: same workers, same events, same scope.
//!
//! [`pods`] and [`services`] cache what exists; [`reconcile`] observes, asks `firesteel_core::connect` and has
//! [`writes`](crate::writes) carry it out.

mod observe;
pub(crate) mod pods;
mod reconcile;
mod services;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use firesteel_api::SparkConnect;
use firesteel_core::connect::step::State;
use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, controller, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::error::{Class, class};
use crate::events::EventRecorder;
use crate::fair_queue::{FairQueue, Kind};
use crate::metrics::{Census, Metrics, Tally};
use crate::options::Options;
use crate::reconcile_limit::ReconcileLimit;
use crate::relist::{Change, Relist};
use crate::scope::Scope;
use pods::{ConnectKey, ServerPods};
use services::Services;

/// The wait after a first failed pass; it doubles from there.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long a controller that is asked to stop may take.
const STOPPING: Duration = Duration::from_secs(30);

/// State shared by all passes over SparkConnect objects.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) scope: Arc<Scope>,
    pub(crate) pods: Arc<ServerPods>,
    pub(crate) events: Arc<EventRecorder>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) turns: Arc<FairQueue<Kind>>,
    pub(crate) limit: Arc<ReconcileLimit>,
    /// Cancelled when the operator stops: nothing new is started.
    pub(crate) ending: CancellationToken,
    connects: Store<DeserializeGuard<SparkConnect>>,
    services: Services,
    memory: Mutex<HashMap<ConnectKey, Memory>>,
}

/// What the operator remembers of one object; losing it costs time, never correctness.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// The resource version that this operator has replaced: a cache that still shows it is stale.
    replaced: Option<String>,
    /// Consecutive failed passes.
    failures: u32,
    /// The highest number of a server.
    last_attempt: i64,
}

/// What all watched namespaces share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) scope: Arc<Scope>,
    pub(crate) events: Arc<EventRecorder>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) turns: Arc<FairQueue<Kind>>,
    pub(crate) limit: Arc<ReconcileLimit>,
    pub(crate) ending: CancellationToken,
}

impl Context {
    fn new(shared: Shared, pods: Arc<ServerPods>, connects: Store<DeserializeGuard<SparkConnect>>) -> Self {
        let Shared { client, options, scope, events, metrics, turns, limit, ending } = shared;
        let (services, memory) = (Services::default(), Mutex::default());
        Context { client, options, scope, pods, events, metrics, turns, limit, ending, connects, services, memory }
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<ConnectKey, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a version is known to be stale.
    fn is_replaced(&self, key: &ConnectKey, version: &str) -> bool {
        self.memory().get(key).is_some_and(|known| known.replaced.as_deref() == Some(version))
    }

    /// Remembers the number of a server; returns the highest one.
    fn note_attempt(&self, key: &ConnectKey, attempt: i64) -> i64 {
        let mut memory = self.memory();
        let known = memory.entry(key.clone()).or_default();
        known.last_attempt = known.last_attempt.max(attempt);
        known.last_attempt
    }

    /// Counts a failed pass; returns how long to wait, and the number of consecutive failures.
    fn failed(&self, key: ConnectKey) -> (Duration, u32) {
        let mut memory = self.memory();
        let known = memory.entry(key).or_default();
        let wait = FIRST_WAIT.saturating_mul(1 << known.failures.min(10)).min(self.limit.at_most(LONGEST_WAIT));
        known.failures = known.failures.saturating_add(1);
        (wait, known.failures)
    }

    fn forget(&self, key: &ConnectKey) {
        self.memory().remove(key);
    }

    fn keep_only(&self, there: &HashSet<ConnectKey>) {
        self.memory().retain(|key, _| there.contains(key));
    }
}

impl Census for Context {
    fn count(&self, tally: &mut Tally<'_>) {
        for connect in self.connects.state() {
            let namespace = connect.namespace().unwrap_or_default();
            if self.scope.covers(&namespace) {
                let status = connect.0.as_ref().ok().and_then(|connect| connect.status.as_ref());
                let state = match status.map_or(State::New, State::read) {
                    State::New => "New",
                    state => state.word(),
                };
                tally.connect(&namespace, state);
            }
        }
    }
}

/// Runs the controller for one namespace, or for all. `touches` are the objects whose pods changed.
pub(crate) async fn look_after(
    shared: Shared,
    namespace: Option<String>,
    pods: Arc<ServerPods>,
    mut touches: mpsc::UnboundedReceiver<ConnectKey>,
) {
    let (reader, writer) = reflector::store();
    let ctx = Arc::new(Context::new(shared, pods, reader));
    let cache: Weak<Context> = Arc::downgrade(&ctx);
    ctx.metrics.follow(cache);
    let connects: Api<DeserializeGuard<SparkConnect>> = match &namespace {
        Some(namespace) => Api::namespaced(ctx.client.clone(), namespace),
        None => Api::all(ctx.client.clone()),
    };
    let (send, triggers) = mpsc::unbounded_channel();
    let trigger = |(namespace, name): ConnectKey| {
        let _ = send.send(ObjectRef::<DeserializeGuard<SparkConnect>>::new(&name).within(&namespace));
    };
    let follow_pods = async {
        while let Some(key) = touches.recv().await {
            trigger(key);
        }
        // The pod watch has ended; the controller ends by itself.
        std::future::pending::<()>().await;
    };
    let follow_services = ctx.services.follow(ctx.client.clone(), namespace.clone(), trigger);
    let follow_scope = ctx.scope.each_change(
        |namespace| {
            let connects = ctx.connects.state();
            let within = connects.iter().filter(|connect| connect.namespace().as_deref() == Some(namespace));
            within.for_each(|connect| trigger((namespace.to_owned(), connect.name_any())));
        },
        |_| {},
    );
    let forgetting = ctx.clone();
    let mut relist = Relist::default();
    let mut missing = false;
    let stream = watcher(connects, watcher::Config::default())
        .default_backoff()
        .modify(|connect| connect.meta_mut().managed_fields = None)
        .inspect(move |event| match event {
            Ok(event) => match relist.fold(event) {
                Change::Gone(gone) => {
                    forgetting.forget(&(gone.namespace().unwrap_or_default(), gone.name_any()));
                }
                Change::Listed(there) => {
                    missing = false;
                    forgetting.keep_only(&there.into_keys().collect());
                }
                Change::Lists | Change::InList(_) | Change::Seen(_) => {}
            },
            Err(error) if is_missing(error) => {
                if !std::mem::replace(&mut missing, true) {
                    tracing::warn!(
                        %error,
                        "SparkConnect objects cannot be watched; install its definition (firesteel crds) and the permissions in \
                         deploy/operator-role.yaml"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "the SparkConnect watch was interrupted"),
        })
        .reflect(writer)
        .touched_objects();
    let controller = async {
        let synced = async {
            ctx.pods.synced().await;
            ctx.scope.synced().await;
        };
        if ctx.ending.run_until_cancelled(synced).await.is_none() {
            // It has started nothing that it would have to finish.
            return;
        }
        Controller::for_stream(stream, ctx.connects.clone())
            .with_config(controller::Config::default().concurrency(0))
            .reconcile_on(UnboundedReceiverStream::new(triggers))
            .graceful_shutdown_on(ctx.ending.clone().cancelled_owned())
            .run(reconcile::reconcile, |connect, error, ctx| reconcile::again(&connect, error, &ctx), ctx.clone())
            .for_each(|_| std::future::ready(()))
            .await;
    };
    tokio::select! {
        () = controller => {}
        () = follow_pods => {}
        () = follow_services => {}
        () = follow_scope => {}
        () = async { ctx.ending.cancelled().await; tokio::time::sleep(STOPPING).await } => {}
    }
}

/// The cluster lacks the kind, or the operator the permission for it.
fn is_missing(error: &watcher::Error) -> bool {
    let inner = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => return false,
    };
    matches!(class(inner), Class::Missing | Class::Refused)
}
