//! Debounces pod events: pods come and go by the thousand, and one pass sees them all. The first event triggers a pass at
//! once; events that follow closely share one. Pure: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The minimum time between passes triggered by pods of one application.
const APART: Duration = Duration::from_millis(50);

/// By application, when a pass was last triggered, or is going to be.
#[derive(Debug)]
pub(crate) struct Debounce<K>(Mutex<HashMap<K, Instant>>);

/// When to trigger a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fires {
    Now,
    At(Instant),
    /// No need: a pass that will see this event is already scheduled.
    Coming,
}

impl<K> Default for Debounce<K> {
    fn default() -> Self {
        Debounce(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Debounce<K> {
    /// Something happened to an application.
    pub(crate) fn trigger(&self, app: &K, now: Instant) -> Fires {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match asked.get(app).copied() {
            Some(at) if at > now => Fires::Coming,
            Some(at) if now.duration_since(at) < APART => {
                asked.insert(app.clone(), at + APART);
                Fires::At(at + APART)
            }
            _ => {
                asked.retain(|_, at| now.saturating_duration_since(*at) < APART);
                asked.insert(app.clone(), now);
                Fires::Now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(began: Instant, milliseconds: u64) -> Instant {
        began + Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_asks_at_once_and_those_that_follow_closely_ask_together() {
        let (debounce, began) = (Debounce::default(), Instant::now());
        let fires =
            (0..200).map(|at| debounce.trigger(&"a", after(began, at))).filter(|trigger| *trigger != Fires::Coming);
        let at = |milliseconds| Fires::At(after(began, milliseconds));
        assert_eq!(fires.collect::<Vec<_>>(), [Fires::Now, at(50), at(100), at(150), at(200)]);
    }

    #[test]
    fn nobody_waits_who_asks_rarely_and_none_waits_for_another() {
        let (debounce, began) = (Debounce::default(), Instant::now());
        let trigger = |app: &'static str, at| debounce.trigger(&app, after(began, at));
        for (app, at) in [("a", 0), ("b", 1), ("a", 60), ("b", 130), ("a", 131)] {
            assert_eq!(trigger(app, at), Fires::Now, "{app} at {at}");
        }
        assert_eq!(trigger("b", 132), Fires::At(after(began, 180)));
    }

    #[test]
    fn what_happens_in_the_moment_of_a_pass_is_not_taken_for_seen() {
        let (debounce, began) = (Debounce::default(), Instant::now());
        let trigger = |at| debounce.trigger(&"a", after(began, at));
        assert_eq!((trigger(0), trigger(10)), (Fires::Now, Fires::At(after(began, 50))));
        assert_eq!(trigger(50), Fires::At(after(began, 100)));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let (debounce, began) = (Debounce::default(), Instant::now());
        for app in 0..100 {
            debounce.trigger(&app, began);
        }
        debounce.trigger(&100, began + APART);
        assert_eq!(debounce.0.lock().unwrap().len(), 1);
    }
}
