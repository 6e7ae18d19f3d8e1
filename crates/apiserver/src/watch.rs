//! Watches: a resource's change log as a stream of events, over chunked HTTP or a WebSocket.
//!
//! Each event is one line of JSON (or one text message). A watcher keeps only its position in the log; if it falls behind the log it
//! gets 410 and ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{Message, WebSocketUpgrade};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::get::SelectionPredicate;
use crate::kinds::Kind;
use crate::request::{ApiRequest, Form};
use crate::response::ApiResponse;
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::store::{Change, Stored};
use crate::table::Include;

/// The number of changes per batch, and the size above which a batch is sent: it bounds the memory of a slow client.
const BATCH: usize = 256;
const CHUNK: usize = 64 << 10;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A bookmark this long before the end lets the client resume from there.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

struct Watcher {
    state: Arc<State>,
    kind: Arc<Kind>,
    filter: SelectionPredicate,
    form: Form,
    include: Include,
    columns_sent: bool,
    at: u64,
    /// Initial objects still to be sent.
    initial: VecDeque<Arc<Stored>>,
    /// Send a bookmark after the initial objects.
    mark_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    wake: tokio::sync::watch::Receiver<u64>,
    stopping: tokio_util::sync::CancellationToken,
    ended: bool,
}

impl Watcher {
    fn new(state: &Arc<State>, req: &ApiRequest) -> ApiResult<Self> {
        crate::get::check_watch_options(req)?;
        let filter = SelectionPredicate::parse(req)?;
        let wanted = crate::get::revision_parameter(req).map_err(|mut failure| {
            // A watch reports the same error differently.
            failure.code = 500;
            failure.reason = "".into();
            failure.message = failure.message.trim_start_matches("invalid resource version: ").to_owned();
            failure
        })?;
        let wake = state.store.subscribe(&req.kind.table);
        let send_initial = req.query.get("sendInitialEvents");
        let initial = match send_initial {
            "" => wanted.is_none_or(|r| r == 0),
            _ => req.query.flag("sendInitialEvents")?,
        };
        let (at, objects) = if initial {
            let snapshot = state
                .store
                .list(&req.kind.table, filter.namespace.as_deref(), None, usize::MAX, None, |s| filter.matches(s))
                .map_err(|_| StatusError::internal("the newest state is always there"))?;
            let objects =
                snapshot.items.into_iter().filter(|(key, _)| filter.in_scope(key)).map(|(_, stored)| stored).collect();
            (snapshot.revision, objects)
        } else {
            (wanted.filter(|r| *r != 0).unwrap_or_else(|| state.store.revision()), VecDeque::new())
        };
        let seconds = match req.query.number("timeoutSeconds")? {
            Some(given) if given > 0 => u64::try_from(given).unwrap_or(1800).min(86_400),
            _ => rand::random_range(1800..3600),
        };
        let now = Instant::now();
        Ok(Self {
            state: state.clone(),
            kind: req.kind.clone(),
            filter,
            form: req.accepted.form,
            include: crate::get::include(req),
            columns_sent: false,
            at,
            initial: objects,
            mark_initial_end: !send_initial.is_empty() && initial,
            bookmarks: req.query.flag("allowWatchBookmarks")?,
            next_bookmark: now
                + match Duration::from_secs(seconds).checked_sub(LAST_BOOKMARK) {
                    Some(last) if !last.is_zero() => BOOKMARK_EVERY.min(last),
                    _ => BOOKMARK_EVERY,
                },
            deadline: now + Duration::from_secs(seconds),
            wake,
            stopping: state.stopping.clone(),
            ended: false,
        })
    }

    /// The next events; `None` when the watch has ended.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            if self.ended {
                return None;
            }
            if !self.initial.is_empty() {
                let mut events = Vec::new();
                let mut size = 0;
                while size < CHUNK
                    && let Some(stored) = self.initial.pop_front()
                {
                    let event = self.event("ADDED", &stored);
                    size += event.len();
                    events.push(event);
                }
                return Some(events);
            }
            if std::mem::take(&mut self.mark_initial_end) {
                return Some(vec![self.bookmark(true)]);
            }
            self.wake.mark_unchanged();
            match self.state.store.changes_after(&self.kind.table, self.at, BATCH) {
                Err(gone) => {
                    self.ended = true;
                    let failure =
                        StatusError::expired(format!("too old resource version: {} ({})", self.at, gone.oldest));
                    return Some(vec![envelope("ERROR", failure.body().to_string().as_bytes())]);
                }
                Ok((changes, reached)) => {
                    let mut events = Vec::new();
                    let mut size = 0;
                    for change in &changes {
                        if size >= CHUNK {
                            return Some(events);
                        }
                        if let Some(event) = self.event_for(change) {
                            size += event.len();
                            events.push(event);
                        }
                        self.at = change.revision;
                    }
                    self.at = self.at.max(reached);
                    if !events.is_empty() {
                        return Some(events);
                    }
                    if changes.len() == BATCH {
                        continue;
                    }
                }
            }
            let bookmark_at = if self.bookmarks { self.next_bookmark } else { self.deadline };
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return None,
                () = sleep_until(self.deadline) => return None,
                changed = self.wake.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = sleep_until(bookmark_at), if self.bookmarks => {
                    let now = Instant::now();
                    let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(self.deadline);
                    self.next_bookmark = if now + BOOKMARK_EVERY > last && now < last { last } else { now + BOOKMARK_EVERY };
                    return Some(vec![self.bookmark(false)]);
                }
            }
        }
    }

    /// The event for a change, if it concerns this watcher.
    fn event_for(&mut self, change: &Change) -> Option<Bytes> {
        if !self.filter.in_scope(&change.key) {
            return None;
        }
        let before = change.before.as_ref().is_some_and(|stored| self.filter.matches(stored));
        if change.removed {
            return before.then(|| self.event("DELETED", &change.now));
        }
        match (before, self.filter.matches(&change.now)) {
            (false, true) => Some(self.event("ADDED", &change.now)),
            (true, true) => Some(self.event("MODIFIED", &change.now)),
            (true, false) => {
                // It no longer matches: send the last matching state at the new revision.
                let mut last = Value::clone(&change.before.as_ref()?.value());
                crate::meta::set_resource_version(&mut last, change.revision);
                Some(self.event("DELETED", &Stored::new(change.revision, last)))
            }
            (false, false) => None,
        }
    }

    fn event(&mut self, kind: &str, stored: &Stored) -> Bytes {
        match self.form {
            Form::Plain if !crate::conversion::differs(&self.kind, stored.api_version()) => {
                envelope(kind, &stored.text())
            }
            Form::Plain => envelope(kind, crate::conversion::read(&self.kind, &stored.value()).to_string().as_bytes()),
            Form::Metadata => envelope(kind, crate::response::partial(&stored.value()).to_string().as_bytes()),
            Form::Table => {
                let value = stored.value();
                let shown = crate::conversion::read(&self.kind, &value);
                let mut table =
                    crate::table::of(&self.kind, std::iter::once(shown.as_ref()), self.include, !self.columns_sent);
                self.columns_sent = true;
                table["metadata"] = json!({"resourceVersion": stored.revision.to_string()});
                envelope(kind, table.to_string().as_bytes())
            }
        }
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.at.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object: Value = match self.form {
            Form::Plain => {
                json!({"kind": &*self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null,
                "rows": [{"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}]
            }),
        };
        envelope("BOOKMARK", object.to_string().as_bytes())
    }
}

fn envelope(kind: &str, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(kind.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

/// Starts a watch, over a WebSocket if the client requested one.
pub(crate) async fn watch(state: &Arc<State>, req: &ApiRequest, parts: &mut Parts) -> ApiResult<ApiResponse> {
    let watcher = Watcher::new(state, req)?;
    if wants_websocket(parts) {
        return Ok(over_websocket(watcher, parts).await);
    }
    let stream = futures::stream::unfold(watcher, |mut watcher| async move {
        let events = watcher.next().await?;
        let chunk = match <[Bytes; 1]>::try_from(events) {
            Ok([one]) => one,
            Err(events) => {
                let mut out = BytesMut::with_capacity(events.iter().map(Bytes::len).sum());
                events.iter().for_each(|event| out.put_slice(event));
                out.freeze()
            }
        };
        Some((Ok::<_, std::convert::Infallible>(chunk), watcher))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let media = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

pub(crate) fn wants_websocket(parts: &Parts) -> bool {
    parts
        .headers
        .get(header::UPGRADE)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| v.eq_ignore_ascii_case("websocket"))
}

async fn over_websocket(mut watcher: Watcher, parts: &mut Parts) -> ApiResponse {
    let upgrade = match WebSocketUpgrade::from_request_parts(parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(rejection) => return crate::response::failure(&StatusError::bad_request(rejection.body_text())),
    };
    upgrade.on_upgrade(move |mut socket| async move {
        loop {
            tokio::select! {
                events = watcher.next() => {
                    let Some(events) = events else { break };
                    for event in events {
                        let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(&event)).into_owned();
                        if socket.send(Message::Text(text.into())).await.is_err() {
                            return;
                        }
                    }
                }
                message = socket.recv() => match message {
                    None | Some(Err(_) | Ok(Message::Close(_))) => return,
                    Some(Ok(_)) => {}
                },
            }
        }
        let _ = socket.send(Message::Close(None)).await;
    })
}
