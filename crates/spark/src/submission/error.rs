//! Why a command line cannot be submitted. Every message is one sentence that names the option or key and the remedy.

use std::fmt;

use crate::properties::PropertiesError;
use crate::value::SizeError;

use super::Origin;
use super::master::MasterError;
use super::uri::EntryError;
use crate::args::Opt;
use crate::input::Input;
use crate::names::key;

/// A key, and where its value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub key: &'static str,
    pub origin: Option<Origin>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            // The caller that turned fields into keys names the field.
            None | Some(Origin::Field(_)) => f.write_str(self.key),
            Some(origin) => write!(f, "{} (from {origin})", self.key),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    #[error("no master is given; write --master k8s://https://HOST:PORT")]
    NoMaster,
    #[error(transparent)]
    Master(#[from] MasterError),
    #[error("the application is missing; write its jar, Python or R file after the options")]
    NoResource,
    #[error(
        "{at}: `{value}` is neither `client` nor `cluster`; write --deploy-mode cluster to run the driver in a pod"
    )]
    DeployMode { at: Written, value: String },
    #[error("--remote (or spark.remote) cannot be combined with a master or a deploy mode; remove one of them")]
    Remote,
    #[error("{what} cannot run in cluster mode; use --deploy-mode client")]
    NotInCluster { input: Input, what: String },
    #[error("{at}: {problem}")]
    Memory { at: Written, problem: SizeError },
    #[error("{at}: the memory must be greater than zero, but is `{value}`; write 512m or 2g")]
    NoMemory { at: Written, value: String },
    #[error("{at}: `{value}` is not a positive whole number; write 1 or more{}", .hint)]
    Count { at: Written, value: String, hint: &'static str },
    #[error("--proxy-user cannot be combined with --principal (or spark.kerberos.principal); give only one of them")]
    ProxyAndPrincipal,
    #[error("{what} {path} cannot be read ({reason}); check the path")]
    Unreadable { what: &'static str, path: String, reason: String },
    #[error("{what} {path}: {problem}")]
    Properties { what: &'static str, path: String, problem: PropertiesError },
    #[error("the main class of {resource} is not known ({reason}); give it with --class")]
    NoMainClass { resource: String, reason: String },
    #[error(
        "{key}={value} names Java classes that only a JVM can run; remove it and use a pod template (spark.kubernetes.driver.podTemplateFile), or submit with Spark's own spark-submit"
    )]
    FeatureSteps { key: &'static str, value: String },
    #[error("{flag} does not exist in Spark {version}; it was added in Spark {since}")]
    FlagTooNew { flag: &'static str, version: String, since: &'static str },
    #[error(
        "{key}={image}: the version to put in place of {{{{SPARK_VERSION}}}} is unknown; add --spark-version, or set SPARK_HOME"
    )]
    ImageVersion { key: &'static str, image: String },
    #[error("{at}: {problem}")]
    Entry { at: Written, problem: EntryError },
    #[error("the application: {0}")]
    Resource(EntryError),
    #[error(
        "{at}: the heap size is set by spark.driver.memory; remove the -Xmx from `{value}` and use --driver-memory"
    )]
    HeapOption { at: Written, value: String },
    #[error("the keytab {0} does not exist; check spark.kerberos.keytab or --keytab")]
    NoKeytab(String),
}

impl SubmissionError {
    /// What is at fault.
    pub fn input(&self) -> Input {
        match self {
            SubmissionError::NoMaster | SubmissionError::Master(_) => Input::Option(Opt::Master.flag()),
            SubmissionError::NoResource | SubmissionError::Resource(_) => Input::Application,
            SubmissionError::DeployMode { at, .. }
            | SubmissionError::Memory { at, .. }
            | SubmissionError::NoMemory { at, .. }
            | SubmissionError::Count { at, .. }
            | SubmissionError::Entry { at, .. }
            | SubmissionError::HeapOption { at, .. } => Input::key(at.key),
            SubmissionError::FeatureSteps { key, .. } | SubmissionError::ImageVersion { key, .. } => Input::key(key),
            SubmissionError::Remote => Input::key(key::REMOTE),
            SubmissionError::NoKeytab(_) => Input::key(key::KEYTAB),
            SubmissionError::NotInCluster { input, .. } => input.clone(),
            SubmissionError::ProxyAndPrincipal => Input::Option(Opt::ProxyUser.flag()),
            SubmissionError::NoMainClass { .. } => Input::Option(Opt::Class.flag()),
            SubmissionError::FlagTooNew { flag, .. } => Input::Option(flag),
            SubmissionError::Unreadable { path, .. } | SubmissionError::Properties { path, .. } => {
                Input::File(path.clone())
            }
        }
    }
}
