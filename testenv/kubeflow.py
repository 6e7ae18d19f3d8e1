"""The existing operator (Apache-2.0) at one release, from its Go module: its custom resource definitions, and its binary, compiled once into
~/.cache/firesteel/kubeflow/<version>-<hash of what decides the result>.

Go fetches the module into its own module cache; the sum below must match. The binary is built there, as the main module, so the versions and
replacements in its own go.mod and the sums in its go.sum hold."""
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

import toolchain
from toolchain import Problem, Unavailable, say

MODULE = "github.com/kubeflow/spark-operator/v2"
VERSION = "v2.5.2"
SUM = "h1:6nX2UhwSfnYi1mtwczgFfJTMeLSL/1ajTvkFe8R7Vdc="
PACKAGE = "./cmd/operator"


def environment():
    return dict(os.environ, CGO_ENABLED="0", GOTOOLCHAIN="local", GOWORK="off", GOFLAGS="")


def source():
    """The directory of the module."""
    go, _ = toolchain.find_go()
    with tempfile.TemporaryDirectory() as elsewhere:
        answer = subprocess.run([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=elsewhere, env=environment(),
                                capture_output=True, text=True)
    try:
        module = json.loads(answer.stdout)
    except ValueError:
        module = {"Error": answer.stderr.strip()}
    if "Dir" not in module:
        raise Unavailable(f"Go cannot fetch {MODULE}@{VERSION}: {module.get('Error')}")
    if module["Sum"] != SUM:
        raise Problem(f"{MODULE}@{VERSION} has the sum {module['Sum']}, not {SUM}")
    return Path(module["Dir"])


def definitions():
    """The directory of its custom resource definitions."""
    return source() / "config" / "crd" / "bases"


def place(version):
    """Where its binary is, if this release of Go has built it."""
    words = " ".join([VERSION, SUM, version, *toolchain.FLAGS, platform.system(), platform.machine()])
    return toolchain.cache() / "kubeflow" / f"{VERSION}-{hashlib.sha256(words.encode()).hexdigest()[:12]}" / "spark-operator"


def built():
    """Its binary, if it has been built."""
    binary = place(toolchain.find_go()[1])
    return binary if binary.exists() else None


def operator():
    """Its binary."""
    go, version = toolchain.find_go()
    binary = place(version)
    home = binary.parent.parent
    if binary.exists():
        return binary
    with toolchain.locked(home / ".lock", "building the existing operator"):
        if binary.exists():
            return binary
        directory = source()
        say(f"building {MODULE}@{VERSION} with {version} into {binary.parent}: once, some minutes on two free cores")
        began = time.monotonic()
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=home) as scratch:
            built = f"{scratch}/spark-operator"
            command = [go, "build", *toolchain.FLAGS, "-ldflags", "-s -w", "-o", built, PACKAGE]
            if subprocess.run(command, cwd=directory, env=environment()).returncode != 0:
                raise Problem(f"go could not build {MODULE}@{VERSION}; see its output above")
            os.replace(built, binary)
        say(f"built in {time.monotonic() - began:.0f} s")
    return binary
