//! A token bucket: at most so many per second over time, and at most its size at once.
//!
//! Who finds no token takes the next one that will be there and is told how long to wait for it, so tokens are handed out in
//! the order in which they were asked for. The clock is an argument.

use std::time::{Duration, Instant};

/// A rate and a burst, both at least as large as lets something pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: u32,
}

#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: Rate,
    /// Negative while tokens that are not there yet are promised.
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        TokenBucket { rate, tokens: f64::from(rate.burst), filled: now }
    }

    /// Takes a token; returns how long to wait until it may be used.
    pub fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed * self.rate.per_second).min(f64::from(self.rate.burst)) - 1.0;
        let missing = (-self.tokens / self.rate.per_second).max(0.0);
        Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let began = Instant::now();
        let mut bucket = TokenBucket::new(Rate { per_second: 10.0, burst: 3 }, began);
        let waits: Vec<u128> = (0..5).map(|_| bucket.take(began).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = began + Duration::from_millis(400);
        assert_eq!(bucket.take(later), Duration::ZERO, "two promised tokens and two more have come since");
        let much_later = began + Duration::from_secs(60);
        let waits: Vec<u128> = (0..4).map(|_| bucket.take(much_later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "no more than the burst is saved up");
    }
}
