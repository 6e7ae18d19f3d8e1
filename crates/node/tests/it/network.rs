//! Service names and addresses.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::harness::{World, phase};
use crate::sh;

pub(crate) async fn a_service_name_leads_to_its_pods(world: World) {
    let serve = "mkdir -p /w && cd /w && echo found > x && exec python3 -m http.server --bind $IP 8000";
    let mut spec = sh(serve);
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    world.run_labelled("server", json!({"app": "x"}), spec).await;
    world.running("server").await;
    let namespace = world.namespace.clone();
    let fetch = "import sys, time, urllib.request\nfor _ in range(100):\n    try:\n        print(urllib.request.urlopen(sys.argv[1]).read().decode()); break\n    except OSError as e:\n        time.sleep(0.1)\nelse:\n    sys.exit(1)\n";
    world.run("asker", json!({"containers": [{"name": "c", "command": ["python3", "-c", fetch, format!("http://front.{namespace}.svc:8000/x")]}]})).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The Service is created after both pods: their hosts files must be updated.
    world.create::<Service>(json!({"metadata": {"name": "front"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 8000}]}})).await;
    let pod = world.ended("asker").await;
    assert_eq!(phase(&pod), "Succeeded");
    assert!(world.log(&pod, "c").await.contains("found"));
    world.finish().await;
}

/// Two nodes on this machine: each finds the other's pods through headless and ordinary Services, until they are gone.
pub(crate) async fn a_service_leads_to_pods_of_another_node(world: World) {
    let other = world.another_node().await;
    for (name, address) in [("direct", json!("None")), ("front", json!(null))] {
        let spec = json!({"clusterIP": address, "selector": {"app": "z"}, "ports": [{"port": 8000}]});
        world.create::<Service>(json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let mut spec = sh("mkdir -p /w && cd /w && hostname > x && exec python3 -m http.server --bind $IP 8000");
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    other.run_labelled("there", json!({"app": "z"}), spec).await;
    other.running("there").await;
    let ask = r#"
import socket, time, urllib.request
for host in ("direct", "front"):
    for _ in range(200):
        try:
            print(host, urllib.request.urlopen("http://%s:8000/x" % host, timeout=5).read().decode().strip(), flush=True)
            break
        except OSError:
            time.sleep(0.1)
for _ in range(200):
    try:
        socket.gethostbyname("direct")
        time.sleep(0.1)
    except OSError:
        print("gone")
        break
"#;
    world.run("asker", json!({"containers": [{"name": "c", "command": ["python3", "-c", ask]}]})).await;
    let asker = world.running("asker").await;
    for _ in 0..300 {
        if world.log(&asker, "c").await.contains("front") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    other.delete("there").await;
    let pod = world.ended("asker").await;
    assert_eq!(world.log(&pod, "c").await, "direct there\nfront there\ngone\n");
    other.finish().await;
    world.finish().await;
}

/// A Service whose port differs from the target port, by name and by variable; connections fail if no pod is ready.
pub(crate) async fn a_service_leads_to_the_target_port(world: World) {
    world.create::<Service>(json!({"metadata": {"name": "front"}, "spec": {"selector": {"app": "y"}, "ports": [{"name": "web", "port": 8080, "targetPort": "http"}]}})).await;
    let serve = "mkdir -p /w && cd /w && hostname > x && sleep 2; touch /tmp/ready; exec python3 -m http.server --bind $IP 8000";
    let mut spec = sh(serve);
    spec["containers"][0]["env"] = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    spec["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 8000}]);
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": "http"}, "periodSeconds": 1});
    for name in ["one", "two"] {
        world.run_labelled(name, json!({"app": "y"}), spec.clone()).await;
    }
    let ask = r#"
import os, socket, sys, time, urllib.request
assert os.environ["FRONT_SERVICE_PORT"] == "8080" == os.environ["FRONT_SERVICE_PORT_WEB"]
assert os.environ["FRONT_PORT_8080_TCP"] == "tcp://%s:8080" % os.environ["FRONT_SERVICE_HOST"]
try:
    socket.create_connection(("front", 8080), 5)
    print("too early")
except ConnectionRefusedError:
    print("refused")
seen = set()
while len(seen) < 2:
    for host in ("front", os.environ["FRONT_SERVICE_HOST"]):
        try:
            seen.add(urllib.request.urlopen("http://%s:8080/x" % host, timeout=5).read().decode().strip())
        except OSError:
            time.sleep(0.1)
print(*sorted(seen))
"#;
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.run("asker", json!({"containers": [{"name": "c", "command": ["python3", "-c", ask]}]})).await;
    let pod = world.ended("asker").await;
    let log = world.log(&pod, "c").await;
    assert_eq!(phase(&pod), "Succeeded", "{log}");
    assert!(log.ends_with("one two\n"), "{log}");
    world.finish().await;
}
