//! Checks on all documents: links resolve, every page names its audience, and flags, settings and events exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use firesteel_spark::{args, registry};

use super::root;

/// Flags in our documents that belong to other programs or to this project's scripts.
const OTHER_FLAGS: &[&str] = &[
    // kubectl, ctr, cargo, git
    "--server-side",
    "--force-conflicts",
    "--for",
    "--timeout",
    "--previous",
    "--all",
    "--namespace",
    "--package",
    "--bins",
    "--lib",
    "--test",
    "--workspace",
    "--ignored",
    "--all-targets",
    "--locked",
    "--release",
    "--no-run",
    "--bin",
    "--watch",
    "--base",
    // helm
    "--create-namespace",
    "--set",
    // bench
    "--seconds",
    "--values",
    "--reset-values",
    "--reset-then-reuse-values",
    "--take-ownership",
    // deploy/image, deploy/image-spark
    "--binary",
    "--arch",
    "--name",
    // bench/*, tests/*, testenv/*, bridge/build, ./test
    "--executors",
    "--rounds",
    "--delay",
    "--deaths",
    "--steps",
    "--spark",
    "--apps",
    "--threads",
    "--runs",
    "--only",
    "--pods",
    "--workers",
    "--watches",
    "--events",
    "--starts",
    "--slices",
    "--check",
    "--link",
    "--dir",
    "--kwok-nodes",
    "--real-node",
    "--owner-pid",
    "--only-spark",
    "--change",
    "--list",
    "--update",
    "--without-cluster",
];

/// Every document of the project, by path.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
                directories.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The link targets of a document, outside code blocks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in without_code(text).lines() {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            links.push(rest[..end].to_owned());
        }
        // <img src="…">: pictures for light and dark themes.
        links.extend(line.split("src=\"").chain(line.split("srcset=\"")).skip(1).filter_map(|part| {
            let (target, _) = part.split_once('"')?;
            (target.contains('.') && !target.contains(' ')).then(|| target.to_owned())
        }));
    }
    links
}

fn without_code(text: &str) -> String {
    let mut inside = false;
    let keep = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    keep.collect::<Vec<_>>().join("\n")
}

/// GitHub's anchor for a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    without_code(&text).lines().filter(|line| line.starts_with('#')).any(|heading| anchor(heading) == wanted)
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut broken = Vec::new();
    for page in documents() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, wanted) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !target.exists() || !wanted.is_empty() && !has_anchor(&target, wanted) {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_says_whom_it_is_for() {
    let pages = documents()
        .into_iter()
        .filter(|page| page.parent().is_some_and(|p| p.ends_with("docs") || p.ends_with("docs/reference")));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let first = text.lines().take(6).any(|line| line.starts_with("*For "));
        assert!(first, "{}: its first lines do not say whom it is for (*For …*)", page.display());
    }
}

#[test]
fn the_readme_is_short() {
    let lines = std::fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= 100, "README.md has {lines} lines");
}

#[test]
fn flags_settings_and_events_in_documents_exist() {
    let (flags, root) = (flags(), root());
    let mut unknown = Vec::new();
    for page in documents().into_iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        let strange = strange_flags(&text, &flags).chain(strange_settings(&text)).chain(strange_events(&text));
        let place = page.strip_prefix(&root).unwrap_or(&page).display();
        unknown.extend(strange.map(|word| format!("{place}: {word}")));
    }
    assert!(unknown.is_empty(), "named in documents, but unknown to the code:\n{}", unknown.join("\n"));
}

/// Flags of every verb, hidden ones included, and of the other programs that documents call.
fn flags() -> BTreeSet<String> {
    let mut flags: BTreeSet<String> = OTHER_FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    flags.extend(args::OPTIONS.iter().map(|option| option.flag.to_owned()));
    let mut verbs = vec![crate::Cli::command()];
    while let Some(verb) = verbs.pop() {
        flags.extend(verb.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
        verbs.extend(verb.get_subcommands().cloned());
    }
    flags
}

fn strange_flags(text: &str, known: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let named = words(text, "--", |c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit());
    named.into_iter().filter(|flag| flag.len() > 3 && !flag.ends_with('-') && !known.contains(flag))
}

fn strange_settings(text: &str) -> impl Iterator<Item = String> {
    const FAMILIES: [&str; 7] =
        ["label.", "annotation.", "volumes.", "secretKeyRef.", "secrets.", "selector.", "driverEnv."];
    let named = words(text, "spark.kubernetes.", |c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    let is_family = |key: &String| FAMILIES.iter().any(|family| key.contains(family));
    // A key prefix stands for all keys that begin with it.
    let is_known = |key: &String| registry::all().any(|setting| setting.key.starts_with(key.as_str()));
    named.into_iter().filter(move |key| !is_family(key) && !is_known(key))
}

fn strange_events(text: &str) -> impl Iterator<Item = String> {
    let named = ["SparkApplication", "SparkDriver", "SparkExecutor"].into_iter().flat_map(|subject| {
        let named = words(text, subject, |c| c.is_ascii_alphanumeric());
        named.into_iter().filter(move |word| word[subject.len()..].starts_with(|c: char| c.is_ascii_uppercase()))
    });
    named.filter(|word| !reasons().any(|reason| reason == word)).collect::<Vec<_>>().into_iter()
}

/// Reasons of all events.
fn reasons() -> impl Iterator<Item = &'static str> {
    use firesteel_core::event_reason::{application, connect, executors, schedule, webhook};
    let all =
        application::ALL.iter().chain(connect::ALL).chain(schedule::ALL).chain(executors::ALL).chain(webhook::ALL);
    all.map(|(reason, _)| *reason)
}

/// Words that begin with `start` and continue with characters accepted by `part`.
fn words(text: &str, start: &str, part: impl Fn(char) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(start) {
        let before = text[..at].chars().next_back();
        if before.is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '.') {
            let rest: String = text[at + start.len()..].chars().take_while(|c| part(*c)).collect();
            found.insert(format!("{start}{rest}").trim_end_matches('.').to_owned());
        }
    }
    found
}

#[test]
fn pictures_are_what_their_texts_give() {
    let drawn =
        std::process::Command::new("python3").arg(root().join("docs/pictures/draw")).arg("--check").output().unwrap();
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
}

/// Lines such as `crates/core/src/lifecycle.rs  step, submitted  what it does`, in the order of execution.
#[test]
fn the_walks_of_the_architecture_name_functions_that_exist() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut steps = 0;
    for line in text.lines().filter(|line| line.starts_with("crates/") || line.starts_with("bridge/")) {
        let mut columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
        let (file, functions) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
        let code = std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{line}: {e}"));
        for function in functions.split(", ") {
            let name = function.rsplit("::").next().unwrap_or(function);
            let rust = code.contains(&format!("fn {name}(")) || code.contains(&format!("fn {name}<"));
            let java = file.ends_with(".java") && code.contains(&format!(" {name}("));
            assert!(rust || java, "{file} has no function {name}");
            steps += 1;
        }
    }
    assert!(steps > 20, "the walks are gone: {steps} steps");
}
