//! Requests per application, executor counts in the status, and gauges in the metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firesteel_operator::{LabelNames, Listen, Options, ServeMetrics};
use firesteel_testenv::TestEnv;
use http::{Method, Request, StatusCode};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kube::client::Body;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{Fixture, PATIENCE, block_on, install, options, start_with};
use crate::witness::{self, Witness};

/// The operator's requests by verb and kind, without those that start watches.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<BTreeMap<String, usize>>>);

impl Witness for Requests {
    type Note = ();

    fn asked(&self, request: &Request<Body>) -> Option<()> {
        let verb = match *request.method() {
            Method::GET if request.uri().query().is_some_and(|q| q.contains("limit=") || q.contains("watch=")) => {
                return Some(());
            }
            Method::GET => "get",
            Method::POST => "create",
            Method::PATCH => "patch",
            Method::PUT => "update",
            _ => "delete",
        };
        // /api/v1/namespaces/NAMESPACE/KIND[/NAME[/SUBRESOURCE]]
        let mut path = request.uri().path().split('/').skip_while(|part| *part != "namespaces").skip(2);
        let Some(kind) = path.next().filter(|kind| *kind != "leases") else { return Some(()) };
        let words = [verb, kind, path.nth(1).unwrap_or_default()];
        *self.0.lock().unwrap().entry(words.join(" ").trim_end().to_owned()).or_default() += 1;
        Some(())
    }

    fn answered(&self, (): (), _: StatusCode) -> bool {
        true
    }
}

impl Requests {
    fn take(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A namespace whose operator's requests are counted.
async fn counted(prefix: &str) -> Option<(Fixture, Requests)> {
    let env = TestEnv::get()?;
    install(&env.client().await).await;
    let requests = Requests::default();
    let operator = witness::client(crate::crash::config(env).await, &requests);
    let f = Fixture::with(prefix, operator).await;
    Some((f, requests))
}

fn counts<const N: usize>(each: [(&str, usize); N]) -> BTreeMap<String, usize> {
    each.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
}

#[test]
fn an_application_costs_nine_requests_and_six_if_nobody_sees_it_run() {
    block_on(async {
        let Some((f, requests)) = counted("cost").await else { return };
        // Its driver waits without a reason to report.
        let quiet = json!({"driver": {"nodeSelector": null, "schedulerName": "nobody"}});
        // What comes only once per operator.
        f.create("warm", &quiet).await;
        f.driver("warm", 1).await;
        f.end_driver("warm", 0).await;
        f.event("SparkApplicationCompleted").await;
        requests.take();

        let began = tokio::time::Instant::now();
        f.create("pi", &quiet).await;
        f.wait_state("pi", "SUBMITTED").await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.end_driver("pi", 0).await;
        f.wait_state("pi", "COMPLETED").await;
        let took = began.elapsed();
        let events: Api<Event> = Api::namespaced(f.client.clone(), f.namespace.name());
        let about = ListParams::default().fields("regarding.name=pi");
        let told = loop {
            let told = events.list(&about).await.unwrap().items;
            if told.iter().any(|event| event.reason.as_deref() == Some("SparkApplicationCompleted")) {
                break told;
            }
            assert!(began.elapsed() < PATIENCE, "{told:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        // On a slow machine the course of the run takes more than one event.
        let most = if took < Duration::from_secs(4) { 1 } else { 2 };
        assert!(told.len() <= most, "{told:?}");
        let notes: Vec<&str> = told.iter().filter_map(|event| event.note.as_deref()).collect();
        for sentence in [
            "SparkApplication pi was added",
            "driver pi-driver is pending",
            "SparkApplication pi was submitted",
            "driver pi-driver is running",
            "driver pi-driver completed",
            "SparkApplication pi completed",
        ] {
            assert!(notes.iter().any(|note| note.contains(sentence)), "{sentence} is not in {notes:?}");
        }
        let expected = counts([
            ("create configmaps", 1),
            ("create events", told.len()),
            ("create pods", 1),
            // The driver's own, and that of its web UI, which ends with the driver.
            ("create services", 2),
            ("delete services", 1),
            // SUBMITTED, RUNNING, COMPLETED.
            ("patch sparkapplications status", 3),
        ]);
        assert_eq!(requests.take(), expected);

        // A driver that has ended by the time the operator looks, as in a burst of short ones.
        f.create("brief", &quiet).await;
        f.wait_state("brief", "SUBMITTED").await;
        f.end_driver("brief", 0).await;
        f.wait_state("brief", "COMPLETED").await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let about = ListParams::default().fields("regarding.name=brief,reason=SparkApplicationCompleted");
        while events.list(&about).await.unwrap().items.is_empty() {
            assert!(tokio::time::Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let seen = requests.take();
        let expected = counts([
            ("create configmaps", 1),
            ("create events", seen["create events"].min(most)),
            ("create pods", 1),
            ("create services", 1),
            ("patch sparkapplications status", 2),
        ]);
        assert_eq!(seen, expected);
    });
}

#[test]
fn warnings_do_not_wait_and_keep_their_reasons() {
    block_on(async {
        let Some(f) = Fixture::new("warned").await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        f.wait_state("pi", "RUNNING").await;
        f.end_driver("pi", 1).await;
        f.wait_state("pi", "FAILED").await;
        for (reason, note) in [
            ("SparkDriverFailed", "driver pi-driver failed"),
            ("SparkApplicationFailed", "SparkApplication pi failed: driver container failed with ExitCode: 1"),
            ("SparkDriverRunning", "driver pi-driver is running"),
        ] {
            assert!(f.event(reason).await.contains(note), "{reason}");
        }
    });
}

/// A free port.
pub(crate) fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) async fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some(text)
}

/// Waits until both gauges of a namespace have these values.
pub(crate) async fn wait_for_gauges(port: u16, namespace: &str, applications: u32, executors: u32) {
    let wanted = [
        format!("spark_application_running_count{{namespace=\"{namespace}\"}} {applications}"),
        format!("spark_executor_running_count{{namespace=\"{namespace}\"}} {executors}"),
    ];
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let text = scrape(port).await.unwrap_or_default();
        if wanted.iter().all(|line| text.lines().any(|l| l == line)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{wanted:?} never was in {text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn gauges_go_down_when_applications_are_deleted_and_are_right_after_a_restart() {
    block_on(async {
        let first = free();
        let listen = |port: u16| Some(ServeMetrics::plain(Listen::At("127.0.0.1".to_owned(), port)));
        let labels = LabelNames::new(["namespace"]).unwrap();
        let tune = |options: &mut Options, port: u16| {
            options.metrics = listen(port);
            options.metrics_options.labels = labels.clone();
        };
        let Some(mut f) = Fixture::tuned("gauges", |options| tune(options, first)).await else { return };
        let namespace = f.namespace.name().to_owned();
        for name in ["one", "two"] {
            f.create(name, &json!({})).await;
            f.driver(name, 1).await;
            f.run_driver(name).await;
            let app = f.wait_state(name, "RUNNING").await;
            f.executor(&app, 1, "Running").await;
        }
        wait_for_gauges(first, &namespace, 2, 2).await;
        f.apps.delete("one", &DeleteParams::default()).await.unwrap();
        f.pods.delete("one-exec-1", &DeleteParams::default().grace_period(0)).await.unwrap();
        wait_for_gauges(first, &namespace, 1, 1).await;

        f.stop_operator();
        let second = free();
        let mut again = options(&namespace);
        tune(&mut again, second);
        let running = start_with(f.client.clone(), again);
        wait_for_gauges(second, &namespace, 1, 1).await;
        let text = scrape(second).await.unwrap();
        for name in ["count", "submit_count", "success_count"] {
            let line = format!("spark_application_{name}{{namespace=\"{namespace}\"}} 0");
            assert!(text.lines().any(|l| l == line), "a restart counts no transition again, {line}: {text}");
        }
        f.apps.delete("two", &DeleteParams::default()).await.unwrap();
        f.pods.delete("two-exec-1", &DeleteParams::default().grace_period(0)).await.unwrap();
        wait_for_gauges(second, &namespace, 0, 0).await;
        drop(running);
    });
}

#[test]
fn executors_whose_pods_vanish_keep_their_last_phase_and_are_not_live() {
    block_on(async {
        let Some(f) = Fixture::tuned("vanish", |options| options.limits.tracked_executors = 8).await else { return };
        f.create("pi", &json!({})).await;
        f.driver("pi", 1).await;
        f.run_driver("pi").await;
        let app = f.wait_state("pi", "RUNNING").await;
        let row = |app: &firesteel_api::SparkApplication, id: u32| {
            let table = &app.status.as_ref().unwrap().executor_state;
            table.get(&format!("pi-exec-{id}")).cloned().unwrap_or_default()
        };
        for id in 1..=8 {
            f.executor(&app, id, "Running").await;
        }
        f.wait("pi", "running eight executors", |app| {
            app.status.as_ref().unwrap().executor_counts.as_ref().is_some_and(|counts| counts.running == 8)
        })
        .await;
        // They end and are deleted at once, so a pass may see neither.
        let at_once = DeleteParams::default().grace_period(0);
        f.executor(&app, 8, "Succeeded").await;
        f.pods.delete("pi-exec-8", &at_once).await.unwrap();
        f.executor(&app, 7, "Failed").await;
        f.pods.delete("pi-exec-7", &at_once).await.unwrap();
        for id in 3..=6 {
            f.pods.delete(&format!("pi-exec-{id}"), &at_once).await.unwrap();
        }
        let app = f
            .wait("pi", "counting all vanished executors", |app| {
                let counts = app.status.as_ref().unwrap().executor_counts.clone().unwrap_or_default();
                (counts.running, counts.completed, counts.failed, counts.unknown) == (2, 1, 1, 4)
            })
            .await;
        assert_eq!((row(&app, 8), row(&app, 7)), ("COMPLETED".to_owned(), "FAILED".to_owned()));
        assert_eq!((row(&app, 6), row(&app, 3)), ("UNKNOWN".to_owned(), "UNKNOWN".to_owned()));
        // New ones replace those that vanished, not those that run.
        for id in 9..=12 {
            f.executor(&app, id, "Running").await;
        }
        let app = f
            .wait("pi", "running six executors", |app| {
                app.status.as_ref().unwrap().executor_counts.as_ref().is_some_and(|counts| counts.running == 6)
            })
            .await;
        for id in [1, 2, 9, 10, 11, 12] {
            assert_eq!(row(&app, id), "RUNNING", "{id}: live executors come first");
        }
        f.end_driver("pi", 0).await;
        let app = f.wait_state("pi", "COMPLETED").await;
        assert_eq!(app.status.unwrap().executor_counts.unwrap().completed, 5, "the rest ended with the application");
    });
}
