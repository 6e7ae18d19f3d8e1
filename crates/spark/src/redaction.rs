//! Redaction of settings and log lines by `spark.redaction.regex`, as Spark applies it.
//!
//! Settings are masked by Spark's rule ([`Redaction::value`]). Spark has no rule for lines of text; here every value
//! after a matching key is masked (`key=value`, `key: value`, JSON, Python and Scala literals, `--key value`), and so
//! is anything that looks like a credential: user and password in a URL, bearer tokens, AWS key ids, private keys.
//!
//! When in doubt, more is hidden than necessary: an invalid pattern hides everything.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes;

use crate::names::key;
use crate::submission::SparkConf;

/// What Spark writes in place of hidden text.
pub const REDACTED: &str = "*********(redacted)";

/// Spark's default since 4.0; in 3.5 it lacks the last word.
const DEFAULT: &str = "(?i)secret|password|token|access[.]?key|credential";

/// The largest automaton a pattern may need.
const LARGEST_PATTERN: usize = 1 << 20;

/// Keys in lines of text whose values are always credentials, whatever the pattern.
const ALWAYS: [&str; 6] = ["authorization", "passwd", "pwd", "sig", "x-amz-credential", "x-amz-signature"];

/// Suffixes of source file names.
const SOURCES: [&[u8]; 4] = [b".java", b".kt", b".py", b".scala"];

/// One application's rule.
#[derive(Debug, Clone)]
pub struct Redaction {
    /// `None`: the pattern is invalid, so everything matches.
    pattern: Option<bytes::Regex>,
}

impl Default for Redaction {
    fn default() -> Self {
        Redaction::new(None)
    }
}

impl Redaction {
    /// The rule for these settings.
    pub fn of(conf: &SparkConf) -> Self {
        Redaction::new(conf.get(key::REDACTION_REGEX).map(String::as_str))
    }

    /// The rule for a pattern; without one, Spark's default.
    pub fn new(pattern: Option<&str>) -> Self {
        // Like Java's default: character classes and case folding are ASCII-only.
        let mut built = bytes::RegexBuilder::new(pattern.unwrap_or(DEFAULT));
        Redaction { pattern: built.unicode(false).size_limit(LARGEST_PATTERN).build().ok() }
    }

    /// Whether the pattern is valid. If not, everything is hidden.
    pub fn is_readable(&self) -> bool {
        self.pattern.is_some()
    }

    /// A setting's value as it may be shown: hidden if the pattern matches the key or the value.
    pub fn value<'v>(&self, key: &str, value: &'v str) -> &'v str {
        if self.matches(key) || self.matches(value) { REDACTED } else { value }
    }

    /// A text of many lines as it may be shown.
    pub fn text(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut in_key = false;
        for line in text.split_inclusive('\n') {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            let begins = line.contains("-----BEGIN ") && line.contains("PRIVATE KEY-----");
            let ends = line.contains("-----END ") && line.contains("PRIVATE KEY-----");
            if begins || in_key {
                shown.push_str(REDACTED);
            } else {
                shown.push_str(&self.line(line));
            }
            in_key = (begins || in_key) && !ends;
            shown.push_str(end);
        }
        shown
    }

    /// One line of text as it may be shown.
    pub fn line<'l>(&self, line: &'l str) -> Cow<'l, str> {
        if self.pattern.is_none() {
            return Cow::Borrowed(REDACTED);
        }
        match self.without_values(line) {
            Cow::Borrowed(line) => FORMS.replace_all(line, Forms),
            Cow::Owned(line) => Cow::Owned(FORMS.replace_all(&line, Forms).into_owned()),
        }
    }

    fn matches(&self, text: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(text.as_bytes()))
    }

    /// The line with the values after matching keys masked.
    fn without_values<'l>(&self, line: &'l str) -> Cow<'l, str> {
        let bytes = line.as_bytes();
        let mut shown = String::new();
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            if !is_key(bytes[at]) {
                at += 1;
                continue;
            }
            let begin = at;
            at += bytes[at..].iter().take_while(|byte| is_key(**byte)).count();
            let Some(value) = Separator::behind(bytes, begin, at) else { continue };
            if !self.hides(&line[begin..at]) {
                continue;
            }
            let (from, to) = value.extent(bytes);
            if from < to {
                shown.push_str(&line[copied..from]);
                shown.push_str(REDACTED);
                copied = to;
            }
            at = at.max(to);
        }
        if copied == 0 {
            return Cow::Borrowed(line);
        }
        shown.push_str(&line[copied..]);
        Cow::Owned(shown)
    }

    fn hides(&self, key: &str) -> bool {
        // `…SecretException: message` names a class, not a setting.
        let class = key.ends_with("Exception") || key.ends_with("Error");
        let name = key.trim_start_matches('-');
        !class && (self.matches(key) || ALWAYS.iter().any(|always| name.eq_ignore_ascii_case(always)))
    }
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'$')
}

/// The separator between a key and its value, and where the value begins.
struct Separator {
    /// `:`, after which an unquoted value extends to the end of the line.
    colon: bool,
    at: usize,
}

impl Separator {
    /// The separator after the key at `begin..end`, if there is one.
    fn behind(bytes: &[u8], begin: usize, end: usize) -> Option<Separator> {
        let byte = |at: usize| bytes.get(at).copied();
        let before = begin.checked_sub(1).and_then(byte);
        let mut at = end;
        if byte(at) == Some(b'\\') {
            at += 1;
        }
        let quoted = matches!(byte(at), Some(b'"' | b'\'')) && byte(at) == before;
        if quoted {
            at += 1;
        } else if at > end {
            return None;
        }
        let spaces = |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let blank = spaces(at);
        if quoted && matches!(byte(at), Some(b']' | b')')) {
            at += 1;
        }
        let behind = at + spaces(at);
        let found = |colon: bool, width: usize| Some(Separator { colon, at: behind + width });
        match (byte(behind), byte(behind + 1)) {
            (Some(b'='), Some(b'>' | b'=')) | (Some(b'-'), Some(b'>')) => found(false, 2),
            (Some(b'='), _) => found(false, 1),
            (Some(b':'), Some(b':')) => None,
            (Some(b':'), Some(b'/')) if byte(behind + 2) == Some(b'/') => None,
            // The last part of a path is not a key: `/run/secrets/token: Permission denied`.
            (Some(b':'), _) if before == Some(b'/') => None,
            // `Token.java:3` is a source location.
            (Some(b':'), Some(b'0'..=b'9')) if SOURCES.iter().any(|source| bytes[begin..end].ends_with(source)) => None,
            (Some(b':'), _) => found(true, 1),
            (Some(b','), _) if quoted || before == Some(b'(') => found(false, 1),
            (Some(_), _) if blank > 0 && bytes[begin..end].starts_with(b"--") => found(false, 0),
            _ => None,
        }
    }

    /// Where the value begins and ends.
    fn extent(&self, bytes: &[u8]) -> (usize, usize) {
        let mut from = self.at.min(bytes.len());
        from += bytes[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let prefix = bytes[from..].iter().take(2).take_while(|byte| b"bBrRuUfF".contains(byte)).count();
        let mut quote = from + prefix;
        let escaped = bytes.get(quote) == Some(&b'\\') && matches!(bytes.get(quote + 1), Some(b'"' | b'\''));
        if escaped {
            quote += 1;
        }
        match bytes.get(quote) {
            Some(mark @ (b'"' | b'\'')) => {
                let from = quote + 1;
                if bytes[from..].starts_with(&[*mark, *mark]) {
                    return (from, bytes.len());
                }
                let mut at = from;
                while at < bytes.len() {
                    let inner = !escaped && bytes[at] == b'\\';
                    if bytes[at] == *mark {
                        let end = if escaped && bytes[at - 1] == b'\\' { at - 1 } else { at };
                        return (from, end.max(from));
                    }
                    at += if inner { 2 } else { 1 };
                }
                (from, bytes.len())
            }
            Some(b'{' | b'[' | b'(') => (from, bytes.len()),
            _ if self.colon => (from, bytes.len()),
            _ => (from, from + bytes[from..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count()),
        }
    }
}

/// Text that looks like a credential. The named groups are kept around what is hidden.
#[allow(clippy::expect_used, reason = "a constant, and tested")]
static FORMS: LazyLock<regex::Regex> = LazyLock::new(|| {
    let forms = [
        // S3 keys may contain slashes.
        r#"(?<s3>\b[sS]3[an]?://)[^\s"'@:]*:[^\s"'@]+(?<s3_at>@)"#,
        r#"(?<http>\b[hH][tT][tT][pP][sS]?://)[^\s"'/?#@]+(?<http_at>@)"#,
        r#"(?<url>://)[^\s"'/?#@:]*:[^\s"'/?#@]+(?<url_at>@)"#,
        r"(?<scheme>\b(?:[bB][eE][aA][rR][eE][rR]|[bB][aA][sS][iI][cC]) )[A-Za-z0-9+/_.~=-]{16,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        // A line of a key or certificate whose first line is missing.
        r"^[A-Za-z0-9+/]{60,76}={0,2}$",
    ];
    regex::Regex::new(&forms.join("|")).expect("the patterns are right")
});

struct Forms;

impl regex::Replacer for Forms {
    fn replace_append(&mut self, found: &regex::Captures<'_>, shown: &mut String) {
        let kept = |names: &[&str]| names.iter().find_map(|name| found.name(name)).map_or("", |part| part.as_str());
        shown.push_str(kept(&["s3", "http", "url", "scheme"]));
        shown.push_str(REDACTED);
        shown.push_str(kept(&["s3_at", "http_at", "url_at"]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> String {
        Redaction::default().line(text).into_owned()
    }

    #[test]
    fn a_setting_is_hidden_by_its_key_or_by_its_value() {
        let default = Redaction::default();
        for key in ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "my.PASSWORD", "a.accessKey"] {
            assert_eq!(default.value(key, "x"), REDACTED, "{key}");
        }
        assert_eq!(default.value("spark.driver.extraJavaOptions", "-Dpassword=x"), REDACTED);
        assert_eq!(default.value("spark.executor.instances", "2"), "2");
        let conf = SparkConf::from([("spark.redaction.regex".to_owned(), "(?i)wages".to_owned())]);
        let own = Redaction::of(&conf);
        assert_eq!((own.value("Wages.key", "1"), own.value("a.password", "1")), (REDACTED, "1"));
    }

    #[test]
    fn a_pattern_that_cannot_be_read_hides_everything() {
        let unread = Redaction::new(Some("(?=look)ahead"));
        assert!(!unread.is_readable());
        assert_eq!((unread.value("a", "b"), unread.line("a b").as_ref()), (REDACTED, REDACTED));
    }

    #[test]
    fn values_behind_matching_keys_are_hidden_in_every_form() {
        let hidden = [
            "password=hunter2",
            "  fs.s3a.secret.key = hunter2",
            "password: hunter2 and more",
            r#"{"user": "a", "password": "hunter2", "n": 1}"#,
            r#"{\"password\":\"hunter2\"}"#,
            r#"{"password":"a\"hunter2"}"#,
            "{'apiToken': 'hunter2', 'b': 1}",
            r#"    .option("password", "hunter2")"#,
            r#"    conf["my.token"] = "hunter2""#,
            "    login(user='a', password=b'hun hunter2')",
            "(spark.my.password,hunter2)",
            "Map(my.secret -> hunter2, b -> c)",
            "run --my-token hunter2 --b c",
            "-Dspark.hadoop.fs.s3a.secret.key=hunter2 -Db=c",
            "AWS_SECRET_ACCESS_KEY=hunter2",
            "credentials={'a': 'hunter2'}",
            "password='''hunter2",
            "jdbc:postgresql://db/x?user=a&password=hunter2",
            "https://acct.blob.example/c?sv=1&sig=hunter2",
            "Authorization: Basic hunter2",
            "https://bob:hunter2@repo.example/x",
            "https://hunter2@repo.example/x",
            "mongodb+srv://bob:hunter2@db.example/x",
            "s3a://AKIA/x:hunter2/y@bucket/path",
        ];
        for text in hidden {
            let shown = line(text);
            assert!(shown.contains(REDACTED) && !shown.contains("hunter2"), "{text}: {shown}");
        }
        assert_eq!(line(r#"{"password": "x", "n": 1}"#), format!(r#"{{"password": "{REDACTED}", "n": 1}}"#));
        assert_eq!(line("run --token x --b c"), format!("run --token {REDACTED} --b c"));
        assert_eq!(line("curl https://a:b@h/x"), format!("curl https://{REDACTED}@h/x"));
        let bearer = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
        assert_eq!(line(bearer), format!("Bearer {REDACTED}"));
        assert_eq!(line("key id AKIAIOSFODNN7EXAMPLE used"), format!("key id {REDACTED} used"));
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            r#"secrets "s" is forbidden: User "system:serviceaccount:default:spark" cannot get resource "secrets""#,
            "cannot read /var/run/secrets/kubernetes.io/serviceaccount/token: Permission denied",
            "Caused by: org.example.SecretException: no such thing",
            "abfss://data@account.dfs.core.windows.net/x",
            "https://host:443/path@v2",
            "ZeroDivisionError: division by zero",
            "\tat org.example.Token.read(Token.java:3)",
            "Basic authentication failed",
        ] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn private_keys_are_hidden_over_all_their_lines() {
        let text = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb";
        assert_eq!(Redaction::default().text(text), format!("a\n{REDACTED}\n{REDACTED}\n{REDACTED}\nb"));
    }

    proptest! {
        #[test]
        fn any_line_is_taken(text in r#"([a-zä"'\\=:,>({\[ @/-]|token|password|s3a://|--|Bearer ){0,60}"#) {
            let _ = line(&text);
        }

        #[test]
        fn no_quoted_value_of_a_secret_is_seen(value in "[a-zA-Z0-9 ,;&=ä]{9,30}", more in "[a-z ]{0,9}") {
            let value = format!("Q{value}Q");
            for text in [
                format!(r#"{{"password": "{value}", "x": "{more}"}}"#),
                format!("f(token='{value}', x='{more}')"),
            ] {
                prop_assert!(!line(&text).contains(&value), "{}", line(&text));
            }
        }
    }
}
