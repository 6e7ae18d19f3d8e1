//! Why a command line is no submission. Every message is one sentence that names the option or key and the remedy.

use crate::properties::PropertiesError;
use crate::value::SizeError;

use super::master::MasterError;
use super::uri::EntryError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    #[error("no master is given; write --master k8s://https://HOST:PORT")]
    NoMaster,
    #[error(transparent)]
    Master(#[from] MasterError),
    #[error("the application is missing; write its jar, Python or R file after the options")]
    NoResource,
    #[error(
        "spark.submit.deployMode ({from}): `{value}` is neither `client` nor `cluster`; write --deploy-mode cluster to run the driver in a pod"
    )]
    DeployMode { from: String, value: String },
    #[error("--remote (or spark.remote) cannot go with a master or a deploy mode; remove one of them")]
    Remote,
    #[error("{what} cannot run in cluster mode; use --deploy-mode client")]
    NotInCluster { what: String },
    #[error("{key} ({from}): {problem}")]
    Memory { key: &'static str, from: String, problem: SizeError },
    #[error("{key} ({from}): the memory must be more than nothing, but is `{value}`; write 512m or 2g")]
    NoMemory { key: &'static str, from: String, value: String },
    #[error("{key} ({from}): `{value}` is not a positive whole number; write 1 or more{}", .hint)]
    Count { key: &'static str, from: String, value: String, hint: &'static str },
    #[error("--proxy-user cannot go with --principal (or spark.kerberos.principal); give only one of them")]
    ProxyAndPrincipal,
    #[error("{what} {path} cannot be read ({reason}); check the path")]
    Unreadable { what: &'static str, path: String, reason: String },
    #[error("{what} {path}: {problem}")]
    Properties { what: &'static str, path: String, problem: PropertiesError },
    #[error("the main class of {resource} is not known ({reason}); give it with --class")]
    NoMainClass { resource: String, reason: String },
    #[error(
        "{key}={value} names Java classes that only a JVM can run; remove it, and put what they do into a pod template (spark.kubernetes.driver.podTemplateFile), or submit with Spark's own spark-submit"
    )]
    FeatureSteps { key: &'static str, value: String },
    #[error("{flag} does not exist in Spark {version}; it came with Spark {since}")]
    FlagTooNew { flag: &'static str, version: String, since: &'static str },
    #[error(
        "{key}={image}: {{{{SPARK_VERSION}}}} stands for the version of Spark, and nothing tells it; add --spark-version, or set SPARK_HOME"
    )]
    ImageVersion { key: &'static str, image: String },
    #[error("{key} ({from}): {problem}")]
    Entry { key: &'static str, from: String, problem: EntryError },
    #[error("the application: {0}")]
    Resource(EntryError),
    #[error(
        "{key} ({from}): the heap size is set by spark.driver.memory; remove the -Xmx from `{value}` and use --driver-memory"
    )]
    HeapOption { key: &'static str, from: String, value: String },
    #[error("the keytab {0} does not exist; check spark.kerberos.keytab or --keytab")]
    NoKeytab(String),
}
