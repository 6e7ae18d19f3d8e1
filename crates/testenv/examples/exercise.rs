//! The exercise of tests/clients with kube-rs: create, watch, patch, apply, logs, exec, delete.
//! usage: KUBECONFIG=FILE exercise NAMESPACE

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{
    Api, AttachParams, DeleteParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

type Failure = Box<dyn std::error::Error>;
type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Pod>>>>>;

const NAME: &str = "exercise";
const PATIENCE: Duration = Duration::from_secs(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let namespace = std::env::args().nth(1).ok_or("usage: exercise NAMESPACE")?;
    tokio::time::timeout(PATIENCE, exercise(&namespace)).await??;
    println!("done");
    Ok(())
}

async fn exercise(namespace: &str) -> Result<(), Failure> {
    let client = Client::try_default().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selected = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let mut events: Events = Box::pin(pods.watch(&selected, "0").await?);

    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello from $HOSTNAME; sleep 600"]},
        ]},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    step("create");

    until(&mut events, "ADDED", |event| matches!(event, WatchEvent::Added(_))).await?;
    until(&mut events, "Ready", |event| matches!(event, WatchEvent::Modified(pod) if is_ready(pod))).await?;
    step("watch");

    let patch = Patch::Strategic(json!({"metadata": {"labels": {"step": "patched"}}}));
    let patched = pods.patch(NAME, &PatchParams::default(), &patch).await?;
    let has_label = |pod: &Pod| pod.labels().get("step").is_some_and(|label| label == "patched");
    check(has_label(&patched), || format!("{:?}", patched.labels()))?;
    until(&mut events, "the patch", |event| matches!(event, WatchEvent::Modified(pod) if has_label(pod))).await?;
    step("patch");

    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    for data in [json!({"a": "1", "b": "1"}), json!({"a": "2"})] {
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data});
        let applied = maps.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(wanted)).await?;
        check(json!(applied.data) == data, || format!("{:?}", applied.data))?;
    }
    step("apply");

    let mut log = String::new();
    while log.is_empty() {
        log = pods.logs(NAME, &LogParams::default()).await?;
    }
    check(log == format!("hello from {NAME}\n"), || log.clone())?;
    step("logs");

    exec(&pods).await?;
    step("exec");

    pods.delete(NAME, &DeleteParams::default()).await?;
    until(&mut events, "DELETED", |event| matches!(event, WatchEvent::Deleted(_))).await?;
    check(pods.get_opt(NAME).await?.is_none(), || "the pod is still there".to_owned())?;
    namespaces.delete(namespace, &DeleteParams::default()).await?;
    step("delete");
    Ok(())
}

async fn exec(pods: &Api<Pod>) -> Result<(), Failure> {
    let command = ["sh", "-c", "read line; echo $line; echo err >&2; exit 3"];
    let mut running = pods.exec(NAME, command, &AttachParams::default().stdin(true)).await?;
    let (mut out, mut err) = (String::new(), String::new());
    let mut input = running.stdin().ok_or("no standard input")?;
    let mut output = running.stdout().ok_or("no standard output")?;
    let mut errors = running.stderr().ok_or("no standard error")?;
    let status = running.take_status().ok_or("no status")?;
    input.write_all(b"in\n").await?;
    tokio::try_join!(output.read_to_string(&mut out), errors.read_to_string(&mut err))?;
    let status = status.await.ok_or("the status did not come")?;
    let code = status.details.and_then(|d| d.causes).and_then(|c| c.into_iter().next()?.message);
    let found = (out.as_str(), err.as_str(), code.as_deref());
    check(found == ("in\n", "err\n", Some("3")), || format!("{found:?}"))
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    status.and_then(|s| s.phase.as_deref()) == Some("Running")
        && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

async fn until(events: &mut Events, what: &str, holds: impl Fn(&WatchEvent<Pod>) -> bool) -> Result<(), Failure> {
    while let Some(event) = events.try_next().await? {
        if holds(&event) {
            return Ok(());
        }
    }
    Err(format!("the watch ended before {what}").into())
}

fn step(what: &str) {
    println!("ok: {what}");
}

fn check(holds: bool, found: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(format!("not as expected: {}", found()).into()) }
}
