//! Outgoing TLS connections to kubelets (with the server's client certificate) and to webhooks.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use firesteel_tls::Presented;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::pki::Credentials;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// TLS to kubelets: their certificates are self-signed and not verified, the real server's default.
pub(crate) fn kubelet_tls(own: &Credentials) -> Result<ClientConfig, rustls::Error> {
    let (chain, key) = crate::pki::parsed(own);
    firesteel_tls::unchecked()?.with_client_auth_cert(chain, key)
}

/// The system's CA bundles.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// TLS to a webhook with this CA bundle (PEM); if it is empty, the system's CAs are trusted.
pub(crate) fn webhook_tls(authority: &str) -> Result<ClientConfig, rustls::Error> {
    let given = crate::pki::certificates(authority);
    let mut roots = RootCertStore::empty();
    if given.is_empty() {
        let bundle = SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        roots.add_parsable_certificates(crate::pki::certificates(&bundle));
    }
    for certificate in &given {
        roots.add(certificate.clone())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))?;
    Ok(firesteel_tls::checked_by(move |shown| check(shown, &usual, &given))?.with_no_client_auth())
}

/// Verifies a webhook's certificate. The bundle may contain the server's own certificate (self-signed, as made with one openssl
/// command); then only its name and validity are checked.
fn check(
    shown: &Presented<'_>,
    usual: &WebPkiServerVerifier,
    given: &[CertificateDer<'static>],
) -> Result<(), rustls::Error> {
    let &Presented { certificate, intermediates, server_name, ocsp_response, now } = shown;
    if !given.iter().any(|c| c.as_ref() == certificate.as_ref()) {
        let verified = usual.verify_server_cert(certificate, intermediates, server_name, ocsp_response, now);
        // For example a CA that serves with its own certificate: still unknown.
        return verified.map(|_| ()).map_err(|error| match error {
            rustls::Error::InvalidCertificate(rustls::CertificateError::Other(_)) => {
                rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)
            }
            other => other,
        });
    }
    let bad = || rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| bad())?;
    let seconds = i64::try_from(now.as_secs()).map_err(|_| bad())?;
    let time = x509_parser::time::ASN1Time::from_timestamp(seconds).map_err(|_| bad())?;
    if !parsed.validity().is_valid_at(time) {
        return Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Expired));
    }
    let certificate = rustls::server::ParsedCertificate::try_from(certificate)?;
    rustls::client::verify_server_name(&certificate, server_name)
}

/// Sends one request over a new connection; supports upgrades.
pub(crate) async fn send(
    tls: Arc<ClientConfig>,
    host: &str,
    port: u16,
    server_name: &str,
    request: Request<Body>,
) -> Result<Response<Incoming>, String> {
    let connect = TcpStream::connect((host, port));
    let stream = tokio::time::timeout(CONNECT_LIMIT, connect)
        .await
        .map_err(|_| format!("dial tcp {host}:{port}: i/o timeout"))?
        .map_err(|e| format!("dial tcp {host}:{port}: connect: {}", reason(&e)))?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::try_from(server_name.to_owned()).map_err(|e| e.to_string())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|e| tls_words(&e))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(|e| e.to_string())
}

/// Go's message for a failed handshake.
fn tls_words(error: &std::io::Error) -> String {
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(why) => certificate_words(why),
        None => format!("tls: {error}"),
    }
}

pub(crate) fn certificate_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".into()
        }
        rustls::Error::InvalidCertificate(rustls::CertificateError::Expired) => {
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".into()
        }
        _ => format!("tls: {error}"),
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        _ => error.to_string(),
    }
}
