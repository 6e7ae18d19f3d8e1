//! Probes and hooks.

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::json;

use crate::harness::{World, phase};
use crate::sh;

pub(crate) async fn a_pre_stop_hook_runs_before_the_end(world: World) {
    let shared = tempfile::tempdir().expect("dir");
    let mut spec = sh("trap 'echo term >> /shared/order; exit 0' TERM; while true; do sleep 0.1; done");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "h", "mountPath": "/shared"}]);
    spec["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /shared/order"]}}});
    spec["volumes"] = json!([{"name": "h", "hostPath": {"path": shared.path(), "type": "Directory"}}]);
    world.run("hooked", spec).await;
    world.running("hooked").await;
    world.delete("hooked").await;
    world.deleted("hooked").await;
    assert_eq!(std::fs::read_to_string(shared.path().join("order")).expect("order"), "hook\nterm\n");
    world.finish().await;
}

pub(crate) async fn probes_decide_about_readiness_and_restarts(world: World) {
    let mut spec = sh("sleep 1; touch /tmp/ready; sleep 2; touch /tmp/sick; sleep 60");
    spec["restartPolicy"] = json!("Always");
    spec["terminationGracePeriodSeconds"] = json!(1);
    let probe = |command: &str, failures: u32| json!({"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, "failureThreshold": failures});
    spec["containers"][0]["readinessProbe"] = probe("test -e /tmp/ready", 1);
    spec["containers"][0]["livenessProbe"] = probe("test ! -e /tmp/sick", 2);
    world.run("probed", spec).await;
    let ready = |p: &k8s_openapi::api::core::v1::Pod| {
        p.status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref()?.first().map(|c| (c.ready, c.restart_count)))
            .unwrap_or_default()
    };
    world.until("probed", "running and not ready", |p| phase(p) == "Running" && !ready(p).0).await;
    world.until("probed", "ready", |p| ready(p) == (true, 0)).await;
    world.until("probed", "restarted", |p| ready(p).1 >= 1).await;
    world.event("probed", "Unhealthy Liveness probe failed").await;
    world.delete("probed").await;
    world.deleted("probed").await;
    world.finish().await;
}

fn ready(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()?.first()).is_some_and(|c| c.ready)
}

/// Network probes: HTTP that answers 500 first and redirects later, HTTPS with any certificate, TCP.
pub(crate) async fn probes_ask_over_the_network(world: World) {
    let made = rcgen::generate_simple_self_signed(vec!["nobody.example".to_owned()]).expect("a certificate");
    let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
    world.create::<Secret>(json!({"metadata": {"name": "tls"}, "stringData": {"pem": pem}})).await;
    let server = r#"
import http.server, os, ssl, threading, time
begun = time.time()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/" and self.headers["X-Mark"] == "yes":
            self.send_response(302 if time.time() > begun + 2 else 500)
            self.send_header("Location", "/well")
        else:
            self.send_response(200 if self.path == "/well" else 404)
        self.end_headers()
def serve(port, tls):
    server = http.server.HTTPServer((os.environ["IP"], port), Answer)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("/tls/pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
threading.Thread(target=serve, args=(8443, True), daemon=True).start()
serve(8000, False)
"#;
    let container = |name: &str, command: serde_json::Value, probes: serde_json::Value| {
        let mut all = json!({"name": name, "command": command, "ports": [{"name": "web", "containerPort": 8000}],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]});
        for (key, value) in probes.as_object().expect("probes") {
            all[key] = value.clone();
        }
        all
    };
    let http = json!({"httpGet": {"port": "web", "path": "/", "httpHeaders": [{"name": "X-Mark", "value": "yes"}]}, "periodSeconds": 1, "timeoutSeconds": 5});
    let https = json!({"httpGet": {"port": 8443, "path": "/well", "scheme": "HTTPS"}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 60});
    let tcp = json!({"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60, "timeoutSeconds": 5});
    let probes = json!({"startupProbe": tcp, "readinessProbe": http, "livenessProbe": https});
    let spec = json!({"containers": [container("c", json!(["python3", "-c", server]), probes)],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}]});
    world.run("asked", spec).await;
    let idle = json!({"readinessProbe": {"tcpSocket": {"port": 9}, "periodSeconds": 1}});
    let spec = json!({"containers": [container("c", json!(["sleep", "300"]), idle)],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}]});
    world.run("deaf", spec).await;
    let pod = world.until("asked", "ready", ready).await;
    assert_eq!(pod.status.and_then(|s| s.container_statuses).map(|c| c[0].restart_count), Some(0), "it lives");
    world.event("asked", "Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 500").await;
    world.event("deaf", "Unhealthy Readiness probe failed: dial tcp 127.").await;
    let deaf = world.pods().get("deaf").await.expect("a pod");
    assert!(phase(&deaf) == "Running" && !ready(&deaf));
    world.finish().await;
}

/// postStart before readiness, preStop before termination; a failed hook stops its container.
pub(crate) async fn hooks_run_at_both_ends(world: World) {
    let shared = tempfile::tempdir().expect("dir");
    std::fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("mode");
    let mut spec = sh("trap 'echo term $(date +%s) >> /shared/order; exit 0' TERM; while true; do sleep 0.1; done");
    spec["terminationGracePeriodSeconds"] = json!(20);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "h", "mountPath": "/shared"}]);
    spec["containers"][0]["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "sleep 2; echo begun >> /shared/order"]}},
        "preStop": {"sleep": {"seconds": 2}}});
    spec["volumes"] = json!([{"name": "h", "hostPath": {"path": shared.path()}}]);
    world.run("hooked", spec.clone()).await;
    world.until("hooked", "started and not ready", |p| phase(p) == "Running" && !ready(p)).await;
    world.running("hooked").await;
    let order = || std::fs::read_to_string(shared.path().join("order")).unwrap_or_default();
    assert_eq!(order(), "begun\n", "ready only after the hook");
    let begun = std::time::Instant::now();
    world.delete("hooked").await;
    world.deleted("hooked").await;
    assert!(order().contains("term "), "{}", order());
    assert!(begun.elapsed() >= std::time::Duration::from_secs(2), "it slept first: {:?}", begun.elapsed());
    spec["containers"][0]["lifecycle"] = json!({"postStart": {"exec": {"command": ["sh", "-c", "echo no; exit 7"]}}});
    world.run("unhooked", spec).await;
    world.ended("unhooked").await;
    world.event("unhooked", "FailedPostStartHook PostStartHook failed").await;
    world.event("unhooked", "Killing FailedPostStartHook").await;
    world.finish().await;
}

/// A preStop request reaches the container; a failing hook is reported, and the pod terminates anyway.
pub(crate) async fn a_pre_stop_request_is_sent(world: World) {
    let server = "import http.server, os, sys\nclass A(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        open('/shared/asked', 'w').write(self.path); self.send_response(200); self.end_headers()\nhttp.server.HTTPServer((os.environ['IP'], 8000), A).serve_forever()\n";
    let shared = tempfile::tempdir().expect("dir");
    std::fs::set_permissions(shared.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("mode");
    let spec = |port: u16| {
        json!({
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "command": ["python3", "-c", server],
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
            "volumeMounts": [{"name": "h", "mountPath": "/shared"}],
            "lifecycle": {"preStop": {"httpGet": {"port": port, "path": "/leave"}}}}],
        "volumes": [{"name": "h", "hostPath": {"path": shared.path()}}]})
    };
    world.run("asked", spec(8000)).await;
    world.run("unasked", spec(9)).await;
    world.running("asked").await;
    world.running("unasked").await;
    world.delete("asked").await;
    world.delete("unasked").await;
    world.deleted("asked").await;
    world.deleted("unasked").await;
    assert_eq!(std::fs::read_to_string(shared.path().join("asked")).expect("the request"), "/leave");
    world.event("unasked", "FailedPreStopHook").await;
    world.finish().await;
}
