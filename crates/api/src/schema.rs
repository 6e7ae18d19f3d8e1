//! Schemas of embedded core types: objects whose fields the API server keeps without knowing them.
//!
//! Spelling these types out would make the definitions too large for `kubectl apply`, whose annotation holds 256 KiB.
//! The operator still reads them as the real types and reports what does not fit.

use schemars::{Schema, SchemaGenerator, json_schema};

/// One embedded object.
pub(crate) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of embedded objects.
pub(crate) fn objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    })
}

/// Resource name to quantity.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    })
}

/// `metav1.Condition`, merged by type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"}
            }
        }
    })
}

macro_rules! words {
    ($($name:ident: $($word:literal),+;)+) => {$(
        pub(crate) fn $name(_: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": "string", "enum": [$($word),+]})
        }
    )+};
}

words! {
    application_type: "Java", "Python", "Scala", "R";
    deploy_mode: "cluster", "client";
    restart_policy: "Never", "Always", "OnFailure";
    python_version: "2", "3";
}
