//! Resolves the arguments of a golden case, with the files that it names.

use std::collections::BTreeMap;
use std::io;

use firesteel_spark::args;
use firesteel_spark::context::Files;
use firesteel_spark::submission::{self, Submission};
use serde_json::Value;

pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(firesteel_spark::context::local_path(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = std::fs::metadata(entry.path())?;
            if metadata.is_file() {
                files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
            }
        }
        Ok(files)
    }

    fn canonical(&self, path: &str) -> io::Result<String> {
        Ok(std::fs::canonicalize(path)?.to_string_lossy().into_owned())
    }
}

/// The environment of a case: that of every capture, with the case's changes; null removes a variable.
pub(crate) fn environment(case: &Value, inputs: &str) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("SPARK_USER".to_owned(), "root".to_owned())]);
    for (name, value) in case["env"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => env.insert(name.clone(), value.replace("<INPUTS>", inputs)),
            None => env.remove(name),
        };
    }
    env
}

pub(crate) fn resolve(argv: &[String], env: &BTreeMap<String, String>) -> Result<Submission, String> {
    let raw = args::parse(argv).map_err(|e| e.to_string())?;
    let context = submission::ResolveContext { env, files: &Disk, cwd: "/", now_ms: 0 };
    match submission::resolve(&raw, context).map_err(|e| e.to_string())? {
        submission::Resolved::Submit(effective) => Ok(effective.submission),
        other => Err(format!("the arguments do not submit in cluster mode but say {other:?}")),
    }
}
