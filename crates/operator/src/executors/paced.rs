//! Pods come and go by the thousand, and one pass sees all of them: the first asks for one at once, those that follow
//! closely ask together. Pure: the time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far apart passes are that pods of one application ask for.
const APART: Duration = Duration::from_millis(50);

/// By application, when a pass was last asked for, or is going to be.
#[derive(Debug)]
pub(super) struct Paced<K>(Mutex<HashMap<K, Instant>>);

/// When a pass is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    At(Instant),
    /// Not for this: one is coming that will see it.
    Coming,
}

impl<K> Default for Paced<K> {
    fn default() -> Self {
        Paced(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Paced<K> {
    /// Something happened to an application.
    pub(super) fn turn(&self, app: &K, now: Instant) -> Turn {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match asked.get(app).copied() {
            Some(at) if at > now => Turn::Coming,
            Some(at) if now.duration_since(at) < APART => {
                asked.insert(app.clone(), at + APART);
                Turn::At(at + APART)
            }
            _ => {
                asked.retain(|_, at| now.saturating_duration_since(*at) < APART);
                asked.insert(app.clone(), now);
                Turn::Now
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
        let (paced, began) = (Paced::default(), Instant::now());
        let turns = (0..200).map(|at| paced.turn(&"a", after(began, at))).filter(|turn| *turn != Turn::Coming);
        let at = |milliseconds| Turn::At(after(began, milliseconds));
        assert_eq!(turns.collect::<Vec<_>>(), [Turn::Now, at(50), at(100), at(150), at(200)]);
    }

    #[test]
    fn nobody_waits_who_asks_rarely_and_none_waits_for_another() {
        let (paced, began) = (Paced::default(), Instant::now());
        let turn = |app: &'static str, at| paced.turn(&app, after(began, at));
        for (app, at) in [("a", 0), ("b", 1), ("a", 60), ("b", 130), ("a", 131)] {
            assert_eq!(turn(app, at), Turn::Now, "{app} at {at}");
        }
        assert_eq!(turn("b", 132), Turn::At(after(began, 180)));
    }

    #[test]
    fn what_happens_in_the_moment_of_a_pass_is_not_taken_for_seen() {
        let (paced, began) = (Paced::default(), Instant::now());
        let turn = |at| paced.turn(&"a", after(began, at));
        assert_eq!((turn(0), turn(10)), (Turn::Now, Turn::At(after(began, 50))));
        assert_eq!(turn(50), Turn::At(after(began, 100)));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let (paced, began) = (Paced::default(), Instant::now());
        for app in 0..100 {
            paced.turn(&app, began);
        }
        paced.turn(&100, began + APART);
        assert_eq!(paced.0.lock().unwrap().len(), 1);
    }
}
