//! Keeps the executors of all applications in a namespace within its limit.
//!
//! Usage is counted from existing executors. What a pass is given is reserved until the pass has recorded its creations, so
//! that concurrent passes never take the same room. [`fair::share_namespace`] divides the free room among applications that
//! asked recently.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use firesteel_core::allocation::size::{Amount, Size};
use firesteel_core::fair::{self, Asker};

use crate::pods::allocated::AppIdKey;

/// How soon an application that did not get everything asks again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// An application that has not asked for this long no longer gets a share.
const FORGOTTEN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Namespaces {
    asking: Mutex<HashMap<AppIdKey, NamespaceRequest>>,
}

/// What an application asks for, beyond what it was given.
#[derive(Debug)]
struct NamespaceRequest {
    asked: Vec<(Size, u32)>,
    at: Instant,
    /// Given to a pass that is still running.
    reserved: Amount,
}

/// What one pass was given, reserved until dropped.
#[derive(Debug)]
pub(super) struct Given<'a> {
    /// How many of each size, in the order requested.
    pub(super) counts: Vec<u32>,
    app: AppIdKey,
    namespaces: &'a Namespaces,
}

impl Namespaces {
    /// Takes room for executors. `used` returns what the namespace's applications have; it is called under the lock.
    pub(super) fn take(
        &self,
        app: &AppIdKey,
        asked: Vec<(Size, u32)>,
        limit: &Amount,
        used: impl FnOnce() -> HashMap<AppIdKey, Amount>,
        now: Instant,
    ) -> Given<'_> {
        let mut asking = self.asking();
        asking.retain(|_, each| each.reserved != Amount::default() || now.duration_since(each.at) < FORGOTTEN);
        asking.insert(app.clone(), NamespaceRequest { asked, at: now, reserved: Amount::default() });
        let mut used = used();
        let mut askers = Vec::new();
        let mut own = 0;
        for (key, each) in asking.iter().filter(|(key, _)| key.0 == app.0) {
            if key == app {
                own = askers.len();
            }
            let held = used.remove(key).unwrap_or_default().plus(each.reserved);
            askers.push(Asker { held, asked: each.asked.clone() });
        }
        let others = used.values().fold(Amount::default(), |sum, each| sum.plus(*each));
        let counts = fair::share_namespace(limit, others, &askers).swap_remove(own);
        if let Some(each) = asking.get_mut(app) {
            for ((size, asked), given) in each.asked.iter_mut().zip(&counts) {
                *asked -= *given;
                each.reserved.add(size, u64::from(*given));
            }
        }
        Given { counts, app: app.clone(), namespaces: self }
    }

    fn asking(&self) -> MutexGuard<'_, HashMap<AppIdKey, NamespaceRequest>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        if let Some(each) = self.namespaces.asking().get_mut(&self.app) {
            each.reserved = Amount::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Amount = Amount { executors: 10, cores: 1000, memory_mib: 1000 };

    fn app(name: &str) -> AppIdKey {
        ("n".to_owned(), name.to_owned())
    }

    fn ask(count: u32) -> Vec<(Size, u32)> {
        vec![(Size { cores: 1, memory_mib: 1, ..Size::default() }, count)]
    }

    fn has(apps: &[(&str, u64)]) -> HashMap<AppIdKey, Amount> {
        let amount = |n| Amount { executors: n, cores: n, memory_mib: n };
        apps.iter().map(|(name, n)| (app(name), amount(*n))).collect()
    }

    #[test]
    fn two_passes_at_the_same_time_never_take_the_same_room() {
        let (namespaces, now) = (Namespaces::default(), Instant::now());
        let first = namespaces.take(&app("a"), ask(8), &LIMIT, || has(&[]), now);
        let second = namespaces.take(&app("b"), ask(8), &LIMIT, || has(&[]), now);
        assert_eq!((&first.counts[..], &second.counts[..]), (&[8][..], &[2][..]));
        // What the first was given is now being created, and counted there.
        drop(first);
        let third = namespaces.take(&app("c"), ask(8), &LIMIT, || has(&[("a", 8)]), now);
        assert_eq!(third.counts, [0]);
        drop(second);
        let elsewhere = ("m".to_owned(), "a".to_owned());
        assert_eq!(namespaces.take(&elsewhere, ask(8), &LIMIT, || has(&[]), now).counts, [8]);
    }

    #[test]
    fn room_that_comes_free_goes_to_who_has_least_of_those_that_still_ask() {
        let (namespaces, now) = (Namespaces::default(), Instant::now());
        let take = |name: &str, count: u32, used: &[(&str, u64)], now| {
            namespaces.take(&app(name), ask(count), &LIMIT, || has(used), now).counts.clone()
        };
        assert_eq!(take("large", 20, &[], now), [10]);
        assert_eq!(take("small", 3, &[("large", 10)], now), [0]);
        // One of the large application's executors ended.
        assert_eq!(take("large", 11, &[("large", 9)], now), [0]);
        assert_eq!(take("small", 3, &[("large", 9)], now), [1]);
        // An application that stopped asking no longer gets a share.
        let later = now + Duration::from_secs(10);
        assert_eq!(take("large", 11, &[("large", 9)], later), [1]);
    }
}
