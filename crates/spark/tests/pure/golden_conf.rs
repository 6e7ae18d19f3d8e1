//! Compares the configuration that we resolve, before any step of the plan, with the one real Spark passed to its driver.
//!
//! `golden.rs` compares whole objects. This test compares only the keys, so that a wrong key points to argument
//! resolution rather than to a step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::golden::resolve;

/// Keys that steps of the plan write or rewrite.
const OF_THE_PLAN: [&str; 12] = [
    "spark.app.id",
    "spark.app.submitTime",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.port",
    "spark.kerberos.keytab",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.executor.hadoopConfigMapName",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.memoryOverheadFactor",
    "spark.kubernetes.resource.type",
    "spark.kubernetes.submitInDriver",
];

/// Lists whose local entries the plan replaces by their upload targets.
const UPLOADED: [&str; 4] = ["spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").canonicalize().unwrap()
}

/// Every case, with the directory of its version.
fn cases() -> Vec<(PathBuf, String, Value)> {
    let mut found = Vec::new();
    for version in std::fs::read_dir(golden()).unwrap() {
        let version = version.unwrap().path();
        if !version.file_name().unwrap().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        for case in std::fs::read_dir(&version).unwrap() {
            let path = case.unwrap().path();
            if path.extension().is_some_and(|e| e == "json") {
                let case = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
                found.push((version.clone(), path.file_stem().unwrap().to_string_lossy().into_owned(), case));
            }
        }
    }
    found.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    found
}

fn resolved(version: &Path, case: &Value) -> Result<BTreeMap<String, String>, String> {
    let inputs = golden().join("inputs");
    let fill = |text: &Value| text.as_str().unwrap().replace("<INPUTS>", inputs.to_str().unwrap());
    let mut argv = vec!["--spark-version".to_owned(), version.file_name().unwrap().to_str().unwrap().to_owned()];
    argv.extend(case["argv"].as_array().unwrap().iter().map(fill));
    Ok(resolve::resolve(&argv, &resolve::environment(case, inputs.to_str().unwrap()))?.conf)
}

/// `spark.properties` of the case's driver ConfigMap.
fn properties(case: &Value) -> Option<&serde_json::Map<String, Value>> {
    case["objects"].as_array()?.iter().find_map(|object| object["data"]["spark.properties"].as_object())
}

#[test]
fn every_accepted_case_resolves_to_the_keys_spark_wrote() {
    let mut compared = 0;
    for (version, name, case) in cases() {
        if case["exit"] != 0 {
            continue;
        }
        let ours = resolved(&version, &case).unwrap_or_else(|e| panic!("{version:?} {name}: {e}"));
        let Some(theirs) = properties(&case) else { continue };
        let uploads = ours.contains_key("spark.kubernetes.file.upload.path");
        let skip = |key: &str| {
            OF_THE_PLAN.contains(&key)
                || key.starts_with("spark.kubernetes.authenticate.driver.mounted.")
                || key.ends_with("oauthToken")
                || (uploads && UPLOADED.contains(&key))
        };
        let inputs = golden().join("inputs");
        let plain = |value: &str| value.replace(inputs.to_str().unwrap(), "<INPUTS>");
        let ours: BTreeMap<&str, String> =
            ours.iter().filter(|(k, _)| !skip(k)).map(|(k, v)| (k.as_str(), plain(v))).collect();
        let theirs: BTreeMap<&str, String> = theirs
            .iter()
            .filter(|(k, _)| !skip(k))
            .map(|(k, v)| (k.as_str(), v.as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(ours, theirs, "{version:?} {name}");
        compared += 1;
    }
    assert!(compared > 60, "only {compared} cases were compared");
}

#[test]
fn every_refused_case_resolves_or_is_refused_in_one_line() {
    for (version, name, case) in cases() {
        if case["exit"] != 0
            && let Err(message) = resolved(&version, &case)
        {
            assert!(!message.is_empty() && !message.contains('\n'), "{version:?} {name}: {message}");
            assert_ne!(case["refused_by"], "api-server", "{version:?} {name} is refused early: {message}");
        }
    }
}
