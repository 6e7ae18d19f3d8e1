//! Flapping demand: executors withdrawn before they ran are created again. The first flaps are free, as stages come and go;
//! after that each one waits longer, and flaps are forgiven over time.
//!
//! A flap counts when executors of a profile are created beyond the number wanted when some were withdrawn. Replacements of
//! lost executors below that number never wait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::effects_builder::EffectsBuilder;

/// How many flaps are free.
const FREE: u32 = 3;
/// After this long, one flap is forgiven.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(30);

impl EffectsBuilder<'_> {
    /// Records that executors of a profile are withdrawn, and how many are still wanted.
    pub(super) fn note_withdrawal(&mut self, profile: &str, wanted: u32) {
        let withdrawn = &mut self.effects.ledger.flapping.withdrawn;
        let lowest = withdrawn.entry(profile.to_owned()).or_insert(wanted);
        *lowest = wanted.min(*lowest);
    }

    /// Does not request recently withdrawn executors while demand flaps.
    pub(super) fn calm(&mut self) {
        let flapping = &self.effects.ledger.flapping;
        let Some(until) = not_before(flapping.count, flapping.last.as_ref()).filter(|at| *at > self.sight.now) else {
            return;
        };
        let mut waits = false;
        for asked in &mut self.asked {
            let Some(lowest) = flapping.withdrawn.get(&asked.profile) else { continue };
            let steady = lowest.saturating_sub(asked.have);
            waits |= asked.count > steady;
            asked.count = asked.count.min(steady);
        }
        if waits {
            let count = flapping.count;
            let why = format!(
                "executors were requested, withdrawn and requested again {count} times in a short time; more start at {until}"
            );
            self.waits = Some(("DemandFlapping", why));
            self.wake(until);
        }
    }

    /// Counts a flap if withdrawn executors come back.
    pub(super) fn count_flaps(&mut self) {
        let (now, flapping) = (self.sight.now, &mut self.effects.ledger.flapping);
        let mut flaps = false;
        for asked in &self.asked {
            let beyond = |lowest: &u32| asked.have.saturating_add(asked.count) > *lowest;
            if flapping.withdrawn.get(&asked.profile).is_some_and(beyond) {
                flapping.withdrawn.remove(&asked.profile);
                flaps = true;
            }
        }
        if flaps {
            let passed = flapping.last.as_ref().map_or(0, |last| now.duration_since(last.0).as_secs());
            let forgiven = u32::try_from(passed / FORGIVEN.as_secs()).unwrap_or_default();
            flapping.count = flapping.count.saturating_sub(forgiven) + 1;
            flapping.last = Some(Time(now));
        }
    }
}

/// When executors may come back after `count` flaps.
fn not_before(count: u32, last: Option<&Time>) -> Option<Timestamp> {
    let doublings = count.checked_sub(FREE)?;
    let wait = SignedDuration::from_secs(1 << doublings.min(10)).min(LONGEST);
    Some(last?.0 + wait)
}
