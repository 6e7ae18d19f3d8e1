//! One pass over an application's executors: observe, determine the demand, obtain slots for it, have
//! `firesteel_core::allocation` decide, write the ledger, and carry out the rest. Nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firesteel_api::executors::{ExecutorGrantStatus, ExecutorLedgerStatus, ProfileDemand};
use firesteel_api::{ExecutorGrant, policy};
use firesteel_core::allocation::creation::Creation;
use firesteel_core::allocation::early::{DEFAULT_PROFILE, DriverPlace};
use firesteel_core::allocation::memory::{Memory, Refusal};
use firesteel_core::allocation::pod::ExecutorPod;
use firesteel_core::allocation::set_plan::SetWrite;
use firesteel_core::allocation::sets::{ExecutorSet, identify};
use firesteel_core::allocation::{self, Driver, Effects, Note, Sight};
use firesteel_core::event_reason::executors as reason;
use firesteel_core::grant::heard::Heard;
use firesteel_core::pod::DriverPod;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use tracing::Instrument;

use super::admission::{Answer, admit};
use super::edits::Current;
use super::ledger::Ledger;
use super::{Allocator, GrantRef, slots, writes};
use crate::error::Error;
use crate::events::Reporter;
use crate::pods::allocated::{self, AllocatedPods, AppIdKey};

/// A pass that takes longer is aborted and retried.
const LONGEST_PASS: Duration = Duration::from_secs(60);

/// An application's state between passes.
#[derive(Debug, Default)]
pub(super) struct AppState {
    memory: Memory,
    pub(super) ledger: Ledger,
    /// What the driver published while no other driver could have, and the profiles that have changed since.
    heard: Heard,
    doubted: Vec<String>,
    /// What its application says about new executors.
    current: Current,
}

/// Reconciles one grant.
pub(super) async fn reconcile(
    grant: Arc<DeserializeGuard<ExecutorGrant>>,
    allocator: Arc<Allocator>,
) -> Result<Action, Error> {
    let (namespace, name) = (grant.namespace().unwrap_or_default(), grant.name_any());
    let span = tracing::info_span!("executors", namespace, driver = name);
    let working = allocator.shared.metrics.queue(Reporter::Executors.name()).begin();
    let outcome = async {
        let grant = match &grant.0 {
            Ok(grant) => Arc::new(grant.clone()),
            Err(invalid) => {
                tracing::warn!(error = %invalid.error, "this grant does not parse");
                return Ok(Action::await_change());
            }
        };
        if !allocator.shared.scope.covers(&grant.namespace().unwrap_or_default()) {
            let key = (grant.namespace().unwrap_or_default(), grant.spec.app_id.clone());
            allocator.index.forget(&key, &allocator.index.of(&key).departed);
            return Ok(Action::await_change());
        }
        let pass = tokio::time::timeout(LONGEST_PASS, pass(&grant, &allocator)).await;
        let outcome = pass.unwrap_or(Err(Error::Slow(LONGEST_PASS.as_secs())));
        match &outcome {
            Ok(_) | Err(Error::Changed) => {}
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
pub(super) fn again(error: &Error) -> Action {
    match error {
        Error::Changed => Action::requeue(Duration::from_millis(50)),
        Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_) => Action::requeue(Duration::from_secs(1)),
    }
}

async fn pass(grant: &Arc<ExecutorGrant>, allocator: &Arc<Allocator>) -> Result<Action, Error> {
    if grant.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let key: AppIdKey = (grant.namespace().unwrap_or_default(), grant.spec.app_id.clone());
    let state = allocator.state(grant);
    let mut state = state.lock().await;
    let pods = allocator.index.driver(&key);
    let ledger = match admit(grant, allocator, &key, &mut state, &pods).await? {
        Answer::Accepted(ledger) => *ledger,
        Answer::Later(action) => return Ok(action),
    };
    let grant = believed(grant, allocator, &key, &mut state, &pods).await;
    let (grant, news) = state.current.grant(grant, allocator);
    record(allocator, &grant, pods.driver.as_ref().map(|driver| driver.uid.as_str()), news.as_slice());
    let Some(seen) = observe(allocator, grant, key, ledger) else { return Ok(Action::requeue(slots::NOT_LISTED)) };
    state.memory.observe(seen.demand(), &seen.executors, &seen.pods.in_flight, seen.now);
    let sight = seen.sight(allocator, &state.memory);
    let demand = allocation::demand(&sight);
    // What was given is reserved in the namespace until this pass has recorded its creations.
    let (slots, _given) = slots::obtain(allocator, &seen.grant, &seen.key, &demand).await?;
    let effects = allocation::step(demand, &slots);
    let wake = effects.wake;
    perform(allocator, &seen, &mut state, effects).await?;
    // Slightly late rather than too early, when the pass would find nothing to do.
    let until = |at: Timestamp| Duration::try_from(at.duration_since(seen.now)).unwrap_or_default();
    Ok(wake.map_or_else(Action::await_change, |at| Action::requeue(until(at) + Duration::from_millis(5))))
}

/// What one pass sees.
struct Seen {
    key: AppIdKey,
    /// With the trusted part of its demand.
    grant: Arc<ExecutorGrant>,
    ledger: ExecutorLedgerStatus,
    driver: Driver,
    /// What the grant forecasts, if executors may be created early.
    early: Option<BTreeMap<String, ProfileDemand>>,
    pods: AllocatedPods,
    executors: Vec<ExecutorPod>,
    sets: Vec<ExecutorSet>,
    now: Timestamp,
}

/// Observes; `None` until the sets have been listed once.
fn observe(
    allocator: &Allocator,
    grant: Arc<ExecutorGrant>,
    key: AppIdKey,
    mut ledger: ExecutorLedgerStatus,
) -> Option<Seen> {
    let mut pods = allocator.index.of(&key);
    let driver = driver(&grant, &pods, &mut ledger);
    let sets = allocator.sets.of(grant.spec.strategy, &key, ledger.driver_uid.as_deref())?;
    let present = std::mem::take(&mut pods.executors).into_values();
    let executors: Vec<ExecutorPod> = present.chain(pods.departed.values().cloned()).collect();
    let unset = ExecutorGrantStatus::default();
    let demand = grant.status.as_ref().unwrap_or(&unset);
    let executors = identify(&grant.spec, demand, &ledger, &sets, executors);
    let granted = grant.spec.early.as_ref().filter(|_| allocator.shared.options.early);
    let early = granted.map(|early| [(DEFAULT_PROFILE.to_owned(), early.profile.clone())].into());
    Some(Seen { key, grant, ledger, driver, early, pods, executors, sets, now: Timestamp::now() })
}

impl Seen {
    fn demand(&self) -> &ExecutorGrantStatus {
        static UNSET: std::sync::LazyLock<ExecutorGrantStatus> = std::sync::LazyLock::new(Default::default);
        self.grant.status.as_ref().unwrap_or(&UNSET)
    }

    /// The driver's pod, while it starts.
    fn place(&self) -> DriverPlace<'_> {
        let Some(driver) = &self.pods.driver else { return DriverPlace::default() };
        DriverPlace { gated: driver.gated, unschedulable: driver.unschedulable, address: driver.address.as_deref() }
    }

    fn sight<'a>(&'a self, allocator: &Allocator, memory: &'a Memory) -> Sight<'a> {
        Sight {
            namespace: &self.key.0,
            grant: &self.grant.spec,
            demand: self.demand(),
            early: self.early.as_ref(),
            admitted: None,
            ledger: &self.ledger,
            driver: self.driver,
            place: self.place(),
            pods: &self.executors,
            sets: &self.sets,
            in_flight: &self.pods.in_flight,
            memory,
            limit: allocator.shared.options.per_application,
            namespace_limit: allocator.shared.options.per_namespace,
            now: self.now,
        }
    }
}

/// Carries out a decision, ledger first, and remembers the outcome.
async fn perform(allocator: &Arc<Allocator>, seen: &Seen, state: &mut AppState, effects: Effects) -> Result<(), Error> {
    let Seen { key, grant, now, .. } = seen;
    let client = &allocator.client;
    if !effects.ledger_may_wait {
        state.ledger.write(client, grant, &effects.ledger).await?;
        state.memory.wrote(&effects, &seen.ledger, *now);
        let fresh = effects.ledger.losses.iter().filter(|loss| loss.seq > seen.ledger.loss_seq);
        fresh.for_each(|loss| {
            let pod = seen.executors.iter().find(|pod| pod.id.is_some_and(|id| id.to_string() == loss.id));
            allocator.shared.metrics.executor_lost(&key.0, loss.cause, pod);
        });
    }
    allocator.index.forget(key, &seen.pods.departed);
    state.memory.begin(&effects);
    state.memory.cancelled(allocator.index.cancel(key, &effects.cancel));
    record(allocator, grant, effects.ledger.driver_uid.as_deref(), &effects.notes);
    let (marked, outcome) = writes::mark_members(client, &key.0, &effects.marks).await;
    marked.into_iter().for_each(|mark| state.memory.marked(mark, *now));
    outcome?;
    if let Err(refusal) = write_sets(allocator, seen, &mut state.memory, &effects.sets).await {
        state.memory.refuse(refusal.clone(), Timestamp::now());
        follow_refusal(allocator, grant, &refusal);
    }
    writes::remove(client, grant, &effects).await?;
    state.memory.deleted(&effects.remove, *now);
    if effects.remove_claims {
        writes::remove_claims(client, key).await?;
    }
    state.memory.done(&effects);
    create(allocator, seen, effects.create);
    Ok(())
}

/// Writes sets until one is rejected.
async fn write_sets(allocator: &Allocator, seen: &Seen, memory: &mut Memory, sets: &[SetWrite]) -> Result<(), Refusal> {
    let strategy = seen.grant.spec.strategy;
    for write in sets {
        let made = writes::write_set(&allocator.client, &seen.key.0, strategy, write).await?;
        let template = made.and_then(|made| allocator.sets.remember(strategy, made));
        match (write, template) {
            (SetWrite::Create(plan), Some(template)) => memory.templated(&plan.profile, &plan.hash, template),
            (SetWrite::Replace { profile, plan, .. }, Some(template)) => memory.templated(profile, plan, template),
            (SetWrite::Delete { .. } | SetWrite::Resize { .. }, _) | (_, None) => {}
        }
    }
    Ok(())
}

/// Starts creations in the background; each reports its own outcome.
fn create(allocator: &Arc<Allocator>, seen: &Seen, creations: Vec<Creation>) {
    if creations.is_empty() {
        return;
    }
    allocator.index.launch(&seen.key, &creations);
    let decided = Instant::now();
    for creation in creations {
        let (allocator, key, grant) = (allocator.clone(), seen.key.clone(), seen.grant.clone());
        let making = async move {
            let turn = allocator.shared.creating.take(key.clone()).await;
            if !allocator.shared.scope.covers(&key.0) {
                return allocator.index.abandon(&key, creation.id);
            }
            if !allocator.index.ask(&key, creation.id) {
                return;
            }
            let Err(refusal) = writes::create(&allocator.client, &key.0, &creation).await else {
                allocator.index.answered(&key, creation.id);
                allocator.shared.metrics.executor_created(&key.0, decided.elapsed().as_secs_f64());
                return;
            };
            drop(turn);
            allocator.shared.metrics.executor_refused(&key.0);
            let state = allocator.state(&grant);
            let mut state = state.lock().await;
            allocator.index.abandon(&key, creation.id);
            allocator.shared.check_room();
            state.memory.abandoned(refusal.clone(), Timestamp::now());
            follow_refusal(&allocator, &grant, &refusal);
        };
        tokio::spawn(making.in_current_span());
    }
}

/// The cluster rejected an executor: triggers the next pass, and slows down creations if the API server is busy.
fn follow_refusal(allocator: &Allocator, grant: &ExecutorGrant, refusal: &Refusal) {
    if let Refusal::Later { retry_after, .. } = refusal {
        allocator.shared.creation_limit.slow_down(*retry_after, Instant::now());
    }
    allocator.enqueue(GrantRef::new(&grant.name_any()).within(&grant.namespace().unwrap_or_default()));
}

/// The grant with the trusted part of its demand: while nothing isolates its driver from another one, the other could have
/// written it.
async fn believed(
    grant: &Arc<ExecutorGrant>,
    allocator: &Allocator,
    key: &AppIdKey,
    state: &mut AppState,
    pods: &AllocatedPods,
) -> Arc<ExecutorGrant> {
    let Some(status) = grant.status.as_ref().filter(|status| !status.profiles.is_empty()) else {
        return grant.clone();
    };
    let alone = allocator.is_alone(grant, key, &pods.account).await;
    let Some((profiles, doubted)) = state.heard.hear(&status.profiles, alone) else {
        state.doubted.clear();
        return grant.clone();
    };
    if state.doubted != doubted {
        let text = format!(
            "ignoring a changed executor environment for profile {}: another driver with service account {} could have \
             written it; `{}` isolates such drivers",
            doubted.join(", "),
            pods.account,
            policy::COMMAND
        );
        let note = Note { warning: true, reason: reason::DEMAND_DOUBTED, text };
        record(allocator, grant, pods.driver.as_ref().map(|driver| driver.uid.as_str()), &[note]);
        state.doubted = doubted;
    }
    let status = ExecutorGrantStatus { profiles, ..status.clone() };
    Arc::new(ExecutorGrant { status: Some(status), ..(**grant).clone() })
}

/// The driver of a grant, if it exists. `uid` is the uid recorded for it earlier.
pub(super) fn own_driver<'a>(
    grant: &ExecutorGrant,
    pods: &'a AllocatedPods,
    uid: Option<&str>,
) -> Option<&'a DriverPod> {
    let granted = &grant.spec.driver;
    pods.driver.as_ref().filter(|driver| {
        driver.name == granted.pod_name
            && granted.pod_uid.as_ref().is_none_or(|uid| *uid == driver.uid)
            && granted.submission_id.as_ref().is_none_or(|id| Some(id) == driver.submission_id.as_ref())
            && uid.is_none_or(|uid| *uid == driver.uid)
    })
}

/// The state of the grant's driver. Records the driver's uid when it is first seen.
fn driver(grant: &ExecutorGrant, pods: &AllocatedPods, ledger: &mut ExecutorLedgerStatus) -> Driver {
    match own_driver(grant, pods, ledger.driver_uid.as_deref()) {
        Some(driver) => {
            ledger.driver_uid = Some(driver.uid.clone());
            if allocated::is_running(driver) {
                Driver::Running
            } else if driver.outcome().is_some() || driver.deleting {
                Driver::Ended
            } else {
                Driver::Starting
            }
        }
        None if ledger.driver_uid.is_some() => Driver::Ended,
        None => Driver::Starting,
    }
}

/// Logs notes and records them as events of the driver pod.
pub(super) fn record(allocator: &Allocator, grant: &ExecutorGrant, driver: Option<&str>, notes: &[Note]) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(grant.spec.driver.pod_name.clone()),
        namespace: grant.namespace(),
        uid: driver.map(str::to_owned),
        ..ObjectReference::default()
    };
    for note in notes {
        if note.warning {
            tracing::warn!(reason = note.reason, "{}", note.text);
        } else {
            tracing::info!(reason = note.reason, "{}", note.text);
        }
        allocator.shared.events.record(Reporter::Executors, &about, note.warning, note.reason, &note.text);
    }
}
