//! Edit distance between words, for "did you mean …".

/// The nearest of `candidates` to `word`, if no more than `limit` single-character edits away.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>, limit: usize) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= limit * 4)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance; swapping two adjacent characters is one edit.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_one_edit() {
        assert_eq!(distance("memory", "memory"), 0);
        assert_eq!(distance("memory", "memry"), 1);
        assert_eq!(distance("memory", "memmory"), 1);
        assert_eq!(distance("memory", "mamory"), 1);
        assert_eq!(distance("memory", "meomry"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("é", "e"), 1);
    }

    #[test]
    fn the_nearest_within_the_limit_is_found() {
        assert_eq!(nearest("--maser", ["--name", "--master"], 2), Some("--master"));
        assert_eq!(nearest("--bogus", ["--name", "--master"], 3), None);
    }
}
