//! Sets of executor ids, written as ranges (`1-900,902`): ids are consecutive, so a large set stays short.

use std::collections::BTreeSet;

/// More ids than any run has; larger sets are truncated here.
const MOST: usize = 1_000_000;

/// Parses a set and skips anything that is not a range.
pub(crate) fn read(text: &str) -> BTreeSet<i64> {
    let mut ids = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
            let room = MOST.saturating_sub(ids.len());
            ids.extend((first..=last).take(room));
        }
    }
    ids
}

/// Formats a set.
pub(crate) fn write(ids: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for id in ids.iter().copied().filter(|id| *id >= 0) {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            Some(_) | None => parts.push((id, id)),
        }
    }
    let words = parts.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_round_trip() {
        for (ids, text) in [(vec![], ""), (vec![3], "3"), (vec![1, 2, 3, 7, 9, 10], "1-3,7,9-10")] {
            let set: BTreeSet<i64> = ids.into_iter().collect();
            assert_eq!(write(&set), text);
            assert_eq!(read(text), set);
        }
        assert_eq!(read("1-2, x,5-,4-3"), BTreeSet::from([1, 2]));
        assert_eq!(read("0-99999999999").len(), MOST);
    }
}
