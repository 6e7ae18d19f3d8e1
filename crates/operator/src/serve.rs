//! Probes over HTTP, and metrics over HTTP or HTTPS.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use k8s_openapi::jiff::Timestamp;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Format, Metrics};
use crate::serve_tls::{MetricsTls, TlsListener};

/// Length of the accept queue.
const BACKLOG: i32 = 128;

/// Where to listen, with Go's address syntax: `:8081`, `0.0.0.0:8081` and `[::]:8081` mean every address of this
/// machine, IPv6 and IPv4; anything else is a single address or host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Everywhere(u16),
    At(String, u16),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not an address; write :8080, 127.0.0.1:8080 or [::1]:8080");
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().map_err(|_| refuse())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        // Without brackets it is unclear where an IPv6 address ends.
        if bare.is_none() && host.contains(':') || bare.is_some_and(|host| host.parse::<Ipv6Addr>().is_err()) {
            return Err(refuse());
        }
        let everywhere = host.is_empty() || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        Ok(if everywhere { Listen::Everywhere(port) } else { Listen::At(host.to_owned(), port) })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Everywhere(port) => write!(f, ":{port}"),
            Listen::At(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Listen::At(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl Listen {
    pub(crate) fn port(&self) -> u16 {
        match self {
            Listen::Everywhere(port) | Listen::At(_, port) => *port,
        }
    }

    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        match self {
            Listen::Everywhere(port) => TcpListener::from_std(everywhere(*port, Socket::new)?.into()),
            Listen::At(host, port) => TcpListener::bind((host.as_str(), *port)).await,
        }
    }
}

/// Listens on IPv6 and IPv4 with one socket, or on IPv4 alone if IPv6 is disabled.
fn everywhere(
    port: u16,
    open: impl Fn(Domain, Type, Option<socket2::Protocol>) -> io::Result<Socket>,
) -> io::Result<Socket> {
    let listen = |domain, address: IpAddr| -> io::Result<Socket> {
        let socket = open(domain, Type::STREAM, None)?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::new(address, port).into())?;
        socket.listen(BACKLOG)?;
        Ok(socket)
    };
    match listen(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into()),
        listening => listening,
    }
}

/// Whether the operator is ready: it is the leader, or on standby, and its webhook, if there is one, has a certificate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ready {
    works: Arc<AtomicBool>,
    lacks_webhook: Arc<AtomicBool>,
}

impl Ready {
    pub(crate) fn set(&self) {
        self.works.store(true, Ordering::Relaxed);
    }

    /// From now on it is not ready without a webhook.
    pub(crate) fn wait_for_webhook(&self) {
        self.lacks_webhook.store(true, Ordering::Relaxed);
    }

    pub(crate) fn webhook_serves(&self) {
        self.lacks_webhook.store(false, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.works.load(Ordering::Relaxed) && !self.lacks_webhook.load(Ordering::Relaxed)
    }
}

/// Serves `/healthz` and `/readyz` until the token is cancelled. Returns the address it listens on.
pub(crate) async fn probes(at: &Listen, ready: Ready, until: CancellationToken) -> io::Result<SocketAddr> {
    let answer = move || async move {
        if ready.get() { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
    };
    serve(at, Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(answer)), until).await
}

/// Where metrics are served, and how.
#[derive(Debug, Clone)]
pub struct ServeMetrics {
    pub at: Listen,
    /// A path at which they are served besides `/metrics`.
    pub path: String,
    /// With TLS, if set.
    pub tls: Option<MetricsTls>,
}

impl ServeMetrics {
    /// Serves `/metrics` without TLS.
    pub fn plain(at: Listen) -> Self {
        ServeMetrics { at, path: METRICS.to_owned(), tls: None }
    }
}

/// Where metrics are always served.
const METRICS: &str = "/metrics";

/// Serves metrics until the token is cancelled, in the format that the client asks for.
pub(crate) async fn metrics(
    how: &ServeMetrics,
    metrics: Arc<Metrics>,
    until: CancellationToken,
) -> io::Result<SocketAddr> {
    let answer = move |headers: HeaderMap| async move {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let format = Format::accepted(accept);
        ([(CONTENT_TYPE, format.content_type())], metrics.text(format, Timestamp::now()))
    };
    let mut router = Router::new().route(METRICS, get(answer.clone()));
    if how.path != METRICS {
        router = router.route(&how.path, get(answer));
    }
    let Some(tls) = &how.tls else { return serve(&how.at, router, until).await };
    let listener = TlsListener::new(how.at.listen().await?, tls)?;
    let address = listener.address();
    spawn(axum::serve(listener, router).with_graceful_shutdown(until.cancelled_owned()).into_future(), address);
    Ok(address)
}

async fn serve(at: &Listen, router: Router, until: CancellationToken) -> io::Result<SocketAddr> {
    let listener = at.listen().await?;
    let address = listener.local_addr()?;
    spawn(axum::serve(listener, router).with_graceful_shutdown(until.cancelled_owned()).into_future(), address);
    Ok(address)
}

fn spawn(serving: impl Future<Output = io::Result<()>> + Send + 'static, address: SocketAddr) {
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, %address, "the HTTP server stopped");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        let read = |text: &str| text.parse::<Listen>();
        for everywhere in [":8081", "0.0.0.0:8081", "[::]:8081"] {
            assert_eq!(read(everywhere), Ok(Listen::Everywhere(8081)), "{everywhere}");
        }
        for one in ["127.0.0.1:8081", "[::1]:8081", "localhost:8081"] {
            assert_eq!(read(one).unwrap().to_string(), one);
            assert!(matches!(read(one), Ok(Listen::At(_, 8081))), "{one}");
        }
        for bad in ["", "8081", ":", ":http", "::1:8081", "[localhost]:8081", ":99999", "[::1]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn probes_answer_on_ipv6_and_ipv4() {
        let until = CancellationToken::new();
        let _end = until.clone().drop_guard();
        let port = probes(&Listen::Everywhere(0), Ready::default(), until).await.unwrap().port();
        let mut hosts = vec!["127.0.0.1"];
        match std::net::TcpListener::bind("[::1]:0") {
            Ok(_) => hosts.push("::1"),
            Err(_) => println!("this machine has no IPv6; testing IPv4 only"),
        }
        for host in hosts {
            let mut stream = TcpStream::connect((host, port)).await.unwrap_or_else(|e| panic!("{host}: {e}"));
            stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains("200 OK"), "{host}: {answer}");
        }
    }

    #[test]
    fn without_ipv6_everything_listens_on_ipv4() {
        let open = |domain, kind, protocol| match domain {
            Domain::IPV6 => Err(io::Error::from_raw_os_error(97)),
            _ => Socket::new(domain, kind, protocol),
        };
        let socket = everywhere(0, open).unwrap();
        assert!(socket.local_addr().unwrap().as_socket_ipv4().is_some());
    }

    #[test]
    fn a_taken_port_does_not_fall_back_to_ipv4() {
        let first = everywhere(0, Socket::new).unwrap();
        let port = first.local_addr().unwrap().as_socket().unwrap().port();
        assert_eq!(everywhere(port, Socket::new).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
