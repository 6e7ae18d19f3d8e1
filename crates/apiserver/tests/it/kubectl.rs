//! kubectl, the pinned version and an older one: every verb people use, with the same output as from the real server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use firesteel_apiserver::ApiServer;
use firesteel_testenv::TestEnv;

/// kubectl of the pinned Kubernetes and one before 1.34, built if needed; or the reason why this machine cannot have it.
pub(crate) fn kubectls() -> Result<Vec<PathBuf>, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testenv/testenv");
    let tools = ["kubectl", "kubectl-old"];
    let run = |verb: &str, words: &[&str]| {
        let output = Command::new(&script).arg(verb).args(words).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("{} does not run: {error}", script.display()))?;
        if output.status.code() == Some(77) {
            return Err("testenv cannot be built on this machine, see its words above".to_owned());
        }
        assert!(output.status.success(), "testenv {verb} {words:?} failed; its words stand above");
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
    };
    if let Some(reason) = std::env::var_os(firesteel_testenv::SKIP) {
        return Err(reason.to_string_lossy().into_owned());
    }
    run("build", &tools)?;
    tools.iter().map(|tool| run("path", &[tool])).collect()
}

pub(crate) struct Shell {
    kubectl: PathBuf,
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    fn new(kubectl: &Path, kubeconfig: &str) -> Self {
        let home = tempfile::tempdir().expect("directory");
        let file = home.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig).expect("kubeconfig");
        Self { kubectl: kubectl.to_owned(), home, kubeconfig: file }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .args(words(line))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str, input: &str) -> Output {
        let mut child = self.command(line).spawn().expect("kubectl starts");
        child.stdin.take().expect("stdin").write_all(input.as_bytes()).expect("input");
        child.wait_with_output().expect("kubectl ends")
    }

    /// The output of a command that must succeed.
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

/// Splits a line at spaces, except inside single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("never empty").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {selector: {a: b}, ports: [{port: 80}]}\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_people_use_work() {
    let kubectls = match kubectls() {
        Ok(found) => found,
        Err(reason) => {
            eprintln!("SKIPPED, no kubectl: {reason}");
            return;
        }
    };
    for kubectl in kubectls {
        let server = ApiServer::builder().start().await.expect("the server starts");
        let shell = Shell::new(&kubectl, &server.admin_kubeconfig());
        tokio::task::spawn_blocking(move || session(&shell)).await.expect("the session ends");
        server.shutdown().await;
    }
}

fn session(shell: &Shell) {
    assert_eq!(shell.ok("create namespace t", ""), "namespace/t created");
    // These use protobuf on the wire.
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
    shell.ok("-n t patch configmap foo -p '{\"data\":{\"z\":\"1\"}}'", "");
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

    let request = crate::certificates::pem_request("ann", "devs");
    for (name, verb, decided) in [("yes", "approve", "Approved"), ("no", "deny", "Denied")] {
        let manifest = format!(
            "{{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {{name: '{name}'}}, spec: \
             {{request: {request}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}}}"
        );
        shell.ok("apply -f -", &manifest);
        let said = shell.ok(&format!("certificate {verb} {name}"), "");
        assert_eq!(said, format!("certificatesigningrequest.certificates.k8s.io/{name} {}", decided.to_lowercase()));
        assert!(shell.ok(&format!("get csr {name}"), "").ends_with(decided));
    }
}

/// A session without work for controllers, so that the output depends on the API server alone. `@` is the namespace.
const TRANSCRIPT: &[(&str, &str)] = &[
    ("create namespace @", ""),
    ("-n @ create configmap foo --from-literal=a=b", ""),
    ("-n @ create configmap foo --from-literal=a=b", ""),
    ("-n @ create configmap Bad_Name", ""),
    ("-n @ get configmap foo", ""),
    ("-n @ get configmap foo -o wide", ""),
    ("-n @ get configmap foo -o yaml", ""),
    ("-n @ get configmap foo -o yaml --show-managed-fields", ""),
    ("-n @ get configmap foo --show-labels", ""),
    ("-n @ get configmap nothing", ""),
    ("-n @ get nonsense", ""),
    ("-n @ describe configmap foo", ""),
    ("-n @ label configmap foo k=v", ""),
    ("-n @ label configmap foo k=w", ""),
    ("-n @ label configmap foo k=w --overwrite", ""),
    ("-n @ annotate configmap foo note=seen", ""),
    ("-n @ patch configmap foo -p '{\"data\":{\"z\":\"1\"}}'", ""),
    ("-n @ patch configmap foo --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/none\"}]'", ""),
    ("-n @ patch configmap foo --type=merge -p '{\"data\":{\"z\":null}}'", ""),
    ("-n @ wait --for=jsonpath={.data.a}=b configmap/foo --timeout=20s", ""),
    ("-n @ get configmaps -l k=w -o name", ""),
    ("-n @ get configmaps -l 'k in (', -o name", ""),
    ("-n @ apply -f -", POD),
    ("-n @ apply -f -", POD),
    ("-n @ diff -f -", POD_CHANGED),
    ("-n @ apply -f - --dry-run=server", POD_CHANGED),
    ("-n @ apply -f -", POD_CHANGED),
    ("-n @ apply --server-side -f -", POD_CHANGED),
    ("-n @ apply --server-side --field-manager=other -f -", POD),
    ("-n @ apply --server-side --field-manager=other --force-conflicts -f -", POD),
    ("-n @ get pod p -o wide", ""),
    ("-n @ get pod p -o jsonpath={.spec.containers[*].image}", ""),
    ("-n @ describe pod p", ""),
    ("-n @ events", ""),
    ("-n @ delete pod p --wait=true --timeout=20s", ""),
    ("-n @ get pods", ""),
    ("apply -f -", DEFINITION),
    ("wait --for=condition=Established crd/widgets.@.example.com --timeout=20s", ""),
    ("-n @ apply -f -", WIDGET),
    ("-n @ apply -f -", WIDGET_REFUSED),
    ("-n @ get widgets.@.example.com", ""),
    ("-n @ get widgets.@.example.com w -o yaml", ""),
    ("-n @ scale widgets.@.example.com w --replicas=5", ""),
    ("-n @ scale widgets.@.example.com w --replicas=7 --current-replicas=1", ""),
    ("-n @ get widgets.@.example.com", ""),
    ("-n @ apply --server-side --field-manager=ssa -f -", WIDGET),
    ("-n @ describe widgets.@.example.com w", ""),
    ("explain widgets.spec --api-version=@.example.com/v1", ""),
    ("explain pod.spec.containers.resources.limits", ""),
    ("explain pod.nothing", ""),
    ("api-resources --api-group=@.example.com", ""),
    ("api-resources --api-group=coordination.k8s.io", ""),
    ("-n @ create serviceaccount robot", ""),
    ("-n @ create role r --verb=get,list --resource=pods", ""),
    ("-n @ create rolebinding rb --role=r --serviceaccount=@:robot", ""),
    ("-n @ auth can-i get pods --as system:serviceaccount:@:robot", ""),
    ("-n @ auth can-i delete pods --as system:serviceaccount:@:robot", ""),
    ("-n @ get secrets --as system:serviceaccount:@:robot", ""),
    ("-n @ get pods --as system:serviceaccount:@:robot", ""),
    ("-n @ delete configmap foo --dry-run=server", ""),
    ("-n @ delete configmaps -l k=w", ""),
    ("-n @ delete configmap foo", ""),
    ("delete crd widgets.@.example.com", ""),
];

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}}
spec:
  schedulerName: nobody
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: 'busybox:1', env: [{name: A, value: '1'}], resources: {requests: {cpu: 100m, memory: 64Mi}}}]
";
const POD_CHANGED: &str = "apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: q}}
spec:
  schedulerName: nobody
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: 'busybox:2', env: [{name: A, value: '1'}], resources: {requests: {cpu: 100m, memory: 64Mi}}}]
";
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.@.example.com}
spec:
  group: '@.example.com'
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wi]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns: [{name: Replicas, type: integer, jsonPath: .spec.replicas}, {name: Colour, type: string, jsonPath: .spec.colour, priority: 0}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            description: What is wanted.
            type: object
            required: [colour]
            properties:
              replicas: {type: integer, minimum: 0, default: 1, description: How many.}
              colour: {type: string, enum: [red, green]}
          status: {type: object, properties: {replicas: {type: integer}}}
";
const WIDGET: &str = "apiVersion: '@.example.com/v1'
kind: Widget
metadata: {name: w}
spec: {colour: red}
";
const WIDGET_REFUSED: &str = "apiVersion: '@.example.com/v1'
kind: Widget
metadata: {name: w2}
spec: {colour: blue}
";

/// The output of a session, line by line.
fn transcript(shell: &Shell, namespace: &str) -> Vec<String> {
    let mut said = Vec::new();
    for (line, input) in TRANSCRIPT {
        let output = shell.run(&line.replace('@', namespace), &input.replace('@', namespace));
        said.push(format!("$ kubectl {line}"));
        for (stream, prefix) in [(&output.stdout, ""), (&output.stderr, "! ")] {
            said.extend(String::from_utf8_lossy(stream).lines().map(|line| format!("{prefix}{}", plain(line))));
        }
        said.push(format!("= {}", output.status.code().unwrap_or(-1)));
    }
    said
}

/// A line without run-specific values.
fn plain(line: &str) -> String {
    let patterns = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*", "TIME"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \S+", "TIME"),
        (r#"resourceVersion: "\d+""#, "resourceVersion: REVISION"),
        (r"Resource Version:\s+\d+", "Resource Version: REVISION"),
        (r"kube-api-access-\w+", "kube-api-access"),
        (r"https://\S+", "URL"),
        (r"/tmp/\S+", "FILE"),
        (r"(^|\s)\d+[smh](\d+[sm])?(\s|$)", " AGE "),
        (r"\s+", " "),
    ];
    let mut text = line.to_owned();
    for (pattern, replacement) in patterns {
        text = regex::Regex::new(pattern).expect("a pattern").replace_all(&text, replacement).into_owned();
    }
    text.trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_the_same_as_with_the_real_server() {
    let Some(environment) = TestEnv::get() else { return };
    let kubectls = match kubectls() {
        Ok(found) => found,
        Err(reason) => {
            eprintln!("SKIPPED, no kubectl: {reason}");
            return;
        }
    };
    let real = std::fs::read_to_string(environment.kubeconfig()).expect("kubeconfig");
    let server = ApiServer::builder().start().await.expect("the server starts");
    let sessions: Vec<_> = kubectls
        .iter()
        .enumerate()
        .flat_map(|(number, kubectl)| {
            let namespace = format!("say{number}{}", std::process::id());
            let shells = [Shell::new(kubectl, &server.admin_kubeconfig()), Shell::new(kubectl, &real)];
            shells.map(|shell| {
                let namespace = namespace.clone();
                tokio::task::spawn_blocking(move || {
                    let said = transcript(&shell, &namespace);
                    shell.run(&format!("delete namespace {namespace} --wait=false"), "");
                    said
                })
            })
        })
        .collect();
    let mut said = Vec::new();
    for session in sessions {
        said.push(session.await.expect("a session"));
    }
    for (kubectl, pair) in kubectls.iter().zip(said.chunks(2)) {
        let (ours, theirs) = (pair[0].join("\n"), pair[1].join("\n"));
        if ours != theirs {
            let differences: Vec<String> = sections(&ours)
                .into_iter()
                .zip(sections(&theirs))
                .filter(|(ours, theirs)| ours != theirs)
                .map(|(ours, theirs)| format!("--- ours:\n{ours}\n--- the real server's:\n{theirs}"))
                .collect();
            panic!("{}:\n{}", kubectl.display(), differences.join("\n\n"));
        }
    }
    server.shutdown().await;
}

/// A transcript split by command.
fn sections(text: &str) -> Vec<String> {
    format!("\n{text}").split("\n$ ").map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_the_terminal_shows_each_change() {
    let kubectls = match kubectls() {
        Ok(found) => found,
        Err(reason) => {
            eprintln!("SKIPPED, no kubectl: {reason}");
            return;
        }
    };
    let server = ApiServer::builder().start().await.expect("the server starts");
    let kubeconfig = server.admin_kubeconfig();
    let session = move || {
        for (number, kubectl) in kubectls.iter().enumerate() {
            let shell = Shell::new(kubectl, &kubeconfig);
            let name = format!("w{number}");
            shell.ok(&format!("create configmap {name} --from-literal=a=b"), "");
            let watch = format!("get configmap -w --output-watch-events --field-selector metadata.name={name}");
            let mut child = shell.command(&watch).spawn().expect("kubectl starts");
            let mut lines = BufReader::new(child.stdout.take().expect("its words")).lines();
            let mut next = || {
                let line = lines.next().expect("a line").expect("text");
                line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(next(), "EVENT NAME DATA");
            assert_eq!(next(), format!("ADDED {name} 1"));
            shell.ok(&format!("patch configmap {name} -p {{\"data\":{{\"c\":\"d\"}}}}"), "");
            assert_eq!(next(), format!("MODIFIED {name} 2"));
            shell.ok(&format!("delete configmap {name}"), "");
            assert_eq!(next(), format!("DELETED {name} 2"));
            child.kill().expect("kill");
            child.wait().expect("an end");
        }
    };
    tokio::task::spawn_blocking(session).await.expect("the session ends");
    server.shutdown().await;
}
