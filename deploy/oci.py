"""Reads and writes OCI archives: an image layout in a tar file, with the `manifest.json` for `docker load`. The same content gives the same bytes."""
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

# 2024-01-01, the time of all files.
TIME = 1704067200
CREATED = "2024-01-01T00:00:00Z"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class Layer:
    """A tar file in memory."""

    def __init__(self):
        self.buffer = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buffer, mode="w", format=tarfile.PAX_FORMAT)
        self.directories = set()

    def member(self, path, kind, mode):
        path = str(path).strip("/")
        parent = os.path.dirname(path)
        if parent and parent not in self.directories:
            self.directory(parent)
        member = tarfile.TarInfo(path)
        member.type, member.mode, member.mtime = kind, mode, TIME
        return member

    def directory(self, path, mode=0o755):
        member = self.member(path, tarfile.DIRTYPE, mode)
        if member.name not in self.directories:
            self.directories.add(member.name)
            self.tar.addfile(member)

    def file(self, path, content, mode=0o644):
        member = self.member(path, tarfile.REGTYPE, mode)
        if isinstance(content, Path):
            member.size = content.stat().st_size
            with open(content, "rb") as file:
                self.tar.addfile(member, file)
            return
        content = content.encode() if isinstance(content, str) else content
        member.size = len(content)
        self.tar.addfile(member, io.BytesIO(content))

    def link(self, path, target):
        member = self.member(path, tarfile.SYMTYPE, 0o777)
        member.linkname = target
        self.tar.addfile(member)

    def finish(self):
        self.tar.close()
        return self.buffer.getvalue()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def full_name(name):
    """With the default registry and tag, as containerd spells it."""
    first, _, rest = name.partition("/")
    if not rest:
        name = f"docker.io/library/{name}"
    elif not any(mark in first for mark in ".:") and first != "localhost":
        name = f"docker.io/{name}"
    return name if ":" in name.rsplit("/", 1)[1] else f"{name}:latest"


class Image:
    """Layers and a configuration. Blobs are compressed layers by digest."""

    def __init__(self, architecture):
        self.config = {"created": CREATED, "architecture": architecture, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}, "history": []}
        self.layers = []

    def add(self, content, origin):
        """Adds a layer, given as a tar file."""
        packed = gzip.compress(content, compresslevel=6, mtime=0)
        self.layers.append((LAYER, packed))
        self.config["rootfs"]["diff_ids"].append(digest(content))
        self.config["history"].append({"created": CREATED, "created_by": origin})

    @classmethod
    def read(cls, path):
        with tarfile.open(path) as archive:
            def blob(name):
                return archive.extractfile(f"blobs/{name.replace(':', '/')}").read()
            index = json.load(archive.extractfile("index.json"))
            manifest = json.loads(blob(index["manifests"][0]["digest"]))
            image = cls("")
            image.config = json.loads(blob(manifest["config"]["digest"]))
            image.layers = [(layer["mediaType"], blob(layer["digest"])) for layer in manifest["layers"]]
        return image

    def unpacked(self):
        """The layers as tar files."""
        for kind, content in self.layers:
            yield gzip.decompress(content) if kind.endswith("gzip") else content

    def write(self, path, name):
        """Writes the archive; it appears under its name when it is complete. Returns the digest of the manifest."""
        config = json.dumps(self.config, sort_keys=True).encode()
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": kind, "digest": digest(content), "size": len(content)} for kind, content in self.layers]}).encode()
        full = full_name(name)
        entry = {"mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest),
                 "platform": {"os": self.config["os"], "architecture": self.config["architecture"]},
                 "annotations": {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": full.rsplit(":", 1)[1]}}
        short = full.removeprefix("docker.io/").removeprefix("library/")
        files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
                 "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
                 "manifest.json": json.dumps([{"Config": blob_path(config), "RepoTags": [short], "Layers": [blob_path(content) for _, content in self.layers]}]).encode()}
        files |= {blob_path(content): content for content in [config, manifest, *(content for _, content in self.layers)]}
        partial = Path(f"{path}.{os.getpid()}.partial")
        try:
            with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
                for file, content in files.items():
                    member = tarfile.TarInfo(file)
                    member.size, member.mtime, member.mode = len(content), TIME, 0o644
                    archive.addfile(member, io.BytesIO(content))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        return digest(manifest)


def blob_path(content):
    return f"blobs/{digest(content).replace(':', '/')}"
