//! Uploading local files for the driver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::place::{NO_WAIT, NOWHERE, Place};
use crate::program::Run as _;

fn dependency(dir: &tempfile::TempDir) -> String {
    let file = dir.path().join("dep.jar");
    std::fs::write(&file, "jar of ours").expect("written");
    file.display().to_string()
}

#[tokio::test]
async fn file_target_holds_the_copy_and_the_driver_knows_where() {
    let Some(place) = Place::new("upfile").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let up = format!("file://{}/up", dir.path().display());
    let (jar, path) = (dependency(&dir), ("spark.kubernetes.file.upload.path", up.as_str()));
    let ran = place.submission(&[NO_WAIT, NOWHERE, path, ("spark.jars", &jar)]).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let made =
        std::fs::read_dir(dir.path().join("up")).expect("the target").next().expect("a directory").expect("read");
    assert_eq!(std::fs::read(made.path().join("dep.jar")).expect("the copy"), b"jar of ours");
    let maps: Api<ConfigMap> = Api::namespaced(place.client.clone(), place.name());
    let maps = maps.list(&ListParams::default()).await.expect("config maps").items;
    let map = maps.iter().find(|map| map.name_any().starts_with("spark-drv-")).expect("the driver's");
    let properties = &map.data.as_ref().expect("data")["spark.properties"];
    assert!(properties.contains(&format!("{}/dep.jar", made.file_name().to_string_lossy())), "{properties}");
}

#[tokio::test]
async fn refused_submission_takes_its_files_back() {
    let Some(place) = Place::new("upback").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let up = format!("file://{}/up", dir.path().display());
    let (jar, path) = (dependency(&dir), ("spark.kubernetes.file.upload.path", up.as_str()));
    let account = ("spark.kubernetes.authenticate.driver.serviceAccountName", "no-such");
    let ran = place.submission(&[NO_WAIT, path, account, ("spark.jars", &jar)]).run();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(std::fs::read_dir(dir.path().join("up")).expect("the target").count(), 0);
}

/// A request from an S3 client: first line, headers, body.
type Request = (String, Vec<String>, Vec<u8>);

/// An S3 endpoint that accepts everything and reports what it was sent.
fn endpoint() -> (String, mpsc::Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let mut reader = BufReader::new(stream);
            let mut first = String::new();
            if reader.read_line(&mut first).unwrap_or(0) == 0 {
                continue;
            }
            let mut headers = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a header");
                if line.trim().is_empty() {
                    break;
                }
                headers.push(line.trim().to_lowercase());
            }
            let length =
                headers.iter().find_map(|header| header.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let answer = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).expect("an answer");
            if tell.send((first.trim().to_owned(), headers, body)).is_err() {
                return;
            }
        }
    });
    (address, told)
}

#[tokio::test]
async fn s3_gets_the_file_with_the_credentials_of_the_hadoop_keys() {
    let Some(place) = Place::new("ups3").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (address, told) = endpoint();
    let conf = [
        NO_WAIT,
        NOWHERE,
        ("spark.kubernetes.file.upload.path", "s3a://bucket/spark"),
        ("spark.jars", &dependency(&dir)),
        ("spark.hadoop.fs.s3a.endpoint", &address),
        ("spark.hadoop.fs.s3a.path.style.access", "true"),
        ("spark.hadoop.fs.s3a.access.key", "AKIAOURS"),
        ("spark.hadoop.fs.s3a.secret.key", "hidden"),
    ];
    let ran = place.submission(&conf).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (first, headers, body) = told.recv_timeout(std::time::Duration::from_secs(5)).expect("a request");
    assert!(first.starts_with("PUT /bucket/spark/spark-upload-") && first.contains("/dep.jar HTTP/1.1"), "{first}");
    assert!(
        headers.iter().any(|header| header.starts_with("authorization: aws4-hmac-sha256 credential=akiaours/")),
        "{headers:?}"
    );
    assert_eq!(body, b"jar of ours");
}

/// The store library also reads these names without a prefix; each would change an upload.
#[tokio::test]
async fn variables_without_the_prefix_of_a_store_do_not_redirect_an_upload() {
    let Some(place) = Place::new("upenv").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let ((right, told), (wrong, elsewhere)) = (endpoint(), endpoint());
    let path = ("spark.kubernetes.file.upload.path", "s3a://bucket/spark");
    let mut submission = place.submission(&[NO_WAIT, NOWHERE, path, ("spark.jars", &dependency(&dir))]);
    submission.env("AWS_ENDPOINT", &right).env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "eu-west-1");
    submission.env("AWS_ACCESS_KEY_ID", "AKIAOURS").env("AWS_SECRET_ACCESS_KEY", "hidden");
    for name in ["ENDPOINT", "ENDPOINT_URL", "PROXY_URL"] {
        submission.env(name, &wrong);
    }
    submission.env("REGION", "mars").env("TOKEN", "stolen").env("SKIP_SIGNATURE", "true");
    let ran = submission.run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (first, headers, _) =
        told.recv_timeout(std::time::Duration::from_secs(5)).expect("a request at the right place");
    assert!(first.starts_with("PUT /bucket/spark/spark-upload-"), "{first}");
    let signed = headers.iter().find(|header| header.starts_with("authorization: ")).expect("a signature");
    assert!(signed.contains("/eu-west-1/s3/"), "{signed}");
    assert!(!headers.iter().any(|header| header.starts_with("x-amz-security-token")), "{headers:?}");
    assert!(elsewhere.try_recv().is_err(), "something went elsewhere");
}

#[tokio::test]
async fn credentials_and_endpoint_of_the_hadoop_keys_are_not_mixed_with_those_of_the_environment() {
    let Some(place) = Place::new("upmix").await else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let ((right, told), (wrong, elsewhere)) = (endpoint(), endpoint());
    let mut submission = place.submission(&[
        NO_WAIT,
        NOWHERE,
        ("spark.kubernetes.file.upload.path", "s3a://bucket/spark"),
        ("spark.jars", &dependency(&dir)),
        ("spark.hadoop.fs.s3a.endpoint", &right),
        ("spark.hadoop.fs.s3a.access.key", "AKIAOURS"),
        ("spark.hadoop.fs.s3a.secret.key", "hidden"),
    ]);
    submission
        .env("AWS_ENDPOINT_URL_S3", &wrong)
        .env("AWS_ACCESS_KEY_ID", "AKIATHEIRS")
        .env("AWS_SESSION_TOKEN", "theirs");
    let ran = submission.run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (_, headers, _) = told.recv_timeout(std::time::Duration::from_secs(5)).expect("a request at the right place");
    assert!(headers.iter().any(|header| header.contains("credential=akiaours/")), "{headers:?}");
    assert!(!headers.iter().any(|header| header.starts_with("x-amz-security-token")), "{headers:?}");
    assert!(elsewhere.try_recv().is_err(), "something went elsewhere");
}
