//! Events on applications, for people. They are published beside the work, when it leaves room: news must not keep
//! drivers waiting. The same news again is one event with a count.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use firesteel_api::SparkApplication;
use firesteel_core::lifecycle;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::context::Context;
use crate::error::{Class, class};
use crate::turns::{Kind, Turns};

/// Who events come from.
const REPORTER: &str = "spark-application-controller";
/// The most a note may hold.
const NOTE_BYTES: usize = 1000;
/// Events published at the same time. Those of one application go one after the other.
const LANES: usize = 4;
/// Events that wait; more are dropped.
const WAITING: usize = 5000;
/// News that is repeated after this time is a new event.
const MEMORY: SignedDuration = SignedDuration::from_mins(6);
/// How long an operator that ends stays to publish what waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// What is remembered is looked through after so many events.
const SWEEP: usize = 512;

/// Something that happened.
#[derive(Debug)]
struct Item {
    at: Timestamp,
    warning: bool,
    reason: &'static str,
    note: String,
    about: ObjectReference,
}

/// Takes events and publishes them.
#[derive(Debug)]
pub struct News {
    lanes: Vec<mpsc::Sender<Item>>,
    /// How many wait or are being published.
    waiting: watch::Sender<usize>,
}

impl News {
    /// Starts publishing; it ends, once nothing is left, when this is dropped.
    pub fn start(client: &Client, turns: &Arc<Turns<Kind>>) -> Self {
        let waiting = watch::Sender::new(0);
        let lane = |_| {
            let (send, mut receive) = mpsc::channel::<Item>(WAITING);
            let done = waiting.clone();
            let (turns, mut lane) = (turns.clone(), Lane { client: client.clone(), told: HashMap::new(), count: 0 });
            tokio::spawn(async move {
                while let Some(item) = receive.recv().await {
                    let _turn = turns.take(Kind::News).await;
                    if let Err(error) = lane.publish(&item).await {
                        let (namespace, application) = (item.about.namespace.as_deref(), item.about.name.as_deref());
                        tracing::warn!(namespace, application, reason = item.reason, %error, "cannot publish an event");
                    }
                    done.send_modify(|waiting| *waiting -= 1);
                }
            });
            send
        };
        News { lanes: (0..LANES).map(lane).collect(), waiting }
    }

    /// Waits until everything is published, but not for long.
    pub async fn publish_rest(&self) {
        let mut waiting = self.waiting.subscribe();
        if tokio::time::timeout(PATIENCE, waiting.wait_for(|waiting| *waiting == 0)).await.is_err() {
            tracing::warn!(events = *self.waiting.borrow(), "these events are not published: the operator ends");
        }
    }

    fn publish(&self, item: Item) {
        let mut hasher = DefaultHasher::new();
        item.about.uid.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default();
        self.waiting.send_modify(|waiting| *waiting += 1);
        if let Some(lane) = self.lanes.get(lane)
            && lane.try_send(item).is_err()
        {
            self.waiting.send_modify(|waiting| *waiting -= 1);
            tracing::warn!("too many events wait; this one is dropped");
        }
    }
}

/// Publishes the events of some applications, one after the other.
struct Lane {
    client: Client,
    /// By uid of the application, and reason.
    told: HashMap<(String, &'static str), Told>,
    count: usize,
}

/// An event that was published.
struct Told {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Lane {
    async fn publish(&mut self, item: &Item) -> Result<(), kube::Error> {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(SWEEP) {
            self.told.retain(|_, told| item.at.duration_since(told.last) < MEMORY);
        }
        let api: Api<Event> =
            Api::namespaced(self.client.clone(), item.about.namespace.as_deref().unwrap_or("default"));
        let key = (item.about.uid.clone().unwrap_or_default(), item.reason);
        if let Some(told) = self.told.get_mut(&key).filter(|told| item.at.duration_since(told.last) < MEMORY) {
            told.count = told.count.saturating_add(1);
            told.last = item.at;
            let series = EventSeries { count: told.count, last_observed_time: MicroTime(item.at) };
            let patch = Patch::Merge(json!({"series": series}));
            match api.patch_metadata(&told.name, &PatchParams::default(), &patch).await {
                Ok(_) => return Ok(()),
                // Someone removed it.
                Err(error) if class(&error) == Class::Missing => {}
                Err(error) => return Err(error),
            }
        }
        let about = item.about.name.as_deref().unwrap_or(REPORTER);
        let name = format!("{about}.{:x}{:02x}", item.at.as_nanosecond(), self.count % 256);
        match api.create(&PostParams::default(), &event(item, name.clone())).await {
            Ok(_) => {}
            // It was made, and the answer got lost.
            Err(error) if class(&error) == Class::Exists => {}
            Err(error) => return Err(error),
        }
        self.told.insert(key, Told { name, count: 1, last: item.at });
        Ok(())
    }
}

fn event(item: &Item, name: String) -> Event {
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: item.about.namespace.clone(), ..ObjectMeta::default() },
        event_time: Some(MicroTime(item.at)),
        type_: Some(if item.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(item.reason.to_owned()),
        note: Some(cut(&item.note).to_owned()),
        action: Some("Reconcile".to_owned()),
        regarding: Some(item.about.clone()),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(REPORTER.to_owned()),
        ..Event::default()
    }
}

/// Publishes what happened to an application.
pub fn tell(ctx: &Context, app: &SparkApplication, events: &[lifecycle::Event]) {
    for event in events {
        ctx.news.publish(Item {
            at: Timestamp::now(),
            warning: event.warning,
            reason: event.reason,
            note: event.note.clone(),
            about: app.object_ref(&()),
        });
    }
}

fn cut(text: &str) -> &str {
    if text.len() <= NOTE_BYTES {
        return text;
    }
    let mut end = NOTE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
