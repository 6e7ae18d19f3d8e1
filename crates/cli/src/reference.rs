//! `docs/reference/` and generated files in `deploy/`: rendered from the code and compared with what is committed.
//!
//! `UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference` writes them. The code is the only source: after adding
//! a flag, field, metric, event or exit code, regenerate the pages, or the test fails.

mod conf;
mod deploy;
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
    use firesteel_operator::metrics::families::{ALL, Family, Scope};
    let labels = |family: &Family| {
        let more = family.labels.iter().map(|label| code(label));
        let first = match family.scope {
            Scope::Chosen => vec!["chosen".to_owned()],
            Scope::Application => vec![code("namespace"), "chosen".to_owned()],
            Scope::Namespace => vec![code("namespace")],
            Scope::Process => Vec::new(),
        };
        first.into_iter().chain(more).collect::<Vec<_>>().join(", ")
    };
    let row =
        |family: &&Family| vec![code(family.name), family.kind.word().to_owned(), labels(family), cell(family.help)];
    let (existing, own): (Vec<&Family>, Vec<&Family>) = ALL.iter().partition(|family| family.has_prefix());
    let head = ["name", "type", "labels", "meaning"];
    let body = format!(
        "The operator serves them at `/metrics` of `--metrics-bind-address`, in Prometheus' text format, or in OpenMetrics if \
         the client asks for it. *Chosen* labels are those of `--metrics-labels`; their values come from the labels of the \
         application, and for executors first from those of the executor. [Monitoring](../monitoring.md) shows how to use \
         them.\n\n\
         ## Under the existing operator's names\n\n`--metrics-prefix` is prepended to the names; with \
         `--enable-metrics=false` they are not exported.\n\n{}\n\
         ## The operator's own\n\nThose that begin with `workqueue_`, `controller_runtime_`, `rest_client_`, \
         `leader_election_` and `process_` have the names that the existing operator has from its libraries.\n\n{}",
        table(&head, existing.iter().map(row)),
        table(&head, own.iter().map(row))
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
    let update = std::env::var_os("UPDATE_REFERENCE").is_some();
    let mut stale = String::new();
    let pages = pages().into_iter().map(|(name, text)| (format!("docs/reference/{name}"), text));
    for (name, text) in pages.chain(deploy::files()) {
        let path = root().join(&name);
        if update {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            let _ = write!(stale, " {name}");
        }
    }
    assert!(
        stale.is_empty(),
        "out of date:{stale}; run UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference"
    );
}
