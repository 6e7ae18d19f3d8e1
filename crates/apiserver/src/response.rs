//! Responses: objects and lists in the requested form (plain, Table, metadata only; JSON or YAML).

use std::sync::Arc;

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::request::{Form, MediaTypeOptions};
use crate::status::{ApiResult, StatusError};
use crate::store::Stored;

pub(crate) type ApiResponse = Response<Body>;

pub(crate) fn json_bytes(code: u16, text: impl Into<Bytes>) -> ApiResponse {
    typed(code, "application/json", text)
}

pub(crate) fn typed(code: u16, media: &'static str, text: impl Into<Bytes>) -> ApiResponse {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(crate) fn plain_text(code: u16, text: impl Into<Bytes>) -> ApiResponse {
    typed(code, "text/plain; charset=utf-8", text)
}

/// Serializes a value without other forms (Status, discovery, reviews).
pub(crate) fn value(accepted: Option<MediaTypeOptions>, code: u16, value: &Value) -> ApiResponse {
    if accepted.is_some_and(|a| a.yaml)
        && let Ok(text) = serde_saphyr::to_string(value)
    {
        return typed(code, "application/yaml", text);
    }
    json_bytes(code, value.to_string())
}

pub(crate) fn failure(failure: &StatusError) -> ApiResponse {
    if failure.plain {
        return plain_text(failure.code, failure.message.clone());
    }
    let mut reply = json_bytes(failure.code, failure.body().to_string());
    let retry = failure.details.as_ref().and_then(|d| d.get("retryAfterSeconds")).and_then(Value::as_u64);
    if let Some(seconds) = retry {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// One object.
pub(crate) fn object(kind: &Kind, accepted: MediaTypeOptions, code: u16, object: &Stored) -> ApiResponse {
    if accepted.form == Form::Plain && !accepted.yaml && !crate::conversion::differs(kind, object.api_version()) {
        return json_bytes(code, object.text());
    }
    fresh(kind, accepted, code, &object.value())
}

/// One object that is not in the store in this form.
pub(crate) fn fresh(kind: &Kind, accepted: MediaTypeOptions, code: u16, object: &Value) -> ApiResponse {
    let shown = crate::conversion::read(kind, object);
    match accepted.form {
        Form::Plain => value(Some(accepted), code, &shown),
        Form::Metadata => value(Some(accepted), code, &partial(&shown)),
        Form::Table => {
            let table = crate::table::of(kind, std::iter::once(shown.as_ref()), crate::table::Include::Metadata, true);
            value(Some(accepted), code, &with_meta(table, crate::meta::resource_version(object), "", 0))
        }
    }
}

/// `PartialObjectMetadata` of an object.
pub(crate) fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn with_meta(mut list: Value, revision: &str, next: &str, remaining: usize) -> Value {
    let mut metadata = json!({"resourceVersion": revision});
    if !next.is_empty() {
        metadata["continue"] = next.into();
        if remaining > 0 {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    list["metadata"] = metadata;
    list
}

/// A page of a list.
pub(crate) struct Page<'a> {
    pub(crate) items: &'a [Arc<Stored>],
    pub(crate) revision: u64,
    pub(crate) next: &'a str,
    pub(crate) remaining: usize,
}

/// A list item: built-in kinds omit what the list already says.
fn in_list(kind: &Kind, object: &Value) -> Value {
    let mut shown = crate::conversion::read(kind, object).into_owned();
    if kind.custom.is_none()
        && let Some(map) = shown.as_object_mut()
    {
        map.remove("apiVersion");
        map.remove("kind");
    }
    shown
}

pub(crate) fn list(
    kind: &Kind,
    accepted: MediaTypeOptions,
    include: crate::table::Include,
    page: &Page<'_>,
) -> ApiResult<ApiResponse> {
    let revision = page.revision.to_string();
    let meta = |list| {
        let mut list = with_meta(list, &revision, page.next, page.remaining);
        if kind.custom.is_some() && page.next.is_empty() && accepted.form == Form::Plain {
            list["metadata"]["continue"] = "".into();
        }
        list
    };
    match accepted.form {
        Form::Plain if !accepted.yaml => {
            let head = meta(json!({"kind": &*kind.list_kind, "apiVersion": kind.api_version()})).to_string();
            let size: usize = page.items.iter().map(|item| item.text().len() + 1).sum();
            let mut out = BytesMut::with_capacity(head.len() + size + 16);
            out.put_slice(&head.as_bytes()[..head.len() - 1]);
            out.put_slice(b",\"items\":[");
            for (index, item) in page.items.iter().enumerate() {
                if index > 0 {
                    out.put_u8(b',');
                }
                match (crate::conversion::differs(kind, item.api_version()), kind.custom.is_some()) {
                    (false, true) => out.put_slice(&item.text()),
                    (false, false) => item.write_untyped(&mut out),
                    (true, _) => out.put_slice(in_list(kind, &item.value()).to_string().as_bytes()),
                }
            }
            out.put_slice(b"]}");
            Ok(json_bytes(200, out.freeze()))
        }
        Form::Plain => {
            let items: Vec<Value> = page.items.iter().map(|i| in_list(kind, &i.value())).collect();
            Ok(value(
                Some(accepted),
                200,
                &meta(json!({"kind": &*kind.list_kind, "apiVersion": kind.api_version(), "items": items})),
            ))
        }
        Form::Metadata => {
            let items: Vec<Value> = page.items.iter().map(|i| partial(&i.value())).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": items});
            Ok(value(Some(accepted), 200, &meta(list)))
        }
        Form::Table => {
            let values: Vec<_> = page.items.iter().map(|item| item.value()).collect();
            let table = crate::table::of(kind, values.iter().map(|value| &**value), include, true);
            Ok(value(Some(accepted), 200, &meta(table)))
        }
    }
}

/// Adds warning headers, which clients print.
pub(crate) fn warn(reply: &mut ApiResponse, warnings: &[String]) {
    for warning in warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", crate::status::go_quote(&text))) {
            reply.headers_mut().append(header::WARNING, value);
        }
    }
}
