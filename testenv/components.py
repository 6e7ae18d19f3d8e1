"""The command line and the files of each component. Client rate limits are raised everywhere, so that they never limit
a benchmark."""
import base64
import json
import re
import socket
from pathlib import Path

QPS, BURST = 5000, 10000
SERVICE_RANGE = "10.96.0.0/16"
STAGES = Path(__file__).resolve().parent / "kwok-stages.yaml"

# Who changed what, with bodies, for tests and benchmarks that inspect requests; the control plane's own traffic is left
# out.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        # Pods created and deleted by the set controllers and the garbage collector.
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:kube-system"], "verbs": ["create", "delete"],
         "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system", "system:nodes"]},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"},
    ],
}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Plane:
    def __init__(self, directory, binaries):
        self.dir, self.bin, self.pki = directory, binaries, directory / "pki"
        self.port, self.etcd_port, self.peer_port = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"

    def write_files(self):
        self.write("audit-policy.json", AUDIT_POLICY)
        self.write("scheduler.json", {
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 32,
            "clientConnection": {"kubeconfig": str(self.dir / "kube-scheduler.kubeconfig"), "qps": QPS, "burst": BURST},
            "leaderElection": {"leaderElect": False},
        })
        self.write("kwok.json", {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration",
            "options": {"manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake", "cidr": "10.128.0.1/10", "nodeIP": "10.0.0.1",
                        "nodeLeaseDurationSeconds": 40, "podPlayStageParallelism": 64, "nodePlayStageParallelism": 32,
                        "nodeLeaseParallelism": 32, "podsOnNodeSyncParallelism": 16},
        })
        for user in ("kube-controller-manager", "kube-scheduler"):
            self.kubeconfig(f"{user}.kubeconfig", user)
        self.kubeconfig("kubeconfig", "admin")

    def write(self, name, content):
        (self.dir / name).write_text(json.dumps(content, indent=1) + "\n")

    def kubeconfig(self, file, user, server=None):
        def data(name):
            return base64.b64encode((self.pki / name).read_bytes()).decode()
        path = self.dir / file
        path.touch(mode=0o600)
        path.write_text(f"""\
apiVersion: v1
kind: Config
clusters:
- name: testenv
  cluster:
    server: {server or self.server}
    certificate-authority-data: {data("ca.crt")}
users:
- name: {user}
  user:
    client-certificate-data: {data(f"{user}.crt")}
    client-key-data: {data(f"{user}.key")}
contexts:
- name: testenv
  context:
    cluster: testenv
    user: {user}
    namespace: default
current-context: testenv
""")

    def command(self, name):
        flags = {"etcd": self.etcd, "kube-apiserver": self.apiserver, "kube-controller-manager": self.controller_manager,
                 "kube-scheduler": self.scheduler, "kwok": self.kwok}[name]()
        return [str(self.bin / name)] + [f"--{flag}" if value is True else f"--{flag}={value}" for flag, value in flags.items()]

    def etcd(self):
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        return {"data-dir": self.dir / "etcd", "name": "testenv", "unsafe-no-fsync": True, "log-level": "warn",
                "listen-client-urls": client, "advertise-client-urls": client, "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer, "initial-cluster": f"testenv={peer}", "quota-backend-bytes": 8 << 30}

    def apiserver(self):
        pki = self.pki
        return {
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}",
            "bind-address": "127.0.0.1", "advertise-address": "127.0.0.1", "secure-port": self.port,
            # EndpointSlices may not hold loopback addresses: without this the server logs an error every ten seconds.
            "endpoint-reconciler-type": "none",
            "tls-cert-file": pki / "kube-apiserver.crt", "tls-private-key-file": pki / "kube-apiserver.key",
            "client-ca-file": pki / "ca.crt", "authorization-mode": "Node,RBAC", "allow-privileged": True,
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": pki / "service-account.pub", "service-account-signing-key-file": pki / "service-account.key",
            "service-cluster-ip-range": SERVICE_RANGE,
            "kubelet-client-certificate": pki / "kubelet-client.crt", "kubelet-client-key": pki / "kubelet-client.key",
            "kubelet-preferred-address-types": "InternalIP",
            "audit-policy-file": self.dir / "audit-policy.json", "audit-log-path": self.dir / "audit.log",
            "max-requests-inflight": 5000, "max-mutating-requests-inflight": 5000,
        }

    def controller_manager(self):
        pki, config = self.pki, self.dir / "kube-controller-manager.kubeconfig"
        return {
            "kubeconfig": config, "authentication-kubeconfig": config, "authorization-kubeconfig": config,
            "leader-elect": "false", "secure-port": 0, "use-service-account-credentials": True,
            "service-account-private-key-file": pki / "service-account.key", "root-ca-file": pki / "ca.crt",
            "cluster-signing-cert-file": pki / "ca.crt", "cluster-signing-key-file": pki / "ca.key",
            "service-cluster-ip-range": SERVICE_RANGE, "allocate-node-cidrs": "false",
            "kube-api-qps": QPS, "kube-api-burst": BURST,
            "concurrent-gc-syncs": 40, "concurrent-namespace-syncs": 20, "concurrent-statefulset-syncs": 20,
            "concurrent-replicaset-syncs": 20, "concurrent-deployment-syncs": 20, "concurrent-job-syncs": 20,
        }

    def scheduler(self):
        return {"config": self.dir / "scheduler.json", "secure-port": 0}

    def kwok(self):
        return {"kubeconfig": self.dir / "kubeconfig", "config": f"{self.dir / 'kwok.json'},{STAGES}"}

    def kwok_node(self, number):
        name = f"kwok-{number}"
        room = {"cpu": "256", "memory": "1Ti", "ephemeral-storage": "10Ti", "pods": "2000"}
        return {"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                             "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
                "status": {"capacity": room, "allocatable": room}}

    def port_was_taken(self):
        return any("address already in use" in log.read_text(errors="replace") for log in (self.dir / "logs").glob("*.log"))

    def last_words(self, name):
        """The last line of its log that looks like an error."""
        lines = (self.dir / "logs" / f"{name}.log").read_text(errors="replace").splitlines()
        reasons = [line for line in lines if re.search(r"error|fatal|panic|^[EF]\d{4} ", line, re.I)]
        return (reasons or lines or ["it said nothing"])[-1][:300]
