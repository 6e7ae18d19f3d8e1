//! Field ownership: `metadata.managedFields` and server-side apply.

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::Outcome;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Update,
    Apply,
}

pub(crate) fn record(_kind: &Kind, _old: Option<&Value>, _new: &mut Value, _manager: &str, _subresource: &str) {}

pub(crate) fn settle(_kind: &Kind, _old: &Value, _new: &mut Value) {}

pub(crate) fn apply_new(_kind: &Kind, _object: &mut Value, _manager: &str) {}

pub(crate) fn apply(_kind: &Kind, live: &Value, applied: &Value, _manager: &str, _subresource: &str, _force: bool) -> Outcome<Value> {
    let mut next = live.clone();
    json_patch::merge(&mut next, applied);
    Ok(next)
}
