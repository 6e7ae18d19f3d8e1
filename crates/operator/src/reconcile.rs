//! One pass over one application: observe, decide, act, write the status, record events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use firesteel_api::{SparkApplication, SparkApplicationStatus, defaults, validate};
use firesteel_core::conf::Subject;
use firesteel_core::event_reason::application as reason;
use firesteel_core::grant::live;
use firesteel_core::identity;
use firesteel_core::lifecycle::{self, App, Decision, Effect, ExposureJob, Submission};
use firesteel_core::phase::Phase;
use firesteel_core::recall;
use firesteel_core::run::{self, Attempt, Run};
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use tracing::Instrument;

use crate::context::Context;
use crate::error::Error;
use crate::events::Reporter;
use crate::fair_queue::Kind;
use crate::malformed::Unreadable;
use crate::{malformed, observe, writes};

/// A pass that takes longer is aborted and retried.
const LONGEST_PASS: Duration = Duration::from_secs(60);
/// How soon to retry an application that someone else changed.
const LAG: Duration = Duration::from_millis(100);
/// The same when a cache shows what this operator has already replaced. The watch event usually comes first.
const REPLACED: Duration = Duration::from_secs(1);

/// How long a pass spends on deleting objects of earlier attempts.
const LONGEST_CLEANING: Duration = Duration::from_secs(5);
/// Consecutive failed passes before an event is recorded.
const TOLD_FAILURES: u32 = 3;

/// Reconciles one application when it is its turn.
pub(crate) async fn reconcile(
    app: Arc<DeserializeGuard<SparkApplication>>,
    ctx: Arc<Context>,
) -> Result<Action, Error> {
    let object = ObjectRef::from_obj(app.as_ref());
    let kind = if starts(&app) { Kind::Start } else { Kind::Follow };
    let hindered = ctx.is_hindered(&key(&app));
    drop(app);
    if !covered(&object, &ctx) {
        return Ok(leave(&object, &ctx));
    }
    let _slow = if hindered {
        tokio::select! {
            slow = ctx.slow.clone().acquire_owned() => slow.ok(),
            () = ctx.ending.cancelled() => return Ok(Action::await_change()),
        }
    } else {
        None
    };
    let waiting = ctx.metrics.queue(Reporter::Applications.name());
    let _turn = tokio::select! {
        turn = async { ctx.limit.wait().await; ctx.turns.take(kind).await } => turn,
        () = ctx.ending.cancelled() => return Ok(Action::await_change()),
    };
    // It may have waited for long, so check again with current data.
    if !covered(&object, &ctx) {
        return Ok(leave(&object, &ctx));
    }
    let Some(app) = ctx.apps.get(&object) else { return Ok(Action::await_change()) };
    let working = waiting.begin();
    // Many may wait; boxed, so that only running passes take the memory of one.
    let outcome = Box::pin(look(app, ctx)).await;
    working.end(&outcome);
    outcome
}

/// Whether this operator may act on an application.
fn covered(app: &ObjectRef<DeserializeGuard<SparkApplication>>, ctx: &Context) -> bool {
    ctx.scope.covers(app.namespace.as_deref().unwrap_or_default())
}

/// Ignores an application until its namespace is covered again; its departed executors will not be recorded.
fn leave(app: &ObjectRef<DeserializeGuard<SparkApplication>>, ctx: &Context) -> Action {
    let namespace = app.namespace.as_deref().unwrap_or_default();
    let departed: Vec<_> = ctx.pods.of(namespace, &app.name).departed.into_values().map(|e| e.seen).collect();
    ctx.pods.settle(namespace, &app.name, &departed);
    Action::await_change()
}

/// Whether an application gets a driver next.
fn starts(app: &DeserializeGuard<SparkApplication>) -> bool {
    let Ok(app) = &app.0 else { return false };
    let unset = SparkApplicationStatus::default();
    match Phase::read(app.status.as_ref().unwrap_or(&unset), Timestamp::UNIX_EPOCH) {
        Phase::New | Phase::PendingRerun | Phase::Resuming => app.metadata.deletion_timestamp.is_none(),
        Phase::Submitted { .. }
        | Phase::Running
        | Phase::Succeeding
        | Phase::Failing { .. }
        | Phase::Completed { .. }
        | Phase::Failed { .. }
        | Phase::SubmissionFailed { .. }
        | Phase::Invalidating
        | Phase::Suspending
        | Phase::Suspended
        | Phase::Unknown => false,
    }
}

async fn look(app: Arc<DeserializeGuard<SparkApplication>>, ctx: Arc<Context>) -> Result<Action, Error> {
    let (namespace, name) = key(&app);
    let span = tracing::info_span!("pass", namespace, application = name);
    async {
        let pass = async {
            match &app.0 {
                Ok(app) => pass(app, &ctx, None).await,
                Err(invalid) => match malformed::read(&ctx, &invalid.metadata, &invalid.error).await? {
                    Some((app, problem)) => pass(&app, &ctx, Some(problem)).await,
                    // It is gone or parses by now: a watch event follows.
                    None => Ok(Action::requeue(REPLACED)),
                },
            }
        };
        let limit = tokio::time::timeout(LONGEST_PASS, pass).await;
        let outcome = limit.unwrap_or(Err(Error::Slow(LONGEST_PASS.as_secs())));
        match &outcome {
            Ok(_) => ctx.succeeded(&(namespace.clone(), name.clone())),
            Err(Error::Changed) => tracing::debug!("the application changed concurrently"),
            Err(error) => tracing::warn!(%error, "will try again"),
        }
        outcome
    }
    .instrument(span)
    .await
}

/// When to retry after a failed pass.
pub(crate) fn again(app: &DeserializeGuard<SparkApplication>, error: &Error, ctx: &Context) -> Action {
    match error {
        Error::Changed => Action::requeue(LAG),
        Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_) => {
            let (wait, failures) = ctx.failed(key(app));
            if failures >= TOLD_FAILURES {
                let note = format!("reconciliation keeps failing and is retried: {error}");
                ctx.events.record(Reporter::Applications, &app.object_ref(&()), true, reason::RETRIED, &note);
            }
            Action::requeue(wait)
        }
    }
}

fn key(app: &DeserializeGuard<SparkApplication>) -> (String, String) {
    (app.namespace().unwrap_or_default(), app.name_any())
}

/// One pass. If the specification does not parse, `unreadable` says why, and `app` has the parts that do.
async fn pass(app: &SparkApplication, ctx: &Context, unreadable: Option<Unreadable>) -> Result<Action, Error> {
    let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
    let version = app.resource_version().unwrap_or_default();
    if ctx.is_replaced(&(namespace.clone(), name.clone()), &version) {
        return Ok(Action::requeue(REPLACED));
    }
    let now = Timestamp::now();
    let spec = defaults::defaulted(&app.spec);
    let uid = app.uid().unwrap_or_default();
    let subject = Subject { name: &name, namespace: &namespace, uid: &uid, labels: app.labels(), spec: &spec };
    let partial_restart = ctx.options.runs.partial_restart;
    let (mut spec_hash, mut problem) = match unreadable {
        Some(Unreadable { problem, spec_hash }) => (spec_hash, Some(problem)),
        None => {
            let problems = validate::problems(&name, &namespace, &app.spec);
            let sentences: Vec<String> = problems.iter().map(ToString::to_string).collect();
            (identity::fingerprint(&app.spec, partial_restart), (!sentences.is_empty()).then(|| sentences.join("; ")))
        }
    };
    let key = (namespace.clone(), name.clone());
    let unset = SparkApplicationStatus::default();
    let stored = app.status.as_ref().unwrap_or(&unset);
    let mut seen = observe::observe(ctx, app, &subject, now).await;
    let old = ctx.whole(&key, &uid, stored).unwrap_or_else(|| recall::recall(stored, &uid, &seen.driver));
    let is_other = old.spec_hash.as_ref().is_some_and(|hash| *hash != spec_hash);
    // New executors get what an edit changes without another run.
    let is_live =
        live::allocates(&spec) && (old.observed_generation != app.metadata.generation || lifecycle::refuses_edit(&old));
    if problem.is_none() && (is_other || is_live) && Phase::read(&old, now).has_run() {
        // A specification that cannot be planned must not end a run, nor reach executors.
        problem =
            plan(app, ctx, &subject, old.attempt.unwrap_or_default() + 1).err().map(|problem| problem.to_string());
        if problem.is_some() && !is_other {
            spec_hash = identity::whole_fingerprint(&app.spec);
        }
    }
    let wanted = App {
        subject,
        spec_hash: &spec_hash,
        generation: app.metadata.generation.unwrap_or_default(),
        deleting: app.metadata.deletion_timestamp.is_some(),
        status: &old,
        problem: problem.as_deref(),
    };

    let limits = &ctx.options.limits;
    let mut decision = lifecycle::step(&wanted, &seen, limits);
    if decision.confirm_drivers {
        seen = observe::confirm(ctx, app, &subject, &seen).await?;
        decision = lifecycle::step(&wanted, &seen, limits);
    }
    let decision = act(app, ctx, &wanted, decision).await?;

    let new = &decision.status;
    if write(app, ctx, new).await? {
        let (before, after) = (&old.application_state.state, &new.application_state.state);
        if before != after {
            tracing::info!(from = before, to = after, attempt = new.attempt, "{}", first_line(new));
            ctx.metrics.moved(app, &old, new, now);
        }
        ctx.metrics.executors(app, &old, new);
        let submitted = matches!(Phase::read(new, now), Phase::Submitted { .. }) && before != after;
        if submitted && let Some(complaint) = ctx.definitions.complaint() {
            let reason = reason::DEFINITION_OUTDATED;
            ctx.events.record(Reporter::Applications, &app.object_ref(&()), true, reason, &complaint);
        }
    }
    ctx.pods.settle(&namespace, &name, &seen.departed);
    for event in &decision.events {
        ctx.events.record(Reporter::Applications, &app.object_ref(&()), event.warning, event.reason, &event.note);
    }
    Ok(match decision.wake {
        Some(at) => {
            let wait = at.duration_since(Timestamp::now());
            Action::requeue(Duration::try_from(wait).unwrap_or_default())
        }
        None => Action::await_change(),
    })
}

/// Writes the parts of a status that the cluster keeps. `false` if there was nothing to write.
async fn write(app: &SparkApplication, ctx: &Context, new: &SparkApplicationStatus) -> Result<bool, Error> {
    let (namespace, name) = (app.namespace().unwrap_or_default(), app.name_any());
    let (uid, version) = (app.uid().unwrap_or_default(), app.resource_version().unwrap_or_default());
    let key = (namespace.clone(), name.clone());
    let Some(mut patch) = writes::status_patch(app.status.as_ref(), new)? else { return Ok(false) };
    let stored = app.status.clone().unwrap_or_default();
    if !ctx.definitions.keep(&patch) {
        ctx.remember(key, &uid, &stored, new);
        return Ok(false);
    }
    // The existing operator's CRDs require it, and the stored status may lack it.
    patch.entry("driverInfo").or_insert(serde_json::to_value(&new.driver_info)?);
    let Some(written) =
        writes::patch_status::<SparkApplication>(&ctx.client, &namespace, &name, Some(&version), &patch).await?
    else {
        return Ok(false);
    };
    ctx.definitions.learn(&patch, &written.status);
    // A write that changes nothing stored keeps the version, so no watch event follows.
    if written.version != version {
        ctx.replaced(key.clone(), version);
    }
    let kept: SparkApplicationStatus = serde_json::from_value(written.status.into())?;
    // As it will be read back: with whole seconds.
    let new: SparkApplicationStatus = serde_json::from_value(serde_json::to_value(new)?)?;
    ctx.remember(key, &uid, &kept, &new);
    Ok(true)
}

fn first_line(status: &SparkApplicationStatus) -> &str {
    status.application_state.error_message.lines().next().unwrap_or_default()
}

/// Carries out a decision. A submission leads to a new decision.
async fn act(
    app: &SparkApplication,
    ctx: &Context,
    wanted: &App<'_>,
    mut decision: Decision,
) -> Result<Decision, Error> {
    let subject = &wanted.subject;
    let (namespace, name) = (subject.namespace, subject.name);
    let key = (namespace.to_owned(), name.to_owned());
    for effect in std::mem::take(&mut decision.effects) {
        match effect {
            Effect::DeleteDriver { name, uid, force } => {
                writes::delete_driver(&ctx.client, namespace, &name, &uid, force).await?;
            }
            Effect::DeleteExecutors { ref keep } => {
                writes::delete_executors(&ctx.client, namespace, name, keep.as_deref()).await?;
                ctx.note_sent(&key, effect, Timestamp::now());
            }
            Effect::DeleteObjects { ref keep } => {
                let deletes = writes::delete_objects(&ctx.client, namespace, name, keep.as_deref());
                let deleted = tokio::time::timeout(LONGEST_CLEANING, deletes).await;
                match deleted.unwrap_or(Err(Error::Slow(LONGEST_CLEANING.as_secs()))) {
                    Ok(()) => {
                        ctx.note_sent(&key, effect, Timestamp::now());
                    }
                    Err(error) if ctx.failures(&key) < TOLD_FAILURES => return Err(error),
                    // They are harmless, and are deleted with the application at the latest.
                    Err(error) => tracing::warn!(%error, "cannot delete objects of an earlier attempt; leaving them"),
                }
            }
            Effect::Expose => {
                if let Some(job) = expose(ctx, wanted).await {
                    decision = lifecycle::exposed(wanted, decision, &job, Timestamp::now());
                }
            }
            Effect::DeleteExposure(exposed) => {
                let job = ctx.exposures.remove(subject, exposed).await;
                if let Some(job) = job.filter(ExposureJob::is_unsettled) {
                    decision = lifecycle::still_exposed(wanted, decision, &job, Timestamp::now());
                }
            }
            Effect::DeleteApplication => writes::delete_application(&ctx.client, app).await?,
            Effect::Submit { attempt } => {
                let began = Instant::now();
                let outcome = submit(app, ctx, wanted, attempt).await?;
                ctx.metrics.submitted(namespace, &outcome, began.elapsed().as_secs_f64());
                let now = Timestamp::now();
                let followed = lifecycle::submitted(wanted, attempt, &outcome, now);
                decision = Decision { effects: Vec::new(), ..followed };
            }
        }
    }
    Ok(decision)
}

/// Starts creating the exposure objects of the current submission in the background; waits briefly for the outcome.
async fn expose(ctx: &Context, wanted: &App<'_>) -> Option<ExposureJob> {
    let (subject, status) = (&wanted.subject, wanted.status);
    let submission_id = status.submission_id.as_deref()?;
    let app_id = status.spark_application_id.as_deref().unwrap_or_default();
    let exposure = run::exposure(subject, app_id, submission_id, &ctx.options.runs);
    ctx.exposures.make(subject, submission_id, exposure).await
}

fn plan(app: &SparkApplication, ctx: &Context, subject: &Subject<'_>, number: i64) -> Result<Run, validate::Problem> {
    let created = app.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let generation = app.metadata.generation.unwrap_or_default();
    let (now, nonce) = (Timestamp::now(), uuid::Uuid::new_v4().as_u128());
    run::plan(subject, Attempt { number, generation, created, now, nonce }, &ctx.options.runs)
}

async fn submit(app: &SparkApplication, ctx: &Context, wanted: &App<'_>, number: i64) -> Result<Submission, Error> {
    let subject = &wanted.subject;
    let run = match plan(app, ctx, subject, number) {
        Ok(run) => run,
        Err(problem) => return Ok(Submission::Impossible(problem.to_string())),
    };
    let mut outcome = writes::create_run(&ctx.client, subject.name, subject.uid, &run).await?;
    let key = (subject.namespace.to_owned(), subject.name.to_owned());
    match &mut outcome {
        Submission::Created(_) => {
            ctx.forget_sent(&key);
            ctx.exposures.expect(subject, &run.submission_id);
        }
        Submission::Hindered { since, times, .. } => {
            let sent = ctx.note_sent(&key, Effect::Submit { attempt: number }, Timestamp::now());
            (*since, *times) = (sent.first, sent.times);
        }
        Submission::InTheWay | Submission::Refused(_) | Submission::Impossible(_) => {}
    }
    tracing::debug!(attempt = number, submission = run.submission_id, ?outcome, "submitted");
    Ok(outcome)
}
