//! `--explain`: every effective setting, its value and where it came from. Values are masked as in Spark's logs.

use firesteel_spark::driver::DriverPlan;
use firesteel_spark::redaction::Redaction;
use firesteel_spark::submission::Effective;

use crate::output::columns;

/// The table, sorted by key.
pub(crate) fn table(effective: &Effective, plan: &DriverPlan, redaction: &Redaction) -> String {
    let row = |key: &str, value: &str, origin: String| vec![key.to_owned(), value.to_owned(), origin];
    let mut rows = vec![row("SETTING", "VALUE", "FROM".to_owned())];
    rows.push(row("(Spark version)", &effective.submission.version.to_string(), effective.version_from.to_string()));
    for (key, value) in &effective.submission.conf {
        let origin = effective.provenance.get(key).map_or_else(|| "derived".to_owned(), ToString::to_string);
        rows.push(row(key, redaction.value(key, value), origin));
    }
    for (key, value) in &plan.properties {
        if !effective.submission.conf.contains_key(key) {
            rows.push(row(key, redaction.value(key, value), "set for the driver by the plan".to_owned()));
        } else if effective.submission.conf.get(key) != Some(value) {
            rows.push(row(key, redaction.value(key, value), "changed for the driver by the plan".to_owned()));
        }
    }
    columns(&rows)
}
