//! Whose turn it is when more is to be done than may be done at the same time.
//!
//! Applications that have no driver yet come before those that only have to be followed, and both before news: an API
//! server that is busy is busy with drivers. Nobody waits for ever: of those that wait, each kind gets its share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What a turn is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An application that is to get a driver.
    Start,
    /// An application in any other state.
    Follow,
    /// An event to be published.
    News,
}

const KINDS: usize = 3;
/// Turns that each kind gets in a round while all kinds wait.
const SHARES: [i32; KINDS] = [4, 2, 1];

/// Hands out a number of turns.
#[derive(Debug)]
pub struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Empty while a turn is free.
    waiting: [VecDeque<oneshot::Sender<Turn>>; KINDS],
    /// What each kind is owed.
    credit: [i32; KINDS],
}

impl State {
    /// Who comes next: of the kinds that wait, the one that is owed most.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let waiting: Vec<usize> = (0..KINDS).filter(|kind| !self.waiting[*kind].is_empty()).collect();
        let mut total = 0;
        for kind in &waiting {
            self.credit[*kind] += SHARES[*kind];
            total += SHARES[*kind];
        }
        // The last of equals wins; kinds are gone through from the last to the first.
        let kind = waiting.into_iter().rev().max_by_key(|kind| self.credit[*kind])?;
        self.credit[kind] -= total;
        self.waiting[kind].pop_front()
    }
}

impl Turns {
    /// So many at the same time.
    pub fn new(count: u16) -> Arc<Self> {
        let state = State { free: usize::from(count.max(1)), waiting: Default::default(), credit: [0; KINDS] };
        Arc::new(Turns(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    pub async fn take(self: &Arc<Self>, kind: Kind) -> Turn {
        loop {
            let receive = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Turn(Some(self.clone()));
                }
                let (send, receive) = oneshot::channel();
                state.waiting[kind as usize].push_back(send);
                receive
            };
            if let Ok(turn) = receive.await {
                return turn;
            }
        }
    }

    /// A turn is over: the next one has it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state();
                let Some(next) = state.next() else {
                    state.free += 1;
                    return;
                };
                next
            };
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // Whoever waited has given up.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }
}

/// The right to work, until it is dropped.
#[derive(Debug)]
pub struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use futures::FutureExt;

    use super::*;

    type Waiting = Vec<(Kind, Pin<Box<dyn Future<Output = Turn>>>)>;

    /// Lets all that wait ask, in their order; gives those that have a turn.
    fn granted(waiting: &mut Waiting) -> Vec<(Kind, Turn)> {
        let mut granted = Vec::new();
        waiting.retain_mut(|(kind, take)| match take.now_or_never() {
            Some(turn) => {
                granted.push((*kind, turn));
                false
            }
            None => true,
        });
        granted
    }

    fn wait(turns: &Arc<Turns>, kinds: &[Kind]) -> Waiting {
        let take = |kind: Kind| {
            let turns = turns.clone();
            let future: Pin<Box<dyn Future<Output = Turn>>> = Box::pin(async move { turns.take(kind).await });
            (kind, future)
        };
        kinds.iter().map(|kind| take(*kind)).collect()
    }

    #[test]
    fn new_applications_come_first_and_the_others_are_not_forgotten() {
        let turns = Turns::new(1);
        let kinds: Vec<Kind> = [[Kind::News; 8], [Kind::Follow; 8], [Kind::Start; 8]].concat();
        let first = turns.take(Kind::News).now_or_never().unwrap();
        let mut waiting = wait(&turns, &kinds);
        assert!(granted(&mut waiting).is_empty(), "there is one turn");
        drop(first);
        let mut order = Vec::new();
        while let Some((kind, turn)) = granted(&mut waiting).pop() {
            order.push(kind);
            drop(turn);
        }
        assert_eq!(order.len(), kinds.len());
        let count = |kind| order[..7].iter().filter(|k| **k == kind).count();
        assert_eq!((count(Kind::Start), count(Kind::Follow), count(Kind::News)), (4, 2, 1), "{order:?}");
        assert_eq!(order[0], Kind::Start);
        assert_eq!(turns.state().free, 1);
    }

    #[test]
    fn a_turn_is_not_lost_with_someone_who_gave_up() {
        let turns = Turns::new(2);
        let held = (turns.take(Kind::Start).now_or_never(), turns.take(Kind::Start).now_or_never());
        let mut waiting = wait(&turns, &[Kind::Start, Kind::Follow, Kind::Follow]);
        assert!(granted(&mut waiting).is_empty());
        // One gives up before it is asked, one after it was given a turn.
        drop(waiting.remove(0));
        drop(held);
        drop(waiting.remove(0));
        assert_eq!(granted(&mut waiting).len(), 1);
        assert_eq!(turns.state().free, 2);
    }
}
