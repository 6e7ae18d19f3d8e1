//! One pass over one SparkConnect: observe, decide, act, write the status, record events.

use std::sync::Arc;
use std::time::Duration;

use firesteel_api::{SparkConnect, SparkConnectSpec, SparkConnectStatus};
use firesteel_core::connect::plan::{Plan, plan};
use firesteel_core::connect::step::{self, Connect, Decision, Effect, State};
use firesteel_core::connect::{Subject, application, service};
use firesteel_core::event_reason::connect as reason;
use firesteel_core::legible;
use firesteel_core::lifecycle::Submission;
use firesteel_core::run::Attempt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use serde::Deserialize;
use tracing::Instrument;

use super::pods::ConnectKey;
use super::{Context, observe};
use crate::error::{During, Error};
use crate::events::Reporter;
use crate::fair_queue::Kind;
use crate::writes;

/// A pass that takes longer is aborted and retried.
const LONGEST_PASS: Duration = Duration::from_secs(60);
/// How soon to retry an object that someone else changed.
const LAG: Duration = Duration::from_millis(100);
/// The same when a cache shows what this operator has already replaced. The watch event usually comes first.
const REPLACED: Duration = Duration::from_secs(1);
/// Consecutive failed passes before an event is recorded.
const TOLD_FAILURES: u32 = 3;

/// Reconciles one SparkConnect when it is its turn.
pub(super) async fn reconcile(
    connect: Arc<DeserializeGuard<SparkConnect>>,
    ctx: Arc<Context>,
) -> Result<Action, Error> {
    let object = ObjectRef::from_obj(connect.as_ref());
    let has_server = connect.0.as_ref().is_ok_and(|c| c.status.as_ref().is_some_and(|s| s.attempt.is_some()));
    drop(connect);
    ctx.services.synced().await;
    let waiting = ctx.metrics.queue(Reporter::Connects.name());
    let _turn = tokio::select! {
        turn = async {
            ctx.limit.wait().await;
            ctx.turns.take(if has_server { Kind::Follow } else { Kind::Start }).await
        } => turn,
        () = ctx.ending.cancelled() => return Ok(Action::await_change()),
    };
    // It may have waited for long.
    let namespace = object.namespace.clone().unwrap_or_default();
    let Some(connect) = ctx.connects.get(&object).filter(|_| ctx.scope.covers(&namespace)) else {
        return Ok(Action::await_change());
    };
    let working = waiting.begin();
    let outcome = Box::pin(look(connect, ctx)).await;
    working.end(&outcome);
    outcome
}

/// When to retry after a failed pass.
pub(super) fn again(connect: &DeserializeGuard<SparkConnect>, error: &Error, ctx: &Context) -> Action {
    match error {
        Error::Changed => Action::requeue(LAG),
        Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_) => {
            let (wait, failures) = ctx.failed(key(connect));
            if failures >= TOLD_FAILURES {
                let note = format!("reconciliation keeps failing and is retried: {error}");
                ctx.events.record(Reporter::Connects, &connect.object_ref(&()), true, reason::RETRIED, &note);
            }
            Action::requeue(wait)
        }
    }
}

fn key(connect: &impl ResourceExt) -> ConnectKey {
    (connect.namespace().unwrap_or_default(), connect.name_any())
}

async fn look(connect: Arc<DeserializeGuard<SparkConnect>>, ctx: Arc<Context>) -> Result<Action, Error> {
    let (namespace, name) = key(connect.as_ref());
    let span = tracing::info_span!("pass", namespace, connect = name);
    async {
        let pass = async {
            match &connect.0 {
                Ok(connect) => pass(connect, &ctx, None).await,
                Err(invalid) => match read(&ctx, &invalid.metadata, &invalid.error).await? {
                    Some((connect, problem)) => pass(&connect, &ctx, Some(problem)).await,
                    // It is gone or parses by now: a watch event follows.
                    None => Ok(Action::requeue(REPLACED)),
                },
            }
        };
        let limit = tokio::time::timeout(LONGEST_PASS, pass).await;
        let outcome = limit.unwrap_or(Err(Error::Slow(LONGEST_PASS.as_secs())));
        match &outcome {
            Ok(_) => {
                ctx.memory().entry((namespace.clone(), name.clone())).or_default().failures = 0;
            }
            Err(Error::Changed) => tracing::debug!("the SparkConnect changed concurrently"),
            Err(error) => tracing::warn!(%error, "will try again"),
        }
        outcome
    }
    .instrument(span)
    .await
}

/// What can be read of an object whose specification does not parse, and which field is wrong. It is enough to follow a
/// server. `None` if the object is gone or parses by now.
async fn read(ctx: &Context, meta: &ObjectMeta, error: &str) -> Result<Option<(SparkConnect, String)>, Error> {
    let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
    let resource = ApiResource::erase::<SparkConnect>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &namespace, &resource);
    let found = api.get_opt(&name).await.during(|| "read the SparkConnect".to_owned())?;
    let Some(DynamicObject { metadata, data, .. }) = found else { return Ok(None) };
    let status = Option::deserialize(&data["status"]);
    let problem = match legible::connect(&data["spec"]) {
        Ok(_) if status.is_ok() => return Ok(None),
        Ok(_) => error.to_owned(),
        Err(fault) => fault.to_string(),
    };
    let connect = SparkConnect { metadata, spec: SparkConnectSpec::default(), status: status.unwrap_or_default() };
    Ok(Some((connect, problem)))
}

/// One pass. `unreadable` says why the specification does not parse.
async fn pass(connect: &SparkConnect, ctx: &Context, unreadable: Option<String>) -> Result<Action, Error> {
    let key = key(connect);
    let version = connect.resource_version().unwrap_or_default();
    if ctx.is_replaced(&key, &version) {
        return Ok(Action::requeue(REPLACED));
    }
    let uid = connect.uid().unwrap_or_default();
    let subject = Subject { name: &key.1, namespace: &key.0, uid: &uid, labels: connect.labels(), spec: &connect.spec };
    let planned = match unreadable {
        Some(problem) => Err(problem),
        None => check(ctx, connect, &subject),
    };
    let unset = SparkConnectStatus::default();
    let hash = application::fingerprint(&connect.spec);
    let wanted = Connect {
        subject,
        spec_hash: &hash,
        service_hash: planned.as_ref().ok().and_then(|plan| service::hash(&plan.service.metadata)),
        generation: connect.metadata.generation.unwrap_or_default(),
        deleting: connect.metadata.deletion_timestamp.is_some(),
        status: connect.status.as_ref().unwrap_or(&unset),
        problem: planned.as_ref().err().map(String::as_str),
    };
    let mut seen = observe::observe(ctx, connect, &subject, &key).await;
    let mut decision = step::step(&wanted, &seen);
    if decision.confirm {
        seen = observe::confirm(ctx, &subject, seen).await?;
        decision = step::step(&wanted, &seen);
    }
    let service = planned.as_ref().ok().map(|plan| &plan.service);
    let decision = act(ctx, connect, &wanted, decision, service).await?;
    if write(connect, ctx, &decision.status).await? {
        let (before, after) = (State::read(wanted.status), State::read(&decision.status));
        if before != after {
            tracing::info!(from = before.word(), to = after.word(), attempt = decision.status.attempt, "state");
        }
    }
    for event in &decision.events {
        ctx.events.record(Reporter::Connects, &connect.object_ref(&()), event.warning, event.reason, &event.note);
    }
    Ok(match decision.wake {
        Some(at) => Action::requeue(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()),
        None => Action::await_change(),
    })
}

/// The plan of the next server, or what is wrong with the specification.
fn check(ctx: &Context, connect: &SparkConnect, subject: &Subject<'_>) -> Result<Plan, String> {
    let problems = application::problems(subject);
    if !problems.is_empty() {
        return Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let next = connect.status.as_ref().and_then(|status| status.attempt).unwrap_or_default().saturating_add(1);
    plan(subject, attempt(connect, next), &ctx.options.runs.master).map_err(|problem| problem.to_string())
}

fn attempt(connect: &SparkConnect, number: i64) -> Attempt {
    Attempt {
        number,
        generation: connect.metadata.generation.unwrap_or_default(),
        created: connect.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        now: Timestamp::now(),
        nonce: uuid::Uuid::new_v4().as_u128(),
    }
}

/// Carries out a decision. The creation of a server leads to a new decision.
async fn act(
    ctx: &Context,
    connect: &SparkConnect,
    wanted: &Connect<'_>,
    mut decision: Decision,
    service: Option<&Service>,
) -> Result<Decision, Error> {
    let subject = &wanted.subject;
    let namespace = subject.namespace;
    let mut effects: std::collections::VecDeque<_> = std::mem::take(&mut decision.effects).into();
    while let Some(effect) = effects.pop_front() {
        match effect {
            Effect::ApplyService => {
                let Some(service) = service else { continue };
                if let Some(why) = writes::apply_service(&ctx.client, namespace, subject.uid, service).await? {
                    let about = connect.object_ref(&());
                    ctx.events.record(Reporter::Connects, &about, true, reason::SERVICE_FAILED, &why);
                }
            }
            Effect::DeleteService { name, uid } => {
                let api: Api<Service> = Api::namespaced(ctx.client.clone(), namespace);
                let deleted = writes::delete(&api, &name, Some(uid), false).await;
                deleted.during(|| format!("delete Service {name}"))?;
            }
            Effect::DeletePod { name, uid } => {
                writes::delete_driver(&ctx.client, namespace, &name, &uid, false).await?;
            }
            Effect::DeleteObjects { keep } => {
                writes::delete_server_objects(&ctx.client, namespace, subject.name, &keep).await?;
            }
            Effect::Create { attempt: number } => {
                let outcome = match plan(subject, attempt(connect, number), &ctx.options.runs.master) {
                    Ok(plan) => writes::create_server(&ctx.client, subject.uid, &plan.run).await?,
                    Err(problem) => Submission::Impossible(problem.to_string()),
                };
                tracing::debug!(attempt = number, ?outcome, "created");
                let base = Connect { status: &decision.status, ..*wanted };
                let mut followed = step::created(&base, number, &outcome, Timestamp::now());
                effects.extend(std::mem::take(&mut followed.effects));
                followed.events.splice(0..0, std::mem::take(&mut decision.events));
                decision = followed;
            }
        }
    }
    Ok(decision)
}

/// Writes a status. `false` if there was nothing to write.
async fn write(connect: &SparkConnect, ctx: &Context, new: &SparkConnectStatus) -> Result<bool, Error> {
    let (key, version) = (key(connect), connect.resource_version().unwrap_or_default());
    let Some(patch) = writes::status_patch(connect.status.as_ref(), new)? else { return Ok(false) };
    let written = writes::patch_status::<SparkConnect>(&ctx.client, &key.0, &key.1, Some(&version), &patch).await?;
    let Some(written) = written else { return Ok(false) };
    // A write that changes nothing stored keeps the version, so no watch event follows.
    if written.version != version {
        ctx.memory().entry(key).or_default().replaced = Some(version);
    }
    Ok(true)
}
