//! TLS for the metrics: versions, cipher suites and certificates.
//!
//! Without a certificate of its own the operator makes one at each start and signs it itself, as controller-runtime does:
//! the connection is encrypted, and clients must not verify it. A certificate from files is read again when they change.
//! Handshakes run beside each other, so that a silent client holds up nobody.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections whose handshake is done and that wait to be served.
const ACCEPTED: usize = 16;
/// The wait after an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// The lowest version that is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    #[default]
    Tls12,
    Tls13,
}

/// Where the certificate comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Certificate {
    /// Made at start.
    #[default]
    SelfSigned,
    /// PEM files.
    Files { certificate: PathBuf, key: PathBuf },
}

/// How metrics are served over TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsTls {
    pub certificate: Certificate,
    pub min_version: TlsVersion,
    /// Cipher suites of TLS 1.2 by their IANA names; all, if empty. Those of TLS 1.3 are fixed.
    pub cipher_suites: Vec<String>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

impl MetricsTls {
    /// Checks cipher suites by name, as Go writes them; the error names those that can be used.
    pub fn check_cipher_suites(names: &[String]) -> Result<(), String> {
        let known = suites(&ring::default_provider());
        match names.iter().find(|name| !known.contains(&iana(name)) && !is_tls13(name)) {
            None => Ok(()),
            Some(name) => Err(format!("`{name}` is not offered; use {}", known.join(", "))),
        }
    }

    fn config(&self) -> io::Result<ServerConfig> {
        let mut provider = ring::default_provider();
        let wanted: Vec<String> = self.cipher_suites.iter().map(|name| iana(name)).collect();
        if wanted.iter().any(|name| !is_tls13(name)) {
            provider.cipher_suites.retain(|suite| {
                suite.tls13().is_some() || suite.suite().as_str().is_some_and(|name| wanted.iter().any(|w| w == name))
            });
        }
        let provider = Arc::new(provider);
        let versions: &[_] = match self.min_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS12, &rustls::version::TLS13],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
        let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
        let certificates: Arc<dyn ResolvesServerCert> = match &self.certificate {
            Certificate::SelfSigned => Arc::new(Fixed(self_signed(&provider)?)),
            Certificate::Files { certificate, key } => {
                Arc::new(Files::new(certificate.clone(), key.clone(), provider)?)
            }
        };
        let mut config = builder.with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(config)
    }
}

/// Names of the cipher suites of TLS 1.2.
fn suites(provider: &CryptoProvider) -> Vec<String> {
    let suites = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
    suites.filter_map(|suite| suite.suite().as_str().map(str::to_owned)).collect()
}

/// Go has short names for two suites.
fn iana(name: &str) -> String {
    if name.ends_with("_CHACHA20_POLY1305") { format!("{name}_SHA256") } else { name.to_owned() }
}

/// Suites of TLS 1.3 may be named and are always offered, as in Go.
fn is_tls13(name: &str) -> bool {
    matches!(name, "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256")
}

fn self_signed(provider: &CryptoProvider) -> io::Result<Arc<CertifiedKey>> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), host];
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certified = CertifiedKey::from_der(vec![made.cert.der().clone()], key, provider).map_err(io::Error::other)?;
    Ok(Arc::new(certified))
}

#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// A certificate from files, read again when they change.
#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<(Changed, Arc<CertifiedKey>)>,
}

/// When both files last changed.
type Changed = (Option<SystemTime>, Option<SystemTime>);

impl Files {
    fn new(certificate: PathBuf, key: PathBuf, provider: Arc<CryptoProvider>) -> io::Result<Self> {
        let loaded = (changed(&certificate, &key), load(&certificate, &key, &provider)?);
        Ok(Files { certificate, key, provider, loaded: Mutex::new(loaded) })
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&self.certificate, &self.key);
        if changed != loaded.0 {
            match load(&self.certificate, &self.key, &self.provider) {
                Ok(fresh) => *loaded = (changed, fresh),
                // The files may be half written; the next handshake tries again.
                Err(error) => {
                    tracing::warn!(%error, "the metrics' certificate changed and cannot be read; using the old one");
                }
            }
        }
        Some(loaded.1.clone())
    }
}

fn changed(certificate: &Path, key: &Path) -> Changed {
    let of = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    (of(certificate), of(key))
}

fn load(certificate: &Path, key: &Path, provider: &CryptoProvider) -> io::Result<Arc<CertifiedKey>> {
    let problem = |path: &Path, error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| problem(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| problem(key, &error))?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| problem(certificate, &error))?;
    Ok(Arc::new(certified))
}

/// Accepts connections and does their handshakes.
pub(crate) struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, tls: &MetricsTls) -> io::Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(tls.config()?));
        let address = listener.local_addr()?;
        let (send, accepted) = mpsc::channel(ACCEPTED);
        // Ends with the receiver.
        tokio::spawn(async move {
            loop {
                let connection = tokio::select! {
                    connection = listener.accept() => connection,
                    () = send.closed() => return,
                };
                let (stream, from) = match connection {
                    Ok(connection) => connection,
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a connection for metrics");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                };
                let (acceptor, send) = (acceptor.clone(), send.clone());
                tokio::spawn(async move {
                    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => drop(send.send((stream, from)).await),
                        Ok(Err(error)) => tracing::debug!(%error, %from, "a TLS handshake for metrics failed"),
                        Err(_) => tracing::debug!(%from, "a TLS handshake for metrics took too long"),
                    }
                });
            }
        });
        Ok(TlsListener { address, accepted })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The accepting task lives as long as this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Metrics, MetricsOptions};
    use crate::serve::{self, Listen, ServeMetrics};
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{ClientConfig, DigitallySignedStruct, ProtocolVersion, SignatureScheme, SupportedProtocolVersion};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_util::sync::CancellationToken;

    /// Accepts any certificate.
    #[derive(Debug)]
    struct Any(Arc<CryptoProvider>);

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }

    /// Serves metrics; returns the port.
    async fn serve(tls: MetricsTls, until: CancellationToken) -> u16 {
        let how =
            ServeMetrics { at: Listen::At("127.0.0.1".to_owned(), 0), path: "/elsewhere".to_owned(), tls: Some(tls) };
        let metrics = Arc::new(Metrics::new(&MetricsOptions::default(), Default::default()));
        serve::metrics(&how, metrics, until).await.unwrap().port()
    }

    /// The version, the cipher suite, the certificate and the response to a request.
    async fn get(
        port: u16,
        versions: &[&'static SupportedProtocolVersion],
        path: &str,
    ) -> io::Result<(ProtocolVersion, String, Vec<u8>, String)> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Any(provider)));
        let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        let (_, connection) = stream.get_ref();
        let suite = connection.negotiated_cipher_suite().unwrap().suite().as_str().unwrap().to_owned();
        let certificate = connection.peer_certificates().unwrap()[0].to_vec();
        Ok((connection.protocol_version().unwrap(), suite, certificate, text))
    }

    const TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
    const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];

    #[tokio::test]
    async fn metrics_are_served_over_tls_with_a_certificate_made_at_start() {
        let until = CancellationToken::new();
        let _end = until.clone().drop_guard();
        let port = serve(MetricsTls::default(), until).await;
        for path in ["/metrics", "/elsewhere"] {
            let (version, _, _, text) = get(port, BOTH, path).await.unwrap();
            assert_eq!(version, ProtocolVersion::TLSv1_3);
            assert!(text.starts_with("HTTP/1.1 200") && text.contains("firesteel_build_info"), "{text}");
        }
        assert_eq!(get(port, TLS12, "/metrics").await.unwrap().0, ProtocolVersion::TLSv1_2);
    }

    #[tokio::test]
    async fn version_and_cipher_suites_are_those_of_the_flags() {
        let until = CancellationToken::new();
        let _end = until.clone().drop_guard();
        let newer = MetricsTls { min_version: TlsVersion::Tls13, ..MetricsTls::default() };
        assert!(get(serve(newer, until.clone()).await, TLS12, "/metrics").await.is_err(), "TLS 1.2 is refused");
        let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
        let one = MetricsTls { cipher_suites: vec![suite.to_owned()], ..MetricsTls::default() };
        let (_, used, ..) = get(serve(one, until).await, TLS12, "/metrics").await.unwrap();
        assert_eq!(used, format!("{suite}_SHA256"));
    }

    #[test]
    fn cipher_suites_that_are_not_offered_are_named() {
        let check = |name: &str| MetricsTls::check_cipher_suites(&[name.to_owned()]);
        assert_eq!(check("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), Ok(()));
        assert_eq!(check("TLS_AES_128_GCM_SHA256"), Ok(()));
        let refused = check("TLS_RSA_WITH_AES_128_CBC_SHA").unwrap_err();
        assert!(refused.starts_with("`TLS_RSA_WITH_AES_128_CBC_SHA` is not offered; use TLS_ECDHE_"), "{refused}");
    }

    #[tokio::test]
    async fn a_certificate_from_files_is_read_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let write = |time: u64| {
            let made = rcgen::generate_simple_self_signed(["metrics.example".to_owned()]).unwrap();
            for (path, text) in [(&certificate, made.cert.pem()), (&key, made.signing_key.serialize_pem())] {
                fs::write(path, text).unwrap();
                let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + time);
                fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
            }
            made.cert.der().to_vec()
        };
        let first = write(0);
        let until = CancellationToken::new();
        let _end = until.clone().drop_guard();
        let files = Certificate::Files { certificate: certificate.clone(), key: key.clone() };
        let port = serve(MetricsTls { certificate: files, ..MetricsTls::default() }, until).await;
        assert_eq!(get(port, BOTH, "/metrics").await.unwrap().2, first);
        let second = write(60);
        assert_eq!(get(port, BOTH, "/metrics").await.unwrap().2, second);
        fs::write(&certificate, "no certificate").unwrap();
        assert_eq!(get(port, BOTH, "/metrics").await.unwrap().2, second, "the old one stays in use");
    }
}
