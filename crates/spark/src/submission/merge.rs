//! Merges settings: `--conf` over `--properties-file` over `spark-defaults.conf`, each key with its origin.

use std::collections::BTreeMap;

use crate::args::{Opt, RawArgs};
use crate::properties;

use super::{Origin, ResolveContext, SparkConf, SubmissionError, Written};

/// MergedConf being merged into a submission's configuration.
#[derive(Debug, Default)]
pub(super) struct MergedConf {
    pub conf: SparkConf,
    pub origins: BTreeMap<String, Origin>,
    pub warnings: Vec<String>,
}

impl MergedConf {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.conf.get(key).map(String::as_str)
    }

    pub(super) fn set(&mut self, key: &str, value: impl Into<String>, origin: Origin) {
        self.conf.insert(key.to_owned(), value.into());
        self.origins.insert(key.to_owned(), origin);
    }

    /// Replaces an existing value; the origin stays.
    pub(super) fn rewrite(&mut self, key: &str, value: impl Into<String>) {
        self.conf.insert(key.to_owned(), value.into());
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<String> {
        self.origins.remove(key);
        self.conf.remove(key)
    }

    /// Where a key's value comes from, for a warning.
    pub(super) fn from(&self, key: &str) -> String {
        self.origins.get(key).map(|o| format!("from {o}")).unwrap_or_default()
    }

    /// A key for an error about its value.
    pub(super) fn written(&self, key: &'static str) -> Written {
        Written { key, origin: self.origins.get(key).cloned() }
    }

    /// Sets a key to an option's value, or, if it is not set otherwise, to an environment variable's.
    pub(super) fn fold(
        &mut self,
        args: &RawArgs,
        opt: Opt,
        key: &str,
        env: Option<(&'static str, ResolveContext<'_>)>,
    ) {
        if let Some(value) = args.option(opt) {
            self.set(key, value, Origin::Flag(opt.flag()));
        } else if let Some((name, context)) = env {
            self.default_from_env(key, name, context);
        }
    }

    pub(super) fn default_from_env(&mut self, key: &str, name: &'static str, context: ResolveContext<'_>) {
        if !self.conf.contains_key(key)
            && let Some(value) = context.env.get(name)
        {
            self.set(key, value, Origin::Environment(name));
        }
    }

    /// `--master`, else `spark.master`, else `MASTER`.
    pub(super) fn master(&self, args: &RawArgs, context: ResolveContext<'_>) -> Option<String> {
        let written = args.option(Opt::Master).or_else(|| self.get("spark.master"));
        written.or_else(|| context.env.get("MASTER").map(String::as_str)).map(str::to_owned)
    }
}

/// Merges what was written on the command line and in files. Keys outside `spark.` are dropped with a warning.
pub(super) fn merge(args: &RawArgs, context: ResolveContext<'_>) -> Result<MergedConf, SubmissionError> {
    let mut settings = MergedConf::default();
    for setting in &args.settings {
        settings.set(&setting.key, &setting.value, setting.origin.clone());
    }
    let given = args.option(Opt::PropertiesFile);
    if let Some(path) = given {
        const WHAT: &str = "the properties file";
        let bytes = context.files.read(&absolute(path, context.cwd)).map_err(|e| SubmissionError::Unreadable {
            what: WHAT,
            path: path.to_owned(),
            reason: reason(&e),
        })?;
        add(&mut settings, WHAT, path, &bytes, &Origin::PropertiesFile(path.to_owned()))?;
    }
    if let Some(dir) = conf_dir(context) {
        if given.is_none() || args.load_spark_defaults {
            load_defaults(&mut settings, &dir, context)?;
        }
        const SCRIPT: &str = "spark-env.sh";
        if context.files.list(&dir).is_ok_and(|files| files.iter().any(|(name, _)| name == SCRIPT)) {
            let warning =
                format!("{dir}/{SCRIPT} is not run: set the variables that this submission needs in the environment");
            settings.warnings.push(warning);
        }
    }
    let foreign: Vec<String> = settings.conf.keys().filter(|k| !k.starts_with("spark.")).cloned().collect();
    for key in foreign {
        let from = settings.from(&key);
        settings.remove(&key);
        settings.warnings.push(format!("{key} ({from}) is ignored: Spark only accepts keys that start with `spark.`"));
    }
    Ok(settings)
}

/// The submitter's conf directory: `SPARK_CONF_DIR`, else that of `SPARK_HOME`. Spark's shell scripts treat an empty
/// variable as unset.
fn conf_dir(context: ResolveContext<'_>) -> Option<String> {
    let given = |name: &str| context.env.get(name).filter(|value| !value.is_empty()).cloned();
    let dir = given("SPARK_CONF_DIR").or_else(|| given("SPARK_HOME").map(|home| format!("{home}/conf")))?;
    Some(absolute(dir.trim_end_matches('/'), context.cwd))
}

/// `spark-defaults.conf` need not exist.
fn load_defaults(settings: &mut MergedConf, dir: &str, context: ResolveContext<'_>) -> Result<(), SubmissionError> {
    let path = format!("{dir}/spark-defaults.conf");
    match context.files.read(&path) {
        Ok(bytes) => add(settings, "the file", &path, &bytes, &Origin::Defaults(path.clone())),
        // As in Spark, an unreadable file is an error; a directory of that name is not.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(SubmissionError::Unreadable { what: "the file", path, reason: reason(&e) })
        }
        Err(_) => Ok(()),
    }
}

fn add(
    settings: &mut MergedConf,
    what: &'static str,
    path: &str,
    bytes: &[u8],
    origin: &Origin,
) -> Result<(), SubmissionError> {
    let properties = properties::read(bytes).map_err(|problem| SubmissionError::Properties {
        what,
        path: path.to_owned(),
        problem,
    })?;
    for (key, value) in properties {
        if !settings.conf.contains_key(&key) {
            settings.set(&key, value, origin.clone());
        }
    }
    Ok(())
}

pub(super) fn absolute(path: &str, cwd: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", cwd.trim_end_matches('/')) }
}

/// An I/O error without the errno.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}
