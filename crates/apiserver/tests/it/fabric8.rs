//! Spark's own Kubernetes client, fabric8 6.7 (Spark 3.5), 7.4 (Spark 4.1) and 7.6 (Spark 4.3): the program in `tests/fabric8`, with each
//! release's jars and the administrator's kubeconfig as the server writes it.

use std::path::Path;
use std::process::{Command, Stdio};

use firesteel_apiserver::ApiServer;

/// The releases, and a namespace for each.
const SPARKS: [(&str, &str); 3] = [("3.5.9", "default"), ("4.1.4", "kube-public"), ("4.3.0", "kube-node-lease")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sparks_own_client_reads_the_kubeconfig_and_finds_what_it_expects() {
    let compiles = Command::new("javac").arg("-version").output().is_ok_and(|output| output.status.success());
    if !compiles {
        eprintln!("SKIPPED, no javac: `java Source.java` needs a JDK 11 or newer");
        return;
    }
    let server = ApiServer::builder().start().await.expect("the server starts");
    let directory = tempfile::tempdir().expect("directory");
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.admin_kubeconfig()).expect("a file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (spark, namespace) in SPARKS {
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
        let mut session = Command::new("java");
        session
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", &format!("{home}/jars/*")])
            .arg(root.join("tests/fabric8/Session.java"))
            .arg(namespace)
            .env("KUBECONFIG", &kubeconfig);
        let output = tokio::task::spawn_blocking(move || session.output().expect("java")).await.expect("an end");
        let (words, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && words.trim_end().ends_with("done"), "Spark {spark}:\n{words}\n{errors}");
    }
    server.shutdown().await;
}
