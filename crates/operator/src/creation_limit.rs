//! Limits how fast executors are created, across all applications.
//!
//! A token bucket whose fill rate halves when the API server throttles and recovers slowly. [`fair::share`] divides the
//! permits among the applications that ask. An application that gets none because too many executors are pending waits in a
//! queue until [`CreationLimit::wake`] finds room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use firesteel_core::fair;

use crate::pods::allocated::AppIdKey;

/// How soon an application that did not get all its permits asks again.
const AGAIN: Duration = Duration::from_millis(25);
/// An application that has not asked for this long no longer gets a share.
const FORGOTTEN: Duration = Duration::from_millis(250);
/// The rate never falls below this.
const SLOWEST: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct CreationLimit {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Permits per second, as configured.
    fastest: f64,
    /// Permits per second now.
    rate: f64,
    permits: f64,
    filled: Instant,
    /// No permits are given before then.
    closed_until: Option<Instant>,
    asking: BTreeMap<AppIdKey, CreationRequest>,
    /// Applications waiting for room and how many executors they want, longest waiting first.
    waiting: VecDeque<(AppIdKey, u32)>,
    turn: usize,
}

/// What an application asks for, and what it got recently: those that just got permits yield to those that did not.
#[derive(Debug, Clone, Copy)]
struct CreationRequest {
    wanted: u32,
    at: Instant,
    got: u32,
    since: Instant,
}

/// What an application does if it did not get all its permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Asks again after this long.
    After(Duration),
    /// Waits until woken.
    Waits,
}

impl CreationLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        let fastest = f64::from(per_second.max(1));
        CreationLimit {
            inner: Mutex::new(Inner {
                fastest,
                rate: fastest,
                permits: fastest,
                filled: Instant::now(),
                closed_until: None,
                asking: BTreeMap::new(),
                waiting: VecDeque::new(),
                turn: 0,
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes permits; returns how many, and what to do about the rest. `room` is how many more executors may be pending.
    pub(crate) fn take(&self, app: &AppIdKey, asked: u32, room: usize, now: Instant) -> (u32, Option<Rest>) {
        let mut inner = self.inner();
        inner.fill(now);
        inner.asking.retain(|_, asking| now.duration_since(asking.at) < FORGOTTEN);
        let (given, rest) = inner.take(app, asked, u32::try_from(room).unwrap_or(u32::MAX), now);
        let place = inner.waiting.iter().position(|(waiting, _)| waiting == app);
        match (rest, place) {
            (Some(Rest::Waits), None) => inner.waiting.push_back((app.clone(), asked - given)),
            (Some(Rest::Waits), Some(place)) => inner.waiting[place].1 = asked - given,
            (Some(Rest::After(_)) | None, Some(place)) => drop(inner.waiting.remove(place)),
            (Some(Rest::After(_)) | None, None) => {}
        }
        if matches!(rest, Some(Rest::Waits)) || asked == 0 {
            inner.asking.remove(app);
        }
        (given, rest)
    }

    /// Whether any application waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.inner().waiting.is_empty()
    }

    /// Wakes as many applications as there is room for, longest waiting first. They get a share from now on.
    pub(crate) fn wake(&self, mut free: usize, room: impl Fn(&AppIdKey) -> usize, now: Instant) -> Vec<AppIdKey> {
        let mut inner = self.inner();
        let mut woken = Vec::new();
        let Inner { waiting, asking, .. } = &mut *inner;
        waiting.retain(|(app, wanted)| {
            let wakes = free > 0 && room(app) > 0;
            if wakes {
                free -= 1;
                asking.insert(app.clone(), CreationRequest { wanted: *wanted, at: now, got: 0, since: now });
                woken.push(app.clone());
            }
            !wakes
        });
        woken
    }

    /// Called when the API server throttles.
    pub(crate) fn slow_down(&self, retry_after: Option<Duration>, now: Instant) {
        let mut inner = self.inner();
        inner.fill(now);
        // A burst of refusals counts as one.
        if inner.closed_until.is_none_or(|until| until <= now) {
            inner.rate = (inner.rate / 2.0).max(SLOWEST);
            inner.permits = 0.0;
            inner.closed_until = Some(now + retry_after.unwrap_or(Duration::from_millis(500)));
        }
    }
}

impl Inner {
    fn fill(&mut self, now: Instant) {
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.rate = (self.rate + passed * self.fastest / 20.0).min(self.fastest);
        self.permits = (self.permits + passed * self.rate).min(self.rate.max(1.0));
    }

    fn take(&mut self, app: &AppIdKey, asked: u32, room: u32, now: Instant) -> (u32, Option<Rest>) {
        if asked == 0 {
            return (0, None);
        }
        let fresh = CreationRequest { wanted: asked, at: now, got: 0, since: now };
        let own = self.asking.entry(app.clone()).or_insert(fresh);
        (own.wanted, own.at) = (asked, now);
        for asking in self.asking.values_mut().filter(|a| now.duration_since(a.since) >= FORGOTTEN) {
            (asking.got, asking.since) = (0, now);
        }
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return (0, Some(Rest::After(until.duration_since(now).max(AGAIN))));
        }
        // Never negative, and far below u32::MAX.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `fastest`")]
        let permits = self.permits as u32;
        let slots = permits.min(room);
        let demands: Vec<u32> = self.asking.values().map(|a| a.wanted.saturating_add(a.got)).collect();
        let shared = self.asking.values().fold(slots, |sum, a| sum.saturating_add(a.got));
        let index = self.asking.keys().position(|key| key == app).unwrap_or_default();
        self.turn = self.turn.wrapping_add(1);
        let due = fair::share(&demands, shared, self.turn).get(index).copied().unwrap_or_default();
        let mut given = 0;
        if let Some(own) = self.asking.get_mut(app) {
            given = due.saturating_sub(own.got).min(slots);
            own.got = own.got.saturating_add(given);
            own.wanted -= given.min(own.wanted);
        }
        self.permits -= f64::from(given);
        // Permits refill by themselves, and others may leave some of theirs; room has to be made.
        let full = given == slots && room < permits.max(1);
        let rest = if full { Rest::Waits } else { Rest::After(AGAIN) };
        (given, (given < asked).then_some(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> AppIdKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn permits_are_shared_between_those_who_ask() {
        let limit = CreationLimit::new(100);
        let now = Instant::now();
        assert_eq!(limit.take(&app("large"), 80, 1000, now), (80, None));
        assert_eq!(limit.take(&app("large"), 80, 1000, now).0, 20);
        // Nothing is left; both wait and then get equal shares.
        assert_eq!(limit.take(&app("small"), 10, 1000, now).0, 0);
        let now = now + Duration::from_millis(200);
        assert_eq!(limit.take(&app("large"), 60, 1000, now).0, 10);
        assert_eq!(limit.take(&app("small"), 10, 1000, now).0, 10, "{limit:?}");
    }

    #[test]
    fn whoever_finds_no_room_waits_and_is_woken_in_turn_and_only_when_there_is_room() {
        let limit = CreationLimit::new(100);
        let now = Instant::now();
        assert_eq!(limit.take(&app("a"), 10, 3, now), (3, Some(Rest::Waits)));
        assert_eq!(limit.take(&app("b"), 7, 0, now), (0, Some(Rest::Waits)));
        assert_eq!(limit.take(&app("c"), 7, 0, now), (0, Some(Rest::Waits)));
        assert_eq!(limit.take(&app("a"), 7, 0, now), (0, Some(Rest::Waits)), "it keeps its place");
        assert!(limit.wake(0, |_| 0, now).is_empty());
        assert!(limit.wake(2, |other| usize::from(*other != app("a")), now) == [app("b"), app("c")]);
        // The woken ones share the permits; the first does not take all.
        let later = now + Duration::from_millis(10);
        assert_eq!(limit.take(&app("b"), 7, 2, later), (1, Some(Rest::After(AGAIN))));
        assert_eq!(limit.take(&app("c"), 7, 1, later), (1, Some(Rest::Waits)));
        // An application that wants nothing any more leaves the queue.
        assert_eq!(limit.take(&app("a"), 0, 0, later), (0, None));
        assert_eq!(limit.wake(9, |_| 9, later), [app("c")]);
        assert!(!limit.is_waited_for());
    }

    #[test]
    fn a_refusal_halves_the_rate_once_and_it_recovers() {
        let limit = CreationLimit::new(100);
        let now = Instant::now();
        for _ in 0..10 {
            limit.slow_down(Some(Duration::from_secs(1)), now);
        }
        let (given, rest) = limit.take(&app("a"), 10, 1000, now);
        assert_eq!((given, rest), (0, Some(Rest::After(Duration::from_secs(1)))));
        let later = now + Duration::from_secs(2);
        let (given, _) = limit.take(&app("a"), 1000, 1000, later);
        assert!((40..=60).contains(&given), "{given}");
        let (given, _) = limit.take(&app("a"), 1000, 1000, later + Duration::from_secs(30));
        assert_eq!(given, 100);
    }
}
