//! Gathers the cluster state that concerns one application.

use std::sync::Arc;

use firesteel_api::{ExecutorLedger, SparkApplication, names};
use firesteel_cluster::log;
use firesteel_core::conf::Subject;
use firesteel_core::diagnosis::{self, Cause, Facts, Log};
use firesteel_core::driver_node::DriverNode;
use firesteel_core::lifecycle::{self, Observation, QUIET, Seen};
use firesteel_core::phase::Phase;
use firesteel_core::pod::{DriverPod, EXECUTORS_FAILED, Outcome, PodPhase, SparkContainer, Words};
use firesteel_spark::names::key;
use firesteel_spark::redaction::Redaction;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;

use crate::context::Context;
use crate::error::{During, Error, words};
use crate::pods::FALLBACK_TO_LOGS;

/// Maximum number of a pod's events to list.
const MOST_EVENTS: u32 = 50;

/// Reads the caches. Asks the API server only for a failed driver's log, for the verdict on its executors if that is why it
/// failed, for the events of a driver that stays pending without a reason, and for the node of a driver that may be
/// unreachable.
pub(crate) async fn observe(
    ctx: &Context,
    app: &SparkApplication,
    subject: &Subject<'_>,
    now: Timestamp,
) -> Observation {
    let pods = ctx.pods.of(subject.namespace, subject.name);
    let current = app.status.as_ref().and_then(|s| s.submission_id.as_deref());
    let read = |pod: &Arc<Pod>| DriverPod::read(pod, subject.name, subject.uid);
    let drivers = pods.drivers.values().map(read).collect();
    let (driver, other_drivers) = lifecycle::choose_driver(drivers, current, &subject.driver_pod_name());
    let pod = driver.as_ref().and_then(|driver| pods.drivers.get(&driver.name));
    let mut driver = match driver {
        Some(driver) => Seen::Present(reasoned(ctx, subject, driver, now).await),
        None => Seen::Absent { last: pods.tombstone.as_ref().map(read) },
    };
    let undeleted = pods.executors.values().filter(|e| !e.deleting).map(|e| e.submission_id.clone()).collect();
    let (ours, others): (Vec<_>, Vec<_>) =
        pods.executors.into_values().partition(|e| Some(e.submission_id.as_str()) == current);
    let cause = match (pod, &mut driver) {
        (Some(pod), Seen::Present(seen)) if just_failed(app, seen, now) => {
            let cause = cause(ctx, subject, pod, seen).await;
            sentenced(ctx, subject, seen).await;
            cause
        }
        _ => None,
    };
    let executors = ours.into_iter().map(|e| e.seen).collect();
    let node = match &driver {
        Seen::Present(pod) => node(ctx, pod).await,
        Seen::Absent { .. } => None,
    };
    let (departed, past): (Vec<_>, Vec<_>) =
        pods.departed.into_values().partition(|e| Some(e.submission_id.as_str()) == current);
    let departed = departed.into_iter().map(|e| e.seen).collect();
    ctx.pods.settle(subject.namespace, subject.name, &past.into_iter().map(|e| e.seen).collect::<Vec<_>>());
    let key = (subject.namespace.to_owned(), subject.name.to_owned());
    let (sent, exposure_job) = (ctx.sent(&key), ctx.exposures.of(&key));
    let strays = others.len();
    let confirmed = false;
    Observation {
        now,
        driver,
        other_drivers,
        confirmed,
        executors,
        departed,
        strays,
        cause,
        node,
        undeleted,
        sent,
        exposure_job,
    }
}

/// The node of a driver that may be unreachable, or why it cannot be read.
async fn node(ctx: &Context, driver: &DriverPod) -> Option<DriverNode> {
    let name = driver.node.as_deref().filter(|_| driver.may_be_unreachable())?;
    let api: Api<Node> = Api::all(ctx.client.clone());
    Some(match api.get_opt(name).await {
        Ok(Some(node)) => DriverNode::read(&node),
        Ok(None) => DriverNode::Gone,
        Err(error) => DriverNode::Unreadable(words(&error)),
    })
}

/// Asks the API server, not the cache, for driver pods: by label, and by name, since labels can be removed.
pub(crate) async fn confirm(
    ctx: &Context,
    app: &SparkApplication,
    subject: &Subject<'_>,
    seen: &Observation,
) -> Result<Observation, Error> {
    let wanted = subject.driver_pod_name();
    let status = app.status.as_ref();
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), subject.namespace);
    let labels = format!("{}={},{}=driver", names::LABEL_APP_NAME, subject.name, names::LABEL_ROLE);
    let listed = api.list(&ListParams::default().labels(&labels)).await.during(|| "look for driver pods".to_owned())?;
    let mut pods = listed.items;
    for name in [Some(&wanted), status.and_then(|s| s.driver_info.pod_name.as_ref())].into_iter().flatten() {
        if !pods.iter().any(|pod| pod.metadata.name.as_ref() == Some(name)) {
            pods.extend(api.get_opt(name).await.during(|| format!("look for pod {name}"))?);
        }
    }
    let drivers = pods.iter().map(|pod| DriverPod::read(pod, subject.name, subject.uid)).collect();
    let current = status.and_then(|s| s.submission_id.as_deref());
    let (driver, other_drivers) = lifecycle::choose_driver(drivers, current, &wanted);
    let last = match &seen.driver {
        Seen::Absent { last } => last.clone(),
        Seen::Present(_) => None,
    };
    let driver = driver.map_or(Seen::Absent { last }, Seen::Present);
    Ok(Observation { driver, other_drivers, confirmed: true, ..seen.clone() })
}

/// Adds why a driver stays pending if its status does not say: a volume that cannot be mounted shows up only in events.
async fn reasoned(ctx: &Context, subject: &Subject<'_>, mut driver: DriverPod, now: Timestamp) -> DriverPod {
    let quiet = driver.created.is_some_and(|created| now.duration_since(created) >= QUIET);
    if driver.phase != PodPhase::Pending || driver.waiting.is_some() || driver.deleting || !quiet {
        return driver;
    }
    let api: Api<Event> = Api::namespaced(ctx.client.clone(), subject.namespace);
    let selector = format!("involvedObject.uid={},type=Warning", driver.uid);
    match api.list(&ListParams::default().fields(&selector).limit(MOST_EVENTS)).await {
        Ok(events) => driver.waiting = latest(events.items),
        Err(error) => tracing::debug!(pod = driver.name, %error, "cannot list the pending driver's events"),
    }
    driver
}

fn latest(events: Vec<Event>) -> Option<Words> {
    let when = |e: &Event| {
        let series = e.series.as_ref().and_then(|s| s.last_observed_time.as_ref().map(|t| t.0));
        let last = e.last_timestamp.as_ref().map(|t| t.0);
        series
            .or(last)
            .or_else(|| e.event_time.as_ref().map(|t| t.0))
            .or_else(|| Some(e.metadata.creation_timestamp.as_ref()?.0))
    };
    // While it applies, the scheduler's reason is also in the pod's status.
    let event = events.into_iter().filter(|e| e.reason.as_deref() != Some("FailedScheduling")).max_by_key(when)?;
    Some(Words { reason: event.reason?, message: event.message.unwrap_or_default() })
}

/// Whether a driver has failed and that has not been reported yet.
fn just_failed(app: &SparkApplication, seen: &DriverPod, now: Timestamp) -> bool {
    let waited_for = app.status.as_ref().is_some_and(|status| Phase::read(status, now).has_driver());
    waited_for && seen.outcome() == Some(Outcome::Failed) && seen.ended.is_some()
}

/// Adds the verdict from the ledger if too many failed executors ended the driver: its log says so too, but other lines follow.
async fn sentenced(ctx: &Context, subject: &Subject<'_>, driver: &mut DriverPod) {
    let Some(ended) = &mut driver.ended else { return };
    if ended.exit_code != EXECUTORS_FAILED || !ended.message.trim().is_empty() {
        return;
    }
    let api: Api<ExecutorLedger> = Api::namespaced(ctx.client.clone(), subject.namespace);
    match api.get_opt(&driver.name).await {
        Ok(ledger) => {
            let status = ledger.and_then(|ledger| ledger.status);
            let ours = status.filter(|status| status.driver_uid.as_ref().is_none_or(|uid| *uid == driver.uid));
            ended.message = ours.and_then(|status| status.verdict).map(|verdict| verdict.message).unwrap_or_default();
        }
        Err(error) => tracing::debug!(pod = driver.name, %error, "cannot read the failed driver's ledger"),
    }
}

/// Why a driver failed, from the end of its log, or from the part of the log in the pod's status. Without a log, the failure
/// is still reported.
async fn cause(ctx: &Context, subject: &Subject<'_>, pod: &Pod, driver: &mut DriverPod) -> Option<Cause> {
    let ended = driver.ended.as_mut()?;
    let redaction = Redaction::new(subject.spec.spark_conf.get(key::REDACTION_REGEX).map(String::as_str));
    let container = SparkContainer::of(pod).name();
    let message = std::mem::take(&mut ended.message);
    let last_words = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .any(|c| c.name == container && c.termination_message_policy.as_deref() == Some(FALLBACK_TO_LOGS));
    if !last_words {
        ended.message = redaction.text(&message);
    }
    if !ctx.options.driver_log {
        return None;
    }
    let log = match log::tail(&ctx.client, subject.namespace, &driver.name, container).await {
        Ok(log) => log,
        Err(error) => {
            tracing::debug!(pod = driver.name, %error, "cannot read the failed driver's log");
            Vec::new()
        }
    };
    // If the log went with its node or is not readable, the pod's status may still have its end.
    let log = if log.is_empty() && last_words { message.into_bytes() } else { log };
    diagnosis::cause(ended, &Log::new(&log, &redaction), Facts::of(pod))
}
