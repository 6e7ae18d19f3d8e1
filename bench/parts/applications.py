"""Real Spark applications on a control plane with kwok nodes: `firesteel submit` creates their driver pods; the driver itself is a process on
this machine with the properties of its pod, controlled through its standard input."""
import contextlib
import os
import subprocess
import time
from pathlib import Path

import plane as planes
import spark

NAMESPACE = "bench"
PATIENCE = 900
ALLOCATOR = "spark.kubernetes.allocation.pods.allocator"


class Applications:
    def __init__(self, plane, binaries, scratch, version):
        self.plane, self.binaries, self.scratch, self.version = plane, binaries, scratch, version
        self.classes = spark.compile_job(scratch, version)

    def set_up(self):
        """Creates a namespace with two driver accounts, one with pod permissions and one without."""
        self.plane.kubectl("create", "namespace", NAMESPACE)
        self.plane.kubectl("apply", "--server-side", "-f", "-", text=self.firesteel("crds"))
        for crd in ("executorgrants", "executorledgers"):
            # Not by a condition: kubectl fails on an object that has no conditions yet.
            self.plane.kubectl("wait", "--for=jsonpath={.status.acceptedNames.kind}", f"crd/{crd}.firesteel.dev", "--timeout=60s")
            self.plane.kubectl("wait", "--for=condition=Established", f"crd/{crd}.firesteel.dev", "--timeout=60s")
        self.firesteel("setup", "-n", NAMESPACE, "--service-account", "spark", "--apply")
        self.firesteel("setup", "-n", NAMESPACE, "--service-account", "outside", "--executors-outside", "--apply")

    def firesteel(self, *words):
        command = [str(self.binaries / "firesteel"), *words]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")} | {"KUBECONFIG": str(self.plane.kubeconfig)}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def operator(self):
        command = [self.binaries / "firesteel", "operator", "--kubeconfig", self.plane.operator_kubeconfig(), "--namespaces", NAMESPACE, "--health-probe-bind-address", "0"]
        return Running(command, self.scratch / "operator.log")

    @contextlib.contextmanager
    def driver(self, pod, account, executors, conf):
        """A ready driver with one executor and a grant for this many."""
        conf = {
            "spark.kubernetes.namespace": NAMESPACE, "spark.kubernetes.driver.pod.name": pod, "spark.executor.instances": executors,
            "spark.kubernetes.container.image": f"apache/spark:{self.version}", "spark.executor.memory": "512m",
            "spark.kubernetes.authenticate.driver.serviceAccountName": account,
            "spark.kubernetes.authenticate.executor.serviceAccountName": "default",
            "spark.kubernetes.driver.annotation.testenv.firesteel.dev/run-for": "2h",
            "spark.kubernetes.submission.waitAppCompletion": "false", "spark.executor.maxNumFailures": "1000000", **conf,
        }
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        self.firesteel("submit", "--master", f"k8s://{self.plane.server}", "--deploy-mode", "cluster", "--name", pod, *words, "--class", "Job",
                       "local:///none.jar")
        self.plane.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")
        driver = Driver(self, pod, account)
        try:
            driver.pods = planes.Pods(self.plane, NAMESPACE, f"spark-role=executor,spark-app-selector={driver.app}")
            if driver.answer() != "ready":
                raise SystemExit(f"the driver is not ready: {driver.said()[-3000:]}")
            driver.pods.until("the first executor", lambda names: len(names) == 1, PATIENCE)
            time.sleep(5)
            yield driver
        finally:
            driver.kill()

    def clear(self):
        pods = planes.Pods(self.plane, NAMESPACE, "spark-role")
        time.sleep(1)
        self.plane.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
        pods.until("all pods to go", lambda names: not names, PATIENCE)
        time.sleep(2)


class Running:
    """Runs a process for the duration of a block."""

    def __init__(self, command, log):
        self.command, self.log = command, log

    def __enter__(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def cpu(self):
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Driver(spark.Process):
    """A real driver with its pod's properties, except for where it runs."""

    tell, answer, ask = spark.Driver.tell, spark.Driver.answer, spark.Driver.ask

    def __init__(self, applications, pod, account):
        plane, scratch = applications.plane, applications.scratch / pod
        (scratch / "conf").mkdir(parents=True)
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        (scratch / "token").write_text(plane.call("POST", path, wanted)["status"]["token"])
        maps = plane.call("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps")["items"]
        mine = [each for each in maps if each["metadata"]["name"].startswith("spark-drv-")
                and any(owner["name"] == pod for owner in each["metadata"].get("ownerReferences", []))]
        properties = read_properties(mine[0]["data"]["spark.properties"])
        self.app = properties["spark.app.id"]
        given = properties.get("spark.driver.extraClassPath", "")
        jar = [str(spark.JAR)] if given else []
        for key in ("spark.jars", "spark.driver.port", "spark.driver.blockManager.port", "spark.blockManager.port"):
            properties.pop(key, None)
        properties |= {
            "spark.master": f"k8s://{plane.server}", "spark.kubernetes.driver.master": plane.server,
            "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": scratch / "token",
            "spark.kubernetes.authenticate.driver.mounted.caCertFile": plane.dir / "pki/ca.crt",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.local.dir": scratch / "local", "spark.driver.extraClassPath": ":".join([*jar, str(applications.classes)]),
            # It starts with one executor that never registers, so there is nothing to wait for.
            "spark.executor.instances": "1", "spark.scheduler.maxRegisteredResourcesWaitingTime": "1s",
        }
        file = scratch / "spark.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        home = spark.home(applications.version)
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "KUBE"))}, "SPARK_HOME": home,
               "SPARK_CONF_DIR": str(scratch / "conf"), "HOME": str(scratch)}
        self.name, self.account = pod, f"system:serviceaccount:{NAMESPACE}:{account}"
        super().__init__([f"{home}/bin/spark-submit", "--deploy-mode", "client", "--properties-file", file, "--class", "Job", "spark-internal"],
                         env, scratch / "driver.log")


def read_properties(text):
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {key: value.replace("\\:", ":").replace("\\=", "=") for key, _, value in (line.partition("=") for line in lines)}


def is_pod(event, *verbs):
    reference = event["objectRef"]
    return event["verb"] in verbs and reference["resource"] == "pods" and not reference.get("subresource")
