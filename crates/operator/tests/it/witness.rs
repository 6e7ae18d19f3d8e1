//! A client whose requests and responses a witness observes and may hold back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{BoxError, Service};

pub(crate) trait Witness: Clone + Send + Sync + 'static {
    /// What is kept of a request until its response arrives.
    type Note: Send;

    /// Called before a request is sent; without a note it is never sent, and its caller waits forever.
    fn asked(&self, request: &Request<Body>) -> Option<Self::Note>;

    /// Called when its response arrives. False holds it back, and the caller waits forever.
    fn answered(&self, note: Self::Note, status: StatusCode) -> bool;
}

/// A client observed by a witness.
pub(crate) fn client(config: Config, witness: &impl Witness) -> Client {
    let layer = tower::layer::layer_fn(|inner| Witnessed { inner, witness: witness.clone() });
    ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
}

struct Witnessed<S, W> {
    inner: S,
    witness: W,
}

impl<S, B, W> Service<Request<Body>> for Witnessed<S, W>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    W: Witness,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(note) = self.witness.asked(&request) else { return Box::pin(std::future::pending()) };
        let (answer, witness) = (self.inner.call(request), self.witness.clone());
        Box::pin(async move {
            let response = answer.await.map_err(Into::into)?;
            if witness.answered(note, response.status()) {
                return Ok(response);
            }
            std::future::pending().await
        })
    }
}
