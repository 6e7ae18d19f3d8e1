//! The end of a driver's log: what a diagnosis may read and show.
//!
//! The program's author controls the log, so nothing in it is trusted: bytes and line lengths are bounded, secrets
//! masked and control characters removed before it is read.

use firesteel_spark::redaction::Redaction;

/// How much of a log is read, from its end.
pub const MOST_BYTES: usize = 256 * 1024;
/// The maximum length of a line.
const MOST_OF_A_LINE: usize = 4096;

/// The end of a log, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    lines: Vec<String>,
}

impl Log {
    /// Reads the end of a log and masks what the application's `spark.redaction.regex` matches. An invalid pattern
    /// leaves nothing to show.
    pub fn new(bytes: &[u8], redaction: &Redaction) -> Log {
        let cut = bytes.len().saturating_sub(MOST_BYTES);
        let mut tail = &bytes[cut..];
        if cut > 0 {
            // The rest of a truncated first line may lack the key of a secret.
            tail = tail.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &tail[end + 1..]);
        }
        if !redaction.is_readable() {
            return Log { lines: Vec::new() };
        }
        let shown = redaction.text(&String::from_utf8_lossy(tail));
        Log { lines: shown.lines().map(clean).collect() }
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// A line without control characters and terminal sequences, cut to the maximum length.
fn clean(line: &str) -> String {
    let mut shown = String::with_capacity(line.len().min(MOST_OF_A_LINE));
    let mut chars = line.trim_end().chars().peekable();
    while let Some(c) = chars.next() {
        if shown.len() + c.len_utf8() > MOST_OF_A_LINE {
            break;
        }
        match c {
            '\u{1b}' => {
                // A terminal sequence ends at its first letter.
                if chars.next_if_eq(&'[').is_some() {
                    while chars.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
                    chars.next();
                }
            }
            '\t' => shown.push(c),
            // Bidirectional control characters can disguise a line.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_masked_and_free_of_control_characters() {
        let mut bytes = b"password=hunter2 \x1b[31mred\x1b[0m \xff\xfe\n".to_vec();
        bytes.extend(vec![b'x'; 10_000]);
        let log = Log::new(&bytes, &Redaction::default());
        assert_eq!(log.lines()[0], "password=*********(redacted) red \u{fffd}\u{fffd}");
        assert_eq!(log.lines()[1].len(), MOST_OF_A_LINE);
        let long = "line\n".repeat(100_000);
        let bytes: usize = Log::new(long.as_bytes(), &Redaction::default()).lines().iter().map(|l| l.len() + 1).sum();
        assert!(bytes <= MOST_BYTES, "{bytes}");
        assert!(Log::new(b"a", &Redaction::new(Some("("))).lines().is_empty());
    }

    #[test]
    fn the_rest_of_a_truncated_line_is_not_read() {
        let mut bytes = b"password: hunter2".repeat(MOST_BYTES / 8);
        bytes.extend(b"\nend");
        assert_eq!(Log::new(&bytes, &Redaction::default()).lines(), ["end"]);
    }
}
