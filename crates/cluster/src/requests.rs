//! Counts the requests that a client really sends, by verb, resource and response code.
//!
//! The layer sits below the rate limiter, so each retry counts. Verbs are those of Kubernetes' audit log; a resource with a
//! subresource is written `pods/status`. Names of objects and namespaces are never part of a key, so the number of keys is
//! bounded by the kinds of requests that the program makes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Method, Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// Upper bounds of the durations' buckets, in seconds.
pub const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The code of a request that got no response.
const NO_RESPONSE: &str = "error";

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub verb: &'static str,
    pub resource: String,
    /// The HTTP method.
    pub method: String,
    /// The status code, or `error`.
    pub code: String,
}

/// How long the requests of one verb took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Durations {
    /// The number of requests up to each of [`BUCKETS`].
    pub counts: Vec<u64>,
    pub sum: f64,
    pub count: u64,
}

/// What was counted so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// The API server's host and port.
    pub host: String,
    pub requests: BTreeMap<Key, u64>,
    /// By verb. A watch counts until its response begins.
    pub durations: BTreeMap<&'static str, Durations>,
}

/// The counts of one client, shared by its clones.
#[derive(Debug, Clone, Default)]
pub struct RequestCounts(Arc<Mutex<Counts>>);

impl RequestCounts {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted so far.
    pub fn read(&self) -> Counts {
        self.lock().clone()
    }

    pub(crate) fn set_host(&self, host: String) {
        self.lock().host = host;
    }

    fn add(&self, key: Key, seconds: f64) {
        let mut counts = self.lock();
        let durations = counts.durations.entry(key.verb).or_default();
        durations.counts.resize(BUCKETS.len(), 0);
        for (bound, count) in BUCKETS.iter().zip(&mut durations.counts) {
            *count += u64::from(seconds <= *bound);
        }
        durations.sum += seconds;
        durations.count += 1;
        *counts.requests.entry(key).or_default() += 1;
    }
}

impl<S> Layer<S> for RequestCounts {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counts: self.clone() }
    }
}

/// A service whose requests are counted.
#[derive(Debug, Clone)]
pub struct Counted<S> {
    inner: S,
    counts: RequestCounts,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (verb, resource) = describe(request.method(), request.uri().path(), request.uri().query());
        let method = request.method().to_string();
        let (counts, began) = (self.counts.clone(), Instant::now());
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await.map_err(Into::into);
            let code = response.as_ref().map_or_else(|_| NO_RESPONSE.to_owned(), |r| r.status().as_u16().to_string());
            counts.add(Key { verb, resource, method, code }, began.elapsed().as_secs_f64());
            response
        })
    }
}

/// The verb and the resource of a request. Requests outside the API's resources are about `other`.
fn describe(method: &Method, path: &str, query: Option<&str>) -> (&'static str, String) {
    let mut parts = path.trim_matches('/').split('/');
    // /api/VERSION or /apis/GROUP/VERSION
    let depth = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => 0,
    };
    let mut parts: Vec<&str> = parts.skip(depth).collect();
    if parts.first() == Some(&"namespaces") && parts.len() > 2 {
        parts.drain(..2);
    }
    let (resource, is_named) = match parts.as_slice() {
        [] => ("other".to_owned(), true),
        _ if depth == 0 => ("other".to_owned(), true),
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
    };
    let watches = query.is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
    let verb = match (method, is_named) {
        (&Method::GET, _) if watches => "watch",
        (&Method::GET, true) => "get",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => "other",
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_as_the_audit_log_names_them() {
        let spark = "/apis/sparkoperator.k8s.io/v1beta2";
        let apps = format!("{spark}/namespaces/n/sparkapplications");
        for (method, path, query, verb, resource) in [
            (Method::GET, "/api/v1/pods", Some("watch=true&labelSelector=a"), "watch", "pods"),
            (Method::GET, "/api/v1/namespaces/n/pods", Some("limit=500"), "list", "pods"),
            (Method::GET, "/api/v1/namespaces/n/pods/p/log", None, "get", "pods/log"),
            (Method::GET, "/api/v1/namespaces", None, "list", "namespaces"),
            (Method::GET, "/api/v1/namespaces/n", None, "get", "namespaces"),
            (Method::POST, "/api/v1/namespaces/n/pods", None, "create", "pods"),
            (Method::PATCH, &format!("{apps}/pi/status"), None, "patch", "sparkapplications/status"),
            (Method::DELETE, &format!("{apps}/pi"), None, "delete", "sparkapplications"),
            (Method::DELETE, "/api/v1/namespaces/n/pods", Some("labelSelector=a"), "deletecollection", "pods"),
            (Method::GET, "/version", None, "get", "other"),
        ] {
            assert_eq!(describe(&method, path, query), (verb, resource.to_owned()), "{method} {path}");
        }
    }

    #[tokio::test]
    async fn every_response_is_counted_and_so_is_a_missing_one() {
        let counts = RequestCounts::default();
        let server = tower::service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/api/v1/namespaces/n/pods/gone" => Ok(Response::builder().status(404).body(()).unwrap()),
                "/api/v1/namespaces/n/pods/p" => Ok(Response::new(())),
                _ => Err(BoxError::from("no connection")),
            }
        });
        let mut client = counts.layer(server);
        for name in ["p", "gone", "p", "unreachable"] {
            let path = format!("/api/v1/namespaces/n/pods/{name}");
            let _ = client.call(Request::get(path).body(Body::empty()).unwrap()).await;
        }
        let seen = counts.read();
        let by_code: Vec<_> = seen.requests.iter().map(|(key, count)| (key.verb, key.code.as_str(), *count)).collect();
        assert_eq!(by_code, [("get", "200", 2), ("get", "404", 1), ("get", "error", 1)]);
        assert_eq!(seen.durations["get"].count, 4);
    }
}
