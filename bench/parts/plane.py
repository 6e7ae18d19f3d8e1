"""A testenv control plane for benchmarks: requests, kubectl, its audit log, and a pod watch."""
import contextlib
import datetime
import http.client
import json
import os
import ssl
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlparse

from results import ROOT

TESTENV = ROOT / "testenv/testenv"
# User names in the audit log: the operator's, and that of everyone with the admin kubeconfig (this benchmark and kwok).
OPERATOR, ADMIN = "operator", "testenv-admin"


@contextlib.contextmanager
def started(kwok_nodes=0):
    command = [TESTENV, "start", *(["--kwok-nodes", str(kwok_nodes)] if kwok_nodes else []), "--owner-pid", str(os.getpid())]
    directory = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    try:
        yield Plane(directory)
    finally:
        subprocess.run([TESTENV, "stop", "--dir", directory])


class Plane:
    def __init__(self, directory):
        self.dir, self.kubeconfig = directory, directory / "kubeconfig"
        self.server = json.loads((directory / "env.json").read_text())["server"]
        self.context = ssl.create_default_context(cafile=str(directory / "pki/ca.crt"))
        self.context.load_cert_chain(str(directory / "pki/admin.crt"), str(directory / "pki/admin.key"))
        self.connection = self.connect()

    def connect(self):
        address = urlparse(self.server)
        return http.client.HTTPSConnection(address.hostname, address.port, context=self.context)

    def call(self, method, path, body=None, kind="application/json"):
        try:
            return request(self.connection, method, path, body, kind)
        except http.client.RemoteDisconnected:
            # The server closes idle connections; http.client reconnects by itself.
            self.connection.close()
            return request(self.connection, method, path, body, kind)

    def kubectl(self, *words, text=None):
        command = [self.dir / "bin/kubectl", "--kubeconfig", self.kubeconfig, *words]
        return subprocess.run(command, check=True, input=text, stdout=subprocess.PIPE, text=True).stdout

    def operator_kubeconfig(self):
        """A kubeconfig with the operator's own user name, which identifies its requests in the audit log."""
        config = json.loads(self.kubectl("config", "view", "--raw", "-o", "json"))
        config["users"][0]["user"] |= {"as": OPERATOR, "as-groups": ["system:masters"]}
        path = self.dir / "operator.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def audit(self, since, until=float("inf")):
        """Completed requests, with `began`, `at` (response) and `by` (user)."""
        seconds = lambda text: datetime.datetime.fromisoformat(text).timestamp()
        with open(self.dir / "audit.log") as log:
            for line in log:
                try:
                    event = json.loads(line)
                except json.JSONDecodeError:
                    continue
                event["began"], event["at"] = seconds(event["requestReceivedTimestamp"]), seconds(event["stageTimestamp"])
                # A watch counts when it begins.
                long = event["verb"] == "watch"
                if event["stage"] == ("ResponseStarted" if long else "ResponseComplete") and since <= event["at"] <= until:
                    event["by"] = event.get("impersonatedUser", event["user"])["username"]
                    yield event


def request(connection, method, path, body=None, kind="application/json"):
    """Sends a request and returns its response, which must be a success."""
    connection.request(method, path, json.dumps(body, separators=(",", ":")) if body is not None else None, {"Content-Type": kind})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {content.decode()[:1000]}")
    return json.loads(content)


class Pods:
    """The pods that match a selector, from a watch of their metadata."""

    def __init__(self, plane, namespace, selector):
        self.names, self.seen, self.plane = set(), set(), plane
        self.path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Lists and watches in a loop: the server ends a watch that falls behind."""
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                found = self.get(self.path, "PartialObjectMetadataList")
                listed = json.loads(found.read())
                self.names = {each["metadata"]["name"] for each in listed["items"] or []}
                self.seen |= self.names
                since = listed["metadata"]["resourceVersion"]
                for line in self.get(f"{self.path}&watch=true&timeoutSeconds=3600&resourceVersion={since}", "PartialObjectMetadata"):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    name = event["object"]["metadata"]["name"]
                    if event["type"] == "DELETED":
                        self.names.discard(name)
                    else:
                        self.names.add(name)
                        self.seen.add(name)
            time.sleep(0.2)

    def get(self, path, kind):
        connection = self.plane.connect()
        connection.request("GET", path, headers={"Accept": f"application/json;as={kind};g=meta.k8s.io;v=v1"})
        return connection.getresponse()

    def until(self, words, condition, seconds):
        deadline = time.time() + seconds
        while not condition(self.names):
            if time.time() > deadline:
                raise SystemExit(f"waited {seconds} s in vain for {words}; there are {len(self.names)} pods")
            time.sleep(0.01)
