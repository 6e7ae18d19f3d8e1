//! Typed access to a submission's configuration, with errors that name the key.

use std::collections::BTreeMap;

use super::PlanError;
use crate::names::key;
use crate::submission::SparkConf;
use crate::value;
use crate::version::Line;

/// A view of the effective configuration.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// As written; families of keys are read from it.
    conf: &'a SparkConf,
    /// With references expanded; single settings are read from it, as in Spark.
    expanded: &'a SparkConf,
    line: Line,
}

/// The configuration with references such as `${env:X}` and `${spark.x}` expanded.
pub(crate) fn expand(conf: &SparkConf, env: &BTreeMap<String, String>) -> SparkConf {
    conf.iter().map(|(key, text)| (key.clone(), value::substitute(text, conf, env))).collect()
}

impl<'a> Settings<'a> {
    pub(crate) fn new(conf: &'a SparkConf, expanded: &'a SparkConf, line: Line) -> Self {
        Settings { conf, expanded, line }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.expanded.get(key).map(String::as_str)
    }

    pub(crate) fn app_name(&self) -> &'a str {
        self.get(key::APP_NAME).unwrap_or("spark")
    }

    /// A comma-separated list, without white space around entries and without empty entries.
    pub(crate) fn list(&self, key: &str) -> Vec<&'a str> {
        self.get(key).unwrap_or_default().split(',').map(str::trim).filter(|e| !e.is_empty()).collect()
    }

    pub(crate) fn boolean(&self, key: &str, default: bool) -> Result<bool, PlanError> {
        self.parsed(key, value::boolean).map(|v| v.unwrap_or(default))
    }

    pub(crate) fn int(&self, key: &str) -> Result<Option<i32>, PlanError> {
        self.parsed(key, value::int)
    }

    pub(crate) fn double(&self, key: &str) -> Result<Option<f64>, PlanError> {
        self.parsed(key, value::double)
    }

    /// A size in MiB, which is also the unit of a bare number.
    pub(crate) fn mebibytes(&self, key: &str) -> Result<Option<u64>, PlanError> {
        let line = self.line;
        self.parsed(key, move |text| {
            value::check_suffix(text, line).map_err(|e| e.to_string())?;
            let mib = value::memory_mib(text).map_err(|e| e.to_string())?;
            u64::try_from(mib).map_err(|_| format!("`{text}` is negative; write a size such as 512m"))
        })
    }

    /// A time in `unit`, which is also the unit of a bare number.
    pub(crate) fn time(&self, key: &str, unit: value::TimeUnit) -> Result<Option<i64>, PlanError> {
        self.parsed(key, |text| value::time(text, unit))
    }

    pub(crate) fn line(&self) -> Line {
        self.line
    }

    /// A TCP port.
    pub(crate) fn port(&self, key: &str) -> Result<Option<i32>, PlanError> {
        match self.int(key)? {
            Some(port) if !(0..=65535).contains(&port) => Err(PlanError::Value {
                key: key.to_owned(),
                value: port.to_string(),
                problem: "not a port".to_owned(),
                remedy: "write a number from 0 to 65535".to_owned(),
            }),
            port => Ok(port),
        }
    }

    /// A setting that takes one of a fixed set of words.
    pub(crate) fn one_of(&self, key: &str, words: &[&str]) -> Result<Option<&'a str>, PlanError> {
        match self.get(key) {
            Some(word) if !words.contains(&word) => Err(PlanError::Value {
                key: key.to_owned(),
                value: word.to_owned(),
                problem: "not a valid value".to_owned(),
                remedy: format!("write one of {}", words.join(" | ")),
            }),
            word => Ok(word),
        }
    }

    /// All settings whose key starts with `prefix`, by the rest of their key.
    pub(crate) fn with_prefix(&self, prefix: &str) -> BTreeMap<String, String> {
        self.conf
            .range(prefix.to_owned()..)
            .map_while(|(key, value)| key.strip_prefix(prefix).map(|rest| (rest.to_owned(), value.clone())))
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.conf.iter()
    }

    fn parsed<T, E: std::fmt::Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, PlanError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let invalid = |problem: E| PlanError::Invalid { key: key.to_owned(), problem: problem.to_string() };
        parse(text).map(Some).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> SparkConf {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn references_are_filled_in_for_single_settings_only() {
        let raw = conf(&[("spark.app.name", "${env:TEAM}-job"), ("spark.kubernetes.driver.label.team", "${env:TEAM}")]);
        let env = BTreeMap::from([("TEAM".to_owned(), "core".to_owned())]);
        let expanded = expand(&raw, &env);
        let settings = Settings::new(&raw, &expanded, Line::V4_1);
        assert_eq!(settings.get("spark.app.name"), Some("core-job"));
        assert_eq!(settings.with_prefix("spark.kubernetes.driver.label.")["team"], "${env:TEAM}");
    }

    #[test]
    fn sizes_with_kubernetes_suffixes_are_for_newer_sparks() {
        let raw = conf(&[("spark.driver.memory", "1Gi")]);
        let mebibytes = |line| Settings::new(&raw, &raw, line).mebibytes("spark.driver.memory");
        assert_eq!(mebibytes(Line::V4_2), Ok(Some(1024)));
        assert!(mebibytes(Line::V4_1).is_err());
    }
}
