//! `docs/reference/`: pages rendered from the code and compared with what is committed.
//!
//! `UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference` writes them. The code is the only source: after adding
//! a flag, field, metric, event or exit code, regenerate the pages, or the test fails.

mod conf;
mod fields;
mod flags;
mod prose;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(title: &str, audience: &str, body: &str) -> String {
    format!(
        "<!-- Generated from the code. Change the code, then run: UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference -->\n\
         # {title}\n\n*{audience}*\n\n{}\n",
        body.trim_end()
    )
}

fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = line(&head);
    text.push_str(&line(&vec!["---".to_owned(); head.len()]));
    for row in rows {
        text.push_str(&line(&row));
    }
    text
}

/// Text for a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

fn events() -> String {
    use firesteel_core::event_reason::{application, connect, executors, schedule, webhook};
    let rows = |all: &[(&str, &str)]| {
        table(&["reason", "when"], all.iter().map(|(reason, when)| vec![code(reason), cell(when)]))
    };
    let body = format!(
        "Repeated events are merged into one event with a count, updated every ten seconds. Events of a run that goes \
         well (added, pending, submitted, running, completed) that follow each other within five seconds are published \
         as one, with the reason that says most and all their notes; warnings never wait. `kubectl describe` shows \
         them.\n\n\
         ## On a SparkApplication\n\nReported by `spark-application-controller`.\n\n{}\n\
         ## On a SparkConnect\n\nReported by `spark-connect-controller`.\n\n{}\n\
         ## On a ScheduledSparkApplication\n\nReported by `scheduled-spark-application-controller`; see [schedules](../schedules.md).\n\n{}\n\
         ## On the driver pod\n\nReported by `firesteel-executors`, for applications whose executors are \
         [outside the driver](../executors.md). The last four are verdicts: the application cannot continue.\n\n{}\n\
         ## On the Secret of the webhook\n\nReported by `firesteel-webhook`; see [admission](../admission.md).\n\n{}",
        rows(application::ALL),
        rows(connect::ALL),
        rows(schedule::ALL),
        rows(executors::ALL),
        rows(webhook::ALL)
    );
    page("Events", "For people who operate Firesteel: every event the operator publishes.", &body)
}

fn metrics() -> String {
    let rows = firesteel_operator::metrics::ALL.iter();
    let rows = rows.map(|(name, kind, help)| vec![code(name), (*kind).to_owned(), cell(help)]);
    let body = format!(
        "The operator serves them at `/metrics` of `--metrics-bind-address`, in Prometheus' text format, each labelled with \
         `namespace`. `--metrics-prefix` is prepended to the names. Counters start at 0 with the process; gauges are computed \
         from the operator's caches on each scrape.\n\n{}",
        table(&["name", "type", "meaning"], rows)
    );
    page("Metrics", "For people who monitor the operator.", &body)
}

fn exit_codes() -> String {
    let rows = crate::exit::reference::rows().into_iter().map(|(code, meaning)| vec![code, cell(meaning)]);
    let body = format!(
        "{}\nWith a driver whose executors are [outside the driver](../executors.md), 11 means that Spark or the operator gave \
         up because executors kept failing.\n",
        table(&["code", "meaning"], rows)
    );
    page("Exit codes", "For people who call `firesteel` from scripts.", &body)
}

fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("conf.md", conf::page()),
        ("events.md", events()),
        ("exit-codes.md", exit_codes()),
        ("fields.md", fields::page()),
        ("flags.md", flags::page()),
        ("metrics.md", metrics()),
    ]
}

#[test]
fn the_reference_is_what_the_code_says() {
    let directory = root().join("docs/reference");
    let update = std::env::var_os("UPDATE_REFERENCE").is_some();
    let mut stale = String::new();
    for (name, text) in pages() {
        let path = directory.join(name);
        if update {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &text).unwrap();
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            let _ = write!(stale, " docs/reference/{name}");
        }
    }
    assert!(
        stale.is_empty(),
        "out of date:{stale}; run UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference"
    );
}
