//! Configuration keys: Firesteel's own, and Spark's Kubernetes keys from the registry.

use firesteel_spark::registry::{self, Default, Setting, ValueKind};
use firesteel_spark::version::Line;

use super::{cell, code, table};

/// One sentence for each public key under `spark.kubernetes.`.
const MEANINGS: &str = include_str!("kubernetes-keys.tsv");

pub(super) fn page() -> String {
    let own = firesteel_core::grant::SETTINGS.iter();
    let own = own.map(|(key, default, help)| vec![code(key), cell(default), cell(help)]);
    let spark = registry::all().filter(|setting| is_listed(setting));
    let spark = spark.map(|setting| {
        let lines = match setting.until {
            Some(until) => format!("{} to {until}", setting.since),
            None if setting.since == Line::V3_5 => String::new(),
            None => format!("from {}", setting.since),
        };
        vec![code(setting.key), kind(setting.kind).to_owned(), default(setting), lines, cell(meaning(setting.key))]
    });
    let body = format!(
        "## Firesteel's own keys\n\n{}\n\
         ## Spark's keys for Kubernetes\n\n\
         Defaults are Spark's, collected from Spark 3.5, 4.0, 4.1, 4.2 and 4.3. Where a default changed, each line's value is \
         given. Firesteel warns about a key under `spark.kubernetes.` that the planned Spark does not know, and about a value \
         its driver will refuse. Keys that end in a name you choose (`spark.kubernetes.driver.label.NAME`) are described in \
         [Spark's documentation](https://spark.apache.org/docs/latest/running-on-kubernetes.html#spark-properties).\n\n{}",
        table(&["key", "default", "meaning"], own),
        table(&["key", "type", "default", "Spark", "meaning"], spark)
    );
    super::page("Configuration keys", "For people who submit applications.", &body)
}

fn is_listed(setting: &Setting) -> bool {
    setting.key.starts_with("spark.kubernetes.") && !setting.internal
}

fn meaning(key: &str) -> &'static str {
    MEANINGS
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .find(|(known, _)| *known == key)
        .map_or("", |(_, text)| text)
}

fn kind(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Boolean => "boolean",
        ValueKind::Int | ValueKind::Long => "integer",
        ValueKind::Double => "number",
        ValueKind::Time => "time",
        ValueKind::Bytes => "size",
        ValueKind::List => "list",
        ValueKind::String => "string",
    }
}

/// The default; where it changed, each value with the first line that has it.
fn default(setting: &Setting) -> String {
    let shown = |line: Line| match setting.default_in(line) {
        Default::None | Default::Value("") => String::new(),
        Default::Value(value) => code(value),
        Default::SameAs(key) => format!("value of `{key}`"),
    };
    let lines = Line::ALL.into_iter().filter(|line| setting.exists_in(*line));
    let mut changes: Vec<(Line, String)> = Vec::new();
    for line in lines {
        let value = shown(line);
        if changes.last().is_none_or(|(_, last)| *last != value) {
            changes.push((line, value));
        }
    }
    match changes.as_slice() {
        [(_, only)] => only.clone(),
        several => several.iter().map(|(line, value)| format!("{line}: {value}")).collect::<Vec<_>>().join(", "),
    }
}

#[test]
fn every_public_key_for_kubernetes_is_explained_and_no_other() {
    for setting in registry::all().filter(|setting| is_listed(setting)) {
        assert!(!meaning(setting.key).is_empty(), "{} has no line in kubernetes-keys.tsv", setting.key);
    }
    for (key, _) in MEANINGS.lines().filter_map(|line| line.split_once('\t')) {
        assert!(registry::find(key).is_some_and(is_listed), "{key} is not a public key of Spark for Kubernetes");
    }
}
