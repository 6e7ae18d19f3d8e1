//! `firesteel operator` as a process on a real API server: its CRDs, probes, metrics, log and shutdown.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::Place;
use crate::program::{Run as _, finish, firesteel};

const PATIENCE: Duration = Duration::from_secs(90);

/// A process that does not outlive the test.
pub(crate) struct Ended(pub(crate) Option<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An address that nothing listens on.
pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Status line and body of a response, if there is one.
pub(crate) fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

pub(crate) fn kubectl(place: &Place, words: &[&str], input: &str) {
    let mut command = Command::new(place.env.kubectl());
    command.arg("--kubeconfig").arg(place.env.kubeconfig()).args(["-n", place.name()]).args(words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
    assert!(child.wait().expect("kubectl ends").success(), "kubectl {words:?}");
}

#[tokio::test]
async fn operator_answers_probes_counts_and_names_the_application_in_each_line() {
    let Some(place) = Place::new("operator").await else { return };
    let crds = firesteel(["crds"]).run();
    kubectl(&place, &["apply", "--server-side", "--force-conflicts", "-f", "-"], &crds.stdout);
    let established = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    kubectl(&place, &established, "");

    let (probes, metrics) = (free(), free());
    let mut command = firesteel(["operator", "--log-json", "--leader-election", "--namespaces", place.name()]);
    command.arg("--kubeconfig").arg(place.env.kubeconfig()).args(["--leader-election-lock-namespace", place.name()]);
    command.args(["--health-probe-bind-address", &probes.to_string(), "--metrics-bind-address", &metrics.to_string()]);
    command.args(["--enable-metrics=true", "--metrics-labels=namespace"]);
    // Flags of the existing operator.
    command.args(["--workqueue-ratelimiter-bucket-qps", "50", "--kube-api-qps=100", "--cache-sync-timeout=60s"]);
    command.args(["--zap-log-level=info", "--zap-time-encoding=epoch", "--pprof-bind-address=0"]);
    let mut operator = Ended(Some(command.start()));
    let began = Instant::now();
    for path in ["/healthz", "/readyz"] {
        while !get(probes, path, &[]).is_some_and(|(status, _)| status.ends_with("200 OK")) {
            assert!(began.elapsed() < PATIENCE, "{path} was never healthy");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let app = json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": "pi"},
        "spec": {"type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
            "mainApplicationFile": "local:///opt/app.jar", "driver": {}, "executor": {"instances": 1}},
    });
    kubectl(&place, &["apply", "-f", "-"], &app.to_string());
    kubectl(&place, &["wait", "sparkapp/pi", "--for=condition=Succeeded", "--timeout=90s"], "");
    let counted = format!("spark_application_success_count{{namespace=\"{}\"}} 1", place.name());
    let told = |text: &Option<(String, String)>| text.as_ref().is_some_and(|(_, body)| body.contains(&counted));
    let mut text = get(metrics, "/metrics", &[]);
    while !told(&text) {
        assert!(began.elapsed() < 2 * PATIENCE, "{counted} is not in {text:?}");
        std::thread::sleep(Duration::from_millis(100));
        text = get(metrics, "/metrics", &[]);
    }

    let child = operator.0.take().expect("the operator");
    assert!(Command::new("kill").arg(child.id().to_string()).status().expect("kill").success());
    let ran = finish(child);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut moves = Vec::new();
    for line in ran.stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let time = line["timestamp"].as_str().and_then(|time| time.parse::<f64>().ok());
        assert!(time.is_some_and(|time| time > 1e9), "{line}");
        let Some(to) = line["fields"]["to"].as_str() else { continue };
        assert_eq!(line["span"]["application"], "pi", "{line}");
        assert_eq!(line["span"]["namespace"], place.name(), "{line}");
        moves.push(to.to_owned());
    }
    assert_eq!(moves.first().map(String::as_str), Some("SUBMITTED"), "{moves:?}");
    assert_eq!(moves.last().map(String::as_str), Some("COMPLETED"), "{moves:?}");
}

#[test]
fn a_flag_for_what_does_not_exist_ends_the_operator_with_what_to_use_instead() {
    for (flag, remedy) in [
        ("--pprof-bind-address=:6060", "profile the process with perf"),
        ("--submitter-service-url=http://submitter", "remove it"),
        ("--feature-gates=LoadSparkDefaults=true", "put the settings into spec.sparkConf"),
        ("--default-batch-scheduler=volcano", "add --enable-batch-scheduler"),
    ] {
        let ran = firesteel(["operator", "--kubeconfig", "/nowhere", flag]).run();
        assert_eq!(ran.code, Some(2), "{flag}: {ran:?}");
        assert!(ran.stderr.contains(flag.split('=').next().unwrap_or_default()), "{ran:?}");
        assert!(ran.stderr.contains(remedy), "{ran:?}");
    }
}
