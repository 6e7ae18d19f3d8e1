//! Events on applications, for people. They are published beside the work: news must not keep drivers waiting.

use std::hash::{DefaultHasher, Hash, Hasher};

use firesteel_api::SparkApplication;
use firesteel_core::lifecycle;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder};
use tokio::sync::mpsc;

use crate::context::Context;

/// The most a note may hold.
const NOTE_BYTES: usize = 1000;
/// Events published at the same time. Those of one application go one after the other, so that the same news is one event
/// with a count.
const LANES: usize = 4;
/// Events that wait; more are dropped.
const WAITING: usize = 2000;

/// Takes events and publishes them.
#[derive(Debug, Clone)]
pub struct News(Vec<mpsc::Sender<(Event, ObjectReference)>>);

impl News {
    /// Starts publishing; it ends, once nothing is left, when all clones are dropped.
    pub fn start(recorder: &Recorder) -> Self {
        let lane = |_| {
            let (send, mut receive) = mpsc::channel::<(Event, ObjectReference)>(WAITING);
            let recorder = recorder.clone();
            tokio::spawn(async move {
                while let Some((event, about)) = receive.recv().await {
                    if let Err(error) = recorder.publish(&event, &about).await {
                        let (namespace, name) = (about.namespace.as_deref(), about.name.as_deref());
                        tracing::warn!(namespace, name, reason = event.reason, %error, "cannot publish an event");
                    }
                }
            });
            send
        };
        News((0..LANES).map(lane).collect())
    }

    fn publish(&self, event: Event, about: ObjectReference) {
        let mut hasher = DefaultHasher::new();
        about.uid.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default();
        if let Some(lane) = self.0.get(lane)
            && lane.try_send((event, about)).is_err()
        {
            tracing::warn!("too many events wait; this one is dropped");
        }
    }
}

/// Publishes what happened to an application.
pub fn tell(ctx: &Context, app: &SparkApplication, events: &[lifecycle::Event]) {
    for event in events {
        let published = Event {
            type_: if event.warning { EventType::Warning } else { EventType::Normal },
            reason: event.reason.to_owned(),
            note: Some(cut(&event.note).to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        ctx.news.publish(published, app.object_ref(&()));
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
