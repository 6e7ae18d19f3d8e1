"""Builds what a benchmark measures, describes the machine, formats spreads and promises, and writes results."""
import datetime
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
# On SIGTERM, clean up first, as on Ctrl-C.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def build(*packages):
    """Builds release binaries of these packages; returns their directory."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or Path.home() / ".cache/firesteel/target")
    chosen = [word for package in packages for word in ("-p", package)]
    subprocess.run(["cargo", "build", "--release", "--locked", "--bins", *chosen], cwd=ROOT, check=True,
                   env=dict(os.environ, CARGO_TARGET_DIR=str(target)))
    return target / "release"


def say(text):
    print(text, file=sys.stderr, flush=True)


def spread(values, digits=0):
    """`median (least … most)`."""
    values = sorted(values)
    return f"{statistics.median(values):.{digits}f} ({values[0]:.{digits}f} … {values[-1]:.{digits}f})"


def percentile(values, p):
    """The smallest value that at least this percentage of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * p / 100) - 1]


def promises(held):
    """One line for each (kept, text)."""
    return [f"- {'kept' if kept else 'NOT KEPT'}: {text}" for kept, text in held]


def machine():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    release = ".".join(platform.release().split(".")[:2])
    return (f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()} {release}; "
            f"load average at the start {LOAD:.1f}, at the end {os.getloadavg()[0]:.1f}.")


LOAD = os.getloadavg()[0]


def today():
    return datetime.date.today().isoformat()


def write(name, text):
    into = ROOT / "bench/results" / f"{name}-{today()}.md"
    into.parent.mkdir(exist_ok=True)
    into.write_text(text + "\n")
