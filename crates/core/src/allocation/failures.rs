//! Reactions to failed executors: delays, nodes to avoid, and ending a hopeless application.

use firesteel_api::executors::Cause;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::effects_builder::{EffectsBuilder, START_ERROR};
use super::pod::{ExecutorPod, State};
use super::{Note, nodes};
use crate::event_reason::executors as reason;

/// The longest wait between consecutive failures.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// After this many consecutive failures with no executor left, none will start.
const HOPELESS_ROW: u32 = 6;
/// How long a pod waits for another node when it avoids every node of the cluster. One may just be joining.
const NOWHERE_ELSE: SignedDuration = SignedDuration::from_secs(2);

impl EffectsBuilder<'_> {
    /// Counts failures, delays the next start, and ends a hopeless application.
    pub(super) fn follow_failures(&mut self) {
        let (now, budget) = (self.sight.now, self.sight.grant.failures);
        let by_application = self.fresh_failures.iter().filter(|(_, e)| e.cause == Cause::Application).count();
        let failures = &mut self.effects.ledger.failures;
        match budget.window_seconds {
            Some(window) => {
                let back = SignedDuration::from_secs(i64::try_from(window).unwrap_or(i64::MAX));
                // A window longer than the calendar: all count.
                let since = now.checked_sub(back).unwrap_or(Timestamp::MIN);
                failures.at.retain(|at| at.0 > since);
                failures.at.extend(std::iter::repeat_n(Time(now), by_application));
                failures.count = u32::try_from(failures.at.len()).unwrap_or(u32::MAX);
            }
            None => failures.count = failures.count.saturating_add(u32::try_from(by_application).unwrap_or(u32::MAX)),
        }
        let last = failures.last.as_ref().map(|t| t.0);
        let works = |pod: &ExecutorPod| match pod.state {
            State::Running { since } => {
                pod.id.is_some_and(|id| self.registered.contains(&id))
                    && !self.ended.contains(&pod.uid)
                    && last.is_none_or(|last| since > last)
            }
            State::Pending { .. } | State::Ended(_) => false,
        };
        if failures.row > 0 && self.sight.pods.iter().any(works) {
            failures.row = 0;
            failures.not_before = None;
        }
        if !self.fresh_failures.is_empty() {
            failures.row = failures.row.saturating_add(1);
            failures.last = Some(Time(now));
            failures.not_before = delay(failures.row).map(|wait| Time(now + wait));
        }
        let (count, row) = (failures.count, failures.row);
        if self.effects.ledger.verdict.is_some() {
            return;
        }
        let latest = self.fresh_failures.last().map(|(_, e)| e.text.clone());
        let over_budget = budget.maximum.is_some_and(|most| count > most);
        // A restarted member of a set has yet to show that it works.
        let again = |p: &ExecutorPod| p.member.as_ref().is_some_and(|m| m.ends > 0) && !self.is_registered(p);
        let runs = |p: &ExecutorPod| self.is_live(p) && matches!(p.state, State::Running { .. }) && !again(p);
        let none_left = !self.sight.pods.iter().any(runs);
        let verdict = if let (true, Some(latest)) = (over_budget, &latest) {
            let most = budget.maximum.unwrap_or_default();
            Some((
                reason::KEEP_FAILING,
                format!(
                    "{count} executors failed because of the application, more than the {most} that \
                     spark.executor.maxNumFailures allows; the last one: {latest}"
                ),
            ))
        } else if let (true, true, Some(latest)) = (row >= HOPELESS_ROW, none_left, latest) {
            Some((
                reason::NONE_STARTS,
                format!("no executor is left, and {row} attempts in a row to start one failed; the last one: {latest}"),
            ))
        } else {
            None
        };
        if let Some((reason, message)) = verdict {
            self.sentence(reason, message);
        }
    }

    /// Records that the cluster refused an executor for a reason that waiting alone does not fix.
    pub(super) fn follow_refusal(&mut self) {
        let (now, Some(why)) = (self.sight.now, &self.sight.memory.refused) else { return };
        let failures = &mut self.effects.ledger.failures;
        failures.row = failures.row.saturating_add(1);
        failures.last = Some(Time(now));
        failures.not_before = delay(failures.row.saturating_add(1)).map(|wait| Time(now + wait));
        let hopeless = failures.row >= HOPELESS_ROW && self.effects.ledger.verdict.is_none();
        if hopeless && !self.sight.pods.iter().any(|pod| self.is_live(pod)) {
            self.sentence(reason::ALL_REFUSED, format!("the cluster refuses executors: {why}"));
        }
    }

    /// Records where executors fail. If no node is left, none is avoided.
    pub(super) fn follow_nodes(&mut self) {
        let now = self.sight.now;
        let list = &mut self.effects.ledger.avoided_nodes;
        let fresh = self.fresh_failures.iter().filter_map(|(node, ending)| Some((node.as_deref()?, ending)));
        let avoided = nodes::record(list, fresh, now);
        for node in avoided {
            let text = format!("new executors avoid node {node} for a while: executors fail there");
            self.effects.notes.push(Note { warning: true, reason: reason::NODE_AVOIDED, text });
        }
        if nodes::avoided(&self.effects.ledger.avoided_nodes, now).is_empty() {
            return;
        }
        // Until when an unschedulable pod may wait for a better node.
        let homeless_until = |pod: &ExecutorPod| match &pod.state {
            State::Pending { scheduled: false, waiting: Some(words) } if words.reason == "Unschedulable" => {
                let alone = words.keeps_away_from_all();
                Some(pod.created + if alone { NOWHERE_ELSE } else { START_ERROR })
            }
            State::Pending { .. } | State::Running { .. } | State::Ended(_) => None,
        };
        let stuck = |pod: &ExecutorPod| homeless_until(pod).is_some_and(|until| until <= now);
        // No other event may trigger the next pass.
        let pods = self.sight.pods;
        let soon = pods.iter().filter_map(homeless_until).filter(|at| *at > now).min();
        if let Some(at) = soon {
            self.wake(at);
        }
        if pods.iter().any(stuck) {
            // Better a bad node than none.
            self.effects.ledger.avoided_nodes.clear();
            let stuck: Vec<&ExecutorPod> =
                self.sight.pods.iter().filter(|p| stuck(p) && !self.ended.contains(&p.uid)).collect();
            for pod in stuck {
                self.withdraw(pod);
            }
        }
    }
}

/// How long to wait after `row` consecutive failures: not at all after the first.
fn delay(row: u32) -> Option<SignedDuration> {
    let doublings = row.checked_sub(2)?;
    Some(SignedDuration::from_secs(1 << doublings.min(10)).min(LONGEST_DELAY))
}
