//! The results for people: a table that later runs bring up to date, so that hours of cases need not run in one go.

use std::fmt::Write as _;

use crate::Ran;

const HEAD: &str = "| as | Spark | case | result | seconds | at |\n|---|---|---|---|---|---|\n";

/// The table `before` with what ran now; each line says what was tested.
pub(crate) fn table(before: &str, ran: &[Ran], at: &str) -> String {
    let mut rows: Vec<String> = before.lines().filter(|l| l.starts_with("| ")).skip(1).map(str::to_owned).collect();
    for one in ran {
        let row = row(one, at);
        match rows.iter_mut().find(|old| what(old) == what(&row)) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
    }
    let failed = rows.iter().filter(|row| !row.contains("| ok |")).count();
    let mut text = format!("{} passed, {failed} failed\n\n{HEAD}", rows.len() - failed);
    rows.iter().for_each(|row| {
        let _ = writeln!(text, "{row}");
    });
    text
}

/// Who, which Spark, and which case.
fn what(row: &str) -> Vec<&str> {
    row.split('|').take(4).collect()
}

fn row(one: &Ran, at: &str) -> String {
    let result = match &one.failure {
        None => "ok".to_owned(),
        Some(words) => format!("**failed**: {}", words.lines().next().unwrap_or_default().replace('|', "/")),
    };
    let Ran { who, version, case, took, .. } = one;
    format!("| {who} | {version} | {} | {result} | {} | {at} |", case.replace('_', " "), took.as_secs())
}
