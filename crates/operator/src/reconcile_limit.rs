//! Limits how fast objects are reconciled, if the operator was started with such a limit. Applications, schedules and
//! Connect servers share it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use firesteel_cluster::token_bucket::TokenBucket;

use crate::options::ReconcileOptions;

#[derive(Debug, Default)]
pub(crate) struct ReconcileLimit {
    bucket: Option<Mutex<TokenBucket>>,
    longest: Option<Duration>,
}

impl ReconcileLimit {
    pub(crate) fn new(options: &ReconcileOptions) -> Self {
        let bucket = options.rate.map(|rate| Mutex::new(TokenBucket::new(rate, Instant::now())));
        ReconcileLimit { bucket, longest: options.longest_delay }
    }

    /// Waits until the next object may be reconciled.
    pub(crate) async fn wait(&self) {
        let Some(bucket) = &self.bucket else { return };
        let delay = bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        tokio::time::sleep(self.at_most(delay)).await;
    }

    /// A delay, or the longest that is allowed.
    pub(crate) fn at_most(&self, delay: Duration) -> Duration {
        self.longest.map_or(delay, |longest| delay.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use firesteel_cluster::token_bucket::Rate;

    use super::*;

    #[tokio::test]
    async fn a_reconciliation_waits_for_its_turn_but_not_longer_than_allowed() {
        let took = async |options: ReconcileOptions| {
            let limit = ReconcileLimit::new(&options);
            let began = Instant::now();
            for _ in 0..5 {
                limit.wait().await;
            }
            began.elapsed()
        };
        let rate = Some(Rate { per_second: 10.0, burst: 1 });
        assert!(took(ReconcileOptions::default()).await < Duration::from_millis(300));
        assert!(took(ReconcileOptions { rate, longest_delay: None }).await >= Duration::from_millis(390));
        let rate = Some(Rate { per_second: 0.001, burst: 1 });
        let longest_delay = Some(Duration::from_millis(20));
        let capped = took(ReconcileOptions { rate, longest_delay }).await;
        assert!(capped >= Duration::from_millis(80) && capped < Duration::from_secs(100), "{capped:?}");
    }
}
