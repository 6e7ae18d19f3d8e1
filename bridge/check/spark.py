"""Real Spark: a driver that loads the bridge, and executors started from the environment it publishes."""

import os
import pathlib
import queue
import re
import shutil
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JAR = ROOT / "crates" / "spark" / "bridge" / "firesteel-bridge.jar"

# Driver settings that keep Spark itself from calls the driver has no permission for.
SWITCHES = {
    "spark.kubernetes.allocation.pods.allocator": "dev.firesteel.bridge.FiresteelAllocator",
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.kubernetes.executor.enableApiPolling": "false",
    "spark.kubernetes.executor.deleteOnTermination": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}


def home(version):
    return subprocess.run([ROOT / "testenv" / "pyspark", version], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def compile_job(scratch, version):
    out = scratch / "classes"
    out.mkdir()
    subprocess.run(["javac", "--release", "8", "-nowarn", "-Xlint:-options", "-proc:none", "-d", out, "-cp", f"{home(version)}/jars/*",
                    ROOT / "bridge/check/Job.java"], check=True)
    return out


class Process:
    """A process whose output is logged and which does not outlive the test."""

    def __init__(self, command, env, log):
        self.log = log
        # A killed JVM leaves its unpacked files (native libraries, Spark's directory) next to its log, not in /tmp.
        tmp = pathlib.Path(f"{log}.tmp")
        tmp.mkdir(exist_ok=True)
        env = {**env, "JAVA_TOOL_OPTIONS": f"{env.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={tmp}".strip()}
        self.lines = queue.Queue()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with open(self.log, "w") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                if line.startswith("JOB "):
                    self.lines.put(line[4:].strip())

    def said(self):
        return pathlib.Path(self.log).read_text()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ended(self, seconds=60):
        """The exit code."""
        code = self.process.wait(seconds)
        self.reader.join(10)
        return code


class Driver(Process):
    def __init__(self, version, scratch, jar, classes, api, token, namespace, name, conf):
        token_file = scratch / f"{name}.token"
        token_file.write_text(token)
        properties = {
            "spark.master": f"k8s://{api}",
            "spark.kubernetes.submitInDriver": "true",
            "spark.kubernetes.driver.master": api,
            "spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": token_file,
            "spark.kubernetes.namespace": namespace,
            "spark.kubernetes.driver.pod.name": name,
            "spark.kubernetes.container.image": "none",
            "spark.kubernetes.executor.podNamePrefix": name,
            "spark.app.id": f"spark-{name}",
            "spark.app.name": name,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraClassPath": f"{jar}:{classes}",
            "spark.executor.extraClassPath": classes,
            "spark.executor.memory": "512m",
            "spark.executor.instances": "2",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            # Executors start once the driver is ready, not the other way round.
            "spark.scheduler.minRegisteredResourcesRatio": "0",
            # Short-lived JVMs: optimized code would never be used.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.local.dir": scratch / "local",
            **SWITCHES, **conf,
        }
        file = scratch / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value is not None))
        self.spark = home(version)
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "KUBE"))}, "SPARK_HOME": self.spark,
               "SPARK_CONF_DIR": str(scratch / "conf"), "HOME": str(scratch)}
        super().__init__([f"{self.spark}/bin/spark-submit", "--deploy-mode", "client", "--properties-file", file, "--class", "Job",
                          "spark-internal"], env, scratch / f"{name}.log")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                return self.lines.get(timeout=0.2)
            except queue.Empty:
                if self.process.poll() is not None and self.lines.empty():
                    raise AssertionError(f"the driver ended with {self.process.returncode}: {self.said()[-3000:]}") from None
        raise AssertionError(f"the driver did not answer within {seconds} s: {self.said()[-3000:]}")

    def ask(self, line):
        self.tell(line)
        return self.answer()


class Executor(Process):
    """Builds the command that the stock image's entry point would run from an executor's environment."""

    def __init__(self, spark, scratch, env, id, extra_env=None):
        words = sorted((key for key in env if re.fullmatch(r"SPARK_JAVA_OPT_\d+", key)), key=lambda key: int(key.rsplit("_", 1)[1]))
        self.id = id
        local = scratch / f"executor-{time.monotonic_ns()}"
        local.mkdir()
        command = [shutil.which("java"), *(env[word].replace("EXECID", id) for word in words), f"-Xmx{env['SPARK_EXECUTOR_MEMORY']}",
                   "-cp", f"{env.get('SPARK_CLASSPATH', '')}:{spark}/jars/*",
                   "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
                   "--driver-url", env["SPARK_DRIVER_URL"], "--executor-id", id, "--cores", env["SPARK_EXECUTOR_CORES"],
                   "--app-id", env["SPARK_APPLICATION_ID"], "--hostname", "127.0.0.1",
                   "--resourceProfileId", env["SPARK_RESOURCE_PROFILE_ID"], "--podName", f"executor-{id}"]
        environment = {**os.environ, **env, "SPARK_EXECUTOR_ID": id, "SPARK_EXECUTOR_DIRS": str(local), "SPARK_CONF_DIR": str(local),
                       **(extra_env or {})}
        super().__init__(command, environment, f"{local}.log")


def only_driver_calls(recorder, namespace, name):
    """Fails if the driver requested anything but its grant's status and its ledger, or if a request was denied."""
    base = f"/apis/firesteel.dev/v1alpha1/namespaces/{namespace}"
    for call in recorder.calls:
        path = call["path"].split("?")[0]
        grant = call["method"] == "PATCH" and path == f"{base}/executorgrants/{name}/status"
        ledger = call["method"] == "GET" and path in (f"{base}/executorledgers", f"{base}/executorledgers/{name}")
        assert grant or ledger, f"the driver asked for {call['method']} {call['path']} ({call['code']})"
    denied = [call for call in recorder.calls if call["code"] in (401, 403)]
    assert not denied, f"refused: {denied}"
