//! The data directory: full, from a newer version, damaged, and after many deletions.

use std::path::Path;
use std::process::Command;

use firesteel_apiserver::{ApiServer, RunningServer, StartError};
use redb::TableDefinition;
use serde_json::{Value, json};

use crate::inside::ask;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");

async fn started(data: &Path) -> Result<RunningServer, StartError> {
    ApiServer::builder().data_dir(Some(data.to_owned())).history(16).start().await
}

async fn create(server: &RunningServer, name: &str, size: usize) -> (u16, Value) {
    let body = json!({"metadata": {"name": name}, "data": {"x": "y".repeat(size)}});
    ask(server, "POST", MAPS, "application/json", &body).await
}

/// A small file system, unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new(size: &str) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("directory");
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output()
            .map_err(|error| format!("mount does not run: {error}"))?;
        if !mounted.status.success() {
            return Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned());
        }
        Ok(Self(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[tokio::test]
async fn on_a_full_disk_writes_are_refused_and_reads_go_on_until_there_is_room_again() {
    let small = match Small::new("12m") {
        Ok(small) => small,
        Err(why) => {
            eprintln!("SKIPPED, no file system of a given size: {why}");
            return;
        }
    };
    let (data, ballast) = (small.0.path().join("data"), small.0.path().join("ballast"));
    std::fs::write(&ballast, vec![1; 4 << 20]).expect("ballast");
    let server = started(&data).await.expect("the server starts");
    let mut kept = Vec::new();
    let refused = loop {
        assert!(kept.len() < 200, "the disk is never full");
        let name = format!("m{}", kept.len());
        match create(&server, &name, 200_000).await {
            (201, _) => kept.push(name),
            other => break other,
        }
    };
    assert_eq!((refused.0, &refused.1["kind"], &refused.1["reason"]), (500, &json!("Status"), &json!("InternalError")));
    let words = refused.1["message"].as_str().expect("a message");
    let expected = "Internal error occurred: the change could not be written to the data directory: ";
    assert!(words.starts_with(expected) && words.contains("No space left on device"), "{words}");
    assert!(!kept.is_empty());
    // Rejected again, without harm; everything acknowledged is readable.
    assert_eq!(create(&server, "again", 200_000).await.0, 500);
    for name in &kept {
        assert_eq!(ask(&server, "GET", &format!("{MAPS}/{name}"), "", &Value::Null).await.0, 200, "{name}");
    }
    assert_eq!(ask(&server, "GET", &format!("{MAPS}/again"), "", &Value::Null).await.0, 404);
    assert_eq!(ask(&server, "GET", "/readyz", "", &Value::Null).await.0, 200);

    std::fs::remove_file(&ballast).expect("room");
    let (code, answer) = create(&server, "later", 1000).await;
    assert_eq!(code, 201, "{answer}");
    server.shutdown().await;
    let server = started(&data).await.expect("it starts again");
    let (_, list) = ask(&server, "GET", MAPS, "", &Value::Null).await;
    let mut names: Vec<String> = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|i| i["metadata"]["name"].as_str().expect("text").to_owned())
        .collect();
    names.sort();
    kept.extend(["kube-root-ca.crt".to_owned(), "later".to_owned()]);
    kept.sort();
    assert_eq!(names, kept, "what was refused is not there, what was acknowledged is");
    server.shutdown().await;
}

#[tokio::test]
async fn a_directory_of_a_newer_version_is_refused_in_one_sentence_and_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    started(directory.path()).await.expect("the server starts").shutdown().await;
    let file = directory.path().join("objects.redb");
    {
        let database = redb::Database::open(&file).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        transaction.open_table(FACTS).expect("a table").insert("format", 2).expect("written");
        transaction.commit().expect("committed");
    }
    for _ in 0..2 {
        let error = started(directory.path()).await.expect_err("newer");
        let expected = format!(
            "data directory {} was written by a newer version (format 2, this one knows 1)",
            directory.path().display()
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn a_file_that_is_something_else_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("objects.redb"), "precious notes, not a database\n".repeat(1000))
        .expect("a file");
    let error = started(directory.path()).await.expect_err("not ours").to_string();
    assert!(error.starts_with(&format!("open {}: ", directory.path().display())), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let words = std::fs::read_to_string(directory.path().join("objects.redb")).expect("still there");
    assert!(words.starts_with("precious notes"), "left alone");
}

#[tokio::test]
async fn what_was_deleted_gives_its_room_back_at_the_next_start() {
    let directory = tempfile::tempdir().expect("directory");
    let server = started(directory.path()).await.expect("the server starts");
    for number in 0..60 {
        assert_eq!(create(&server, &format!("big{number}"), 300_000).await.0, 201);
    }
    let size = || std::fs::metadata(directory.path().join("objects.redb")).expect("the file").len();
    let before = size();
    assert!(before > 18_000_000, "{before}");
    let (_, list) = ask(&server, "GET", MAPS, "", &Value::Null).await;
    let (code, _) = ask(&server, "DELETE", MAPS, "application/json", &json!({})).await;
    assert_eq!(code, 200);
    create(&server, "kept", 10).await;
    server.shutdown().await;
    let server = started(directory.path()).await.expect("it starts again");
    assert!(size() < before / 4, "{} of {before} bytes are left", size());
    assert_eq!(ask(&server, "GET", &format!("{MAPS}/kept"), "", &Value::Null).await.0, 200);
    // Revisions before the compaction are gone, and a watch from there gets an error.
    let old = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let (_, event) =
        ask(&server, "GET", &format!("{MAPS}?watch=true&timeoutSeconds=5&resourceVersion={old}"), "", &Value::Null)
            .await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
    server.shutdown().await;
}
