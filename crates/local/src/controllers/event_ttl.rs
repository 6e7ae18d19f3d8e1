//! Deletes events an hour after they were last seen.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::task::JoinSet;

use crate::controllers::ignore;
use crate::informers::Informers;

const SWEEP: Duration = Duration::from_secs(300);
const PAGE: u32 = 500;

/// When an event was last seen.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref()).map(|t| t.0);
    let times = [series, event.last_timestamp.as_ref().map(|t| t.0), event.event_time.as_ref().map(|t| t.0)];
    times.into_iter().flatten().max().or_else(|| event.creation_timestamp().map(|t| t.0))
}

fn is_old(event: &Event, ttl: Duration, now: Timestamp) -> bool {
    let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    last_seen(event).is_some_and(|seen| now.as_second() - seen.as_second() > seconds)
}

pub(crate) fn start(informers: &Arc<Informers>, ttl: Duration, tasks: &mut JoinSet<()>) {
    let informers = Arc::clone(informers);
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            if let Err(error) = sweep(&informers, ttl).await {
                tracing::debug!("events: {error}");
            }
        }
    });
}

async fn sweep(informers: &Informers, ttl: Duration) -> kube::Result<()> {
    let all: Api<Event> = Api::all(informers.client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = all.list(&page).await?;
        for event in list.items.iter().filter(|e| is_old(e, ttl, Timestamp::now())) {
            let api = informers.api::<Event>(&event.namespace().unwrap_or_default());
            ignore::not_found(api.delete(&event.name_any(), &DeleteParams::default()).await)?;
        }
        match list.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_event_is_old_an_hour_after_it_was_last_seen() {
        let event = |more: Value| -> Event {
            let mut event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "involvedObject": {}});
            for (key, value) in more.as_object().into_iter().flatten() {
                event[key] = value.clone();
            }
            serde_json::from_value(event).unwrap()
        };
        let now = "2026-01-01T02:00:00Z".parse().unwrap();
        let hour = Duration::from_secs(3600);
        assert!(is_old(&event(json!({})), hour, now));
        assert!(!is_old(&event(json!({"lastTimestamp": "2026-01-01T01:30:00Z"})), hour, now));
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T01:59:00.000000Z"}});
        assert!(!is_old(&event(series), hour, now));
    }
}
