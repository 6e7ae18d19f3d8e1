//! Schemas of built-in and custom kinds, in one form: they drive strict decoding, pruning, defaulting, strategic merge and
//! server-side apply.
//!
//! The built-in ones are upstream's published schemas (see `assets/`), unpacked on first use.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use regex::Regex;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// Any value.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    Quantity,
}

/// How a list is merged and owned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum List {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// The strategic merge patch strategy of a field.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strategy {
    pub(crate) merge: bool,
    pub(crate) replace: bool,
    pub(crate) key: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Schema {
    pub(crate) ty: Type,
    reference: Option<String>,
    /// The referenced schema, once resolved.
    resolved: OnceLock<&'static Schema>,
    pub(crate) fields: BTreeMap<String, Schema>,
    /// `additionalProperties`.
    pub(crate) values: Option<Box<Schema>>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) required: Vec<String>,
    /// Unknown fields are preserved.
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) nullable: bool,
    pub(crate) list: List,
    /// The map is owned as a whole.
    pub(crate) atomic: bool,
    pub(crate) strategy: Strategy,
    pub(crate) default: Option<Value>,
    pub(crate) format: Option<String>,
    pub(crate) rules: Option<Box<Rules>>,
}

/// Value validations of a custom resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) options: Option<Vec<Value>>,
    pub(crate) pattern: Option<(String, Option<Regex>)>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

static PACKED: &[u8] = include_bytes!("../assets/schemas.json.gz");

/// The upstream documents, for OpenAPI.
pub(crate) fn published() -> serde_json::Map<String, Value> {
    let mut text = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(PACKED).read_to_end(&mut text);
    match unpacked.map(|_| serde_json::from_slice(&text)) {
        Ok(Ok(Value::Object(map))) => map,
        // The asset is part of the build and covered by a test.
        _ => serde_json::Map::new(),
    }
}

static TYPES: LazyLock<HashMap<String, Schema>> = LazyLock::new(|| {
    published().into_iter().map(|(name, schema)| (name.clone(), Schema::named(&name, &schema))).collect()
});

static ANYTHING: LazyLock<Schema> = LazyLock::new(|| Schema { preserve: true, ..Schema::default() });

/// The schema of a built-in type.
pub(crate) fn built_in(name: &str) -> Option<&'static Schema> {
    TYPES.get(name)
}

pub(crate) fn object_meta() -> &'static Schema {
    TYPES.get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap_or(&ANYTHING)
}

pub(crate) fn anything() -> &'static Schema {
    &ANYTHING
}

impl Schema {
    fn named(name: &str, schema: &Value) -> Self {
        let mut parsed = Self::parse(schema);
        match name {
            "io.k8s.apimachinery.pkg.api.resource.Quantity" => parsed.ty = Type::Quantity,
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => parsed.ty = Type::IntOrString,
            // These hold arbitrary JSON.
            "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" | "io.k8s.apimachinery.pkg.runtime.RawExtension" => {
                parsed.preserve = true;
                parsed.ty = Type::Any;
                // Its content is owned as a whole.
                parsed.atomic = name.ends_with("RawExtension");
            }
            _ => {}
        }
        parsed
    }

    pub(crate) fn parse(schema: &Value) -> Self {
        let Some(map) = schema.as_object() else { return ANYTHING.clone() };
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or_default();
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        let strings = |key: &str| -> Vec<String> {
            map.get(key)
                .and_then(Value::as_array)
                .map(|list| list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect())
                .unwrap_or_default()
        };
        let reference = text("$ref")
            .or_else(|| match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) => only.get("$ref").and_then(Value::as_str),
                _ => None,
            })
            .and_then(|r| r.strip_prefix("#/components/schemas/"))
            .map(str::to_owned);
        let fields: BTreeMap<String, Self> = map
            .get("properties")
            .and_then(Value::as_object)
            .map(|fields| fields.iter().map(|(name, field)| (name.clone(), Self::parse(field))).collect())
            .unwrap_or_default();
        let (values, open) = match map.get("additionalProperties") {
            Some(Value::Bool(open)) => (None, *open),
            Some(schema @ Value::Object(_)) => (Some(Box::new(Self::parse(schema))), false),
            _ => (None, false),
        };
        let ty = if flag("x-kubernetes-int-or-string") {
            Type::IntOrString
        } else {
            match text("type") {
                Some("object") => Type::Object,
                Some("array") => Type::Array,
                Some("string") => Type::String,
                Some("integer") => Type::Integer,
                Some("number") => Type::Number,
                Some("boolean") => Type::Boolean,
                _ => Type::Any,
            }
        };
        let patch = text("x-kubernetes-patch-strategy").unwrap_or_default();
        Self {
            ty,
            preserve: flag("x-kubernetes-preserve-unknown-fields") || open,
            embedded: flag("x-kubernetes-embedded-resource"),
            nullable: flag("nullable"),
            list: match text("x-kubernetes-list-type") {
                Some("map") => List::Map(strings("x-kubernetes-list-map-keys")),
                Some("set") => List::Set,
                _ => List::Atomic,
            },
            atomic: text("x-kubernetes-map-type") == Some("atomic"),
            strategy: Strategy {
                merge: patch.contains("merge"),
                replace: patch == "replace",
                key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
            },
            default: map.get("default").cloned(),
            format: text("format").map(str::to_owned),
            required: strings("required"),
            rules: Rules::parse(map, reference.is_some()).map(Box::new),
            items: map.get("items").map(|items| Box::new(Self::parse(items))),
            reference,
            resolved: OnceLock::new(),
            fields,
            values,
        }
    }

    /// The referenced schema.
    pub(crate) fn target(&self) -> &Self {
        match &self.reference {
            Some(name) => self.resolved.get_or_init(|| TYPES.get(name).unwrap_or(&ANYTHING)),
            None => self,
        }
    }

    /// The upstream type name, if this is a reference.
    pub(crate) fn type_name(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.fields.get(name).or(self.values.as_deref())
    }

    /// Whether the map is atomic, by the field or its type.
    pub(crate) fn is_atomic_map(&self) -> bool {
        self.atomic || self.target().atomic
    }

    /// An object without declared fields or values.
    pub(crate) fn is_free_form(&self) -> bool {
        self.fields.is_empty() && self.values.is_none()
    }
}

impl Rules {
    fn parse(map: &serde_json::Map<String, Value>, referenced: bool) -> Option<Self> {
        const KEYWORDS: [&str; 18] = [
            "enum",
            "pattern",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if referenced || !KEYWORDS.iter().any(|k| map.contains_key(*k)) {
            return None;
        }
        let float = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or_default();
        let schemas = |key: &str| -> Vec<Schema> {
            map.get(key)
                .and_then(Value::as_array)
                .map(|list| list.iter().map(Schema::parse).collect())
                .unwrap_or_default()
        };
        Some(Self {
            options: map.get("enum").and_then(Value::as_array).cloned(),
            pattern: map.get("pattern").and_then(Value::as_str).map(|p| (p.to_owned(), Regex::new(p).ok())),
            minimum: float("minimum"),
            maximum: float("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: float("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: map.get("not").map(|s| Box::new(Schema::parse(s))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_schemas_unpack() {
        let pod = built_in("io.k8s.api.core.v1.Pod").expect("pod schema");
        let spec = pod.field("spec").expect("spec").target();
        let containers = spec.field("containers").expect("containers");
        assert_eq!(containers.list, List::Map(vec!["name".into()]));
        assert_eq!(containers.strategy.key.as_deref(), Some("name"));
        assert!(containers.strategy.merge);
    }
}
