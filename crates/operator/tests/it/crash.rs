//! The operator dies at every write in turn. Whoever starts next finishes the job: the application ends as if nothing had
//! happened, with exactly one driver pod per attempt.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firesteel_testenv::TestEnv;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Fixture, block_on, container, now, start};
use crate::killer::{self, Point};

/// More writes than the story has; the test sees when they are through.
const MOST_WRITES: usize = 60;
const AT_ONCE: usize = 4;

/// Plays the kubelet: the first attempt fails, the second succeeds. Notes every driver pod there ever was, by
/// name and attempt.
pub(crate) async fn play(pods: Api<Pod>, seen: Arc<Mutex<BTreeMap<String, Vec<String>>>>) {
    let mut events = watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let attempt = pod.annotations().get("firesteel.dev/attempt").cloned().unwrap_or_default();
        let key = format!("{} {attempt}", pod.name_any());
        let uid = pod.uid().unwrap_or_default();
        {
            let mut seen = seen.lock().unwrap();
            let uids = seen.entry(key).or_default();
            if uids.contains(&uid) {
                continue;
            }
            uids.push(uid);
        }
        let (phase, code) = if attempt == "1" { ("Failed", 1) } else { ("Succeeded", 0) };
        let pods = pods.clone();
        tokio::spawn(async move {
            let ended = json!({"terminated": {"exitCode": code, "reason": "x", "finishedAt": now()}});
            let running = json!({"phase": "Running", "containerStatuses": [container(&json!({"running": {}}))]});
            let finished = json!({"phase": phase, "containerStatuses": [container(&ended)]});
            for status in [running, finished] {
                let patch = kube::api::Patch::Merge(json!({"status": status}));
                let _ = pods.patch_status(&pod.name_any(), &kube::api::PatchParams::default(), &patch).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
    }
}

/// Tells the story with a death at `point`. False if the story was over before.
async fn survives(point: Point) -> bool {
    let env = TestEnv::get().unwrap();
    let config = config(env).await;
    let (client, death) = killer::client(config, point);
    let f = Fixture::with(&format!("crash{}{}", point.write, if point.after { "a" } else { "b" }), client).await;
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let kubelet = tokio::spawn(play(f.pods.clone(), seen.clone()));
    let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
    f.create("pi", &json!({"restartPolicy": policy})).await;
    let died = tokio::select! {
        () = death.token.cancelled() => true,
        _ = f.wait_state("pi", "COMPLETED") => false,
    };
    let _next = died.then(|| start(f.client.clone(), f.namespace.name()));
    let app = f.wait_state("pi", "COMPLETED").await;
    kubelet.abort();

    let status = app.status.unwrap();
    let what = format!("{point:?}");
    assert_eq!((status.execution_attempts, status.attempt), (2, Some(2)), "{what}");
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["pi-driver 1", "pi-driver 2"], "{what}");
    assert!(seen.values().all(|uids| uids.len() == 1), "{what}: {seen:?}");
    let maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
    let labelled = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi");
    assert_eq!(maps.list(&labelled).await.unwrap().items.len(), 2, "{what}: something is left over");
    died
}

pub(crate) async fn config(env: &TestEnv) -> kube::Config {
    let read = kube::config::Kubeconfig::read_from(env.kubeconfig()).unwrap();
    kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap()
}

#[test]
fn d1_an_operator_that_dies_at_any_write_leaves_nothing_double_and_nothing_stuck() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        crate::fixture::install(&env.client().await).await;
        let points = (0..MOST_WRITES).flat_map(|write| [false, true].map(|after| Point { write, after }));
        let mut died = 0;
        let mut running = futures::stream::iter(points).map(survives).buffered(AT_ONCE);
        while let Some(dead) = running.next().await {
            if !dead {
                break;
            }
            died += 1;
        }
        assert!(died >= 20, "only {died} deaths: the story has more writes than that");
    });
}
