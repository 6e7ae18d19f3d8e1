//! Local files that an application names: copied into the cluster's data directory and mounted read-only into its pods.
//!
//! There is no upload and no server: on one machine a file only has to be visible in the pod. Files are copied because the
//! pod's user may not be able to read the original.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use crate::exit::BadInput;

/// Where pods see the files.
pub(crate) const MOUNT: &str = "/opt/firesteel/files";
/// The name of the volume.
pub(crate) const VOLUME: &str = "firesteel-files";

/// The files of one run.
#[derive(Debug)]
pub(crate) struct StagedFiles {
    directory: PathBuf,
    count: usize,
}

impl StagedFiles {
    /// Files to be staged in a directory that is created when needed.
    pub(crate) fn at(directory: PathBuf) -> Self {
        StagedFiles { directory, count: 0 }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Copies a file; returns its URI inside pods.
    pub(crate) fn put(&mut self, file: &Path) -> anyhow::Result<String> {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let place = self.directory.join(self.count.to_string());
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        for directory in [&self.directory, &place] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let copy = place.join(&name);
        fs::copy(file, &copy).with_context(|| format!("copy {} to {}", file.display(), copy.display()))?;
        let executable = fs::metadata(file)?.permissions().mode() & 0o111;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o644 | executable))?;
        let uri = local_uri(&format!("{MOUNT}/{}/{name}", self.count));
        self.count += 1;
        Ok(uri)
    }

    /// Deletes the copies.
    pub(crate) fn clear(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A pod path as a URI, with special characters encoded, including commas, which separate list entries.
pub(crate) fn local_uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().fold("local://".to_owned(), |uri, byte| uri + &encode(byte))
}

/// The path on this machine that a `file:` URI or plain path names; `None` for other schemes.
fn path_of(text: &str, base: &Path) -> Option<PathBuf> {
    if let Some(rest) = text.strip_prefix("file:") {
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let path = percent_decode(rest.split('#').next().unwrap_or_default());
        return Some(base.join(path));
    }
    let scheme =
        text.split_once(':').is_some_and(|(s, _)| s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)));
    if scheme || text.is_empty() { None } else { Some(base.join(text.split('#').next().unwrap_or(text))) }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 3;
            }
            (other, _) => {
                out.push(other);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The local file that a reference names, if any. A `file:` URI or relative path must exist; an absolute path that does not is
/// taken as a path inside the image.
pub(crate) fn find(text: &str, base: &Path) -> Result<Option<PathBuf>, BadInput> {
    let Some(path) = path_of(text, base) else { return Ok(None) };
    match path.is_file() {
        true => Ok(Some(path)),
        false if text.starts_with('/') => Ok(None),
        false => Err(BadInput(format!("there is no file {}", path.display()))),
    }
}

/// Copies the file of a reference if it is local; returns the new reference.
pub(crate) fn ship(staged: &mut StagedFiles, text: &str, base: &Path) -> anyhow::Result<Option<String>> {
    let Some(path) = find(text, base)? else { return Ok(None) };
    let uri = staged.put(&path)?;
    let fragment = text.split_once('#').map_or(String::new(), |(_, f)| format!("#{f}"));
    Ok(Some(format!("{uri}{fragment}")))
}

/// The file references in the specification of a SparkApplication.
fn references(spec: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    let Some(spec) = spec.as_object_mut() else { return found };
    for (key, value) in spec.iter_mut() {
        match key.as_str() {
            "mainApplicationFile" => found.push(value),
            "deps" => {
                let lists = value.as_object_mut().into_iter().flatten();
                let files = lists.filter(|(k, _)| ["jars", "files", "pyFiles", "archives"].contains(&k.as_str()));
                found.extend(files.filter_map(|(_, v)| v.as_array_mut()).flatten());
            }
            _ => {}
        }
    }
    found
}

/// Checks that every local file named in the specification of a SparkApplication exists.
pub(crate) fn check_application(spec: &mut Value, base: &Path) -> Result<(), BadInput> {
    for reference in references(spec) {
        find(reference.as_str().unwrap_or_default(), base)?;
    }
    Ok(())
}

/// The specification with every local file as it will be in the pods, for checks before anything is copied.
pub(crate) fn as_shipped(spec: &Value, base: &Path) -> Value {
    let mut spec = spec.clone();
    for reference in references(&mut spec) {
        if let Some(path) = path_of(reference.as_str().unwrap_or_default(), base) {
            *reference = json!(format!("local://{}", path.display()));
        }
    }
    spec
}

/// Copies every local file named in the specification of a SparkApplication and mounts the copies into its pods. Returns
/// whether there were any.
pub(crate) fn ship_application(staged: &mut StagedFiles, spec: &mut Value, base: &Path) -> anyhow::Result<bool> {
    let mut any = false;
    for reference in references(spec) {
        if let Some(uri) = ship(staged, reference.as_str().unwrap_or_default(), base)? {
            *reference = json!(uri);
            any = true;
        }
    }
    if any {
        push(spec, "volumes", json!({"name": VOLUME, "hostPath": {"path": staged.directory(), "type": "Directory"}}));
        for role in ["driver", "executor"] {
            let mount = json!({"name": VOLUME, "mountPath": MOUNT, "readOnly": true});
            if spec[role].is_null() {
                spec[role] = json!({});
            }
            push(&mut spec[role], "volumeMounts", mount);
        }
    }
    Ok(any)
}

fn push(object: &mut Value, list: &str, item: Value) {
    match object.get_mut(list).and_then(Value::as_array_mut) {
        Some(items) => items.push(item),
        None => object[list] = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_this_machine_are_paths() {
        let path = |text: &str| path_of(text, Path::new("/w")).map(|p| p.to_string_lossy().into_owned());
        assert_eq!(path("job.py").as_deref(), Some("/w/job.py"));
        assert_eq!(path("/a/job.py").as_deref(), Some("/a/job.py"));
        assert_eq!(path("file:///a/b%20c.py").as_deref(), Some("/a/b c.py"));
        assert_eq!(path("file:/a/b.py").as_deref(), Some("/a/b.py"));
        assert_eq!(path("x.tgz#env").as_deref(), Some("/w/x.tgz"));
        for remote in ["local:///opt/x.py", "s3a://b/x.py", "https://h/x.jar", "hdfs://n/x"] {
            assert_eq!(path(remote), None, "{remote}");
        }
    }

    #[test]
    fn any_path_is_a_uri_of_its_own() {
        assert_eq!(local_uri("/a b/ü,[1].py"), "local:///a%20b/%C3%BC%2C%5B1%5D.py");
    }

    #[test]
    fn an_application_sees_copies_under_fixed_paths() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("src");
        fs::create_dir(&base).unwrap();
        fs::write(base.join("job.py"), "print(1)").unwrap();
        fs::write(base.join("dep.py"), "").unwrap();
        fs::set_permissions(base.join("job.py"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut staged = StagedFiles::at(directory.path().join("staged"));
        let mut application = json!({"spec": {"mainApplicationFile": "job.py", "driver": {"cores": 1},
            "deps": {"pyFiles": ["dep.py", "s3a://b/x.py"]}}});
        assert!(ship_application(&mut staged, &mut application["spec"], &base).unwrap());
        let main = application["spec"]["mainApplicationFile"].as_str().unwrap().to_owned();
        assert!(main.starts_with("local:///opt/firesteel/files/") && main.ends_with("/job.py"), "{main}");
        let others = application["spec"]["deps"]["pyFiles"].clone();
        assert!(others[0].as_str().unwrap().ends_with("/dep.py") && others[1] == "s3a://b/x.py", "{others}");
        assert_eq!(application["spec"]["driver"]["volumeMounts"][0]["readOnly"], true);
        assert_eq!(application["spec"]["executor"]["volumeMounts"][0]["mountPath"], MOUNT);
        let copy = staged.directory().join(main.strip_prefix("local:///opt/firesteel/files/").unwrap());
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o644, "any user of a pod may read it");
        staged.clear();
        assert!(!copy.exists());
    }

    #[test]
    fn a_missing_file_is_said_and_a_path_of_the_image_left_alone() {
        let mut staged = StagedFiles::at("/nonexistent/staged".into());
        let mut missing = json!({"spec": {"mainApplicationFile": "nope.py"}});
        let error = ship_application(&mut staged, &mut missing["spec"], Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "there is no file /nonexistent/nope.py");
        let mut inside = json!({"spec": {"mainApplicationFile": "/opt/spark/examples/nope.py"}});
        assert!(!ship_application(&mut staged, &mut inside["spec"], Path::new("/w")).unwrap());
        assert!(inside["spec"]["volumes"].is_null() && staged.is_empty());
    }
}
