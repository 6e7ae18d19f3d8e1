//! Network requests to containers, for probes and hooks: HTTP, HTTPS, TCP and gRPC. The messages are a kubelet's.
//!
//! Certificates are not verified, as in a kubelet: a probe checks whether something answers, not who.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::HTTPHeader;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const MAX_REDIRECTS: usize = 10;

/// A request of a probe or hook.
#[derive(Debug, Clone)]
pub(super) struct HttpGet<'a> {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: &'a str,
    pub(super) headers: &'a [HTTPHeader],
    pub(super) agent: &'static str,
}

/// The status code of a GET. Redirects to the same host are followed; a redirect to another host is a result.
pub(super) async fn get(wanted: &HttpGet<'_>) -> Result<u16, String> {
    let scheme = |https: bool| if https { "https" } else { "http" };
    let mut url: Uri =
        format!("{}://{}:{}/{}", scheme(wanted.https), wanted.host, wanted.port, wanted.path.trim_start_matches('/'))
            .parse()
            .map_err(|e| format!("the path {:?} is not one: {e}", wanted.path))?;
    for _ in 0..=MAX_REDIRECTS {
        let (code, location) = get_once(&url, wanted).await.map_err(|why| format!("Get \"{url}\": {why}"))?;
        let Some(next) = location.filter(|_| matches!(code, 301 | 302 | 303 | 307 | 308)) else { return Ok(code) };
        let next: Uri = next.parse().map_err(|e| format!("Get \"{url}\": redirect to {next:?}: {e}"))?;
        if next.host().is_some_and(|h| h != wanted.host) {
            return Ok(code);
        }
        let mut parts = url.clone().into_parts();
        parts.scheme = next.scheme().cloned().or(parts.scheme);
        parts.authority = next.authority().cloned().or(parts.authority);
        parts.path_and_query = next.path_and_query().cloned().or(parts.path_and_query);
        url = Uri::from_parts(parts).map_err(|e| e.to_string())?;
    }
    Err(format!("Get \"{url}\": stopped after {MAX_REDIRECTS} redirects"))
}

async fn get_once(url: &Uri, wanted: &HttpGet<'_>) -> Result<(u16, Option<String>), String> {
    let https = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
    let stream = connect(url.host().unwrap_or(&wanted.host), port).await?;
    if https {
        let name = ServerName::try_from(wanted.host.clone()).map_err(|e| e.to_string())?;
        let tls = firesteel_tls::unchecked().map_err(|e| e.to_string())?.with_no_client_auth();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.map_err(|e| e.to_string())?;
        send(stream, url, wanted).await
    } else {
        send(stream, url, wanted).await
    }
}

async fn send<S>(stream: S, url: &Uri, wanted: &HttpGet<'_>) -> Result<(u16, Option<String>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    let path = url.path_and_query().map_or("/", |p| p.as_str());
    let mut request = Request::get(path)
        .header(header::HOST, url.authority().map(ToString::to_string).unwrap_or_default())
        .header(header::USER_AGENT, wanted.agent)
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close");
    for own in wanted.headers {
        // The probe's headers override the default ones.
        if let (Some(headers), Ok(name)) = (request.headers_mut(), header::HeaderName::try_from(own.name.as_str())) {
            let value = own.value.parse().map_err(|_| format!("header {} has a value that is none", own.name))?;
            headers.insert(name, value);
        }
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let location = response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    Ok((response.status().as_u16(), location))
}

/// Whether a TCP connection succeeds.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {host}:{port}: connect: connection refused"),
        _ => format!("dial tcp {host}:{port}: {error}"),
    })
}

const SERVING: u64 = 1;

/// Checks a container's gRPC health service (`grpc.health.v1.Health/Check`).
pub(super) async fn grpc(host: &str, port: u16, service: &str) -> Result<(), String> {
    let at = format!("{host}:{port}");
    let stream = connect(host, port).await.map_err(|e| format!("error: failed to connect service at \"{at}\": {e}"))?;
    let failed = |e: String| format!("error: health rpc probe failed: {e}");
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|e| failed(e.to_string()))?;
    tokio::spawn(connection);
    let request = Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, "kube-probe/1.35")
        .body(Full::new(health_request(service)))
        .map_err(|e| failed(e.to_string()))?;
    let response = sender.send_request(request).await.map_err(|e| failed(e.to_string()))?;
    let head = response.headers().clone();
    let body = response.into_body().collect().await.map_err(|e| failed(e.to_string()))?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let field = |name: &str| {
        let value = trailers.get(name).or_else(|| head.get(name))?;
        value.to_str().ok().map(str::to_owned)
    };
    let message = field("grpc-message").unwrap_or_default();
    match field("grpc-status").as_deref() {
        Some("0") => {}
        Some("12") => {
            return Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            ));
        }
        Some(code) => return Err(failed(format!("rpc error: code = {code} desc = {message}"))),
        None => return Err(failed("the answer has no grpc-status".to_owned())),
    }
    match health_status(&body.to_bytes()) {
        Some(SERVING) => Ok(()),
        Some(code) => {
            let name = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
            let name = usize::try_from(code).ok().and_then(|c| name.get(c)).copied().unwrap_or("?");
            Err(format!("service unhealthy (responded with \"{name}\")"))
        }
        None => Err(failed("the answer is no health status".to_owned())),
    }
}

/// `HealthCheckRequest { service = 1 }` in an uncompressed gRPC frame.
fn health_request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len() as u64);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    frame.freeze()
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or(0));
}

/// `HealthCheckResponse { status = 1 }`; the default (unknown) is not encoded.
fn health_status(frame: &[u8]) -> Option<u64> {
    let message = frame.get(5..)?;
    match message {
        [] => Some(0),
        [0x08, value, ..] if *value < 0x80 => Some(u64::from(*value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that knows the health of two services and nothing else.
    async fn health_server() -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    let asked = request.into_body().collect().await.expect("a body").to_bytes();
                    let (status, code) = match (path.as_str(), asked.get(7..).unwrap_or_default()) {
                        ("/grpc.health.v1.Health/Check", b"" | b"well") => (1_u8, "0"),
                        ("/grpc.health.v1.Health/Check", b"sick") => (2, "0"),
                        _ => (0, "5"),
                    };
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", code.parse().expect("a header"));
                    let body = Full::new(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]));
                    let body = body.with_trailers(async move { Some(Ok(trailers)) });
                    Ok::<_, std::convert::Infallible>(
                        http::Response::builder()
                            .header("content-type", "application/grpc")
                            .body(body)
                            .expect("an answer"),
                    )
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        port
    }

    #[tokio::test]
    async fn a_grpc_server_is_asked_for_its_health() {
        let port = health_server().await;
        assert_eq!(grpc("127.0.0.1", port, "").await, Ok(()));
        assert_eq!(grpc("127.0.0.1", port, "well").await, Ok(()));
        let said = |service: &'static str| async move { grpc("127.0.0.1", port, service).await.expect_err("unwell") };
        assert_eq!(said("sick").await, "service unhealthy (responded with \"NOT_SERVING\")");
        assert!(said("none").await.starts_with("error: health rpc probe failed: rpc error: code = 5"));
        let none = grpc("127.0.0.1", 9, "").await.expect_err("nobody there");
        assert!(none.starts_with("error: failed to connect service at \"127.0.0.1:9\""), "{none}");
    }

    #[test]
    fn health_messages_are_as_protocol_buffers_have_them() {
        assert_eq!(&health_request("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&health_request("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(health_status(&[0, 0, 0, 0, 2, 0x08, 1]), Some(SERVING));
        assert_eq!(health_status(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(health_status(&[0, 0]), None);
        let mut long = BytesMut::new();
        put_varint(&mut long, 300);
        assert_eq!(&long[..], [0xac, 2]);
    }
}
