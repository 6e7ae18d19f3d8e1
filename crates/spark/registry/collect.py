#!/usr/bin/env python3
"""Writes ../src/registry/settings.tsv from the jars of one PySpark package per Spark line.

    collect.py 3.5=DIR 4.0=DIR 4.1=DIR 4.2=DIR 4.3=DIR

Each DIR is the `jars` directory of an unpacked package (`pip download pyspark==V --no-deps`). Needs a JDK 17.
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# Keys that Spark reads only by name, so that they are not defined in any jar: key, kind, first line.
BY_NAME = [
    ("spark.app.id", "string", "3.5"),
    ("spark.app.name", "string", "3.5"),
    ("spark.app.submitTime", "long", "3.5"),
    ("spark.home", "string", "3.5"),
    ("spark.kubernetes.executor.hadoopConfigMapName", "string", "3.5"),
    ("spark.kubernetes.kerberos.dt-secret-key", "string", "3.5"),
    ("spark.kubernetes.kerberos.dt-secret-name", "string", "3.5"),
    ("spark.kubernetes.scheduler.volcano.podGroupTemplateFile", "string", "3.5"),
    ("spark.kubernetes.scheduler.volcano.podGroupTemplateJson", "string", "4.2"),
    ("spark.kubernetes.setSubmitTimeInDriver", "boolean", "3.5"),
    ("spark.local.connect", "string", "3.5"),
    ("spark.master", "string", "3.5"),
    ("spark.remote", "string", "3.5"),
]
for prefix in ["", ".submission", ".driver", ".driver.mounted", ".executor"]:
    for suffix in ["oauthToken", "oauthTokenFile", "clientKeyFile", "clientCertFile", "caCertFile"]:
        BY_NAME.append((f"spark.kubernetes.authenticate{prefix}.{suffix}", "string", "3.5"))


def settings(jars, work):
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", work, str(HERE / "Settings.java")], check=True)
    out = subprocess.run(
        ["java", "-cp", f"{work}:{jars}/*", "Settings"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    rows = [line.split("\t") for line in out.stdout.decode().splitlines() if line.startswith("spark.")]
    # The default is the address of the machine that Spark runs on.
    machine = {"spark.driver.host"}
    return {
        key: ("<undefined>" if key in machine else default, public == "true", kind)
        for key, default, _, public, kind in rows
    }


def main():
    lines, found = [], {}
    for arg in sys.argv[1:]:
        line, jars = arg.split("=", 1)
        lines.append(line)
        with tempfile.TemporaryDirectory() as work:
            for key, value in settings(jars, work).items():
                found.setdefault(key, {})[line] = value
    for key, kind, since in BY_NAME:
        found[key] = {line: ("<undefined>", True, kind) for line in lines if line >= since}
    rows = []
    for key, by_line in sorted(found.items()):
        has = [line for line in lines if line in by_line]
        assert has == lines[lines.index(has[0]) : lines.index(has[-1]) + 1], f"{key} comes and goes"
        span = has[0] + ".." + (has[-1] if has[-1] != lines[-1] else "")
        kinds = {by_line[line][2] for line in has}
        kind = by_line[has[-1]][2] if len(kinds) == 1 else "string"
        changes = [line for at, line in enumerate(has) if at == 0 or by_line[line][0] != by_line[has[at - 1]][0]]
        defaults = [by_line[line][0] for line in changes]
        assert not any("\t" in d for d in defaults), key
        if len(defaults) > 1:
            assert not any(" | " in d for d in defaults), key
            default = " | ".join(f"{line}={value}" for line, value in zip(changes, defaults))
        else:
            default = defaults[0]
        visibility = "public" if by_line[has[-1]][1] else "internal"
        rows.append("\t".join([key, kind, span, visibility, default]))
    head = "# key, kind, Spark lines, visibility, default; written by crates/spark/registry/collect.py\n"
    (HERE.parent / "src/registry/settings.tsv").write_text(head + "\n".join(rows) + "\n")


main()
