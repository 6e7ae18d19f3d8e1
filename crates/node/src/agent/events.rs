//! Records events about pods, as a kubelet does. Repeated events are aggregated.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

use crate::names::COMPONENT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Warning,
}

/// Writes events in the background, in order. Events that cannot be written are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<QueuedEvent>,
}

#[derive(Debug)]
struct QueuedEvent {
    object: ObjectReference,
    kind: Kind,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

const QUEUE: usize = 1024;
/// How many distinct events are remembered for aggregation.
const REMEMBERED: usize = 4096;

impl Recorder {
    pub(crate) fn start(client: Client, node: String) -> Self {
        let (queue, notes) = mpsc::channel(QUEUE);
        tokio::spawn(write_all(client, node, notes));
        Self { queue }
    }

    pub(crate) fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let mut object = pod.object_ref(&());
        let init = pod
            .spec
            .iter()
            .flat_map(|s| s.init_containers.iter().flatten())
            .any(|c| Some(c.name.as_str()) == container);
        object.field_path =
            container.map(|c| format!("spec.{}{{{c}}}", if init { "initContainers" } else { "containers" }));
        let note = QueuedEvent { object, kind, reason, message: message.into(), at: Timestamp::now() };
        if self.queue.try_send(note).is_err() {
            tracing::debug!(reason, "dropped an event");
        }
    }
}

type EventKey = (Option<String>, Option<String>, &'static str, String);

async fn write_all(client: Client, node: String, mut notes: mpsc::Receiver<QueuedEvent>) {
    let mut known: BTreeMap<EventKey, (String, i32)> = BTreeMap::new();
    while let Some(note) = notes.recv().await {
        let namespace = note.object.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let key = (note.object.uid.clone(), note.object.field_path.clone(), note.reason, note.message.clone());
        if let Some((name, count)) = known.get_mut(&key) {
            *count += 1;
            let patch = serde_json::json!({"count": *count, "lastTimestamp": Time(note.at)});
            if api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.is_ok() {
                continue;
            }
        }
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{}",
                    note.object.name.clone().unwrap_or_default(),
                    &uuid::Uuid::new_v4().simple().to_string()[..16]
                )),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: note.object,
            type_: Some(
                match note.kind {
                    Kind::Normal => "Normal",
                    Kind::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(note.reason.to_owned()),
            message: Some(note.message),
            count: Some(1),
            first_timestamp: Some(Time(note.at)),
            last_timestamp: Some(Time(note.at)),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(node.clone()) }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(node.clone()),
            ..Event::default()
        };
        match api.create(&PostParams::default(), &event).await {
            Ok(written) => {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(key, (written.metadata.name.unwrap_or_default(), 1));
            }
            Err(error) => tracing::debug!(%error, "could not write an event"),
        }
    }
}
