//! OpenAPI v3 documents: paths from the table of kinds, schemas from upstream or custom resource definitions. kubectl needs them for
//! apply, create and explain.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use crate::kinds::{Kind, Kinds};

/// Cached documents, for one version of the table of kinds.
#[derive(Default)]
pub(crate) struct Documents(Mutex<(u64, HashMap<String, Bytes>)>);

impl Documents {
    pub(crate) fn index(&self, kinds: &Kinds) -> Value {
        let mut paths = Map::new();
        for (group, versions) in kinds.groups() {
            for version in versions {
                let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
                let hash = hash(kinds, &group, &version);
                paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
            }
        }
        json!({"paths": paths})
    }

    pub(crate) fn document(&self, kinds: &Kinds, group: &str, version: &str) -> Bytes {
        let key = format!("{group}/{version}");
        {
            let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.0 != kinds.edition {
                *cache = (kinds.edition, HashMap::new());
            }
            if let Some(found) = cache.1.get(&key) {
                return found.clone();
            }
        }
        let made = Bytes::from(make(kinds, group, version).to_string());
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.0 == kinds.edition {
            cache.1.insert(key, made.clone());
        }
        made
    }
}

/// Changes with the document.
fn hash(kinds: &Kinds, group: &str, version: &str) -> String {
    let mut digest = sha2::Sha256::new();
    for kind in members(kinds, group, version) {
        digest.update(kind.kind.as_bytes());
        if let Some(custom) = &kind.custom {
            digest.update(custom.raw.to_string());
        }
    }
    digest.finalize().iter().map(|b| format!("{b:02X}")).collect()
}

fn members<'a>(kinds: &'a Kinds, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Kind> {
    kinds.iter().map(|k| &**k).filter(move |k| *k.group == *group && *k.version == *version)
}

fn schema_name(kind: &Kind) -> String {
    match kind.schema {
        Some(name) => name.to_owned(),
        None => {
            let reversed: Vec<&str> = kind.group.split('.').rev().collect();
            format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
        }
    }
}

fn make(kinds: &Kinds, group: &str, version: &str) -> Value {
    let published = crate::schema::published();
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let mut paths = Map::new();
    let mut wanted: BTreeSet<String> = BTreeSet::from([
        "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Status".to_owned(),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Patch".to_owned(),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta".to_owned(),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned(),
    ]);
    for kind in members(kinds, group, version) {
        let name = schema_name(kind);
        match &kind.custom {
            Some(custom) => {
                schemas.insert(name.clone(), custom_schema(kind, &custom.raw));
            }
            None => {
                wanted.insert(name.clone());
            }
        }
        add_paths(&mut paths, kind, &name);
    }
    let mut queue: Vec<String> = wanted.into_iter().collect();
    while let Some(name) = queue.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(schema) = published.get(&name) else { continue };
        references(schema, &mut queue);
        schemas.insert(name, schema.clone());
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.35.8"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::String(target) if key == "$ref" => {
                        out.extend(target.strip_prefix("#/components/schemas/").map(str::to_owned));
                    }
                    other => references(other, out),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, out)),
        _ => {}
    }
}

/// A definition's schema with standard metadata, marked with its kind.
fn custom_schema(kind: &Kind, raw: &Value) -> Value {
    let mut schema = raw.clone();
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema["properties"] = json!({});
    }
    let text = |description: &str| json!({"type": "string", "description": description});
    schema["properties"]["apiVersion"] = text(
        "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values.",
    );
    schema["properties"]["kind"] = text(
        "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase.",
    );
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.",
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
    });
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind}]);
    schema
}

fn add_paths(paths: &mut Map<String, Value>, kind: &Kind, name: &str) {
    let root = if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    };
    let home = if kind.namespaced { format!("{root}/namespaces/{{namespace}}") } else { root };
    let gvk = json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind});
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let writes: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "pretty"].map(parameter).into();
    let patches: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force", "pretty"].map(parameter).into();
    let answer = json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}});
    let operation = |action: &str, parameters: &[Value], body: Option<&[&str]>| {
        let mut made = json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "parameters": parameters, "responses": answer,
        });
        if let Some(types) = body {
            let content: Map<String, Value> =
                types.iter().map(|t| ((*t).to_owned(), json!({"schema": reference}))).collect();
            made["requestBody"] = json!({"required": true, "content": content});
        }
        made
    };
    let mut many = json!({"post": operation("post", &writes, Some(&["application/json"]))});
    if !kind.virtual_ {
        many["get"] = operation("list", &[], None);
        many["delete"] = operation("deletecollection", &[], None);
        let mut patch_types =
            vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        if kind.custom.is_none() {
            patch_types.push("application/strategic-merge-patch+json");
        }
        let one = json!({
            "get": operation("get", &[], None),
            "put": operation("put", &writes, Some(&["application/json"])),
            "patch": operation("patch", &patches, Some(&patch_types)),
            "delete": operation("delete", &[], None),
        });
        paths.insert(format!("{home}/{}/{{name}}", kind.resource), one);
    }
    paths.insert(format!("{home}/{}", kind.resource), many);
}
