//! Demand that falls and rises again and again: executors that were withdrawn before they ran are created anew. The first
//! times are free, as stages come and go; whoever goes on waits longer each time, and what is forgiven comes with time.
//!
//! A flap counts when executors of a profile are created beyond the number that was wanted when some were withdrawn. What
//! replaces lost executors below that number never waits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::draft::Draft;

/// So many flaps are free.
const FREE: u32 = 3;
/// After this long, one flap is forgiven.
const FORGIVEN: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(30);

impl Draft<'_> {
    /// Notes that executors of a profile are withdrawn, of which so many are still wanted.
    pub(super) fn note_withdrawal(&mut self, profile: &str, wanted: u32) {
        let withdrawn = &mut self.effects.ledger.flapping.withdrawn;
        let lowest = withdrawn.entry(profile.to_owned()).or_insert(wanted);
        *lowest = wanted.min(*lowest);
    }

    /// Asks for nothing that was withdrawn a moment ago, while demand flaps.
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
                "executors were asked for, withdrawn and asked for again {count} times in short order; more are started at {until}"
            );
            self.waits = Some(("DemandFlapping", why));
            self.wake(until);
        }
    }

    /// Counts a flap if executors come back that were withdrawn.
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

/// When executors may come back after so many flaps.
fn not_before(count: u32, last: Option<&Time>) -> Option<Timestamp> {
    let doublings = count.checked_sub(FREE)?;
    let wait = SignedDuration::from_secs(1 << doublings.min(10)).min(LONGEST);
    Some(last?.0 + wait)
}
