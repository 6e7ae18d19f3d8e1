#!/usr/bin/env python3
"""Packs the field numbers of upstream's protobuf messages (Apache-2.0) into protobuf.json.gz.

Usage: pack_protobuf.py <go module cache>/k8s.io <version>, such as ~/go/pkg/mod/k8s.io v0.35.8
Per message and number: JSON name, type, and flags: r repeated, m map, i inlined into its parent, p a pointer in Go (its
zero value is kept).
"""
import gzip, json, pathlib, re, sys

root, version = pathlib.Path(sys.argv[1]), sys.argv[2]
api, machinery, extensions = (root / f"{m}@{version}" for m in ("api", "apimachinery", "apiextensions-apiserver"))
DIRS = [api / d for d in """admissionregistration/v1 apps/v1 authentication/v1 authorization/v1 autoscaling/v1 autoscaling/v2
    batch/v1 certificates/v1 coordination/v1 core/v1 discovery/v1 events/v1 networking/v1 node/v1 policy/v1 rbac/v1
    scheduling/v1 storage/v1""".split()]
DIRS += [machinery / "pkg/apis/meta/v1", machinery / "pkg/api/resource", machinery / "pkg/util/intstr", machinery / "pkg/runtime",
         extensions / "pkg/apis/apiextensions/v1"]

here = pathlib.Path(__file__).parent
openapi = json.load(gzip.open(here / "schemas.json.gz"))


def openapi_name(message):
    return (message.replace("k8s.io.apiextensions_apiserver.", "io.k8s.apiextensions-apiserver.")
            .replace("k8s.io.apimachinery.", "io.k8s.apimachinery.").replace("k8s.io.api.", "io.k8s.api."))


def pointers(directory):
    """(struct, json name) of fields that are pointers in Go."""
    found = set()
    for source in directory.glob("*.go"):
        struct = None
        for line in source.read_text().splitlines():
            if m := re.match(r"type (\w+) struct \{", line):
                struct = m[1]
            elif struct and (m := re.match(r'\s+\w+\s+(\*?)\S+\s+`json:"([^",]+)', line)):
                if m[1]:
                    found.add((struct, m[2]))
            elif line.startswith("}"):
                struct = None
    return found


messages = {}
for directory in DIRS:
    text = (directory / "generated.proto").read_text()
    package = re.search(r"^package (\S+);", text, re.M)[1]
    pointer = pointers(directory)
    current = None
    for line in text.splitlines():
        if m := re.match(r"message (\w+) \{", line):
            current, name = {}, m[1]
            messages[f"{package}.{name}"] = current
            schema = openapi.get(openapi_name(f"{package}.{name}"), {}).get("properties")
        elif current is not None and (m := re.match(r"\s+(optional|repeated) (\S+) (\w+) = (\d+);", line)):
            kind = m[2][1:] if m[2].startswith(".") else m[2]
            if kind[0].isupper():
                kind = f"{package}.{kind}"
            json_name = {"Webhooks": "webhooks"}.get(m[3], m[3])
            flags = "r" if m[1] == "repeated" else ""
            if schema is not None and json_name not in schema and "." in kind:
                flags += "i"
            if (name, m[3]) in pointer:
                flags += "p"
            current[m[4]] = [json_name, kind, flags]
        elif current is not None and (m := re.match(r"\s+map<(\w+), (\S+)> (\w+) = (\d+);", line)):
            kind = m[2][1:] if m[2].startswith(".") else m[2]
            if kind[0].isupper():
                kind = f"{package}.{kind}"
            current[m[4]] = [m[3], kind, "m"]
data = json.dumps(messages, separators=(",", ":")).encode()
target = here / "protobuf.json.gz"
target.write_bytes(gzip.compress(data, 9, mtime=0))
inlined = [(k.rsplit(".", 1)[1], f[0]) for k, v in messages.items() for f in v.values() if "i" in f[2]]
print(len(messages), "messages,", target.stat().st_size, "bytes packed; inlined:", inlined)
