//! Follows one application until it ends: watches its pods, shows its log and detects its end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use firesteel_api::names;
use firesteel_cluster::writes;
use firesteel_core::pod::{SparkContainer, hold_up};
use firesteel_spark::redaction::Redaction;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;

use crate::ExitStatus;
use crate::interrupt::Interrupt;
use crate::run::cluster::Local;
use crate::run::logs::Source;
use crate::run::stages;
use crate::run::story::{self, Story};
use crate::run::view::View;
use crate::verdict::Verdict;

/// How long a pod may be stuck before the run is abandoned.
pub(crate) const HELD_UP: Duration = Duration::from_secs(8);
/// The same for problems that may resolve themselves, such as a lack of capacity.
pub(crate) const NO_ROOM: Duration = Duration::from_secs(120);
/// How long the log may take to end after the driver.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long deletion may take: a pod's grace period and some slack.
const ENDING: Duration = Duration::from_secs(40);

/// What is followed.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The resource of the SparkApplication or SparkConnect; `None` for a pod.
    pub(crate) application: Option<ApiResource>,
    /// Whether it is a SparkConnect.
    pub(crate) serves: bool,
    /// Masks secrets in log lines quoted in messages.
    pub(crate) redaction: Redaction,
}

impl Followed {
    /// Deletes it if it still runs. If the cluster outlives the run, waits until its driver is gone.
    pub(crate) async fn end(&self, local: &Local) {
        let client = &local.cluster.client;
        self.delete(client).await;
        if !local.stays() {
            return;
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let gone = async {
            while pods.list(&ListParams::default()).await.is_ok_and(|all| all.iter().any(|p| is_driver(self, p))) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(ENDING, gone).await.is_err() {
            tracing::debug!("{} still runs", self.name);
        }
    }

    async fn delete(&self, client: &kube::Client) {
        let outcome = match &self.application {
            Some(resource) => {
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, resource);
                writes::delete(&api, &self.name, None, false).await
            }
            None => {
                let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
                writes::delete(&api, &self.name, None, false).await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!("delete {}: {error}", self.name);
        }
    }
}

pub(crate) struct Follower<'a> {
    pub(crate) local: &'a Local,
    pub(crate) view: &'a View,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) began: Instant,
}

/// What the watches report.
enum News {
    Pod(Pod),
    PodGone(Pod),
    Application(DynamicObject),
    ApplicationGone,
    Broken(String),
}

#[derive(Default)]
struct Seen {
    story: Story,
    driver: Option<Pod>,
    driver_gone: bool,
    logs: HashMap<String, JoinHandle<Result<Vec<u8>, String>>>,
    stages: Option<(String, JoinHandle<()>)>,
    trouble: Option<(String, Instant, bool)>,
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some((_, task)) = self.stages.take() {
            task.abort();
        }
    }
}

impl Follower<'_> {
    pub(crate) async fn to_the_end(&self, followed: &Followed) -> anyhow::Result<ExitStatus> {
        let mut seen = Seen::default();
        let mut news = self.watch(followed);
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        let ending = loop {
            let ending = tokio::select! {
                () = self.interrupt.comes() => {
                    self.view.state("interrupted, stopping the application");
                    followed.end(self.local).await;
                    break Verdict::other(ExitStatus::Interrupted, "interrupted");
                }
                _ = ticks.tick() => self.held_up(&mut seen),
                item = news.next() => match item {
                    Some(item) => self.hear(followed, item, &mut seen),
                    None => break Verdict::other(ExitStatus::Failure, "the watch ended"),
                },
            };
            if let Some(ending) = ending {
                break ending;
            }
            self.view.state_if_live(&seen.story.headline());
        };
        drop(news);
        let logs = self.finish_logs(&mut seen).await;
        if ending.exit == ExitStatus::NeverStarted {
            followed.end(self.local).await;
        }
        self.view.finish();
        let outcome = if ending.failure.is_some() { "Times" } else { "Finished" };
        self.view.line(&seen.story.summary(self.began.elapsed(), outcome));
        // Print the failure last, where it is seen.
        if let Some(failure) = &ending.failure {
            let log = |pod: &Pod| logs.get(&pod.uid().unwrap_or_default());
            let cause = seen.driver.as_ref().and_then(|pod| failure.cause(pod, log(pod)?, &followed.redaction));
            self.view.line(&format!("Failed: {}", failure.words(cause.as_ref())));
        }
        Ok(ending.exit)
    }

    fn watch(&self, followed: &Followed) -> stream::BoxStream<'static, News> {
        let client = self.local.cluster.client.clone();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &followed.namespace);
        let pods = watcher(pods, watcher::Config::default()).default_backoff().filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(News::Pod(pod)),
                Ok(watcher::Event::Delete(pod)) => Some(News::PodGone(pod)),
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => Some(News::Broken(error.to_string())),
            }
        });
        let Some(resource) = &followed.application else { return pods.boxed() };
        let api: Api<DynamicObject> = Api::namespaced_with(client, &followed.namespace, resource);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", followed.name));
        let application = watcher(api, only).default_backoff().filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    Some(News::Application(object))
                }
                Ok(watcher::Event::Delete(_)) => Some(News::ApplicationGone),
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => Some(News::Broken(error.to_string())),
            }
        });
        stream::select(pods, application).boxed()
    }

    fn hear(&self, followed: &Followed, news: News, seen: &mut Seen) -> Option<Verdict> {
        match news {
            News::Pod(pod) if is_driver(followed, &pod) => self.driver(followed, pod, false, seen),
            News::PodGone(pod) if is_driver(followed, &pod) => self.driver(followed, pod, true, seen),
            News::Pod(pod) | News::PodGone(pod) if !is_executor(&pod, seen.driver.as_ref()) => None,
            News::Pod(pod) => {
                self.report(seen.story.executor(&pod, false, self.began.elapsed()));
                None
            }
            News::PodGone(pod) => {
                self.report(seen.story.executor(&pod, true, self.began.elapsed()));
                None
            }
            News::Application(object) => {
                let state = object.data["status"]["applicationState"].clone();
                let text = |key: &str| state[key].as_str().unwrap_or_default().to_owned();
                let (name, message) = (text("state"), text("errorMessage"));
                self.report(seen.story.application(&name, &message, self.began.elapsed()));
                application_over(&name, &message, seen)
            }
            News::ApplicationGone => Some(Verdict::other(ExitStatus::Failure, "the application was deleted")),
            News::Broken(why) => {
                tracing::debug!("watch: {why}");
                None
            }
        }
    }

    fn driver(&self, followed: &Followed, pod: Pod, gone: bool, seen: &mut Seen) -> Option<Verdict> {
        self.report(seen.story.driver(&pod, self.began.elapsed()));
        let uid = pod.uid().unwrap_or_default();
        let container = SparkContainer::of(&pod);
        if container.has_started() && !seen.logs.contains_key(&uid) {
            let source = Source {
                client: self.local.cluster.client.clone(),
                namespace: followed.namespace.clone(),
                pod: pod.name_any(),
                container: container.name().to_owned(),
            };
            seen.logs.insert(uid.clone(), tokio::spawn(source.follow(self.view.clone())));
            let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone()).filter(|ip| !ip.is_empty());
            if let Some(address) = address.filter(|_| pod.labels().contains_key(names::LABEL_APP_SELECTOR)) {
                if let Some((_, old)) = seen.stages.take() {
                    old.abort();
                }
                let port = story::ui_port(&pod);
                seen.stages = Some((uid, tokio::spawn(stages::show(address, port, self.view.clone()))));
            }
        }
        let over = if gone { Some(Verdict::of_deleted(&pod)) } else { Verdict::of(&pod) };
        seen.driver = Some(pod);
        seen.driver_gone = gone;
        // The operator decides when an application has ended: there may be another attempt.
        if followed.application.is_some() { None } else { over }
    }

    /// Abandons a run that cannot start.
    fn held_up(&self, seen: &mut Seen) -> Option<Verdict> {
        let trouble = seen.driver.as_ref().filter(|pod| !SparkContainer::of(pod).has_started()).and_then(hold_up);
        let Some(trouble) = trouble else {
            seen.trouble = None;
            return None;
        };
        let (since, reported) = match &seen.trouble {
            Some((key, since, reported)) if *key == trouble.key => (*since, *reported),
            Some(_) | None => (Instant::now(), false),
        };
        let lasted = since.elapsed();
        let report = !reported && (!trouble.is_usual || lasted > Duration::from_secs(2));
        if report {
            self.view.line(&format!("Warning: {}", trouble.sentence));
        }
        seen.trouble = Some((trouble.key, since, reported || report));
        let limit = if trouble.is_usual { NO_ROOM } else { HELD_UP };
        (lasted > limit).then(|| Verdict::other(ExitStatus::NeverStarted, &trouble.sentence))
    }

    fn report(&self, line: Option<String>) {
        if let Some(line) = line {
            self.view.line(&line);
        }
    }

    /// Waits until the logs are shown in full, and returns the end of each by pod uid.
    async fn finish_logs(&self, seen: &mut Seen) -> HashMap<String, Vec<u8>> {
        let mut ends = HashMap::new();
        for (uid, mut task) in seen.logs.drain() {
            match tokio::time::timeout(LAST_WORDS, &mut task).await {
                Ok(Ok(Ok(end))) => {
                    ends.insert(uid, end);
                }
                Ok(Ok(Err(why))) => self.view.line(&format!("Warning: the driver's log cannot be read: {why}")),
                Ok(Err(_)) | Err(_) => {
                    task.abort();
                    self.view.line("Warning: the driver's log did not end in time");
                }
            }
        }
        ends
    }
}

pub(crate) fn is_driver(followed: &Followed, pod: &Pod) -> bool {
    match followed.application {
        Some(_) => {
            let label = |key: &str| pod.labels().get(key).map(String::as_str);
            let (name, role) = match followed.serves {
                true => (names::LABEL_CONNECT_NAME, names::ROLE_CONNECT_SERVER),
                false => (names::LABEL_APP_NAME, "driver"),
            };
            label(name) == Some(&followed.name) && label(names::LABEL_ROLE) == Some(role)
        }
        None => pod.name_any() == followed.name,
    }
}

fn is_executor(pod: &Pod, driver: Option<&Pod>) -> bool {
    let of_driver = driver.and_then(|d| d.labels().get(names::LABEL_APP_SELECTOR));
    pod.labels().get(names::LABEL_ROLE).is_some_and(|r| r == "executor")
        && of_driver.is_some()
        && pod.labels().get(names::LABEL_APP_SELECTOR) == of_driver
}

/// The verdict for an application state, if it is final.
fn application_over(state: &str, message: &str, seen: &Seen) -> Option<Verdict> {
    let driver = seen.driver.as_ref();
    let of_driver =
        driver.and_then(|pod| if seen.driver_gone { Some(Verdict::of_deleted(pod)) } else { Verdict::of(pod) });
    match state {
        "COMPLETED" => Some(Verdict { exit: ExitStatus::Success, failure: None }),
        "FAILED" => Some(match of_driver {
            Some(verdict) if verdict.failure.is_some() => verdict,
            _ => {
                let failure = if message.is_empty() { "the application failed" } else { message };
                let exit = if driver.is_some_and(|pod| SparkContainer::of(pod).has_started()) {
                    ExitStatus::Failure
                } else {
                    ExitStatus::NeverStarted
                };
                Verdict::other(exit, failure)
            }
        }),
        _ => None,
    }
}
