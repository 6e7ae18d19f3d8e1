//! Executors created before the driver asks for them.
//!
//! The grant forecasts the driver's first request. Those executors are created together with the driver and held: their JVMs
//! start, load Spark's classes and wait until the ledger admits them. Spark does not know them before that.
//!
//! - Once the driver has reported, held executors that are not what it wants are withdrawn. When they are gone, the others
//!   are admitted, all at once and for good; from then on they are executors like any other.
//! - Until then they must not do harm. They are withdrawn, and none is created again before the driver asks, if one of them
//!   ends by itself, if the driver finds no node while they occupy some, or if the driver takes too long. None of that counts
//!   as a failure of the application.

use std::collections::BTreeMap;

use firesteel_api::executors::{EarlyExecutors, EarlyStatus, ProfileDemand, Strategy};
use firesteel_spark::executor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::creation::{profile, template};
use super::effects_builder::{EffectsBuilder, OVERDUE};
use super::ending::{self, Ending};
use super::pod::{ExecutorPod, Member, State};
use super::sets::ExecutorSet;
use super::{Driver, Note};
use crate::event_reason::executors as reason;

/// Only executors of the default profile are created early.
pub const DEFAULT_PROFILE: &str = "0";
/// How long held executors wait for a driver that does not ask for any.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// How long they may occupy nodes while the driver finds none.
const DRIVER_FIRST: SignedDuration = SignedDuration::from_secs(15);

/// The driver's pod, as far as executors created before it runs depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DriverPlace<'a> {
    /// It must not be scheduled yet: some of its objects may be missing.
    pub gated: bool,
    /// Since when the scheduler finds no node for it.
    pub unschedulable: Option<Timestamp>,
    pub address: Option<&'a str>,
}

impl<'a> EffectsBuilder<'a> {
    /// Whether the driver has yet to say what it wants, and the forecast counts instead.
    pub(super) fn is_forecast(&self) -> bool {
        let closed = self.effects.ledger.early.as_ref().is_some_and(|early| early.closed.is_some());
        self.sight.early.is_some() && self.sight.demand.profiles.is_empty() && !closed
    }

    /// Whether an executor waits to be admitted.
    pub(super) fn is_held(&self, pod: &ExecutorPod) -> bool {
        pod.early && self.admitted().is_none()
    }

    /// Since when executors created early may register.
    pub(super) fn admitted(&self) -> Option<Timestamp> {
        self.effects.ledger.early.as_ref()?.admitted.as_ref().map(|at| at.0)
    }

    /// What new executors of a profile are created from, and the agent that holds them if they are created early. A set that
    /// was created early keeps its template.
    pub(super) fn plan_for(
        &self,
        profile: &str,
        set: Option<&ExecutorSet>,
    ) -> Option<(&'a ProfileDemand, Option<&'a str>)> {
        let granted = self.sight.grant.early.as_ref().filter(|_| profile == DEFAULT_PROFILE);
        let keeps = set.is_some_and(|set| set.early) && self.misfit().is_none();
        match granted {
            Some(EarlyExecutors { profile, agent }) if self.is_forecast() || keeps => Some((profile, Some(agent))),
            Some(_) | None => self.profiles().get(profile).map(|demand| (demand, None)),
        }
    }

    /// Why executors created early are not those that the driver asks for, if so.
    pub(super) fn misfit(&self) -> Option<String> {
        let (grant, reported) = (self.sight.grant, &self.sight.demand.profiles);
        let early = grant.early.as_ref()?;
        let reported = reported.get(DEFAULT_PROFILE)?;
        let of = |demand: &ProfileDemand| profile(DEFAULT_PROFILE, demand);
        let address = self.sight.place.address;
        executor::misfit(&template(grant), &grant.container, &of(&early.profile), &of(reported), address)
    }

    /// A held executor has ended, or cannot start. Spark does not know it. Without early executors the application may work.
    pub(super) fn judge_held(&mut self, pod: &ExecutorPod, ending: &Ending) {
        if self.is_forecast() {
            let who = pod.id.map_or_else(|| format!("pod {}", pod.name), |id| format!("executor {id}"));
            self.close_early(format!("{who} ended before the driver asked for it: {}", ending.text));
        }
    }

    /// Whether a member of a set was created early and is being deleted before it ever registered.
    pub(super) fn was_withdrawn(&self, pod: &ExecutorPod, member: &Member) -> bool {
        let unknown = pod.id.is_none() && member.label.is_none() && member.former.is_empty();
        pod.early && pod.leaving_by.is_some() && unknown
    }

    /// Checks a held member of a set.
    pub(super) fn judge_held_member(&mut self, pod: &ExecutorPod, member: &Member) {
        let end = match &pod.state {
            State::Ended(end) => Some(end),
            State::Pending { .. } | State::Running { .. } => member.last.as_ref().filter(|_| member.ends > 0),
        };
        let ending = end.map(|end| ending::of_end(pod, end).unless_done()).or_else(|| self.ending(pod));
        if let Some(ending) = ending {
            self.judge_held(pod, &ending);
        }
        if matches!(pod.state, State::Ended(_)) {
            self.ended.insert(pod.uid.clone());
            if pod.leaving_by.is_none() {
                self.remove(pod, true);
            }
        }
    }

    /// Ends the time in which executors are created early, if they could do harm.
    pub(super) fn guard_early(&mut self) {
        if self.admitted().is_some() || !self.is_forecast() {
            return;
        }
        let pods = self.sight.pods;
        let held = || pods.iter().filter(|pod| pod.early && pod.is_live());
        if let Some(oldest) = held().map(|pod| pod.created).min() {
            self.close_at(oldest + PATIENCE, "the driver did not ask for executors within 10 minutes");
        }
        let placed = |pod: &ExecutorPod| !matches!(pod.state, State::Pending { scheduled: false, .. });
        let starting = self.sight.driver == Driver::Starting;
        if let Some(since) = self.sight.place.unschedulable.filter(|_| starting && held().any(placed)) {
            self.close_at(since + DRIVER_FIRST, "there is no node for the driver while executors wait for it");
        }
    }

    fn close_at(&mut self, at: Timestamp, why: &str) {
        if self.sight.now >= at {
            self.close_early(why.to_owned());
        } else {
            self.wake(at);
        }
    }

    fn close_early(&mut self, why: String) {
        let early = self.effects.ledger.early.get_or_insert_default();
        if early.closed.is_none() {
            early.closed = Some(why);
        }
    }

    /// Withdraws held single executors that are of no use: all, if they are not what the driver asks for or nobody waits for
    /// them any more. Surplus ones of the right kind go with the others, in `take_back`.
    pub(super) fn withdraw_misfits(&mut self) {
        let Some(EarlyStatus { admitted: None, closed, .. }) = self.effects.ledger.early.clone() else { return };
        let Some(why) = self.misfit().map(|what| format!("the program changed {what}")).or(closed) else { return };
        let pods = self.sight.pods;
        let held: Vec<&ExecutorPod> = pods.iter().filter(|pod| pod.early && self.is_live(pod)).collect();
        let flights = self.sight.in_flight;
        let early = |id: &u64| flights.get(id).is_some_and(|flight| flight.early);
        self.effects.cancel.extend(self.sight.queued().filter(early));
        if held.is_empty() {
            return;
        }
        let text = format!("{} executors created together with the driver are withdrawn: {why}", held.len());
        self.effects.notes.push(Note { warning: false, reason: reason::EARLY_WITHDRAWN, text });
        held.into_iter().for_each(|pod| self.withdraw(pod));
    }

    /// Counts executors that were withdrawn while they waited. They used up nothing of what the application may have.
    pub(super) fn count_withdrawn(&mut self, count: u32) {
        let ledger = &mut self.effects.ledger;
        ledger.early.get_or_insert_default().withdrawn += count;
        if self.sight.grant.maximum.lifetime.is_some() && self.sight.grant.strategy == Strategy::Pods {
            ledger.unused += u64::from(count);
        }
    }

    /// Admits held executors once all that are left are among those the driver wants.
    pub(super) fn admit_early(&mut self, wanted: &BTreeMap<String, u32>) {
        let wanted = wanted.get(DEFAULT_PROFILE).copied().unwrap_or_default();
        let waits = self.effects.ledger.early.as_ref().is_some_and(|early| early.admitted.is_none());
        if !waits || !self.sight.demand.profiles.contains_key(DEFAULT_PROFILE) || self.misfit().is_some() {
            return;
        }
        let (pods, now) = (self.sight.pods, self.sight.now);
        let there = |pod: &&ExecutorPod| {
            let gone = pod.leaving_by.is_some_and(|by| now >= by + OVERDUE);
            pod.early && !gone && !matches!(pod.state, State::Ended(_))
        };
        let leaving = pods.iter().filter(there).filter_map(|pod| pod.leaving_by);
        leaving.for_each(|by| self.wake(by + OVERDUE));
        let mut present = pods.iter().filter(there).count();
        let cancelled = |id: &u64| self.effects.cancel.contains(id);
        present += self.sight.in_flight.iter().filter(|(id, flight)| flight.early && !cancelled(id)).count();
        let of_profile = |set: &&ExecutorSet| set.profile == DEFAULT_PROFILE && set.early && !set.leaving;
        let planned = self.sight.sets.iter().find(of_profile).map_or(0, |set| set.replicas);
        if present <= wanted as usize && planned <= wanted && present + planned as usize > 0 {
            self.effects.ledger.early.get_or_insert_default().admitted = Some(Time(now));
        }
    }
}
