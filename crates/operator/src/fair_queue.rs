//! A weighted fair queue for a limited number of permits.
//!
//! Waiters queue in lanes, and each lane gets its share of the permits: nobody starves, and a lane with a thousand waiters
//! gets no more than its share.
//!
//! - [`Kind`] has the lanes of the application controller: applications that get a driver next come before all others, and
//!   both before events; under contention they share workers 4:2:1.
//! - Executor creation has one lane per application, all with the same share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The key of a lane.
pub(crate) trait Lane: Ord + Clone {
    /// The lane's weight under contention.
    fn share(&self) -> i64;
}

/// What a permit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An application that gets a driver next.
    Start,
    /// An application in any other state.
    Follow,
    /// An event to publish.
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

/// Hands out a fixed number of permits.
#[derive(Debug)]
pub(crate) struct FairQueue<L: Lane>(Mutex<QueueState<L>>);

#[derive(Debug)]
struct QueueState<L: Lane> {
    free: usize,
    /// Only lanes with waiters; empty while a permit is free.
    lanes: BTreeMap<L, Waiting<L>>,
}

#[derive(Debug)]
struct Waiting<L: Lane> {
    line: VecDeque<oneshot::Sender<Permit<L>>>,
    /// What the lane is owed.
    credit: i64,
}

impl<L: Lane> QueueState<L> {
    /// The next waiter: from the lane that is owed most; ties go to the first lane.
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
    /// A queue with this many permits.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(FairQueue(Mutex::new(QueueState { free: count.max(1), lanes: BTreeMap::new() })))
    }

    fn state(&self) -> MutexGuard<'_, QueueState<L>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.state().lanes.values().map(|lane| lane.line.len()).sum()
    }

    /// Waits for a permit.
    pub(crate) async fn take(self: &Arc<Self>, lane: L) -> Permit<L> {
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

    /// Passes a returned permit on to the next waiter.
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
                // The waiter has given up.
                Err(mut permit) => drop(permit.0.take()),
            }
        }
    }
}

/// Permission to work, until dropped.
#[derive(Debug)]
pub(crate) struct Permit<L: Lane>(Option<Arc<FairQueue<L>>>);

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

    type Waiters<L> = Vec<(L, Pin<Box<dyn Future<Output = Permit<L>>>>)>;

    /// Polls all waiters in order; returns those that got a permit.
    fn granted<L: Lane>(asking: &mut Waiters<L>) -> Vec<(L, Permit<L>)> {
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

    fn ask<L: Lane + 'static>(queue: &Arc<FairQueue<L>>, lanes: &[L]) -> Waiters<L> {
        let take = |lane: &L| {
            let (queue, asked) = (queue.clone(), lane.clone());
            let future: Pin<Box<dyn Future<Output = Permit<L>>>> = Box::pin(async move { queue.take(asked).await });
            (lane.clone(), future)
        };
        lanes.iter().map(take).collect()
    }

    /// The order in which waiters get the permit that `first` holds.
    fn order<L: Lane>(first: Permit<L>, asking: &mut Waiters<L>) -> Vec<L> {
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
        // One gives up before it is offered a permit, one after.
        drop(waiting.remove(0));
        drop(held);
        drop(waiting.remove(0));
        assert_eq!(granted(&mut waiting).len(), 1);
        assert_eq!(queue.state().free, 2);
    }
}
