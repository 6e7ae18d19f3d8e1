//! The custom resource definitions, ready for a cluster.

mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::names::{API_APPROVED, GROUP};
use crate::{ExecutorGrant, ExecutorLedger, ScheduledSparkApplication, SparkApplication, SparkConnect};

/// The command that installs and updates the definitions. It takes over fields owned by Helm, Argo or other installers.
pub const UPDATE_COMMAND: &str = "firesteel crds | kubectl apply --server-side --force-conflicts -f -";

/// Every definition, in the order they should be applied.
fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        SparkApplication::crd(),
        ScheduledSparkApplication::crd(),
        SparkConnect::crd(),
        ExecutorGrant::crd(),
        ExecutorLedger::crd(),
    ];
    for crd in crds.iter_mut().filter(|crd| crd.spec.group == GROUP) {
        crd.metadata.annotations.get_or_insert_default().insert(API_APPROVED.0.to_owned(), API_APPROVED.1.to_owned());
    }
    crds
}

/// Every definition as JSON for a cluster, plus what Rust types cannot express: required fields that are read leniently,
/// and validation rules.
pub fn manifests() -> Vec<Value> {
    all()
        .iter()
        .map(|crd| {
            let mut crd = serde_json::to_value(crd).unwrap_or_default();
            let kind = crd.pointer("/spec/names/kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            if kind == "ExecutorLedger" {
                // One writer, one write: a ledger is created with its status.
                crd["spec"]["versions"][0]["subresources"] = json!({});
            }
            if let Some(schema) = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema") {
                strip_defaults(schema);
                let spec = match kind.as_str() {
                    "SparkApplication" => "/properties/spec",
                    "ScheduledSparkApplication" => "/properties/spec/properties/template",
                    _ => "",
                };
                if !spec.is_empty()
                    && let Some(spec) = schema.pointer_mut(spec)
                {
                    spec["required"] = json!(["type", "sparkVersion", "mainApplicationFile", "driver", "executor"]);
                    rules::put(spec);
                }
                if kind == "ExecutorGrant"
                    && let Some(spec) = schema.pointer_mut("/properties/spec")
                {
                    spec["x-kubernetes-validations"] = json!([{
                        "rule": "self == oldSelf",
                        "message": "a grant cannot be changed; submit the application again",
                    }]);
                }
                if kind == "SparkApplication" {
                    rules::name(schema);
                }
                if kind == "ScheduledSparkApplication"
                    && let Some(spec) = schema.pointer_mut("/properties/spec")
                {
                    rules::schedule(spec);
                }
            }
            crd
        })
        .collect()
}

/// Paths of the fields that our definition of this name has and `found` lacks.
pub fn lacks(name: &str, found: &Value) -> Vec<String> {
    let mut lacking = Vec::new();
    let Some(ours) = manifests().into_iter().find(|crd| crd["metadata"]["name"] == name) else { return lacking };
    let ours = &ours["spec"]["versions"][0];
    let version = found["spec"]["versions"].as_array().into_iter().flatten().find(|v| v["name"] == ours["name"]);
    let Some(theirs) = version.filter(|v| v["served"] == true) else {
        return vec![format!("version {}", ours["name"].as_str().unwrap_or_default())];
    };
    if ours["subresources"]["status"].is_object() && !theirs["subresources"]["status"].is_object() {
        lacking.push("the status subresource".to_owned());
    }
    let schema = "/schema/openAPIV3Schema";
    if let (Some(ours), Some(theirs)) = (ours.pointer(schema), theirs.pointer(schema)) {
        compare(ours, theirs, "", &mut lacking);
    }
    lacking
}

fn compare(ours: &Value, theirs: &Value, path: &str, lacking: &mut Vec<String>) {
    if theirs["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, inner) in ours["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (theirs["properties"].get(name), &theirs["additionalProperties"]) {
            (Some(other), _) | (None, other @ Value::Object(_)) => compare(inner, other, &path, lacking),
            (None, Value::Bool(true)) => {}
            (None, _) => lacking.push(path),
        }
    }
    for (inner, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if ours[inner].is_object() && theirs[inner].is_object() {
            compare(&ours[inner], &theirs[inner], &format!("{path}{mark}"), lacking);
        }
    }
}

/// Removes defaults that exist only for lenient reading: the stored object stays as the user wrote it.
fn strip_defaults(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("default");
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(strip_defaults);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(inner) {
            strip_defaults(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_fit_into_the_annotation_of_kubectl_apply() {
        for crd in manifests() {
            let size = serde_json::to_string(&crd).unwrap().len();
            assert!(size < 128 * 1024, "{} has {size} bytes", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn every_field_of_the_driver_is_in_the_schema() {
        let crds = manifests();
        let spec = &crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        assert_eq!(spec["driver"]["properties"].as_object().unwrap().len(), 40);
        assert_eq!(spec["executor"]["properties"].as_object().unwrap().len(), 38);
        assert_eq!(spec["driver"]["properties"]["template"]["x-kubernetes-preserve-unknown-fields"], true);
        assert!(spec["driver"].get("x-kubernetes-preserve-unknown-fields").is_none());
        assert_eq!(spec.as_object().unwrap().len(), 33);
    }

    #[test]
    fn an_older_definition_lacks_what_was_added_since() {
        const NAME: &str = "sparkapplications.sparkoperator.k8s.io";
        let mut crd = manifests().swap_remove(0);
        assert_eq!(lacks(NAME, &crd), [""; 0]);
        let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties").unwrap();
        schema["status"]["properties"].as_object_mut().unwrap().remove("attempt");
        schema["spec"]["properties"]["driver"]["properties"].as_object_mut().unwrap().remove("ports");
        schema["spec"]["properties"]["deps"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        crd["spec"]["versions"][0]["subresources"] = json!({});
        assert_eq!(lacks(NAME, &crd), ["the status subresource", "spec.driver.ports", "status.attempt"]);
        crd["spec"]["versions"][0]["name"] = json!("v1beta1");
        assert_eq!(lacks(NAME, &crd), ["version v1beta2"]);
    }

    #[test]
    fn the_api_server_fills_nothing_in() {
        for crd in manifests() {
            assert!(!crd["spec"]["versions"][0]["schema"].to_string().contains("\"default\":"));
        }
    }

    #[test]
    fn the_resource_looks_to_tools_as_before() {
        let crds = manifests();
        assert_eq!(crds[0]["spec"]["names"]["shortNames"][0], "sparkapp");
        assert_eq!(crds[0]["metadata"]["annotations"][API_APPROVED.0], API_APPROVED.1);
        let version = &crds[0]["spec"]["versions"][0];
        let columns: Vec<_> = version["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(columns, ["Suspend", "Status", "Attempts", "Start", "Finish", "Age"]);
        assert!(version["subresources"]["status"].is_object());
    }
}
