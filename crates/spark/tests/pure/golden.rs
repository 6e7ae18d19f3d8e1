//! Compares what we plan with what real Spark created: every case in `tests/golden/` goes through the argument parser,
//! and the planned objects are compared with those in a real API server after `spark-submit`.
//!
//! Both sides are normalised first (see `normalize.rs`). Deliberate differences are in `DIFFERENCES`, each with its
//! reason; a case listed there must differ, or the test fails.

pub(crate) mod normalize;
pub(crate) mod plan;
pub(crate) mod resolve;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Cases in which we differ on purpose: (case, what and why).
const DIFFERENCES: &[(&str, &str)] = &[(
    "y44-overhead-negative",
    "Spark subtracts a negative memory overhead from the container, which then cannot hold the heap; we refuse it",
)];

/// Cases that are refused only because of the cluster's state: the plan itself is valid.
const REFUSED_BY_CLUSTER_STATE: &[&str] =
    &["e03-pod-exists", "e04-namespace-missing", "e05a-bad-token", "e05b-forbidden", "e05c-sa-missing", "e12-quota"];

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The versions that have cases.
fn versions() -> Vec<String> {
    let entries = std::fs::read_dir(golden_dir()).expect("tests/golden is part of the repository");
    let mut versions: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    versions.sort();
    versions
}

fn cases(version: &str) -> Vec<(String, Value)> {
    let mut cases: Vec<(String, Value)> = std::fs::read_dir(golden_dir().join(version))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .map(|p| {
            let name = p.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_slice(&std::fs::read(p).unwrap()).unwrap())
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

/// Our objects for a case, or our refusal.
fn planned(version: &str, case: &Value) -> Result<Vec<Value>, String> {
    let inputs = golden_dir().join("inputs").canonicalize().unwrap();
    let inputs = inputs.to_str().unwrap();
    let fill = |text: &Value| text.as_str().unwrap().replace("<INPUTS>", inputs);
    let mut argv = vec!["--spark-version".to_owned(), version.to_owned()];
    argv.extend(case["argv"].as_array().unwrap().iter().map(fill));
    let (_, _, plan) = plan::plan(&argv, resolve::environment(case, inputs))?;
    let mut objects = vec![serde_json::to_value(&plan.pod).unwrap()];
    objects.extend(plan.objects.iter().map(|o| o.to_value().unwrap()));
    Ok(normalize::objects(&objects, inputs))
}

/// Captured objects without their owner, which `submit` adds: the driver pod owns everything.
fn unowned(objects: &[Value]) -> Vec<Value> {
    let mut objects = objects.to_vec();
    for object in objects.iter_mut().filter(|object| object["kind"] != "Pod") {
        assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "Pod");
        object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    }
    objects
}

/// The differences in one case; `None` if all is as in Spark.
fn difference(version: &str, name: &str, case: &Value) -> Option<String> {
    let expected_exit = case["exit"].as_i64().unwrap();
    let ours = planned(version, case);
    match (expected_exit, ours) {
        (0, Ok(ours)) => normalize::diff(&normalize::golden(&unowned(case["objects"].as_array().unwrap())), &ours),
        (0, Err(refusal)) => Some(format!("Spark takes it, we refuse: {refusal}")),
        (_, Err(refusal)) => check_sentence(&refusal),
        (_, Ok(_)) if REFUSED_BY_CLUSTER_STATE.contains(&name) => None,
        (_, Ok(_)) => Some(format!("Spark refuses ({}), we take it", case["error"].as_str().unwrap_or_default())),
    }
}

/// A refusal is one line that is more than a word.
fn check_sentence(refusal: &str) -> Option<String> {
    let good = !refusal.contains('\n') && refusal.split_whitespace().count() >= 4;
    (!good).then(|| format!("not a clear sentence: {refusal:?}"))
}

#[test]
fn every_golden_case_is_planned_as_spark_does() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for version in versions() {
        for (name, case) in cases(&version) {
            count += 1;
            let listed = DIFFERENCES.iter().find(|(case, _)| *case == name);
            match (difference(&version, &name, &case), listed) {
                (None, None) | (Some(_), Some(_)) => {}
                (Some(difference), None) => wrong.push(format!("== {version}/{name}\n{difference}")),
                (None, Some(_)) => wrong.push(format!("== {version}/{name}\nlisted as different, but equal")),
            }
        }
    }
    assert!(count > 100, "only {count} cases found");
    assert!(wrong.is_empty(), "{} of {count} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_negative_memory_overhead_is_refused() {
    for version in versions() {
        for (_, case) in cases(&version).iter().filter(|(name, _)| name == "y44-overhead-negative") {
            let refusal = planned(&version, case).expect_err("a negative overhead is no plan");
            assert!(refusal.contains("spark.driver.memoryOverhead"), "{refusal}");
        }
    }
}

#[test]
fn there_are_at_most_ten_deliberate_differences() {
    assert!(DIFFERENCES.len() <= 10);
}
