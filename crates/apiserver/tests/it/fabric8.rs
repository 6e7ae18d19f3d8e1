//! Spark's own Kubernetes client, fabric8 6.7 (Spark 3.5) and 7.4 (Spark 4.1): the program in `tests/fabric8` with the jars of each.

use std::path::Path;
use std::process::{Command, Stdio};

use firesteel_apiserver::ApiServer;

const SPARKS: [&str; 2] = ["3.5.9", "4.1.4"];
const TOKEN: &str = "fabric8-test-token";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sparks_own_client_finds_what_it_expects() {
    let compiles = Command::new("javac").arg("-version").output().is_ok_and(|output| output.status.success());
    if !compiles {
        eprintln!("SKIPPED, no javac: `java Source.java` needs a JDK 11 or newer");
        return;
    }
    let server =
        ApiServer::builder().token(TOKEN, "spark", &["system:masters"]).start().await.expect("the server starts");
    let directory = tempfile::tempdir().expect("directory");
    let authority = directory.path().join("ca.crt");
    std::fs::write(&authority, server.ca_pem()).expect("a file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (number, spark) in SPARKS.into_iter().enumerate() {
        let found = Command::new(root.join("../../testenv/pyspark"))
            .arg(spark)
            .stderr(Stdio::inherit())
            .output()
            .expect("a script");
        if !found.status.success() {
            eprintln!("SKIPPED, no Spark {spark}: its words stand above");
            continue;
        }
        let home = String::from_utf8_lossy(&found.stdout).trim().to_owned();
        let namespace = ["default", "kube-public"][number];
        let mut session = Command::new("java");
        session
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", &format!("{home}/jars/*")])
            .arg(root.join("tests/fabric8/Session.java"))
            .arg(server.url())
            .arg(&authority)
            .args([TOKEN, namespace])
            .env("KUBECONFIG", "/nonexistent");
        let output = tokio::task::spawn_blocking(move || session.output().expect("java")).await.expect("an end");
        let (words, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && words.trim_end().ends_with("done"), "Spark {spark}:\n{words}\n{errors}");
    }
    server.shutdown().await;
}
