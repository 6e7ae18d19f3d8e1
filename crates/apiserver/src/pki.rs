//! The cluster's certificates and secrets: one CA, the server's certificate, client certificates for users and for the server itself
//! when it connects to kubelets, the administrator's token, and the key that signs service account tokens.
//!
//! The administrator has a token instead of a certificate: not every client can read our keys (ECDSA in PKCS #8, which Spark's Java
//! client rejects), but every client supports tokens.
//!
//! With a data directory everything is persisted, so that kubeconfigs and tokens survive a restart.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("create certificates: {0}")]
    Make(#[from] rcgen::Error),
    #[error("set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("store certificates in {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("create the token key")]
    TokenKey,
    #[error("create the administrator's token")]
    AdminToken,
    #[error("a subject with more than one organization cannot be signed here")]
    Subject,
    #[error("set up client certificates: {0}")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate with its key, both in PEM.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

pub(crate) struct Pki {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) token_key: Vec<u8>,
    pub(crate) admin_token: String,
}

const YEARS: i64 = 10;

impl Pki {
    /// Loads the CA and keys from `directory`, or creates them.
    pub(crate) fn load_or_make(directory: Option<&Path>) -> Result<Self, PkiError> {
        let Some(directory) = directory else {
            let (ca_pem, key) = make_ca()?;
            let issuer = Issuer::from_ca_cert_pem(&ca_pem, key)?;
            return Ok(Self { ca_pem, issuer, token_key: make_token_key()?, admin_token: make_token()? });
        };
        let directory = directory.join("pki");
        let failed = |source| PkiError::File { path: directory.display().to_string(), source };
        std::fs::create_dir_all(&directory).map_err(failed)?;
        restrict(&directory, 0o700).map_err(failed)?;
        let [ca_file, key_file, token_file, admin_file] =
            ["ca.crt", "ca.key", "sa.key", "admin.token"].map(|name| directory.join(name));
        if !token_file.exists() {
            let (ca_pem, key) = make_ca()?;
            write_private(&ca_file, ca_pem.as_bytes()).map_err(failed)?;
            write_private(&key_file, key.serialize_pem().as_bytes()).map_err(failed)?;
            // Written last: its presence marks the others as complete.
            write_private(&token_file, &make_token_key()?).map_err(failed)?;
        }
        let ca_pem = std::fs::read_to_string(&ca_file).map_err(failed)?;
        let key = KeyPair::from_pem(&std::fs::read_to_string(&key_file).map_err(failed)?)?;
        let token_key = std::fs::read(&token_file).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key)?;
        // Separate from the rest: directories of earlier versions do not have it.
        let kept = std::fs::read_to_string(&admin_file).unwrap_or_default().trim().to_owned();
        let admin_token = if kept.is_empty() {
            let made = make_token()?;
            write_private(&admin_file, made.as_bytes()).map_err(failed)?;
            made
        } else {
            kept
        };
        Ok(Self { ca_pem, issuer, token_key, admin_token })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A client certificate: the common name is the user, organizations are groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Credentials, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        lifetime(&mut params);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Credentials, PkiError> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Credentials { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs a client's request: subject and key are the request's, the usages are ours.
    pub(crate) fn sign_request(&self, pem: &str, seconds: Option<i64>) -> Result<String, PkiError> {
        const YEAR: i64 = 365 * 86_400;
        let mut asked = rcgen::CertificateSigningRequestParams::from_pem(pem)?;
        // The library keeps only one organization and would drop the others.
        if organisations(pem).len() > 1 {
            return Err(PkiError::Subject);
        }
        asked.params.is_ca = IsCa::ExplicitNoCa;
        asked.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        asked.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        lifetime(&mut asked.params);
        let seconds = u64::try_from(seconds.unwrap_or(YEAR).clamp(600, YEAR)).unwrap_or(600);
        asked.params.not_after = (std::time::SystemTime::now() + std::time::Duration::from_secs(seconds)).into();
        Ok(asked.signed_by(&self.issuer)?.pem())
    }

    /// A serving certificate for other components.
    pub(crate) fn serving(&self, user: &str, groups: &[&str], names: &[String]) -> Result<Credentials, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups);
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        lifetime(&mut params);
        self.sign(&params)
    }

    /// The server's TLS configuration: its certificate covers `names`; clients may present certificates of the CA.
    pub(crate) fn server_config(&self, names: &[String]) -> Result<rustls::ServerConfig, PkiError> {
        let credentials = self.serving("kube-apiserver", &[], names)?;
        let (chain, key) = parsed(&credentials);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(&self.ca_pem) {
            roots.add(certificate)?;
        }
        let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn subject(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name.push(DnType::CommonName, user);
    name
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

fn lifetime(params: &mut CertificateParams) {
    // Backdated by half a day, for clock skew.
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    params.not_before = (now - day / 2).into();
    params.not_after = (now + day * 365 * u32::try_from(YEARS).unwrap_or(1)).into();
}

fn make_ca() -> Result<(String, KeyPair), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("kubernetes", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    lifetime(&mut params);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key))
}

fn make_token_key() -> Result<Vec<u8>, PkiError> {
    let random = ring::rand::SystemRandom::new();
    ring::signature::EcdsaKeyPair::generate_pkcs8(&ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random)
        .map(|document| document.as_ref().to_vec())
        .map_err(|_| PkiError::TokenKey)
}

/// 256 random bits as text.
fn make_token() -> Result<String, PkiError> {
    let mut bits = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bits).map_err(|_| PkiError::AdminToken)?;
    Ok(URL_SAFE_NO_PAD.encode(bits))
}

/// The organizations in a signing request's subject; none if it is invalid.
pub(crate) fn organisations(pem: &str) -> Vec<String> {
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::FromDer as _;
    let Ok((_, block)) = x509_parser::pem::parse_x509_pem(pem.as_bytes()) else { return Vec::new() };
    let Ok((_, parsed)) = X509CertificationRequest::from_der(&block.contents) else { return Vec::new() };
    let subject = &parsed.certification_request_info.subject;
    subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect()
}

/// The certificates in a PEM file.
pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

pub(crate) fn parsed(credentials: &Credentials) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    use rustls::pki_types::pem::PemObject as _;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())
        .unwrap_or_else(|_| PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(Vec::new())));
    (certificates(&credentials.certificate), key)
}

#[cfg(unix)]
pub(crate) fn restrict(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
pub(crate) fn restrict(_path: &Path, _mode: u32) -> std::io::Result<()> {
    Ok(())
}

/// Atomically writes a file that only its owner can read.
fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    // Restricted before anything is written.
    std::fs::write(&temporary, b"")?;
    restrict(&temporary, 0o600)?;
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, path)
}
