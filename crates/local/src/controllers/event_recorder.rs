//! Records events about objects, as shown by `kubectl describe`. Recording never blocks a controller.

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

/// Records events on behalf of one controller.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    recorder: Recorder,
}

impl EventRecorder {
    pub(crate) fn new(client: Client, controller: &str) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: None };
        EventRecorder { recorder: Recorder::new(client, reporter) }
    }

    pub(crate) fn normal<K>(&self, about: &K, reason: &str, action: &str, note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        self.record(EventType::Normal, about, reason, action, note);
    }

    pub(crate) fn warning<K>(&self, about: &K, reason: &str, action: &str, note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        self.record(EventType::Warning, about, reason, action, note);
    }

    fn record<K>(&self, type_: EventType, about: &K, reason: &str, action: &str, note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        let recorder = self.recorder.clone();
        let reference = about.object_ref(&());
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::debug!(reason = event.reason, "event not written: {error}");
            }
        });
    }
}
