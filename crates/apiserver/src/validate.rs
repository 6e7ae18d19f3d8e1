//! Validation of objects, in the real server's words.

mod metadata;

use serde_json::Value;

use crate::kinds::Kind;
use crate::state::State;
use crate::status::Cause;

pub(crate) fn create(_state: &State, kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata::check(kind, object);
    if let Some(custom) = &kind.custom {
        causes.extend(custom.causes(object, None));
    } else if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        causes.extend(crate::crd::definition_causes(object));
    }
    causes
}

pub(crate) fn update(_state: &State, kind: &Kind, _subresource: &str, old: &Value, next: &Value) -> Vec<Cause> {
    let mut causes = metadata::check(kind, next);
    causes.extend(metadata::check_update(old, next));
    if let Some(custom) = &kind.custom {
        causes.extend(custom.causes(next, Some(old)));
    } else if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        causes.extend(crate::crd::definition_causes(next));
    }
    causes
}
