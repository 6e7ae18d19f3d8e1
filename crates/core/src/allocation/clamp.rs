//! What is wanted, within what was granted.

use std::collections::BTreeMap;

use firesteel_api::executors::ExecutorLedgerStatus;
use firesteel_spark::value::Quantity;

use super::{CONDITION_WITHIN_MAXIMUM, Draft, Note};
use crate::conditions::{self, Holds};

impl Draft<'_> {
    /// What is wanted, within the maxima.
    pub(super) fn clamp(&mut self) -> BTreeMap<String, u32> {
        let most = &self.sight.grant.maximum;
        let mut named = most.resources.clone();
        let mut executors = most.executors.unwrap_or(u32::MAX);
        let (mut cores, mut memory) = (most.cores.unwrap_or(u64::MAX), most.memory_mib.unwrap_or(u64::MAX));
        let mut wanted = BTreeMap::new();
        let mut cut = Vec::new();
        for (profile, demand) in by_number(&self.sight.demand.profiles) {
            let requested = demand.cpu.as_deref().map_or(0, whole);
            let each_cores = u64::from(demand.cores).max(requested).max(1);
            let each_memory = mebibytes(&demand.memory);
            if each_memory == 0 {
                // It would have no limit at all.
                cut.push(format!("profile {profile} does not say how much memory an executor has"));
                wanted.insert(profile.clone(), 0);
                continue;
            }
            let each_named: Vec<(&String, u64)> =
                demand.resources.iter().map(|(name, amount)| (name, whole(amount))).filter(|(_, n)| *n > 0).collect();
            let of_named = named.iter().flat_map(|left| {
                each_named.iter().map(|(name, each)| left.get(*name).copied().unwrap_or_default() / *each)
            });
            let fit = of_named.fold((cores / each_cores).min(memory / each_memory), u64::min);
            let given = demand.wanted.min(executors).min(u32::try_from(fit).unwrap_or(u32::MAX));
            if given < demand.wanted {
                cut.push(format!("{} executors of profile {profile} wanted, {given} granted", demand.wanted));
            }
            executors -= given;
            cores -= u64::from(given) * each_cores;
            memory -= u64::from(given) * each_memory;
            for (name, each) in each_named {
                if let Some(left) = named.as_mut().and_then(|left| left.get_mut(name)) {
                    *left -= u64::from(given) * each;
                }
            }
            wanted.insert(profile.clone(), given);
        }
        let before = is_false(self.sight.ledger, CONDITION_WITHIN_MAXIMUM);
        let message = format!(
            "{}; raise spark.dynamicAllocation.maxExecutors, spark.firesteel.executors.maxCores, \
             spark.firesteel.executors.maxMemory or spark.firesteel.executors.maxResources at submission",
            cut.join(", ")
        );
        let ledger = &mut self.decision.ledger;
        if cut.is_empty() {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "True", reason: "Granted", message: "" };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
        } else {
            let holds = Holds { kind: CONDITION_WITHIN_MAXIMUM, status: "False", reason: "Clamped", message: &message };
            conditions::set(&mut ledger.conditions, &holds, 0, self.sight.now);
            if !before {
                self.decision.notes.push(Note { warning: true, reason: "DemandClamped", text: message });
            }
        }
        wanted
    }
}

/// Profiles in the order of their numbers. The driver is not trusted: what is no number as Spark writes it (`00`, `x`)
/// would be counted under another name than it is made under, and is left out.
fn by_number<T>(profiles: &BTreeMap<String, T>) -> Vec<(&String, &T)> {
    let number = |id: &str| id.parse::<u32>().ok().filter(|n| n.to_string() == id);
    let mut list: Vec<_> = profiles.iter().filter_map(|(id, each)| Some((number(id)?, id, each))).collect();
    list.sort_by_key(|(number, ..)| *number);
    list.into_iter().map(|(_, id, each)| (id, each)).collect()
}

fn is_false(ledger: &ExecutorLedgerStatus, kind: &str) -> bool {
    ledger.conditions.iter().any(|c| c.type_ == kind && c.status == "False")
}

/// A memory quantity in MiB, rounded up; 0 if it is none.
pub(crate) fn mebibytes(text: &str) -> u64 {
    in_units_of(text, 1 << 20)
}

/// A quantity as a whole number, rounded up; 0 if it is none.
pub(crate) fn whole(text: &str) -> u64 {
    in_units_of(text, 1)
}

fn in_units_of(text: &str, unit: u32) -> u64 {
    text.parse::<Quantity>().map_or(0, |quantity| u64::try_from(quantity.in_units_of(unit)).unwrap_or_default())
}
