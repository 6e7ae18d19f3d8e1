//! Single pods: the operator creates each one and assigns its id.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use firesteel_api::executors::{Cause, Loss};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::effects_builder::EffectsBuilder;
use super::ending::{self, Ending, EndingKind};
use super::pod::{End, ExecutorPod, State};
use crate::event_reason::executors as reason;

impl EffectsBuilder<'_> {
    /// Checks each pod: has it ended, or will it never work?
    pub(super) fn judge(&mut self) {
        let pods = self.sight.pods;
        for pod in pods.iter().filter(|p| !p.inactive) {
            let Some(id) = pod.id else { continue };
            if self.reported.contains(&id) {
                // Reported in an earlier pass that did not get to removing it.
                self.ended.insert(pod.uid.clone());
                self.put_away(pod, self.kept_before(id));
                continue;
            }
            let ending = match &pod.state {
                State::Ended(end) => Some(self.ending_of(pod, end)),
                State::Pending { .. } | State::Running { .. } => self.ending(pod),
            };
            if let Some(ending) = ending.as_ref().filter(|_| self.is_held(pod)) {
                self.judge_held(pod, ending);
                self.withdraw(pod);
                continue;
            }
            if let Some(ending) = ending {
                self.ended.insert(pod.uid.clone());
                self.report(Some(id), pod.node.clone(), &ending);
                let keep = self.sight.grant.keep_failed
                    && ending.cause == Cause::Application
                    && matches!(ending.kind, EndingKind::Failed);
                self.put_away(pod, keep);
            }
        }
    }

    /// The end of a pod. An executor that exited with 0 without ever registering has failed.
    fn ending_of(&self, pod: &ExecutorPod, end: &End) -> Ending {
        let ending = ending::of_end(pod, end);
        let memory = self.sight.memory;
        let never = |id| memory.made.contains(&id) && !memory.registered.contains(&id);
        if pod.id.is_some_and(never) && !self.is_registered(pod) { ending.unless_done() } else { ending }
    }

    fn kept_before(&self, id: u64) -> bool {
        let application = |l: &Loss| l.id.parse() == Ok(id) && l.cause == Cause::Application && l.code != 0;
        self.sight.grant.keep_failed && self.sight.ledger.losses.iter().any(application)
    }

    fn put_away(&mut self, pod: &ExecutorPod, keep: bool) {
        if keep {
            self.effects.retire.push(pod.name.clone());
        } else if pod.leaving_by.is_none() {
            self.remove(pod, matches!(pod.state, State::Ended(_) | State::Pending { .. }));
        } else if self.sight.now > pod.leaving_by.unwrap_or(self.sight.now) {
            // Its node does not respond; nothing will confirm its end.
            self.remove(pod, true);
        } else if let Some(by) = pod.leaving_by {
            self.wake(by);
        }
    }

    /// Reports registered executors whose pods no longer exist.
    pub(super) fn judge_missing(&mut self) {
        let present: HashSet<u64> = self.sight.pods.iter().filter_map(|p| p.id).collect();
        let through = self.sight.ledger.reserved_through;
        let mut missing: Vec<u64> = self.registered.iter().copied().collect();
        missing.retain(|id| {
            *id <= through
                && !present.contains(id)
                && !self.reported.contains(id)
                && !self.sight.in_flight.contains_key(id)
        });
        missing.sort_unstable();
        for id in missing {
            self.report(Some(id), None, &ending::of_missing());
        }
    }

    /// Requests missing executors, and withdraws surplus ones that do not run yet.
    pub(super) fn balance(&mut self, wanted: &BTreeMap<String, u32>) {
        self.take_back(wanted);
        let ready = self.is_ready();
        let mut left = self.left();
        let mut unused = self.unused();
        for (profile, count) in wanted {
            let have = u32::try_from(self.count_live(profile) + self.flying(profile)).unwrap_or(u32::MAX);
            let missing = count.saturating_sub(have);
            if missing == 0 || !ready {
                continue;
            }
            let size = self.size(profile);
            let given = missing.min(left).min(unused.fits(&size));
            left -= given;
            unused.take(&size, given);
            if given > 0 {
                self.ask(profile, given, have);
            } else if left == 0 && self.held_until().is_none() {
                // Otherwise more follow as soon as others are gone.
                self.used_up();
            }
        }
    }

    /// Withdraws the surplus: creations not sent yet, then pods that do not run yet.
    fn take_back(&mut self, wanted: &BTreeMap<String, u32>) {
        let in_flight = self.sight.in_flight;
        let mut live: BTreeMap<&str, Vec<&ExecutorPod>> =
            in_flight.values().map(|flight| (flight.profile.as_str(), Vec::new())).collect();
        for pod in self.sight.pods.iter().filter(|p| self.is_live(p)) {
            live.entry(&pod.profile).or_default().push(pod);
        }
        let mut excess = Vec::new();
        for (profile, mut pods) in live {
            let target = wanted.get(profile).copied().unwrap_or_default() as usize;
            let too_many = (pods.len() + self.flying(profile)).saturating_sub(target);
            let cancelled: HashSet<&u64> = self.effects.cancel.iter().collect();
            let ours = |id: &u64| in_flight.get(id).is_some_and(|f| f.profile == profile) && !cancelled.contains(id);
            let queued: Vec<u64> = self.sight.queued().filter(ours).take(too_many).collect();
            let too_many = too_many - queued.len();
            self.effects.cancel.extend(queued);
            // A registered executor runs, even if its pod's status does not say so yet.
            pods.retain(|p| (matches!(p.state, State::Pending { .. }) || self.is_held(p)) && !self.is_registered(p));
            // Those furthest from running go first.
            let progress = |p: &ExecutorPod| match p.state {
                State::Pending { scheduled: false, .. } => 0,
                State::Pending { scheduled: true, .. } => 1,
                State::Running { .. } | State::Ended(_) => 2,
            };
            pods.sort_by_key(|p| (progress(p), Reverse(p.id)));
            excess.extend(pods.into_iter().take(too_many));
        }
        for pod in excess {
            if !self.is_held(pod) {
                self.note_withdrawal(&pod.profile, wanted.get(&pod.profile).copied().unwrap_or_default());
            }
            self.withdraw(pod);
        }
    }

    /// How many more executors the application may create in its lifetime.
    fn left(&self) -> u32 {
        let ledger = &self.effects.ledger;
        let used = u32::try_from(ledger.reserved_through.saturating_sub(ledger.unused)).unwrap_or(u32::MAX);
        self.sight.grant.maximum.lifetime.map_or(u32::MAX, |most| most.saturating_sub(used))
    }

    /// The lifetime limit is reached: the application continues with the executors it has, and ends if it has none.
    fn used_up(&mut self) {
        let any = self.sight.pods.iter().any(|p| self.is_live(p));
        if any || !self.sight.in_flight.is_empty() {
            return;
        }
        let most = self.sight.grant.maximum.lifetime.unwrap_or_default();
        let message = format!(
            "no executor is left, and all {most} that spark.kubernetes.allocation.maximum allows an application were \
             created"
        );
        self.sentence(reason::USED_UP, message);
    }

    /// Deletes a pod that does not run yet, or waits to be admitted.
    pub(super) fn withdraw(&mut self, pod: &ExecutorPod) {
        self.ended.insert(pod.uid.clone());
        if let Some(id) = pod.id {
            let ledger = &mut self.effects.ledger;
            ledger.loss_seq += 1;
            ledger.losses.push(Loss {
                seq: ledger.loss_seq,
                id: id.to_string(),
                code: -1,
                cause: Cause::Withdrawn,
                text: "it was no longer wanted".to_owned(),
                node: None,
                at: Time(self.sight.now),
            });
        }
        let held = self.is_held(pod);
        if held {
            self.count_withdrawn(1);
        }
        // The others are admitted once a held one has really ended.
        if pod.leaving_by.is_none() {
            self.remove(pod, !held);
        }
    }

    fn flying(&self, profile: &str) -> usize {
        let cancelled: HashSet<&u64> = self.effects.cancel.iter().collect();
        let flights = self.sight.in_flight.iter();
        flights.filter(|(id, flight)| flight.profile == profile && !cancelled.contains(id)).count()
    }

    fn count_live(&self, profile: &str) -> usize {
        self.sight.pods.iter().filter(|p| p.profile == profile && self.is_live(p)).count()
    }
}
