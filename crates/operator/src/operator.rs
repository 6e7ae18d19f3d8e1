//! Runs the operator: takes the Lease, fills the caches, starts the controllers and shuts them down in order.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use anyhow::Context as _;
use firesteel_api::SparkApplication;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Controller, WatchStreamExt, controller, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::definitions::Definitions;
use crate::events::{EventRecorder, Reporter};
use crate::executors::edits::Edits;
use crate::fair_queue::FairQueue;
use crate::gateway_api::GatewayApi;
use crate::metrics::Metrics;
use crate::metrics::pods::PodMetrics;
use crate::options::Options;
use crate::pods::{self, allocated};
use crate::reconcile::{again, reconcile};
use crate::reconcile_limit::ReconcileLimit;
use crate::relist::{Change, Relist};
use crate::schedules::runs::{RunIndex, ScheduleKey};
use crate::scope::Scope;
use crate::serve::{self, Ready};
use crate::webhook::Webhook;
use crate::{connect, executors, leader, schedules};

type Application = DeserializeGuard<SparkApplication>;

/// Runs until `until` is cancelled or the lease is lost.
pub async fn run(client: Client, options: Options, until: CancellationToken) -> anyhow::Result<()> {
    let scope = Arc::new(Scope::new(&options));
    let ready = Ready::default();
    let metrics = Arc::new(Metrics::new(&options.metrics_options, options.requests.clone()));
    let servers = CancellationToken::new();
    let _stop_servers = servers.clone().drop_guard();
    if let Some(at) = &options.health {
        let problem =
            || format!("cannot listen on {at} for probes; choose an address with --health-probe-bind-address, or 0");
        let address = serve::probes(at, ready.clone(), servers.clone()).await.with_context(problem)?;
        tracing::info!(%address, "answering probes");
    }
    if let Some(how) = &options.metrics {
        let at = &how.at;
        let problem =
            || format!("cannot listen on {at} for metrics; choose an address with --metrics-bind-address, or 0");
        let address = serve::metrics(how, metrics.clone(), servers.clone()).await.with_context(problem)?;
        tracing::info!(%address, tls = how.tls.is_some(), "serving metrics");
    }
    scope.check(&client).await?;
    // Every replica answers, whoever is the leader.
    let webhook = Webhook::start(&client, &options, &metrics, &ready).await?;
    let outcome = lead(client, options, scope, metrics, ready, until).await;
    if let Some(webhook) = webhook {
        webhook.stop().await;
    }
    outcome
}

/// Works while this operator is the leader, or alone.
async fn lead(
    client: Client,
    options: Options,
    scope: Arc<Scope>,
    metrics: Arc<Metrics>,
    ready: Ready,
    until: CancellationToken,
) -> anyhow::Result<()> {
    let leadership = match &options.leader {
        None => None,
        Some(leader) => {
            // A standby is as ready as it can be.
            ready.set();
            metrics.leads(&leader.name, false);
            match leader::acquire(&client, leader, &until).await {
                Some(leadership) => {
                    metrics.leads(&leader.name, true);
                    Some(leadership)
                }
                None => return Ok(()),
            }
        }
    };
    let lost = leadership.as_ref().map(|l| l.lost.clone()).unwrap_or_default();
    let work = work(client, options, scope, metrics, ready, until.child_token());
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = lost.cancelled() => Err(anyhow::anyhow!("the lease was lost; another operator acts now")),
    };
    if let Some(leadership) = leadership
        && !leadership.lost.is_cancelled()
    {
        leadership.release().await;
    }
    outcome
}

/// Works in every namespace of the scope until the token is cancelled.
async fn work(
    client: Client,
    options: Options,
    scope: Arc<Scope>,
    metrics: Arc<Metrics>,
    ready: Ready,
    until: CancellationToken,
) -> anyhow::Result<()> {
    let _stop = until.clone().drop_guard();
    let turns = FairQueue::new(usize::from(options.workers));
    let limit = Arc::new(ReconcileLimit::new(&options.reconciles));
    let events = Arc::new(EventRecorder::start(&client, &turns));
    let shared = Arc::new(executors::Shared::new(
        options.executors.clone(),
        options.runs.clone(),
        scope.clone(),
        metrics.clone(),
        events.clone(),
    ));
    let creations: Weak<executors::Shared> = Arc::downgrade(&shared);
    metrics.follow(creations);
    for controller in [Reporter::Applications, Reporter::Connects, Reporter::Schedules] {
        metrics.workers(controller.name(), options.workers);
    }
    metrics.workers(Reporter::Executors.name(), options.executors.workers);
    let connects = connect::Shared {
        client: client.clone(),
        options: options.clone(),
        scope: scope.clone(),
        events: events.clone(),
        metrics: metrics.clone(),
        turns: turns.clone(),
        limit: limit.clone(),
        ending: until.clone(),
    };
    let scheduling = schedules::Shared {
        client: client.clone(),
        scope: scope.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        turns: turns.clone(),
        limit: limit.clone(),
        precision: options.run_names,
        ending: until.clone(),
    };
    let mut parts = JoinSet::new();
    let gateway_api = Arc::new(GatewayApi::new(client.clone(), options.discovery_interval));
    if !options.runs.ui.gateways.is_empty() {
        let (following, ending) = (gateway_api.clone(), until.clone());
        parts.spawn(async move { following.follow(ending).await });
    }
    let definitions = Arc::new(Definitions::default());
    parts.spawn(definitions.clone().follow(client.clone(), until.clone()));
    let (mut synced, mut listed) = (Vec::new(), Vec::new());
    let (following, namespaces, ending) = (scope.clone(), client.clone(), until.clone());
    parts.spawn(async move {
        tokio::select! {
            () = following.follow(namespaces) => {}
            () = ending.cancelled() => {}
        }
    });
    for namespace in scope.watched() {
        let (reader, writer) = reflector::store();
        let (turns, telling, ending) = (turns.clone(), events.clone(), until.clone());
        let (covered, counting) = (scope.clone(), metrics.clone());
        let mut ctx = Context::new(
            client.clone(),
            options.clone(),
            covered,
            reader,
            counting,
            turns,
            telling,
            gateway_api.clone(),
            ending,
        );
        ctx.definitions = definitions.clone();
        ctx.limit = limit.clone();
        let ctx = Arc::new(ctx);
        let cache: Weak<Context> = Arc::downgrade(&ctx);
        metrics.follow(cache);
        synced.push(ctx.pods.clone());
        listed.push(ctx.apps.clone());
        let (touched, touches) = mpsc::unbounded_channel();
        let allocated = Arc::new(allocated::Index::default());
        let (asking, sharing, within) = (client.clone(), shared.clone(), namespace.clone());
        let apps = ctx.apps.clone();
        parts.spawn(executors::look_after(asking, sharing, within, allocated.clone(), apps, touches, until.clone()));
        let (servers, (send, touches)) = (Arc::new(connect::pods::ServerPods::default()), mpsc::unbounded_channel());
        parts.spawn(connect::look_after(connects.clone(), namespace.clone(), servers.clone(), touches));
        let runs = Arc::new(RunIndex::default());
        let (scheduled, changes) = mpsc::unbounded_channel();
        parts.spawn(schedules::look_after(scheduling.clone(), namespace.clone(), runs.clone(), changes));
        parts.spawn(look_after(ctx, writer, namespace, allocated, touched, (servers, send), (runs, scheduled)));
    }
    let (ending, acting, filled) = (until.clone(), metrics.clone(), CancellationToken::new());
    let filling = filled.clone().drop_guard();
    parts.spawn(async move {
        let all = async {
            scope.synced().await;
            for pods in synced {
                pods.synced().await;
            }
            ready.set();
            acting.is_ready();
            tracing::info!("ready");
            for apps in listed {
                // Its writer lives as long as its controller.
                let _ = apps.wait_until_ready().await;
            }
        };
        tokio::select! {
            () = all => {}
            // A shutdown does not wait for the initial list.
            () = ending.cancelled() => {}
        }
        drop(filling);
    });
    let late = async {
        let Some(patience) = options.cache_sync_timeout else { return std::future::pending().await };
        if tokio::time::timeout(patience, filled.cancelled()).await.is_ok() {
            return std::future::pending().await;
        }
        patience
    };
    let ended = async {
        while let Some(ended) = parts.join_next().await {
            ended.context("a controller ended unexpectedly")?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = ended => outcome?,
        patience = late => anyhow::bail!(
            "the caches were not filled within {} s (--cache-sync-timeout); check that the API server answers, that the \
             operator may list and watch applications and pods, and that `firesteel crds` are installed",
            patience.as_secs_f32()
        ),
    }
    events.publish_rest().await;
    Ok(())
}

/// Runs the application controller for one namespace, or for all.
async fn look_after(
    ctx: Arc<Context>,
    writer: Writer<Application>,
    namespace: Option<String>,
    allocated: Arc<allocated::Index>,
    touched: mpsc::UnboundedSender<Vec<allocated::AppIdKey>>,
    servers: (Arc<connect::pods::ServerPods>, mpsc::UnboundedSender<connect::pods::ConnectKey>),
    (runs, scheduled): (Arc<RunIndex>, mpsc::UnboundedSender<Vec<ScheduleKey>>),
) {
    let (apps, pods): (Api<Application>, Api<Pod>) = match &namespace {
        Some(namespace) => {
            (Api::namespaced(ctx.client.clone(), namespace), Api::namespaced(ctx.client.clone(), namespace))
        }
        None => (Api::all(ctx.client.clone()), Api::all(ctx.client.clone())),
    };
    let (send, triggers) = mpsc::unbounded_channel();
    let (ended, mut job) = mpsc::unbounded_channel();
    ctx.exposures.notify(ended);
    let later = send.clone();
    let follow_exposures = async move {
        while let Some((namespace, name)) = job.recv().await {
            let _ = later.send(ObjectRef::<Application>::new(&name).within(&namespace));
        }
    };
    let (index, joining) = (ctx.pods.clone(), send.clone());
    let follow_scope = ctx.scope.each_change(
        |namespace| {
            tracing::info!(namespace, "working in this namespace: its labels match");
            let apps = ctx.apps.state();
            let within = apps.iter().filter(|app| app.namespace().as_deref() == Some(namespace));
            within.for_each(|app| drop(joining.send(ObjectRef::from_obj(app.as_ref()))));
        },
        |namespace| tracing::info!(namespace, "leaving this namespace alone: its labels no longer match"),
    );
    let follow_definitions = {
        let (mut changes, apps, send) = (ctx.definitions.changes(), ctx.apps.clone(), send.clone());
        async move {
            // The sender lives as long as the context.
            while changes.changed().await.is_ok() {
                // Status fields that were dropped may be kept now.
                for app in apps.state() {
                    let _ = send.send(ObjectRef::from_obj(app.as_ref()));
                }
            }
        }
    };
    let counted = Arc::new(PodMetrics::new(
        ctx.options.metrics_options.labels.clone(),
        ctx.scope.clone(),
        ctx.apps.clone(),
        Timestamp::now(),
    ));
    let cache: Weak<PodMetrics> = Arc::downgrade(&counted);
    ctx.metrics.follow(cache);
    let is_served = ctx.options.metrics.is_some();
    let follow_gateway_api = {
        let (exposures, send) = (ctx.exposures.clone(), send.clone());
        let mut appearances = exposures.route_appearances();
        async move {
            while appearances.changed().await.is_ok() {
                for (namespace, name) in exposures.kind_appeared() {
                    let _ = send.send(ObjectRef::<Application>::new(&name).within(&namespace));
                }
            }
            std::future::pending::<()>().await;
        }
    };
    let (edited, mut edits) = (touched.clone(), Edits::default());
    let follow_pods = pods::follow(pods, move |event| {
        if is_served {
            counted.apply(event, Timestamp::now());
        }
        for (namespace, name) in index.apply(event) {
            let _ = send.send(ObjectRef::<Application>::new(&name).within(&namespace));
        }
        // The executor controller may already have ended.
        let _ = touched.send(allocated.apply(event));
        let (servers, changed) = &servers;
        servers.apply(event).into_iter().for_each(|key| drop(changed.send(key)));
    });
    let forgetting = ctx.clone();
    let mut relist = Relist::default();
    let stream = watcher(apps, watcher::Config::default())
        .default_backoff()
        .modify(|app| app.meta_mut().managed_fields = None)
        .inspect(move |event| match event {
            Ok(event) => {
                let change = relist.fold(event);
                // The schedule controller may already have ended.
                let _ = scheduled.send(runs.apply(&change));
                match change {
                    Change::Gone(app) => forgetting.forget(&app.namespace().unwrap_or_default(), &app.name_any()),
                    Change::Listed(there) => {
                        forgetting.keep_only(&there.into_keys().collect());
                        forgetting.is_listed.store(true, Ordering::Relaxed);
                    }
                    Change::Lists | Change::InList(_) | Change::Seen(_) => {}
                }
            }
            Err(error) => tracing::warn!(%error, "the application watch was interrupted"),
        })
        .reflect(writer)
        .inspect(move |event| {
            let changed = event.as_ref().map(|event| edits.fold(event)).unwrap_or_default();
            if !changed.is_empty() {
                // The executor controller may already have ended.
                let _ = edited.send(changed);
            }
        })
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
        // `turns` decides which applications are reconciled, and how many at a time.
        Controller::for_stream(stream, ctx.apps.clone())
            .with_config(controller::Config::default().concurrency(0))
            .reconcile_on(UnboundedReceiverStream::new(triggers))
            .graceful_shutdown_on(ctx.ending.clone().cancelled_owned())
            .run(reconcile, |app, error, ctx| again(&app, error, &ctx), ctx.clone())
            .for_each(|_| std::future::ready(()))
            .await;
    };
    tokio::select! {
        () = controller => {}
        () = follow_pods => {}
        () = follow_scope => {}
        () = follow_exposures => {}
        () = follow_definitions => {}
        () = follow_gateway_api => {}
        // The controller shuts down by itself; this covers one that has not started yet.
        () = async { ctx.ending.cancelled().await; tokio::time::sleep(std::time::Duration::from_secs(30)).await } => {}
    }
}
