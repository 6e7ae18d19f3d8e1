//! The same requests to this server and to the real kube-apiserver; what they answer must be equal once names, times and
//! numbers that differ by nature are set aside.
//!
//! Cases are in the YAML files beside this one. Known differences are listed in `exceptions.yaml`, each with its reason;
//! one that no longer differs must be taken off the list.

mod normal;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use firesteel_apiserver::ApiServer;
use firesteel_testenv::TestEnv;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde_json::{Value, json};

const FILES: [&str; 2] = [include_str!("objects.yaml"), include_str!("resources.yaml")];
const EXCEPTIONS: &str = include_str!("exceptions.yaml");
/// The issue allows this many.
const MOST_EXCEPTIONS: usize = 10;

#[derive(Deserialize)]
struct Case {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct Step {
    /// `METHOD [patch type] path`.
    #[serde(rename = "do", default)]
    request: String,
    /// Nothing is compared: only wait until this path is there.
    wait: Option<String>,
    body: Option<Value>,
    raw: Option<String>,
    #[serde(rename = "type")]
    media: Option<String>,
    accept: Option<String>,
    #[serde(rename = "as")]
    user: Option<String>,
    /// Resources of a discovery document that count.
    only: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Exception {
    /// Case name, a bar, the request line.
    at: String,
    why: String,
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("config");
    Client::try_from(config).expect("client")
}

fn media(step: &Step, kind: &str) -> String {
    let known = match kind {
        "merge" => "application/merge-patch+json",
        "json" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    step.media.clone().unwrap_or_else(|| known.to_owned())
}

async fn send(client: &Client, step: &Step, namespace: &str) -> Value {
    let words: Vec<&str> = step.request.split(' ').collect();
    let (method, kind) = (words[0], if words.len() == 3 { words[1] } else { "" });
    let path = words[words.len() - 1].replace("{ns}", namespace);
    let body = match (&step.raw, &step.body) {
        (Some(raw), _) => Some(raw.clone()),
        (None, Some(body)) => Some(body.to_string().replace("{ns}", namespace)),
        _ => None,
    };
    let mut request = Request::builder().method(method).uri(path).header("user-agent", "conformance/1");
    if body.is_some() {
        request = request.header("content-type", media(step, kind));
    }
    if let Some(accept) = &step.accept {
        request = request.header("accept", accept);
    }
    if let Some(user) = &step.user {
        request = request.header("impersonate-user", user);
    }
    let request = request.body(kube::client::Body::from(body.unwrap_or_default().into_bytes())).expect("request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let header = |name: &str| -> Vec<String> {
        response.headers().get_all(name).iter().map(|v| v.to_str().unwrap_or_default().to_owned()).collect()
    };
    let (warnings, content) = (header("warning"), header("content-type"));
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    let mut body = match lines {
        Ok(mut lines) if lines.len() == 1 => lines.remove(0),
        Ok(lines) if !lines.is_empty() => lines.into(),
        _ => text.into(),
    };
    if let (Some(only), Some(list)) = (&step.only, body.get_mut("resources").and_then(Value::as_array_mut)) {
        list.retain(|r| only.iter().any(|o| r["name"] == *o));
    }
    json!({"code": code, "type": content, "warnings": warnings, "body": body})
}

async fn until_ok(client: &Client, path: &str, namespace: &str) {
    let step = Step { request: format!("GET {path}"), ..Step::default() };
    for _ in 0..200 {
        if send(client, &step, namespace).await["code"] == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} never came");
}

/// What differs, as path and both values.
fn differences(real: &Value, ours: &Value, path: &str, out: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                match (a.get(key), b.get(key)) {
                    (Some(x), Some(y)) => differences(x, y, &format!("{path}.{key}"), out),
                    (x, y) => out.push(format!("{path}.{key}: real {} ours {}", shown(x), shown(y))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                differences(x, y, &format!("{path}[{index}]"), out);
            }
        }
        (x, y) if x != y => out.push(format!("{path}: real {} ours {}", shown(Some(x)), shown(Some(y)))),
        _ => {}
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |v| v.to_string().chars().take(600).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_those_of_the_real_server() {
    let Some(env) = TestEnv::get() else { return };
    let server = ApiServer::builder().start().await.expect("the server starts");
    let real = client(Kubeconfig::read_from(env.kubeconfig()).expect("kubeconfig")).await;
    let ours = client(Kubeconfig::from_yaml(&server.admin_kubeconfig()).expect("kubeconfig")).await;
    let exceptions: Vec<Exception> = serde_saphyr::from_str(EXCEPTIONS).expect("exceptions");
    assert!(exceptions.len() <= MOST_EXCEPTIONS, "too many exceptions");
    assert!(exceptions.iter().all(|e| !e.why.is_empty()), "an exception without a reason");
    let stamp = std::process::id();
    let (mut compared, mut wrong, mut excused) = (0, String::new(), BTreeMap::new());
    for case in FILES.iter().flat_map(|file| serde_saphyr::from_str::<Vec<Case>>(file).expect("cases")) {
        let slug: String = case.name.chars().map(|c| if c.is_ascii_lowercase() { c } else { '-' }).collect();
        let namespace = format!("c{stamp}-{slug}");
        for client in [&real, &ours] {
            let create = Step {
                request: "POST /api/v1/namespaces".into(),
                body: Some(json!({"metadata": {"name": namespace}})),
                ..Step::default()
            };
            assert_eq!(send(client, &create, &namespace).await["code"], 201, "namespace {namespace}");
            until_ok(client, &format!("/api/v1/namespaces/{namespace}/serviceaccounts/default"), &namespace).await;
        }
        for step in &case.steps {
            if let Some(path) = &step.wait {
                let path = path.replace("{ns}", &namespace);
                until_ok(&real, &path, &namespace).await;
                until_ok(&ours, &path, &namespace).await;
                continue;
            }
            let theirs = normal::form(&send(&real, step, &namespace).await);
            let own = normal::form(&send(&ours, step, &namespace).await);
            compared += 1;
            let mut found = Vec::new();
            differences(&theirs, &own, "", &mut found);
            if found.is_empty() {
                continue;
            }
            let at = format!("{} | {}", case.name, step.request);
            if exceptions.iter().any(|e| e.at == at) {
                *excused.entry(at).or_insert(0) += 1;
                continue;
            }
            let _ = writeln!(wrong, "## {at}\n   {}", found.join("\n   "));
        }
        for client in [&real, &ours] {
            // What a case leaves behind: its namespace, and what is not in one.
            for left in [
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{ns}.example.com",
                "/api/v1/persistentvolumes/{ns}",
                "/api/v1/namespaces/{ns}-x",
                "/api/v1/namespaces/{ns}",
            ] {
                let delete = Step { request: format!("DELETE {left}"), ..Step::default() };
                send(client, &delete, &namespace).await;
            }
        }
    }
    for exception in &exceptions {
        assert!(excused.contains_key(&exception.at), "no longer an exception: {}", exception.at);
    }
    assert!(compared >= 200, "only {compared} requests were compared");
    assert!(wrong.is_empty(), "of {compared} requests these differ:\n{wrong}");
    server.shutdown().await;
}
