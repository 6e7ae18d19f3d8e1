//! The inputs of a plan besides the submission: unique names, the submitter's environment and files.

use std::collections::BTreeMap;
use std::io;

use k8s_openapi::api::core::v1::Pod;

/// Files on the submitting side, by path or `file:` URI. The plan never accesses the disk itself.
pub trait Files {
    /// The whole content of one file.
    fn read(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Names and sizes of the regular files directly in a directory.
    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>>;
    /// Names of the directories directly in a directory, for globs such as `/jars/*/a.jar`.
    fn directories(&self, dir: &str) -> io::Result<Vec<String>> {
        let _ = dir;
        Ok(Vec::new())
    }
    /// The canonical form of an existing path, with symlinks resolved, as in Spark.
    fn canonical(&self, path: &str) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{path}: links are not followed here")))
    }
}

/// No files at all: for plans whose inputs are all in the configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("no file {path}")))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        Err(io::Error::new(io::ErrorKind::NotFound, format!("no directory {dir}")))
    }
}

/// The parts of names that must be unique. `submit` draws them at random, the operator derives them from
/// (application uid, attempt), tests fix them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// `spark-` and 32 hex digits.
    pub app_id: String,
    /// The unique part of the resource name prefix: 6 hex digits and the time in hex.
    pub resources: String,
    /// The unique part of the driver ConfigMap's name.
    pub config_map: String,
    /// The unique part of the service's name when the usual one would be too long.
    pub service: String,
    /// A UUID for the default local directory.
    pub local_dir: String,
    /// A UUID that upload directories are derived from.
    pub uploads: uuid::Uuid,
}

impl Ids {
    /// Ids from 64 random (or hashed) bytes and the time in milliseconds since the epoch.
    pub fn from_bytes(bytes: &[u8; 64], epoch_ms: u64) -> Self {
        let uuid = |at: usize| {
            let mut b = [0u8; 16];
            b.copy_from_slice(&bytes[at..at + 16]);
            uuid::Builder::from_random_bytes(b).into_uuid()
        };
        let unique = |at: usize| {
            let [a, b, c] = [bytes[at], bytes[at + 1], bytes[at + 2]];
            format!("{a:02x}{b:02x}{c:02x}{:x}", epoch_ms & 0xFF_FFFF_FFFF)
        };
        Ids {
            app_id: format!("spark-{}", uuid(0).simple()),
            resources: unique(48),
            config_map: unique(51),
            service: unique(54),
            local_dir: uuid(16).to_string(),
            uploads: uuid(32),
        }
    }

    /// The UUID of the n-th upload directory.
    pub fn upload(&self, n: usize) -> uuid::Uuid {
        uuid::Uuid::new_v5(&self.uploads, n.to_string().as_bytes())
    }
}

/// Pod templates given as values. They take precedence over the files that `podTemplateFile` settings name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Templates {
    pub driver: Option<Pod>,
    pub executor: Option<Pod>,
}

/// Everything around a submission that its plan depends on.
pub struct PlanContext<'a> {
    pub ids: Ids,
    /// The submitting user, as Spark names it (`SPARK_USER`, else the login name).
    pub user: String,
    /// The submitter's environment.
    pub env: BTreeMap<String, String>,
    pub files: &'a dyn Files,
    pub templates: Templates,
}

/// The submitting user as Spark names it: `SPARK_USER`, even if empty, else Hadoop's: `HADOOP_USER_NAME` or the login.
pub fn submitting_user(env: &BTreeMap<String, String>, login: impl FnOnce() -> String) -> String {
    let hadoop = || env.get("HADOOP_USER_NAME").filter(|user| !user.is_empty());
    env.get("SPARK_USER").or_else(hadoop).cloned().unwrap_or_else(login)
}

/// The path that a plain path or a `file:` URI names.
pub fn local_path(uri: &str) -> String {
    let Some(rest) = uri.strip_prefix("file:") else { return uri.to_owned() };
    // file:///path and file:/path; a host is ignored.
    let path = match rest.strip_prefix("//") {
        Some(with_host) => with_host.find('/').map_or("", |at| &with_host[at..]),
        None => rest,
    };
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_uris_name_the_same_file() {
        for uri in ["/a b/c", "file:/a%20b/c", "file:///a%20b/c", "file://localhost/a%20b/c"] {
            assert_eq!(local_path(uri), "/a b/c", "{uri}");
        }
    }

    #[test]
    fn the_submitter_is_named_by_spark_before_hadoop_and_the_login() {
        let user = |pairs: &[(&str, &str)]| {
            let env = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            submitting_user(&env, || "login".to_owned())
        };
        assert_eq!(user(&[("SPARK_USER", "s"), ("HADOOP_USER_NAME", "h")]), "s");
        assert_eq!(user(&[("SPARK_USER", ""), ("HADOOP_USER_NAME", "h")]), "");
        assert_eq!(user(&[("HADOOP_USER_NAME", "h")]), "h");
        assert_eq!(user(&[("HADOOP_USER_NAME", "")]), "login");
    }

    #[test]
    fn the_same_bytes_make_the_same_ids() {
        let ids = Ids::from_bytes(&[7; 64], 1_700_000_000_000);
        assert_eq!(ids, Ids::from_bytes(&[7; 64], 1_700_000_000_000));
        assert_eq!(ids.app_id.len(), 38);
        assert_ne!(ids.upload(0), ids.upload(1));
    }
}
