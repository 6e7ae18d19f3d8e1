//! Whose turn it is when more is to be done than may be done at the same time.
//!
//! Those that wait stand in lanes, and each lane gets its share of the permits: nobody waits for ever, and whoever brings a
//! thousand things is not a thousand times as important.
//!
//! - [`Kind`] is what the application controller works at: applications that have no driver yet come before those that only
//!   have to be followed, and both before events, since an API server that is busy is busy with drivers.
//! - Executors are created in lanes of their applications, which all count the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// What a lane is known by.
pub trait Lane: Ord + Clone {
    /// Turns that it gets in a round while all lanes wait.
    fn share(&self) -> i64;
}

/// What a permit is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An application that is to get a driver.
    Start,
    /// An application in any other state.
    Follow,
    /// An event to be published.
    Events,
}

impl Lane for Kind {
    fn share(&self) -> i64 {
        match self {
            Kind::Start => 4,
            Kind::Follow => 2,
            Kind::Events => 1,
        }
    }
}

/// Hands out a number of permits.
#[derive(Debug)]
pub struct FairQueue<L: Lane>(Mutex<State<L>>);

#[derive(Debug)]
struct State<L: Lane> {
    free: usize,
    /// Only lanes in which somebody waits; none while a permit is free.
    lanes: BTreeMap<L, Waiting<L>>,
}

#[derive(Debug)]
struct Waiting<L: Lane> {
    line: VecDeque<oneshot::Sender<Permit<L>>>,
    /// What the lane is owed.
    credit: i64,
}

impl<L: Lane> State<L> {
    /// Who comes next: of the lanes, the one that is owed most, and of equals the first.
    fn next(&mut self) -> Option<oneshot::Sender<Permit<L>>> {
        let mut total = 0;
        let mut best: Option<(&L, i64)> = None;
        for (lane, waiting) in &mut self.lanes {
            waiting.credit += lane.share();
            total += lane.share();
            if best.is_none_or(|(_, most)| waiting.credit > most) {
                best = Some((lane, waiting.credit));
            }
        }
        let lane = best?.0.clone();
        let waiting = self.lanes.get_mut(&lane)?;
        waiting.credit -= total;
        let next = waiting.line.pop_front();
        if waiting.line.is_empty() {
            self.lanes.remove(&lane);
        }
        next
    }
}

impl<L: Lane> FairQueue<L> {
    /// So many at the same time.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(FairQueue(Mutex::new(State { free: count.max(1), lanes: BTreeMap::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit.
    pub async fn take(self: &Arc<Self>, lane: L) -> Permit<L> {
        loop {
            let receive = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Permit(Some(self.clone()));
                }
                let (send, receive) = oneshot::channel();
                let fresh = || Waiting { line: VecDeque::new(), credit: 0 };
                state.lanes.entry(lane.clone()).or_insert_with(fresh).line.push_back(send);
                receive
            };
            if let Ok(permit) = receive.await {
                return permit;
            }
        }
    }

    /// A permit is over: the next one has it.
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
            match next.send(Permit(Some(self.clone()))) {
                Ok(()) => return,
                // Whoever waited has given up.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
    }
}

/// The right to work, until it is dropped.
#[derive(Debug)]
pub struct Permit<L: Lane>(Option<Arc<FairQueue<L>>>);

impl<L: Lane> Drop for Permit<L> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use futures::FutureExt;

    use super::*;

    type Asking<L> = Vec<(L, Pin<Box<dyn Future<Output = Permit<L>>>>)>;

    /// Lets all that wait ask, in their order; gives those that have a permit.
    fn granted<L: Lane>(asking: &mut Asking<L>) -> Vec<(L, Permit<L>)> {
        let mut granted = Vec::new();
        asking.retain_mut(|(lane, take)| match take.now_or_never() {
            Some(permit) => {
                granted.push((lane.clone(), permit));
                false
            }
            None => true,
        });
        granted
    }

    fn ask<L: Lane + 'static>(queue: &Arc<FairQueue<L>>, lanes: &[L]) -> Asking<L> {
        let take = |lane: &L| {
            let (queue, asked) = (queue.clone(), lane.clone());
            let future: Pin<Box<dyn Future<Output = Permit<L>>>> = Box::pin(async move { queue.take(asked).await });
            (lane.clone(), future)
        };
        lanes.iter().map(take).collect()
    }

    /// In which order those that wait get the permit that `first` holds.
    fn order<L: Lane>(first: Permit<L>, asking: &mut Asking<L>) -> Vec<L> {
        assert!(granted(asking).is_empty(), "there is one permit");
        drop(first);
        let mut order = Vec::new();
        while let Some((lane, permit)) = granted(asking).pop() {
            order.push(lane);
            drop(permit);
        }
        order
    }

    #[test]
    fn new_applications_come_first_and_the_others_are_not_forgotten() {
        let queue = FairQueue::new(1);
        let kinds: Vec<Kind> = [[Kind::Events; 8], [Kind::Follow; 8], [Kind::Start; 8]].concat();
        let first = queue.take(Kind::Events).now_or_never().unwrap();
        let order = order(first, &mut ask(&queue, &kinds));
        assert_eq!(order.len(), kinds.len());
        let count = |kind| order[..7].iter().filter(|k| **k == kind).count();
        assert_eq!((count(Kind::Start), count(Kind::Follow), count(Kind::Events)), (4, 2, 1), "{order:?}");
        assert_eq!(order[0], Kind::Start);
        assert_eq!(queue.state().free, 1);
    }

    impl Lane for &'static str {
        fn share(&self) -> i64 {
            1
        }
    }

    #[test]
    fn one_that_wants_little_is_not_behind_one_that_wants_much() {
        let queue = FairQueue::new(1);
        let first = queue.take("large").now_or_never().unwrap();
        let mut asking = ask(&queue, &["large"; 100]);
        asking.extend(ask(&queue, &["small", "small", "tiny"]));
        let order = order(first, &mut asking);
        assert_eq!(order.len(), 103);
        assert_eq!(order[..6].iter().filter(|lane| **lane != "large").count(), 3, "{:?}", &order[..6]);
    }

    #[test]
    fn a_permit_is_not_lost_with_someone_who_gave_up() {
        let queue = FairQueue::new(2);
        let held = (queue.take(Kind::Start).now_or_never(), queue.take(Kind::Start).now_or_never());
        let mut waiting = ask(&queue, &[Kind::Start, Kind::Follow, Kind::Follow]);
        assert!(granted(&mut waiting).is_empty());
        // One gives up before it is asked, one after it was given a permit.
        drop(waiting.remove(0));
        drop(held);
        drop(waiting.remove(0));
        assert_eq!(granted(&mut waiting).len(), 1);
        assert_eq!(queue.state().free, 2);
    }
}
