//! How many of the executors that an application asks for may be created now, within the namespace's limit, the global
//! creation rate and the global limit on pending executors.

use std::collections::HashMap;
use std::sync::{PoisonError, Weak};
use std::time::{Duration, Instant};

use firesteel_api::ExecutorGrant;
use firesteel_core::allocation::size::Size;
use firesteel_core::allocation::{Demand, Slots};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::namespaces::{self, Given};
use super::{Allocator, Shared, writes};
use crate::creation_limit::Rest;
use crate::error::Error;
use crate::pods::allocated::AppIdKey;

/// How soon to check again until the sets have been listed once.
pub(super) const NOT_LISTED: Duration = Duration::from_millis(200);
/// The interval between checks for freed room.
const APART: Duration = Duration::from_millis(25);

/// Obtains slots. They are reserved in the namespace until the pass has recorded its creations.
pub(super) async fn obtain<'a>(
    allocator: &'a Allocator,
    grant: &ExecutorGrant,
    key: &AppIdKey,
    demand: &Demand<'_>,
) -> Result<(Slots, Option<Given<'a>>), Error> {
    let shared = &allocator.shared;
    let asked: Vec<(Size, u32)> = demand.asked().iter().map(|asked| (asked.size.clone(), asked.count)).collect();
    let again = |wait: Duration| Some(Timestamp::now() + SignedDuration::try_from(wait).unwrap_or_default());
    if asked.is_empty() || !allocator.sets.listed() {
        shared.creation_limit.take(key, 0, 0, Instant::now());
        // Existing executors cannot be counted yet.
        let again = if asked.is_empty() { None } else { again(NOT_LISTED) };
        return Ok((Slots { again, ..Slots::default() }, None));
    }
    let claims = if demand.needs_claims() { Some(writes::list_claims(&allocator.client, grant).await?) } else { None };
    let wanted: u32 = asked.iter().map(|(_, count)| count).sum();
    let limit = &shared.options.per_namespace;
    let given = shared.namespaces.take(key, asked, limit, || allocator.used(&key.0), Instant::now());
    let fit: u32 = given.counts.iter().sum();
    // Counting room visits all pods of all applications, so it is done only if needed.
    let room = if fit == 0 { 0 } else { shared.pending().room(key) };
    let (most, rest) = shared.creation_limit.take(key, fit, room, Instant::now());
    shared.check_room();
    let wait = match rest {
        Some(Rest::After(wait)) => Some(wait),
        Some(Rest::Waits) | None => None,
    };
    let short = (fit < wanted).then_some(namespaces::AGAIN);
    let again = wait.into_iter().chain(short).min().and_then(again);
    Ok((Slots { namespace: Some(given.counts.clone()), most, again, claims }, Some(given)))
}

/// Executors that were requested but do not run yet.
pub(super) struct Pending {
    most: usize,
    all: usize,
    by_app: HashMap<AppIdKey, usize>,
}

impl Pending {
    /// How many more executors of an application may be pending.
    fn room(&self, app: &AppIdKey) -> usize {
        room(self.most, self.all, self.by_app.get(app).copied().unwrap_or_default())
    }
}

/// How many more executors an application with `own` pending may add, given `all` pending and at most `most` allowed. One
/// application may take at most 8/9 of the free capacity.
fn room(most: usize, all: usize, own: usize) -> usize {
    most.saturating_sub(all).saturating_sub(own / 8)
}

impl Shared {
    /// Counts over all pods of all applications.
    fn pending(&self) -> Pending {
        let mut by_app = HashMap::new();
        for allocator in self.scopes().iter().filter_map(Weak::upgrade) {
            for (app, count) in allocator.index.pending() {
                *by_app.entry(app).or_default() += count;
            }
            allocator.sets.add_pending(&allocator.index, &mut by_app);
        }
        // Namespaces outside the operator's scope do not count.
        let all = by_app.iter().filter(|(app, _)| self.scope.covers(&app.0)).map(|(_, count)| count).sum();
        Pending { most: self.options.most_pending, all, by_app }
    }

    /// Called when room may have been freed.
    pub(super) fn check_room(&self) {
        if self.creation_limit.is_waited_for() {
            self.freed.notify_one();
        }
    }

    /// Wakes waiting applications whenever there is room.
    pub(super) async fn follow_room(&self) {
        loop {
            self.freed.notified().await;
            let pending = self.pending();
            let free = pending.most.saturating_sub(pending.all);
            for app in self.creation_limit.wake(free, |app| pending.room(app), Instant::now()) {
                for allocator in self.scopes().iter().filter_map(Weak::upgrade) {
                    let grant = allocator.grants().get(&app).cloned();
                    grant.into_iter().for_each(|grant| allocator.enqueue(grant));
                }
            }
            tokio::time::sleep(APART).await;
        }
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Allocator>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn whoever_takes_all_it_can_leaves_room_for_others() {
        let most = 20_000;
        let (mut all, mut shares) = (0, Vec::new());
        for _ in 0..4 {
            let mut own = 0;
            while room(most, all, own) > 0 {
                (all, own) = (all + 1, own + 1);
            }
            shares.push(own);
        }
        assert_eq!(shares, [17_778, 1_976, 219, 24]);
        assert_eq!((room(3, 0, 0), room(3, 2, 2), room(3, 3, 1)), (3, 1, 0), "small numbers are not reduced");
    }
}
