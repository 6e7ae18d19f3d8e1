//! Sends the same requests to this server and to the real kube-apiserver. The responses must be equal after normalizing names, times
//! and numbers.
//!
//! Cases are in the YAML files of `conformance/`. Known differences are listed in `exceptions.yaml`, each with its reason; an entry
//! that no longer differs must be removed.

mod normal;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use firesteel_apiserver::ApiServer;
use firesteel_testenv::TestEnv;
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde_json::{Value, json};

const FILES: [&str; 5] = [
    include_str!("conformance/objects.yaml"),
    include_str!("conformance/resources.yaml"),
    include_str!("conformance/admission.yaml"),
    include_str!("conformance/access.yaml"),
    include_str!("conformance/kinds.yaml"),
];
const EXCEPTIONS: &str = include_str!("conformance/exceptions.yaml");
/// The maximum number of exceptions.
const MOST_EXCEPTIONS: usize = 10;

/// What cases leave behind outside their namespaces.
const LEFT: [&str; 12] = [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{ns}.example.com",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{ns}",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{ns}",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{ns}",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/{ns}",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ns}",
    "/apis/storage.k8s.io/v1/storageclasses/{ns}",
    "/apis/scheduling.k8s.io/v1/priorityclasses/{ns}",
    "/api/v1/persistentvolumes/{ns}",
    "/api/v1/nodes/{ns}",
    "/api/v1/namespaces/{ns}-x",
    "/api/v1/namespaces/{ns}",
];

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
    /// Compares nothing: only waits until this path exists.
    wait: Option<String>,
    body: Option<Value>,
    raw: Option<String>,
    #[serde(rename = "type")]
    media: Option<String>,
    accept: Option<String>,
    #[serde(rename = "as")]
    user: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The bearer token of a request, instead of the administrator's certificate.
    bearer: Option<String>,
    /// Compares nothing: repeats the request until the response has this code.
    until: Option<u16>,
    /// Values of the response for later steps: `{name}` is replaced by the value at the pointer.
    #[serde(default)]
    keep: BTreeMap<String, String>,
    /// The resources of a discovery document to compare.
    only: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Exception {
    /// Case name, a bar, the request line.
    at: String,
    why: String,
}

/// One of the two servers.
struct Side {
    admin: Client,
    /// A client without a certificate.
    nobody: Client,
    /// The values of `{…}`.
    words: BTreeMap<String, String>,
}

impl Side {
    async fn new(kubeconfig: Kubeconfig) -> Self {
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("config");
        let mut bare = kube::Config::new(config.cluster_url.clone());
        bare.root_cert.clone_from(&config.root_cert);
        Self {
            admin: Client::try_from(config).expect("client"),
            nobody: Client::try_from(bare).expect("client"),
            words: BTreeMap::new(),
        }
    }

    fn filled(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (name, word)| text.replace(&format!("{{{name}}}"), word))
    }
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

async fn send(side: &Side, step: &Step) -> Value {
    let words: Vec<&str> = step.request.split(' ').collect();
    let (method, kind) = (words[0], if words.len() == 3 { words[1] } else { "" });
    let path = side.filled(words[words.len() - 1]);
    let body = match (&step.raw, &step.body) {
        (Some(raw), _) => Some(raw.clone()),
        (None, Some(body)) => Some(side.filled(&body.to_string())),
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
        request = request.header("impersonate-user", side.filled(user));
    }
    for (name, value) in &step.headers {
        request = request.header(name, side.filled(value));
    }
    let client = match &step.bearer {
        Some(token) => {
            request = request.header("authorization", format!("Bearer {}", side.filled(token)));
            &side.nobody
        }
        None => &side.admin,
    };
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

/// Sends a request until it returns a code; the error is the last response.
async fn until(side: &Side, step: &Step, code: u16) -> Result<(), Value> {
    for _ in 0..200 {
        if send(side, step).await["code"] == code {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(send(side, step).await)
}

async fn until_ok(side: &Side, path: &str) {
    let get = Step { request: format!("GET {path}"), ..Step::default() };
    if let Err(last) = until(side, &get, 200).await {
        panic!("{path} never came: {last}");
    }
}

/// The differences, as path and both values.
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
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                match (a.get(index), b.get(index)) {
                    (Some(x), Some(y)) => differences(x, y, &format!("{path}[{index}]"), out),
                    (x, y) => out.push(format!("{path}[{index}]: real {} ours {}", shown(x), shown(y))),
                }
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
    let mut real = Side::new(Kubeconfig::read_from(env.kubeconfig()).expect("kubeconfig")).await;
    // With a certificate, as on the other side: webhooks see how a user authenticated.
    let kubeconfig = server.kubeconfig_for("kubernetes-admin", &["system:masters"]).expect("a certificate");
    let mut ours = Side::new(Kubeconfig::from_yaml(&kubeconfig).expect("kubeconfig")).await;
    let reviewer = crate::reviewer::start(&server).await;
    let exceptions: Vec<Exception> = serde_saphyr::from_str(EXCEPTIONS).expect("exceptions");
    assert!(exceptions.len() <= MOST_EXCEPTIONS, "too many exceptions");
    assert!(exceptions.iter().all(|e| !e.why.is_empty()), "an exception without a reason");
    // For working on a few cases: runs only those whose names contain this.
    let chosen = std::env::var("CONFORMANCE").unwrap_or_default();
    let stamp = std::process::id();
    let (mut compared, mut wrong, mut excused) = (0, String::new(), BTreeMap::new());
    for case in FILES.iter().flat_map(|file| serde_saphyr::from_str::<Vec<Case>>(file).expect("cases")) {
        if !case.name.contains(&chosen) {
            continue;
        }
        let slug: String = case.name.chars().map(|c| if c.is_ascii_lowercase() { c } else { '-' }).collect();
        let namespace = format!("c{stamp}-{slug}");
        for side in [&mut real, &mut ours] {
            side.words = BTreeMap::from([
                ("ns".to_owned(), namespace.clone()),
                ("hook".to_owned(), format!("https://127.0.0.1:{reviewer}")),
                ("ca".to_owned(), base64::engine::general_purpose::STANDARD.encode(server.ca_pem())),
            ]);
            let create = Step {
                request: "POST /api/v1/namespaces".into(),
                body: Some(json!({"metadata": {"name": namespace}})),
                ..Step::default()
            };
            assert_eq!(send(side, &create).await["code"], 201, "namespace {namespace}");
            until_ok(side, &format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")).await;
        }
        for step in &case.steps {
            if let Some(path) = &step.wait {
                until_ok(&real, path).await;
                until_ok(&ours, path).await;
                continue;
            }
            if let Some(code) = step.until {
                for (whose, side) in [("the real server", &real), ("ours", &ours)] {
                    if let Err(last) = until(side, step, code).await {
                        let _ = writeln!(wrong, "## {} | {}: {whose} says {last}", case.name, step.request);
                    }
                }
                continue;
            }
            let (theirs, own) = tokio::join!(send(&real, step), send(&ours, step));
            for (side, answer) in [(&mut real, &theirs), (&mut ours, &own)] {
                for (name, pointer) in &step.keep {
                    let part = answer["body"].pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                    side.words.insert(name.clone(), part.to_owned());
                }
            }
            compared += 1;
            let mut found = Vec::new();
            if theirs["code"] == own["code"] {
                differences(&normal::form(&theirs), &normal::form(&own), "", &mut found);
            } else {
                let told = |answer: &Value| match &answer["body"]["message"] {
                    Value::Null => answer["body"].to_string().chars().take(300).collect(),
                    message => message.to_string(),
                };
                found.push(format!("real {}: {}", theirs["code"], told(&theirs)));
                found.push(format!("ours {}: {}", own["code"], told(&own)));
            }
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
        for side in [&real, &ours] {
            // Clean up after a case: its namespace, and objects outside of it.
            for left in LEFT {
                send(side, &Step { request: format!("DELETE {left}"), ..Step::default() }).await;
            }
        }
    }
    println!("{compared} requests compared");
    assert!(wrong.is_empty(), "of {compared} requests these differ:\n{wrong}");
    if chosen.is_empty() {
        for exception in &exceptions {
            assert!(excused.contains_key(&exception.at), "no longer an exception: {}", exception.at);
        }
        assert!(compared >= 600, "only {compared} requests were compared");
    }
    server.shutdown().await;
}
