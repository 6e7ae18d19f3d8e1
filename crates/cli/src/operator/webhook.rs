//! Flags of the validating webhook. Those of the existing operator's `webhook` command keep their names and meaning.

use std::path::PathBuf;

use firesteel_core::certificates::Policy;
use firesteel_operator::{Certificates, FailurePolicy, Listen, Tls, WebhookOptions};

use super::flags::{Duration, Toggle};
use super::signed;
use crate::exit::BadInput;

#[derive(Debug, clap::Args)]
pub(crate) struct WebhookArgs {
    /// Serve a validating webhook: API servers ask it before they store an application, a schedule or a Connect server
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_webhook: Toggle,
    /// Port of the webhook
    #[arg(long, value_name = "PORT", default_value_t = 9443)]
    webhook_port: u16,
    /// Service that leads to the webhook; its port is --webhook-port
    #[arg(long, value_name = "NAME", default_value = "spark-operator-webhook-svc")]
    webhook_svc_name: String,
    /// Namespace of that Service
    #[arg(long, value_name = "NAMESPACE", default_value = "spark-operator")]
    webhook_svc_namespace: String,
    /// Where API servers reach the webhook without a Service, for an operator outside the cluster; begins with https
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Name of the ValidatingWebhookConfiguration, which the operator creates and keeps current
    #[arg(long, value_name = "NAME", default_value = "spark-operator-webhook")]
    validating_webhook_name: String,
    /// What API servers do while the webhook does not answer: Fail stores nothing, Ignore everything
    #[arg(long, value_name = "POLICY", default_value = "Fail", value_parser = failure_policy)]
    webhook_failure_policy: FailurePolicy,
    /// Secret with the webhook's certificates
    #[arg(long, value_name = "NAME", default_value = "spark-operator-webhook-certs")]
    webhook_secret_name: String,
    /// Namespace of that Secret
    #[arg(long, value_name = "NAMESPACE", default_value = "spark-operator")]
    webhook_secret_namespace: String,
    /// How long a certificate of the webhook is valid
    #[arg(long, value_name = "DURATION", default_value = "2160h")]
    webhook_cert_duration: Duration,
    /// How long before it expires a certificate is renewed
    #[arg(long, value_name = "DURATION", default_value = "720h")]
    webhook_cert_renew_before: Duration,
    /// How long the authority that issues the webhook's certificates is valid
    #[arg(long, value_name = "DURATION", default_value = "26280h")]
    webhook_ca_duration: Duration,
    /// Take the webhook's certificate from cert-manager: from the Secret, or from --webhook-cert-dir
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_cert_manager: Toggle,
    /// cert-manager's Certificate from which it injects the bundle; without it, the operator writes ca.crt into the bundle
    #[arg(long, value_name = "NAME")]
    webhook_certificate_name: Option<String>,
    /// Directory with a mounted certificate, for --enable-cert-manager
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_dir: Option<PathBuf>,
    /// File of the certificate in --webhook-cert-dir
    #[arg(long, value_name = "FILE", default_value = "tls.crt")]
    webhook_cert_name: String,
    /// File of the private key in --webhook-cert-dir
    #[arg(long, value_name = "FILE", default_value = "tls.key")]
    webhook_key_name: String,
    /// Refuse applications that do not fit the ResourceQuotas of their namespace
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_resource_quota_enforcement: Toggle,
    /// Least TLS version of the webhook: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    webhook_tls_min_version: String,
    /// Comma-separated cipher suites of the webhook for TLS 1.2, by their Go names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    webhook_tls_cipher_suites: Vec<String>,
}

fn failure_policy(text: &str) -> Result<FailurePolicy, String> {
    match text {
        "Fail" => Ok(FailurePolicy::Fail),
        "Ignore" => Ok(FailurePolicy::Ignore),
        _ => Err("write Fail or Ignore".to_owned()),
    }
}

impl WebhookArgs {
    /// The settings; `None` if the webhook is off.
    pub(crate) fn options(&self) -> Result<Option<WebhookOptions>, BadInput> {
        if !self.enable_webhook.0 {
            return match self.enable_resource_quota_enforcement.0 {
                true => Err(BadInput(
                    "--enable-resource-quota-enforcement: quotas are checked by the webhook; add --enable-webhook"
                        .to_owned(),
                )),
                false => Ok(None),
            };
        }
        if let Some(url) = &self.webhook_url
            && !url.starts_with("https://")
        {
            return Err(BadInput(format!("--webhook-url: `{url}` does not start with https://")));
        }
        Ok(Some(WebhookOptions {
            listen: Listen::Everywhere(self.webhook_port),
            service: (self.webhook_svc_namespace.clone(), self.webhook_svc_name.clone()),
            url: self.webhook_url.clone(),
            configuration: self.validating_webhook_name.clone(),
            secret: (self.webhook_secret_namespace.clone(), self.webhook_secret_name.clone()),
            failure_policy: self.webhook_failure_policy,
            certificates: self.certificates()?,
            injected_from: self.webhook_certificate_name.clone().filter(|_| self.enable_cert_manager.0),
            quotas: self.enable_resource_quota_enforcement.0,
            tls: Tls::parse(&self.webhook_tls_min_version, &self.webhook_tls_cipher_suites).map_err(BadInput)?,
        }))
    }

    fn certificates(&self) -> Result<Certificates, BadInput> {
        if self.enable_cert_manager.0 {
            return Ok(match self.webhook_cert_dir.clone() {
                Some(directory) => Certificates::Files {
                    directory,
                    certificate: self.webhook_cert_name.clone(),
                    key: self.webhook_key_name.clone(),
                },
                None => Certificates::Managed,
            });
        }
        let policy = Policy {
            server: signed(self.webhook_cert_duration),
            renew_before: signed(self.webhook_cert_renew_before),
            authority: signed(self.webhook_ca_duration),
        };
        if !policy.renew_before.is_positive() || policy.renew_before >= policy.server {
            return Err(BadInput(
                "--webhook-cert-renew-before: must be more than 0 and less than --webhook-cert-duration".to_owned(),
            ));
        }
        if policy.authority < policy.server {
            return Err(BadInput("--webhook-ca-duration: must not be less than --webhook-cert-duration".to_owned()));
        }
        Ok(Certificates::Own(policy))
    }

    /// One line for each flag that was given and has no effect.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let given = self.enable_cert_manager.0 || self.webhook_cert_dir.is_some() || self.webhook_url.is_some();
        if given && !self.enable_webhook.0 {
            lines.push("the webhook's flags have no effect: add --enable-webhook".to_owned());
        }
        let renamed = self.webhook_cert_name != "tls.crt" || self.webhook_key_name != "tls.key";
        if renamed && self.webhook_cert_dir.is_none() {
            lines.push(
                "--webhook-cert-name and --webhook-key-name have no effect: they name files in --webhook-cert-dir"
                    .to_owned(),
            );
        }
        let own = self.enable_webhook.0 && !self.enable_cert_manager.0;
        if self.webhook_cert_dir.is_some() && own {
            lines.push(
                "--webhook-cert-dir has no effect: the operator's own certificates are in the Secret and in memory; files are \
                 read with --enable-cert-manager"
                    .to_owned(),
            );
        }
        if self.webhook_certificate_name.is_some() && own {
            lines.push("--webhook-certificate-name has no effect: add --enable-cert-manager".to_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: WebhookArgs,
    }

    fn args(line: &str) -> WebhookArgs {
        Only::try_parse_from(std::iter::once("operator").chain(line.split_whitespace())).unwrap().args
    }

    fn options(line: &str) -> WebhookOptions {
        args(&format!("--enable-webhook {line}")).options().unwrap().unwrap()
    }

    fn refusal(line: &str) -> String {
        args(&format!("--enable-webhook {line}")).options().unwrap_err().to_string()
    }

    #[test]
    fn the_webhook_is_off_unless_asked_for() {
        assert!(args("").options().unwrap().is_none());
        assert!(args("--enable-webhook=false --webhook-port=1").options().unwrap().is_none());
        let refused = args("--enable-resource-quota-enforcement").options().unwrap_err().to_string();
        assert!(refused.contains("--enable-webhook"), "{refused}");
    }

    #[test]
    fn its_flags_have_the_meaning_they_had() {
        let defaults = options("");
        assert_eq!(defaults.listen, Listen::Everywhere(9443));
        assert!(matches!(defaults.certificates, Certificates::Own(_)) && !defaults.quotas);
        let given = options(
            "--webhook-port=8443 --webhook-svc-name=s --webhook-svc-namespace=n --webhook-secret-name=c \
             --webhook-secret-namespace=m --validating-webhook-name=v --webhook-failure-policy=Ignore \
             --enable-resource-quota-enforcement=true --enable-cert-manager=true --webhook-certificate-name=x",
        );
        assert_eq!(given.listen, Listen::Everywhere(8443));
        assert_eq!(given.service, ("n".to_owned(), "s".to_owned()));
        assert_eq!(given.secret, ("m".to_owned(), "c".to_owned()));
        assert_eq!((given.configuration.as_str(), given.failure_policy), ("v", FailurePolicy::Ignore));
        assert_eq!((given.certificates, given.quotas), (Certificates::Managed, true));
        assert_eq!(given.injected_from.as_deref(), Some("x"));
        let files = options("--enable-cert-manager --webhook-cert-dir=/c --webhook-cert-name=a --webhook-key-name=b");
        let expected = Certificates::Files { directory: "/c".into(), certificate: "a".to_owned(), key: "b".to_owned() };
        assert_eq!(files.certificates, expected);
    }

    #[test]
    fn what_cannot_work_is_refused_and_what_does_nothing_is_named() {
        assert!(refusal("--webhook-url=http://x").starts_with("--webhook-url: "));
        assert!(refusal("--webhook-cert-renew-before=2160h").starts_with("--webhook-cert-renew-before: "));
        assert!(refusal("--webhook-ca-duration=1h").starts_with("--webhook-ca-duration: "));
        assert!(refusal("--webhook-tls-min-version=VersionTLS11").starts_with("--webhook-tls-min-version: "));
        assert!(refusal("--webhook-tls-cipher-suites=NULL").starts_with("--webhook-tls-cipher-suites: "));
        let lines = args("--enable-webhook --webhook-cert-dir=/c --webhook-certificate-name=x").lines();
        assert!(args("--enable-cert-manager").lines()[0].contains("--enable-webhook"));
        assert!(args("--enable-webhook --webhook-cert-name=a").lines()[0].contains("--webhook-cert-dir"));
        assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("--enable-cert-manager")), "{lines:?}");
    }
}
