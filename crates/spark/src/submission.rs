//! A submission: one application with its effective configuration, the same whether it came from a command line,
//! a SparkApplication or a test.

use std::collections::BTreeMap;

use crate::version::SparkVersion;

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
