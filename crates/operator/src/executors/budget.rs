//! How many executors may be created now, all applications together.
//!
//! A bucket of permits that fills at a rate; the rate halves when the API server asks for less and grows back slowly when
//! it does not. What is there is shared between the applications that ask, as [`fair::share`] does.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use firesteel_core::allocation::fair;

use super::index::AppKey;

/// How soon an application that did not get all asks again.
const AGAIN: Duration = Duration::from_millis(25);
/// An application that has not asked for this long no longer takes part in the sharing.
const FORGOTTEN: Duration = Duration::from_millis(250);
/// The rate never falls below this.
const SLOWEST: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Budget {
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
    /// No permit before then.
    closed_until: Option<Instant>,
    asking: BTreeMap<AppKey, Asking>,
    turn: usize,
}

/// What an application asks for, and what it got in the last moments: who just got something comes after who did not.
#[derive(Debug, Clone, Copy)]
struct Asking {
    wanted: u32,
    at: Instant,
    got: u32,
    since: Instant,
}

impl Budget {
    pub(super) fn new(per_second: u32) -> Self {
        let fastest = f64::from(per_second.max(1));
        Budget {
            inner: Mutex::new(Inner {
                fastest,
                rate: fastest,
                permits: fastest,
                filled: Instant::now(),
                closed_until: None,
                asking: BTreeMap::new(),
                turn: 0,
            }),
        }
    }

    /// Takes permits: how many, and when to ask for the rest. `room` is how many more may be pending.
    pub(super) fn take(&self, app: &AppKey, asked: u32, room: usize, now: Instant) -> (u32, Option<Duration>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.fill(now);
        inner.asking.retain(|_, asking| now.duration_since(asking.at) < FORGOTTEN);
        if asked == 0 {
            return (0, None);
        }
        let fresh = Asking { wanted: asked, at: now, got: 0, since: now };
        let own = inner.asking.entry(app.clone()).or_insert(fresh);
        (own.wanted, own.at) = (asked, now);
        for asking in inner.asking.values_mut().filter(|a| now.duration_since(a.since) >= FORGOTTEN) {
            (asking.got, asking.since) = (0, now);
        }
        if let Some(until) = inner.closed_until.filter(|until| *until > now) {
            return (0, Some(until.duration_since(now).max(AGAIN)));
        }
        // Never negative, and far below u32::MAX.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `fastest`")]
        let permits = inner.permits as u32;
        let slots = permits.min(u32::try_from(room).unwrap_or(u32::MAX));
        let demands: Vec<u32> = inner.asking.values().map(|a| a.wanted.saturating_add(a.got)).collect();
        let shared = inner.asking.values().fold(slots, |sum, a| sum.saturating_add(a.got));
        let index = inner.asking.keys().position(|key| key == app).unwrap_or_default();
        inner.turn = inner.turn.wrapping_add(1);
        let due = fair::share(&demands, shared, inner.turn).get(index).copied().unwrap_or_default();
        let mut given = 0;
        if let Some(own) = inner.asking.get_mut(app) {
            given = due.saturating_sub(own.got).min(slots);
            own.got = own.got.saturating_add(given);
            own.wanted -= given.min(own.wanted);
        }
        inner.permits -= f64::from(given);
        (given, (given < asked).then_some(AGAIN))
    }

    /// The API server asked for less.
    pub(super) fn slow_down(&self, retry_after: Option<Duration>, now: Instant) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.fill(now);
        // One burst of refusals is one refusal.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> AppKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn permits_are_shared_between_those_who_ask() {
        let budget = Budget::new(100);
        let now = Instant::now();
        assert_eq!(budget.take(&app("large"), 80, 1000, now), (80, None));
        assert_eq!(budget.take(&app("large"), 80, 1000, now).0, 20);
        // Nothing is left; both wait, and then get the same.
        assert_eq!(budget.take(&app("small"), 10, 1000, now).0, 0);
        let now = now + Duration::from_millis(200);
        assert_eq!(budget.take(&app("large"), 60, 1000, now).0, 10);
        assert_eq!(budget.take(&app("small"), 10, 1000, now).0, 10, "{budget:?}");
    }

    #[test]
    fn pending_pods_leave_no_room_for_more() {
        let budget = Budget::new(100);
        let now = Instant::now();
        assert_eq!(budget.take(&app("a"), 10, 3, now).0, 3);
        assert_eq!(budget.take(&app("a"), 7, 0, now).0, 0);
    }

    #[test]
    fn a_refusal_halves_the_rate_once_and_it_recovers() {
        let budget = Budget::new(100);
        let now = Instant::now();
        for _ in 0..10 {
            budget.slow_down(Some(Duration::from_secs(1)), now);
        }
        let (given, again) = budget.take(&app("a"), 10, 1000, now);
        assert_eq!((given, again), (0, Some(Duration::from_secs(1))));
        let later = now + Duration::from_secs(2);
        let (given, _) = budget.take(&app("a"), 1000, 1000, later);
        assert!((40..=60).contains(&given), "{given}");
        let (given, _) = budget.take(&app("a"), 1000, 1000, later + Duration::from_secs(30));
        assert_eq!(given, 100);
    }
}
