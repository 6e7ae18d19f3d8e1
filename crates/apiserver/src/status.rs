//! API errors: every failure is a `Status` with kube-apiserver's code, reason and message.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Value, json};

/// A failed request. [`StatusError::body`] turns it into a `Status`.
#[derive(Debug, Clone)]
pub(crate) struct StatusError {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// Returned as plain text instead of a `Status`, as by the real server for unknown paths.
    pub(crate) plain: bool,
}

pub(crate) type ApiResult<T> = Result<T, Box<StatusError>>;

/// An invalid field, as in `details.causes`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}{}", shown(value), with_detail(detail)),
            field: field.into(),
        }
    }

    pub(crate) fn type_invalid(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {shown}{}", with_detail(detail)),
            field: field.into(),
        }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let names: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {}: supported values: {}", shown(value), names.join(", ")),
            field: field.into(),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", shown(value)),
            field: field.into(),
        }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueNotFound", message: format!("Not found: {}", shown(value)), field: field.into() }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden{}", with_detail(detail)),
            field: field.into(),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, limit: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} bytes"),
            field: field.into(),
        }
    }

    /// As [`Cause::too_long`], with the message of schema validation.
    pub(crate) fn too_long_chars(field: impl Into<String>, limit: u64) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} bytes"),
            field: field.into(),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {actual}: must have at most {limit} items"),
            field: field.into(),
        }
    }

    fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

fn with_detail(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// A value in an error message: strings quoted, numbers bare, the rest as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => go_quote(s),
        other => other.to_string(),
    }
}

/// Go's `%q`.
pub(crate) fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl StatusError {
    fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, reason: reason.into(), message: message.into(), details: None, plain: false })
    }

    fn about(mut self: Box<Self>, group: &str, kind: &str, name: &str) -> Box<Self> {
        let mut details = json!({});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        if !kind.is_empty() {
            details["kind"] = kind.into();
        }
        self.details = Some(details);
        self
    }

    pub(crate) fn not_found(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(404, "NotFound", format!("{} {name:?} not found", qualified(resource, group)))
            .about(group, resource, name)
    }

    pub(crate) fn no_such_path() -> Box<Self> {
        let mut failure = Self::new(404, "NotFound", "404 page not found\n");
        failure.plain = true;
        failure
    }

    pub(crate) fn no_such_resource() -> Box<Self> {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.details = Some(json!({}));
        failure
    }

    pub(crate) fn already_exists(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", qualified(resource, group)))
            .about(group, resource, name)
    }

    pub(crate) fn generate_name_taken(group: &str, resource: &str, name: &str) -> Box<Self> {
        let mut failure = Self::already_exists(group, resource, name);
        failure.message.push_str(", the server was not able to generate a unique name for the object");
        failure
    }

    pub(crate) fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Box<Self> {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(resource, group)),
        )
        .about(group, resource, name)
    }

    pub(crate) fn modified(group: &str, resource: &str, name: &str) -> Box<Self> {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn apply_conflict(message: String, causes: &[Value]) -> Box<Self> {
        let mut failure = Self::new(409, "Conflict", message);
        failure.details = Some(json!({ "causes": causes }));
        failure
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Box<Self> {
        let mut lines: Vec<String> = Vec::new();
        for line in causes.iter().map(Cause::line) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let joined = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut failure =
            Self::new(422, "Invalid", format!("{} {name:?} is invalid: {joined}", qualified(kind, group)))
                .about(group, kind, name);
        let list: Vec<Value> =
            causes.iter().map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field})).collect();
        if let Some(details) = failure.details.as_mut() {
            details["causes"] = list.into();
        }
        failure
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Box<Self> {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(resource, group))
        } else {
            format!("{} {name:?} is forbidden: {why}", qualified(resource, group))
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    pub(crate) fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Box<Self> {
        let mut failure =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        failure.details = Some(json!({}));
        failure
    }

    pub(crate) fn not_acceptable(accepted: &str) -> Box<Self> {
        let mut failure =
            Self::new(406, "NotAcceptable", format!("406: Not Acceptable\n\nAvailable representations: {accepted}"));
        failure.details = Some(json!({}));
        failure
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Box<Self> {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
        )
    }

    pub(crate) fn too_large(limit: usize) -> Box<Self> {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after: u64) -> Box<Self> {
        let mut failure = Self::new(429, "TooManyRequests", message);
        failure.details = Some(if retry_after > 0 { json!({"retryAfterSeconds": retry_after}) } else { json!({}) });
        failure
    }

    pub(crate) fn resource_version_too_large(asked: u64, current: u64) -> Box<Self> {
        let mut failure = Self::new(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"));
        failure.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1
        }));
        failure
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Box<Self> {
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.details = Some(json!({"causes": [{"message": message.to_string()}]}));
        failure
    }

    /// An error with another component's message and code, such as an admission webhook's.
    pub(crate) fn custom(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Box<Self> {
        Self::new(code, reason, message)
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.as_ref().into();
        }
        if let Some(details) = &self.details {
            body["details"] = details.clone();
        }
        body
    }
}

fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The `Status` of a successful DELETE whose object is gone.
pub(crate) fn deleted(group: &str, resource: &str, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource, "uid": uid});
    if !group.is_empty() {
        details["group"] = group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
