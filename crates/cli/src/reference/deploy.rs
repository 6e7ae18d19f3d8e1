//! The files in `deploy/` that come from the code: what the chart, kustomize and plain manifests share.

use serde_json::{Value, json};

use crate::setup::{Allocator, driver_rules};

const NOTE: &str =
    "# Generated from the code: UPDATE_REFERENCE=1 cargo test -p firesteel-cli --bins reference writes this file.\n";

/// Files by their path below the project's root.
pub(super) fn files() -> Vec<(String, String)> {
    let definitions = firesteel_api::crds::manifests();
    let mut files: Vec<(String, String)> = definitions
        .iter()
        .map(|definition| (format!("deploy/crds/{}.yaml", name(definition)), document(definition)))
        .collect();
    let names: Vec<String> = definitions.iter().map(|definition| format!("{}.yaml", name(definition))).collect();
    files.push(("deploy/crds/kustomization.yaml".to_owned(), kustomization(&names)));
    let policy = firesteel_api::policy::manifests();
    let documents: Vec<String> = policy.iter().map(yaml).collect();
    let policy = format!("{}.yaml", name(&policy[0]));
    files.push((format!("deploy/policy/{policy}"), format!("{NOTE}{}", documents.join("---\n"))));
    files.push(("deploy/policy/kustomization.yaml".to_owned(), kustomization(&[policy])));
    let rules = json!({
        "spark": driver_rules(Allocator::Spark),
        "statefulset": driver_rules(Allocator::StatefulSet),
        "firesteel": driver_rules(Allocator::Firesteel),
    });
    files.push(("deploy/driver-rules.yaml".to_owned(), document(&rules)));
    files
}

fn kustomization(resources: &[String]) -> String {
    document(&json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}))
}

fn document(value: &Value) -> String {
    format!("{NOTE}{}", yaml(value))
}

fn yaml(value: &Value) -> String {
    format!("{}\n", serde_saphyr::to_string(value).unwrap().trim_end())
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}
