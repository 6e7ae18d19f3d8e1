"""The exercise of tests/clients with the Python package `kubernetes`: create, watch, patch, apply, logs, exec, delete.
usage: KUBECONFIG=FILE exercise.py NAMESPACE"""
import sys
import threading
import time

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import stream

NAME = "exercise"
PATIENCE = 100


def main(namespace):
    config.load_kube_config()
    api = client.CoreV1Api()
    api.create_namespace({"metadata": {"name": namespace}})
    seen = Seen(namespace)
    api.create_namespaced_pod(namespace, {
        "metadata": {"name": NAME},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo hello from $HOSTNAME; sleep 600"]}]},
    })
    step("create")

    seen.until("ADDED", lambda kind, pod: kind == "ADDED")
    seen.until("Ready", lambda kind, pod: pod.status.phase == "Running" and any(
        c.type == "Ready" and c.status == "True" for c in pod.status.conditions or []))
    step("watch")

    patched = api.patch_namespaced_pod(NAME, namespace, {"metadata": {"labels": {"step": "patched"}}})
    check(patched.metadata.labels["step"] == "patched", patched.metadata.labels)
    seen.until("the patch", lambda kind, pod: (pod.metadata.labels or {}).get("step") == "patched")
    step("patch")

    for data in ({"a": "1", "b": "1"}, {"a": "2"}):
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}
        applied = api.patch_namespaced_config_map(NAME, namespace, wanted, field_manager=NAME, force=True,
                                                  _content_type="application/apply-patch+yaml")
        check(applied.data == data, applied.data)
    step("apply")

    log, deadline = "", time.monotonic() + PATIENCE
    while not log and time.monotonic() < deadline:
        log = api.read_namespaced_pod_log(NAME, namespace)
    check(log == f"hello from {NAME}\n", log)
    step("logs")

    running = stream(api.connect_get_namespaced_pod_exec, NAME, namespace, command=["sh", "-c", "read line; echo $line; echo err >&2; exit 3"],
                     stdin=True, stdout=True, stderr=True, _preload_content=False)
    running.write_stdin("in\n")
    running.run_forever(timeout=PATIENCE)
    out, err = running.read_stdout(timeout=0), running.read_stderr(timeout=0)
    check((out, err, running.returncode) == ("in\n", "err\n", 3), (out, err, running.returncode))
    step("exec")

    api.delete_namespaced_pod(NAME, namespace)
    seen.until("DELETED", lambda kind, pod: kind == "DELETED")
    try:
        api.read_namespaced_pod(NAME, namespace)
        raise SystemExit("the pod is still there")
    except ApiException as gone:
        check(gone.status == 404, gone)
    api.delete_namespace(namespace)
    step("delete")
    print("done")


class Seen:
    """The events of a watch of the pod, in order. It runs in its own thread so that it misses nothing."""

    def __init__(self, namespace):
        self.events, self.turn = [], threading.Condition()
        self.read = 0
        threading.Thread(target=self.follow, args=(namespace,), daemon=True).start()

    def follow(self, namespace):
        api = client.CoreV1Api()
        for event in watch.Watch().stream(api.list_namespaced_pod, namespace, field_selector=f"metadata.name={NAME}", timeout_seconds=PATIENCE):
            with self.turn:
                self.events.append((event["type"], event["object"]))
                self.turn.notify()

    def until(self, what, holds):
        deadline = time.monotonic() + PATIENCE
        with self.turn:
            while True:
                while self.read < len(self.events):
                    self.read += 1
                    if holds(*self.events[self.read - 1]):
                        return
                if not self.turn.wait(deadline - time.monotonic()):
                    raise SystemExit(f"the watch did not show {what}")


def step(what):
    print("ok:", what, flush=True)


def check(holds, found):
    if not holds:
        raise SystemExit(f"not as expected: {found!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
