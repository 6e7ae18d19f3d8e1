//! One pass over one application's executors: observe, decide, write the ledger, then delete and create.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use firesteel_api::executors::{ExecutorGrantStatus, ExecutorLedgerStatus, Strategy};
use firesteel_api::{ExecutorGrant, names, policy};
use firesteel_core::allocation::heard::Heard;
use firesteel_core::allocation::sets::{ExecutorSet, identify};
use firesteel_core::allocation::size::Size;
use firesteel_core::allocation::{self, Decision, Driver, Memory, Note, Sight, nodes};
use firesteel_core::pod::DriverPod;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use tracing::Instrument;

use super::admission::{Answer, admit};
use super::index::{self, AppKey, AppPods, Stage};
use super::ledger::Ledger;
use super::writes::{self, Creation, Refusal};
use super::{Allocator, App, namespaces, sets};
use crate::error::Error;
use crate::tell::Reporter;

/// A pass that takes longer is given up and tried again.
const LONGEST_PASS: Duration = Duration::from_secs(60);

/// A deletion that has had no effect for so long is asked for again.
const DELETE_AGAIN: Duration = Duration::from_secs(10);

/// How soon to look again while the sets are being listed for the first time.
const NOT_LISTED: Duration = Duration::from_millis(200);
/// How long after the end of a wait the next refusal is one more in a row.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(60);

/// What is kept of one application between passes.
#[derive(Debug, Default)]
pub(super) struct State {
    memory: Memory,
    pub(super) ledger: Ledger,
    /// What the driver said while nobody else could speak for it, and profiles for which something else stands there.
    heard: Heard,
    doubted: Vec<String>,
    /// Why no executor can be created for the moment, and until when.
    hold: Option<Hold>,
    /// Claims of this application that exist; none before they were listed.
    claims: Option<BTreeSet<String>>,
    /// Deletions that were asked for and are not seen yet: pods by uid, whether at once, and when.
    sent: HashMap<(String, bool), Instant>,
    /// What only sets need.
    sets: sets::Written,
    /// Ids that no executor was made with and that the ledger does not count as such yet.
    unused: u64,
    over: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) until: Timestamp,
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// How often in a row.
    pub(super) row: u32,
}

/// Looks at one grant.
pub(super) async fn reconcile(
    grant: Arc<DeserializeGuard<ExecutorGrant>>,
    allocator: Arc<Allocator>,
) -> Result<Action, Error> {
    let (namespace, name) = (grant.namespace().unwrap_or_default(), grant.name_any());
    let span = tracing::info_span!("executors", namespace, driver = name);
    async {
        let grant = match &grant.0 {
            Ok(grant) => Arc::new(grant.clone()),
            Err(invalid) => {
                tracing::warn!(error = %invalid.error, "this grant cannot be read");
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
    .await
}

/// When to look again after a failed pass.
pub(super) fn again(error: &Error) -> Action {
    match error {
        Error::Changed => Action::requeue(Duration::from_millis(50)),
        Error::Cluster { .. } | Error::Slow(_) | Error::Serialize(_) => Action::requeue(Duration::from_secs(1)),
    }
}

async fn pass(grant: &Arc<ExecutorGrant>, allocator: &Arc<Allocator>) -> Result<Action, Error> {
    let namespace = grant.namespace().unwrap_or_default();
    if grant.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let key: AppKey = (namespace, grant.spec.app_id.clone());
    let state = allocator.state(grant);
    let mut state = state.lock().await;
    let pods = allocator.index.driver(&key);
    let mut old = match admit(grant, allocator, &key, &mut state, &pods).await? {
        Answer::Accepted(ledger) => *ledger,
        Answer::Later(action) => return Ok(action),
    };
    let grant = &believed(grant, allocator, &key, &mut state, &pods).await;

    let now = Timestamp::now();
    let pods = allocator.index.of(&key);
    let driver = driver(grant, &pods, &mut old);
    let unset = ExecutorGrantStatus::default();
    let demand = grant.status.as_ref().unwrap_or(&unset);
    let Some(known) = allocator.sets.of(grant.spec.strategy, &key, old.driver_uid.as_deref()) else {
        return Ok(Action::requeue(NOT_LISTED));
    };
    let seen: Vec<ExecutorSet> = known.iter().map(|each| each.set.clone()).collect();
    let executors: Vec<_> = pods.executors.values().chain(pods.departed.values()).cloned().collect();
    let executors = identify(&grant.spec, demand, &old, &seen, executors);
    state.memory.in_flight = pods.in_flight.iter().map(|(id, flight)| (*id, flight.profile.clone())).collect();
    state.memory.queued = pods.in_flight.iter().filter(|(_, f)| f.stage == Stage::Queued).map(|(id, _)| *id).collect();
    state.memory.observe(demand, &executors, now);
    state.memory.sizes = pods.in_flight.iter().map(|(id, flight)| (*id, flight.size.clone())).collect();
    let mut known_now = old.clone();
    if grant.spec.maximum.lifetime.is_some() {
        known_now.unused += state.unused;
    }
    let sight = Sight {
        grant: &grant.spec,
        demand,
        ledger: &known_now,
        driver,
        pods: &executors,
        sets: &seen,
        memory: &state.memory,
        limit: allocator.shared.options.per_application,
        now,
    };
    let mut decision = allocation::step(&sight);
    let mut again = hold(&mut decision, &mut state, now);
    let mut unlisted = None;
    if !decision.missing.is_empty() && !allocator.sets.listed() {
        // What is there cannot be counted yet.
        decision.missing.clear();
        unlisted = Some(NOT_LISTED);
    }
    // Counts in its namespace until this pass has noted its creations.
    let given = keep_within_namespace(&mut decision, allocator, grant, &key, &old, now);
    let short = given.as_ref().is_some_and(|(_, short)| *short).then_some(namespaces::AGAIN);

    let asked: u32 = decision.missing.iter().map(|(_, n)| n).sum();
    // Room is counted over all pods of all applications: only for those that ask for some.
    let room = if asked == 0 { 0 } else { allocator.shared.room(&key) };
    let (slots, retry) = allocator.shared.budget.take(&key, asked, room, Instant::now());
    let made = match grant.spec.strategy {
        Strategy::Pods => allocation::reserve(&mut decision.ledger, &decision.missing, slots),
        Strategy::ReplicaSet | Strategy::StatefulSet => {
            allocation::sets::grow(&mut decision.sizes, &decision.missing, slots);
            Vec::new()
        }
    };
    let later = if decision.over { None } else { state.ledger.postponed(&old, &decision.ledger, Instant::now()) };
    state.ledger.reserve(decision.ledger.reserved_through);
    if later.is_none() {
        state.ledger.write(&allocator.client, grant, &decision.ledger).await?;
        state.unused = 0;
        let fresh = decision.ledger.losses.iter().filter(|loss| loss.seq > old.loss_seq);
        fresh.for_each(|loss| allocator.shared.metrics.executor_lost(&key.0, loss.cause));
    }
    allocator.index.forget(&key, &pods.departed);
    let cancelled = allocator.index.cancel(&key, &decision.cancel);
    state.unused += u64::try_from(cancelled).unwrap_or_default();
    if cancelled > 0 || decision.ledger.failures.row > old.failures.row {
        // Some that it counts were never made, or one of them is why an executor failed.
        state.claims = None;
    }
    let retry = retry.into_iter().chain(later).chain(unlisted).chain(short).min();
    tell(allocator, grant, decision.ledger.driver_uid.as_deref(), &decision.notes);
    let claims = claims(grant, allocator, &mut state, &pods, &decision).await?;
    if grant.spec.strategy != Strategy::Pods {
        sets::mark_members(&allocator.client, &key.0, &mut state.sets, &decision.marks).await?;
        let nodes = nodes::avoided(&decision.ledger.avoided_nodes, now);
        // What was refused is not asked again before its time.
        let held = state.hold.as_ref().map(|hold| hold.until).filter(|until| *until > now && !decision.over);
        if let Some(until) = held {
            again = again.into_iter().chain([until]).min();
        } else {
            let (client, driver, written) = (&allocator.client, pods.driver.as_ref(), &mut state.sets);
            let outcome = allocator.sets.carry_out(client, grant, driver, &decision.sizes, &nodes, &known, written);
            if let Err(refusal) = outcome.await {
                refused(grant, allocator, &mut state, refusal).await;
                again = again.into_iter().chain(state.hold.as_ref().map(|hold| hold.until)).min();
            }
        }
    }
    remove(grant, allocator, &mut state, &pods, &mut decision).await?;
    if let Some(driver) = pods.driver.as_ref().filter(|_| !made.is_empty()) {
        create(grant, allocator, &key, driver, &mut state, made, claims, now);
    }
    if decision.over && !state.over {
        writes::remove_claims(&allocator.client, &key.0, &grant.spec).await?;
        state.claims = None;
    }
    // A driver may stop and, with a second SparkContext, begin again.
    state.over = decision.over;
    Ok(wake(decision.wake, again, retry, now))
}

/// Cuts what is missing down to what the namespace has room for: what was given, and whether that is less than asked for.
fn keep_within_namespace<'a>(
    decision: &mut Decision,
    allocator: &'a Allocator,
    grant: &ExecutorGrant,
    key: &AppKey,
    old: &ExecutorLedgerStatus,
    now: Timestamp,
) -> Option<(namespaces::Given<'a>, bool)> {
    if decision.missing.is_empty() {
        return None;
    }
    let profiles = grant.status.as_ref().map(|status| &status.profiles);
    let size = |profile: &str| Some(Size::of(&grant.spec, profile, profiles?.get(profile)?));
    let asked: Vec<(Size, u32)> =
        decision.missing.iter().map(|(profile, count)| (size(profile).unwrap_or_default(), *count)).collect();
    let wanted: u32 = asked.iter().map(|(_, count)| count).sum();
    let (shared, limit) = (&allocator.shared, &allocator.shared.options.per_namespace);
    let given = shared.namespaces.take(key, asked, limit, || allocator.used(&key.0), Instant::now());
    allocation::keep_within_namespace(decision, &given.counts, old, (&key.0, limit), now);
    let short = given.counts.iter().sum::<u32>() < wanted;
    Some((given, short))
}

/// The grant with what can be believed of what it asks for: while nothing keeps its driver apart from another one, that one
/// could have written it.
async fn believed(
    grant: &Arc<ExecutorGrant>,
    allocator: &Allocator,
    key: &AppKey,
    state: &mut State,
    pods: &AppPods,
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
            "the environment of executors of profile {} was changed while another driver of service account {} could have \
             done so, and is not followed; `{}` keeps such drivers apart",
            doubted.join(", "),
            pods.account,
            policy::COMMAND
        );
        let note = Note { warning: true, reason: "DemandDoubted", text };
        tell(allocator, grant, pods.driver.as_ref().map(|driver| driver.uid.as_str()), &[note]);
        state.doubted = doubted;
    }
    let status = ExecutorGrantStatus { profiles, ..status.clone() };
    Arc::new(ExecutorGrant { status: Some(status), ..(**grant).clone() })
}

/// Deletes what was decided, unless that was asked for a moment ago. All executors of an application go with one request.
async fn remove(
    grant: &ExecutorGrant,
    allocator: &Allocator,
    state: &mut State,
    pods: &AppPods,
    decision: &mut Decision,
) -> Result<(), Error> {
    let now = Instant::now();
    let present: HashSet<&String> = pods.executors.values().map(|pod| &pod.uid).collect();
    state.sent.retain(|(uid, _), at| present.contains(uid) && now.duration_since(*at) < DELETE_AGAIN);
    decision.remove.retain(|pod| !state.sent.contains_key(&(pod.uid.clone(), pod.at_once)));
    writes::remove(&allocator.client, grant, decision).await?;
    state.sent.extend(decision.remove.iter().map(|pod| ((pod.uid.clone(), pod.at_once), now)));
    Ok(())
}

/// The time of the next look.
fn wake(wake: Option<Timestamp>, hold: Option<Timestamp>, retry: Option<Duration>, now: Timestamp) -> Action {
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
    let waits = [wake.map(until), hold.map(until), retry];
    // A little late rather than too early, or the pass finds nothing to do yet.
    match waits.into_iter().flatten().min() {
        Some(wait) => Action::requeue(wait + Duration::from_millis(5)),
        None => Action::await_change(),
    }
}

/// Drops what is missing while creations are on hold. Gives the end of the hold.
fn hold(decision: &mut Decision, state: &mut State, now: Timestamp) -> Option<Timestamp> {
    let hold = state.hold.as_ref().filter(|hold| hold.until > now)?;
    if decision.missing.is_empty() {
        return None;
    }
    decision.missing.clear();
    allocation::held(&mut decision.ledger, hold.reason, &hold.why, now);
    Some(hold.until)
}

/// The driver of a grant, if it is there. `uid` is that of the one it was known to have.
pub(super) fn own_driver<'a>(grant: &ExecutorGrant, pods: &'a AppPods, uid: Option<&str>) -> Option<&'a DriverPod> {
    let granted = &grant.spec.driver;
    pods.driver.as_ref().filter(|driver| {
        driver.name == granted.pod_name
            && granted.pod_uid.as_ref().is_none_or(|uid| *uid == driver.uid)
            && granted.submission_id.as_ref().is_none_or(|id| Some(id) == driver.submission_id.as_ref())
            && uid.is_none_or(|uid| *uid == driver.uid)
    })
}

/// Whether the grant's driver runs. Notes its uid when it is first seen.
fn driver(grant: &ExecutorGrant, pods: &AppPods, ledger: &mut ExecutorLedgerStatus) -> Driver {
    match own_driver(grant, pods, ledger.driver_uid.as_deref()) {
        Some(driver) => {
            ledger.driver_uid = Some(driver.uid.clone());
            if index::is_running(driver) {
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

/// Tells people what they should hear of, as events of the driver pod.
pub(super) fn tell(allocator: &Allocator, grant: &ExecutorGrant, driver: Option<&str>, notes: &[Note]) {
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
        allocator.shared.news.tell(Reporter::Executors, &about, note.warning, note.reason, &note.text);
    }
}

/// Claims that new executors may take over: those that exist and that nobody has.
async fn claims(
    grant: &ExecutorGrant,
    allocator: &Allocator,
    state: &mut State,
    pods: &AppPods,
    decision: &Decision,
) -> Result<BTreeSet<String>, Error> {
    if !grant.spec.reuse_claims || decision.missing.is_empty() {
        return Ok(BTreeSet::new());
    }
    if state.claims.is_none() {
        state.claims = Some(writes::list_claims(&allocator.client, grant).await?);
    }
    // An ended executor lets go of its claims at once: its pod, if it is not kept, is deleted before the next one is made.
    let used: BTreeSet<&String> = pods
        .executors
        .values()
        .filter(|pod| !matches!(pod.state, allocation::pod::State::Ended(_)))
        .flat_map(|pod| &pod.claims)
        .chain(pods.claims_in_flight.values().flatten())
        .collect();
    Ok(state.claims.iter().flatten().filter(|claim| !used.contains(claim)).cloned().collect())
}

/// Starts creations; each reports back by itself.
#[expect(clippy::too_many_arguments, reason = "all of one pass")]
fn create(
    grant: &Arc<ExecutorGrant>,
    allocator: &Arc<Allocator>,
    key: &AppKey,
    driver: &DriverPod,
    state: &mut State,
    made: Vec<(u64, String)>,
    mut free: BTreeSet<String>,
    now: Timestamp,
) {
    let unset = BTreeMap::new();
    let profiles = grant.status.as_ref().map_or(&unset, |s| &s.profiles);
    let size = |profile: &str| profiles.get(profile).map(|demand| Size::of(&grant.spec, profile, demand));
    allocator.index.launch(key, &made, |profile| size(profile).unwrap_or_default());
    let decided = Instant::now();
    let avoided = state.ledger.status().map(|l| nodes::avoided(&l.avoided_nodes, now)).unwrap_or_default();
    for (id, profile) in made {
        let Some(demand) = profiles.get(&profile) else { continue };
        state.memory.make(id);
        let creation = Creation::plan(grant, driver, id, &profile, demand, &avoided, &mut free);
        if !creation.claim_names.is_empty() {
            allocator.index.claim(key, id, creation.claim_names.clone());
            state.claims.get_or_insert_default().extend(creation.claim_names.iter().cloned());
        }
        let (allocator, key, grant) = (allocator.clone(), key.clone(), grant.clone());
        tokio::spawn(
            async move {
                let _turn = allocator.shared.creating.take(key.clone()).await;
                if !allocator.shared.scope.covers(&key.0) {
                    return allocator.index.abandon(&key, id);
                }
                if !allocator.index.ask(&key, id) {
                    return;
                }
                let Err(refusal) = creation.make(&allocator.client, &key.0).await else {
                    allocator.index.answered(&key, id);
                    allocator.shared.metrics.executor_created(&key.0, decided.elapsed().as_secs_f64());
                    return;
                };
                allocator.shared.metrics.executor_refused(&key.0);
                allocator.index.abandon(&key, id);
                let state = allocator.state(&grant);
                let mut state = state.lock().await;
                // Whether its claims were made is not known.
                state.claims = None;
                state.unused += 1;
                refused(&grant, &allocator, &mut state, refusal).await;
                allocator.poke(App::new(&grant.name_any()).within(&key.0));
            }
            .in_current_span(),
        );
    }
}

/// Follows up on executors that the cluster would not take.
async fn refused(grant: &Arc<ExecutorGrant>, allocator: &Arc<Allocator>, state: &mut State, refusal: Refusal) {
    let now = Timestamp::now();
    let fresh = state.hold.as_ref().is_none_or(|hold| hold.until <= now);
    // What was long ago is another matter.
    let recent = state.hold.as_ref().filter(|hold| now.duration_since(hold.until) < FORGIVEN);
    let row = recent.map_or(0, |hold| hold.row);
    let (reason, why, wait) = match refusal {
        Refusal::Later { why, retry_after } => {
            allocator.shared.budget.slow_down(retry_after, Instant::now());
            ("ApiServerBusy", why, retry_after.unwrap_or(Duration::from_millis(500)))
        }
        Refusal::Quota(why) => ("QuotaExceeded", why, Duration::from_secs(1 << row.min(4))),
        Refusal::Final(why) => {
            if fresh && let Some(status) = state.ledger.status() {
                let mut status = status.clone();
                let live = allocator.index.of(&(grant.namespace().unwrap_or_default(), grant.spec.app_id.clone()));
                let any_live = live.executors.values().any(allocation::pod::ExecutorPod::is_live);
                allocation::refused(&mut status, &why, any_live, now);
                if let Err(error) = state.ledger.write(&allocator.client, grant, &status).await {
                    tracing::warn!(%error, "cannot write down why an executor was refused");
                }
            }
            ("Refused", why, Duration::from_secs(1 << row.min(5)))
        }
    };
    if fresh {
        let until = now + SignedDuration::try_from(wait).unwrap_or_default();
        let note = Note { warning: true, reason, text: why.clone() };
        state.hold = Some(Hold { until, reason, why, row: row + 1 });
        let driver = state.ledger.status().and_then(|ledger| ledger.driver_uid.as_deref());
        tell(allocator, grant, driver, &[note]);
    }
}

/// Labels by which everything of an application is found.
pub(super) fn selector(app_id: &str) -> String {
    format!("{}={app_id}", names::LABEL_APP_SELECTOR)
}
