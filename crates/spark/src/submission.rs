//! A submission: one application with its effective configuration, the same whether it came from a command line,
//! a SparkApplication or a test.
//!
//! [`resolve`] creates one from a command line: it merges flags, `--conf`, properties files and the environment in
//! Spark's order, checks what `SparkSubmit` checks, and writes the keys `SparkSubmit` writes for Kubernetes in cluster
//! mode. The plan adds names, ports and uploads to the configuration later.

mod application;
mod error;
mod manifest;
mod master;
mod merge;
mod uri;

use std::collections::BTreeMap;
use std::fmt;

use crate::args::{Action, Opt, RawArgs};
use crate::context::Files;
use crate::version::SparkVersion;

pub use error::{SubmissionError, Written};
pub use master::MasterError;
pub use uri::{EntryError, is_local_file};

/// Effective Spark configuration, key to value.
pub type SparkConf = BTreeMap<String, String>;

/// What the driver runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MainResource {
    /// A jar, by URI.
    Jar(String),
    /// A Python file, by URI.
    Python(String),
    /// An R file, by URI.
    R(String),
    /// `spark-internal`: the main class is on the class path already.
    None,
}

/// One application, ready to be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Everything `SparkSubmit` would hand to its Kubernetes client, flags folded in.
    pub conf: SparkConf,
    pub version: SparkVersion,
    pub main: MainResource,
    pub main_class: String,
    pub arguments: Vec<String>,
    pub proxy_user: Option<String>,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A dedicated option such as `--driver-memory`.
    Flag(&'static str),
    /// `--conf`
    Conf,
    /// A field of a SparkApplication, by its path.
    Field(String),
    /// `--properties-file`, with its path.
    PropertiesFile(String),
    /// `spark-defaults.conf`, with its path.
    Defaults(String),
    /// An environment variable, by name.
    Environment(&'static str),
    /// Derived from something else; says from what.
    Derived(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => f.write_str(flag),
            Origin::Conf => f.write_str("--conf"),
            Origin::PropertiesFile(path) => write!(f, "--properties-file {path}"),
            Origin::Defaults(path) | Origin::Field(path) => f.write_str(path),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Derived(how) => f.write_str(how),
        }
    }
}

/// How the Spark version was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionFrom {
    Flag,
    ImageTag,
    SparkHome,
    Assumed,
}

impl fmt::Display for VersionFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VersionFrom::Flag => "--spark-version",
            VersionFrom::ImageTag => "the driver image's tag",
            VersionFrom::SparkHome => "the Spark in SPARK_HOME",
            VersionFrom::Assumed => "assumed: the oldest that supports these settings",
        })
    }
}

/// A submission and where its parts came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    pub submission: Submission,
    /// Where each key of the submission's configuration came from.
    pub provenance: BTreeMap<String, Origin>,
    pub version_from: VersionFrom,
    /// Warnings for the user; none of them prevents the submission.
    pub warnings: Vec<String>,
}

/// `--kill` or `--status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// `NAMESPACE:POD`, `POD`, or either with a `*` at the end.
    pub id: String,
    pub conf: SparkConf,
    pub warnings: Vec<String>,
}

/// What a command line resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// Cluster mode: the driver runs in a pod.
    Submit(Box<Effective>),
    /// Client mode: only a real `spark-submit` can run the driver here.
    Client,
    Kill(Control),
    Status(Control),
    Version,
    Help,
    UsageError,
}

/// The inputs of [`resolve`] besides the command line.
#[derive(Clone, Copy)]
pub struct ResolveContext<'a> {
    pub env: &'a BTreeMap<String, String>,
    pub files: &'a dyn Files,
    /// The working directory, absolute.
    pub cwd: &'a str,
    /// Milliseconds since the epoch.
    pub now_ms: u64,
}

/// Resolves a command line.
pub fn resolve(args: &RawArgs, context: ResolveContext<'_>) -> Result<Resolved, SubmissionError> {
    let control = |id: &String| -> Result<Control, SubmissionError> {
        let mut settings = merge::merge(args, context)?;
        let raw = settings.master(args, context).ok_or(SubmissionError::NoMaster)?;
        let (master, warning) = master::check(&raw)?;
        settings.warnings.extend(warning);
        settings.conf.insert("spark.master".to_owned(), master);
        Ok(Control { id: id.clone(), conf: settings.conf, warnings: settings.warnings })
    };
    match &args.action {
        Action::Version => Ok(Resolved::Version),
        Action::Help => Ok(Resolved::Help),
        Action::UsageError => Ok(Resolved::UsageError),
        Action::Kill(id) => control(id).map(Resolved::Kill),
        Action::Status(id) => control(id).map(Resolved::Status),
        Action::Submit => application::resolve(args, context),
    }
}

impl RawArgs {
    /// The class given with `--class`.
    fn class(&self) -> Option<&str> {
        self.option(Opt::Class)
    }
}
