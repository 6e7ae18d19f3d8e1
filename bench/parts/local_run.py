"""What `firesteel run` costs compared with plain Spark, step by step, and how fast a driver starts.

- Runs: the same computation of pi, alternating: `spark-submit --master local[2]`; `firesteel run` with two executors on a running cluster, and
  on one that it starts and stops. Every output line gets a timestamp; the driver's log lines divide each run into the same steps. The first
  round fills caches and is not counted.
- Starts: a manifest (a SparkApplication for the operator, then a bare Pod) is sent to the API server of a running cluster; the time is taken
  from before the request until the driver's process exists: a new process in /proc that has the driver's environment."""
import argparse
import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import results
from results import ROOT, say, spread

sys.path.insert(0, str(ROOT / "testenv"))
from kubeconfig import Access  # noqa: E402

PI = "org.apache.spark.examples.SparkPi"
JAR = "examples/jars/spark-examples.jar"
DRIVER_SECONDS = 0.3
# A step ends at the first line with these words; the last one at the end of the command.
STEPS = [("the cluster comes up", "driver .*: waiting to start"),
         ("the driver's process starts", "driver .*: running"),
         ("Java starts and loads Spark", "Running Spark version"),
         ("the context starts", "Registered executor NettyRpcEndpointRef|Starting executor ID driver"),
         ("the job is begun", "Got job 0"),
         ("the job", "Job 0 finished"),
         ("the context stops", "Successfully stopped SparkContext"),
         ("all ends", None)]
PLAIN, RUNNING, WHOLE = "spark-submit --master local[2]", "firesteel run, on a cluster that runs", "firesteel run, cluster up and down"


def main(program, words):
    parser = argparse.ArgumentParser(prog=program, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=20, help="manifests of each kind")
    parser.add_argument("--slices", type=int, default=100, help="of the computation")
    parser.add_argument("--spark", default="4.1.4", metavar="VERSION")
    parser.add_argument("--firesteel", type=Path, metavar="PATH", help="default: built with cargo build --release")
    parser.add_argument("--no-write", action="store_true")
    args = parser.parse_args(words)
    firesteel = str((args.firesteel or results.build("firesteel-cli") / "firesteel").resolve())
    image = f"apache/spark:{args.spark}"
    subprocess.run([firesteel, "local", "image", "pull", image], check=True)
    with tempfile.TemporaryDirectory(prefix="firesteel-bench-") as scratch:
        bed = Bed(firesteel, image, Path(scratch), args)
        runs = bed.rounds()
        with bed.cluster():
            starts = {kind: bed.starts(kind) for kind in ("SparkApplication", "Pod")}
    text, kept = report(program, args, firesteel, runs, starts)
    print(text)
    if not args.no_write:
        results.write("local-run", text)
    return 0 if kept else 1


class Bed:
    def __init__(self, firesteel, image, scratch, args):
        self.firesteel, self.image, self.scratch, self.args = firesteel, image, scratch, args
        self.data = scratch / "data"

    def local(self, verb):
        done = subprocess.run([self.firesteel, "local", verb, "--data-dir", str(self.data)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"firesteel local {verb}: {done.stderr}")

    @contextlib.contextmanager
    def cluster(self):
        self.local("up")
        try:
            yield
        finally:
            self.local("down")

    def rounds(self):
        """The runs of each kind, as lists of {step: seconds}."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firesteel"
        home = cache / "runtimes" / f"spark-{self.args.spark}"
        job = ["--driver-memory", "512m", "--class", PI]
        ours = [self.firesteel, "run", "--data-dir", self.data, "--executor-memory", "512m", "--conf", f"spark.kubernetes.container.image={self.image}",
                "--conf", "spark.executor.instances=2", *job, f"local:///opt/spark/{JAR}", self.args.slices]
        plain = [home / "bin/spark-submit", "--master", "local[2]", *job, home / JAR, self.args.slices]
        kinds = {PLAIN: [], RUNNING: [], WHOLE: []}
        for number in range(self.args.rounds + 1):
            measured = {PLAIN: timed(plain, self.scratch, STEPS[2:])}
            with self.cluster():
                measured[RUNNING] = timed(ours, self.scratch, STEPS)
            measured[WHOLE] = timed(ours, self.scratch, STEPS)
            say(f"round {number} of {self.args.rounds}: " + ", ".join(f"{name} {sum(each.values()):.1f} s" for name, each in measured.items()))
            if number:
                for name, each in measured.items():
                    kinds[name].append(each)
        return kinds

    def starts(self, kind):
        api = Api(self.data / "kubeconfig")
        # The first run is a warm-up: connections, caches, the first look at an image.
        all_of_them = [self.start(api, kind, number) for number in range(self.args.starts + 1)][1:]
        say(f"{kind} to the driver's process, ms: {spread([s * 1000 for s in all_of_them])}")
        return all_of_them

    def start(self, api, kind, number):
        name = f"start-{kind.lower()}-{number}"
        body, path = self.manifest(kind, name)
        driver = f"{name}-driver" if kind == "SparkApplication" else name
        known = set(processes())
        began = time.perf_counter()
        api.ask("POST", path, body)
        while not is_there(driver, known):
            if time.perf_counter() > began + 60:
                raise SystemExit(f"the driver of {kind} {name} did not start in 60 s")
            time.sleep(0.002)
        took = time.perf_counter() - began
        api.ask("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
        # Lets the machine settle before the next run.
        while is_there(driver, known) or any(pod["metadata"]["name"].startswith(name) for pod in api.ask("GET", "/api/v1/namespaces/default/pods")["items"]):
            time.sleep(0.05)
        time.sleep(0.3)
        return took

    def manifest(self, kind, name):
        if kind == "Pod":
            container = {"name": "spark-kubernetes-driver", "image": self.image,
                         "args": ["driver", "--class", PI, f"local:///opt/spark/{JAR}"]}
            spec = {"restartPolicy": "Never", "serviceAccountName": "spark", "containers": [container]}
            return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, "/api/v1/namespaces/default/pods"
        spec = {"type": "Scala", "mode": "cluster", "sparkVersion": self.args.spark, "image": self.image, "mainClass": PI,
                "mainApplicationFile": f"local:///opt/spark/{JAR}", "restartPolicy": {"type": "Never"},
                "driver": {"memory": "512m", "coreRequest": "100m", "serviceAccount": "spark"},
                "executor": {"instances": 1, "memory": "512m", "coreRequest": "100m"}}
        body = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": {"name": name}, "spec": spec}
        return body, "/apis/sparkoperator.k8s.io/v1beta2/namespaces/default/sparkapplications"


def timed(command, scratch, steps):
    """Seconds of each step of a command, from the times of its output lines."""
    command = [str(word) for word in command]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=scratch)
    lines = []

    def read(stream):
        for line in stream:
            lines.append((time.perf_counter() - began, line))
    readers = [threading.Thread(target=read, args=[stream]) for stream in (process.stdout, process.stderr)]
    for reader in readers:
        reader.start()
    code = process.wait()
    end = time.perf_counter() - began
    for reader in readers:
        reader.join()
    lines.sort()
    text = "".join(line for _, line in lines)
    if code != 0 or "Pi is roughly" not in text:
        raise SystemExit(f"{' '.join(command)} failed with {code}: {text[-3000:]}")
    measured, last = {}, 0.0
    for name, words in steps:
        at = end if words is None else next((at for at, line in lines if re.search(words, line)), None)
        if at is None:
            raise SystemExit(f"no line \"{words}\" in the output of {command[0]}: {text[-3000:]}")
        measured[name] = max(at, last) - last
        last = max(at, last)
    return measured


def processes():
    return [entry for entry in os.listdir("/proc") if entry.isdigit()]


def is_there(pod, known):
    """Whether a new process has the environment of this pod's container."""
    words = f"HOSTNAME={pod}".encode()
    for pid in processes():
        if pid not in known:
            with contextlib.suppress(OSError):
                if words in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    return True
    return False


class Api:
    """A connection to the API server of a local cluster, by its kubeconfig."""

    def __init__(self, kubeconfig):
        access = Access(kubeconfig)
        self.headers = {"Content-Type": "application/json", **access.headers}
        self.connection = http.client.HTTPSConnection(access.server.removeprefix("https://"), context=access.tls, timeout=60)

    def ask(self, verb, path, body=None):
        self.connection.request(verb, path, body and json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status not in (200, 201, 202):
            raise SystemExit(f"{verb} {path}: {answer.status} {said[:500]}")
        return json.loads(said)


def report(program, args, firesteel, runs, starts):
    middle = statistics.median

    def total(kind):
        return [sum(each.values()) for each in runs[kind]]

    def step(kind, name):
        return middle(each.get(name, 0.0) for each in runs[kind])
    plain = middle(total(PLAIN))
    applied = starts["SparkApplication"]
    held = [(middle(applied) <= DRIVER_SECONDS,
             f"from applying a SparkApplication to the driver's process {middle(applied):.3f} s (promised: {DRIVER_SECONDS} s)")]
    lines = [
        f"# `firesteel run` next to plain Spark, {results.today()}", "",
        f"`{program} --rounds {args.rounds} --starts {args.starts} --slices {args.slices}`: Spark {args.spark}, medians of {args.rounds} rounds in turn.", "",
        "| | seconds (least … most) | over plain Spark |", "|---|---|---|",
        *[f"| {kind} | {spread(total(kind), 2)} | {middle(total(kind)) - plain:+.2f} |" for kind in runs], "",
        "Seconds per step:", "",
        f"| step | {PLAIN} | {RUNNING} | more | {WHOLE} | more |", "|---|---|---|---|---|---|",
        *[f"| {name} | {step(PLAIN, name):.2f} | " + " | ".join(f"{step(kind, name):.2f} | {step(kind, name) - step(PLAIN, name):+.2f}" for kind in (RUNNING, WHOLE)) + " |"
          for name, _ in STEPS], "",
        "The context starts: until the driver has a first executor (plain Spark: itself); this includes the start of the executors' JVMs and Spark's own waits "
        "between batches. The job is begun: until Spark runs it, which on Kubernetes waits for most of the executors. Pods start with the archive of "
        "Spark's classes that `image pull` and a first `run` create; plain Spark has none.", "",
        f"From sending a manifest to the driver's process, ms, {args.starts} of each kind, one after the other:", "",
        "| | median | 90 % | most |", "|---|---|---|---|",
        *[f"| {kind} | {middle(all_of_them) * 1000:.0f} | {sorted(all_of_them)[int(len(all_of_them) * 0.9)] * 1000:.0f} | {max(all_of_them) * 1000:.0f} |"
          for kind, all_of_them in starts.items()], "",
        *results.promises(held), "",
        ("Build: optimised. " if "/release/" in firesteel else "Build: NOT an optimised build. ") + results.machine(),
    ]
    return "\n".join(lines), all(kept for kept, _ in held)
