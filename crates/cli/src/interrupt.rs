//! Ctrl-C and SIGTERM: the first is handled at the next safe point, the second exits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// Whether the user wants to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    notify: Arc<Notify>,
}

impl Interrupt {
    /// Starts listening. Must run inside a tokio runtime.
    pub(crate) fn listen() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let mut signals = signal(kind)?;
            let listener = interrupt.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if listener.came.swap(true, Ordering::SeqCst) {
                        std::process::exit(130);
                    }
                    listener.notify.notify_waiters();
                    listener.notify.notify_one();
                }
            });
        }
        Ok(interrupt)
    }

    /// Whether it has come.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// Waits for it.
    pub(crate) async fn comes(&self) {
        while !self.came() {
            self.notify.notified().await;
        }
    }
}
