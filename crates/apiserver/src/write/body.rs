//! Reads a body for its kind: parses it, checks it against the path, and keeps what an update may not change.

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::decode::StrictErrors;
use crate::kinds::{Kind, Kinds};
use crate::meta;
use crate::request::ApiRequest;
use crate::status::{ApiResult, Cause, StatusError};

/// Parses a body by its media type.
pub(crate) fn parse_body(req: &ApiRequest, body: &Bytes, complaints: &mut StrictErrors) -> ApiResult<Value> {
    let parsed = match req.media_type.as_str() {
        "" | "application/json" => crate::decode::json(body, complaints)
            .map_err(|e| format!("couldn't get version/kind; json parse error: {e}")),
        "application/yaml" => crate::decode::yaml(body, complaints),
        "application/vnd.kubernetes.protobuf" => crate::protobuf::decode(body),
        _ => {
            return Err(StatusError::unsupported_media_type(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    let value = parsed.map_err(|why| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            req.kind.kind,
            summary(body)
        ))
    })?;
    if value.is_object() {
        return Ok(value);
    }
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        _ => return Ok(serde_json::json!({})),
    };
    Err(StatusError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({})",
        req.kind.kind,
        summary(body)
    )))
}

/// The start of a body, for error messages.
pub(super) fn summary(body: &[u8]) -> String {
    const LONGEST: usize = 30;
    if body.is_empty() {
        return "<empty>".into();
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let shown = &body[..body.len().min(LONGEST)];
    let text = if body[0] == b'{' { String::from_utf8_lossy(shown).into_owned() } else { hex(shown) };
    if body.len() > LONGEST { format!("{text} ...") } else { text }
}

/// `apiVersion` and `kind` must match the path; built-in kinds may omit them.
pub(crate) fn check_type(kinds: &Kinds, kind: &Kind, mut object: Value) -> ApiResult<Value> {
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let found = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let expected = kind.api_version();
    let given = if version.is_empty() { expected.as_str() } else { version };
    let named = if found.is_empty() { &*kind.kind } else { found };
    if kind.custom.is_none() && (named != &*kind.kind || given != expected) {
        let known = kinds.iter().find(|k| *k.kind == *named && k.api_version() == given);
        let why = match known {
            Some(other) => {
                let package = |group: &str| match group.split('.').next() {
                    Some("") | None => "core".to_owned(),
                    Some(word) => word.to_owned(),
                };
                format!(
                    "converting ({}.{named}) to ({}.{}): unknown conversion",
                    other.version,
                    package(&kind.group),
                    kind.kind
                )
            }
            None => {
                format!("no kind {named:?} is registered for version {given:?} in scheme \"pkg/runtime/scheme.go:111\"")
            }
        };
        return Err(StatusError::bad_request(format!(
            "{named} in version {:?} cannot be handled as a {}: {why}",
            given.rsplit('/').next().unwrap_or_default(),
            kind.kind
        )));
    }
    if !found.is_empty() && found != &*kind.kind {
        let cause = Cause::invalid("kind", &found.into(), &format!("must be {}", kind.kind));
        return Err(StatusError::invalid(&kind.group, found, meta::name(&object), &[cause]));
    }
    if !version.is_empty() && version != expected {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    object["apiVersion"] = expected.into();
    object["kind"] = (*kind.kind).into();
    Ok(object)
}

/// Decodes a body: drops unknown fields, checks types. No defaults.
pub(super) fn sent(kind: &Kind, object: &mut Value, complaints: &mut StrictErrors, tidy: bool) -> Result<(), String> {
    if let Some(custom) = &kind.custom {
        custom.prune(object, complaints);
        return Ok(());
    }
    let Some(schema) = kind.schema.and_then(crate::schema::built_in) else { return Ok(()) };
    crate::decode::conform(schema, &kind.kind, object, complaints, tidy)
}

pub(super) fn decoded(kind: &Kind, object: &mut Value, complaints: &mut StrictErrors) -> Result<(), String> {
    sent(kind, object, complaints, true)?;
    if let Some(custom) = &kind.custom {
        custom.fill_defaults(object);
    } else if let Some(schema) = kind.schema.and_then(crate::schema::built_in) {
        crate::decode::fill(schema, object);
    }
    Ok(())
}

pub(super) fn unreadable(kind: &Kind, why: &str) -> Box<StatusError> {
    StatusError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, &*kind.version, kind.kind
    ))
}

/// The object's namespace is the path's.
pub(super) fn place(kind: &Kind, namespace: &str, object: &mut Value) -> ApiResult<()> {
    let given = meta::namespace(object);
    if !kind.namespaced {
        if !given.is_empty() {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta::of(object).remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta::of(object).insert("namespace".into(), namespace.into());
    Ok(())
}

pub(super) fn check_patched(kinds: &Kinds, kind: &Kind, old: &Value, patched: Value) -> ApiResult<Value> {
    if !patched.is_object() {
        return Err(StatusError::bad_request("the patched object is not an object"));
    }
    let patched = check_type(kinds, kind, patched)?;
    if meta::name(&patched) != meta::name(old) {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(&patched),
            meta::name(old)
        )));
    }
    let mut patched = patched;
    if meta::namespace(&patched).is_empty() && !meta::namespace(old).is_empty() {
        meta::of(&mut patched).insert("namespace".into(), meta::namespace(old).into());
    }
    if meta::namespace(&patched) != meta::namespace(old) {
        return Err(StatusError::bad_request("the namespace of the object does not match the namespace on the URL"));
    }
    Ok(patched)
}

/// What no update may change, or only in certain ways.
pub(super) fn keep_identity(kind: &Kind, method: &Method, old: &Value, next: &mut Value) -> ApiResult<()> {
    let sent_uid = meta::uid(next);
    if !sent_uid.is_empty() && sent_uid != meta::uid(old) {
        if method != Method::PUT {
            let cause = Cause::invalid("metadata.uid", &sent_uid.into(), "field is immutable");
            return Err(StatusError::invalid(&kind.group, &kind.kind, meta::name(old), &[cause.clone(), cause]));
        }
        return Err(StatusError::conflict(
            &kind.group,
            &kind.resource,
            meta::name(old),
            &format!("Precondition failed: UID in precondition: {sent_uid}, UID in object meta: {}", meta::uid(old)),
        ));
    }
    let metadata = meta::of(next);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "selfLink",
        "generateName",
    ] {
        match old.get("metadata").and_then(|m| m.get(field)) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    Ok(())
}

/// Omitted managedFields are kept; an empty list clears them.
pub(super) fn inherit_managed_fields(current: &Value, next: &mut Value) {
    if next.pointer("/metadata/managedFields").is_none()
        && let Some(fields) = current.pointer("/metadata/managedFields")
    {
        meta::of(next).insert("managedFields".into(), fields.clone());
    }
}

pub(super) fn bump_generation(kind: &Kind, old: &Value, next: &mut Value) {
    if !kind.generation && kind.custom.is_none() {
        return;
    }
    let status_apart = kind.status || kind.custom.is_none();
    let (Some(before), Some(after)) = (old.as_object(), next.as_object()) else { return };
    let relevant = |key: &String| key != "metadata" && !(status_apart && key == "status");
    let changed = before.iter().filter(|(k, _)| relevant(k)).ne(after.iter().filter(|(k, _)| relevant(k)));
    if changed {
        let generation = meta::generation(old) + 1;
        meta::of(next).insert("generation".into(), generation.into());
    }
}
