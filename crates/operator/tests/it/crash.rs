//! The operator dies at every write in turn, in each of several stories. The next operator finishes the job: the story ends
//! as if nothing had happened, with exactly one driver pod per attempt and nothing left over.

use std::pin::Pin;

use firesteel_api::{ScheduledSparkApplicationStatus, SparkApplicationStatus};
use firesteel_testenv::TestEnv;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::connect;
use crate::fixture::{Fixture, PATIENCE, block_on, start, state};
use crate::killer::{self, Point};
use crate::kubelet::{Drivers, Fate, first_fails, first_runs_on, play};
use crate::schedules::Schedules;

/// More writes than any story has; a test detects when they are exhausted.
const MOST_WRITES: usize = 120;
/// Stories that run in parallel.
const AT_ONCE: usize = 8;
/// After this many tellings in a row without a death, the story has no further writes.
const ENOUGH: usize = 4;

type Telling<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What happens to an application, and how it must end whenever the operator dies.
#[derive(Clone, Copy)]
struct Story {
    name: &'static str,
    fate: fn(&str) -> Fate,
    /// Runs the story and asserts what must hold at its end.
    tell: for<'a> fn(&'a Fixture) -> Telling<'a>,
    /// The drivers that must have existed.
    drivers: &'static [&'static str],
    /// The minimum number of writes: with fewer, the test covers nothing.
    writes: usize,
}

/// Runs a story with a death at `point`. False if the story ended before.
async fn survives(story: Story, point: Point) -> bool {
    let env = TestEnv::get().unwrap();
    let (client, death) = killer::client(config(env).await, point);
    let prefix = format!("{}{}{}", story.name, point.write, if point.after { "a" } else { "b" });
    let f = Fixture::with(&prefix, client).await;
    let seen = Drivers::default();
    let kubelet = tokio::spawn(play(f.pods.clone(), story.fate, seen.clone()));
    let servers = tokio::spawn(connect::play(f.pods.clone(), seen.clone()));
    let successor = tokio::spawn({
        let (death, client, namespace) = (death.clone(), f.client.clone(), f.namespace.name().to_owned());
        async move {
            death.settled().await;
            let _next = start(client, &namespace);
            std::future::pending::<()>().await;
        }
    });
    (story.tell)(&f).await;
    successor.abort();
    kubelet.abort();
    servers.abort();
    let seen = seen.lock().unwrap().clone();
    let drivers: Vec<String> = seen.keys().map(|driver| without_ids(driver)).collect();
    assert_eq!(drivers, story.drivers, "{} {point:?}", story.name);
    assert!(seen.values().all(|uids| uids.len() == 1), "{} {point:?}: {seen:?}", story.name);
    death.token.is_cancelled()
}

/// A name with `#` for ids, which differ from run to run.
fn without_ids(name: &str) -> String {
    let is_id = |part: &&str| part.len() >= 8 && part.bytes().all(|c| c.is_ascii_hexdigit());
    let parts = name.split('-').map(|part| if is_id(&part) { "#" } else { part });
    parts.collect::<Vec<_>>().join("-")
}

pub(crate) async fn config(env: &TestEnv) -> kube::Config {
    let read = kube::config::Kubeconfig::read_from(env.kubeconfig()).unwrap();
    kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default()).await.unwrap()
}

/// Runs a story with a death at every write. With `both`, each write is tested twice: once it does not reach the API
/// server, once its response is lost. To the cluster the latter equals a death before the next write.
fn die_everywhere(story: Story, both: bool) {
    block_on(async move {
        let Some(env) = TestEnv::get() else { return };
        crate::fixture::install(&env.client().await).await;
        let ways: &[bool] = if both { &[false, true] } else { &[false] };
        let mut points = Vec::new();
        for write in 0..MOST_WRITES {
            points.extend(ways.iter().map(|after| Point { write, after: *after }));
        }
        let (mut died, mut survived) = (0, 0);
        let mut running = futures::stream::iter(points).map(|point| survives(story, point)).buffered(AT_ONCE);
        while let Some(dead) = running.next().await {
            // States that follow each other quickly are written as one, so one telling may have fewer writes than the next.
            (died, survived) = if dead { (died + 1, 0) } else { (died, survived + 1) };
            if survived == ENOUGH {
                break;
            }
        }
        let expected = story.writes * ways.len();
        assert!(died >= expected, "{}: only {died} deaths: the story has more writes than that", story.name);
        assert!(died < MOST_WRITES * ways.len(), "{}: the story has no end", story.name);
    });
}

async fn status(f: &Fixture) -> SparkApplicationStatus {
    f.apps.get("pi").await.unwrap().status.unwrap()
}

/// Asserts that the application has this many ConfigMaps and Services. No state waits for the driver's exposure to be
/// deleted, so that may take a moment.
async fn assert_left(f: &Fixture, maps: usize, services: usize) {
    let labelled = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi");
    let all_maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
    let all_services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
    let deadline = tokio::time::Instant::now() + PATIENCE / 4;
    loop {
        let found_maps: Vec<String> =
            all_maps.list(&labelled).await.unwrap().iter().map(ResourceExt::name_any).collect();
        let found = all_services.list(&labelled).await.unwrap();
        let found: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        if (found_maps.len(), found.len()) == (maps, services) {
            return;
        }
        let late = tokio::time::Instant::now() >= deadline;
        let status = f.apps.get_opt("pi").await.unwrap().and_then(|app| app.status);
        assert!(!late, "in {}: {found_maps:?} and {found:?}; {status:#?}", f.namespace.name());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Waits until the application and all its objects are gone.
async fn wait_gone(f: &Fixture) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let maps: Api<ConfigMap> = Api::namespaced(f.client.clone(), f.namespace.name());
    let services: Api<Service> = Api::namespaced(f.client.clone(), f.namespace.name());
    let labelled = ListParams::default().labels("sparkoperator.k8s.io/app-name=pi");
    loop {
        let app = f.apps.get_opt("pi").await.unwrap();
        let pods = f.pods.list(&ListParams::default()).await.unwrap().items;
        let maps = maps.list(&labelled).await.unwrap().items;
        let services = services.list(&labelled).await.unwrap().items;
        if app.is_none() && pods.is_empty() && maps.is_empty() && services.is_empty() {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "left in {}: {app:?} {pods:?} {maps:?} {services:?}",
            f.namespace.name()
        );
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[test]
fn d1_an_operator_that_dies_at_any_write_leaves_nothing_double_and_nothing_stuck() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 1});
            f.create("pi", &json!({"restartPolicy": policy})).await;
            f.wait_state("pi", "COMPLETED").await;
            let status = status(f).await;
            assert_eq!((status.execution_attempts, status.attempt), (2, Some(2)));
            assert_left(f, 1, 1).await;
        })
    }
    let drivers = &["pi-driver 1", "pi-driver 2"];
    die_everywhere(Story { name: "retry", fate: first_fails, tell, drivers, writes: 20 }, true);
}

#[test]
fn d1_an_operator_that_dies_while_it_suspends_and_resumes_runs_each_attempt_once() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            f.create("pi", &json!({})).await;
            f.wait_state("pi", "RUNNING").await;
            f.edit("pi", &json!({"suspend": true})).await;
            f.wait_state("pi", "SUSPENDED").await;
            assert!(f.pods.get_opt("pi-driver").await.unwrap().is_none());
            assert_left(f, 0, 0).await;
            f.edit("pi", &json!({"suspend": false})).await;
            f.wait_state("pi", "COMPLETED").await;
            assert_eq!(status(f).await.attempt, Some(2));
            assert_left(f, 1, 1).await;
        })
    }
    let drivers = &["pi-driver 1", "pi-driver 2"];
    die_everywhere(Story { name: "pause", fate: first_runs_on, tell, drivers, writes: 25 }, false);
}

#[test]
fn d1_an_operator_that_dies_over_an_edit_runs_the_new_specification_once() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            f.create("pi", &json!({})).await;
            f.wait_state("pi", "RUNNING").await;
            f.edit("pi", &json!({"arguments": ["other"]})).await;
            let app = f.wait("pi", "run again", |app| state(app) == "COMPLETED").await;
            let status = app.status.unwrap();
            assert_eq!((status.attempt, status.execution_attempts), (Some(2), 1), "a new budget");
            assert!(status.state_times.contains_key("INVALIDATING"));
            let pod = f.pods.get("pi-driver").await.unwrap();
            assert!(pod.spec.unwrap().containers[0].args.as_ref().unwrap().contains(&"other".to_owned()));
            assert_left(f, 1, 1).await;
        })
    }
    let drivers = &["pi-driver 1", "pi-driver 2"];
    die_everywhere(Story { name: "edit", fate: first_runs_on, tell, drivers, writes: 20 }, false);
}

#[test]
fn d1_an_operator_that_dies_over_refused_submissions_counts_each_and_cleans_up() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let policy =
                json!({"type": "OnFailure", "onSubmissionFailureRetries": 1, "onSubmissionFailureRetryInterval": 1});
            f.create("pi", &json!({"restartPolicy": policy, "driver": {"serviceAccount": "nobody"}})).await;
            f.wait_state("pi", "FAILED").await;
            let status = status(f).await;
            assert_eq!((status.submission_attempts, status.execution_attempts), (2, 0));
            assert_left(f, 0, 0).await;
        })
    }
    die_everywhere(Story { name: "refused", fate: first_fails, tell, drivers: &[], writes: 15 }, false);
}

#[test]
fn d1_an_operator_that_dies_over_the_end_leaves_no_executor_and_no_object_behind() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let policy = json!({"type": "OnFailure", "onFailureRetries": 1, "onFailureRetryInterval": 3});
            f.create("pi", &json!({"restartPolicy": policy, "timeToLiveSeconds": 2})).await;
            let first =
                f.wait("pi", "submitted", |app| app.status.as_ref().is_some_and(|s| s.attempt == Some(1))).await;
            // Its driver dies and leaves it behind, without an owner to garbage-collect it.
            f.executor(&first, 1, "Running").await;
            wait_gone(f).await;
        })
    }
    let drivers = &["pi-driver 1", "pi-driver 2"];
    die_everywhere(Story { name: "ttl", fate: first_fails, tell, drivers, writes: 20 }, false);
}

#[test]
fn d1_an_operator_that_dies_over_a_deletion_brings_nothing_back() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            f.create("pi", &json!({})).await;
            f.wait_state("pi", "RUNNING").await;
            f.apps.delete("pi", &DeleteParams::background()).await.unwrap();
            wait_gone(f).await;
        })
    }
    die_everywhere(Story { name: "gone", fate: first_runs_on, tell, drivers: &["pi-driver 1"], writes: 6 }, false);
}

#[test]
fn an_operator_that_dies_at_any_write_leaves_one_connect_server_of_the_new_specification() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let connects = f.connects();
            connects.create("lab", &json!({})).await;
            connects.wait_state("lab", "Ready").await;
            connects.edit("lab", &json!({"server": {"memory": "2g"}})).await;
            let is_second = |status: &firesteel_api::SparkConnectStatus| {
                status.attempt == Some(2) && status.state.as_deref() == Some("Ready")
            };
            connects.wait("lab", "rolled out", |connect| connect.status.as_ref().is_some_and(is_second)).await;
            connect::assert_left(f, "lab", 2, 2).await;
        })
    }
    let drivers = &["lab-server 1", "lab-server 2"];
    die_everywhere(Story { name: "serve", fate: first_fails, tell, drivers, writes: 12 }, true);
}

#[test]
fn an_operator_that_dies_over_the_deletion_of_a_connect_server_brings_nothing_back() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let connects = f.connects();
            connects.create("lab", &json!({})).await;
            connects.wait_state("lab", "Ready").await;
            connects.delete("lab").await;
            connect::assert_left(f, "lab", 0, 0).await;
            assert!(f.pods.list(&ListParams::default()).await.unwrap().items.is_empty());
        })
    }
    die_everywhere(Story { name: "unserve", fate: first_fails, tell, drivers: &["lab-server 1"], writes: 5 }, false);
}

#[test]
fn d1_an_operator_that_dies_over_a_schedule_starts_each_run_once() {
    fn tell(f: &Fixture) -> Telling<'_> {
        Box::pin(async move {
            let schedules = Schedules::of(f);
            let spec =
                json!({"schedule": "0 0 1 1 *", "timeZone": "UTC", "suspend": true, "concurrencyPolicy": "Replace"});
            schedules.create("pi", &spec).await;
            schedules.wait("pi", "there", |s| s.schedule_state.is_some()).await;
            // A run is overdue; one by hand replaces it.
            schedules
                .set_status(
                    "pi",
                    &json!({"nextRun": "2026-01-01T00:00:00Z", "observedSchedule": "CRON_TZ=UTC 0 0 1 1 *"}),
                )
                .await;
            schedules.edit("pi", &json!({"suspend": false})).await;
            let first = schedules.wait("pi", "started", |s| s.last_run_name.is_some()).await.last_run_name.unwrap();
            f.wait_state(&first, "RUNNING").await;
            schedules.ask("pi", "now").await;
            let by_hand = |s: &ScheduledSparkApplicationStatus| {
                s.last_run_name.as_ref().is_some_and(|name| name.starts_with("pi-by-hand-"))
            };
            let second = schedules.wait("pi", "started by hand", by_hand).await.last_run_name.unwrap();
            f.wait_state(&second, "RUNNING").await;
            f.end_driver(&second, 0).await;
            let status = schedules.wait("pi", "done", |s| s.past_successful_run_names == [second.clone()]).await;
            assert_eq!(status.schedule_state.as_deref(), Some("Scheduled"));
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while schedules.runs("pi").await.into_keys().collect::<Vec<_>>() != [second.clone()] {
                assert!(tokio::time::Instant::now() < deadline, "runs are left over");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
    }
    let drivers = &["pi-#-driver 1", "pi-by-hand-#-driver 1"];
    die_everywhere(Story { name: "schedule", fate: first_runs_on, tell, drivers, writes: 15 }, true);
}
