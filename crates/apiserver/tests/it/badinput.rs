//! Client errors, with the real server's messages where it has any: malformed bodies, bad selectors, bad patches, too much of everything;
//! and clients that are slow, silent or gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use firesteel_apiserver::ApiServer;
use firesteel_testenv::TestEnv;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{client_of, cluster, send};
use crate::inside::ask;
use crate::watches::tls;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Where only the codes are compared, and why.
const OTHER_WORDS: [(&str, &str); 6] = [
    ("{\"data\": 7}", "the message quotes the object, whose fields Go writes in another order"),
    ("data: {a: [}", "the words of another YAML library"),
    ("labelSelector=-a", "the real server says <nil> where it means key"),
    ("resourceVersionMatch=Exact&resourceVersion=1", "a second complaint beside the first"),
    ("/m/nothing", "what is not served has no Status here"),
    ("resourceVersion=x", "the words of Go's number parser"),
];

/// Method, path below the namespace, media type, body.
fn requests() -> Vec<(&'static str, &'static str, &'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("POST", "/configmaps", JSON, text("{")),
        ("POST", "/configmaps", JSON, text("")),
        ("POST", "/configmaps", JSON, text("[]")),
        ("POST", "/configmaps", JSON, text("\"x\"")),
        ("POST", "/configmaps", JSON, text("{\"metadata\": {\"name\": \"x\"}, \"data\": {\"a\": 1}}")),
        ("POST", "/configmaps", JSON, text("{\"metadata\": {\"name\": \"x\"}, \"data\": [1]}")),
        ("POST", "/configmaps", JSON, text("{\"metadata\": []}")),
        ("POST", "/configmaps", JSON, text("{\"metadata\": {\"name\": \"x\"}, \"binaryData\": {\"a\": \"!!\"}}")),
        (
            "POST",
            "/configmaps",
            JSON,
            text("{\"kind\": \"Secret\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"x\"}}"),
        ),
        (
            "POST",
            "/configmaps",
            JSON,
            text("{\"kind\": \"ConfigMap\", \"apiVersion\": \"v7\", \"metadata\": {\"name\": \"x\"}}"),
        ),
        ("POST", "/configmaps", "text/plain", text("{}")),
        ("POST", "/configmaps", JSON, vec![b' '; 3 * 1024 * 1024 + 1]),
        ("POST", "/configmaps?fieldValidation=Strict", JSON, text("{\"metadata\": {\"name\": \"x\"}, \"dta\": {}}")),
        (
            "POST",
            "/configmaps?fieldValidation=Strict",
            JSON,
            text("{\"metadata\": {\"name\": \"x\", \"name\": \"y\"}}"),
        ),
        ("POST", "/configmaps?fieldValidation=Sometimes", JSON, text("{\"metadata\": {\"name\": \"x\"}}")),
        ("POST", "/configmaps?dryRun=Maybe", JSON, text("{\"metadata\": {\"name\": \"x\"}}")),
        ("GET", "/configmaps?labelSelector=a+in+(b", "", text("")),
        ("GET", "/configmaps?labelSelector=!!", "", text("")),
        ("GET", "/configmaps?labelSelector=a%3Db%3Dc", "", text("")),
        ("GET", "/configmaps?labelSelector=-a%3Db", "", text("")),
        ("GET", "/configmaps?fieldSelector=data.x%3Dy", "", text("")),
        ("GET", "/configmaps?fieldSelector=metadata.name", "", text("")),
        ("GET", "/configmaps?limit=x", "", text("")),
        ("GET", "/configmaps?continue=x", "", text("")),
        ("GET", "/configmaps?resourceVersion=x", "", text("")),
        ("GET", "/configmaps?resourceVersionMatch=Exact", "", text("")),
        ("GET", "/configmaps?watch=true&resourceVersionMatch=Exact&resourceVersion=1", "", text("")),
        ("GET", "/configmaps?watch=true&sendInitialEvents=true", "", text("")),
        ("PATCH", "/configmaps/m", PATCH, text("{}")),
        ("PATCH", "/configmaps/m", PATCH, text("[{\"op\": \"remove\", \"path\": \"/data/none\"}]")),
        ("PATCH", "/configmaps/m", PATCH, text("[{\"op\": \"test\", \"path\": \"/metadata/name\", \"value\": \"n\"}]")),
        (
            "PATCH",
            "/configmaps/m",
            PATCH,
            text("[{\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"n\"}]"),
        ),
        ("PATCH", "/configmaps/m", MERGE, text("{")),
        ("PATCH", "/configmaps/m", MERGE, text("{\"data\": 7}")),
        ("PATCH", "/configmaps/m", APPLY, text("{\"data\": {}}")),
        ("PATCH", "/configmaps/m?fieldManager=f", APPLY, text("{\"data\": {}}")),
        ("PATCH", "/configmaps/m?fieldManager=f", APPLY, text("apiVersion: v1\nkind: ConfigMap\ndata: {a: [}")),
        ("PATCH", "/configmaps/m?force=true", MERGE, text("{}")),
        ("PATCH", "/configmaps/m", "application/unknown", text("{}")),
        ("PUT", "/configmaps/m", JSON, text("{\"metadata\": {\"name\": \"n\"}}")),
        ("DELETE", "/configmaps/m?propagationPolicy=Sideways", "", text("")),
        ("DELETE", "/configmaps/m", JSON, text("{\"preconditions\": {\"uid\": \"no\"}}")),
        ("PUT", "/configmaps", JSON, text("{}")),
        ("POST", "/configmaps/m/nothing", JSON, text("{}")),
        ("GET", "/nothing", "", text("")),
    ]
}

async fn prepared(client: &Client, namespace: &str) {
    let body = json!({"metadata": {"name": namespace}}).to_string().into_bytes();
    send(client, "POST", "/api/v1/namespaces", JSON, body).await;
    let body = json!({"metadata": {"name": "m"}, "data": {"a": "b"}}).to_string().into_bytes();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    assert_eq!(send(client, "POST", &path, JSON, body).await.code, 201);
}

#[tokio::test]
async fn it_is_refused_as_by_the_real_server() {
    let Some(environment) = TestEnv::get() else { return };
    let server = ApiServer::builder().start().await.expect("the server starts");
    let clients = [client_of(&server.admin_kubeconfig()).await, environment.client().await];
    let namespace = format!("bad-{}", std::process::id());
    for client in &clients {
        prepared(client, &namespace).await;
    }
    let mut differences = Vec::new();
    for (method, path, media, body) in requests() {
        let path = format!("/api/v1/namespaces/{namespace}{path}");
        let mut answers = Vec::new();
        for client in &clients {
            let answer = send(client, method, &path, media, body.clone()).await;
            let mut said = answer.body.to_string();
            for pattern in [r"[0-9a-f]{8}-[0-9a-f-]{27}", r#"resourceVersion":"\d+"#] {
                said = regex::Regex::new(pattern).expect("a pattern").replace_all(&said, "#").into_owned();
            }
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            if OTHER_WORDS.iter().any(|(mark, _)| path.contains(mark) || shown.contains(mark)) {
                said.clear();
            }
            answers.push(format!("{} {said}", answer.code));
        }
        if answers[0] != answers[1] {
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            differences.push(format!("{method} {path} {media} {shown}\n  ours {}\n  real {}", answers[0], answers[1]));
        }
    }
    send(&clients[1], "DELETE", &format!("/api/v1/namespaces/{namespace}"), "", Vec::new()).await;
    assert!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
}

/// Resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|text| text.parse::<usize>().ok()).unwrap_or_default() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_watches_cost_little_and_all_hear_of_a_change() {
    use http_body_util::BodyExt as _;
    const WATCHES: usize = 5000;
    let server = Arc::new(ApiServer::builder().start().await.expect("the server starts"));
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, list) = ask(&server, "GET", maps, "", &Value::Null).await;
    let at = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let before = resident();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let path = format!("{maps}?watch=true&resourceVersion={at}");
        let answer = crate::inside::response(&server, "GET", &path, "", String::new()).await;
        watches.push(tokio::spawn(async move { answer.into_body().frame().await.expect("an event").expect("data") }));
    }
    let (code, _) = ask(&server, "GET", "/readyz", "", &Value::Null).await;
    assert_eq!(code, 200);
    let each = resident().saturating_sub(before) / WATCHES;
    // Other tests run in this process; alone it is a few thousand bytes.
    assert!(each < 100_000, "{each} bytes for each idle watch");
    let began = Instant::now();
    ask(&server, "POST", maps, JSON, &json!({"metadata": {"name": "news"}})).await;
    for watch in watches {
        let told = watch.await.expect("a watch").into_data().expect("data");
        assert!(String::from_utf8_lossy(&told).contains("\"name\":\"news\""));
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_does_not_read_costs_a_bounded_amount_and_is_told_when_it_is_too_late() {
    let server = ApiServer::builder().history(50).start().await.expect("the server starts");
    let mut stream = tls(&server).await;
    let request = "GET /api/v1/namespaces/default/configmaps?watch=true HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("request");
    crate::watches::read_until(&mut stream, "kube-root-ca.crt").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    ask(&server, "POST", maps, JSON, &json!({"metadata": {"name": "m"}})).await;
    // 200 MB of events that nobody reads.
    for number in 0..400 {
        let body = json!({"data": {"n": number.to_string(), "x": "y".repeat(500_000)}});
        let (code, _) = ask(&server, "PATCH", &format!("{maps}/m"), MERGE, &body).await;
        assert_eq!(code, 200);
    }
    // When it reads again it gets what was in flight, then an error that the rest is lost.
    let mut text = Vec::new();
    let reading = async {
        let mut buffer = vec![0; 1 << 16];
        while !String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).contains("too old resource version") {
            let count = stream.read(&mut buffer).await.expect("read");
            assert!(count > 0, "the stream ended without a word");
            text.extend_from_slice(&buffer[..count]);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("in time");
    assert!(text.len() < 20_000_000, "{} bytes were held for a watcher that does not read", text.len());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_stop_in_the_middle_do_not_keep_others_waiting() {
    let cluster = cluster().await;
    let address = cluster.server.address();
    let mut idle = Vec::new();
    for _ in 0..100 {
        // Connected but silent; half a handshake; half a header; half a body.
        idle.push(TcpStream::connect(address).await.expect("a connection"));
        let mut half = TcpStream::connect(address).await.expect("a connection");
        half.write_all(&[0x16, 0x03, 0x01]).await.expect("written");
        idle.push(half);
    }
    let mut streams = Vec::new();
    for request in [
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Le",
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"metadata\":",
    ] {
        let mut stream = tls(&cluster.server).await;
        stream.write_all(request.as_bytes()).await.expect("written");
        streams.push(stream);
    }
    // A client that disconnects in the middle of a body leaves nothing behind.
    drop(streams.pop());
    for number in 0..20 {
        let body = json!({"metadata": {"name": format!("n{number}")}});
        let made = cluster.post("/api/v1/namespaces/default/configmaps", &body);
        let made = tokio::time::timeout(Duration::from_secs(30), made).await.expect("in time");
        assert_eq!(made.code, 201);
    }
    // Not HTTP at all.
    let mut stream = tls(&cluster.server).await;
    stream.write_all(b"\x00\x01\x02 garbage\r\n\r\n").await.expect("written");
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.expect("in time");
    assert_eq!(cluster.get("/readyz").await.code, 200);
}
