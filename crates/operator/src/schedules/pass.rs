//! One pass over one schedule: observe, decide, act, write the status, record events.

use std::sync::Arc;
use std::time::Duration;

use firesteel_api::{ScheduledSparkApplication, ScheduledSparkApplicationSpec, ScheduledSparkApplicationStatus, crds};
use firesteel_core::event_reason::schedule as reason;
use firesteel_core::legible;
use firesteel_core::lifecycle::Event;
use firesteel_core::schedule::{self, Cause, Decision, Effect, RunSeen, Sight, Started};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use tracing::Instrument;

use super::runs::ScheduleKey;
use super::{Scheduled, Schedules, lock, writes};
use crate::error::{During, Error};
use crate::events::Reporter;
use crate::fair_queue::Kind;
use crate::writes::merge_patch;

/// A pass that takes longer is aborted and retried.
const LONGEST_PASS: Duration = Duration::from_secs(60);
/// How soon to retry a schedule that someone else changed.
const LAG: Duration = Duration::from_millis(100);
/// The same when the cache shows what this operator has already replaced. The watch event usually comes first.
const REPLACED: Duration = Duration::from_secs(1);
/// The longest sleep. Timers do not notice when the clock is set or the machine was asleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);
/// Consecutive failed passes before an event is recorded.
const TOLD_FAILURES: u32 = 3;

/// Reconciles one schedule when it is its turn.
pub(super) async fn reconcile(schedule: Arc<Scheduled>, ctx: Arc<Schedules>) -> Result<Action, Error> {
    let object = ObjectRef::from_obj(schedule.as_ref());
    let key = key(&schedule);
    let kind = if is_due(&schedule) { Kind::Start } else { Kind::Follow };
    drop(schedule);
    let shared = &ctx.shared;
    if !shared.scope.covers(&key.0) {
        return Ok(Action::await_change());
    }
    let waiting = shared.metrics.queue(Reporter::Schedules.name());
    let _turn = tokio::select! {
        turn = async { shared.limit.wait().await; shared.turns.take(kind).await } => turn,
        () = shared.ending.cancelled() => return Ok(Action::await_change()),
    };
    // It may have waited for long, so check again with current data.
    if !shared.scope.covers(&key.0) {
        return Ok(Action::await_change());
    }
    let Some(schedule) = ctx.cache.get(&object) else { return Ok(Action::await_change()) };
    let span = tracing::info_span!("pass", namespace = key.0, schedule = key.1);
    let working = waiting.begin();
    let outcome = async {
        let limit = tokio::time::timeout(LONGEST_PASS, Box::pin(look(&schedule, &ctx))).await;
        let outcome = limit.unwrap_or(Err(Error::Slow(LONGEST_PASS.as_secs())));
        match &outcome {
            Ok(_) => ctx.succeeded(&key),
            Err(Error::Changed) => tracing::debug!("the schedule changed concurrently"),
            Err(error) => tracing::warn!(%error, "will try again"),
        }
        outcome
    }
    .instrument(span)
    .await;
    working.end(&outcome);
    outcome
}

/// When to retry after a failed pass.
pub(super) fn again(schedule: &Scheduled, error: &Error, ctx: &Schedules) -> Action {
    match error {
        Error::Changed => Action::requeue(LAG),
        Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_) => {
            let (wait, failures) = ctx.failed(key(schedule));
            if failures >= TOLD_FAILURES {
                let note = format!("reconciliation keeps failing and is retried: {error}");
                ctx.shared.events.record(Reporter::Schedules, &schedule.object_ref(&()), true, reason::RETRIED, &note);
            }
            Action::requeue(wait)
        }
    }
}

fn key(schedule: &Scheduled) -> ScheduleKey {
    (schedule.namespace().unwrap_or_default(), schedule.name_any())
}

/// Whether a run is due.
fn is_due(schedule: &Scheduled) -> bool {
    let status = schedule.0.as_ref().ok().and_then(|schedule| schedule.status.as_ref());
    status.and_then(|status| status.next_run.as_ref()).is_some_and(|next| next.0 <= Timestamp::now())
}

async fn look(schedule: &Scheduled, ctx: &Schedules) -> Result<Action, Error> {
    match &schedule.0 {
        Ok(schedule) => pass(schedule, None, ctx).await,
        Err(invalid) => match read(&invalid.metadata, &invalid.error, ctx).await? {
            Some((schedule, problem)) => pass(&schedule, Some(&problem), ctx).await,
            // It is gone or parses by now: a watch event follows.
            None => Ok(Action::requeue(REPLACED)),
        },
    }
}

/// Reads a schedule that does not parse: its status, and what is wrong. `None` if it is gone or parses by now.
async fn read(
    meta: &ObjectMeta,
    error: &str,
    ctx: &Schedules,
) -> Result<Option<(ScheduledSparkApplication, String)>, Error> {
    let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
    let resource = ApiResource::erase::<ScheduledSparkApplication>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.shared.client.clone(), &namespace, &resource);
    let Some(object) = api.get_opt(&name).await.during(|| "read the schedule".to_owned())? else { return Ok(None) };
    let spec = &object.data["spec"];
    let status = Option::<ScheduledSparkApplicationStatus>::deserialize(&object.data["status"]);
    let problem = match legible::schedule(spec) {
        Ok(_) if status.is_ok() => return Ok(None),
        Ok(_) => error.to_owned(),
        Err(faults) => faults.first().map(ToString::to_string).unwrap_or_default(),
    };
    let spec = ScheduledSparkApplicationSpec::default();
    Ok(Some((
        ScheduledSparkApplication { metadata: object.metadata, spec, status: status.unwrap_or_default() },
        problem,
    )))
}

async fn pass(object: &ScheduledSparkApplication, unreadable: Option<&str>, ctx: &Schedules) -> Result<Action, Error> {
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    let version = object.resource_version().unwrap_or_default();
    if ctx.is_replaced(&key, &version) {
        return Ok(Action::requeue(REPLACED));
    }
    let mut runs = ctx.runs.of(&object.uid().unwrap_or_default());
    let zones = &ctx.zones;
    let precision = ctx.shared.precision;
    let mut decision = schedule::step(&Sight { object, unreadable, runs: &runs, zones, precision }, Timestamp::now());
    if decision.effects.iter().any(|effect| matches!(effect, Effect::StartRun(_)))
        && let Some(last) = unseen(object, &runs, ctx).await?
    {
        runs.push(last);
        decision = schedule::step(&Sight { object, unreadable, runs: &runs, zones, precision }, Timestamp::now());
    }
    let sight = Sight { object, unreadable, runs: &runs, zones, precision };
    let events = std::mem::take(&mut decision.events);
    let about = object.object_ref(&());
    let record = |event: &Event| {
        ctx.shared.events.record(Reporter::Schedules, &about, event.warning, event.reason, &event.note);
    };
    events.iter().for_each(record);
    ctx.shared.metrics.runs_missed(&key.0, decision.missed);
    let (decision, version) = act(&sight, decision, version, ctx).await?;
    write(object, &decision.status, version, ctx).await?;
    for event in &decision.events {
        tracing::info!(reason = event.reason, "{}", event.note);
        record(event);
    }
    Ok(match decision.wake {
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
            Action::requeue(wait.min(LONGEST_SLEEP))
        }
        None => Action::await_change(),
    })
}

/// The last run, if other runs matter and the cache does not show it: it may lag.
async fn unseen(
    object: &ScheduledSparkApplication,
    runs: &[RunSeen],
    ctx: &Schedules,
) -> Result<Option<RunSeen>, Error> {
    if !matches!(object.spec.concurrency_policy.as_deref(), Some("Forbid" | "Replace")) {
        return Ok(None);
    }
    let last = object.status.as_ref().and_then(|status| status.last_run_name.as_deref());
    let Some(last) = last.filter(|last| !runs.iter().any(|run| run.name == *last)) else { return Ok(None) };
    let api: Api<firesteel_api::SparkApplication> =
        Api::namespaced(ctx.shared.client.clone(), &object.namespace().unwrap_or_default());
    let found = api.get_opt(last).await.during(|| format!("look for SparkApplication {last}"))?;
    let uid = object.uid().unwrap_or_default();
    let own = found.filter(|run| run.owner_references().iter().any(|owner| owner.uid == uid));
    Ok(own.map(|run| RunSeen::read(&run.metadata, run.status.as_ref())))
}

/// Carries out a decision; returns what is to be written, and on which version. A start leads to a new decision.
async fn act(
    sight: &Sight<'_>,
    mut decision: Decision,
    mut version: String,
    ctx: &Schedules,
) -> Result<(Decision, String), Error> {
    let client = &ctx.shared.client;
    let (namespace, name) = (sight.object.namespace().unwrap_or_default(), sight.object.name_any());
    let mut effects: std::collections::VecDeque<Effect> = std::mem::take(&mut decision.effects).into();
    while let Some(effect) = effects.pop_front() {
        match effect {
            Effect::DeleteRun { name, uid, version } => {
                writes::delete_run(client, &namespace, &name, &uid, &version).await?;
            }
            Effect::StartRun(run) => {
                let outcome = writes::start_run(client, sight, &run).await?;
                let now = Timestamp::now();
                if let (Started::Exists { since, .. }, Cause::Due(due)) = (&outcome, &run.cause) {
                    ctx.shared.metrics.run_started(&namespace, since.duration_since(*due).as_secs_f64().max(0.0));
                }
                let mut followed = schedule::started(sight, &run, &outcome, now);
                effects.extend(std::mem::take(&mut followed.effects));
                decision = followed;
            }
            Effect::RemoveRequest => {
                if let Some(patched) = writes::remove_request(client, &namespace, &name, &version).await? {
                    ctx.replaced((namespace.clone(), name.clone()), std::mem::replace(&mut version, patched));
                }
            }
        }
    }
    Ok((decision, version))
}

/// Writes the parts of a status that the cluster keeps.
async fn write(
    object: &ScheduledSparkApplication,
    new: &ScheduledSparkApplicationStatus,
    version: String,
    ctx: &Schedules,
) -> Result<(), Error> {
    let old = serde_json::to_value(object.status.clone().unwrap_or_default())?;
    let Some(serde_json::Value::Object(patch)) = merge_patch(&old, &serde_json::to_value(new)?) else { return Ok(()) };
    if patch.keys().all(|field| lock(&ctx.dropped).contains(field)) {
        return Ok(());
    }
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    let Some(written) = writes::patch_status(&ctx.shared.client, &key.0, &key.1, &version, &patch).await? else {
        return Ok(());
    };
    // A write that changes nothing stored keeps the version, so no watch event follows.
    if written.version != version {
        ctx.replaced(key, version);
    }
    let sent = patch.iter().filter(|(_, value)| !value.is_null());
    let lost: Vec<String> = sent.map(|(field, _)| field.clone()).filter(|f| !written.status.contains_key(f)).collect();
    let mut dropped = lock(&ctx.dropped);
    let is_news = lost.iter().any(|field| !dropped.contains(field));
    dropped.retain(|field| !written.status.contains_key(field));
    if is_news {
        let fields: Vec<String> = lost.iter().map(|field| format!("status.{field}")).collect();
        tracing::warn!(
            "CustomResourceDefinition scheduledsparkapplications.sparkoperator.k8s.io is older than this operator or belongs to another one, and drops {}; schedules work, but `kubectl wait --for=condition` never returns; update it: {}",
            fields.join(", "),
            crds::UPDATE_COMMAND
        );
    }
    dropped.extend(lost);
    Ok(())
}
