//! Java's trusted certificates as a JKS file, made from PEM files.
//!
//! Debian creates this file with Java during installation. Nothing is installed here, so we write it directly.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The password every Java expects; the file holds no secret.
const PASSWORD: &str = "changeit";
const WHITENING: &[u8] = b"Mighty Aphrodite";
const MAGIC: u32 = 0xFEED_FEED;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;

/// A trust store from (name, PEM) pairs. Entries that are not certificates are skipped.
pub(super) fn from_pem(certificates: &[(String, String)]) -> Vec<u8> {
    let entries: Vec<(String, Vec<u8>)> =
        certificates.iter().filter_map(|(name, pem)| Some((alias(name), decode(pem)?))).collect();
    let mut out = Vec::new();
    out.extend(MAGIC.to_be_bytes());
    out.extend(VERSION.to_be_bytes());
    out.extend((entries.len() as u32).to_be_bytes());
    for (alias, certificate) in &entries {
        out.extend(TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut out, alias);
        // The creation time is zero, so that the same certificates give the same file.
        out.extend(0_u64.to_be_bytes());
        text(&mut out, "X.509");
        out.extend((certificate.len() as u32).to_be_bytes());
        out.extend(certificate);
    }
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    digest.update(&password);
    digest.update(WHITENING);
    digest.update(&out);
    out.extend(digest.finish().as_ref());
    out
}

/// Aliases are lower-case ASCII, as with `keytool`.
fn alias(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".crt");
    name.chars().map(|c| if c.is_ascii() { c.to_ascii_lowercase() } else { '_' }).collect()
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

fn decode(pem: &str) -> Option<Vec<u8>> {
    let inside = pem.split("-----BEGIN CERTIFICATE-----").nth(1)?.split("-----END CERTIFICATE-----").next()?;
    let letters: String = inside.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(letters).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_shape_of_a_key_store() {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(b"DER"));
        let all = [("mozilla/Some_CA.crt".to_owned(), pem), ("broken".to_owned(), "nothing".to_owned())];
        let bytes = from_pem(&all);
        assert_eq!(&bytes[..12], [0xFE, 0xED, 0xFE, 0xED, 0, 0, 0, 2, 0, 0, 0, 1]);
        assert_eq!(bytes.len(), 12 + 4 + 2 + "some_ca".len() + 8 + 2 + 5 + 4 + 3 + 20);
        assert_eq!(bytes, from_pem(&all), "the same bytes every time");
    }
}
