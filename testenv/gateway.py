"""The Gateway API's custom resource definitions (Apache-2.0) at one release, from its Go module, in
~/.cache/firesteel/gateway-api/<version>.

Go fetches the module and says its sum, which must match. The definitions are unpacked from the archive: this release of the module asks
for a newer Go than the rest of testenv, which matters only to code."""
import json
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

import toolchain
from toolchain import Problem, Unavailable

MODULE = "sigs.k8s.io/gateway-api"
VERSION = "v1.7.0"
SUM = "h1:duVnm7nO6oXfMMUWfcDoBph47CYR/ME3NGxccOVglaY="
INSIDE = f"{MODULE}@{VERSION}/config/crd/standard/"
# The kinds that routes need.
KINDS = ["gatewayclasses", "gateways", "httproutes", "referencegrants"]


def archive():
    """The module's archive, with the right sum."""
    go, _ = toolchain.find_go()
    environment = dict(os.environ, GOTOOLCHAIN="local", GOWORK="off", GOFLAGS="")
    with tempfile.TemporaryDirectory() as elsewhere:
        answer = subprocess.run([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=elsewhere, env=environment, capture_output=True, text=True)
    try:
        module = json.loads(answer.stdout)
    except ValueError:
        module = {"Error": answer.stderr.strip()}
    if "Zip" not in module or "Sum" not in module:
        raise Unavailable(f"Go cannot fetch {MODULE}@{VERSION}: {module.get('Error')}")
    if module["Sum"] != SUM:
        raise Problem(f"{MODULE}@{VERSION} has the sum {module['Sum']}, not {SUM}")
    return Path(module["Zip"])


def definitions():
    """The directory of its custom resource definitions."""
    home = toolchain.cache() / "gateway-api"
    directory = home / VERSION
    if directory.exists():
        return directory
    with toolchain.locked(home / ".lock", "unpacking the Gateway API"):
        if directory.exists():
            return directory
        with tempfile.TemporaryDirectory(prefix=".unpack-", dir=home) as scratch, zipfile.ZipFile(archive()) as files:
            unpacked = Path(scratch) / VERSION
            unpacked.mkdir()
            for kind in KINDS:
                name = f"gateway.networking.k8s.io_{kind}.yaml"
                (unpacked / name).write_bytes(files.read(INSIDE + name))
            os.replace(unpacked, directory)
    return directory
