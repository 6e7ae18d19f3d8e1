//! Schemas of embedded core types (objects with unknown fields preserved), and schemas that derive cannot produce.
//!
//! Full schemas of core types would make the definitions too large for `kubectl apply`, whose annotation is limited to
//! 256 KiB. The operator still reads them as the real types and reports errors.

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
                "observedGeneration": {
                    "description": "The generation of the object that the condition is about.",
                    "type": "integer", "format": "int64"
                }
            }
        }
    })
}

/// What a driver requests, by profile.
pub(crate) fn profiles(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 64, "additionalProperties": profile(generator)})
}

/// What a driver requests for one profile. Drivers are not trusted: everything is bounded.
pub(crate) fn profile(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["wanted"],
        "properties": {
            "wanted": {
                "description": "Executors in total, running ones included.",
                "type": "integer", "format": "int64", "minimum": 0, "maximum": 2147483647
            },
            "cores": {
                "description": "Cores that Spark uses.",
                "type": "integer", "format": "int64", "minimum": 0, "maximum": 65536
            },
            "cpu": {"description": "CPU request of the container.", "type": "string", "maxLength": 32},
            "cpuLimit": {"description": "CPU limit of the container.", "type": "string", "maxLength": 32},
            "memory": {"description": "Memory of the container.", "type": "string", "maxLength": 32},
            "resources": {
                "description": "Named resources, such as GPUs.",
                "type": "object", "maxProperties": 32,
                "additionalProperties": {"type": "string", "maxLength": 32}
            },
            "env": {
                "description": "Literal environment of the container.",
                "type": "object", "maxProperties": 1024,
                "additionalProperties": {"type": "string", "maxLength": 16384}
            }
        }
    })
}

/// Addresses by executor id.
pub(crate) fn registered(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 20000,
        "additionalProperties": {"type": "string", "maxLength": 64}
    })
}

/// Executor ids.
pub(crate) fn ids(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 20000, "items": {"type": "string", "maxLength": 10}})
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
    strategy: "pods", "replicaset", "statefulset";
    cause: "application", "platform", "withdrawn";
}
