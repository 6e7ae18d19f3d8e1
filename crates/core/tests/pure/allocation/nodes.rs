//! Nodes that executors avoid.

use firesteel_core::allocation::nodes::keep_away;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

#[test]
fn every_alternative_of_an_affinity_excludes_the_node() {
    let pod = json!({"spec": {"containers": [], "affinity": {"nodeAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    ]}}}}});
    let mut pod: Pod = serde_json::from_value(pod).unwrap();
    keep_away(&mut pod, &["n1".to_owned(), "n2".to_owned()]);
    let pod = serde_json::to_value(&pod).unwrap();
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(path).unwrap();
    for term in terms.as_array().unwrap() {
        let fields: Vec<_> = term["matchFields"].as_array().unwrap().iter().map(|f| f["values"][0].clone()).collect();
        assert_eq!(fields, ["n1", "n2"]);
        assert!(term["matchExpressions"].is_array());
    }
}
