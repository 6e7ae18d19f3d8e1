//! A client whose n-th write is its last: the operator behind it dies there, before or after the API server saw it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

/// Where to die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Which write, from 0.
    pub(crate) write: usize,
    /// Whether it still reaches the API server.
    pub(crate) after: bool,
}

/// What became of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Death {
    writes: Arc<AtomicUsize>,
    pub(crate) token: CancellationToken,
}

/// A client that dies at a point, and the news of it.
pub(crate) fn client(config: Config, point: Point) -> (Client, Death) {
    let death = Death::default();
    let state = death.clone();
    let layer = tower::layer::layer_fn(move |inner| Killer { inner, point, death: state.clone() });
    let client = ClientBuilder::try_from(config).unwrap().with_layer(&layer).build();
    (client, death)
}

struct Killer<S> {
    inner: S,
    point: Point,
    death: Death,
}

impl<S, B> Service<Request<Body>> for Killer<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let dead = self.death.token.is_cancelled();
        // Events are news, not state.
        let counts = request.method() != Method::GET && !request.uri().path().contains("/events");
        let last = counts && self.death.writes.fetch_add(1, Ordering::SeqCst) == self.point.write;
        let (death, after) = (self.death.clone(), self.point.after);
        if dead || (last && !after) {
            death.token.cancel();
            return Box::pin(std::future::pending());
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await.map_err(Into::into);
            if last {
                death.token.cancel();
                return std::future::pending().await;
            }
            response
        })
    }
}
