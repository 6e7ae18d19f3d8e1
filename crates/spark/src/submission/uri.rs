//! File lists as `SparkSubmit` resolves them: entries become URIs, local globs are expanded.
//!
//! An entry that `java.net.URI` accepts and that has a scheme is left alone; anything else is a local path, resolved
//! against the working directory.

use percent_encoding::percent_decode_str;
use regex::Regex;

use crate::context::Files;
use crate::value::list;

/// The parts of a URI that matter here, as written.
#[derive(Debug, PartialEq, Eq)]
struct Uri<'a> {
    scheme: Option<&'a str>,
    /// Everything between scheme and fragment.
    specific: &'a str,
    /// Path without authority and query; empty if the URI is opaque.
    path: &'a str,
    fragment: Option<&'a str>,
}

impl Uri<'_> {
    fn has_authority(&self) -> bool {
        self.specific.strip_prefix("//").is_some_and(|rest| !rest.starts_with('/'))
    }
}

/// Whether a URI or path names a file on the submitting machine that must be uploaded.
pub fn is_local_file(uri: &str) -> bool {
    matches!(parse(uri).and_then(|u| u.scheme), None | Some("file"))
}

/// `java.net.URI`'s syntax, as far as it decides between a URI and a path.
fn parse(text: &str) -> Option<Uri<'_>> {
    let (rest, fragment) = match text.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment)),
        None => (text, None),
    };
    if fragment.is_some_and(|f| !legal(f, URIC)) {
        return None;
    }
    let colon = rest.find([':', '/', '?']).filter(|at| rest[*at..].starts_with(':'));
    let (scheme, specific) = match colon {
        Some(at) => {
            let scheme = &rest[..at];
            let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            if !well_formed || at + 1 == rest.len() {
                return None;
            }
            (Some(scheme), &rest[at + 1..])
        }
        None => (None, rest),
    };
    if scheme.is_some() && !specific.starts_with('/') {
        return legal(specific, URIC).then_some(Uri { scheme, specific, path: "", fragment });
    }
    let (hierarchy, query) = specific.split_once('?').unwrap_or((specific, ""));
    let (authority, path) = match hierarchy.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            if rest.is_empty() {
                return None;
            }
            rest.split_at(end)
        }
        None => ("", hierarchy),
    };
    (legal(authority, AUTHORITY) && legal(path, PATH) && legal(query, URIC)).then_some(Uri {
        scheme,
        specific,
        path,
        fragment,
    })
}

const UNRESERVED: &str = "_-!.~'()*";
const PATH: &str = ":@&=+$,;/";
const AUTHORITY: &str = "$,;:@&=+[]";
const URIC: &str = ";/?:@&=+$,[]";

fn allowed(c: char, more: &str) -> bool {
    c.is_ascii_alphanumeric() || UNRESERVED.contains(c) || more.contains(c) || other(c)
}

/// Java allows all non-ASCII characters except white space and control characters.
fn other(c: char) -> bool {
    !c.is_ascii() && !c.is_whitespace() && !c.is_control()
}

fn legal(text: &str, more: &str) -> bool {
    let bytes = text.as_bytes();
    text.char_indices().all(|(at, c)| match c {
        '%' => bytes.get(at + 1..at + 3).is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)),
        c => allowed(c, more),
    })
}

/// Percent-encodes characters that are not allowed, `%` included.
fn quote(text: &str, more: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if allowed(c, more) {
            out.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    out
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Resolves entries against the local file system.
#[derive(Clone, Copy)]
pub(super) struct Resolver<'a> {
    pub files: &'a dyn Files,
    pub cwd: &'a str,
}

/// Why an entry of a list is refused, as a clause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("`{0}` is not a valid URI; percent-encode spaces (%20) and other special characters")]
    Malformed(String),
    #[error("`{0}` is neither an absolute file: URI nor a path; write file:/absolute/path or a plain path")]
    NotAbsolute(String),
    #[error("`{0}` names a host, but only local files can be read; write file:///the/path")]
    Host(String),
    #[error("`{0}` is not a valid glob (entries are split at commas); list the files one by one")]
    Glob(String),
    #[error("`{uri}` matches several files ({}), so the name after # is ambiguous; list them one by one", .matches.join(", "))]
    Ambiguous { uri: String, matches: Vec<String> },
}

/// Refuses an entry that looks like a URI but is not valid. Spark treats it as a path and fails later.
pub(super) fn check_entry(entry: &str) -> Result<(), EntryError> {
    let Some((scheme, _)) = entry.split_once("://") else { return Ok(()) };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if is_scheme && parse(entry).is_none() { Err(EntryError::Malformed(entry.to_owned())) } else { Ok(()) }
}

impl Resolver<'_> {
    /// One entry as a URI.
    pub(super) fn uri(&self, entry: &str) -> String {
        match parse(entry) {
            Some(Uri { scheme: Some(_), .. }) => entry.to_owned(),
            Some(Uri { path, fragment: Some(fragment), .. }) => {
                format!("{}#{}", self.file_uri(&self.absolute(&decode(path))), quote(&decode(fragment), URIC))
            }
            _ => self.file_uri(&self.canonical(&self.absolute(entry))),
        }
    }

    /// A path with symlinks resolved as far as it exists, and without `.` and `..`.
    fn canonical(&self, path: &str) -> String {
        let mut existing = path.trim_end_matches('/');
        let mut rest = "";
        while !existing.is_empty() {
            if let Ok(real) = self.files.canonical(existing) {
                return normalize(&format!("{real}/{rest}"));
            }
            let parent = existing.rfind('/').unwrap_or(0);
            rest = &path[(parent + 1).min(path.len())..];
            existing = existing[..parent].trim_end_matches('/');
        }
        normalize(path)
    }

    /// A comma-separated list, each entry as a URI.
    pub(super) fn uris(&self, entries: &str) -> String {
        let resolved: Vec<String> =
            entries.split(',').filter(|e| !crate::value::java_trim(e).is_empty()).map(|e| self.uri(e)).collect();
        resolved.join(",")
    }

    /// A comma-separated list with globs in `file:` entries expanded. As in Spark, a glob that matches nothing and a
    /// directory are dropped; `dropped` is called for them.
    pub(super) fn globs(&self, entries: &str, dropped: &mut dyn FnMut(&str)) -> Result<String, EntryError> {
        let mut all = Vec::new();
        for entry in list(entries) {
            check_entry(entry)?;
            let uri = self.uri(entry);
            let Some(parsed) = parse(&uri) else {
                all.push(uri);
                continue;
            };
            let scheme = parsed.scheme.unwrap_or("file");
            let base = format!("{scheme}:{}", quote(&decode(parsed.specific), URIC));
            let found = match scheme {
                "file" if parsed.path.is_empty() => return Err(EntryError::NotAbsolute(uri)),
                "file" if parsed.has_authority() => return Err(EntryError::Host(uri)),
                "file" => self.glob(&base, &decode(parsed.path))?,
                _ => vec![base.clone()],
            };
            match parsed.fragment.map(decode) {
                Some(_) if found.len() > 1 => return Err(EntryError::Ambiguous { uri: base, matches: found }),
                Some(name) => all.extend(found.iter().map(|f| format!("{f}#{name}"))),
                None if found.is_empty() => dropped(&uri),
                None => all.extend(found),
            }
        }
        Ok(all.join(","))
    }

    /// The regular files that a path matches, spelled as in Hadoop: `file:///` for a plain path, `file:/` for glob
    /// matches. A path without wildcards that does not exist is returned unchanged.
    fn glob(&self, uri: &str, path: &str) -> Result<Vec<String>, EntryError> {
        let path = normalize(path);
        if !is_glob(&path) {
            return Ok(match self.kind(&path) {
                PathKind::Plain => vec![format!("file://{}", quote(&path, PATH))],
                PathKind::Directory => vec![],
                PathKind::Absent => vec![uri.to_owned()],
            });
        }
        let malformed = || EntryError::Glob(path.clone());
        let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
        let Some((last, parents)) = segments.split_last() else { return Ok(vec![]) };
        let last = glob_regex(last).ok_or_else(malformed)?;
        let mut directories = vec![String::new()];
        for segment in parents {
            if is_glob(segment) {
                let pattern = glob_regex(segment).ok_or_else(malformed)?;
                let inside = |dir: &String| self.files.directories(or_root(dir)).unwrap_or_default();
                directories = directories.iter().flat_map(|dir| below(dir, inside(dir), &pattern)).collect();
            } else {
                directories.iter_mut().for_each(|dir| *dir = format!("{dir}/{segment}"));
            }
        }
        let inside = |dir: &String| self.files.list(or_root(dir)).unwrap_or_default().into_iter().map(|(name, _)| name);
        let mut found: Vec<String> = directories.iter().flat_map(|dir| below(dir, inside(dir), &last)).collect();
        found.sort();
        Ok(found.iter().map(|path| format!("file:{}", quote(path, PATH))).collect())
    }

    fn absolute(&self, path: &str) -> String {
        match path {
            "" => self.cwd.to_owned(),
            p if p.starts_with('/') => p.to_owned(),
            p => format!("{}/{p}", self.cwd.trim_end_matches('/')),
        }
    }

    /// `File.toURI`: a directory gets a slash at the end.
    fn file_uri(&self, path: &str) -> String {
        let mut path = collapse(path);
        if path != "/" && matches!(self.kind(&path), PathKind::Directory) {
            path.push('/');
        }
        format!("file:{}", quote(&path, PATH))
    }

    fn kind(&self, path: &str) -> PathKind {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let listed = self.files.list(or_root(dir));
        if listed.is_ok_and(|names| names.iter().any(|(n, _)| n == name)) {
            PathKind::Plain
        } else if self.files.list(path).is_ok() {
            PathKind::Directory
        } else {
            PathKind::Absent
        }
    }
}

enum PathKind {
    Plain,
    Directory,
    Absent,
}

/// Removes doubled and trailing slashes, as Java's `File` does.
fn collapse(path: &str) -> String {
    let mut out = String::from("/");
    for segment in path.split('/').filter(|s| !s.is_empty()) {
        if out.len() > 1 {
            out.push('/');
        }
        out.push_str(segment);
    }
    out
}

/// An absolute path without `.`, `..`, doubled and trailing slashes.
fn normalize(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    format!("/{}", segments.join("/"))
}

fn or_root(dir: &str) -> &str {
    if dir.is_empty() { "/" } else { dir }
}

/// The names below a directory that match, as paths.
fn below(dir: &str, names: impl IntoIterator<Item = String>, pattern: &Regex) -> Vec<String> {
    names.into_iter().filter(|name| pattern.is_match(name)).map(|name| format!("{dir}/{name}")).collect()
}

fn is_glob(path: &str) -> bool {
    let mut escaped = false;
    path.chars().any(|c| {
        let wild = !escaped && matches!(c, '*' | '?' | '[' | '{');
        escaped = c == '\\' && !escaped;
        wild
    })
}

/// Hadoop's globs: `*`, `?`, `[a-c]`, `[^a]`, `{x,y}` and `\` before a literal.
fn glob_regex(pattern: &str) -> Option<Regex> {
    let mut out = String::from("(?s)^");
    let (mut braces, mut set) = (0, false);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push_str(&regex::escape(&chars.next()?.to_string())),
            '[' if !set => {
                set = true;
                out.push('[');
                if chars.next_if(|c| matches!(c, '^' | '!')).is_some() {
                    out.push('^');
                }
            }
            ']' if set => {
                set = false;
                out.push(']');
            }
            '-' if set => out.push('-'),
            '*' if !set => out.push_str(".*"),
            '?' if !set => out.push('.'),
            '{' if !set => {
                braces += 1;
                out.push_str("(?:");
            }
            '}' if !set && braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if !set && braces > 0 => out.push('|'),
            other => out.push_str(&regex::escape(&other.to_string())),
        }
    }
    out.push('$');
    if braces > 0 || set {
        return None;
    }
    Regex::new(&out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io;

    /// Files below `/w`, and a link `/w/link.jar` to `/w/a.jar`.
    struct Here;

    const FILES: [(&str, &str); 7] = [
        ("/w", "a.jar"),
        ("/w", "b.jar"),
        ("/w", "link.jar"),
        ("/w", "é.txt"),
        ("/w/s p", "d e.jar"),
        ("/w/x", "1.jar"),
        ("/w/y", "2.jar"),
    ];

    impl Files for Here {
        fn read(&self, path: &str) -> io::Result<Vec<u8>> {
            Err(io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
        }
        fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
            let dir = dir.trim_end_matches('/');
            let found: Vec<_> =
                FILES.iter().filter(|(d, _)| *d == dir).map(|(_, name)| ((*name).to_owned(), 1)).collect();
            if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
        }
        fn directories(&self, dir: &str) -> io::Result<Vec<String>> {
            Ok(if dir == "/w" { vec!["s p".into(), "x".into(), "y".into()] } else { vec![] })
        }
        fn canonical(&self, path: &str) -> io::Result<String> {
            match path {
                "/w/link.jar" => Ok("/w/a.jar".to_owned()),
                "/w" => Ok(path.to_owned()),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        }
    }

    const HERE: Resolver<'static> = Resolver { files: &Here, cwd: "/w" };

    fn globs(entries: &str) -> String {
        HERE.globs(entries, &mut |_| {}).unwrap()
    }

    #[test]
    fn what_has_a_scheme_is_left_alone_and_the_rest_are_files_here() {
        for (entry, uri) in [
            ("local:///opt/a.jar", "local:///opt/a.jar"),
            ("s3a://bucket/key#name", "s3a://bucket/key#name"),
            ("http://h/x?y=z", "http://h/x?y=z"),
            ("file:///x", "file:///x"),
            ("x:y", "x:y"),
            ("a.jar", "file:/w/a.jar"),
            ("./a.jar", "file:/w/a.jar"),
            ("../q/./z", "file:/q/z"),
            ("/abs//x/", "file:/abs/x"),
            ("s p/d e.jar", "file:/w/s%20p/d%20e.jar"),
            ("100%.txt", "file:/w/100%25.txt"),
            ("é.txt", "file:/w/é.txt"),
            ("a.jar#name", "file:/w/a.jar#name"),
            ("a b#c", "file:/w/a%20b%23c"),
            ("a?b", "file:/w/a%3Fb"),
            ("1:y", "file:/w/1:y"),
            (":y", "file:/w/:y"),
            ("x", "file:/w/x/"),
            ("link.jar", "file:/w/a.jar"),
            ("", "file:/w/"),
        ] {
            assert_eq!(HERE.uri(entry), uri, "{entry}");
        }
    }

    #[test]
    fn lists_keep_their_order_and_drop_empty_entries() {
        assert_eq!(HERE.uris(",a.jar,,local:///b,"), "file:/w/a.jar,local:///b");
        assert_eq!(HERE.uris(" "), "");
        // Spark treats the space as part of the name if the list comes from an option.
        assert_eq!(HERE.uris("a.jar, b.jar"), "file:/w/a.jar,file:/w/%20b.jar");
    }

    #[test]
    fn files_that_exist_are_spelled_as_hadoop_does() {
        for (entries, found) in [
            ("a.jar", "file:///w/a.jar"),
            ("missing.jar", "file:/w/missing.jar"),
            ("a.jar, b.jar", "file:///w/a.jar,file:///w/b.jar"),
            ("a.jar#n", "file:///w/a.jar#n"),
            ("*.jar", "file:/w/a.jar,file:/w/b.jar,file:/w/link.jar"),
            ("?.jar", "file:/w/a.jar,file:/w/b.jar"),
            ("*/*.jar", "file:/w/s%20p/d%20e.jar,file:/w/x/1.jar,file:/w/y/2.jar"),
            ("/w/[x-z]/*", "file:/w/x/1.jar,file:/w/y/2.jar"),
            ("{a}.jar", "file:/w/a.jar"),
            ("none*", ""),
            ("x", ""),
            ("a*#n", "file:/w/a.jar#n"),
            ("local:///a%20b", "local:///a%20b"),
            ("s3a://b/*.jar", "s3a://b/*.jar"),
        ] {
            assert_eq!(globs(entries), found, "{entries}");
        }
    }

    #[test]
    fn what_vanishes_is_told() {
        let mut dropped = Vec::new();
        HERE.globs("a.jar,none*,x", &mut |uri| dropped.push(uri.to_owned())).unwrap();
        assert_eq!(dropped, ["file:/w/none*", "file:/w/x/"]);
    }

    #[test]
    fn entries_that_cannot_be_meant_are_refused() {
        let refused = |entries| HERE.globs(entries, &mut |_| {}).unwrap_err();
        assert!(matches!(refused("local:///x y"), EntryError::Malformed(_)));
        assert!(matches!(refused("file:a.jar"), EntryError::NotAbsolute(_)));
        assert!(matches!(refused("file://host/x"), EntryError::Host(_)));
        assert!(matches!(refused("x/{a,b}"), EntryError::Glob(_)));
        assert!(matches!(refused("*.jar#n"), EntryError::Ambiguous { .. }));
    }

    #[test]
    fn only_files_here_have_to_be_uploaded() {
        for local in ["file:/x", "file:///x", "/x", "x"] {
            assert!(is_local_file(local), "{local}");
        }
        for remote in ["local:///x", "s3a://b/x", "http://h/x"] {
            assert!(!is_local_file(remote), "{remote}");
        }
    }

    proptest! {
        #[test]
        fn any_list_resolves_or_is_refused(entries in ".*") {
            let _ = HERE.globs(&entries, &mut |_| {});
            let _ = HERE.uris(&entries);
        }

        #[test]
        fn a_resolved_uri_resolves_to_itself(entry in "[a-z #%?*/é.]{1,12}") {
            let uri = HERE.uri(&entry);
            prop_assert_eq!(HERE.uri(&uri), uri);
        }
    }
}
