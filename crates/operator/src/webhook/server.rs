//! HTTPS for API servers: one address per kind. The certificate is looked up for every connection, so a new one needs no
//! restart and ends no connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, Response, StatusCode, header};
use axum::routing::post;
use firesteel_core::admission::Kind;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::crypto::CryptoProvider;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::review::Reviewer;
use super::{Served, pki};
use crate::options::WebhookOptions;

/// A review holds two versions of an object; API servers do not store objects of more than 1.5 MiB.
const LONGEST_BODY: usize = 8 << 20;
/// How long a client may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to serve on after the end was announced: API servers learn of it with a delay.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait for requests that are being answered.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted, such as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// TLS versions and cipher suites.
#[derive(Debug, Clone)]
pub struct Tls {
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
}

impl Default for Tls {
    fn default() -> Self {
        Tls { versions: rustls::ALL_VERSIONS.to_vec(), suites: pki::provider().cipher_suites }
    }
}

impl Tls {
    /// Reads the existing operator's flags. As with Go, cipher suites apply to TLS 1.2 only.
    pub fn parse(least: &str, suites: &[String]) -> Result<Self, String> {
        let mut tls = Tls::default();
        tls.versions = match least.trim() {
            "" | "VersionTLS12" | "1.2" => tls.versions,
            "VersionTLS13" | "1.3" => vec![&rustls::version::TLS13],
            other => {
                return Err(format!("--webhook-tls-min-version: `{other}` is neither VersionTLS12 nor VersionTLS13"));
            }
        };
        let name = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
        let named: Vec<&str> = suites.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        if let Some(unknown) = named.iter().find(|wanted| !tls.suites.iter().any(|suite| name(suite) == **wanted)) {
            let known: Vec<String> = tls.suites.iter().filter(|suite| suite.tls13().is_none()).map(name).collect();
            return Err(format!(
                "--webhook-tls-cipher-suites: `{unknown}` is not supported; choose from {}",
                known.join(", ")
            ));
        }
        if !named.is_empty() {
            tls.suites.retain(|suite| suite.tls13().is_some() || named.contains(&name(suite).as_str()));
        }
        Ok(tls)
    }

    fn config(&self, served: Arc<Served>) -> Result<ServerConfig, rustls::Error> {
        let provider = CryptoProvider { cipher_suites: self.suites.clone(), ..pki::provider() };
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)?
            .with_no_client_auth()
            .with_cert_resolver(served);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// Listens, and answers until the token is cancelled.
pub(super) async fn serve(
    options: &WebhookOptions,
    served: Arc<Served>,
    reviewer: Arc<Reviewer>,
    until: CancellationToken,
) -> anyhow::Result<JoinHandle<()>> {
    let acceptor = TlsAcceptor::from(Arc::new(options.tls.config(served)?));
    let listener = options.listen.listen().await?;
    tracing::info!(address = %listener.local_addr()?, "serving the webhook");
    // A webhook with an address of its own is not behind a Service.
    let farewell = if options.url.is_some() { Duration::ZERO } else { FAREWELL };
    Ok(tokio::spawn(accept(listener, acceptor, router(&reviewer), farewell, until)))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    farewell: Duration,
    until: CancellationToken,
) {
    let open = GracefulShutdown::new();
    let stop = async {
        until.cancelled().await;
        tokio::time::sleep(farewell).await;
    };
    tokio::pin!(stop);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match stream {
            Ok((stream, _)) => {
                let (acceptor, service, watcher) =
                    (acceptor.clone(), TowerToHyperService::new(router.clone()), open.watcher());
                tokio::spawn(async move {
                    let Some(stream) = handshake(&acceptor, stream).await else { return };
                    let builder = Builder::new(TokioExecutor::new());
                    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
                    // Clients may leave at any time.
                    let _ = watcher.watch(connection).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the webhook");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(PATIENCE, open.shutdown()).await.is_err() {
        tracing::warn!("the webhook stops with requests unanswered");
    }
}

async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake with the webhook failed");
            None
        }
        Err(_) => None,
    }
}

fn router(reviewer: &Arc<Reviewer>) -> Router {
    let mut router = Router::new();
    for kind in Kind::ALL {
        let reviewer = reviewer.clone();
        let answer = move |request: Request<Body>| {
            let reviewer = reviewer.clone();
            async move { Ok::<_, Infallible>(respond(&reviewer, kind, request).await) }
        };
        router = router.route_service(&kind.path(), post(async move |request: Request<Body>| answer(request).await));
    }
    router.layer(DefaultBodyLimit::disable())
}

async fn respond(reviewer: &Reviewer, kind: Kind, request: Request<Body>) -> Response<Body> {
    let problem = match axum::body::to_bytes(request.into_body(), LONGEST_BODY).await {
        Ok(body) => match reviewer.answer(kind, &body).await {
            Ok(answer) => {
                let json = (header::CONTENT_TYPE, "application/json");
                let response = Response::builder().header(json.0, json.1).body(Body::from(answer.to_string()));
                return response.unwrap_or_default();
            }
            Err(problem) => problem,
        },
        Err(error) => format!("the body cannot be read, or is longer than {LONGEST_BODY} bytes: {error}"),
    };
    tracing::warn!(problem, "refusing a request that is not an admission review");
    let mut response = Response::new(Body::from(Bytes::from(format!("{problem}\n"))));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_flags_are_read_as_go_names_them() {
        let parse = |least: &str, suites: &[&str]| {
            Tls::parse(least, &suites.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(parse("", &[]).unwrap().versions.len(), 2);
        assert_eq!(parse("VersionTLS13", &[]).unwrap().versions, [&rustls::version::TLS13]);
        let one =
            parse("VersionTLS12", &["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]).unwrap();
        assert_eq!(one.suites.iter().filter(|suite| suite.tls13().is_none()).count(), 1);
        assert!(parse("VersionTLS10", &[]).unwrap_err().starts_with("--webhook-tls-min-version: "));
        let refused = parse("", &["TLS_RSA_WITH_RC4_128_SHA"]).unwrap_err();
        assert!(refused.contains("choose from TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"), "{refused}");
    }
}
