//! Submitting from inside a pod, with the credentials of its service account.
//!
//! A private mount namespace gives only this program the files that a pod would have.

use std::process::Command;

use crate::place::{NO_WAIT, NOWHERE, Place};
use crate::program::{Ran, Run as _, binary, pi};

/// Puts the files where a pod finds them, then runs the program.
const POD: &str = r#"
set -e
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
[ /var/run -ef /run ] || mount --bind /run /var/run
cp "$FILES"/token "$FILES"/ca.crt "$FILES"/namespace /run/secrets/kubernetes.io/serviceaccount/
exec "$@"
"#;

#[tokio::test]
async fn service_account_of_the_pod_is_used_where_there_is_no_kubeconfig() {
    let Some(place) = Place::new("incluster").await else { return };
    let mounts = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !mounts.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: this user may not create a mount namespace");
        return;
    }
    let limited = place.limited(&["pods", "services", "configmaps"], &["create", "get", "delete", "patch"]).await;
    let kubeconfig = kube::config::Kubeconfig::read_from(limited.path()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a config");
    let pem: String = config.root_cert.expect("an authority").iter().map(|der| certificate(der)).collect();
    let files = tempfile::tempdir().expect("a directory");
    for (name, text) in [("token", limited.token()), ("ca.crt", &pem), ("namespace", place.name())] {
        std::fs::write(files.path().join(name), text).expect("written");
    }
    let inside = |arguments: Vec<String>| -> Ran {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", POD, "pod"]).arg(binary()).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", "/nonexistent");
        command.env("FILES", files.path()).env("SPARK_USER", "tester").run()
    };
    let ran = inside(pi(&place.master(), &[NO_WAIT, NOWHERE, ("spark.kubernetes.namespace", place.name())]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.contents().await.len(), 3);

    // A submission id without a namespace means the pod's own.
    let name = ran.stdout.trim().split_once(':').expect("an id").1.to_owned();
    let ran = inside(["submit", "--kill", &name, "--master", &place.master()].map(str::to_owned).to_vec());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.empties().await;
}

fn certificate(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
