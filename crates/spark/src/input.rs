//! The part of a submission that an error is about.
//!
//! Errors carry it as a value, so that code that built the submission from something else (such as a SparkApplication)
//! can name the field in its own input without parsing the message.

use std::fmt;

/// What must change to resolve the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A configuration key, such as `spark.driver.memory`.
    Key(String),
    /// A `spark-submit` option without a configuration key, such as `--class`.
    Option(&'static str),
    /// The application itself: its jar, Python or R file.
    Application,
    /// An environment variable of the submitter.
    Variable(&'static str),
    /// A settings file, by path.
    File(String),
    /// A part of a pod template; `key` is the setting that names the template's file.
    Template { key: &'static str, part: TemplatePart },
}

/// A part of the pod in a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// A volume, by name.
    Volume(String),
    /// A mount of Spark's container, by path.
    VolumeMount(String),
    /// An environment variable of Spark's container, by name.
    EnvVar(String),
    /// A request or limit of Spark's container, by resource name.
    Resource(String),
    /// A port of Spark's container, by name.
    Port(String),
}

impl Input {
    pub(crate) fn key(key: &str) -> Self {
        Input::Key(key.to_owned())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Key(text) | Input::File(text) => f.write_str(text),
            Input::Option(text) | Input::Variable(text) | Input::Template { key: text, .. } => f.write_str(text),
            Input::Application => f.write_str("the application"),
        }
    }
}
