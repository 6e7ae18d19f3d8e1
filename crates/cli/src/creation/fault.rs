//! Lets tests end the program between two cluster writes. Not in release builds.

/// Called after each write. With `FIRESTEEL_FAULT=exit-after-write:N` the program kills itself after the N-th one, without
/// any cleanup. `interrupt-after-write:N` sends itself SIGINT instead, and `panic-after-write:N` panics.
#[cfg(debug_assertions)]
pub(crate) fn after_write() {
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::signal::{Signal, raise};

    static WRITES: AtomicU32 = AtomicU32::new(0);
    let written = WRITES.fetch_add(1, Ordering::SeqCst) + 1;
    let Ok(wish) = std::env::var("FIRESTEEL_FAULT") else { return };
    let at = |prefix: &str| wish.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok()) == Some(written);
    if at("exit-after-write:") {
        let _ = raise(Signal::SIGKILL);
    }
    if at("interrupt-after-write:") {
        let _ = raise(Signal::SIGINT);
    }
    assert!(!at("panic-after-write:"), "a test asked for this");
}

#[cfg(not(debug_assertions))]
pub(crate) fn after_write() {}
