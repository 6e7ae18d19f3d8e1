//! A table of results, written as cases end and updated by later runs, so that hours of cases need not run in one go.

use std::path::PathBuf;
use std::process::Command;

use crate::Ran;
use crate::cluster::Who;

const HEAD: &str = "| as | Spark | case | result | seconds | at |\n|---|---|---|---|---|---|\n";

pub(crate) struct Report {
    file: Option<PathBuf>,
    rows: Vec<String>,
    /// The commit under test.
    at: String,
}

impl Report {
    /// The report file named by the environment, if any.
    pub(crate) fn of_environment() -> Self {
        let file = std::env::var_os("FIRESTEEL_SPARK_REPORT").map(PathBuf::from);
        let before = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
        let at = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
        let rows = before.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect();
        Report { file, rows, at }
    }

    pub(crate) fn has_passed(&self, who: Who, version: &str, case: &str) -> bool {
        let begin = format!("{} | ok | ", what(who, version, case));
        let end = format!(" | {} |", self.at);
        self.rows.iter().any(|row| row.starts_with(&begin) && row.ends_with(&end))
    }

    pub(crate) fn add(&mut self, ran: &Ran) {
        let Some(file) = &self.file else { return };
        let result = match &ran.failure {
            None => "ok".to_owned(),
            Some(words) => format!("**failed**: {}", words.lines().next().unwrap_or_default().replace('|', "/")),
        };
        let what = what(ran.who, &ran.version, ran.case);
        let row = format!("{what} | {result} | {} | {} |", ran.took.as_secs(), self.at);
        match self.rows.iter_mut().find(|old| old.starts_with(&format!("{what} | "))) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        self.rows.sort();
        let failed = self.rows.iter().filter(|row| !row.contains(" | ok | ")).count();
        let passed = self.rows.len() - failed;
        let text = format!("{passed} passed, {failed} failed\n\n{HEAD}{}\n", self.rows.join("\n"));
        std::fs::write(file, text).unwrap();
    }
}

/// The beginning of a row.
fn what(who: Who, version: &str, case: &str) -> String {
    format!("| {who} | {version} | {}", case.replace('_', " "))
}
