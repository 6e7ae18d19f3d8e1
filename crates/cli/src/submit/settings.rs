//! The settings for the submitter itself: how to reach the cluster, whether and how to wait.
//!
//! They are all read first, so that a wrong value never leaves half a submission.

use std::fmt::Display;
use std::time::Duration;

use firesteel_cluster::{Access, Cluster};
use firesteel_spark::SparkConf;
use firesteel_spark::value::{self, TimeUnit};

use crate::exit::BadInput;

const SUBMISSION: &str = "spark.kubernetes.authenticate.submission";

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    /// `spark.kubernetes.submission.waitAppCompletion`
    pub(crate) wait: bool,
    pub(crate) report_interval: Duration,
    /// `spark.kubernetes.appKillPodDeletionGracePeriod`
    pub(crate) kill_grace: Option<Duration>,
    namespace: Option<String>,
}

impl Settings {
    pub(crate) fn read(conf: &SparkConf) -> anyhow::Result<Settings> {
        let text = |key: &str| conf.get(key).filter(|value| !value.is_empty()).cloned();
        let file = |name: &str| text(&format!("{SUBMISSION}.{name}"));
        let usual = Access::default();
        let access = Access {
            master: text("spark.master")
                .map(|master| master.strip_prefix("k8s://").map(str::to_owned).unwrap_or(master)),
            context: text("spark.kubernetes.context"),
            ca_cert_file: file("caCertFile"),
            client_key_file: file("clientKeyFile"),
            client_cert_file: file("clientCertFile"),
            oauth_token: file("oauthToken"),
            oauth_token_file: file("oauthTokenFile"),
            trust_certificates: boolean(conf, "spark.kubernetes.trust.certificates", false)?,
            connection_timeout: milliseconds(conf, "spark.kubernetes.submission.connectionTimeout")?
                .unwrap_or(usual.connection_timeout),
            request_timeout: milliseconds(conf, "spark.kubernetes.submission.requestTimeout")?
                .unwrap_or(usual.request_timeout),
            kubeconfig: None,
        };
        Ok(Settings {
            access,
            wait: boolean(conf, "spark.kubernetes.submission.waitAppCompletion", true)?,
            report_interval: time(conf, "spark.kubernetes.report.interval", TimeUnit::Milliseconds)?
                .unwrap_or(Duration::from_secs(1)),
            kill_grace: time(conf, "spark.kubernetes.appKillPodDeletionGracePeriod", TimeUnit::Seconds)?,
            namespace: text("spark.kubernetes.namespace"),
        })
    }

    /// The namespace for submission ids without one: the configuration's, else the client's.
    pub(crate) fn namespace<'s>(&'s self, cluster: &'s Cluster) -> &'s str {
        self.namespace.as_deref().unwrap_or(&cluster.namespace)
    }
}

fn boolean(conf: &SparkConf, key: &str, usual: bool) -> anyhow::Result<bool> {
    conf.get(key).map_or(Ok(usual), |text| value::boolean(text).map_err(|error| wrong(key, text, error)))
}

/// A plain number of milliseconds; 0 means no limit.
fn milliseconds(conf: &SparkConf, key: &str) -> anyhow::Result<Option<Duration>> {
    let Some(text) = conf.get(key) else { return Ok(None) };
    match value::int(text) {
        Ok(0) => Ok(Some(Duration::from_secs(24 * 60 * 60))),
        Ok(number) => match u64::try_from(number) {
            Ok(number) => Ok(Some(Duration::from_millis(number))),
            Err(_) => Err(wrong(key, text, "it must not be negative")),
        },
        Err(error) => Err(wrong(key, text, error)),
    }
}

fn time(conf: &SparkConf, key: &str, unit: TimeUnit) -> anyhow::Result<Option<Duration>> {
    let Some(text) = conf.get(key) else { return Ok(None) };
    let number = value::time(text, unit).map_err(|error| wrong(key, text, error))?;
    let number = u64::try_from(number).map_err(|_| wrong(key, text, "it must not be negative"))?;
    Ok(Some(match unit {
        TimeUnit::Seconds => Duration::from_secs(number),
        _ => Duration::from_millis(number),
    }))
}

fn wrong(key: &str, text: &str, problem: impl Display) -> anyhow::Error {
    BadInput(format!("{key}={text}: {problem}")).into()
}
