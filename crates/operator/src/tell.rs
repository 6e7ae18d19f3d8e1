//! Events on applications, for people.

use firesteel_api::SparkApplication;
use firesteel_core::lifecycle;
use kube::Resource;
use kube::runtime::events::{Event, EventType};

use crate::context::Context;

/// The most a note may hold.
const NOTE_BYTES: usize = 1000;

/// Publishes events; one that cannot be published is only logged.
pub async fn tell(ctx: &Context, app: &SparkApplication, events: &[lifecycle::Event]) {
    for event in events {
        let note = cut(&event.note);
        let event = Event {
            type_: if event.warning { EventType::Warning } else { EventType::Normal },
            reason: event.reason.to_owned(),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = ctx.recorder.publish(&event, &app.object_ref(&())).await {
            tracing::warn!(reason = event.reason, %error, "cannot publish an event");
        }
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
