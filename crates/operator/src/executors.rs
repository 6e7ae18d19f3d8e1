//! Executors outside the driver: the controller of ExecutorGrants.
//!
//! - [`pass`] reconciles one application: it observes, asks `firesteel_core::allocation` for a decision, and has [`writes`]
//!   carry it out; only [`writes`] changes the cluster;
//! - [`slots`] decides how many executors may be created now; [`namespaces`] enforces the limit per namespace;
//! - [`ledger`] holds an application's ledger between passes; [`sets`] caches ReplicaSets and StatefulSets of executors;
//! - [`admission`] decides which grants are accepted, [`edits`] what an edit of their application changes for new executors.

mod admission;
pub(crate) mod edits;
mod ledger;
mod namespaces;
mod pass;
mod sets;
mod slots;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use firesteel_api::{ExecutorGrant, SparkApplication};
use firesteel_core::allocation::size::Amount;
use firesteel_core::run::RunSettings;
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, controller, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use namespaces::Namespaces;
use pass::AppState;
use sets::Sets;

use crate::admission_policy::Policy;
use crate::creation_limit::CreationLimit;
use crate::debounce::{Debounce, Fires};
use crate::events::EventRecorder;
use crate::fair_queue::{FairQueue, Lane};
use crate::metrics::{Census, Metrics, Tally};
use crate::options::ExecutorOptions;
use crate::pods::allocated::{AppIdKey, Index};
use crate::relist::{Change, Relist};
use crate::scope::Scope;

type Grant = DeserializeGuard<ExecutorGrant>;
type Application = DeserializeGuard<SparkApplication>;
/// The key of a pass.
type GrantRef = ObjectRef<Grant>;

/// AppState shared by the applications of all namespaces.
pub(crate) struct Shared {
    options: ExecutorOptions,
    /// How applications are planned.
    runs: RunSettings,
    scope: Arc<Scope>,
    creation_limit: CreationLimit,
    namespaces: Namespaces,
    policy: Policy,
    creating: Arc<FairQueue<AppIdKey>>,
    metrics: Arc<Metrics>,
    events: Arc<EventRecorder>,
    scopes: Mutex<Vec<Weak<Allocator>>>,
    /// Notified when there may be room for applications that wait for it.
    freed: Notify,
}

impl Shared {
    pub(crate) fn new(
        options: ExecutorOptions,
        runs: RunSettings,
        scope: Arc<Scope>,
        metrics: Arc<Metrics>,
        events: Arc<EventRecorder>,
    ) -> Self {
        Shared {
            creation_limit: CreationLimit::new(options.per_second),
            namespaces: Namespaces::default(),
            policy: Policy::new(options.policy_valid),
            creating: FairQueue::new(options.parallel),
            scope,
            metrics,
            events,
            scopes: Mutex::default(),
            freed: Notify::new(),
            runs,
            options,
        }
    }
}

impl Census for Shared {
    fn count(&self, tally: &mut Tally<'_>) {
        tally.waiting_creations(self.creating.waiting());
    }
}

impl Lane for AppIdKey {
    fn share(&self) -> i64 {
        1
    }
}

/// AppState shared by all passes in one namespace, or in all.
struct Allocator {
    client: Client,
    shared: Arc<Shared>,
    index: Arc<Index>,
    /// The cache of applications.
    apps: Store<Application>,
    sets: Sets,
    states: Mutex<HashMap<String, Arc<tokio::sync::Mutex<AppState>>>>,
    /// Which grant a pod belongs to, by application.
    grants: Mutex<HashMap<AppIdKey, GrantRef>>,
    /// Applications whose grants were accepted.
    accepted: Mutex<HashSet<AppIdKey>>,
    requests: mpsc::UnboundedSender<GrantRef>,
}

impl Allocator {
    /// A grant's state between passes, by the grant's uid.
    fn state(&self, grant: &ExecutorGrant) -> Arc<tokio::sync::Mutex<AppState>> {
        let uid = grant.uid().unwrap_or_default();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.entry(uid).or_default().clone()
    }

    /// Which grant a pod belongs to, by application.
    fn grants(&self) -> MutexGuard<'_, HashMap<AppIdKey, GrantRef>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, uid: &str) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Updates the index of grants.
    fn notice(&self, change: Change<'_, Grant>) {
        match change {
            Change::Lists => {}
            Change::InList(grant) | Change::Seen(grant) => {
                if let (Ok(valid), Some(namespace)) = (&grant.0, grant.namespace()) {
                    self.grants().insert((namespace, valid.spec.app_id.clone()), ObjectRef::from_obj(grant));
                }
            }
            Change::Gone(grant) => {
                self.forget(&grant.uid().unwrap_or_default());
                let gone = ObjectRef::from_obj(grant);
                self.grants().retain(|_, app| *app != gone);
            }
            Change::Listed(there) => {
                let name = |app: &GrantRef| (app.namespace.clone().unwrap_or_default(), app.name.clone());
                self.grants().retain(|_, app| there.contains_key(&name(app)));
                let uids: HashSet<String> = there.into_values().collect();
                self.states.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| uids.contains(uid));
            }
        }
    }

    /// What the executors of a namespace use by application, including those yet to be created by sets.
    fn used(&self, namespace: &str) -> HashMap<AppIdKey, Amount> {
        let mut used = self.index.used(namespace);
        self.sets.add_unmade(&self.index, namespace, &mut used);
        used
    }

    /// Triggers a pass.
    fn enqueue(&self, app: GrantRef) {
        // The receiver lives as long as the controller; without it there is nothing to trigger.
        let _ = self.requests.send(app);
    }
}

/// The objects of a kind in one namespace, or all.
fn within<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Runs the controller for one namespace, or for all.
pub(crate) async fn look_after(
    client: Client,
    shared: Arc<Shared>,
    namespace: Option<String>,
    pods: Arc<Index>,
    apps: Store<Application>,
    mut touched: mpsc::UnboundedReceiver<Vec<AppIdKey>>,
    until: CancellationToken,
) {
    let grants: Api<Grant> = within(&client, namespace.as_deref());
    let replica_sets: Api<ReplicaSet> = within(&client, namespace.as_deref());
    let stateful_sets: Api<StatefulSet> = within(&client, namespace.as_deref());
    let (requests, triggers) = mpsc::unbounded_channel();
    let allocator = Arc::new(Allocator {
        client,
        index: pods,
        apps,
        sets: Sets::default(),
        shared: shared.clone(),
        states: Mutex::default(),
        grants: Mutex::default(),
        accepted: Mutex::default(),
        requests,
    });
    shared.scopes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&allocator));
    let (reader, writer) = reflector::store::<Grant>();
    let known_grants = reader.clone();

    let noticing = allocator.clone();
    let mut relist = Relist::default();
    let stream = watcher(grants, watcher::Config::default())
        .default_backoff()
        .modify(|grant| grant.meta_mut().managed_fields = None)
        .inspect(move |event| match event {
            Ok(event) => noticing.notice(relist.fold(event)),
            Err(error) => tracing::debug!(%error, "the executor grant watch was interrupted"),
        })
        .reflect(writer)
        .touched_objects();

    let debounce = Debounce::default();
    let enqueue_all = |touched: Vec<AppIdKey>| {
        allocator.shared.check_room();
        let known = allocator.grants();
        for app in touched.iter().filter_map(|key| known.get(key)) {
            let (allocator, app) = (allocator.clone(), app.clone());
            match debounce.trigger(&app, Instant::now()) {
                Fires::Coming => {}
                Fires::Now => allocator.enqueue(app),
                Fires::At(at) => {
                    tokio::spawn(async move {
                        tokio::time::sleep_until(at.into()).await;
                        allocator.enqueue(app);
                    });
                }
            }
        }
    };
    let follow_pods = async {
        while let Some(touched) = touched.recv().await {
            enqueue_all(touched);
        }
        // The pod watch has ended; running passes finish.
        std::future::pending::<()>().await;
    };
    let within = |namespace: &str| -> Vec<Arc<Grant>> {
        let mut grants = known_grants.state();
        grants.retain(|grant| grant.namespace().as_deref() == Some(namespace));
        grants
    };
    let follow_scope = shared.scope.each_change(
        |namespace| within(namespace).iter().for_each(|grant| allocator.enqueue(ObjectRef::from_obj(grant.as_ref()))),
        // Another operator may write the ledgers from now on, so cached ones are dropped.
        |namespace| within(namespace).iter().for_each(|grant| allocator.forget(&grant.uid().unwrap_or_default())),
    );
    let control = async {
        allocator.index.synced().await;
        shared.scope.synced().await;
        let workers = shared.options.workers;
        Controller::for_stream(stream, reader)
            .with_config(controller::Config::default().concurrency(workers))
            .reconcile_on(UnboundedReceiverStream::new(triggers))
            .graceful_shutdown_on(until.clone().cancelled_owned())
            .run(pass::reconcile, |_, error, _| pass::again(error), allocator.clone())
            .for_each(|_| std::future::ready(()))
            .await;
    };
    tokio::select! {
        () = control => {}
        () = follow_pods => {}
        () = follow_scope => {}
        () = shared.follow_room() => {}
        () = sets::follow(&allocator.sets, replica_sets, &enqueue_all) => {}
        () = sets::follow(&allocator.sets, stateful_sets, &enqueue_all) => {}
        () = async { until.cancelled().await; tokio::time::sleep(Duration::from_secs(30)).await } => {}
    }
}
