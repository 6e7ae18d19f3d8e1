//! A misbehaving proxy in front of the API server: it rejects, delays, loses responses, cuts watches short and is
//! sometimes down.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use futures::StreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Percentage of requests that fail, by kind.
const REFUSED: u64 = 5;
const CONFLICT: u64 = 4;
const TOO_MANY: u64 = 4;
const LOST: u64 = 5;
/// Percentage of requests that are delayed.
const SLOW: u64 = 5;
/// Percentage of watches that have to start over.
const GONE: u64 = 25;

/// The response to every write of a Service, an Ingress or a PodDisruptionBudget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 500.
    Fails,
    /// 429.
    Busy,
    /// Nothing.
    Silent,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    trouble: Arc<Trouble>,
}

struct Trouble {
    dice: AtomicU64,
    on: AtomicBool,
    /// The permanent fault, and whether Services that drivers need are spared.
    broken: Mutex<Option<(Fault, bool)>>,
    down: watch::Sender<bool>,
    /// How often each kind of fault occurred.
    pub(crate) refused: AtomicU64,
    cut: AtomicU64,
}

impl Proxy {
    /// Starts one in front of the server of `upstream`.
    pub(crate) async fn start(upstream: Client, seed: u64) -> Proxy {
        let trouble = Arc::new(Trouble {
            dice: AtomicU64::new(seed),
            on: AtomicBool::new(true),
            broken: Mutex::default(),
            down: watch::Sender::new(false),
            refused: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, upstream, trouble.clone()));
        Proxy { address, trouble }
    }

    /// Starts one that answers every write of a Service, an Ingress or a PodDisruptionBudget the same way, and
    /// otherwise behaves.
    pub(crate) async fn broken(upstream: Client, fault: Fault) -> Proxy {
        let proxy = Proxy::start(upstream, 0).await;
        proxy.trouble.on.store(false, Ordering::Relaxed);
        *proxy.trouble.broken.lock().unwrap() = Some((fault, false));
        proxy
    }

    /// From now on, lets Services that drivers need through.
    pub(crate) fn spare_drivers(&self) {
        if let Some((_, spared)) = self.trouble.broken.lock().unwrap().as_mut() {
            *spared = true;
        }
    }

    /// From now on, lets everything through.
    pub(crate) fn mend(&self) {
        *self.trouble.broken.lock().unwrap() = None;
    }

    /// A client that uses it.
    pub(crate) fn client(&self) -> Client {
        let mut config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        config.read_timeout = Some(Duration::from_secs(20));
        firesteel_cluster::rate_limit::client(config).unwrap()
    }

    /// Takes the server down for a while: connections break, new ones are not accepted.
    pub(crate) async fn down_for(&self, time: Duration) {
        self.trouble.down.send_replace(true);
        tokio::time::sleep(time).await;
        self.trouble.down.send_replace(false);
    }

    /// How many requests were rejected, and how many watches cut short.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.trouble.refused.load(Ordering::Relaxed), self.trouble.cut.load(Ordering::Relaxed))
    }
}

async fn accept(listener: TcpListener, upstream: Client, trouble: Arc<Trouble>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let mut down = trouble.down.subscribe();
        if *down.borrow() {
            continue;
        }
        let (upstream, trouble) = (upstream.clone(), trouble.clone());
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let (upstream, trouble) = (upstream.clone(), trouble.clone());
                async move { Ok::<_, Infallible>(answer(request.map(Body::new), upstream, &trouble).await) }
            });
            let builder = Builder::new(TokioExecutor::new());
            tokio::select! {
                _ = builder.serve_connection(TokioIo::new(stream), service) => {}
                _ = down.wait_for(|down| *down) => {}
            }
        });
    }
}

impl Trouble {
    /// A number below 100; the same seed gives the same numbers.
    fn roll(&self) -> u64 {
        let step = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let old = self.dice.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| Some(step(n))).unwrap_or_default();
        (step(old) >> 33) % 100
    }
}

fn refuse(code: u16, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": "trouble on purpose",
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    if code == 429 {
        response.headers_mut().insert("retry-after", "1".parse().unwrap());
    }
    response
}

/// A broken server's response to a request, if any.
fn fault(request: &Request<Body>, trouble: &Trouble) -> Option<Fault> {
    let (fault, spared) = (*trouble.broken.lock().unwrap())?;
    let mut parts = request.uri().path().split('/').skip_while(|part| *part != "namespaces").skip(2);
    let kind = parts.next()?;
    // A driver's own Service is the only one written without a field manager's name.
    let needed =
        kind == "services" && request.method() == Method::POST && request.uri().query().is_none_or(str::is_empty);
    let met = matches!(kind, "services" | "ingresses" | "poddisruptionbudgets") && !(needed && spared);
    (met && request.method() != Method::GET).then_some(fault)
}

async fn answer(request: Request<Body>, upstream: Client, trouble: &Trouble) -> Response<Body> {
    match fault(&request, trouble) {
        Some(Fault::Fails) => return refuse(500, "InternalError"),
        Some(Fault::Busy) => return refuse(429, "TooManyRequests"),
        Some(Fault::Silent) => std::future::pending().await,
        None => {}
    }
    let on = trouble.on.load(Ordering::Relaxed);
    let is_watch = request.uri().query().is_some_and(|q| q.contains("watch=true"));
    let is_write = request.method() != Method::GET;
    let roll = if on { trouble.roll() } else { 99 };
    let refused = match roll {
        _ if is_watch && on && roll < GONE => Some(refuse(410, "Expired")),
        n if n < REFUSED => Some(refuse(500, "InternalError")),
        n if n < REFUSED + TOO_MANY => Some(refuse(429, "TooManyRequests")),
        n if n < REFUSED + TOO_MANY + CONFLICT && is_write => Some(refuse(409, "Conflict")),
        _ => None,
    };
    if let Some(refused) = refused {
        trouble.refused.fetch_add(1, Ordering::Relaxed);
        return refused;
    }
    if on && trouble.roll() < SLOW {
        tokio::time::sleep(Duration::from_millis(500 + 30 * trouble.roll())).await;
    }
    let lose = on && is_write && trouble.roll() < LOST;
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, 16 << 20).await else { return refuse(400, "BadRequest") };
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let Ok(response) = upstream.send(request).await else { return refuse(502, "InternalError") };
    if lose {
        // The write happened, but its response is lost.
        trouble.refused.fetch_add(1, Ordering::Relaxed);
        return refuse(500, "InternalError");
    }
    let (parts, body) = response.into_parts();
    let body = Body::new(body);
    if !is_watch || !on {
        return Response::from_parts(parts, body);
    }
    // Watches end in the middle of a line after some bytes, or after some time.
    let mut left = usize::try_from(2000 + 300 * trouble.roll()).unwrap();
    let until = tokio::time::Instant::now() + Duration::from_millis(1500 + 60 * trouble.roll());
    trouble.cut.fetch_add(1, Ordering::Relaxed);
    let cut = body.into_data_stream().take_until(tokio::time::sleep_until(until)).map(move |chunk| {
        let mut chunk = chunk.map_err(std::io::Error::other)?;
        if left == 0 {
            return Err(std::io::Error::other("cut"));
        }
        let kept = chunk.split_to(chunk.len().min(left));
        left -= kept.len();
        Ok(kept)
    });
    Response::from_parts(parts, Body::from_stream(cut))
}
