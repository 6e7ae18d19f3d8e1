"""API servers to measure, each alone: ours as a process, and the real kube-apiserver of testenv with its etcd, without controllers,
scheduler and audit log. Both are context managers with a kubeconfig and a process."""
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from results import ROOT

sys.path.insert(0, str(ROOT / "testenv"))
import certificates  # noqa: E402
import components  # noqa: E402
import toolchain  # noqa: E402

PATIENCE = 120


class Server:
    """`started` is the time from process start to the first 200 from /readyz."""

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="firesteel-bench-"))
        self.processes = []

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def spawn(self, command, **more):
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, cwd=self.dir, **more)
        self.processes.append(process)
        return process

    def wait_until_ready(self, process, began, url, context):
        while True:
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"{url}/readyz", context=context, timeout=5).status == 200:
                    return time.perf_counter() - began
            if process.poll() is not None or time.perf_counter() > began + PATIENCE:
                raise SystemExit(f"{self.name} did not become ready; its log: {self.words()}")
            time.sleep(0.002)

    def words(self):
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.dir.glob("*.log"))

    def memory(self, what="VmRSS"):
        """Memory of the API server's own process in bytes; VmHWM is its peak."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"no {what} in /proc: this benchmark needs Linux")

    def cpu(self):
        """CPU seconds used so far by all its processes."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class Ours(Server):
    def __init__(self, binary, data_dir):
        super().__init__()
        self.binary, self.data_dir = binary, data_dir
        self.name = f"firesteel-apiserver, {'data directory' if data_dir else 'in memory'}"

    def __enter__(self):
        self.kubeconfig = self.dir / "kubeconfig"
        data = ["--data-dir", self.dir / "data"] if self.data_dir else []
        with open(self.dir / "server.log", "wb") as log:
            began = time.perf_counter()
            self.process = self.spawn([self.binary, "--kubeconfig", self.kubeconfig, *data], stdout=subprocess.PIPE, stderr=log)
        url = self.process.stdout.readline().decode().strip()
        # Certificate verification is not measured here; clients would read the CA from the kubeconfig.
        context = ssl._create_unverified_context()
        self.started = self.wait_until_ready(self.process, began, url, context)
        return self


class Real(Server):
    def __init__(self, synced):
        super().__init__()
        self.synced = synced
        self.name = f"kube-apiserver {toolchain.kubernetes_version()}, etcd {'that syncs' if synced else 'without sync'}"

    def __enter__(self):
        certificates.make(self.dir / "pki")
        plane = components.Plane(self.dir, toolchain.build(["etcd", "kube-apiserver"]))
        plane.write_files()
        self.kubeconfig = self.dir / "kubeconfig"
        context = ssl.create_default_context(cafile=str(self.dir / "pki/ca.crt"))
        self.log = open(self.dir / "server.log", "wb")
        etcd = [word for word in plane.command("etcd") if not (self.synced and word.startswith("--unsafe-no-fsync"))]
        self.spawn(etcd, stdout=self.log, stderr=self.log)
        time.sleep(1)
        command = [word for word in plane.command("kube-apiserver") if not word.startswith("--audit")]
        began = time.perf_counter()
        self.process = self.spawn(command, stdout=self.log, stderr=self.log)
        self.started = self.wait_until_ready(self.process, began, plane.server, context)
        return self

    def __exit__(self, *words):
        super().__exit__(*words)
        self.log.close()
