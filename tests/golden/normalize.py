#!/usr/bin/env python3
"""Makes what two submissions created comparable.

usage: normalize.py < objects.json     (a Kubernetes List, an array of objects, or one object)

Prints an array of objects, sorted by kind and name, without what the API server adds (identity, status, defaults, service account
volume, tolerations) and what differs from run to run: application ids become <APP_ID>, the hex part of generated names <ID>, other
UUIDs <UUID>, owners' uids <UID>, the submit time <TIME>. `spark.properties` becomes a map without the submission's credentials."""
import copy
import json
import re
import sys

SERVER_METADATA = {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
CREDENTIALS = re.compile(r"spark\.kubernetes\.(context$|authenticate\.submission\.)")
AUTOMATIC_TOLERATIONS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
FILE_MODE = 0o644
RANDOM_PARTS = [
    (re.compile(r"spark-[0-9a-f]{32}"), "<APP_ID>"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<UUID>"),
    # Spark's unique ids are 15 or 16 hex digits that stand alone or before a dash or a dot.
    (re.compile(r"(?<![0-9a-z])[0-9a-f]{15,16}(?=[-.\"]|$)"), "<ID>"),
]


def forget(fields, **defaults):
    """Removes the fields that have just these values."""
    for name, value in defaults.items():
        if name in fields and fields[name] == value and type(fields[name]) is type(value):
            del fields[name]


def forget_empty(fields, *names):
    for name in names:
        if not fields.get(name):
            fields.pop(name, None)


def normal_pod(pod):
    # The golden files of drivers do not say which namespace they are in; their properties do.
    pod["metadata"].pop("namespace", None)
    spec = pod["spec"]
    for name in ("nodeName", "preemptionPolicy", "priority", "serviceAccount"):
        spec.pop(name, None)
    forget(spec, serviceAccountName="default", dnsPolicy="ClusterFirst", enableServiceLinks=True, schedulerName="default-scheduler",
           securityContext={}, terminationGracePeriodSeconds=30)
    spec["tolerations"] = [each for each in spec.get("tolerations", []) if each.get("key") not in AUTOMATIC_TOLERATIONS]
    volumes = spec.get("volumes", [])
    token_volumes = {volume["name"] for volume in volumes if volume["name"].startswith("kube-api-access-")}
    spec["volumes"] = sorted((normal_volume(each) for each in volumes if each["name"] not in token_volumes), key=lambda each: each["name"])
    forget_empty(spec, "tolerations", "volumes")
    for container in spec.get("containers", []) + spec.get("initContainers", []):
        normal_container(container, token_volumes)


def normal_volume(volume):
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            forget(volume[source], defaultMode=FILE_MODE)
            for item in volume[source].get("items") or []:
                forget(item, mode=FILE_MODE)
    if "hostPath" in volume:
        forget(volume["hostPath"], type="")
    return volume


def normal_container(container, token_volumes):
    mounts = [each for each in container.get("volumeMounts", []) if each["name"] not in token_volumes]
    for mount in mounts:
        forget(mount, readOnly=False)
    container["volumeMounts"] = sorted(mounts, key=lambda each: (each["mountPath"], each["name"]))
    for variable in container.get("env", []):
        forget(variable, value="")
        forget(variable.get("valueFrom", {}).get("fieldRef", {}), apiVersion="v1")
    container["env"] = sorted(container.get("env", []), key=lambda each: each["name"])
    for port in container.get("ports", []):
        forget(port, protocol="TCP")
    forget_empty(container.get("resources", {}), "limits", "requests")
    forget(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File", imagePullPolicy="IfNotPresent")
    forget_empty(container, "env", "volumeMounts", "resources")


def normal_service(service):
    spec = service["spec"]
    forget(spec, sessionAffinity="None", internalTrafficPolicy="Cluster", type="ClusterIP", ipFamilyPolicy="SingleStack",
           ipFamilies=["IPv4"], clusterIPs=["None"])
    for port in spec.get("ports", []):
        forget(port, protocol="TCP", targetPort=port.get("port"))


def normal_config_map(config_map):
    data = config_map.get("data", {})
    if "spark.properties" in data:
        properties = {key: value for key, value in read_properties(data["spark.properties"]) if not CREDENTIALS.match(key)}
        if "spark.app.submitTime" in properties:
            properties["spark.app.submitTime"] = "<TIME>"
        data["spark.properties"] = properties


def normal_claim(claim):
    claim["metadata"].pop("finalizers", None)
    forget(claim["spec"], volumeMode="Filesystem")


def normal_set(stateful_set):
    spec = stateful_set["spec"]
    normal_pod(spec["template"])
    spec["template"]["metadata"].pop("creationTimestamp", None)
    for claim in spec.get("volumeClaimTemplates", []):
        claim.pop("status", None)
        claim["metadata"].pop("creationTimestamp", None)
        normal_claim(claim)


KINDS = {"Pod": normal_pod, "StatefulSet": normal_set, "Service": normal_service, "ConfigMap": normal_config_map, "PersistentVolumeClaim": normal_claim}


def read_properties(text):
    """Key and value of each entry as java.util.Properties writes them: one entry per line, first bare = or : ends the key."""
    for line in text.splitlines():
        if not line or line[0] in "#!":
            continue
        key, _, value = re.match(r"((?:[^\\=: ]|\\.)*)(\s*[=:]\s*|\s+|$)(.*)$", line).groups()
        yield unescape(key), unescape(value)


def unescape(text):
    letters = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def meaning(match):
        return chr(int(match[1][1:], 16)) if len(match[1]) == 5 else letters.get(match[1], match[1])
    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", meaning, text)


def normal(found):
    found = copy.deepcopy(found)
    found.pop("status", None)
    metadata = found["metadata"]
    for name in SERVER_METADATA & metadata.keys():
        del metadata[name]
    for owner in metadata.get("ownerReferences", []):
        owner["uid"] = "<UID>"
    KINDS.get(found["kind"], lambda _: None)(found)
    text = json.dumps(found, sort_keys=True)
    for pattern, placeholder in RANDOM_PARTS:
        text = pattern.sub(placeholder, text)
    return json.loads(text)


def normalize(objects):
    return sorted(map(normal, objects), key=lambda each: (each["kind"], each["metadata"]["name"]))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps(normalize(given if isinstance(given, list) else given.get("items", [given])), indent=1, sort_keys=True))
