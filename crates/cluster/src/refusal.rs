//! Turns an error of the Kubernetes API into one sentence: what was refused, why, and what to do about it.
//!
//! Pure. It recognises causes by the wording of the API server's messages.

use std::error::Error as StdError;
use std::io;

use kube::core::{ApiResource, GroupVersionKind, Status};

/// The request that failed.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// An API verb: `create`, `get`, `list`, `watch`, `patch`, `delete`.
    pub verb: &'a str,
    /// The kind in lower case: `pod`, `service`.
    pub kind: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    /// The address of the API server.
    pub server: &'a str,
}

/// The cluster rejected a request or could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Refused {
    sentence: String,
}

impl Attempt<'_> {
    /// The sentence for `error`, as an error.
    pub fn refused(&self, error: &kube::Error) -> Refused {
        Refused { sentence: self.sentence(error) }
    }

    /// Another object has this name.
    pub fn exists(&self) -> Refused {
        Refused { sentence: format!("{} already exists", self.object()) }
    }

    fn sentence(&self, error: &kube::Error) -> String {
        match error {
            kube::Error::Api(status) => self.answered(status),
            kube::Error::Auth(error) => {
                format!("cannot log in to {}: {}; check the user's entry in the kubeconfig", self.server, flat(error))
            }
            kube::Error::RustlsTls(error) => {
                format!("the certificates for {} cannot be used: {}; check the kubeconfig", self.server, flat(error))
            }
            other => self.unreachable(other),
        }
    }

    /// The kind's plural: `pods`, `networkpolicies`.
    fn kinds(&self) -> String {
        ApiResource::from_gvk(&GroupVersionKind::gvk("", "", self.kind)).plural
    }

    /// The object as the sentence names it.
    fn object(&self) -> String {
        match (self.namespace, self.name) {
            ("", "") => self.kinds(),
            ("", name) => format!("{} {name}", self.kind),
            (namespace, "") => format!("{} in namespace {namespace}", self.kinds()),
            (namespace, name) => format!("{} {namespace}/{name}", self.kind),
        }
    }

    /// The server responded with an error.
    fn answered(&self, status: &Status) -> String {
        let (object, namespace) = (self.object(), self.namespace);
        let message = said(&status.message);
        match status.code {
            401 => format!(
                "{} does not accept our credentials: they are wrong or have expired; log in again, or check the user of the kubeconfig's context",
                self.server
            ),
            403 => self.forbidden(&message),
            404 if self.verb == "create" && message.contains("namespaces") => format!(
                "there is no namespace {namespace}: create it with `firesteel setup -n {namespace} --create-namespace --apply`, or name another with spark.kubernetes.namespace"
            ),
            404 => format!("there is no {object}"),
            409 if status.is_already_exists() => format!("{object} already exists"),
            409 => format!("{object} was changed concurrently: {message}; try again"),
            413 => format!(
                "{object} is too large for the API server: {message}; put less into the configuration and its files"
            ),
            422 => format!("{object} is not valid: {}", without_prefix(&message, "is invalid: ")),
            429 => format!(
                "{} is overloaded and refused to {} {object}: {message}; try again later",
                self.server, self.verb
            ),
            code if message.contains("admission webhook") => {
                format!("{object} was refused by this cluster's admission control ({code}): {message}")
            }
            code @ 500.. => {
                format!("{} failed ({code}) to {} {object}: {message}; try again later", self.server, self.verb)
            }
            code => format!("{} refused ({code}) to {} {object}: {message}", self.server, self.verb),
        }
    }

    /// 403 has many causes: permissions, quotas, missing service accounts, security policies.
    fn forbidden(&self, message: &str) -> String {
        let (object, namespace) = (self.object(), self.namespace);
        let reason = without_prefix(message, "is forbidden: ");
        if let Some(at) = message.find("exceeded quota:") {
            return format!(
                "{object} does not fit the quota of namespace {namespace}: {}; ask for less, or have the quota raised",
                &message[at..]
            );
        }
        if reason.contains("failed quota:") {
            return format!("{object} does not fit the quota of namespace {namespace}: {reason}");
        }
        if reason.contains("service account") && reason.contains("not found") {
            let account = reason.split('"').nth(1).unwrap_or("spark");
            return format!(
                "{object} needs service account {account}, which namespace {namespace} does not have: create it with `firesteel setup -n {namespace} --service-account {account} --apply`, or set spark.kubernetes.authenticate.driver.serviceAccountName"
            );
        }
        if message.contains("being terminated") {
            return format!(
                "namespace {namespace} is being deleted and accepts no new objects; choose another with spark.kubernetes.namespace"
            );
        }
        if reason.contains("violates PodSecurity") {
            return format!(
                "{object} violates the pod security of namespace {namespace}: {reason}; set the security context in a pod template"
            );
        }
        if message.contains("admission webhook") || message.contains("ValidatingAdmissionPolicy") {
            return format!("{object} was refused by this cluster's admission control: {reason}");
        }
        if let Some(user) = between(message, "User \"", "\" cannot") {
            let scope = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
            let remedy = if namespace.is_empty() {
                "ask an administrator for this permission".to_owned()
            } else {
                format!("`firesteel setup -n {namespace}` prints the permissions needed")
            };
            return format!("{user} may not {} {}{scope}: {remedy}", self.verb, self.kinds());
        }
        format!("{object} is forbidden: {reason}; `firesteel setup -n {namespace}` prints the permissions needed")
    }

    /// There was no response.
    fn unreachable(&self, error: &kube::Error) -> String {
        let server = self.server;
        let mut source: Option<&(dyn StdError + 'static)> = Some(error);
        let mut deepest = error.to_string();
        while let Some(cause) = source {
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return untrusted(server, tls);
            }
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                match io.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        return format!("nothing listens at {server}: check --master and whether the API server runs");
                    }
                    io::ErrorKind::TimedOut => {
                        return format!("{server} did not answer in time: check --master, the network and its proxies");
                    }
                    io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                        return format!(
                            "{server} closed the connection: check that --master names an API server and whether it wants https"
                        );
                    }
                    io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                        return format!("there is no route to {server}: check --master and the network");
                    }
                    _ => {}
                }
            }
            deepest = cause.to_string();
            if deepest.contains("lookup address") || deepest.contains("dns error") {
                return format!("the host name in {server} cannot be resolved: check --master for a typo");
            }
            source = below(cause);
        }
        if matches!(error, kube::Error::SerdeError(_)) {
            return format!("{server} does not answer like a Kubernetes API server ({deepest}): check --master");
        }
        format!("cannot reach {server}: {}", said(&deepest))
    }
}

/// The next error in a chain, including the error that an I/O error wraps, which is not its source.
fn below<'e>(cause: &'e (dyn StdError + 'static)) -> Option<&'e (dyn StdError + 'static)> {
    let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    wrapped.map(|inner| -> &(dyn StdError + 'static) { inner }).or_else(|| cause.source())
}

/// Why TLS with the server failed.
fn untrusted(server: &str, error: &rustls::Error) -> String {
    use rustls::CertificateError as Cert;
    let remedy = "spark.kubernetes.authenticate.submission.caCertFile or the kubeconfig's certificate-authority";
    match error {
        rustls::Error::InvalidCertificate(Cert::UnknownIssuer) => {
            format!("the certificate of {server} is signed by an unknown authority: set its CA certificate in {remedy}")
        }
        rustls::Error::InvalidCertificate(Cert::Expired | Cert::ExpiredContext { .. }) => {
            format!("the certificate of {server} has expired: renew it")
        }
        rustls::Error::InvalidCertificate(Cert::NotValidForName | Cert::NotValidForNameContext { .. }) => {
            format!("the certificate of {server} is for another name: use an address it is valid for in --master")
        }
        rustls::Error::InvalidCertificate(other) => {
            format!("the certificate of {server} is not trusted ({other:?}): check {remedy}")
        }
        rustls::Error::InvalidMessage(_) => {
            format!("{server} does not speak TLS: use http:// in --master if that is intended")
        }
        rustls::Error::AlertReceived(alert) => {
            format!("{server} aborted the TLS handshake ({alert:?}): check the client certificate of the kubeconfig")
        }
        other => format!("no TLS connection with {server}: {other}"),
    }
}

/// A message on one line, truncated if long.
fn said(message: &str) -> String {
    let mut text = message.split_whitespace().collect::<Vec<_>>().join(" ");
    const MOST: usize = 600;
    if text.chars().count() > MOST {
        text = text.chars().take(MOST).collect::<String>() + " …";
    }
    text
}

fn without_prefix<'m>(message: &'m str, mark: &str) -> &'m str {
    message.find(mark).map_or(message, |at| &message[at + mark.len()..])
}

fn between<'m>(text: &'m str, before: &str, after: &str) -> Option<&'m str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

fn flat(error: &dyn StdError) -> String {
    said(&error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(code: u16, reason: &str, message: &str) -> String {
        let attempt =
            Attempt { verb: "create", kind: "pod", name: "pi-driver", namespace: "spark", server: "https://api:6443" };
        attempt.sentence(&kube::Error::Api(Status::failure(message, reason).with_code(code).boxed()))
    }

    #[test]
    fn every_refusal_is_one_sentence_with_a_remedy() {
        let all = [
            sentence(401, "Unauthorized", "Unauthorized"),
            sentence(
                403,
                "Forbidden",
                "pods is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"pods\" in API group \"\" in the namespace \"spark\"",
            ),
            sentence(
                403,
                "Forbidden",
                "pods \"pi-driver\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1",
            ),
            sentence(
                403,
                "Forbidden",
                "pods \"pi-driver\" is forbidden: error looking up service account spark/etl: serviceaccount \"etl\" not found",
            ),
            sentence(
                403,
                "Forbidden",
                "pods \"pi-driver\" is forbidden: unable to create new content in namespace spark because it is being terminated",
            ),
            sentence(
                403,
                "Forbidden",
                "pods \"pi-driver\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
            ),
            sentence(404, "NotFound", "namespaces \"spark\" not found"),
            sentence(409, "AlreadyExists", "pods \"pi-driver\" already exists"),
            sentence(
                422,
                "Invalid",
                "Pod \"pi-driver\" is invalid: spec.nodeName: Invalid value: \"A\":\n must be lower case",
            ),
            sentence(400, "BadRequest", "admission webhook \"policy.example.com\" denied the request: no latest tags"),
            sentence(500, "InternalError", "etcdserver: request timed out"),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn several_of_a_kind_are_named_by_their_plural() {
        let message =
            "networkpolicies.networking.k8s.io is forbidden: User \"ann\" cannot create resource \"networkpolicies\"";
        let attempt = |kind| Attempt { verb: "create", kind, name: "", namespace: "spark", server: "https://api:6443" };
        let refused = kube::Error::Api(Status::failure(message, "Forbidden").with_code(403).boxed());
        for (kind, plural) in [
            ("networkpolicy", "networkpolicies"),
            ("ingress", "ingresses"),
            ("configmap", "configmaps"),
            ("persistentvolumeclaim", "persistentvolumeclaims"),
        ] {
            assert_eq!(
                attempt(kind).sentence(&refused),
                format!(
                    "ann may not create {plural} in namespace spark: `firesteel setup -n spark` prints the permissions needed"
                )
            );
        }
    }

    #[test]
    fn refused_connection_names_the_server() {
        let attempt = Attempt { verb: "list", kind: "pod", name: "", namespace: "spark", server: "https://api:6443" };
        let error = kube::Error::Service(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        assert_eq!(
            attempt.sentence(&error),
            "nothing listens at https://api:6443: check --master and whether the API server runs"
        );
    }
}
