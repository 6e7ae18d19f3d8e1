//! Waits for a driver to end and reports its state.
//!
//! One pod is watched. A watch that ends, breaks or is too old (410) is restarted after getting the pod again. Only the end of
//! the driver, a denied request or Ctrl-C ends the wait. Where watching is forbidden, the pod is polled.

use std::time::Duration;

use firesteel_cluster::Cluster;
use firesteel_cluster::error::is_denied;
use firesteel_cluster::log;
use firesteel_cluster::refusal::Attempt;
use firesteel_core::pod::{SparkContainer, hold_up};
use firesteel_spark::redaction::Redaction;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, WatchEvent, WatchParams};
use tokio::time::{Instant, MissedTickBehavior};

use crate::interrupt::Interrupt;
use crate::output::Printer;
use crate::submit::state;
use crate::verdict::{Failure, Verdict};

/// How long a driver may be unscheduled before a warning.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest a single watch may last, so that a dead connection is noticed.
const LONGEST_WATCH: Duration = Duration::from_secs(300);

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The verdict, and the pod as it was seen last.
    Over(Verdict, Box<Pod>),
    /// Ctrl-C: the driver keeps running.
    LeftAlone,
}

impl Outcome {
    fn deleted(last: Pod) -> Self {
        Outcome::Over(Verdict::of_deleted(&last), Box::new(last))
    }
}

/// A driver to wait for.
pub(crate) struct Waiting<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) namespace: &'a str,
    pub(crate) app_id: &'a str,
    /// How often the phase is reported.
    pub(crate) interval: Duration,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) printer: Printer,
}

/// What has already been reported.
#[derive(Default)]
struct Reported {
    state: String,
    trouble: Option<(String, Instant, bool)>,
}

impl Waiting<'_> {
    pub(crate) async fn until_end(&self, mut pod: Pod) -> anyhow::Result<Outcome> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), self.namespace);
        let name = pod.name_any();
        let mut reported = Reported::default();
        let mut ticks = tokio::time::interval(self.interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        // Lasting problems are reported independently of the report interval.
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut pause = Duration::ZERO;
        let mut may_watch = true;
        loop {
            self.report(&pod, &mut reported);
            if let Some(verdict) = Verdict::of(&pod) {
                return Ok(Outcome::Over(verdict, Box::new(pod)));
            }
            let mut events =
                if may_watch { self.watch(&pods, &name, &pod).await } else { futures::stream::pending().boxed() };
            let until =
                Instant::now() + if may_watch { LONGEST_WATCH } else { self.interval.max(Duration::from_secs(1)) };
            // Inner loop: the watch. Outer loop: get the pod, then watch again.
            loop {
                tokio::select! {
                    () = self.interrupt.comes() => return Ok(Outcome::LeftAlone),
                    _ = ticks.tick() => {
                        self.printer.talk(format_args!("Application status for {} (phase: {})", self.app_id, state::phase(&pod)));
                    }
                    _ = looks.tick() => self.report_trouble(&pod, &mut reported),
                    () = tokio::time::sleep_until(until) => break,
                    event = events.next() => match event {
                        Some(Ok(WatchEvent::Added(seen) | WatchEvent::Modified(seen))) if seen.uid() == pod.uid() => {
                            pause = Duration::ZERO;
                            pod = seen;
                            self.report(&pod, &mut reported);
                            if let Some(verdict) = Verdict::of(&pod) {
                                return Ok(Outcome::Over(verdict, Box::new(pod)));
                            }
                        }
                        Some(Ok(WatchEvent::Deleted(seen))) if seen.uid() == pod.uid() => return Ok(Outcome::deleted(seen)),
                        Some(Ok(WatchEvent::Bookmark(_))) => {}
                        Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_))) => return Ok(Outcome::deleted(pod)),
                        Some(Ok(WatchEvent::Error(status))) if status.code == 403 => {
                            may_watch = false;
                            break;
                        }
                        Some(Err(error)) if is_denied(&error) => {
                            may_watch = false;
                            break;
                        }
                        Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => break,
                    }
                }
            }
            drop(events);
            let (namespace, server) = (self.namespace, self.cluster.server.as_str());
            let about = Attempt { verb: "get", kind: "pod", name: &name, namespace, server };
            match self.cluster.ask(pods.get_opt(&name)).await {
                Ok(Some(seen)) if seen.uid() == pod.uid() => {
                    pod = seen;
                    pause = Duration::from_millis(100).max(pause * 2).min(Duration::from_secs(5));
                }
                Ok(_) => return Ok(Outcome::deleted(pod)),
                Err(error) if is_denied(&error) => {
                    return Err(anyhow::Error::from(about.refused(&error))
                        .context("the driver was started, but its pod cannot be read"));
                }
                Err(error) => {
                    if pause < Duration::from_secs(5) {
                        tracing::debug!(%error, "cannot get the driver pod");
                    }
                    pause = Duration::from_millis(200).max(pause * 2).min(Duration::from_secs(10));
                    if pause >= Duration::from_secs(3) {
                        self.printer.warn(format_args!("{}; still trying", about.refused(&error)));
                    }
                }
            }
            if may_watch {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.interrupt.comes() => return Ok(Outcome::LeftAlone),
                }
            }
        }
    }

    async fn watch(
        &self,
        pods: &Api<Pod>,
        name: &str,
        from: &Pod,
    ) -> BoxStream<'static, kube::Result<WatchEvent<Pod>>> {
        let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
        let version = from.resource_version().unwrap_or_else(|| "0".to_owned());
        match self.cluster.ask(pods.watch(&only, &version)).await {
            Ok(events) => events.boxed(),
            Err(error) => futures::stream::once(async { Err(error) }).boxed(),
        }
    }

    /// Reports a changed state once, in full, as spark-submit does.
    fn report(&self, pod: &Pod, reported: &mut Reported) {
        let state = state::describe(pod);
        if reported.state != state {
            self.printer.talk(format_args!("State changed, new state:{state}"));
            reported.state = state;
        }
        self.report_trouble(pod, reported);
    }

    fn report_trouble(&self, pod: &Pod, reported: &mut Reported) {
        let Some(trouble) = hold_up(pod) else {
            reported.trouble = None;
            return;
        };
        let now = Instant::now();
        let (since, spoken) = match &reported.trouble {
            Some((key, since, spoken)) if *key == trouble.key => (*since, *spoken),
            _ => (now, false),
        };
        let speak = !spoken && (!trouble.is_usual || now.duration_since(since) >= PATIENCE);
        if speak {
            self.printer.warn(&trouble.sentence);
        }
        reported.trouble = Some((trouble.key, since, spoken || speak));
    }

    /// Why the driver failed, with the cause from the end of its log if that can be read.
    pub(crate) async fn words(&self, failure: &Failure, pod: &Pod, redaction: &Redaction) -> String {
        if !failure.has_log() {
            return failure.words(None);
        }
        let log =
            log::tail(&self.cluster.client, self.namespace, &pod.name_any(), SparkContainer::of(pod).name()).await;
        let cause = match log {
            Ok(log) => failure.cause(pod, &log, redaction),
            Err(error) => {
                tracing::debug!(%error, "the driver's log cannot be read");
                None
            }
        };
        failure.words(cause.as_ref())
    }
}
