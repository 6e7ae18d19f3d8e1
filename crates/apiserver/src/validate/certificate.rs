//! Certificate signing requests: their contents, and which updates are allowed.

use base64::Engine as _;
use serde_json::Value;
use x509_parser::prelude::FromDer as _;

use super::{each, text};
use crate::status::Cause;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn request(object: &Value, causes: &mut Vec<Cause>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    if let Err(why) = readable(text(spec, "request")) {
        let shown = spec.get("request").cloned().unwrap_or_default();
        causes.push(Cause::invalid("spec.request", &shown, why));
    }
    let usages: Vec<&str> =
        spec.get("usages").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            causes.push(Cause::unsupported(format!("spec.usages[{at}]"), &(*usage).into(), &USAGES));
        }
    }
    for (at, usage) in usages.iter().enumerate() {
        if usages[..at].contains(usage) {
            causes.push(Cause::duplicate(format!("spec.usages[{at}]"), &(*usage).into()));
        }
    }
    signer(text(spec, "signerName"), causes);
    if let Some(seconds) = spec.get("expirationSeconds").and_then(Value::as_i64).filter(|s| *s < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", &seconds.into(), why));
    }
}

fn signer(name: &str, causes: &mut Vec<Cause>) {
    const FIELD: &str = "spec.signerName";
    if name.is_empty() {
        causes.push(Cause::required(FIELD, ""));
        return;
    }
    if name == "kubernetes.io/legacy-unknown" {
        causes.push(Cause::invalid(FIELD, &name.into(), "the legacy signerName is not allowed via this API version"));
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, path] = segments[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        causes.push(Cause::invalid(FIELD, &name.into(), why));
        return;
    };
    let mut labels = |part: &str, complaint: fn(&str) -> Option<String>| {
        let wrong = part.split('.').find_map(|label| Some((label, complaint(label)?)));
        causes
            .extend(wrong.map(|(label, why)| {
                Cause::invalid(FIELD, &part.into(), &format!("validating label {label:?}: {why}"))
            }));
    };
    labels(domain, crate::names::label_complaint);
    labels(path, crate::names::subdomain_complaint);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        causes.push(Cause::invalid(FIELD, &domain.into(), why));
    }
}

/// Whether the text is base64 of a PEM-encoded signing request.
fn readable(request: &str) -> Result<(), &'static str> {
    const NO_BLOCK: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = base64::engine::general_purpose::STANDARD.decode(request).map_err(|_| NO_BLOCK)?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| NO_BLOCK)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(NO_BLOCK);
    }
    let parsed = x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents);
    let (_, parsed) = parsed.map_err(|_| "asn1: structure error: tags don't match")?;
    parsed.verify_signature().map_err(|_| "x509: signature verification failed")
}

/// Forbidden updates: revoking a decision, deciding outside `approval`, or setting the certificate outside `status`.
pub(super) fn update(subresource: &str, old: &Value, next: &Value, causes: &mut Vec<Cause>) {
    const FIELD: &str = "status.conditions";
    conditions(next, causes);
    let of = |object: &Value, kind: &str| -> Vec<Value> {
        let status = object.get("status").unwrap_or(&Value::Null);
        each(status, "conditions").into_iter().filter(|c| text(c, "type") == kind).cloned().collect()
    };
    for kind in [APPROVED, DENIED, FAILED] {
        if of(next, kind).len() < of(old, kind).len() {
            causes.push(Cause::forbidden(FIELD, &format!("updates may not remove a condition of type {kind:?}")));
        }
    }
    for kind in [APPROVED, DENIED].into_iter().filter(|_| subresource != "approval") {
        let (before, after) = (of(old, kind), of(next, kind));
        if after.len() > before.len() {
            causes.push(Cause::forbidden(FIELD, &format!("updates may not add a condition of type {kind:?}")));
        } else if after.len() == before.len() && after != before {
            causes.push(Cause::forbidden(FIELD, &format!("updates may not modify a condition of type {kind:?}")));
        }
    }
    let certificate = |object: &Value| crate::meta::text(object, "/status/certificate").to_owned();
    if certificate(old) != certificate(next) {
        let why = match subresource {
            "status" if certificate(old).is_empty() => None,
            "status" => Some("updates may not modify existing certificate content"),
            _ => Some("updates may not set certificate content"),
        };
        causes.extend(why.map(|why| Cause::forbidden("status.certificate", why)));
    }
}

fn conditions(object: &Value, causes: &mut Vec<Cause>) {
    let all = each(object.get("status").unwrap_or(&Value::Null), "conditions");
    for (at, condition) in all.iter().enumerate() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let field = format!("status.conditions[{at}]");
        if kind.is_empty() {
            causes.push(Cause::required(format!("{field}.type"), ""));
        }
        let final_ = [APPROVED, DENIED, FAILED].contains(&kind);
        let possible: &[&str] = if final_ { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            causes.push(Cause::required(format!("{field}.status"), ""));
        } else if !possible.contains(&status) {
            causes.push(Cause::unsupported(format!("{field}.status"), &status.into(), possible));
        }
        let earlier = |wanted: &str| all[..at].iter().any(|c| text(c, "type") == wanted);
        if (kind == APPROVED && earlier(DENIED)) || (kind == DENIED && earlier(APPROVED)) {
            let why = "Approved and Denied conditions are mutually exclusive";
            causes.push(Cause::invalid("status.conditions", &kind.into(), why));
        }
        if earlier(kind) {
            causes.push(Cause::duplicate(format!("{field}.type"), &kind.into()));
        }
    }
}
