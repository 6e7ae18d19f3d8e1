//! The webhook's certificates as text: read, checked and issued. What to do about them is decided by
//! `firesteel_core::certificates`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use firesteel_core::certificates::{Authority, Policy, Server, Stored, Validity};
use k8s_openapi::ByteString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

/// Certificates are valid from this long ago, for clocks that differ.
const BACKDATED: Duration = Duration::from_secs(300);
const END: &str = "-----END CERTIFICATE-----";

/// Keys of the Secret, as the existing operator names them.
const AUTHORITY: &str = "ca-cert.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// Keys of a Secret that cert-manager writes.
pub(super) const MANAGED: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// A certificate for the server, its key, and the authorities that clients trust, all in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Material {
    /// The authority in use first, then earlier ones. Empty if nobody knows it.
    pub authorities: String,
    /// Empty if somebody else issues the certificates.
    pub authority_key: String,
    pub certificate: String,
    pub key: String,
}

impl Material {
    /// What a Secret holds. Missing keys read as empty.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| data.get(key).map(|v| String::from_utf8_lossy(&v.0).into_owned()).unwrap_or_default();
        Material {
            authorities: text(AUTHORITY),
            authority_key: text(AUTHORITY_KEY),
            certificate: text(CERTIFICATE),
            key: text(KEY),
        }
    }

    /// What a Secret of cert-manager holds.
    pub(super) fn read_managed(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| data.get(key).map(|v| String::from_utf8_lossy(&v.0).into_owned()).unwrap_or_default();
        let [authorities, certificate, key] = MANAGED.map(text);
        Material { authorities, authority_key: String::new(), certificate, key }
    }

    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        [
            (AUTHORITY.to_owned(), bytes(&self.authorities)),
            (AUTHORITY_KEY.to_owned(), bytes(&self.authority_key)),
            (CERTIFICATE.to_owned(), bytes(&self.certificate)),
            (KEY.to_owned(), bytes(&self.key)),
        ]
        .into()
    }

    /// The authority that issued the certificate.
    pub(super) fn authority(&self) -> Option<String> {
        blocks(&self.authorities).into_iter().next()
    }

    /// When the server's certificate is valid.
    pub(super) fn validity(&self) -> Option<Validity> {
        validity(&blocks(&self.certificate).into_iter().next()?)
    }

    /// The facts that a decision needs.
    pub(super) fn stored(&self, names: &[String], now: Timestamp) -> Stored {
        let authority = self.authority().and_then(|pem| {
            let key = KeyPair::from_pem(&self.authority_key);
            let can_sign = key.is_ok_and(|key| Issuer::from_ca_cert_pem(&pem, key).is_ok());
            Some(Authority { validity: validity(&pem)?, can_sign })
        });
        let server = self.validity().map(|validity| Server {
            validity,
            is_for_us: self.lacks(names).is_none(),
            is_sound: self.certified().is_ok() && self.is_trusted(now),
        });
        Stored { authority, server }
    }

    /// Why a certificate that somebody else issued cannot be served.
    pub(super) fn fault(&self, names: &[String], now: Timestamp) -> Option<String> {
        if let Err(problem) = self.certified() {
            return Some(problem);
        }
        let validity = self.validity()?;
        if !validity.covers(now) {
            return Some(format!("the certificate is valid from {} to {} only", validity.from, validity.until));
        }
        if let Some(name) = self.lacks(names) {
            return Some(format!("the certificate is not for {name}, which API servers call"));
        }
        (!self.authorities.is_empty() && !self.is_trusted(now))
            .then(|| format!("the certificate was not issued by the authority in {}", MANAGED[0]))
    }

    /// A name that API servers call and the certificate does not have.
    fn lacks(&self, names: &[String]) -> Option<String> {
        let Some(der) = certificates(&self.certificate).into_iter().next() else { return names.first().cloned() };
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else { return names.first().cloned() };
        let extension = parsed.subject_alternative_name().ok().flatten();
        let has = |wanted: &String| {
            let all = extension.iter().flat_map(|extension| &extension.value.general_names);
            all.into_iter().any(|name| match (name, wanted.parse::<IpAddr>()) {
                (GeneralName::DNSName(dns), Err(_)) => dns.eq_ignore_ascii_case(wanted),
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(ip))) => **bytes == ip.octets(),
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(ip))) => **bytes == ip.octets(),
                _ => false,
            })
        };
        names.iter().find(|name| !has(name)).cloned()
    }

    /// Whether the authority in use issued the certificate.
    fn is_trusted(&self, now: Timestamp) -> bool {
        let chain = certificates(&self.certificate);
        let Some((end, between)) = chain.split_first() else { return false };
        let mut roots = RootCertStore::empty();
        if !certificates(&self.authorities).into_iter().all(|authority| roots.add(authority).is_ok())
            || roots.is_empty()
        {
            return false;
        }
        let provider = Arc::new(provider());
        let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
            return false;
        };
        let Ok(name) = ServerName::try_from("name.invalid") else { return false };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default()));
        // The chain is checked before the name, which is checked elsewhere.
        match verifier.verify_server_cert(end, between, &name, &[], at) {
            Ok(_) => true,
            Err(rustls::Error::InvalidCertificate(error)) => matches!(
                error,
                rustls::CertificateError::NotValidForName | rustls::CertificateError::NotValidForNameContext { .. }
            ),
            Err(_) => false,
        }
    }

    /// For the server: the chain and its key, which belong together.
    pub(super) fn certified(&self) -> Result<Arc<CertifiedKey>, String> {
        let chain = certificates(&self.certificate);
        if chain.is_empty() {
            return Err("there is no certificate in it".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())
            .map_err(|error| format!("its private key cannot be read: {error}"))?;
        let certified = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|error| format!("certificate and private key cannot be used together: {error}"))?;
        Ok(Arc::new(certified))
    }

    /// A new authority and a server certificate by it. Earlier authorities stay until they expire.
    pub(super) fn renew(&self, names: &[String], policy: &Policy, now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("firesteel-webhook-ca-{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        lifetime(&mut params, now, policy.authority);
        let authority = params.self_signed(&key)?.pem();
        let authorities: String = std::iter::once(authority).chain(self.unexpired(now)).collect();
        let renewed = Material { authorities, authority_key: key.serialize_pem(), ..Material::default() };
        renewed.issue(names, policy, now)
    }

    /// A new server certificate by the same authority.
    pub(super) fn issue(&self, names: &[String], policy: &Policy, now: Timestamp) -> Result<Self, rcgen::Error> {
        let authority = self.authority().ok_or(rcgen::Error::CouldNotParseCertificate)?;
        let issuer = Issuer::from_ca_cert_pem(&authority, KeyPair::from_pem(&self.authority_key)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(names.first().map_or("firesteel-webhook", String::as_str));
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        lifetime(&mut params, now, policy.server);
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Material {
            authorities: self.unexpired(now).collect(),
            authority_key: self.authority_key.clone(),
            certificate,
            key: key.serialize_pem(),
        })
    }

    /// The authorities that are still valid, the one in use first.
    pub(super) fn unexpired(&self, now: Timestamp) -> impl Iterator<Item = String> + use<> {
        let all = blocks(&self.authorities).into_iter();
        all.filter(move |pem| validity(pem).is_some_and(|validity| now < validity.until))
    }
}

pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// The certificates of a PEM text, each as its own text.
pub(super) fn blocks(pem: &str) -> Vec<String> {
    let parts =
        pem.split_inclusive(END).filter_map(|part| part.find("-----BEGIN CERTIFICATE-----").map(|at| &part[at..]));
    parts.filter(|part| part.ends_with(END)).map(|part| format!("{part}\n")).collect()
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

fn validity(pem: &str) -> Option<Validity> {
    let der = certificates(pem).into_iter().next()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some(Validity { from: time(parsed.validity().not_before)?, until: time(parsed.validity().not_after)? })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    // The longest common name that X.509 allows.
    subject.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    subject
}

fn alternative(name: &str) -> Result<SanType, rcgen::Error> {
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

fn lifetime(params: &mut CertificateParams, now: Timestamp, lasts: SignedDuration) {
    let now: SystemTime = now.into();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + Duration::try_from(lasts).unwrap_or_default()).into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use firesteel_core::certificates::{Step, step};

    const NOW: i64 = 1_700_000_000;

    fn policy() -> Policy {
        let seconds = SignedDuration::from_secs;
        Policy { server: seconds(1000), renew_before: seconds(400), authority: seconds(2000) }
    }

    fn names() -> Vec<String> {
        ["svc.ns.svc", "127.0.0.1"].map(str::to_owned).to_vec()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(NOW + seconds).unwrap()
    }

    fn next(material: &Material, now: Timestamp) -> Step {
        step(&material.stored(&names(), now), &policy(), now)
    }

    #[test]
    fn certificates_last_as_asked_and_overlap() {
        let first = Material::default().renew(&names(), &policy(), at(0)).unwrap();
        assert_eq!(next(&first, at(1)), Step::Keep { until: at(600) });
        assert!(matches!(next(&first, at(600)), Step::IssueServer { .. }));
        let second = first.issue(&names(), &policy(), at(600)).unwrap();
        assert_eq!(second.authorities, first.authorities);
        assert_ne!(second.certificate, first.certificate);
        assert_eq!(next(&second, at(601)), Step::Keep { until: at(1200) });
        assert!(matches!(next(&second, at(1200)), Step::Renew { .. }), "the authority would not outlive the next one");
        let third = second.renew(&names(), &policy(), at(1200)).unwrap();
        assert_eq!(blocks(&third.authorities).len(), 2, "the old one is trusted until it expires");
        assert_eq!(third.unexpired(at(1999)).count(), 2);
        assert_eq!(third.unexpired(at(2000)).count(), 1);
        assert_eq!(next(&third, at(1201)), Step::Keep { until: at(1800) });
        let fourth = third.issue(&names(), &policy(), at(2100)).unwrap();
        assert_eq!(blocks(&fourth.authorities).len(), 1);
    }

    #[test]
    fn what_does_not_belong_together_is_noticed() {
        let good = Material::default().renew(&names(), &policy(), at(0)).unwrap();
        let other = Material::default().renew(&names(), &policy(), at(0)).unwrap();
        assert_eq!(good.fault(&names(), at(1)), None);
        let faults = [
            (Material { key: other.key.clone(), ..good.clone() }, "cannot be used together"),
            (Material { key: "x".to_owned(), ..good.clone() }, "private key cannot be read"),
            (Material { certificate: String::new(), ..good.clone() }, "no certificate in it"),
            (Material { authorities: other.authorities.clone(), ..good.clone() }, "was not issued by"),
            (good.issue(&["other.ns.svc".to_owned()], &policy(), at(0)).unwrap(), "is not for svc.ns.svc"),
        ];
        for (material, words) in faults {
            let fault = material.fault(&names(), at(1)).unwrap_or_default();
            assert!(fault.contains(words), "{fault}");
            assert!(!matches!(next(&material, at(1)), Step::Keep { .. }), "{words}");
        }
        assert!(good.fault(&names(), at(1000)).unwrap().contains("is valid from"));
        assert!(matches!(next(&Material::default(), at(0)), Step::Renew { .. }));
    }

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        let material = Material::default().renew(&names(), &policy(), at(0)).unwrap();
        assert_eq!(Material::read(&material.data()), material);
        let keys: Vec<String> = material.data().into_keys().collect();
        assert_eq!(keys, ["ca-cert.pem", "ca-key.pem", "server-cert.pem", "server-key.pem"]);
    }
}
