//! TLS clients with their own certificate checks. The API server checks webhooks itself. Only two clients accept any certificate: an
//! API server talking to kubelets, whose certificates are self-signed, and a kubelet probing containers. A client that sends
//! secrets must verify the server.
//!
//! Handshake signatures are always checked, so that a broken server does not pass for a healthy one.

use std::fmt;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};

/// A server's certificate and the context for checking it.
pub struct Presented<'a> {
    pub certificate: &'a CertificateDer<'a>,
    pub intermediates: &'a [CertificateDer<'a>],
    pub server_name: &'a ServerName<'a>,
    pub ocsp_response: &'a [u8],
    pub now: UnixTime,
}

/// A client that accepts any certificate. The caller adds its client certificate, if any.
pub fn unchecked() -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    checked_by(|_| Ok(()))
}

/// A client that accepts certificates that pass `check`. The caller adds its client certificate, if any.
pub fn checked_by(
    check: impl Fn(&Presented<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { check, provider })))
}

struct Verifier<F> {
    check: F,
    provider: Arc<CryptoProvider>,
}

impl<F> fmt::Debug for Verifier<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl<F: Fn(&Presented<'_>) -> Result<(), Error> + Send + Sync> ServerCertVerifier for Verifier<F> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.check)(&Presented { certificate, intermediates, server_name, ocsp_response, now })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
