//! A client whose n-th write is its last: the operator using it dies there, before or after the API server sees the
//! write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use kube::client::Body;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use crate::witness::{self, Witness};

/// Where to die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Which write, from 0.
    pub(crate) write: usize,
    /// Whether it still reaches the API server.
    pub(crate) after: bool,
}

/// The death, once it happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Death {
    writes: Arc<AtomicUsize>,
    /// Requests that were sent and have no response yet.
    under_way: Arc<AtomicUsize>,
    pub(crate) token: CancellationToken,
}

impl Death {
    /// Waits for the death, and until nothing that was sent before can still change the cluster: the next operator has to wait
    /// for the lease of the dead one, which lasts longer than any request.
    pub(crate) async fn settled(&self) {
        self.token.cancelled().await;
        while self.under_way.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A request without a response.
pub(crate) struct Sent {
    /// Whether it is the last write.
    last: bool,
    under_way: Arc<AtomicUsize>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client that dies at a point, and its death.
pub(crate) fn client(config: Config, point: Point) -> (Client, Death) {
    let death = Death::default();
    (witness::client(config, &Killer { point, death: death.clone() }), death)
}

#[derive(Clone)]
struct Killer {
    point: Point,
    death: Death,
}

impl Witness for Killer {
    type Note = Sent;

    fn asked(&self, request: &Request<Body>) -> Option<Sent> {
        let dead = self.death.token.is_cancelled();
        // Events are not state.
        let counts = request.method() != Method::GET && !request.uri().path().contains("/events");
        let last = counts && self.death.writes.fetch_add(1, Ordering::SeqCst) == self.point.write;
        if dead || (last && !self.point.after) {
            self.death.token.cancel();
            return None;
        }
        self.death.under_way.fetch_add(1, Ordering::SeqCst);
        Some(Sent { last, under_way: self.death.under_way.clone() })
    }

    fn answered(&self, sent: Sent, _: StatusCode) -> bool {
        if sent.last {
            self.death.token.cancel();
        }
        !sent.last
    }
}
