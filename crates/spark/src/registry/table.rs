//! The table of settings, read once from `settings.tsv`, and the families of keys that users complete themselves.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::version::Line;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Boolean,
    Int,
    Long,
    Double,
    /// A time such as `30s`.
    Time,
    /// A size such as `512m`.
    Bytes,
    /// Comma-separated words.
    List,
    String,
}

/// The value of a setting that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    None,
    Value(&'static str),
    /// The value of another key.
    SameAs(&'static str),
}

/// One Spark setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub key: &'static str,
    pub kind: ValueKind,
    /// The first line that has it; [`Line::V3_5`] also means any earlier one.
    pub since: Line,
    /// The last line that has it, if a later one does not.
    pub until: Option<Line>,
    /// Not meant to be set by users.
    pub internal: bool,
    defaults: &'static str,
}

impl Setting {
    pub fn exists_in(&self, line: Line) -> bool {
        self.since <= line && self.until.is_none_or(|until| line <= until)
    }

    /// The default in a line of Spark; for a line without the setting, that of the nearest line with it.
    pub fn default_in(&self, line: Line) -> Default {
        let by_line: Vec<(Line, &'static str)> = self
            .defaults
            .split(" | ")
            .filter_map(|part| part.split_once('='))
            .filter_map(|(from, value)| Some((line_named(from)?, value)))
            .collect();
        let changes = by_line.len() == self.defaults.split(" | ").count();
        let text = match by_line.first() {
            Some((_, first)) if changes => {
                by_line.iter().rev().find(|(from, _)| *from <= line).map_or(*first, |(_, value)| *value)
            }
            _ => self.defaults,
        };
        match text {
            "<undefined>" => Default::None,
            other => match other.strip_prefix("<value of ").and_then(|t| t.strip_suffix('>')) {
                Some(key) => Default::SameAs(key),
                None => Default::Value(other),
            },
        }
    }
}

fn line_named(name: &str) -> Option<Line> {
    Line::ALL.into_iter().find(|line| line.name() == name)
}

static SETTINGS: LazyLock<BTreeMap<&'static str, Setting>> =
    LazyLock::new(|| include_str!("settings.tsv").lines().filter_map(read).map(|s| (s.key, s)).collect());

fn read(row: &'static str) -> Option<Setting> {
    let mut columns = row.split('\t');
    let key = columns.next().filter(|key| key.starts_with("spark."))?;
    let kind = match columns.next()? {
        "boolean" => ValueKind::Boolean,
        "int" => ValueKind::Int,
        "long" => ValueKind::Long,
        "double" => ValueKind::Double,
        "time" => ValueKind::Time,
        "bytes" => ValueKind::Bytes,
        "list" => ValueKind::List,
        _ => ValueKind::String,
    };
    let (since, until) = columns.next()?.split_once("..")?;
    let internal = columns.next()? == "internal";
    Some(Setting {
        key,
        kind,
        since: line_named(since)?,
        until: line_named(until),
        internal,
        defaults: columns.next()?,
    })
}

/// Every setting in the table, sorted by key.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.values()
}

/// A setting by its exact key.
pub fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.get(key)
}

/// Prefixes under `spark.kubernetes.` that users complete with their own names.
pub(super) const FAMILIES: [&str; 17] = [
    "spark.kubernetes.driver.annotation.",
    "spark.kubernetes.driver.label.",
    "spark.kubernetes.driver.node.selector.",
    "spark.kubernetes.driver.secretKeyRef.",
    "spark.kubernetes.driver.secrets.",
    "spark.kubernetes.driver.service.annotation.",
    "spark.kubernetes.driver.service.label.",
    "spark.kubernetes.driver.volumes.",
    "spark.kubernetes.driverEnv.",
    "spark.kubernetes.executor.annotation.",
    "spark.kubernetes.executor.label.",
    "spark.kubernetes.executor.node.selector.",
    "spark.kubernetes.executor.secretKeyRef.",
    "spark.kubernetes.executor.secrets.",
    "spark.kubernetes.executor.volumes.",
    "spark.kubernetes.node.selector.",
    "spark.kubernetes.scheduler.volcano.",
];

pub(super) const VOLUMES: [&str; 2] = ["spark.kubernetes.driver.volumes.", "spark.kubernetes.executor.volumes."];

/// What may follow `volumes.<type>.<name>.`, and the first line that has it.
pub(super) const VOLUME_OPTIONS: [(&str, Line); 11] = [
    ("mount.path", Line::V3_5),
    ("mount.readOnly", Line::V3_5),
    ("mount.subPath", Line::V3_5),
    ("mount.subPathExpr", Line::V4_0),
    ("options.claimName", Line::V3_5),
    ("options.medium", Line::V3_5),
    ("options.path", Line::V3_5),
    ("options.server", Line::V3_5),
    ("options.sizeLimit", Line::V3_5),
    ("options.storageClass", Line::V3_5),
    ("options.type", Line::V4_0),
];

/// Families of volume options: labels and annotations of claims.
pub(super) const VOLUME_FAMILIES: [(&str, Line); 2] = [("label.", Line::V4_0), ("annotation.", Line::V4_0)];

/// Prefixes that belong to other parts of Spark, other projects, or users: keys under them are never reported.
pub(super) const FOREIGN: [&str; 24] = [
    "spark.connect.",
    "spark.databricks.",
    "spark.delta.",
    "spark.driver.resource.",
    "spark.driverEnv.",
    "spark.executor.resource.",
    "spark.executorEnv.",
    "spark.firesteel.",
    "spark.gluten.",
    "spark.graphx.",
    "spark.hadoop.",
    "spark.hive.",
    "spark.kafka.",
    "spark.mesos.",
    "spark.metrics.",
    "spark.ml.",
    "spark.openlineage.",
    "spark.plugins.",
    "spark.rapids.",
    "spark.sql.",
    "spark.ssl.",
    "spark.streaming.",
    "spark.task.resource.",
    "spark.yarn.",
];
