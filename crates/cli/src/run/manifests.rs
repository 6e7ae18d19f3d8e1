//! Reads manifests from files and checks what can be checked without a cluster.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exit::BadInput;

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub(crate) object: Value,
    /// The base directory of relative paths in it.
    pub(crate) base: PathBuf,
    /// For messages: `pi.yaml`, or `pi.yaml, document 2`.
    pub(crate) place: String,
}

/// Whether an object is something to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    SparkApplication,
    ScheduledSparkApplication,
    SparkConnect,
    Pod,
    /// Nothing to run; other objects use it.
    None,
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    pub(crate) fn work(&self) -> Work {
        let group = self.object["apiVersion"].as_str().unwrap_or_default();
        match (group.split('/').next().unwrap_or_default(), self.kind()) {
            ("sparkoperator.k8s.io", "SparkApplication") => Work::SparkApplication,
            ("sparkoperator.k8s.io", "ScheduledSparkApplication") => Work::ScheduledSparkApplication,
            ("sparkoperator.k8s.io", "SparkConnect") => Work::SparkConnect,
            ("v1", "Pod") => Work::Pod,
            _ => Work::None,
        }
    }

    /// Whether it runs applications.
    pub(crate) fn has_application(&self) -> bool {
        matches!(self.work(), Work::SparkApplication | Work::ScheduledSparkApplication)
    }

    /// The specification of what runs: that of an application, a schedule's template, or that of a pod.
    pub(crate) fn spec(&self) -> &Value {
        let spec = &self.object["spec"];
        if self.work() == Work::ScheduledSparkApplication { &spec["template"] } else { spec }
    }

    pub(crate) fn spec_mut(&mut self) -> &mut Value {
        let is_scheduled = self.work() == Work::ScheduledSparkApplication;
        let spec = &mut self.object["spec"];
        if is_scheduled { &mut spec["template"] } else { spec }
    }
}

/// Reads manifests; at least one object must be something to run.
pub(crate) fn read(paths: &[String]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        let (text, base) = if path == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|e| BadInput(format!("cannot read stdin: {e}")))?;
            (text, std::env::current_dir().unwrap_or_default())
        } else {
            let text = std::fs::read_to_string(path).map_err(|e| BadInput(format!("cannot read {path}: {e}")))?;
            let full = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            (text, full.parent().unwrap_or(Path::new("/")).to_owned())
        };
        documents.extend(parse(&text, if path == "-" { "stdin" } else { path }, &base)?);
    }
    if documents.iter().all(|d| d.work() == Work::None) {
        let of = paths.join(", ");
        return Err(BadInput(format!(
            "there is nothing to run in {of}: no SparkApplication, no ScheduledSparkApplication, no SparkConnect and no Pod"
        ))
        .into());
    }
    Ok(documents)
}

fn parse(text: &str, from: &str, base: &Path) -> Result<Vec<Document>, BadInput> {
    let values: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        BadInput(format!("{from} is not YAML: {first}"))
    })?;
    let mut objects = Vec::new();
    for value in values {
        match value {
            Value::Null => {}
            Value::Object(ref list) if list.get("kind").and_then(Value::as_str) == Some("List") => {
                objects.extend(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            other => objects.push(other),
        }
    }
    let many = objects.len() > 1;
    let mut documents = Vec::new();
    for (at, object) in objects.into_iter().enumerate() {
        let place = if many { format!("{from}, document {}", at + 1) } else { from.to_owned() };
        let document = Document { object, base: base.to_owned(), place };
        check(&document)?;
        documents.push(document);
    }
    Ok(documents)
}

fn check(document: &Document) -> Result<(), BadInput> {
    let place = &document.place;
    let lacks = |what: &str| Err(BadInput(format!("{place}: the object has no {what}")));
    if !document.object.is_object() {
        return Err(BadInput(format!("{place}: this is not an object with apiVersion, kind and metadata")));
    }
    if document.object["apiVersion"].as_str().is_none_or(str::is_empty) {
        return lacks("apiVersion");
    }
    if document.kind().is_empty() {
        return lacks("kind");
    }
    if document.name().is_empty() {
        return lacks("metadata.name");
    }
    // Bare words such as `n`, `on` and `yes` are booleans in YAML.
    let namespace = document.object["metadata"].get("namespace");
    if namespace.is_some_and(|n| !n.is_string() && !n.is_null()) {
        return Err(BadInput(format!("{place}: metadata.namespace is not a string; put it in quotes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(text: &str) -> Result<Vec<Document>, String> {
        parse(text, "x.yaml", Path::new("/w")).map_err(|e| e.0)
    }

    #[test]
    fn several_documents_and_lists_become_objects() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: other}}\n";
        let found = documents(text).unwrap();
        assert_eq!(found.iter().map(Document::name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found[1].work(), Work::Pod);
        assert_eq!((found[0].namespace(), found[1].namespace()), ("default", "other"));
        assert_eq!(found[1].place, "x.yaml, document 2");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(documents("kind: Pod\nmetadata: {name: a}").unwrap_err(), "x.yaml: the object has no apiVersion");
        assert_eq!(documents("apiVersion: v1\nkind: Pod").unwrap_err(), "x.yaml: the object has no metadata.name");
        let bare = documents("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: n}").unwrap_err();
        assert_eq!(bare, "x.yaml: metadata.namespace is not a string; put it in quotes");
        assert!(documents("- a\n- b").unwrap_err().contains("not an object"));
        assert!(documents("a: [").unwrap_err().starts_with("x.yaml is not YAML: "));
    }
}
