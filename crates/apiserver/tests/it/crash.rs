//! SIGKILL during concurrent writes: acknowledged writes survive, nothing else does, and watches continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};

use crate::process::Process;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 8;

/// Code and body; `None` if the server died during the request.
async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let request = Request::builder().method(method).uri(path).header("content-type", media(method));
    let request = request.body(kube::client::Body::from(body.to_string().into_bytes())).expect("request");
    let response = client.send(request).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((code, serde_json::from_slice(&bytes).ok()?))
}

fn media(method: &str) -> &'static str {
    if method == "PATCH" { "application/merge-patch+json" } else { "application/json" }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a revision")
}

/// What a writer knows about one of its objects: the last acknowledged state (`None` if it does not exist), and whether a request was
/// in flight when the server died, so that the state may be one step further.
#[derive(Debug, Default, Clone)]
struct Known {
    acknowledged: Option<Value>,
    unsure: bool,
}

/// Creates, changes and deletes objects until the server dies.
async fn write(client: Client, writer: usize, round: usize, answered: Arc<AtomicUsize>) -> BTreeMap<String, Known> {
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    for step in 0.. {
        let name = format!("r{round}-w{writer}-{}", step / 4);
        let path = format!("{MAPS}/{name}");
        let state = known.entry(name.clone()).or_default();
        state.unsure = true;
        let answer = match step % 4 {
            0 => {
                let filler = "x".repeat(step % 97);
                ask(&client, "POST", MAPS, &json!({"metadata": {"name": name}, "data": {"n": "0", "filler": filler}}))
                    .await
            }
            // Every third object is deleted again, the others stay.
            3 if (step / 4) % 3 == 0 => ask(&client, "DELETE", &path, &json!({})).await,
            n => ask(&client, "PATCH", &path, &json!({"data": {"n": n.to_string()}})).await,
        };
        let Some((code, body)) = answer else { return known };
        assert!(code < 300, "{code}: {body}");
        state.acknowledged = (body["kind"] == "ConfigMap").then_some(body);
        state.unsure = false;
        answered.fetch_add(1, Ordering::Relaxed);
    }
    known
}

/// Reads a watch until it ends; returns the complete events.
async fn watch(client: Client, from: u64) -> Vec<Value> {
    let path = format!("{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=3");
    let request = Request::get(path).body(kube::client::Body::empty()).expect("request");
    let mut body = client.send(request).await.expect("a watch").into_body();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    text.split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"))
        .map(|line| serde_json::from_slice(line).expect("an event"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_writes_it_keeps_all_that_was_acknowledged() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    let mut expected: BTreeMap<String, Known> = BTreeMap::new();
    let mut newest = 0;
    for (round, writes) in [(0, 60), (1, 250), (2, 130)] {
        let server = Process::start(&data);
        let client = server.client().await;
        compare(&client, &mut expected, newest).await;
        let (_, list) = ask(&client, "GET", MAPS, &json!(null)).await.expect("a list");
        let begin = revision(&list);
        let watching = tokio::spawn(watch(client.clone(), begin));
        let answered = Arc::new(AtomicUsize::new(0));
        let writing: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(client.clone(), writer, round, answered.clone()))).collect();
        while answered.load(Ordering::Relaxed) < writes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill();
        let mut acknowledged = BTreeSet::new();
        for task in writing {
            let known = task.await.expect("a writer");
            acknowledged.extend(known.values().filter_map(|k| k.acknowledged.as_ref()).map(revision));
            expected.extend(known);
        }
        newest = acknowledged.last().copied().unwrap_or_default().max(begin);
        let events = watching.await.expect("a watcher");
        let told: Vec<u64> = events.iter().map(|event| revision(&event["object"])).collect();
        assert!(told.is_sorted_by(|a, b| a < b), "in order, once: {told:?}");

        // An interrupted watch continues where it was, or fails; it never skips anything.
        let server = Process::start(&data);
        let client = server.client().await;
        let at = told.last().copied().unwrap_or(begin);
        let again = watch(client.clone(), at).await;
        let gone = again.first().is_some_and(|event| event["type"] == "ERROR" && event["object"]["code"] == 410);
        if !gone {
            let rest: Vec<u64> = again.iter().map(|event| revision(&event["object"])).collect();
            let missed: Vec<_> = acknowledged.range(at + 1..).filter(|revision| !rest.contains(revision)).collect();
            assert!(missed.is_empty(), "a watch from {at} goes on without {missed:?}");
        }
        drop(server);
    }
    let server = Process::start(&data);
    compare(&server.client().await, &mut expected, newest).await;
}

/// The stored objects are the acknowledged ones, except where a request was in flight.
async fn compare(client: &Client, expected: &mut BTreeMap<String, Known>, newest: u64) {
    let (_, list) = ask(client, "GET", MAPS, &json!(null)).await.expect("a list");
    assert!(revision(&list) >= newest, "the revision went back: {} < {newest}", revision(&list));
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for item in list["items"].as_array().expect("items") {
        let mut item = item.clone();
        item["apiVersion"] = "v1".into();
        item["kind"] = "ConfigMap".into();
        found.insert(item["metadata"]["name"].as_str().expect("a name").to_owned(), item);
    }
    found.remove("kube-root-ca.crt");
    for (name, known) in expected.iter_mut() {
        let stored = found.remove(name);
        if known.unsure {
            // Whichever it is, it must stay so.
            let number = |object: &Option<Value>| object.as_ref().map(|o| o["data"]["n"].to_string());
            let (before, after) = (number(&known.acknowledged), number(&stored));
            let possible = match before.as_deref() {
                None => after.is_none() || after.as_deref() == Some("\"0\""),
                Some(text) => {
                    let next: u32 = text.trim_matches('"').parse::<u32>().expect("a number") + 1;
                    after.is_none() && next == 3
                        || after.as_deref() == Some(text)
                        || after == Some(format!("\"{next}\""))
                }
            };
            assert!(possible, "{name}: {before:?} was acknowledged, {after:?} is stored");
            known.acknowledged = stored;
            known.unsure = false;
        } else {
            assert_eq!(stored, known.acknowledged, "{name}");
        }
    }
    assert!(found.is_empty(), "nobody wrote {:?}", found.keys());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_starting_it_starts_again() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    for wait in [0, 3, 6, 10, 15, 20, 30, 50] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_firesteel-apiserver"))
            .arg("--kubeconfig")
            .arg(directory.path().join("unused"))
            .arg("--data-dir")
            .arg(&data)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a process");
        tokio::time::sleep(Duration::from_millis(wait)).await;
        child.kill().expect("kill");
        child.wait().expect("an end");
    }
    let server = Process::start(&data);
    let (code, roles) = ask(
        &server.client().await,
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        &json!(null),
    )
    .await
    .expect("an answer");
    assert_eq!(code, 200, "{roles}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let data = directory.path().join("data");
    let first = Process::start(&data);
    let (code, words) = Process::refused(&data);
    assert_eq!(code, Some(1));
    assert_eq!(words, format!("firesteel-apiserver: data directory {} is in use by another server\n", data.display()));
    // The first server is unaffected.
    let made =
        ask(&first.client().await, "POST", MAPS, &json!({"metadata": {"name": "still"}})).await.expect("an answer");
    assert_eq!(made.0, 201);
}
