"""An API server prepared for the bridge: the two CRDs, a namespace, and service accounts with exactly a driver's permissions."""

import http.client
import json
import pathlib
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "testenv"))
from kubeconfig import Access  # noqa: E402

GROUP = "firesteel.dev/v1alpha1"


class Cluster:
    """An admin client for the API server of a kubeconfig."""

    def __init__(self, kubeconfig, definitions):
        """`definitions`: the CRDs to install."""
        self.definitions = definitions
        access = Access(kubeconfig)
        self.server, self.authority, self.headers, self.tls, self.plain = access.server, access.authority, access.headers, access.tls, access.trusting()

    def call(self, method, path, body=None, kind="application/json", allow=()):
        target = urllib.parse.urlsplit(self.server)
        connection = http.client.HTTPSConnection(target.hostname, target.port, context=self.tls, timeout=30)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"content-type": kind, **self.headers})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status >= 400 and response.status not in allow:
            raise RuntimeError(f"{method} {path}: {response.status} {content.decode()[:400]}")
        return json.loads(content) if response.status < 400 else None

    def install(self, namespace):
        for definition in self.definitions:
            self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, allow=(409,))
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, allow=(409,))
        for plural in ("executorgrants", "executorledgers"):
            until(f"{plural} are served", lambda: self.call("GET", f"/apis/{GROUP}/namespaces/{namespace}/{plural}", allow=(404, 429)), 60)

    def account(self, namespace, name):
        """Creates a service account without permissions; returns its token."""
        self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", token)["status"]["token"]

    def allow(self, namespace, name):
        """Grants a service account a driver's permissions."""
        api = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        rules = [{"apiGroups": ["firesteel.dev"], "resources": ["executorgrants/status"], "verbs": ["patch"]},
                 {"apiGroups": ["firesteel.dev"], "resources": ["executorledgers"], "verbs": ["get", "watch"]}]
        self.call("POST", f"{api}/roles", {"metadata": {"name": "driver"}, "rules": rules}, allow=(409,))
        self.call("POST", f"{api}/rolebindings", {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})

    def grant(self, namespace, name):
        self.call("POST", f"/apis/{GROUP}/namespaces/{namespace}/executorgrants",
                  {"apiVersion": GROUP, "kind": "ExecutorGrant", "metadata": {"name": name}, "spec": {
                      "driver": {"podName": name}, "appId": f"spark-{name}", "namePrefix": name, "container": "spark-kubernetes-executor",
                      "template": {"spec": {"containers": [{"name": "spark-kubernetes-executor", "image": "none"}]}}}})

    def status(self, namespace, name):
        grant = self.call("GET", f"/apis/{GROUP}/namespaces/{namespace}/executorgrants/{name}", allow=(404,))
        return (grant or {}).get("status", {})

    def ledger(self, namespace, name, status):
        """Writes the ledger as the operator does."""
        path = f"/apis/{GROUP}/namespaces/{namespace}/executorledgers"
        made = {"apiVersion": GROUP, "kind": "ExecutorLedger", "metadata": {"name": name}, "spec": {}, "status": status}
        if self.call("POST", path, made, allow=(409,)) is None:
            self.call("PATCH", f"{path}/{name}", {"status": status}, "application/merge-patch+json")


def until(what, condition, seconds=90):
    """Waits for a truthy value; returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")
