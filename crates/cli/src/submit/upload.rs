//! Uploads local files to where the driver can fetch them: `spark.kubernetes.file.upload.path`.
//!
//! Credentials come from the store's usual environment variables and from the `spark.hadoop.*` keys that Hadoop's file
//! systems read. If the submission fails afterwards, its files are removed again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use firesteel_spark::SparkConf;
use firesteel_spark::driver::Upload;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, WriteMultipart};
use tokio::io::AsyncReadExt as _;

use crate::disk;
use crate::exit::BadInput;
use crate::output::Printer;

/// Files up to this size are sent in one request.
const ONE_REQUEST: u64 = 8 << 20;
const PART: usize = 8 << 20;
/// Parts in flight at the same time.
const PARTS: usize = 4;

/// The parts of a target URI, not decoded: Hadoop takes paths literally.
#[derive(Debug, PartialEq, Eq)]
struct Target<'u> {
    scheme: &'u str,
    /// Bucket, or container and account.
    authority: &'u str,
    path: &'u str,
}

impl<'u> Target<'u> {
    fn parse(uri: &'u str) -> anyhow::Result<Target<'u>> {
        let (scheme, rest) = uri.split_once(':').unwrap_or(("file", uri));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        // The path the user wrote: each file gets its own directory below it.
        let written = uri.rfind("/spark-upload-").map_or(uri, |at| &uri[..at]);
        let known = match scheme {
            "file" => authority.is_empty(),
            "s3" | "s3a" | "gs" => !authority.is_empty(),
            "abfs" | "abfss" => authority.contains('@'),
            _ => {
                return Err(BadInput(format!(
                    "spark.kubernetes.file.upload.path={written}: files can be uploaded to s3a://, gs://, abfss:// and file:// only"
                ))
                .into());
            }
        };
        if !known {
            return Err(BadInput(format!(
                "spark.kubernetes.file.upload.path={written} does not name a location; write s3a://BUCKET/PATH, gs://BUCKET/PATH, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH or file:///PATH"
            ))
            .into());
        }
        Ok(Target { scheme, authority, path })
    }
}

/// Uploaded files, so that they can be removed again.
#[derive(Default)]
pub(crate) struct Shipped {
    objects: Vec<(Arc<dyn ObjectStore>, Path)>,
    files: Vec<PathBuf>,
}

impl Shipped {
    /// Removes the uploaded files, as far as possible.
    pub(crate) async fn take_back(self) {
        for (store, path) in self.objects {
            let _ = store.delete(&path).await;
        }
        for path in self.files {
            let _ = fs::remove_file(&path);
            // Every upload has a new directory, which holds nothing else.
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}

/// Checks all targets and sources before the first byte is sent.
pub(crate) fn check(uploads: &[Upload]) -> anyhow::Result<()> {
    for upload in uploads {
        Target::parse(&upload.to)?;
        let meta = disk::local(&upload.from).and_then(fs::metadata);
        let problem = match meta {
            Ok(meta) if meta.is_file() => continue,
            Ok(_) => "it is not a file".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(BadInput(format!(
            "{} cannot be uploaded: {problem}; use local:// for files inside the image",
            upload.from
        ))
        .into());
    }
    Ok(())
}

/// Uploads all files, one after the other.
pub(crate) async fn ship(
    uploads: &[Upload],
    conf: &SparkConf,
    env: &BTreeMap<String, String>,
    printer: Printer,
) -> anyhow::Result<Shipped> {
    check(uploads)?;
    let mut shipped = Shipped::default();
    let mut stores: BTreeMap<(String, String), Arc<dyn ObjectStore>> = BTreeMap::new();
    for upload in uploads {
        let target = Target::parse(&upload.to)?;
        printer.talk(format_args!("Uploading {} to {}", upload.from, upload.to));
        let sent = if target.scheme == "file" {
            copy(upload, &target, &mut shipped)
        } else {
            let key = (target.scheme.to_owned(), target.authority.to_owned());
            let store = match stores.get(&key) {
                Some(store) => Ok(store.clone()),
                None => open(&target, conf, env).inspect(|store| {
                    stores.insert(key, store.clone());
                }),
            };
            match store {
                Ok(store) => send(upload, &target, store, &mut shipped).await,
                Err(error) => Err(error),
            }
        };
        if let Err(error) = sent {
            shipped.take_back().await;
            return Err(error.context(format!("cannot upload {} to {}", upload.from, upload.to)));
        }
    }
    Ok(shipped)
}

fn copy(upload: &Upload, target: &Target<'_>, shipped: &mut Shipped) -> anyhow::Result<()> {
    let path = PathBuf::from(target.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    shipped.files.push(path.clone());
    fs::copy(disk::local(&upload.from)?, &path)?;
    Ok(())
}

async fn send(
    upload: &Upload,
    target: &Target<'_>,
    store: Arc<dyn ObjectStore>,
    shipped: &mut Shipped,
) -> anyhow::Result<()> {
    let path = Path::parse(target.path.trim_start_matches('/'))?;
    shipped.objects.push((store.clone(), path.clone()));
    let mut file = tokio::fs::File::open(disk::local(&upload.from)?).await?;
    if file.metadata().await?.len() <= ONE_REQUEST {
        let mut content = Vec::new();
        file.read_to_end(&mut content).await?;
        store.put(&path, content.into()).await.map_err(|error| refused(&error))?;
        return Ok(());
    }
    let mut writer =
        WriteMultipart::new_with_chunk_size(store.put_multipart(&path).await.map_err(|error| refused(&error))?, PART);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        writer.wait_for_capacity(PARTS).await.map_err(|error| refused(&error))?;
        writer.write(&buffer[..read]);
    }
    writer.finish().await.map_err(|error| refused(&error))?;
    Ok(())
}

/// A store's error in one line; its source chain repeats the same text.
fn refused(error: &object_store::Error) -> anyhow::Error {
    let text = error.to_string();
    match error {
        object_store::Error::NotFound { .. } => anyhow::anyhow!("there is no such bucket: {text}"),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            anyhow::anyhow!(
                "the store denied access: {text}; check its credentials in the environment or in spark.hadoop.fs.*"
            )
        }
        _ => anyhow::anyhow!("{text}"),
    }
}

/// Opens the store of a target.
fn open(target: &Target<'_>, conf: &SparkConf, env: &BTreeMap<String, String>) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let url = url::Url::parse(&format!("{}://{}/", target.scheme, target.authority)).context("this is not a URL")?;
    let from_conf = from_conf(target, conf);
    // Never mix credentials: keys from the configuration with a token from the environment would be invalid.
    let own_keys = from_conf.iter().any(|(option, _)| option == S3_KEYS[0]);
    let from_env = from_env(target, env).filter(|(option, _)| !(own_keys && S3_KEYS.contains(&option.as_str())));
    let options: Vec<(String, String)> = from_env.chain(from_conf).collect();
    let (store, _) = object_store::parse_url_opts(&url, options).map_err(|error| refused(&error))?;
    Ok(store.into())
}

/// Options of the store library that are S3 credentials.
const S3_KEYS: [&str; 4] = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_token"];

/// The environment variables for the target's kind of store, as options of the store library. The library also accepts names
/// without the prefix, but a variable such as `ENDPOINT` or `TOKEN` may be meant for something else.
fn from_env(target: &Target<'_>, env: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    let prefix = match target.scheme {
        "s3" | "s3a" => "AWS_",
        "gs" => "GOOGLE_",
        _ => "AZURE_",
    };
    env.iter()
        .filter(move |(name, _)| name.starts_with(prefix))
        .map(|(name, value)| (name.to_lowercase(), value.clone()))
}

/// The Hadoop keys of the configuration, as options of the store library. They come last and win.
fn from_conf(target: &Target<'_>, conf: &SparkConf) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut take = |value: Option<&String>, option: &str| {
        if let Some(value) = value {
            options.push((option.to_owned(), value.clone()));
        }
    };
    match target.scheme {
        "s3" | "s3a" => {
            let bucket = format!("bucket.{}.", target.authority);
            let key = |name: &str| {
                conf.get(&format!("spark.hadoop.fs.s3a.{bucket}{name}"))
                    .or_else(|| conf.get(&format!("spark.hadoop.fs.s3a.{name}")))
            };
            take(key("access.key"), "aws_access_key_id");
            take(key("secret.key"), "aws_secret_access_key");
            take(key("session.token"), "aws_session_token");
            take(key("endpoint.region"), "aws_region");
            if let Some(endpoint) = key("endpoint") {
                let plain = key("connection.ssl.enabled").is_some_and(|enabled| enabled == "false");
                let scheme = if plain { "http" } else { "https" };
                let url = if endpoint.contains("://") { endpoint.clone() } else { format!("{scheme}://{endpoint}") };
                take(Some(&(url.starts_with("http://")).to_string()), "aws_allow_http");
                take(Some(&url), "aws_endpoint");
                // Otherwise the variable AWS_ENDPOINT_URL_S3 would take precedence.
                take(Some(&url), "aws_endpoint_url_s3");
            }
        }
        "gs" => {
            let file = conf
                .get("spark.hadoop.google.cloud.auth.service.account.json.keyfile")
                .or_else(|| conf.get("spark.hadoop.fs.gs.auth.service.account.json.keyfile"));
            take(file, "google_service_account");
        }
        _ => {
            let host = target.authority.split_once('@').map_or("", |(_, host)| host);
            let key = |name: &str| {
                conf.get(&format!("spark.hadoop.fs.azure.{name}.{host}"))
                    .or_else(|| conf.get(&format!("spark.hadoop.fs.azure.{name}")))
            };
            take(key("account.key"), "azure_storage_account_key");
            take(key("account.oauth2.client.id"), "azure_storage_client_id");
            take(key("account.oauth2.client.secret"), "azure_storage_client_secret");
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_split_and_unknown_schemes_refused() {
        let target = Target::parse("s3a://bucket/spark-upload-1/a b.jar").expect("a target");
        assert_eq!(target, Target { scheme: "s3a", authority: "bucket", path: "/spark-upload-1/a b.jar" });
        assert_eq!(Target::parse("file:/tmp/x").expect("a target").path, "/tmp/x");
        let error = Target::parse("hdfs://nn/tmp/spark-upload-1/x").expect_err("unknown").to_string();
        assert_eq!(
            error,
            "spark.kubernetes.file.upload.path=hdfs://nn/tmp: files can be uploaded to s3a://, gs://, abfss:// and file:// only"
        );
        for bad in ["s3a:///x", "abfss://container/x", "file://host/x"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hadoop_keys_reach_the_store_and_those_of_the_bucket_win() {
        let conf: SparkConf = [
            ("spark.hadoop.fs.s3a.access.key", "general"),
            ("spark.hadoop.fs.s3a.bucket.b.access.key", "special"),
            ("spark.hadoop.fs.s3a.endpoint", "minio:9000"),
            ("spark.hadoop.fs.s3a.connection.ssl.enabled", "false"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let options = from_conf(&Target::parse("s3a://b/x").expect("a target"), &conf);
        let find = |name: &str| options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!(find("aws_access_key_id"), Some("special"));
        assert_eq!(find("aws_endpoint"), Some("http://minio:9000"));
        assert_eq!(find("aws_allow_http"), Some("true"));
    }

    #[test]
    fn only_variables_with_the_prefix_of_the_store_become_options() {
        let env: BTreeMap<String, String> = [
            "AWS_REGION",
            "GOOGLE_SERVICE_ACCOUNT",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "REGION",
            "ENDPOINT",
            "TOKEN",
            "aws_token",
        ]
        .map(|name| (name.to_owned(), "x".to_owned()))
        .into();
        for (target, option) in [
            ("s3a://b/x", "aws_region"),
            ("gs://b/x", "google_service_account"),
            ("abfss://c@a.dfs.core.windows.net/x", "azure_storage_account_key"),
        ] {
            let target = Target::parse(target).expect("a target");
            let options: Vec<String> = from_env(&target, &env).map(|(option, _)| option).collect();
            assert_eq!(options, [option]);
        }
    }

    #[test]
    fn file_is_copied_and_can_be_taken_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("app.jar");
        fs::write(&from, "jar").expect("written");
        let to = dir.path().join("up/spark-upload-1/app.jar");
        let upload = Upload {
            from: from.display().to_string(),
            to: format!("file://{}", to.display()),
            input: firesteel_spark::Input::Application,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let shipped = runtime.block_on(ship(&[upload], &SparkConf::new(), &BTreeMap::new(), Printer)).expect("shipped");
        assert_eq!(fs::read(&to).expect("there"), b"jar");
        runtime.block_on(shipped.take_back());
        assert!(!to.exists() && !to.parent().expect("a directory").exists());
    }
}
