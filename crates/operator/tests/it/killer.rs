//! A client whose n-th write is its last: the operator using it dies there, before or after the API server sees the
//! write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    pub(crate) token: CancellationToken,
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
    /// Whether this is the last write.
    type Note = bool;

    fn asked(&self, request: &Request<Body>) -> Option<bool> {
        let dead = self.death.token.is_cancelled();
        // Events are not state.
        let counts = request.method() != Method::GET && !request.uri().path().contains("/events");
        let last = counts && self.death.writes.fetch_add(1, Ordering::SeqCst) == self.point.write;
        if dead || (last && !self.point.after) {
            self.death.token.cancel();
            return None;
        }
        Some(last)
    }

    fn answered(&self, last: bool, _: StatusCode) -> bool {
        if last {
            self.death.token.cancel();
        }
        !last
    }
}
