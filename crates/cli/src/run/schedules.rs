//! Follows schedules: shows when their runs are due, and follows each run to its end. Only Ctrl-C ends it, or someone who
//! deletes the schedule.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use firesteel_api::names::LABEL_SCHEDULED_APP;
use firesteel_api::{ScheduledSparkApplicationSpec, SparkApplication};
use firesteel_cluster::writes;
use firesteel_core::schedule::{self, FAILED_VALIDATION, Schedule, Zones};
use firesteel_spark::redaction::Redaction;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use serde::Deserialize;

use crate::ExitStatus;
use crate::exit::BadInput;
use crate::interrupt::Interrupt;
use crate::run::cluster::Local;
use crate::run::files;
use crate::run::follow::{Followed, Follower};
use crate::run::manifests::Document;
use crate::run::view::View;

/// How many instants are shown.
const SHOWN: usize = 3;
/// How long the deletion of all runs may take: a pod's grace period and some slack.
const ENDING: Duration = Duration::from_secs(40);

/// A schedule that was applied.
pub(crate) struct FollowedSchedule {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource: ApiResource,
    /// Masks secrets in log lines quoted in messages.
    pub(crate) redaction: Redaction,
    pub(crate) instants: Schedule,
}

/// Reads a schedule, or says what is wrong with it.
pub(crate) fn read(document: &Document) -> Result<Schedule, BadInput> {
    let refuse = |problem: String| BadInput(format!("{}: {problem}", document.place));
    let mut spec = document.object["spec"].clone();
    if document.spec().is_object() {
        spec["template"] = files::as_shipped(document.spec(), &document.base);
    }
    let spec = ScheduledSparkApplicationSpec::deserialize(&spec).map_err(|error| refuse(format!("spec: {error}")))?;
    let zones = Zones::system();
    let problems = schedule::problems(&spec, document.namespace(), &zones);
    if let Some(problem) = problems.first() {
        return Err(refuse(problem.to_string()));
    }
    Schedule::parse(&spec.schedule, spec.time_zone.as_deref(), &zones).map_err(|problem| refuse(problem.to_string()))
}

impl FollowedSchedule {
    /// Deletes the schedule and its runs. If the cluster outlives this program, waits until their drivers are gone.
    pub(crate) async fn end(&self, local: &Local) {
        let client = &local.cluster.client;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, &self.resource);
        if let Err(error) = writes::delete(&api, &self.name, None, false).await {
            tracing::debug!("delete {}: {error}", self.name);
        }
        if !local.stays() {
            return;
        }
        let apps: Api<SparkApplication> = Api::namespaced(client.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let gone = async {
            loop {
                let runs = apps.list_metadata(&ListParams::default()).await;
                let runs = runs.is_ok_and(|all| all.iter().any(|run| is_run(run, &self.name)));
                let label = format!("{LABEL_SCHEDULED_APP}={}", schedule::label(&self.name));
                let drivers = pods.list_metadata(&ListParams::default().labels(&label)).await;
                if !runs && drivers.is_ok_and(|all| all.items.is_empty()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(ENDING, gone).await.is_err() {
            tracing::debug!("runs of {} still exist", self.name);
        }
    }

    /// The next instants, as people read them.
    fn upcoming(&self, after: Timestamp) -> String {
        let instants = std::iter::successors(self.instants.next(after), |at| self.instants.next(*at)).take(SHOWN);
        let shown: Vec<String> = instants.map(|at| schedule::show(at, &self.instants)).collect();
        shown.join(", ")
    }
}

fn is_run(run: &impl ResourceExt, schedule: &str) -> bool {
    run.owner_references().iter().any(|owner| owner.kind == schedule::KIND && owner.name == schedule)
}

/// Follows all schedules until an interrupt, or until none is left.
pub(crate) async fn follow(
    local: &Local,
    schedules: &[FollowedSchedule],
    view: &View,
    interrupt: &Interrupt,
) -> ExitStatus {
    let followers = schedules.iter().map(|schedule| ScheduleFollower { local, schedule, view, interrupt });
    let followers: Vec<ScheduleFollower<'_>> = followers.collect();
    let ends = futures::future::join_all(followers.iter().map(ScheduleFollower::to_the_end)).await;
    let worst = ends.iter().find(|end| **end == ExitStatus::Interrupted);
    worst.or_else(|| ends.iter().find(|end| **end != ExitStatus::Success)).copied().unwrap_or(ExitStatus::Success)
}

struct ScheduleFollower<'a> {
    local: &'a Local,
    schedule: &'a FollowedSchedule,
    view: &'a View,
    interrupt: &'a Interrupt,
}

/// What the watches report.
enum News {
    Schedule(DynamicObject),
    ScheduleGone,
    Run(PartialObjectMeta<SparkApplication>),
    Broken(String),
}

impl ScheduleFollower<'_> {
    async fn to_the_end(&self) -> ExitStatus {
        let (name, view) = (&self.schedule.name, self.view);
        view.line(&format!(
            "schedule {name}: runs at {}, … (Ctrl-C ends it)",
            self.schedule.upcoming(Timestamp::now())
        ));
        let mut news = self.watch();
        let mut running = FuturesUnordered::new();
        let (mut known, mut next) = (HashSet::new(), None);
        let mut worst = ExitStatus::Success;
        loop {
            tokio::select! {
                () = self.interrupt.comes() => {
                    view.state(&format!("interrupted, stopping schedule {name} and its runs"));
                    self.schedule.end(self.local).await;
                    return ExitStatus::Interrupted;
                }
                Some((run, exit)) = running.next(), if !running.is_empty() => {
                    if exit != ExitStatus::Success {
                        worst = exit;
                    }
                    let ended = if exit == ExitStatus::Success { "completed" } else { "failed" };
                    let next: Option<Timestamp> = next;
                    let then = next.map_or(String::new(), |at| {
                        format!("; the next is due at {}", schedule::show(at, &self.schedule.instants))
                    });
                    view.line(&format!("schedule {name}: run {run} {ended}{then}"));
                }
                item = news.next() => match item {
                    Some(News::Schedule(object)) => {
                        let status = &object.data["status"];
                        if status["scheduleState"] == FAILED_VALIDATION {
                            view.line(&format!("Failed: {}", status["reason"].as_str().unwrap_or_default()));
                            return ExitStatus::BadInput;
                        }
                        next = status["nextRun"].as_str().and_then(|text| text.parse().ok());
                    }
                    Some(News::ScheduleGone) => {
                        view.line(&format!("schedule {name} was deleted"));
                        return worst;
                    }
                    Some(News::Run(run)) if is_run(&run, name) && known.insert(run.uid()) => {
                        let run = run.name_any();
                        view.line(&format!("schedule {name}: run {run} starts"));
                        running.push(self.follow_run(run));
                    }
                    Some(News::Run(_)) => {}
                    Some(News::Broken(why)) => tracing::debug!("watch: {why}"),
                    None => return ExitStatus::Failure,
                },
            }
        }
    }

    /// Follows one run; returns its name and how it ended.
    async fn follow_run(&self, name: String) -> (String, ExitStatus) {
        let follower =
            Follower { local: self.local, view: self.view, interrupt: self.interrupt, began: Instant::now() };
        let followed = Followed {
            namespace: self.schedule.namespace.clone(),
            name: name.clone(),
            application: Some(ApiResource::erase::<SparkApplication>(&())),
            serves: false,
            redaction: self.schedule.redaction.clone(),
        };
        match follower.to_the_end(&followed).await {
            Ok(exit) => (name, exit),
            Err(error) => {
                self.view.line(&format!("Warning: run {name} cannot be followed: {error}"));
                (name, ExitStatus::Failure)
            }
        }
    }

    fn watch(&self) -> stream::BoxStream<'static, News> {
        let client = self.local.cluster.client.clone();
        let FollowedSchedule { namespace, name, resource, .. } = self.schedule;
        let schedules: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let schedule = watcher(schedules, only).default_backoff().filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => Some(News::Schedule(object)),
                Ok(watcher::Event::Delete(_)) => Some(News::ScheduleGone),
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => Some(News::Broken(error.to_string())),
            }
        });
        let apps: Api<PartialObjectMeta<SparkApplication>> = Api::namespaced(client, namespace);
        let runs = watcher(apps, watcher::Config::default()).default_backoff().filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(run) | watcher::Event::InitApply(run)) => Some(News::Run(run)),
                Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => Some(News::Broken(error.to_string())),
            }
        });
        stream::select(schedule, runs).boxed()
    }
}
