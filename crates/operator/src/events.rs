//! Kubernetes events, published in the background with low priority, so that they never delay drivers or executors. A
//! repeated event becomes one series, whose count is published at intervals.
//!
//! The events of a run that goes well ([`COURSE`]) wait a moment for the next one, and those that have waited are published
//! as one: with the reason that says most, and all their notes. A warning never waits, and keeps its own event.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firesteel_core::event_reason::application::{COMPLETED, COURSE};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::{Class, class};
use crate::fair_queue::{FairQueue, Kind};

/// Maximum length of a note.
const NOTE_BYTES: usize = 1000;
/// Events published concurrently. Those about one object are published in order.
const PUBLISHERS: usize = 4;
/// Queue length per lane; events beyond it are dropped.
const WAITING: usize = 5000;
/// An event repeated after this time is a new one.
const MEMORY: SignedDuration = SignedDuration::from_mins(6);
/// The interval at which an event's count is published.
const TOGETHER: Duration = Duration::from_secs(10);
/// How long an event of a run that goes well waits for the next one.
const COURSE_WAIT: Duration = Duration::from_secs(5);
/// How long a stopping operator takes to publish queued events.
const PATIENCE: Duration = Duration::from_secs(3);
/// Old entries are dropped each time this many events have been recorded.
const SWEEP: usize = 512;

/// The controller that reports an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reporter {
    Applications,
    Connects,
    Executors,
    Schedules,
    Webhook,
}

impl Reporter {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reporter::Applications => "spark-application-controller",
            Reporter::Connects => "spark-connect-controller",
            Reporter::Executors => "firesteel-executors",
            Reporter::Schedules => "scheduled-spark-application-controller",
            Reporter::Webhook => "firesteel-webhook",
        }
    }

    fn action(self) -> &'static str {
        match self {
            Reporter::Applications | Reporter::Connects => "Reconcile",
            Reporter::Executors => "Allocate",
            Reporter::Schedules => "Schedule",
            Reporter::Webhook => "Certify",
        }
    }
}

/// An event to publish.
#[derive(Debug)]
struct Item {
    at: Timestamp,
    from: Reporter,
    warning: bool,
    reason: &'static str,
    note: String,
    about: ObjectReference,
}

/// Takes events and publishes them.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    /// Empty once the operator stops.
    publishers: Mutex<Vec<mpsc::Sender<Item>>>,
    publishing: Mutex<Vec<JoinHandle<()>>>,
}

impl EventRecorder {
    /// Starts publishing. After this is dropped, it ends once the queues are empty.
    pub(crate) fn start(client: &Client, turns: &Arc<FairQueue<Kind>>) -> Self {
        let publisher = |_| {
            let (send, receive) = mpsc::channel(WAITING);
            (send, tokio::spawn(Publisher::new(client.clone(), turns.clone()).run(receive)))
        };
        let (publishers, publishing) = (0..PUBLISHERS).map(publisher).unzip();
        EventRecorder { publishers: Mutex::new(publishers), publishing: Mutex::new(publishing) }
    }

    /// Publishes queued events, for a short time. Events recorded from now on are dropped.
    pub(crate) async fn publish_rest(&self) {
        lock(&self.publishers).clear();
        let publishing = std::mem::take(&mut *lock(&self.publishing));
        if tokio::time::timeout(PATIENCE, futures::future::join_all(publishing)).await.is_err() {
            tracing::warn!("the operator stops before all events are published");
        }
    }

    /// Records an event about an object.
    pub(crate) fn record(
        &self,
        from: Reporter,
        about: &ObjectReference,
        warning: bool,
        reason: &'static str,
        note: &str,
    ) {
        let mut hasher = DefaultHasher::new();
        (&about.namespace, &about.name).hash(&mut hasher);
        let publisher = usize::try_from(hasher.finish() % PUBLISHERS as u64).unwrap_or_default();
        let item =
            Item { at: Timestamp::now(), from, warning, reason, note: cut(note).to_owned(), about: about.clone() };
        if let Some(publisher) = lock(&self.publishers).get(publisher)
            && publisher.try_send(item).is_err()
        {
            tracing::warn!("the event queue is full; dropping an event");
        }
    }
}

/// Identifies repetitions of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    about: About,
    reason: &'static str,
}

/// The object of an event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct About {
    namespace: String,
    name: String,
    uid: String,
}

impl About {
    fn of(item: &Item) -> Self {
        About {
            namespace: item.about.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: item.about.name.clone().unwrap_or_default(),
            uid: item.about.uid.clone().unwrap_or_default(),
        }
    }
}

/// What is to be published at some time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The count of an event.
    Count(Key),
    /// What is waiting about an object.
    Course(About),
}

/// Publishes the events about a share of the objects, one at a time.
struct Publisher {
    client: Client,
    turns: Arc<FairQueue<Kind>>,
    published_events: HashMap<Key, PublishedEvent>,
    /// Events of runs that go well, until they are due.
    courses: HashMap<About, (Instant, Item)>,
    due: BTreeSet<(Instant, Due)>,
    count: usize,
}

/// A published event.
#[derive(Debug, Clone)]
struct PublishedEvent {
    event: String,
    count: i32,
    last: Timestamp,
    /// When it was last published.
    published: Instant,
}

impl Publisher {
    fn new(client: Client, turns: Arc<FairQueue<Kind>>) -> Self {
        let (published_events, courses) = (HashMap::new(), HashMap::new());
        Publisher { client, turns, published_events, courses, due: BTreeSet::new(), count: 0 }
    }

    async fn run(mut self, mut receive: mpsc::Receiver<Item>) {
        loop {
            let due = self.due.first().map(|(at, _)| *at);
            let pause = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                item = receive.recv() => match item {
                    Some(item) => self.take(item).await,
                    None => break,
                },
                () = pause => {
                    // What has been recorded since may belong to what is due.
                    while let Ok(item) = receive.try_recv() {
                        self.take(item).await;
                    }
                    if self.due.first().is_some_and(|(at, _)| *at <= Instant::now()) {
                        self.publish_next().await;
                    }
                }
            }
        }
        while !self.due.is_empty() {
            self.publish_next().await;
        }
    }

    /// Publishes an event, or has it wait for the next one.
    async fn take(&mut self, mut item: Item) {
        let about = About::of(&item);
        if !item.warning && COURSE.contains(&item.reason) {
            let waiting = self.courses.remove(&about);
            let at = waiting.as_ref().map_or_else(|| Instant::now() + COURSE_WAIT, |(at, _)| *at);
            if let Some((_, earlier)) = waiting {
                item.note = cut(&format!("{}; {}", earlier.note, item.note)).to_owned();
                let rank = |reason: &str| COURSE.iter().position(|each| *each == reason);
                if rank(earlier.reason) > rank(item.reason) {
                    item.reason = earlier.reason;
                }
            }
            if item.reason != COMPLETED {
                self.due.insert((at, Due::Course(about.clone())));
                self.courses.insert(about, (at, item));
                return;
            }
            self.due.remove(&(at, Due::Course(about.clone())));
        }
        self.publish_or_count(about, &item).await;
    }

    async fn publish_next(&mut self) {
        match self.due.pop_first() {
            Some((_, Due::Count(key))) => self.publish_count(&key).await,
            Some((_, Due::Course(about))) => {
                if let Some((_, item)) = self.courses.remove(&about) {
                    self.publish_or_count(about, &item).await;
                }
            }
            None => {}
        }
    }

    async fn publish_or_count(&mut self, about: About, item: &Item) {
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(SWEEP) {
            self.published_events.retain(|_, published_events| item.at.duration_since(published_events.last) < MEMORY);
        }
        let key = Key { about, reason: item.reason };
        match self
            .published_events
            .get_mut(&key)
            .filter(|published_events| item.at.duration_since(published_events.last) < MEMORY)
        {
            Some(published_events) => {
                published_events.count = published_events.count.saturating_add(1);
                published_events.last = item.at;
                // If it is already due, it is due at this same time.
                self.due.insert((published_events.published + TOGETHER, Due::Count(key)));
            }
            None => self.publish(key, item).await,
        }
    }

    async fn publish(&mut self, key: Key, item: &Item) {
        let name = format!("{}.{:x}{:02x}", key.about.name, item.at.as_nanosecond(), self.count % 256);
        let _turn = self.turns.take(Kind::Events).await;
        match self.events(&key).create(&PostParams::default(), &event(item, &key, &name)).await {
            Ok(_) => {}
            // It was created, but the response was lost.
            Err(error) if class(&error) == Class::Exists => {}
            Err(error) => return complain(&key, &error),
        }
        let published_events = PublishedEvent { event: name, count: 1, last: item.at, published: Instant::now() };
        self.published_events.insert(key, published_events);
    }

    async fn publish_count(&mut self, key: &Key) {
        let events = self.events(key);
        let Some(published_events) = self.published_events.get_mut(key) else { return };
        let series =
            EventSeries { count: published_events.count, last_observed_time: MicroTime(published_events.last) };
        let patch = Patch::Merge(json!({"series": series}));
        let _turn = self.turns.take(Kind::Events).await;
        let published = events.patch_metadata(&published_events.event, &PatchParams::default(), &patch).await;
        published_events.published = Instant::now();
        match published {
            Ok(_) => {}
            // Someone deleted it: the next repetition is a new event.
            Err(error) if class(&error) == Class::Missing => {
                self.published_events.remove(key);
            }
            Err(error) => complain(key, &error),
        }
    }

    fn events(&self, key: &Key) -> Api<Event> {
        Api::namespaced(self.client.clone(), &key.about.namespace)
    }
}

fn complain(Key { about: About { namespace, name, .. }, reason }: &Key, error: &kube::Error) {
    tracing::warn!(namespace, name, reason, %error, "cannot publish an event");
}

fn event(item: &Item, key: &Key, name: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(key.about.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(item.at)),
        type_: Some(if item.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(item.reason.to_owned()),
        note: Some(item.note.clone()),
        action: Some(item.from.action().to_owned()),
        regarding: Some(item.about.clone()),
        reporting_controller: Some(item.from.name().to_owned()),
        reporting_instance: Some(item.from.name().to_owned()),
        ..Event::default()
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
