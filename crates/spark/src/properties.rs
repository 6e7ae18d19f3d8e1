//! Java properties files, read and written like `java.util.Properties`, with Spark's trimming of values.

use std::collections::BTreeMap;

/// Why a file is not a properties file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    #[error("`\\u{0}` is not a unicode escape; write \\u and four hexadecimal digits, or double the backslash")]
    BadEscape(String),
}

/// Reads a file as Spark does: UTF-8 (invalid bytes are replaced), the last of equal keys wins, values trimmed of
/// characters up to U+0020 except line breaks.
pub fn read(bytes: &[u8]) -> Result<BTreeMap<String, String>, PropertiesError> {
    let text = String::from_utf8_lossy(bytes);
    Ok(parse(&text)?.into_iter().map(|(key, value)| (key, trim_except_line_breaks(&value).to_owned())).collect())
}

/// `java.util.Properties.load`, in the order of the file.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, PropertiesError> {
    logical_lines(text).iter().map(|line| entry(line)).collect()
}

fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Lines with continuations joined, and without comments, blank lines and leading white space; escapes untouched.
fn logical_lines(text: &str) -> Vec<Vec<char>> {
    let mut lines = Vec::new();
    let mut line: Vec<char> = Vec::new();
    let mut chars = text.chars().peekable();
    // At the start of a natural line, where white space is skipped; `continued` keeps line ends from being skipped too.
    let (mut at_start, mut continued, mut backslash) = (true, false, false);
    while let Some(c) = chars.next() {
        if at_start {
            if blank(c) || (!continued && matches!(c, '\r' | '\n')) {
                continue;
            }
            (at_start, continued) = (false, false);
        }
        // Also after a continuation of an empty line: Java checks what it has collected so far.
        if line.is_empty() && matches!(c, '#' | '!') {
            while chars.next().is_some_and(|c| !matches!(c, '\r' | '\n')) {}
            at_start = true;
            continue;
        }
        if !matches!(c, '\r' | '\n') {
            line.push(c);
            backslash = c == '\\' && !backslash;
        } else if line.is_empty() {
            at_start = true;
        } else if backslash {
            line.pop();
            (at_start, continued, backslash) = (true, true, false);
            if chars.peek().is_none() {
                // Java ends the file here with whatever is left, even nothing.
                lines.push(std::mem::take(&mut line));
            } else if c == '\r' {
                chars.next_if_eq(&'\n');
            }
        } else {
            lines.push(std::mem::take(&mut line));
            at_start = true;
        }
    }
    if backslash {
        line.pop();
        lines.push(line);
    } else if !line.is_empty() {
        lines.push(line);
    }
    lines
}

fn entry(line: &[char]) -> Result<(String, String), PropertiesError> {
    let mut backslash = false;
    let mut key_end = line.len();
    for (at, &c) in line.iter().enumerate() {
        if !backslash && (matches!(c, '=' | ':') || blank(c)) {
            key_end = at;
            break;
        }
        backslash = c == '\\' && !backslash;
    }
    let mut separated = false;
    let mut value_start = key_end;
    while let Some(&c) = line.get(value_start) {
        if !blank(c) {
            if separated || !matches!(c, '=' | ':') {
                break;
            }
            separated = true;
        }
        value_start += 1;
    }
    Ok((unescape(&line[..key_end])?, unescape(&line[value_start..])?))
}

fn unescape(chars: &[char]) -> Result<String, PropertiesError> {
    // UTF-16, because two escapes may form one character.
    let mut units: Vec<u16> = Vec::with_capacity(chars.len());
    let mut rest = chars.iter().copied();
    while let Some(c) = rest.next() {
        let plain = match c {
            '\\' => match rest.next() {
                Some('t') => '\t',
                Some('r') => '\r',
                Some('n') => '\n',
                Some('f') => '\u{c}',
                Some('u') => {
                    let hex: String = rest.by_ref().take(4).collect();
                    let well_formed = hex.len() == 4 && hex.bytes().all(|b| b.is_ascii_hexdigit());
                    match u16::from_str_radix(&hex, 16) {
                        Ok(unit) if well_formed => units.push(unit),
                        _ => return Err(PropertiesError::BadEscape(hex)),
                    }
                    continue;
                }
                Some(other) => other,
                None => break,
            },
            plain => plain,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

/// Spark's `trimExceptCRLF`.
fn trim_except_line_breaks(value: &str) -> &str {
    value.trim_matches(|c| c <= ' ' && c != '\r' && c != '\n')
}

/// Writes properties like `Properties.store` to a character stream, sorted by key; non-ASCII characters are not escaped.
/// Each line of `comment` becomes a comment line at the top.
pub fn write(properties: &BTreeMap<String, String>, comment: Option<&str>) -> String {
    let mut out = String::new();
    for line in comment.into_iter().flat_map(str::lines) {
        out.push('#');
        out.push_str(line);
        out.push('\n');
    }
    for (key, value) in properties {
        escape(key, true, &mut out);
        out.push('=');
        escape(value, false, &mut out);
        out.push('\n');
    }
    out
}

fn escape(text: &str, is_key: bool, out: &mut String) {
    for (at, c) in text.char_indices() {
        match c {
            ' ' if is_key || at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => out.extend(['\\', c]),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{text:?} gave {all:?}");
        all.remove(0)
    }

    #[test]
    fn every_separator_separates() {
        for text in ["k=v", "k:v", "k v", "k\tv", "k = v", "k : v", "  k\u{c}=\tv", "k =v", "k\t \u{c}v"] {
            assert_eq!(one(text), ("k".to_owned(), "v".to_owned()), "{text:?}");
        }
        assert_eq!(one("k==v"), ("k".to_owned(), "=v".to_owned()));
        assert_eq!(one("k = : v"), ("k".to_owned(), ": v".to_owned()));
        assert_eq!(one("k"), ("k".to_owned(), String::new()));
        assert_eq!(one("=v"), (String::new(), "v".to_owned()));
        assert_eq!(one("k=v "), ("k".to_owned(), "v ".to_owned()));
    }

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        assert_eq!(pairs("# a\n\n  ! b=c\n \t \r\nk=v#x\r#y\n").len(), 1);
        assert!(pairs("").is_empty());
        assert!(pairs("\n\n#").is_empty());
    }

    #[test]
    fn an_odd_number_of_backslashes_continues_the_line() {
        assert_eq!(one("k=a\\\n   b"), ("k".to_owned(), "ab".to_owned()));
        assert_eq!(one("k=a\\\r\n#b"), ("k".to_owned(), "a#b".to_owned()));
        assert_eq!(one("k\\\n=v"), ("k".to_owned(), "v".to_owned()));
        assert_eq!(pairs("k=a\\\\\nj=b").len(), 2);
        assert_eq!(pairs("k=a\\\n\nj=b").len(), 2);
        assert_eq!(one("k=a\\"), ("k".to_owned(), "a".to_owned()));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(one(r"a\ b\=c=\t\u00e9\q\\"), ("a b=c".to_owned(), "\té".to_owned() + r"q\"));
        assert_eq!(one(r"k=\ud83d\ude00"), ("k".to_owned(), "😀".to_owned()));
        for bad in [r"k=\u12", r"k=\u12g4", r"\uxyzw=1", r"k=\u+123"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spark_trims_values_but_not_line_breaks() {
        let conf = read(b"a=  x \t \nb=\\n x \nc=1\nc=2\nd=\xff\n").unwrap();
        assert_eq!(conf["a"], "x");
        assert_eq!(conf["b"], "\n x");
        assert_eq!(conf["c"], "2");
        assert_eq!(conf["d"], "\u{fffd}");
    }

    #[test]
    fn writing_escapes_what_reading_would_misread() {
        let conf = BTreeMap::from([("a b:c".to_owned(), "  x=y #z\n é\\".to_owned())]);
        assert_eq!(write(&conf, Some("one\ntwo")), "#one\n#two\na\\ b\\:c=\\  x\\=y \\#z\\n é\\\\\n");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(conf in proptest::collection::btree_map(any::<String>(), any::<String>(), 0..8)) {
            let read_back: BTreeMap<_, _> = parse(&write(&conf, Some("comment"))).unwrap().into_iter().collect();
            prop_assert_eq!(read_back, conf);
        }

        #[test]
        fn awkward_characters_read_back(
            key in "[ \t\r\n\u{c}=:#!\\\\a]{1,12}",
            value in "[ \t\r\n\u{c}=:#!\\\\a\u{85}\u{2028}]{0,12}",
        ) {
            let conf = BTreeMap::from([(key, value)]);
            let read_back: BTreeMap<_, _> = parse(&write(&conf, None)).unwrap().into_iter().collect();
            prop_assert_eq!(read_back, conf);
        }

        #[test]
        fn reading_never_panics(text in any::<Vec<u8>>()) {
            let _ = read(&text);
        }
    }
}
