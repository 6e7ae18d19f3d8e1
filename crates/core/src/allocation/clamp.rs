//! Demand, cut to the grant and to the operator's limit per application.

use std::collections::{BTreeMap, HashSet};

use firesteel_api::executors::ExecutorLedgerStatus;

use super::effects_builder::EffectsBuilder;
use super::size::{Allowance, Size};
use super::{CONDITION_WITHIN_MAXIMUM, Note};
use crate::conditions::{self, Holds};
use crate::event_reason::executors as reason;

/// The most bytes of environment variables per executor: every pod holds them.
const MOST_WORDS: usize = 128 << 10;

impl EffectsBuilder<'_> {
    /// The size of a profile's executors; zero if none are wanted.
    pub(super) fn size(&self, profile: &str) -> Size {
        let demand = self.profiles().get(profile);
        demand.map(|demand| Size::of(self.sight.grant, profile, demand)).unwrap_or_default()
    }

    /// What executors that exist or are being created leave of the maxima, whatever their profile. A driver that wants
    /// others has to release those it has first.
    pub(super) fn unused(&self) -> Allowance {
        let mut left = Allowance::of(&self.sight.grant.maximum).within(&self.sight.limit);
        for pod in self.sight.pods.iter().filter(|pod| self.is_live(pod)) {
            left.take(&pod.size, 1);
        }
        let cancelled: HashSet<&u64> = self.effects.cancel.iter().collect();
        for (_, flight) in self.sight.in_flight.iter().filter(|(id, _)| !cancelled.contains(id)) {
            left.take(&flight.size, 1);
        }
        for set in self.sight.sets.iter().filter(|set| !set.leaving) {
            let made = self.sight.pods.iter().filter(|pod| set.has(pod) && self.is_live(pod)).count();
            let made = u32::try_from(made).unwrap_or(u32::MAX);
            let size = set.size.clone().unwrap_or_default();
            left.take(&size, set.replicas.saturating_sub(made));
        }
        left
    }

    /// Executors wanted per profile, within the maxima.
    pub(super) fn clamp(&mut self) -> BTreeMap<String, u32> {
        let mut granted = Allowance::of(&self.sight.grant.maximum);
        let mut allowed = granted.clone().within(&self.sight.limit);
        let mut wanted = BTreeMap::new();
        let mut cut = Vec::new();
        let mut by_operator = false;
        for (profile, demand) in by_number(self.profiles()) {
            let size = self.size(profile);
            let words: usize = demand.env.iter().map(|(name, value)| name.len() + value.len()).sum();
            let unfit = if size.memory_mib == 0 {
                // Its executors would have no limit at all.
                Some("does not set executor memory".to_owned())
            } else if words > MOST_WORDS {
                Some(format!("has {} KiB of environment variables, more than {} KiB", words >> 10, MOST_WORDS >> 10))
            } else {
                None
            };
            if let Some(why) = unfit {
                cut.push(format!("profile {profile} {why}"));
                wanted.insert(profile.clone(), 0);
                continue;
            }
            let given = demand.wanted.min(allowed.fits(&size));
            if given < demand.wanted {
                cut.push(format!("{} executors of profile {profile} wanted, {given} granted", demand.wanted));
                by_operator |= granted.fits(&size) > given;
            }
            granted.take(&size, given);
            allowed.take(&size, given);
            wanted.insert(profile.clone(), given);
        }
        let before = is_false(self.sight.ledger, CONDITION_WITHIN_MAXIMUM);
        let (reason, remedy) = if by_operator {
            let remedy = format!(
                "the operator allows an application {}; see its flags --max-executors-per-application, \
                 --max-executor-cores-per-application and --max-executor-memory-per-application",
                self.sight.limit
            );
            ("OperatorLimit", remedy)
        } else {
            let remedy = "raise spark.dynamicAllocation.maxExecutors, spark.firesteel.executors.maxCores, \
                          spark.firesteel.executors.maxMemory or spark.firesteel.executors.maxResources at submission";
            ("Clamped", remedy.to_owned())
        };
        let message = format!("{}; {remedy}", cut.join(", "));
        let ledger = &mut self.effects.ledger;
        if cut.is_empty() {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "True", reason: "Granted", message: "" };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
        } else {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "False", reason, message: &message };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
            if !before {
                self.effects.notes.push(Note { warning: true, reason: reason::DEMAND_CLAMPED, text: message });
            }
        }
        wanted
    }
}

/// Profiles in numerical order. The driver is not trusted: an id that Spark would not write (`00`, `x`) would be created
/// under another id than it is counted under, so it is skipped.
fn by_number<T>(profiles: &BTreeMap<String, T>) -> Vec<(&String, &T)> {
    let number = |id: &str| id.parse::<u32>().ok().filter(|n| n.to_string() == id);
    let mut list: Vec<_> = profiles.iter().filter_map(|(id, each)| Some((number(id)?, id, each))).collect();
    list.sort_by_key(|(number, ..)| *number);
    list.into_iter().map(|(_, id, each)| (id, each)).collect()
}

fn is_false(ledger: &ExecutorLedgerStatus, kind: &str) -> bool {
    ledger.conditions.iter().any(|c| c.type_ == kind && c.status == "False")
}
