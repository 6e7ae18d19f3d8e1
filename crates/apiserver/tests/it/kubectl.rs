//! kubectl itself, where testenv has built one: every verb a person uses.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use firesteel_apiserver::ApiServer;

/// kubectl of the pinned Kubernetes, or nothing on a machine that has not built it.
fn kubectl() -> Option<PathBuf> {
    let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/firesteel/kubernetes");
    std::fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path().join("kubectl")).find(|path| path.exists())
}

struct Shell {
    kubectl: PathBuf,
    home: tempfile::TempDir,
}

impl Shell {
    fn run(&self, line: &str, input: &str) -> Output {
        use std::io::Write as _;
        let mut child = Command::new(&self.kubectl)
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("input");
        child.wait_with_output().expect("kubectl ends")
    }

    /// What a command that succeeds prints.
    fn ok(&self, line: &str, input: &str) -> String {
        let output = self.run(line, input);
        assert!(output.status.success(), "kubectl {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn refused(&self, line: &str, input: &str) -> String {
        let output = self.run(line, input);
        assert!(!output.status.success(), "kubectl {line} succeeded");
        String::from_utf8_lossy(&output.stderr).trim().to_owned()
    }
}

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {selector: {a: b}, ports: [{port: 80}]}\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_people_use_work() {
    let Some(kubectl) = kubectl() else {
        eprintln!("SKIPPED, no kubectl: run testenv/testenv build");
        return;
    };
    let server = ApiServer::builder().start().await.expect("the server starts");
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join("kubeconfig"), server.admin_kubeconfig()).expect("kubeconfig");
    let shell = Shell { kubectl, home };
    tokio::task::spawn_blocking(move || session(&shell)).await.expect("the session ends");
    server.shutdown().await;
}

fn session(shell: &Shell) {
    assert_eq!(shell.ok("create namespace t", ""), "namespace/t created");
    // These go over the wire as protobuf.
    assert_eq!(shell.ok("-n t create configmap foo --from-literal=a=b", ""), "configmap/foo created");
    assert_eq!(shell.ok("-n t create deployment web --image=nginx --replicas=2", ""), "deployment.apps/web created");
    assert_eq!(shell.ok("-n t create secret generic s --from-literal=x=y", ""), "secret/s created");
    let table = shell.ok("-n t get deployments", "");
    let mut rows = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    assert_eq!(rows.next().expect("header"), ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(rows.next().expect("row")[..4], ["web", "0/2", "0", "0"]);
    assert_eq!(shell.ok("-n t scale deployment web --replicas=3", ""), "deployment.apps/web scaled");
    assert_eq!(shell.ok("-n t get deployment web -o jsonpath={.spec.replicas}", ""), "3");
    assert_eq!(shell.ok("-n t set image deployment/web nginx=nginx:2", ""), "deployment.apps/web image updated");

    assert_eq!(shell.ok("-n t apply -f -", SERVICE), "service/svc created");
    assert_eq!(shell.ok("-n t apply -f -", SERVICE), "service/svc unchanged");
    let changed = SERVICE.replace("port: 80", "port: 81");
    assert!(String::from_utf8_lossy(&shell.run("-n t diff -f -", &changed).stdout).contains("+  - port: 81"));
    assert_eq!(shell.ok("-n t apply -f -", &changed), "service/svc configured");
    assert_eq!(shell.ok("-n t get service svc -o jsonpath={.spec.ports[*].port}", ""), "81");
    assert_eq!(shell.ok("-n t apply --server-side --force-conflicts -f -", &changed), "service/svc serverside-applied");
    let strict = shell.refused("-n t apply -f -", &SERVICE.replace("selector", "selectr"));
    assert!(strict.contains("unknown field \"spec.selectr\""), "{strict}");

    shell.ok("-n t label configmap foo k=v", "");
    shell.ok("-n t annotate configmap foo k=v", "");
    shell.ok("-n t patch configmap foo -p {\"data\":{\"z\":\"1\"}}", "");
    shell.ok("-n t wait --for=jsonpath={.data.z}=1 configmap/foo --timeout=5s", "");
    assert_eq!(shell.ok("-n t get configmaps -l k=v -o name", ""), "configmap/foo");
    assert!(shell.ok("explain pod.spec.restartPolicy", "").contains("FIELD: restartPolicy <string>"));
    assert!(shell.ok("api-resources", "").contains("deployments"));
    assert!(shell.ok("-n t describe deployment web", "").contains("3 desired"));

    shell.ok("-n t create serviceaccount robot", "");
    shell.ok("-n t create role r --verb=get --resource=pods", "");
    shell.ok("-n t create rolebinding rb --role=r --serviceaccount=t:robot", "");
    assert_eq!(shell.ok("-n t auth can-i get pods --as system:serviceaccount:t:robot", ""), "yes");
    assert_eq!(
        String::from_utf8_lossy(
            &shell.run("-n t auth can-i delete pods --as system:serviceaccount:t:robot", "").stdout
        )
        .trim(),
        "no"
    );
    assert_eq!(shell.ok("-n t create token robot", "").split('.').count(), 3);
    assert!(
        shell
            .refused("-n t get pods --as nobody", "")
            .contains("cannot list resource \"pods\" in API group \"\" in the namespace \"t\"")
    );

    shell.ok("-n t run x --image=busybox", "");
    assert!(shell.ok("-n t describe pod x", "").contains("kube-api-access-"));
    shell.ok("-n t delete pod x --timeout=10s", "");
    assert_eq!(shell.refused("-n t get pod x", ""), "Error from server (NotFound): pods \"x\" not found");
    shell.ok("-n t events", "");
    assert!(shell.ok("auth whoami", "").contains("kubernetes-admin"));
}
