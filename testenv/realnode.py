"""A real node for a control plane: kubelet, containerd and runc, in their own namespaces.

The kubelet is built from the same Go module as the control plane; containerd, runc, the network plugins and the pause program
come from Debian's packages, unpacked into the cache, not installed. All of it runs in one mount, pid and network namespace
whose first process is this file: when that dies, every container, mount, bridge and address goes with it. Outside it there
are only one end of a veth pair (over which the API server reaches the kubelet; it disappears with the namespace), cgroups below
`firesteel-node-<pid>`, and kernel settings that the kubelet changes; `clean` removes the cgroups and restores the settings.

Pods reach the API server as 10.96.0.1:443 and their names through a small DNS server. Both are sockets in the node's network
that the supervisor serves, because the control plane listens on loopback only. There is no kube-proxy: of Services with a
cluster IP only `kubernetes` works; Spark needs only headless ones."""
import contextlib
import ctypes
import hashlib
import io
import ipaddress
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import certificates
import toolchain
from toolchain import Problem, Unavailable

NAME = "real-0"
DEBIAN = ["containerd", "runc", "containernetworking-plugins", "busybox-static"]
PAUSE = "localhost/testenv-pause:1"
BRIDGE, POD_RANGE, GATEWAY = "pods0", "10.244.0.0/24", "10.244.0.1"
# A bridge without its own MAC address takes that of a port, and another when that port disappears: connections then hang
# for seconds.
BRIDGE_MAC = "02:00:00:00:00:01"
API_ADDRESS = "10.96.0.1"
SYSCTLS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
           "kernel/keys/root_maxbytes"]
CLONE_NEWNET = 0x40000000


def available():
    """Raises if this machine cannot run a node."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise Unavailable("a real node needs Linux and root")
    for program in ("ip", "unshare", "apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise Unavailable(f"a real node needs {program}, which is not on PATH")
    if subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True).returncode != 0:
        raise Unavailable("a real node needs to create namespaces, and this machine forbids it")


def fetch_tools():
    """The directory that holds containerd and the other programs, created once."""
    policy = subprocess.run(["apt-cache", "policy", *DEBIAN], capture_output=True, text=True).stdout
    candidates = [line.split()[1] for line in policy.splitlines() if line.strip().startswith("Candidate:")]
    home = toolchain.cache() / "node-tools" / hashlib.sha256(" ".join(DEBIAN + candidates).encode()).hexdigest()[:12]
    if home.exists():
        return home
    with toolchain.locked(toolchain.cache() / "node-tools.lock", "fetching containerd"):
        if home.exists():
            return home
        toolchain.say(f"fetching {', '.join(DEBIAN)} from Debian into {home}")
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tools-", dir=home.parent) as scratch:
            command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *DEBIAN]
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if done.returncode != 0:
                # The package lists may be missing or old; `update` only fetches them.
                subprocess.run(["apt-get", "update"], capture_output=True)
                done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if done.returncode != 0:
                raise Unavailable(f"apt-get could not fetch {', '.join(DEBIAN)}: {done.stderr.strip().splitlines()[-1:]}")
            for package in Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, f"{scratch}/tree"], check=True)
            os.rename(f"{scratch}/tree", home)
    return home


class Node:
    """Belongs to the supervisor of a control plane."""

    def __init__(self, plane, request):
        self.plane, self.request = plane, request
        self.dir = plane.dir / "node"
        self.tools = fetch_tools()
        self.process = None
        # Names and addresses unique among the nodes of this machine.
        self.group = f"firesteel-node-{os.getpid()}"
        number = os.getpid() % 16384
        base = ipaddress.ip_address("198.18.0.0") + number * 4
        self.outside, self.inside = str(base + 1), str(base + 2)
        self.settings = {}

    # --- start

    def start(self, spawn, wait):
        """`spawn(name, command, env)` starts a child of the supervisor; `wait(condition, words)` until a condition holds."""
        for part in ("kubelet", "containerd", "state", "net", "pod-logs"):
            (self.dir / part).mkdir(parents=True)
        self.write_files()
        for name in SYSCTLS:
            with contextlib.suppress(OSError):
                self.settings[name] = Path("/proc/sys", name).read_text()
        self.make_groups()
        command = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc",
                   sys.executable, "-B", __file__, str(self.dir)]
        self.process = spawn("node", command)
        wait(lambda: self.init_pid(), "the node's first process does not run")
        self.connect()
        (self.dir / "connected").touch()
        wait(lambda: (self.dir / "bridged").exists(), "the node's network is not up")
        self.listen()
        wait(lambda: (self.dir / "containerd.sock").exists() and self.ctr("version").returncode == 0, "containerd does not answer")
        self.load(self.pause_image())
        (self.dir / "loaded").touch()
        wait(self.is_ready, f"node {NAME} is not ready")

    def init_pid(self):
        """Process 1 of the node, by its pid on the host."""
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return int(children[0]) if children and (self.dir / "alive").exists() else None
        except (OSError, ValueError):
            return None

    def connect(self):
        """A veth pair between the node and the host; it disappears with the node's network namespace."""
        name, pid = f"fsn{os.getpid()}", str(self.init_pid())
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "addr", "add", f"{self.outside}/30", "dev", name)
        run("ip", "link", "set", name, "up")

    def listen(self):
        """Sockets in the node's network, served from here."""
        made = {}

        def make():
            with open(f"/proc/{self.init_pid()}/ns/net") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    made["error"] = os.strerror(ctypes.get_errno())
                    return
            try:
                made["api"] = socket.create_server((API_ADDRESS, 443))
                made["dns"] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made["dns"].bind((GATEWAY, 53))
                made["dns-tcp"] = socket.create_server((GATEWAY, 53))
            except OSError as error:
                made["error"] = str(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if "error" in made:
            raise Problem(f"could not listen in the node's network: {made['error']}")
        for target, args in ((forward, (made["api"], self.plane.port)), (self.answer_names, (made["dns"],)),
                             (self.answer_names_over_tcp, (made["dns-tcp"],))):
            threading.Thread(target=target, args=args, daemon=True).start()

    def is_ready(self):
        code, body = self.request("GET", f"/api/v1/nodes/{NAME}")
        if code != 200:
            return False
        conditions = json.loads(body)["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    # --- files

    def write_files(self):
        pki = self.plane.pki
        certificates.signed(pki, "kubelet", f"/O=system:nodes/CN=system:node:{NAME}", "ec", "extendedKeyUsage=clientAuth")
        self.plane.kubeconfig("kubelet.kubeconfig", "kubelet", server=f"https://{API_ADDRESS}")
        self.plane.write("node/kubelet.json", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(pki / "ca.crt")},
                               "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "address": "0.0.0.0", "port": 10250, "healthzPort": 0, "readOnlyPort": 0,
            "clusterDNS": [GATEWAY], "clusterDomain": "cluster.local", "resolvConf": "",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.group}", "failCgroupV1": False, "failSwapOn": False,
            "enforceNodeAllocatable": ["pods"], "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{self.dir}/containerd.sock",
            "podLogsDir": str(self.dir / "pod-logs"), "volumePluginDir": str(self.dir / "plugins"),
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "registerNode": True, "nodeStatusUpdateFrequency": "5s", "nodeLeaseDurationSeconds": 40,
            "imageGCHighThresholdPercent": 100, "kubeAPIQPS": 200, "kubeAPIBurst": 400, "serializeImagePulls": False,
        })
        (self.dir / "net" / "10-pods.conflist").write_text(json.dumps({
            "cniVersion": "0.4.0", "name": "pods", "plugins": [{
                "type": "bridge", "bridge": BRIDGE, "isGateway": False, "ipMasq": False,
                "ipam": {"type": "host-local", "dataDir": str(self.dir / "addresses"),
                         "ranges": [[{"subnet": POD_RANGE, "gateway": GATEWAY}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}))
        plugins = next(path.parent for path in self.tools.rglob("host-local"))
        (self.dir / "containerd.toml").write_text(f"""\
version = 2
root = "{self.dir}/containerd"
state = "{self.dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{self.dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{self.dir}/net"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{self.tools}/usr/sbin/runc"
""")
        (self.dir / "node.json").write_text(json.dumps({
            "path": f"{self.tools}/usr/bin:{self.tools}/usr/sbin:{os.environ['PATH']}", "address": self.inside,
            "kubelet": str(self.plane.bin / "kubelet"), "kubeconfig": str(self.plane.dir / "kubelet.kubeconfig"),
            "logs": str(self.plane.dir / "logs")}))

    def pause_image(self):
        """The pause program that holds a pod's namespaces, as an image."""
        def packed(members):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as tar:
                for name, content, mode in members:
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(content), mode
                    tar.addfile(info, io.BytesIO(content))
            return out.getvalue()
        layer = packed([("busybox", next(path for path in self.tools.rglob("bin/busybox")).read_bytes(), 0o755)])
        config = json.dumps({"architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux",
                             "config": {"Entrypoint": ["/busybox", "sleep", "2147483647"]},
                             "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
        manifest = json.dumps([{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]).encode()
        path = self.dir / "pause.tar"
        path.write_bytes(packed([("layer.tar", layer, 0o644), ("config.json", config, 0o644), ("manifest.json", manifest, 0o644)]))
        return path

    # --- images

    def ctr(self, *words):
        return ctr(self.dir, self.tools, *words)

    def load(self, path):
        load(self.dir, self.tools, path)

    # --- names

    def answer_names(self, sock):
        while True:
            question, sender = sock.recvfrom(4096)
            with contextlib.suppress(OSError, ValueError, IndexError, struct.error):
                sock.sendto(self.answer(question), sender)

    def answer_names_over_tcp(self, server):
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError, ValueError, IndexError, struct.error):
                connection.settimeout(5)
                length = struct.unpack(">H", connection.recv(2))[0]
                reply = self.answer(connection.recv(length))
                connection.sendall(struct.pack(">H", len(reply)) + reply)

    def answer(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode().lower())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1:at + 3])[0]
        found = self.addresses(labels)
        # 0: found (perhaps without addresses of this kind), 3: NXDOMAIN.
        answers = [ipaddress.ip_address(a).packed for a in found or []] if kind == 1 else []
        head = question[:2] + struct.pack(">HHHHH", 0x8580 | (0 if found is not None else 3), 1, len(answers), 0, 0)
        body = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + each for each in answers)
        return head + question[12:at + 5] + body

    def addresses(self, labels):
        if labels[-2:] == ["cluster", "local"]:
            labels = labels[:-2]
        if len(labels) != 3 or labels[2] != "svc":
            return None
        service, namespace, _ = labels
        if (service, namespace) == ("kubernetes", "default"):
            return [API_ADDRESS]
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name%3D{service}"
        code, body = self.request("GET", path)
        slices = json.loads(body)["items"] if code == 200 else []
        if not slices:
            return None
        # Not only ready ones: an executor may look up its driver before that is ready.
        return [a for s in slices for e in s.get("endpoints") or [] for a in e["addresses"]]

    # --- changes outside the namespaces

    def make_groups(self):
        for root in hierarchies():
            group = root / self.group
            group.mkdir(exist_ok=True)
            # A new cpuset is empty and accepts no process.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists() and (root / name).exists() and not (root / "cgroup.controllers").exists():
                    (group / name).write_text((root / name).read_text())
            # The whole node competes as one group with every other process of the machine: on a busy one it would
            # starve.
            for name, most in (("cpu.shares", "65536"), ("cpu.weight", "10000")):
                if (group / name).exists():
                    (group / name).write_text(most)

    def clean(self):
        for name, value in self.settings.items():
            with contextlib.suppress(OSError):
                if Path("/proc/sys", name).read_text() != value:
                    Path("/proc/sys", name).write_text(value)
        deadline = time.monotonic() + 10
        for root in hierarchies():
            while (root / self.group).exists() and not remove_groups(root / self.group) and time.monotonic() < deadline:
                time.sleep(0.1)


def hierarchies():
    """Where cgroups are mounted: one place (v2), or one per controller (v1)."""
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(words[1]) for words in lines if words[2] in ("cgroup", "cgroup2") and os.access(words[1], os.W_OK)]


def remove_groups(top):
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not top.exists()


def ctr(directory, tools, *words):
    command = [f"{tools}/usr/bin/ctr", "--address", f"{directory}/containerd.sock", "--namespace", "k8s.io", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def load(directory, tools, path):
    done = ctr(directory, tools, "images", "import", path)
    if done.returncode != 0:
        raise Problem(f"containerd could not import {path}: {done.stderr.strip()}")
    return done.stdout.strip()


def load_into(directory, path):
    """Implements `testenv load`."""
    if not (directory / "node" / "containerd.sock").exists():
        raise Problem(f"{directory} has no real node: start it with --real-node")
    return load(directory / "node", fetch_tools(), path)


def forward(server, port):
    """Forwards connections to a loopback port."""
    def carry(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve(client):
        with client:
            try:
                upstream = socket.create_connection(("127.0.0.1", port))
            except OSError:
                return
            with upstream:
                back = threading.Thread(target=carry, args=(upstream, client), daemon=True)
                back.start()
                carry(client, upstream)
                back.join()

    while True:
        client, _ = server.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"{' '.join(words)}: {done.stderr.strip()}")


# --- process 1 of the node


def first_process(directory):
    facts = json.loads((directory / "node.json").read_text())
    os.environ["PATH"] = facts["path"]
    # Kubelet and containerd share mounts only with each other.
    run("mount", "--make-rshared", "/")
    (directory / "alive").touch()
    wait_for(directory / "connected")
    for words in (["link", "set", "lo", "up"], ["addr", "add", f"{facts['address']}/30", "dev", "eth0"], ["link", "set", "eth0", "up"],
                  ["link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge"], ["addr", "add", f"{GATEWAY}/24", "dev", BRIDGE],
                  ["addr", "add", f"{API_ADDRESS}/32", "dev", BRIDGE], ["link", "set", BRIDGE, "up"],
                  ["route", "add", "default", "via", str(ipaddress.ip_address(facts["address"]) - 1)]):
        run("ip", *words)
    (directory / "bridged").touch()
    logs = Path(facts["logs"])
    children = [start(logs / "containerd.log", "containerd", "--config", directory / "containerd.toml")]
    wait_for(directory / "loaded")
    children.append(start(logs / "kubelet.log", facts["kubelet"], "--config", directory / "kubelet.json", "--kubeconfig", facts["kubeconfig"],
                          "--root-dir", directory / "kubelet", "--cert-dir", directory / "certificates", "--hostname-override", NAME,
                          "--node-ip", facts["address"]))
    while True:
        # As process 1 it adopts orphaned processes.
        pid, status = os.waitpid(-1, 0)
        if pid in children:
            sys.exit(f"{'containerd' if pid == children[0] else 'kubelet'} ended: {os.waitstatus_to_exitcode(status)}")


def start(log, *words):
    with open(log, "wb") as out:
        return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True).pid


def wait_for(path):
    while not path.exists():
        time.sleep(0.02)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    first_process(Path(sys.argv[1]))
