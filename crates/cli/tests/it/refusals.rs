//! Every refusal is one line on stderr with a remedy, a non-zero exit code and an empty stdout.

use std::os::unix::fs::PermissionsExt as _;

use crate::place::{NO_WAIT, Place};
use crate::program::{Run as _, firesteel, pi};

const MASTER: &str = "k8s://https://127.0.0.1:1";
const JAR: &str = "local:///app.jar";

#[test]
fn wrong_input_is_told_in_one_line_each() {
    let cluster = ["--master", MASTER, "--deploy-mode", "cluster", "--class", "C"];
    let image = ["--conf", "spark.kubernetes.container.image=spark:4.1.4"];
    let with = |extra: &[&str]| -> Vec<String> {
        let words = ["submit", "--dry-run"].iter().chain(&cluster).chain(&image).chain(extra);
        words.map(|word| (*word).to_owned()).collect()
    };
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("unknown option", with(&["--excutor-memory", "2g", JAR])),
        ("missing value", with(&["--conf"])),
        ("conf without =", with(&["--conf", "spark.executor.instances", JAR])),
        ("no application", with(&[])),
        ("bad deploy mode", with(&["--deploy-mode", "clustre", JAR])),
        ("bad output", with(&["-o", "toml", JAR])),
        ("bad Spark version", with(&["--spark-version", "four", JAR])),
        ("bad memory", with(&["--driver-memory", "lots", JAR])),
        ("bad interval", with(&["--conf", "spark.kubernetes.report.interval=often", JAR])),
        ("bad wait", with(&["--conf", "spark.kubernetes.submission.waitAppCompletion=perhaps", JAR])),
        ("negative timeout", with(&["--conf", "spark.kubernetes.submission.requestTimeout=-1", JAR])),
        (
            "missing local file",
            with(&["--conf", "spark.kubernetes.file.upload.path=s3a://b/x", "--jars", "/no/such.jar", JAR]),
        ),
        (
            "unknown upload scheme",
            with(&["--conf", "spark.kubernetes.file.upload.path=hdfs://nn/x", "--jars", "/etc/passwd", JAR]),
        ),
        ("no upload path", with(&["--jars", "/etc/passwd", JAR])),
        ("feature steps", with(&["--conf", "spark.kubernetes.driver.pod.featureSteps=com.example.Step", JAR])),
        (
            "no image",
            ["submit", "--dry-run"].iter().chain(&cluster).chain(&[JAR]).map(|word| (*word).to_owned()).collect(),
        ),
        ("bad id", ["submit", "--status", "a b", "--master", MASTER].map(str::to_owned).to_vec()),
        ("bad context", {
            let conf = [("spark.kubernetes.context", "nowhere"), NO_WAIT];
            pi(MASTER, &conf)
        }),
    ];
    let mut told = String::new();
    for (case, arguments) in cases {
        let ran = firesteel(arguments).run();
        told.push_str(&format!("{case}: [{}] {}\n", ran.code.expect("a code"), ran.refusal()));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn client_mode_is_handed_to_the_real_spark_submit() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("spark-submit");
    std::fs::write(&script, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 9\n").expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("allowed");
    let arguments = ["--master", MASTER, "--deploy-mode", "client", "app.py", "--an", "a rg"];
    let path = format!("{}:/bin", dir.path().display());
    let ran = firesteel(["submit"].iter().chain(&arguments)).env("PATH", &path).run();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(9), ""), "{ran:?}");
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), arguments);

    let ran = firesteel(["submit"].iter().chain(&arguments)).env("PATH", "/nonexistent").run();
    assert_eq!(
        ran.refusal(),
        "firesteel: client deploy mode needs the real spark-submit, and there is none in SPARK_HOME/bin or PATH: install Spark, or use --deploy-mode cluster"
    );
}

#[test]
fn server_that_is_not_there_is_told() {
    let ran = firesteel(pi(MASTER, &[NO_WAIT])).run();
    assert_eq!(
        ran.refusal(),
        "firesteel: nothing listens at https://127.0.0.1:1: check --master and whether the API server runs"
    );
    let ran = firesteel(pi("k8s://https://no-such-host.invalid:6443", &[NO_WAIT])).run();
    assert!(ran.refusal().contains("no-such-host.invalid"), "{ran:?}");
}

#[test]
fn server_that_never_answers_is_given_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let master = format!("k8s://http://{}", listener.local_addr().expect("an address"));
    let conf = [NO_WAIT, ("spark.kubernetes.submission.requestTimeout", "300")];
    let ran = firesteel(pi(&master, &conf)).run();
    let line = ran.stderr.lines().last().expect("a line");
    assert!(line.contains("did not answer in time"), "{ran:?}");
    assert_eq!(ran.code, Some(1));
}

#[tokio::test]
async fn untrusted_certificate_and_bad_token_are_told() {
    let Some(place) = Place::new("trust").await else { return };
    let conf = |extra: &[(&'static str, &'static str)]| -> Vec<(&'static str, &'static str)> {
        [NO_WAIT].iter().chain(extra).copied().collect()
    };
    let ran = firesteel(pi(&place.master(), &conf(&[]))).run();
    assert!(ran.refusal().contains("is signed by an unknown authority"), "{ran:?}");
    let token = conf(&[
        ("spark.kubernetes.trust.certificates", "true"),
        ("spark.kubernetes.authenticate.submission.oauthToken", "stale"),
    ]);
    let ran = firesteel(pi(&place.master(), &token)).run();
    assert!(ran.refusal().contains("does not accept our credentials"), "{ran:?}");
}

#[tokio::test]
async fn token_and_authority_from_the_configuration_are_enough() {
    let Some(place) = Place::new("token").await else { return };
    let limited = place.limited(&["pods", "services", "configmaps"], &["create", "get", "delete", "patch"]).await;
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    std::fs::write(&token, limited.token()).expect("written");
    let token = token.display().to_string();
    let conf = [
        NO_WAIT,
        ("spark.kubernetes.namespace", place.name()),
        ("spark.kubernetes.trust.certificates", "true"),
        ("spark.kubernetes.authenticate.submission.oauthTokenFile", &token),
    ];
    let ran = firesteel(pi(&place.master(), &conf)).run();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.contents().await.len(), 3);
}
