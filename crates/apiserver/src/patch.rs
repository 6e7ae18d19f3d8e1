//! PATCH bodies: JSON patch, merge patch, strategic merge patch; server-side apply is only detected here.

mod strategic;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::request::ApiRequest;
use crate::status::{ApiResult, StatusError};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The maximum number of operations, as upstream.
const MOST_OPERATIONS: usize = 10_000;

#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    pub(crate) fn parse(req: &ApiRequest, body: &Bytes, complaints: &mut Vec<String>) -> ApiResult<Self> {
        let custom = req.kind.custom.is_some();
        let mut json = || {
            crate::decode::json(body, complaints)
                .map_err(|why| StatusError::bad_request(format!("error decoding patch: {why}")))
        };
        let patch = match req.media_type.as_str() {
            JSON => {
                let operations: json_patch::Patch = serde_json::from_slice(body).map_err(|why| {
                    let text = if body.trim_ascii_start().starts_with(b"{") {
                        "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned()
                    } else {
                        why.to_string()
                    };
                    StatusError::bad_request(format!("error decoding patch: {text}"))
                })?;
                if operations.0.len() > MOST_OPERATIONS {
                    return Err(StatusError::custom(
                        413,
                        "RequestEntityTooLarge",
                        format!(
                            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                            operations.0.len()
                        ),
                    ));
                }
                Self::Json(operations)
            }
            MERGE => Self::Merge(object(json()?)?),
            STRATEGIC if !custom => Self::Strategic(object(json()?)?),
            APPLY => {
                let value = crate::decode::yaml(body, complaints)
                    .map_err(|why| StatusError::bad_request(format!("error decoding YAML: {why}")))?;
                Self::Apply(object(value)?)
            }
            _ => {
                if custom && req.media_type == STRATEGIC {
                    return Err(StatusError::unsupported_media_type(&[JSON, MERGE, APPLY].join(", ")));
                }
                let mut failure = StatusError::custom(415, "UnsupportedMediaType", "415: Unsupported Media Type");
                failure.details = Some(json!({}));
                return Err(failure);
            }
        };
        Ok(patch)
    }

    /// Applies the patch.
    pub(crate) fn onto(&self, kind: &Kind, current: &Value) -> ApiResult<Value> {
        let mut next = current.clone();
        match self {
            Self::Json(operations) => {
                for operation in &operations.0 {
                    // As in the real server, a missing value passes a test for null; kube-rs adds the first finalizer this way.
                    let absent = matches!(operation, json_patch::PatchOperation::Test(test)
                        if test.value.is_null() && next.pointer(test.path.as_str()).is_none());
                    if !absent {
                        json_patch::patch(&mut next, std::slice::from_ref(operation)).map_err(|_| rejected())?;
                    }
                }
            }
            Self::Merge(patch) => json_patch::merge(&mut next, patch),
            Self::Strategic(patch) => {
                let schema = kind.schema.and_then(crate::schema::built_in).unwrap_or_else(|| crate::schema::anything());
                strategic::merge(schema, &mut next, patch).map_err(StatusError::bad_request)?;
            }
            Self::Apply(_) => return Err(StatusError::internal("apply is not a patch onto a value")),
        }
        Ok(next)
    }
}

fn object(value: Value) -> ApiResult<Value> {
    if value.is_object() {
        Ok(value)
    } else {
        Err(StatusError::bad_request("error decoding patch: a patch must be an object"))
    }
}

/// A JSON patch that does not apply; the real server does not say why either.
fn rejected() -> Box<StatusError> {
    let mut failure =
        StatusError::custom(422, "Invalid", "the server rejected our request due to an error in our request");
    failure.details = Some(json!({}));
    failure
}
