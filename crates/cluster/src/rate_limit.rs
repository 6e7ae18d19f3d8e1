//! Limits the operator's requests to what the API server can take.
//!
//! The number of concurrent requests is limited. The limit halves when the server throttles (429, 503 or 504 with
//! `Retry-After`) and grows again with every other response; nothing is sent until `Retry-After` has passed. The server did
//! not process a throttled request, so any request is safe to send again. Server errors are retried too, a few times: all of
//! the operator's writes are idempotent. A 429 without `Retry-After` counts as an error, because it comes from an admission
//! webhook, not from the server. Leases bypass the limit: a busy leader is still the leader. Exposure objects (a driver's UI
//! Services, Ingresses and PodDisruptionBudget) have a separate limit, so that a slow or busy webhook for Ingresses slows
//! down nothing else.
//!
//! A fixed rate can be set in addition. It holds for every request except those about leases.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::requests::RequestCounts;
use crate::token_bucket::{Rate, TokenBucket};

/// The field manager of exposure objects. Requests with this name have a separate limit.
pub const EXPOSURE_MANAGER: &str = "firesteel-exposure";
/// Concurrent requests while the server does not throttle.
const MOST_REQUESTS: f64 = 64.0;
/// How often a throttled request is sent again before the caller gets the response.
const MOST_TRIES: u32 = 10;
/// The same for server errors, and the wait before the first retry; it triples each time.
const MOST_FAILURES: u32 = 2;
const SHORT_WAIT: Duration = Duration::from_millis(100);
/// Shorter values of `Retry-After` are raised to this.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A client that adapts to the API server's load.
pub fn client(config: Config) -> Result<Client, kube::Error> {
    client_with(config, &RequestCounts::default(), None)
}

/// The same; what it sends is counted, and limited to a fixed rate if there is one.
pub fn client_with(mut config: Config, counts: &RequestCounts, rate: Option<Rate>) -> Result<Client, kube::Error> {
    // Retries happen in the rate limiter, so that they slow down all requests.
    config.default_retry = false;
    counts.set_host(config.cluster_url.authority().map(ToString::to_string).unwrap_or_default());
    Ok(ClientBuilder::try_from(config)?.with_layer(counts).with_layer(&RateLimitLayer::with(rate)).build())
}

/// Gives a client's services a common limit, and exposure objects a separate one.
#[derive(Debug, Clone, Default)]
pub struct RateLimitLayer(Arc<Limiter>, Arc<Limiter>, Option<Arc<Mutex<TokenBucket>>>);

impl RateLimitLayer {
    /// A limit that adapts, and this rate.
    pub fn with(rate: Option<Rate>) -> Self {
        let bucket = rate.map(|rate| Arc::new(Mutex::new(TokenBucket::new(rate, std::time::Instant::now()))));
        RateLimitLayer(Arc::default(), Arc::default(), bucket)
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited {
            inner: Arc::new(tokio::sync::Mutex::new(inner)),
            limiter: self.0.clone(),
            around: self.1.clone(),
            rate: self.2.clone(),
        }
    }
}

#[derive(Debug)]
struct Limiter {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug)]
struct State {
    limit: f64,
    under_way: u32,
    not_before: Option<Instant>,
}

impl Default for Limiter {
    fn default() -> Self {
        let state = State { limit: MOST_REQUESTS, under_way: 0, not_before: None };
        Limiter { state: Mutex::new(state), freed: Notify::new() }
    }
}

impl Limiter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request may be sent.
    async fn enter(self: &Arc<Self>) -> Permit {
        loop {
            let freed = self.freed.notified();
            let pause = {
                let mut state = self.state();
                let pause = state.not_before.filter(|at| *at > Instant::now());
                if pause.is_none() && f64::from(state.under_way) < state.limit {
                    state.under_way += 1;
                    if f64::from(state.under_way) < state.limit {
                        self.freed.notify_one();
                    }
                    return Permit(self.clone());
                }
                pause
            };
            match pause {
                Some(until) => tokio::time::sleep_until(until).await,
                None => freed.await,
            }
        }
    }

    fn went_well(&self) {
        let mut state = self.state();
        state.limit = (state.limit + 1.0 / state.limit).min(MOST_REQUESTS);
    }

    fn slow_down(&self, wait: Duration) {
        let mut state = self.state();
        let until = Instant::now() + wait;
        // A burst of throttled requests counts as one.
        if state.not_before.is_none_or(|at| at <= Instant::now()) {
            state.limit = (state.limit / 2.0).max(1.0);
            tracing::warn!(seconds = wait.as_secs(), limit = state.limit, "the API server throttles requests");
        }
        state.not_before = Some(state.not_before.map_or(until, |at| at.max(until)));
    }
}

/// One request in flight.
#[derive(Debug)]
struct Permit(Arc<Limiter>);

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way = state.under_way.saturating_sub(1);
        drop(state);
        self.0.freed.notify_one();
    }
}

/// A service whose requests are rate limited.
#[derive(Debug)]
pub struct RateLimited<S> {
    inner: Arc<tokio::sync::Mutex<S>>,
    limiter: Arc<Limiter>,
    around: Arc<Limiter>,
    rate: Option<Arc<Mutex<TokenBucket>>>,
}

impl<S, B> Service<Request<Body>> for RateLimited<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_around = is_around(&request);
        let (inner, limiter) = (self.inner.clone(), if is_around { self.around.clone() } else { self.limiter.clone() });
        let rate = self.rate.clone();
        // Nobody waits for exposure objects, and their writer retries by itself.
        let most_tries = if is_around { 1 } else { MOST_TRIES };
        Box::pin(async move {
            let is_lease = request.uri().path().contains("/leases/");
            let mut request = request;
            let (mut tries, mut failures) = (0, 0);
            loop {
                let spare = copy(&request);
                if let Some(rate) = rate.as_ref().filter(|_| !is_lease) {
                    let wait = rate.lock().unwrap_or_else(PoisonError::into_inner).take(std::time::Instant::now());
                    tokio::time::sleep(wait).await;
                }
                let permit = if is_lease { None } else { Some(limiter.enter().await) };
                let answer = {
                    let mut inner = inner.lock().await;
                    std::future::poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
                    inner.call(request)
                };
                let response = answer.await.map_err(Into::into)?;
                drop(permit);
                let Some(wait) = patience(&response) else {
                    let failed = response.status().is_server_error() || is_busy(&response);
                    if failed
                        && failures < MOST_FAILURES
                        && !is_lease
                        && let Some(spare) = spare
                    {
                        tokio::time::sleep(SHORT_WAIT * 3_u32.pow(failures)).await;
                        failures += 1;
                        request = spare;
                        continue;
                    }
                    limiter.went_well();
                    return Ok(response);
                };
                if !is_lease {
                    limiter.slow_down(wait);
                }
                tries += 1;
                match spare.filter(|_| tries <= most_tries && !is_lease) {
                    Some(spare) => request = spare,
                    None => return Ok(response),
                }
            }
        })
    }
}

/// How long to wait, if the server throttles.
fn patience<B>(response: &Response<B>) -> Option<Duration> {
    let asked = response.headers().get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.trim().parse().ok());
    let asked = asked.map(Duration::from_secs);
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            asked.map(|wait| wait.clamp(SHORTEST_WAIT, LONGEST_WAIT))
        }
        _ => None,
    }
}

fn is_busy<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::TOO_MANY_REQUESTS
}

/// Whether a request is about exposure objects. The headless Service that a driver needs is not one: it is created without
/// this field manager.
fn is_around(request: &Request<Body>) -> bool {
    let mut parts = request.uri().path().split('/').skip_while(|part| *part != "namespaces").skip(2);
    match parts.next() {
        Some("ingresses" | "httproutes" | "poddisruptionbudgets") => true,
        Some("services") if request.method() == http::Method::POST => {
            request.uri().query().is_some_and(|query| query.contains(EXPOSURE_MANAGER))
        }
        Some("services") => true,
        _ => false,
    }
}

/// A copy of the request; `None` if its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn request(path: &str) -> Request<Body> {
        Request::builder().uri(path).body(Body::from(b"x".to_vec())).unwrap()
    }

    #[tokio::test]
    async fn a_refused_request_waits_as_asked_and_goes_through() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            let answer = Response::builder().status(if first { 429 } else { 200 }).header("retry-after", "1").body(());
            async move { Ok::<_, BoxError>(answer.unwrap()) }
        });
        let layer = RateLimitLayer::default();
        let mut client = layer.layer(server);
        let began = Instant::now();
        let answers = join_all((0..5).map(|_| client.call(request("/pods")))).await;
        assert!(answers.into_iter().all(|a| a.unwrap().status() == 200));
        assert!(began.elapsed() >= Duration::from_millis(900));
        assert!(layer.0.state().limit < MOST_REQUESTS, "the limit fell");
        let before = layer.0.state().limit;
        client.call(request("/pods")).await.unwrap();
        assert!(layer.0.state().limit > before, "the limit rose again");
    }

    #[tokio::test]
    async fn a_fixed_rate_holds_for_everything_but_leases() {
        let server = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::builder().status(200).body(()).unwrap())
        });
        let mut client = RateLimitLayer::with(Some(Rate { per_second: 20.0, burst: 2 })).layer(server);
        let began = Instant::now();
        join_all((0..6).map(|_| client.call(request("/pods")))).await;
        assert!(began.elapsed() >= Duration::from_millis(190), "two at once, then four at 20 per second");
        let began = Instant::now();
        join_all((0..50).map(|_| client.call(request("/apis/x/namespaces/n/leases/l")))).await;
        assert!(began.elapsed() < Duration::from_secs(1), "50 at 20 per second would take longer");
    }

    #[tokio::test]
    async fn a_failure_of_the_server_is_asked_again_but_not_for_ever() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let server = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, BoxError>(Response::builder().status(500).body(()).unwrap()) }
        });
        let answer = RateLimitLayer::default().layer(server).call(request("/pods")).await.unwrap();
        assert_eq!((answer.status().as_u16(), asked.load(Ordering::SeqCst)), (500, 3));
    }

    #[tokio::test]
    async fn what_stands_around_drivers_slows_down_nothing_else() {
        let server = tower::service_fn(|request: Request<Body>| async move {
            let busy = request.uri().path().contains("ingresses") || request.uri().query().is_some();
            let answer = Response::builder().status(if busy { 429 } else { 200 });
            let answer = if busy { answer.header("retry-after", "30") } else { answer };
            Ok::<_, BoxError>(answer.body(()).unwrap())
        });
        let layer = RateLimitLayer::default();
        let mut client = layer.layer(server);
        let slow = [
            Request::get("/apis/networking.k8s.io/v1/namespaces/n/ingresses/i").body(Body::empty()).unwrap(),
            Request::post(format!("/api/v1/namespaces/n/services?fieldManager={EXPOSURE_MANAGER}"))
                .body(Body::empty())
                .unwrap(),
        ];
        let waiting: Vec<_> = slow.into_iter().map(|request| tokio::spawn(client.call(request))).collect();
        tokio::time::sleep(Duration::from_millis(100)).await;
        for path in ["/api/v1/namespaces/n/pods", "/api/v1/namespaces/n/services"] {
            let request = Request::post(path).body(Body::empty()).unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(1), client.call(request)).await;
            assert_eq!(answer.expect("at once").unwrap().status(), 200);
        }
        assert!(waiting.iter().all(|request| !request.is_finished()), "they wait for Retry-After");
        assert!((layer.0.state().limit - MOST_REQUESTS).abs() < f64::EPSILON);
    }

    #[tokio::test]
    async fn a_webhook_that_is_busy_is_not_a_server_that_is() {
        let server = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::builder().status(429).body(()).unwrap())
        });
        let layer = RateLimitLayer::default();
        let answer = layer.layer(server).call(request("/pods")).await.unwrap();
        assert_eq!(answer.status(), 429);
        assert!((layer.0.state().limit - MOST_REQUESTS).abs() < f64::EPSILON, "nobody else waits for it");
    }

    #[tokio::test]
    async fn not_more_than_the_limit_are_under_way_and_leases_pass() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, peak) = (now.clone(), most.clone());
        let server = tower::service_fn(move |_: Request<Body>| {
            let (count, peak) = (count.clone(), peak.clone());
            async move {
                peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                count.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, BoxError>(Response::new(()))
            }
        });
        let layer = RateLimitLayer::default();
        layer.0.state().limit = 2.0;
        let mut client = layer.layer(server);
        join_all((0..10).map(|_| client.call(request("/pods")))).await;
        let peak = most.load(Ordering::SeqCst);
        assert!((2..=5).contains(&peak), "{peak}");
        layer.0.state().not_before = Some(Instant::now() + Duration::from_secs(60));
        client.call(request("/apis/coordination.k8s.io/v1/namespaces/n/leases/l")).await.unwrap();
    }
}
