//! A replayed watch equals a list: random concurrent writes, watchers with and without selectors, restarts, a short history.
//!
//! Writers record the revision of every response; that is the truth. (They write service accounts, whose deletion returns the revision
//! too.) A watcher behaves like an informer: lists, watches from there, resumes when a stream ends, and lists again after a 410. It must
//! see exactly the true changes from its revision on, each once and in order, and must end up with what a list returns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use firesteel_apiserver::{ApiServer, RunningServer};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::inside::{ask, response, revision};

const SPACES: [&str; 2] = ["default", "kube-public"];
const LAST: &str = "last";

#[derive(Debug, Clone)]
enum Step {
    Create { on: bool },
    Label { on: bool },
    Change { text: u8 },
    Delete,
}

/// A step, and the object it is for.
type Aimed = (usize, usize, Step);

#[derive(Debug, Clone)]
struct Phase {
    writers: Vec<Vec<Aimed>>,
    /// The server stops as soon as everything is written, whether or not the watchers have seen it.
    cut: bool,
}

fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let step = prop_oneof![
        3 => any::<bool>().prop_map(|on| Step::Create { on }),
        2 => any::<bool>().prop_map(|on| Step::Label { on }),
        2 => any::<u8>().prop_map(|text| Step::Change { text }),
        2 => Just(Step::Delete),
    ];
    let steps = prop::collection::vec((0..SPACES.len(), 0..4usize, step), 0..25);
    let phase = (prop::collection::vec(steps, 1..4), any::<bool>()).prop_map(|(writers, cut)| Phase { writers, cut });
    prop::collection::vec(phase, 1..4)
}

fn accounts(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/serviceaccounts")
}

/// By revision: the key, and the state (`None` if removed).
type Truth = BTreeMap<u64, (String, String, Option<Value>)>;

async fn write(server: &RunningServer, space: &str, name: &str, step: &Step, truth: &mut Truth) {
    let label = |on: bool| json!({"on": if on { "yes" } else { "no" }});
    let (method, body) = match step {
        Step::Create { on } => ("POST", json!({"metadata": {"name": name, "labels": label(*on)}})),
        Step::Label { on } => ("PATCH", json!({"metadata": {"labels": label(*on)}})),
        Step::Change { text } => ("PATCH", json!({"metadata": {"annotations": {"text": text.to_string()}}})),
        Step::Delete => ("DELETE", Value::Null),
    };
    let path = if method == "POST" { accounts(space) } else { format!("{}/{name}", accounts(space)) };
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let (code, answer) = ask(server, method, &path, media, &body).await;
    match code {
        200 | 201 => {
            let now = (method != "DELETE").then(|| answer.clone());
            truth.insert(revision(&answer), (space.into(), name.into(), now));
        }
        404 | 409 => {}
        _ => panic!("{method} {path}: {code}: {answer}"),
    }
}

/// The state of an informer.
#[derive(Debug)]
struct Watcher {
    /// One namespace, or all.
    space: Option<&'static str>,
    /// Only objects labelled `on=yes`.
    selects: bool,
    /// The first list arrives as watch events.
    streams_list: bool,
    /// `None`: must list.
    at: Option<u64>,
    held: BTreeMap<(String, String), Value>,
    lists: usize,
}

fn place(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().expect("text").to_owned();
    (text("namespace"), text("name"))
}

impl Watcher {
    fn path(&self) -> String {
        let path = self.space.map_or("/api/v1/serviceaccounts".to_owned(), accounts);
        format!("{path}?{}", if self.selects { "labelSelector=on%3Dyes" } else { "" })
    }

    fn selects(&self, object: &Value) -> bool {
        self.space.is_none_or(|space| object["metadata"]["namespace"] == space)
            && (!self.selects || object["metadata"]["labels"]["on"] == "yes")
    }

    async fn list(&mut self, server: &RunningServer) {
        let (code, list) = ask(server, "GET", &self.path(), "", &Value::Null).await;
        assert_eq!(code, 200, "{list}");
        self.at = Some(revision(&list));
        self.lists += 1;
        self.held = held_in(&list);
    }

    /// Watches until the stream ends or the last object of the phase arrives; returns the revisions seen.
    async fn follow(&mut self, server: &RunningServer, last: &str) {
        loop {
            let path = match self.at {
                Some(at) => format!("{}&watch=true&resourceVersion={at}", self.path()),
                None if self.streams_list => {
                    self.held.clear();
                    let how =
                        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                    format!("{}&{how}", self.path())
                }
                None => {
                    self.list(server).await;
                    continue;
                }
            };
            let mut body = response(server, "GET", &path, "", String::new()).await.into_body();
            let mut text = Vec::new();
            let mut gone = false;
            while let Some(frame) = body.frame().await {
                text.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).expect("an event");
                    if event["type"] == "ERROR" {
                        assert_eq!(event["object"]["code"], 410, "{event}");
                        gone = true;
                        break;
                    }
                    self.take(&event);
                }
                if self.held.keys().any(|(_, name)| name == last) {
                    return;
                }
            }
            if !gone {
                // The server stopped.
                return;
            }
            self.at = None;
        }
    }

    fn take(&mut self, event: &Value) {
        let object = &event["object"];
        let revision = revision(object);
        let initial = self.at.is_none();
        if event["type"] == "BOOKMARK" {
            self.at = Some(revision);
            return;
        }
        if let Some(at) = self.at {
            assert!(revision > at, "told {revision} after {at}");
            self.at = Some(revision);
        }
        let before = self.held.contains_key(&place(object));
        match event["type"].as_str().expect("a type") {
            "ADDED" => assert!(!before, "added twice: {event}"),
            "MODIFIED" => assert!(before && !initial, "was not there: {event}"),
            "DELETED" => assert!(before && !initial, "was not there: {event}"),
            other => panic!("{other}"),
        }
        if event["type"] == "DELETED" {
            self.held.remove(&place(object));
        } else {
            assert!(self.selects(object), "not selected: {event}");
            self.held.insert(place(object), object.clone());
        }
    }
}

fn held_in(list: &Value) -> BTreeMap<(String, String), Value> {
    list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|item| {
            let mut item = item.clone();
            item["apiVersion"] = "v1".into();
            item["kind"] = "ServiceAccount".into();
            (place(&item), item)
        })
        .collect()
}

/// The true state at a revision, in addition to the initial one.
fn state_at(truth: &Truth, first: &BTreeMap<(String, String), Value>, at: u64) -> BTreeMap<(String, String), Value> {
    let mut state = first.clone();
    for (space, name, now) in truth.range(..=at).map(|(_, change)| change) {
        match now {
            Some(object) => state.insert((space.clone(), name.clone()), object.clone()),
            None => state.remove(&(space.clone(), name.clone())),
        };
    }
    state
}

async fn started(data: &Path, history: usize) -> Arc<RunningServer> {
    let server = ApiServer::builder().data_dir(Some(data.to_owned())).history(history).start().await;
    Arc::new(server.expect("the server starts"))
}

async fn play(phases: &[Phase], history: usize) {
    let directory = tempfile::tempdir().expect("directory");
    let mut truth = Truth::new();
    let watcher = |space, selects, streams_list| Watcher {
        space,
        selects,
        streams_list,
        at: None,
        held: BTreeMap::new(),
        lists: 0,
    };
    let mut watchers =
        vec![watcher(Some(SPACES[0]), false, false), watcher(None, true, false), watcher(None, false, true)];
    let mut first: Option<BTreeMap<(String, String), Value>> = None;
    for (number, phase) in phases.iter().enumerate() {
        let server = started(directory.path(), history).await;
        if first.is_none() {
            let (_, list) = ask(&server, "GET", "/api/v1/serviceaccounts", "", &Value::Null).await;
            first = Some(held_in(&list));
        }
        let last = format!("{LAST}-{number}");
        let watching: Vec<_> = watchers
            .drain(..)
            .map(|mut watcher| {
                let (server, last) = (server.clone(), last.clone());
                tokio::spawn(async move {
                    watcher.follow(&server, &last).await;
                    watcher
                })
            })
            .collect();
        let writing: Vec<_> = phase
            .writers
            .iter()
            .cloned()
            .map(|steps| {
                let server = server.clone();
                tokio::spawn(async move {
                    let mut truth = Truth::new();
                    for (space, name, step) in steps {
                        write(&server, SPACES[space], &format!("m{name}"), &step, &mut truth).await;
                        tokio::task::yield_now().await;
                    }
                    truth
                })
            })
            .collect();
        for writer in writing {
            truth.extend(writer.await.expect("a writer"));
        }
        if !phase.cut {
            write(&server, SPACES[0], &last, &Step::Create { on: true }, &mut truth).await;
        }
        let (code, _) = ask(&server, "GET", "/readyz", "", &Value::Null).await;
        assert_eq!(code, 200);
        if phase.cut {
            server.stop();
        }
        for watcher in watching {
            let patience = std::time::Duration::from_secs(60);
            watchers.push(tokio::time::timeout(patience, watcher).await.expect("in time").expect("a watcher"));
        }
        let first = first.as_ref().expect("known");
        for watcher in &watchers {
            // At its revision, a watcher has the true state. While the initial list arrives as events, it has no revision.
            let Some(at) = watcher.at else { continue };
            let mut expected = state_at(&truth, first, at);
            expected.retain(|_, object| watcher.selects(object));
            assert_eq!(watcher.held, expected, "at {at}: {watcher:?}");
        }
        if !phase.cut {
            for watcher in &watchers {
                let (_, list) = ask(&server, "GET", &watcher.path(), "", &Value::Null).await;
                assert_eq!(watcher.held, held_in(&list), "{watcher:?}");
                assert!(
                    watcher.lists <= 1 || number > 0 || history < 1000,
                    "listed again without a reason: {watcher:?}"
                );
            }
            server.stop();
        }
        let server = Arc::into_inner(server).expect("nobody else has it");
        server.shutdown().await;
    }
}

#[test]
fn a_watch_replayed_equals_a_list() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    let mut runner = TestRunner::new(Config { cases: 30, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(phases(), prop_oneof![Just(3usize), Just(20), Just(10_000)]), |(phases, history)| {
        let played = std::panic::AssertUnwindSafe(|| runtime.block_on(play(&phases, history)));
        std::panic::catch_unwind(played).map_err(|_| TestCaseError::fail("see the words above"))
    });
    outcome.expect("every watcher knows the truth");
}
