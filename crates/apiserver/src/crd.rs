//! Custom resources: turns a CustomResourceDefinition into served kinds, and applies its schemas to objects.

mod cel_rules;
mod structural;
mod validation;

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::decode::StrictErrors;
use crate::kinds::{Kind, Kinds, table_name};
use crate::meta;
use crate::schema::Schema;
use crate::status::Cause;

pub(crate) use structural::definition_causes;

pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// One version of a custom resource.
pub(crate) struct CustomKind {
    pub(crate) storage_version: String,
    pub(crate) selectable_fields: Vec<String>,
    pub(crate) columns: Vec<PrinterColumn>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) schema: Schema,
    /// The schema including standard metadata, for field ownership.
    pub(crate) managed: Schema,
    /// The schema as written, for OpenAPI and CEL.
    pub(crate) raw: Value,
    has_rules: bool,
    rules: OnceLock<kube_cel::CompiledSchema>,
}

impl std::fmt::Debug for CustomKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CustomKind").field("storage_version", &self.storage_version).finish_non_exhaustive()
    }
}

/// A printer column.
#[derive(Debug, Clone)]
pub(crate) struct PrinterColumn {
    pub(crate) name: String,
    pub(crate) ty: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: crate::jsonpath::JsonPath,
}

#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl CustomKind {
    fn parse(definition: &Value, version: &Value) -> Self {
        let raw = version
            .pointer("/schema/openAPIV3Schema")
            .cloned()
            .unwrap_or_else(|| json!({"x-kubernetes-preserve-unknown-fields": true, "type": "object"}));
        let storage = versions(definition).find(|v| v.get("storage").is_some_and(|s| s == true));
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let columns = version
            .get("additionalPrinterColumns")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|column| PrinterColumn {
                name: text(column, "name"),
                ty: text(column, "type"),
                format: text(column, "format"),
                description: text(column, "description"),
                priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
                path: crate::jsonpath::JsonPath::parse(&text(column, "jsonPath")),
            })
            .collect();
        let scale = version.pointer("/subresources/scale").filter(|s| s.is_object()).map(|scale| ScalePaths {
            spec: text(scale, "specReplicasPath"),
            status: text(scale, "statusReplicasPath"),
            selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(str::to_owned),
        });
        let schema = Schema::parse(&raw);
        let mut managed = schema.clone();
        managed.fields.insert("metadata".into(), crate::schema::object_meta().clone());
        Self {
            managed,
            storage_version: storage.map(|v| text(v, "name")).unwrap_or_default(),
            selectable_fields: version
                .get("selectableFields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|f| text(f, "jsonPath"))
                .collect(),
            columns,
            scale,
            schema,
            has_rules: raw.to_string().contains("\"x-kubernetes-validations\""),
            raw,
            rules: OnceLock::new(),
        }
    }

    /// Removes fields that are not in the schema, and reports them.
    pub(crate) fn prune(&self, object: &mut Value, complaints: &mut StrictErrors) {
        structural::prune_root(&self.schema, object, complaints);
    }

    pub(crate) fn fill_defaults(&self, object: &mut Value) {
        structural::fill_defaults(&self.schema, object);
    }

    /// Validates an object: first the schema, then the CEL rules.
    pub(crate) fn causes(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = validation::check_root(&self.schema, object);
        if causes.is_empty() && self.has_rules {
            let compiled = self.rules.get_or_init(|| cel_rules::compile(&self.raw));
            let result = kube_cel::Validator::new().validate_compiled(compiled, object, old);
            if let Err(errors) = result {
                causes.extend(errors.into_vec().into_iter().map(|error| validation::rule_cause(&error, object)));
            }
        } else if self.has_rules {
            causes.push(Cause::invalid(
                "<nil>",
                &Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
            ));
        }
        causes
    }
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// The kinds of a definition.
fn kinds_of(definition: &Value) -> Vec<Kind> {
    let text = |pointer: &str| meta::text(definition, pointer);
    let list = |pointer: &str| -> Vec<Arc<str>> {
        definition
            .pointer(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(Arc::from)
            .collect()
    };
    let group = text("/spec/group");
    let plural = text("/spec/names/plural");
    versions(definition)
        .filter(|v| v.get("served").is_some_and(|s| s == true))
        .map(|version| {
            let custom = CustomKind::parse(definition, version);
            Kind {
                group: group.into(),
                version: version.get("name").and_then(Value::as_str).unwrap_or_default().into(),
                resource: plural.into(),
                singular: text("/spec/names/singular").into(),
                kind: text("/spec/names/kind").into(),
                list_kind: text("/spec/names/listKind").into(),
                namespaced: text("/spec/scope") == "Namespaced",
                short: list("/spec/names/shortNames"),
                categories: list("/spec/names/categories"),
                status: version.pointer("/subresources/status").is_some(),
                scale: custom.scale.is_some(),
                others: &[],
                virtual_: false,
                table: table_name(group, plural),
                schema: None,
                custom: Some(Arc::new(custom)),
                generation: true,
            }
        })
        .collect()
}

/// Serves the kinds of a definition.
pub(crate) fn register(kinds: &mut Kinds, definition: &Value) {
    unregister(kinds, definition);
    for kind in kinds_of(definition) {
        kinds.insert(kind);
    }
}

pub(crate) fn unregister(kinds: &mut Kinds, definition: &Value) {
    kinds.remove_group_resource(meta::text(definition, "/spec/group"), meta::text(definition, "/spec/names/plural"));
}

pub(crate) fn defaults(object: &mut Value) {
    let spec = meta::child(object, "spec");
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let blank = |names: &serde_json::Map<String, Value>, field: &str| {
            names.get(field).is_none_or(|v| v.is_null() || v == "")
        };
        if blank(names, "singular") {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if blank(names, "listKind") && !kind.is_empty() {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
}

pub(crate) fn prepare_create(object: &mut Value) {
    let stored: Vec<Value> = versions(object)
        .filter(|v| v.get("storage").is_some_and(|s| s == true))
        .filter_map(|v| v.get("name").cloned())
        .collect();
    object["status"] =
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
}

pub(crate) fn prepare_update(_old: &Value, next: &mut Value) {
    let storage =
        versions(next).find(|v| v.get("storage").is_some_and(|s| s == true)).and_then(|v| v.get("name")).cloned();
    let Some(storage) = storage else { return };
    let status = meta::child(next, "status");
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(list) = stored.as_array_mut()
        && !list.contains(&storage)
    {
        list.push(storage);
    }
}

/// The status of an established definition.
pub(crate) fn established(definition: &Value) -> Value {
    let mut next = definition.clone();
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let now = meta::now();
    let status = meta::child(&mut next, "status");
    status.insert("acceptedNames".into(), names);
    let already = |kind: &str| {
        definition.pointer("/status/conditions").and_then(Value::as_array).and_then(|list| {
            list.iter()
                .find(|c| c.get("type").is_some_and(|t| t == kind) && c.get("status").is_some_and(|s| s == "True"))
                .cloned()
        })
    };
    let condition = |kind: &str, reason: &str, message: &str| {
        already(kind).unwrap_or_else(
            || json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}),
        )
    };
    status.insert(
        "conditions".into(),
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]),
    );
    let finalizers = meta::of(&mut next).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|f| f == CLEANUP)
        && !meta::deleting(definition)
    {
        list.push(CLEANUP.into());
    }
    next
}
