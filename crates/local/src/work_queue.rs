//! A work queue: each key is queued at most once, never handled concurrently, and retried with back-off on failure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

const FIRST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What to do with a key after it was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Wait for the next change.
    AwaitChange,
    /// Reconcile again after this time, even without a change.
    RequeueAfter(Duration),
}

#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    added: Notify,
}

#[derive(Debug)]
struct QueueState<T> {
    ready: VecDeque<T>,
    /// All keys in `ready`, plus those that changed while being handled.
    dirty: HashSet<T>,
    active: HashSet<T>,
    failures: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> WorkQueue<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = QueueState {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            active: HashSet::new(),
            failures: HashMap::new(),
        };
        Arc::new(WorkQueue { state: Mutex::new(state), added: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, key: T) {
        let mut state = self.state();
        if !state.dirty.insert(key.clone()) || state.active.contains(&key) {
            return;
        }
        state.ready.push_back(key);
        drop(state);
        self.added.notify_one();
    }

    pub(crate) fn add_after(self: &Arc<Self>, key: T, delay: Duration) {
        let queue = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            queue.add(key);
        });
    }

    fn pop(&self) -> Option<T> {
        let mut state = self.state();
        let key = state.ready.pop_front()?;
        state.dirty.remove(&key);
        state.active.insert(key.clone());
        Some(key)
    }

    async fn next(&self) -> T {
        loop {
            if let Some(key) = self.pop() {
                return key;
            }
            self.added.notified().await;
        }
    }

    /// Finishes a key; returns the back-off delay if it failed.
    fn done(&self, key: &T, failed: bool) -> Option<Duration> {
        let mut state = self.state();
        state.active.remove(key);
        let again = state.dirty.contains(key);
        if again {
            state.ready.push_back(key.clone());
        }
        let retry = if failed {
            let count = state.failures.entry(key.clone()).or_insert(0);
            *count += 1;
            Some(FIRST_RETRY.saturating_mul(1 << (*count - 1).min(16)).min(LONGEST_RETRY))
        } else {
            state.failures.remove(key);
            None
        };
        drop(state);
        if again {
            self.added.notify_one();
        }
        retry
    }

    /// Handles keys forever, up to `at_once` concurrently. `name` is for logs.
    pub(crate) async fn serve<F, Fut>(self: Arc<Self>, name: &'static str, at_once: usize, handle: F)
    where
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Action>> + Send + 'static,
    {
        let nodes = Arc::new(Semaphore::new(at_once));
        loop {
            let Ok(node_info) = Arc::clone(&nodes).acquire_owned().await else { return };
            let key = self.next().await;
            let work = handle(key.clone());
            let queue = Arc::clone(&self);
            tokio::spawn(async move {
                let outcome = work.await;
                match outcome {
                    Ok(next) => {
                        queue.done(&key, false);
                        if let Action::RequeueAfter(delay) = next {
                            queue.add_after(key, delay);
                        }
                    }
                    Err(error) => {
                        if let Some(delay) = queue.done(&key, true) {
                            tracing::debug!(controller = name, ?key, ?delay, "will retry: {error:#}");
                            queue.add_after(key, delay);
                        }
                    }
                }
                drop(node_info);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_added_twice_is_handled_once() {
        let queue = WorkQueue::new();
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn a_key_changed_while_handled_comes_again_afterwards() {
        let queue = WorkQueue::new();
        queue.add("a");
        let key = queue.pop().unwrap();
        queue.add("a");
        assert_eq!(queue.pop(), None, "never two at once");
        assert_eq!(queue.done(&key, false), None);
        assert_eq!(queue.pop(), Some("a"));
    }

    #[test]
    fn failures_wait_longer_each_time_up_to_a_limit() {
        let queue = WorkQueue::new();
        let mut waits = Vec::new();
        for _ in 0..40 {
            queue.add("a");
            let key = queue.pop().unwrap();
            waits.push(queue.done(&key, true).unwrap());
        }
        assert_eq!(waits[0], FIRST_RETRY);
        assert_eq!(waits[1], FIRST_RETRY * 2);
        assert_eq!(waits[39], LONGEST_RETRY);
        queue.add("a");
        let key = queue.pop().unwrap();
        queue.done(&key, false);
        queue.add("a");
        let key = queue.pop().unwrap();
        assert_eq!(queue.done(&key, true), Some(FIRST_RETRY), "a success forgets the failures");
    }
}
